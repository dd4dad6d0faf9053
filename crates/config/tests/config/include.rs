//! `include`: several files make one configuration.

use config::{Errors, Finding};

use crate::sample::loader;

const FIRST: &str = "\
include: [conf.d/*.yaml, extra.yaml]
listeners:
  - { name: edge, address: 127.0.0.1:80, routes: [shop, blog] }
routes:
  - { name: shop, hosts: [shop.example], rules: [{ match: { prefix: / }, cluster: shop }] }
";

const SHOP: &str = "clusters:\n  - { name: shop, endpoints: [127.0.0.1:1] }\n";

const BLOG: &str = "\
# The blog.
routes:
  - { name: blog, hosts: [blog.example], rules: [{ match: { prefix: / }, cluster: blog }] }
clusters:
  - { name: blog, endpoints: [127.0.0.1:2] }
";

fn load(first: &str, files: &[(&str, &str)]) -> Result<Vec<String>, Vec<Finding>> {
    let mut loader = loader();
    for (name, text) in files {
        loader.outside.insert(*name, *text);
    }
    match loader.load("strait.yaml", first) {
        Ok(snapshot) => {
            let tables = snapshot.route_tables.iter().map(|(_, table)| table.name.to_string());
            let clusters = snapshot.clusters.iter().map(|(_, cluster)| cluster.name.to_string());
            let listeners = snapshot.listeners.iter().map(|listener| listener.name.to_string());
            Ok(listeners.chain(tables).chain(clusters).collect())
        }
        Err(Errors { errors, .. }) => Err(errors),
    }
}

#[track_caller]
fn refused(first: &str, files: &[(&str, &str)], place: (&str, u32, u32), rule: &str, hint: &str) {
    let errors = load(first, files).err().unwrap_or_default();
    assert_eq!(errors.len(), 1, "one error is expected: {errors:#?}");
    let error = &errors[0];
    assert_eq!((&*error.file, error.line, error.column), place, "{error}");
    assert!(error.rule.contains(rule) && error.hint.contains(hint), "{error}");
}

#[test]
fn lists_of_several_files_follow_each_other() {
    let files = [("conf.d/a.yaml", SHOP), ("conf.d/b.txt", "what is this?"), ("extra.yaml", BLOG)];
    assert_eq!(load(FIRST, &files).unwrap(), ["edge", "shop", "blog", "shop", "blog"]);
    // In the order of their names, whatever else they hold, and files may include others.
    let nested = format!("include: [deep/x.yaml]\nlimits: {{ drain_timeout: 5s }}\n{BLOG}");
    let files = [
        ("conf.d/b.yaml", SHOP),
        ("conf.d/a.yaml", &nested),
        ("deep/x.yaml", "clusters: []"),
        ("extra.yaml", "limits: {}"),
    ];
    refused(FIRST, &files, ("extra.yaml", 1, 1), "one file only", "line 2 of conf.d/a.yaml");
    let files = [
        ("conf.d/b.yaml", SHOP),
        ("conf.d/a.yaml", &nested),
        ("deep/x.yaml", "clusters: []"),
        ("extra.yaml", "clusters: []"),
    ];
    assert_eq!(load(FIRST, &files).unwrap(), ["edge", "shop", "blog", "blog", "shop"]);
}

#[test]
fn what_is_effective_is_one_file() {
    let mut loader = loader();
    loader.outside.insert("conf.d/a.yaml", SHOP);
    loader.outside.insert("extra.yaml", BLOG);
    let snapshot = loader.load("strait.yaml", FIRST).unwrap();
    let shown = config::effective_yaml(&snapshot);
    assert!(shown.contains("name: blog") && !shown.contains("include"), "{shown}");
    let again = loader.load("shown.yaml", &shown).unwrap();
    assert_eq!(config::effective_yaml(&again), shown);
}

