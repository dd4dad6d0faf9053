//! What the documents say is what the program does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::snapshot::Snapshot;
use config::{reference, schema};

use crate::sample::{EVERY_KEY, Headers, kinds, loader};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The blocks of a Markdown text that are marked as YAML.
fn yaml_blocks(markdown: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in markdown.lines() {
        match (&mut open, line.trim_end()) {
            (None, "```yaml") => open = Some(String::new()),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), line) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}

#[test]
fn every_example_loads_without_a_warning() {
    let mut count = 0;
    let examples = std::fs::read_dir(repository().join("examples")).unwrap();
    let paths = examples.map(|entry| entry.unwrap().path());
    for path in paths.chain([repository().join("packaging/strait.yaml")]) {
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let mut loader = loader();
        let name = path.display().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        loader.load(&name, &text).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(loader.warnings(), [], "{name}");
        count += 1;
    }
    assert!(count >= 2, "the examples are found");
}

#[test]
fn the_table_of_sections_has_every_section() {
    let page = std::fs::read_to_string(repository().join("docs/configuration/README.md")).unwrap();
    let (_, table) = page.split_once("| section | content |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let schema = schema(&kinds());
    let sections = schema["properties"].as_object().unwrap();
    for section in sections.keys() {
        assert!(table.contains(&format!("\n| `{section}` | ")), "{section} is missing there");
    }
    assert_eq!(table.lines().filter(|line| line.starts_with("| `")).count(), sections.len());
}

#[test]
fn every_yaml_block_of_the_guides_loads_without_a_warning() {
    for (page, blocks_min) in [
        ("docs/configuration/README.md", 5),
        ("docs/configuration/routing.md", 1),
        ("docs/configuration/balancing.md", 1),
        ("docs/configuration/breakers.md", 4),
        ("docs/configuration/checks.md", 1),
        ("docs/configuration/coming-from.md", 1),
        ("docs/configuration/failures.md", 1),
        ("docs/configuration/outliers.md", 1),
        ("docs/configuration/retries.md", 2),
        ("docs/configuration/rpc.md", 1),
        ("docs/production.md", 1),
        ("docs/admin.md", 1),
        ("docs/upgrading.md", 1),
        ("README.md", 1),
    ] {
        let blocks = yaml_blocks(&std::fs::read_to_string(repository().join(page)).unwrap());
        assert!(blocks.len() >= blocks_min, "the blocks of {page} are found");
        for block in blocks {
            let mut loader = loader();
            // These two show an option by itself.
            let is_part = ["docs/admin.md", "docs/upgrading.md"].contains(&page);
            let rest = if is_part {
                "listeners: [{ name: a, address: 127.0.0.1:80, routes: b }]\nroutes: [{ name: b, rules: [{ match: { prefix: / }, respond: {} }] }]\n"
            } else {
                ""
            };
            loader
                .load(page, &(block.clone() + rest))
                .unwrap_or_else(|errors| panic!("{block}\n{errors}"));
            assert_eq!(loader.warnings(), [], "{block}");
        }
    }
}

/// What a file for Kubernetes has in its map, loaded.
fn loaded_map(file: &str, content: &str) -> Arc<Snapshot<Headers>> {
    let (_, rest) = content.split_once("  strait.yaml: |\n").expect("the file of the map");
    let lines = rest.lines().map_while(|line| line.strip_prefix("    "));
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut loader = loader();
    let snapshot = loader.load(file, &text).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    assert_eq!(loader.warnings(), [], "{file}");
    snapshot
}

#[test]
fn the_config_map_for_kubernetes_loads_without_a_warning() {
    let file = std::fs::read_to_string(repository().join("packaging/kubernetes.yaml")).unwrap();
    loaded_map("kubernetes.yaml", &file);
}

#[test]
fn examples_for_kubernetes_load_and_share_the_folder_of_the_handover() {
    for (file, shared, updates) in [
        ("node.yaml", "hostPath: { path: /run/strait, type: DirectoryOrCreate }", "maxSurge: 1"),
        // The process of the other container answers at the same address.
        (
            "node.yaml",
            "startupProbe:",
            "command: [strait, ready, --here, --admin, \"127.0.0.1:9902\"]",
        ),
        ("pod.yaml", "emptyDir: {", "strait ready --here --admin 127.0.0.1:9902"),
        ("sidecar.yaml", "postStart:", "ready, --here=if-any, --admin, \"127.0.0.1:9902\""),
        ("pod.yaml", "emptyDir: {", "strait-2=strait:2"),
        ("sidecar.yaml", "emptyDir: {", "upgradeType: HotUpgrade"),
    ] {
        let path = repository().join("examples/kubernetes").join(file);
        let content = std::fs::read_to_string(path).unwrap();
        let snapshot = loaded_map(file, &content);
        let options = &snapshot.startup.handover;
        let socket = options.socket.as_deref().expect("both processes find it");
        let folder = socket.parent().and_then(|own| own.parent()).expect("a folder of the pod's");
        let mount = format!("{{ name: handover, mountPath: {} }}", folder.display());
        // A process that ends by itself is started again.
        assert!(options.probation >= Duration::from_secs(600), "{file}");
        for part in
            [&*mount, shared, updates, "[run, --take-over, --config, /etc/strait/strait.yaml]"]
        {
            assert!(content.contains(part), "{file}: {part}");
        }
        // The kubelet would refuse the second pod of a node.
        assert!(!content.contains("hostNetwork: true") || !content.contains(" ports:"), "{file}");
    }
}

/// Without filters: each documents itself where it lives.
#[test]
fn the_reference_has_a_line_for_every_key_and_for_those_of_filters() {
    let page = reference(&kinds()).unwrap();
    let mut keys = Vec::new();
    collect_keys(&schema(&kinds()), &mut keys);
    assert!(keys.len() > 80);
    for key in keys {
        assert!(page.contains(&format!("| `{key}` |")), "{key}");
    }
    for line in [
        "| `connect_timeout` | duration, 1ms to 24h | `5s` |",
        "| `head_max` | size, 256B to 60KiB | `60KiB` |",
        "| `body_max` | size, or `none` | `none` |",
        "| `timeout` | duration, 1ms to 24h, or `none` | `1h` |",
        "| `name` | text | **required** |",
        "## `listeners[].filters[].headers.request`",
    ] {
        assert!(page.contains(line), "{line}");
    }
}

fn collect_keys(schema: &serde_json::Value, keys: &mut Vec<String>) {
    match schema {
        serde_json::Value::Object(entries) => {
            if let Some(serde_json::Value::Object(properties)) = entries.get("properties") {
                keys.extend(properties.keys().cloned());
            }
            entries.values().for_each(|value| collect_keys(value, keys));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| collect_keys(item, keys)),
        _ => {}
    }
}

#[test]
fn every_key_of_the_schema_says_what_it_means_and_the_sample_has_them_all() {
    let schema = schema(&kinds());
    assert_eq!(schema["title"], "Strait configuration");
    let mut undocumented = Vec::new();
    collect_undocumented(&schema, &mut undocumented);
    assert_eq!(undocumented, Vec::<String>::new());
    let mut keys = Vec::new();
    collect_keys(&schema, &mut keys);
    for key in keys {
        assert!(EVERY_KEY.contains(&format!("{key}:")), "{key} in the sample with every key");
    }
}

fn collect_undocumented(schema: &serde_json::Value, found: &mut Vec<String>) {
    match schema {
        serde_json::Value::Object(entries) => {
            if let Some(serde_json::Value::Object(properties)) = entries.get("properties") {
                let undocumented = properties.iter().filter(|(_, schema)| {
                    schema.get("description").is_none_or(|text| text.as_str() == Some(""))
                });
                found.extend(undocumented.map(|(key, _)| key.clone()));
            }
            entries.values().for_each(|value| collect_undocumented(value, found));
        }
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| collect_undocumented(item, found));
        }
        _ => {}
    }
}

/// The schema that an editor reads is as strict as the program: no key may be null, and no object takes
/// keys that it does not know.
#[test]
fn the_schema_is_closed_and_has_no_nulls() {
    fn check(schema: &serde_json::Value) {
        match schema {
            serde_json::Value::Object(entries) => {
                if entries.contains_key("properties") {
                    assert_eq!(entries["additionalProperties"], false, "{schema}");
                }
                assert_ne!(entries.get("type"), Some(&"null".into()));
                assert!(!entries.contains_key("$ref"), "{schema}");
                entries.values().for_each(check);
            }
            serde_json::Value::Array(items) => {
                assert!(!items.contains(&"null".into()));
                items.iter().for_each(check);
            }
            _ => {}
        }
    }
    check(&schema(&kinds()));
}
