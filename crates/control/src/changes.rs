//! What a reload changed, in a line of the log.

use std::fmt::Write as _;

use config::snapshot::Snapshot;

/// Names of a kind that are listed; of the others, the number.
const NAMES_MAX: usize = 5;

/// What `now` adds (`+`), changes (`~`) and removes (`-`) against `former`.
pub(crate) fn summary<F>(former: &Snapshot<F>, now: &Snapshot<F>) -> String {
    let changes = &now.changes;
    let listener = |of: &Snapshot<F>, id| Some(of.listener(id)?.1.name.to_string());
    let cluster = |of: &Snapshot<F>, id| Some(of.cluster(id)?.name.to_string());
    let table = |of: &Snapshot<F>, id| Some(of.route_table(id)?.name.to_string());
    let names = |sign: char, names: &mut dyn Iterator<Item = Option<String>>| {
        names.flatten().map(|name| format!("{sign}{name}")).collect::<Vec<_>>()
    };
    let listeners = [
        names('+', &mut changes.listeners_added.iter().map(|id| listener(now, *id))),
        names('~', &mut changes.listeners_changed.iter().map(|id| listener(now, *id))),
        names('-', &mut changes.listeners_removed.iter().map(|id| listener(former, *id))),
    ];
    let routes = [
        names('+', &mut changes.route_tables_added.iter().map(|id| table(now, *id))),
        names('~', &mut changes.route_tables_changed.iter().map(|id| table(now, *id))),
        names('-', &mut changes.route_tables_removed.iter().map(|id| table(former, *id))),
    ];
    let clusters = [
        names('+', &mut changes.clusters_added.iter().map(|id| cluster(now, *id))),
        names('~', &mut changes.clusters_changed.iter().map(|id| cluster(now, *id))),
        names('-', &mut changes.clusters_removed.iter().map(|id| cluster(former, *id))),
    ];
    let mut parts: Vec<String> =
        [("listeners", listeners), ("routes", routes), ("clusters", clusters)]
            .into_iter()
            .filter_map(|(kind, names)| listed(kind, &names.concat()))
            .collect();
    let (added, removed) = (changes.endpoints_added.len(), changes.endpoints_removed.len());
    if added + removed > 0 {
        parts.push(format!("endpoints +{added} -{removed}"));
    }
    if former.limits != now.limits {
        parts.push("limits".to_owned());
    }
    if former.access_log != now.access_log {
        parts.push("access_log".to_owned());
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
}

/// `clusters +a ~b -c, 3 more`, if there are any.
fn listed(kind: &str, names: &[String]) -> Option<String> {
    let shown = names.get(..names.len().min(NAMES_MAX)).filter(|shown| !shown.is_empty())?;
    let mut text = format!("{kind} {}", shown.join(" "));
    if names.len() > NAMES_MAX {
        // Writing to a string cannot fail.
        let _ = write!(text, ", {} more", names.len() - NAMES_MAX);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use config::{FilterKinds, Loader};

    use super::*;

    fn config(listener: &str, clusters: &[(&str, u16)], more: &str) -> String {
        let mut text = format!(
            "listeners: [{{ name: {listener}, address: '127.0.0.1:1', routes: all }}]\n\
             routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, cluster: a }}] }}]\n\
             {more}clusters:\n"
        );
        for (name, port) in clusters {
            let _ = writeln!(text, "- {{ name: {name}, endpoints: ['127.0.0.1:{port}'] }}");
        }
        text
    }

    #[test]
    fn what_changed_is_named_and_what_did_not_is_left_out() {
        let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
        let mut load = |text: &str| loader.load("test", text).unwrap();
        let first = load(&config("edge", &[("a", 1), ("b", 2)], ""));
        let same = load(&config("edge", &[("a", 1), ("b", 2)], ""));
        assert_eq!(summary(&first, &same), "nothing");
        let more = "limits: { drain_timeout: 1s }\n";
        let second = load(&config("edge", &[("a", 1), ("c", 3)], more));
        assert_eq!(summary(&same, &second), "clusters +c -b; endpoints +1 -1; limits");
        let many: Vec<_> = ["a", "c", "d", "e", "f", "g", "h", "i"].map(|name| (name, 3)).into();
        let third = load(&config("door", &many, more));
        let text = summary(&second, &third);
        assert!(
            text.starts_with("listeners +door -edge; clusters +d +e +f +g +h, 2 more; "),
            "{text}"
        );
    }
}
