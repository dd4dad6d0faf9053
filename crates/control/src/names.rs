//! The names behind the labels of metrics and log lines, taken from a snapshot.

use std::sync::Arc;

use config::snapshot::{Id, PathMatch, Snapshot};
use telemetry::events::LabelId;
use telemetry::{Names, RouteNames};

/// The label under which workers count for what has this id.
pub(crate) const fn label(id: Id) -> LabelId {
    LabelId { slot: id.slot, generation: id.generation }
}

/// The names of everything in `snapshot`.
pub(crate) fn names_of<F>(snapshot: &Snapshot<F>) -> Arc<Names> {
    let mut names = Names::default();
    for listener in &*snapshot.listeners {
        names.insert_listener(label(listener.id.0), Arc::clone(&listener.name));
    }
    for (id, table) in snapshot.route_tables.iter() {
        let rules = table.rules.iter().map(|rule| {
            let path = match &rule.path {
                PathMatch::Exact(path) => path.to_string(),
                PathMatch::Prefix(path) => format!("{path}*"),
            };
            path.into_boxed_str()
        });
        let name = Arc::clone(&table.name);
        names.insert_route(label(id), RouteNames { name, rules: rules.collect() });
    }
    for (id, cluster) in snapshot.clusters.iter() {
        names.insert_cluster(label(id), Arc::clone(&cluster.name));
    }
    Arc::new(names)
}
