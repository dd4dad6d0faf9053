//! What a reload changed, in a line of the log.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use config::snapshot::Snapshot;

/// Names of a kind that are listed; of the others, the number.
const NAMES_MAX: usize = 5;

/// What `now` adds (`+`), changes (`~`) and removes (`-`) against `former`.
pub(crate) fn summary<F>(former: &Snapshot<F>, now: &Snapshot<F>) -> String {
    let changes = &now.changes;
    let mut text = String::new();
    let listener = |of: &'_ Snapshot<F>, id| Some(Arc::clone(&of.listener(id)?.1.name));
    list(
        &mut text,
        "listeners",
        [
            ('+', &mut changes.listeners_added.iter().filter_map(|id| listener(now, *id))),
            ('~', &mut changes.listeners_changed.iter().filter_map(|id| listener(now, *id))),
            ('-', &mut changes.listeners_removed.iter().filter_map(|id| listener(former, *id))),
        ],
    );
    let table = |of: &'_ Snapshot<F>, id| Some(Arc::clone(&of.route_table(id)?.name));
    list(
        &mut text,
        "routes",
        [
            ('+', &mut changes.route_tables_added.iter().filter_map(|id| table(now, *id))),
            ('~', &mut changes.route_tables_changed.iter().filter_map(|id| table(now, *id))),
            ('-', &mut changes.route_tables_removed.iter().filter_map(|id| table(former, *id))),
        ],
    );
    let cluster = |of: &'_ Snapshot<F>, id| Some(Arc::clone(&of.cluster(id)?.name));
    list(
        &mut text,
        "clusters",
        [
            ('+', &mut changes.clusters_added.iter().filter_map(|id| cluster(now, *id))),
            ('~', &mut changes.clusters_changed.iter().filter_map(|id| cluster(now, *id))),
            ('-', &mut changes.clusters_removed.iter().filter_map(|id| cluster(former, *id))),
        ],
    );
    let (added, removed) = (changes.endpoints_added.len(), changes.endpoints_removed.len());
    if added + removed > 0 {
        add(&mut text, format_args!("endpoints +{added} -{removed}"));
    }
    if former.limits != now.limits {
        add(&mut text, format_args!("limits"));
    }
    if former.access_log != now.access_log {
        add(&mut text, format_args!("access_log"));
    }
    let (before, source) = (&former.source, &now.source);
    let others = [
        ("locality", before.locality != source.locality),
        ("resolvers", before.resolvers != source.resolvers),
        ("metrics", before.metrics != source.metrics),
        ("rebalance", before.rebalance != source.rebalance),
        ("runtime", before.runtime != source.runtime),
    ];
    for (section, _) in others.into_iter().filter(|(_, is_other)| *is_other) {
        add(&mut text, format_args!("{section}"));
    }
    if text.is_empty() {
        text.push_str("nothing");
    }
    text
}

/// Names behind the sign of what became of them.
type Names<'a> = (char, &'a mut dyn Iterator<Item = Arc<str>>);

/// Adds `clusters +a ~b -c, 3 more`, if there are any.
fn list(text: &mut String, kind: &str, of: [Names<'_>; 3]) {
    let mut count = 0;
    for (sign, names) in of {
        for name in names {
            match count {
                0 => add(text, format_args!("{kind} {sign}{name}")),
                // Writing to a string cannot fail.
                1..NAMES_MAX => drop(write!(text, " {sign}{name}")),
                _ => {}
            }
            count += 1;
        }
    }
    if count > NAMES_MAX {
        let _ = write!(text, ", {} more", count - NAMES_MAX);
    }
}

/// Adds another part.
fn add(text: &mut String, part: fmt::Arguments<'_>) {
    let separator = if text.is_empty() { "" } else { "; " };
    let _ = write!(text, "{separator}{part}");
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