#[test]
fn mistakes_are_reported_in_the_file_that_has_them() {
    let wrong = BLOG.replace("127.0.0.1:2", "127.0.0.1");
    let files = [("conf.d/a.yaml", SHOP), ("extra.yaml", wrong.as_str())];
    let errors = load(FIRST, &files).unwrap_err();
    let [error] = errors.as_slice() else { panic!("{errors:#?}") };
    assert_eq!((&*error.file, error.line), ("extra.yaml", 5));
    assert!(error.source.contains("name: blog"), "{error}");
    // Two of one name, in two files.
    let files = [("conf.d/a.yaml", SHOP), ("conf.d/b.yaml", SHOP), ("extra.yaml", BLOG)];
    refused(FIRST, &files, ("conf.d/b.yaml", 2, 13), "its own name", "line 2 of conf.d/a.yaml");
    // What is no YAML.
    let files = [("conf.d/a.yaml", SHOP), ("extra.yaml", "clusters:\n  - { name: [\n")];
    let errors = load(FIRST, &files).unwrap_err();
    assert!(errors.iter().any(|error| &*error.file == "extra.yaml"), "{errors:#?}");
    let files = [("conf.d/a.yaml", SHOP), ("extra.yaml", "- a list\n")];
    let errors = load(FIRST, &files).unwrap_err();
    assert!(errors.iter().any(|error| &*error.file == "extra.yaml"), "{errors:#?}");
}

#[test]
fn a_missing_file_a_loop_and_a_file_twice_are_errors_and_a_pattern_may_fit_nothing() {
    let one = |list: &str| format!("include: [{list}]\nlisteners: []\n");
    assert_eq!(load(&one("'conf.d/*.yml'"), &[]).unwrap(), Vec::<String>::new());
    let at = ("strait.yaml", 1, 11);
    refused(&one("missing.yaml"), &[], at, "there is no file missing.yaml", "main configuration");
    refused(&one("'*/a.yaml'"), &[], at, "a folder name cannot be a pattern", "one path");
    refused(&one("''"), &[], at, "the path of a file is needed", "conf.d");
    let itself = [("a.yaml", "include: [b.yaml]\n"), ("b.yaml", "include: [a.yaml]\n")];
    refused(&one("a.yaml"), &itself, ("b.yaml", 1, 11), "a.yaml includes itself", "remove");
    let first = [("a.yaml", "include: [strait.yaml]\n"), ("strait.yaml", &one("a.yaml"))];
    refused(&one("a.yaml"), &first, ("a.yaml", 1, 11), "strait.yaml includes itself", "remove");
    refused(
        &one("a.yaml, '?.yaml'"),
        &[("a.yaml", "clusters: []")],
        ("strait.yaml", 1, 19),
        "a.yaml is included twice",
        "remove",
    );
    // In another spelling.
    let both = [("a.yaml", "clusters: []"), ("./a.yaml", "clusters: []")];
    let twice = ("strait.yaml", 1, 19);
    refused(&one("a.yaml, ./a.yaml"), &both, twice, "./a.yaml is included twice", "remove");
    let first = [("./strait.yaml", &*one("a.yaml"))];
    refused(&one("./strait.yaml"), &first, at, "./strait.yaml includes itself", "remove");
    refused(
        "include: a.yaml\nlisteners: []\n",
        &[],
        ("strait.yaml", 1, 10),
        "a list of paths",
        "[conf.d/*.yaml]",
    );
    refused(&one("'${NONE}'"), &[], at, "NONE", "");
}

#[test]
fn variables_stand_in_paths_and_in_included_files() {
    let mut loader = loader();
    loader.outside.set_variable("SITE", "shop");
    loader.outside.set_variable("PORT", "7");
    loader.outside.insert("shop.yaml", "clusters: [{ name: a, endpoints: ['127.0.0.1:${PORT}'] }]");
    let first = "include: ['${SITE}.yaml']\nlisteners: [{ name: l, address: 127.0.0.1:1, protocol: tcp, cluster: a }]\n";
    let snapshot = loader.load("strait.yaml", first).unwrap();
    let (_, cluster) = snapshot.clusters.iter().next().unwrap();
    assert_eq!(cluster.endpoints[0].address.to_string(), "127.0.0.1:7");
}

#[test]
fn files_beyond_the_most_that_may_be_included_are_reported_once() {
    let names: Vec<_> = (0..1_500).map(|n| format!("many/{n:04}.yaml")).collect();
    let files = |count| names.iter().take(count).map(|name| (name.as_str(), "clusters: []"));
    let first = "include: [many/*.yaml]\nlisteners: []\n";
    load(first, &files(1_000).collect::<Vec<_>>()).unwrap();
    let rule = "may include 1000 files, and many/1000.yaml is one more";
    let files: Vec<_> = files(1_500).collect();
    refused(first, &files, ("strait.yaml", 1, 11), rule, "put some of them together");
}
