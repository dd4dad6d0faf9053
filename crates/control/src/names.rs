//! The names behind the labels of metrics and log lines, taken from a snapshot.

use std::sync::Arc;

use config::snapshot::{Address, Id, RouteTable, Snapshot};
use telemetry::events::LabelId;
use telemetry::{Names, RouteNames, WeightedName};

/// The label under which workers count for what has this id.
pub(crate) const fn label(id: Id) -> LabelId {
    LabelId { slot: id.slot, generation: id.generation }
}

/// An address as the configuration file writes it.
pub(crate) fn address_text(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// The names of everything in `snapshot`, from those of the snapshot before it. They are the same where it changes
/// no name and no rule; otherwise what is written follows what changed.
pub(crate) fn names_after<F>(former: &Arc<Names>, snapshot: &Snapshot<F>) -> Arc<Names> {
    let changes = &snapshot.changes;
    let is_same = changes.listeners_added.is_empty()
        && changes.listeners_removed.is_empty()
        && changes.route_tables_added.is_empty()
        && changes.route_tables_changed.is_empty()
        && changes.route_tables_removed.is_empty()
        && changes.clusters_added.is_empty()
        && changes.clusters_removed.is_empty();
    if is_same {
        return Arc::clone(former);
    }
    let mut names = Names::clone(former);
    changes.listeners_removed.iter().for_each(|id| names.remove_listener(label(id.0)));
    changes.route_tables_removed.iter().for_each(|id| names.remove_route(label(id.0)));
    changes.clusters_removed.iter().for_each(|id| names.remove_cluster(label(id.0)));
    for (_, listener) in changes.listeners_added.iter().filter_map(|id| snapshot.listener(*id)) {
        names.insert_listener(label(listener.id.0), Arc::clone(&listener.name));
    }
    let tables = changes.route_tables_added.iter().chain(&changes.route_tables_changed);
    for table in tables.filter_map(|id| snapshot.route_table(*id)) {
        names.insert_route(label(table.id.0), route_names(table));
    }
    for cluster in changes.clusters_added.iter().filter_map(|id| snapshot.cluster(*id)) {
        names.insert_cluster(label(cluster.id.0), Arc::clone(&cluster.name));
    }
    Arc::new(names)
}

/// The names of a table and of what is counted in it.
fn route_names(table: &RouteTable) -> RouteNames {
    let rules = table.rules.iter().map(|rule| (rule.slot.number(), rule.label()));
    let slot = |place: u32| Some(table.rules.get(usize::try_from(place).ok()?)?.slot.number());
    let weighted = table.weighted_clusters().filter_map(|(place, share, of_share)| {
        let cluster = share.cluster.as_str().into();
        Some(WeightedName { slot: of_share.number(), rule: slot(place)?, cluster })
    });
    RouteNames::new(Arc::clone(&table.name), rules, weighted)
}

#[cfg(test)]
mod tests {
    use config::{FilterKinds, Loader};

    use super::*;

    /// What is found for everything that `before` or `now` has.
    fn found(names: &Names, before: &Snapshot<()>, now: &Snapshot<()>) -> Vec<Option<String>> {
        let both = [before, now];
        let text = |name: Option<&Arc<str>>| name.map(ToString::to_string);
        let listeners = both.iter().flat_map(|it| it.listeners.iter());
        let listeners = listeners.map(|it| text(names.listener(label(it.id.0))));
        let clusters = both.iter().flat_map(|it| it.clusters.iter());
        let clusters = clusters.map(|(id, _)| text(names.cluster(label(id))));
        let tables = both.iter().flat_map(|it| it.route_tables.iter());
        let tables = tables.map(|(id, _)| names.route(label(id)).map(|route| format!("{route:?}")));
        listeners.chain(clusters).chain(tables).collect()
    }

    #[test]
    fn names_that_are_patched_are_those_that_are_made_anew() {
        let text = |listener: &str, prefix: &str, clusters: &[&str]| {
            let mut text = format!(
                "listeners: [{{ name: {listener}, address: '127.0.0.1:1', routes: all }}]\n\
                 routes: [{{ name: all, rules: [{{ match: {{ prefix: {prefix} }}, respond: {{}} }}] }}]\n\
                 clusters:\n"
            );
            for name in clusters {
                text.push_str(&format!("- {{ name: {name}, endpoints: ['127.0.0.1:2'] }}\n"));
            }
            text
        };
        let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
        let mut before: Option<Arc<Snapshot<()>>> = None;
        let mut names = Arc::default();
        for text in [
            text("edge", "/", &["a", "b"]),
            text("edge", "/", &["b", "c"]),
            text("rim", "/", &["c"]),
            text("rim", "/x", &["d", "c"]),
            text("rim", "/x", &["d", "c"]),
        ] {
            let now = loader.load("test", &text).unwrap();
            names = names_after(&names, &now);
            let mut anew = Names::default();
            for listener in &now.listeners {
                anew.insert_listener(label(listener.id.0), Arc::clone(&listener.name));
            }
            for (id, cluster) in now.clusters.iter() {
                anew.insert_cluster(label(id), Arc::clone(&cluster.name));
            }
            for (id, table) in now.route_tables.iter() {
                let rule = if text.contains("/x") { "/x*" } else { "/*" }.to_owned();
                let rules = [(table.rules[0].slot.number(), rule)];
                let route = RouteNames::new(Arc::clone(&table.name), rules, []);
                anew.insert_route(label(id), route);
            }
            let former = before.as_deref().unwrap_or(&now);
            assert_eq!(found(&names, former, &now), found(&anew, former, &now));
            before = Some(now);
        }
        let same = loader.load("test", &text("rim", "/x", &["d", "c"])).unwrap();
        assert!(Arc::ptr_eq(&names, &names_after(&names, &same)));
    }
}
