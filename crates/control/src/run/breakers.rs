//! What is left of the bounds of clusters, for the gauges.

use std::sync::Arc;

use config::snapshot::{Cluster, Snapshot};
use telemetry::events::{BreakersOfCluster, ConcurrencyOfCluster};

use crate::clock;

/// Clusters of which all are shown; of more only those that have connections, or exchanges that wait.
const CLUSTERS_MAX: usize = 1_000;

/// What is left of all bounds now.
pub(super) fn left<F>(snapshot: &Snapshot<F>) -> Vec<BreakersOfCluster> {
    let clusters = snapshot.clusters.iter().map(|(_, cluster)| cluster);
    let shows_all = snapshot.clusters.iter().take(CLUSTERS_MAX + 1).count() <= CLUSTERS_MAX;
    let is_used = |cluster: &&Arc<Cluster>| {
        cluster.breakers.connections() > 0 || cluster.breakers.pending() > 0
    };
    clusters.filter(|cluster| shows_all || is_used(cluster)).map(|it| left_of(it)).collect()
}

fn left_of(cluster: &Cluster) -> BreakersOfCluster {
    let in_use = &cluster.breakers;
    let left = |max: u32, used: u32| u64::from(max.saturating_sub(used));
    let (retries, retriable) = in_use.retries();
    BreakersOfCluster {
        cluster: Arc::clone(&cluster.name),
        connections: left(cluster.connections_max.get(), in_use.connections()),
        pending: left(cluster.pending_max, in_use.pending()),
        requests: cluster
            .requests_bound(clock::monotonic_ns())
            .map(|(max, _)| left(max, in_use.requests())),
        retries: left(cluster.retry_budget.retries_max(retriable), retries),
        concurrency: cluster.adaptive.as_ref().map(|adaptive| ConcurrencyOfCluster {
            limit: adaptive.limit().into(),
            min_rtt: adaptive.min_rtt(),
        }),
    }
}
