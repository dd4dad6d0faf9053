//! What is left of the bounds of clusters, for the gauges.

use std::sync::Arc;

use config::breakers::Breakers;
use config::priority::Priority;
use config::snapshot::{Cluster, Snapshot};
use telemetry::events::{BreakersOfCluster, ConcurrencyOfCluster};

use serde_json::{Map, Value, json};

use crate::clock;

/// Clusters of which all are shown; of more only those that have connections, or exchanges that wait.
const CLUSTERS_MAX: usize = 1_000;

/// What is left of all bounds now.
pub(super) fn left<F>(snapshot: &Snapshot<F>) -> Vec<BreakersOfCluster> {
    let clusters = snapshot.clusters.iter().map(|(_, cluster)| cluster);
    let shows_all = snapshot.clusters.iter().take(CLUSTERS_MAX + 1).count() <= CLUSTERS_MAX;
    let is_used = |cluster: &&Arc<Cluster>| {
        let is_in_use = |in_use: &Breakers| in_use.connections() > 0 || in_use.pending() > 0;
        is_in_use(&cluster.breakers) || cluster.breakers.high().is_some_and(is_in_use)
    };
    let shown = clusters.filter(|cluster| shows_all || is_used(cluster));
    let pools = shown.flat_map(|cluster| Priority::ALL.map(|priority| (cluster, priority)));
    pools.filter_map(|(cluster, priority)| left_of(cluster, priority)).collect()
}

/// What [`adaptive_concurrency`](config::adaptive) has measured, for the process that takes this one's place.
pub(super) fn write_measured<F>(snapshot: &Snapshot<F>) -> Value {
    let now = clock::boot_ns();
    let measured = |cluster: &Cluster| {
        let measured = cluster.adaptive_of(Priority::Default)?.measured(now)?;
        Some((cluster.name.to_string(), json!(measured)))
    };
    let clusters = snapshot.clusters.iter().filter_map(|(_, cluster)| measured(cluster));
    Value::Object(clusters.collect())
}

/// Goes on with what another process has measured, where this one has not yet, or if that `is_newer`.
pub(super) fn adopt_measured<F>(
    snapshot: &Snapshot<F>,
    written: &Map<String, Value>,
    is_newer: bool,
) {
    let now = clock::boot_ns();
    for (_, cluster) in snapshot.clusters.iter().filter(|_| !written.is_empty()) {
        let Some(adaptive) = cluster.adaptive_of(Priority::Default) else { continue };
        let measured = written.get(&*cluster.name).cloned();
        if let Some(Ok(measured)) = measured.map(serde_json::from_value) {
            adaptive.adopt(measured, is_newer, now);
        }
    }
}

/// What is left for requests of this priority; none for high priority if there was none yet.
fn left_of(cluster: &Cluster, priority: Priority) -> Option<BreakersOfCluster> {
    let in_use = match priority {
        Priority::Default => &cluster.breakers,
        Priority::High => cluster.breakers.high()?,
    };
    let bounds = cluster.bounds_of(priority);
    let left = |max: u32, used: u32| u64::from(max.saturating_sub(used));
    let (retries, retriable) = in_use.retries();
    Some(BreakersOfCluster {
        cluster: Arc::clone(&cluster.name),
        priority: priority.word(),
        connections: left(bounds.connections_max.get(), in_use.connections()),
        pending: left(bounds.pending_max, in_use.pending()),
        requests: cluster.requests_limit(priority).map(|max| left(max, in_use.requests())),
        retries: left(bounds.retry_budget.retries_max(retriable), retries),
        concurrency: cluster.adaptive_of(priority).map(|adaptive| ConcurrencyOfCluster {
            limit: adaptive.limit().into(),
            min_rtt: adaptive.min_rtt(),
        }),
    })
}
