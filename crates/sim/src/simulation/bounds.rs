//! The bounds of clusters and of the requests of listeners, which hold over all workers at every moment.

use std::collections::BTreeMap;

use config::priority::Priority;
use config::reports::ConnectionSide;
use config::snapshot::EndpointId;

use super::Simulation;

/// The largest bounds that a cluster had so far: what is under way when they become smaller goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    connections_max: u32,
    /// To each endpoint.
    connections_per_endpoint_max: u32,
    pending_max: u32,
    requests_max: u32,
}

impl Simulation {
    /// A configuration is about to be taken up.
    pub(super) fn note_bounds(&mut self, snapshot: &proxy::Snapshot) {
        let pools = snapshot.clusters.iter().flat_map(|(_, it)| Priority::ALL.map(|of| (it, of)));
        for (cluster, priority) in pools {
            let (new, of_cluster) = (cluster.bounds_of(priority), cluster.name.to_string());
            let bounds = self.bounds.entry((of_cluster, priority)).or_default();
            bounds.connections_max = bounds.connections_max.max(new.connections_max.get());
            let of_each = cluster.per_endpoint_max(priority).map_or(u32::MAX, |max| max.get());
            bounds.connections_per_endpoint_max = bounds.connections_per_endpoint_max.max(of_each);
            bounds.pending_max = bounds.pending_max.max(new.pending_max);
            let requests_max = new.requests_max.map_or(u32::MAX, |max| max.get());
            let adaptive = cluster.adaptive_of(priority).map_or(u32::MAX, |it| it.limit_max());
            let requests_max = requests_max.min(adaptive);
            bounds.requests_max = bounds.requests_max.max(requests_max);
        }
        for listener in snapshot.listeners.iter() {
            let max = self.requests_max.entry(listener.name.to_string()).or_default();
            *max = (*max).max(listener.requests_max.map_or(u32::MAX, |max| max.get()));
        }
    }

    /// No bound of any cluster is exceeded, whatever the workers do at the same time.
    pub(super) fn check_bounds(&mut self) {
        let Some(snapshot) = self.snapshot.clone() else { return };
        if !self.moves.is_empty() || self.handovers > 0 {
            // What is on its way may be counted twice, and no bound refuses what another process hands over.
            return;
        }
        for listener in snapshot.listeners.iter() {
            let max = self.requests_max.get(&*listener.name).copied().unwrap_or(u32::MAX);
            let count = listener.breakers.requests();
            if count > max {
                let name = &listener.name;
                self.ledger.violate(format!("{count} requests of {name}, and {max} are allowed"));
            }
        }
        let pools = snapshot.clusters.iter().flat_map(|(_, it)| Priority::ALL.map(|of| (it, of)));
        for (cluster, priority) in pools {
            let key = (cluster.name.to_string(), priority);
            let Some(bounds) = self.bounds.get(&key) else { continue };
            let in_use = &cluster.breakers.of(priority);
            let open = cluster.endpoints.iter().filter_map(|it| it.connections.open()).max();
            let counts = [
                (
                    "connections to an endpoint",
                    open.unwrap_or_default(),
                    bounds.connections_per_endpoint_max,
                ),
                ("connections", in_use.connections(), bounds.connections_max),
                ("pending", in_use.pending(), bounds.pending_max),
                ("requests", in_use.requests(), bounds.requests_max),
            ];
            for (what, count, max) in counts {
                // One that was restored waits whatever the bound is.
                let taken_out = u32::try_from(self.taken_out).unwrap_or(u32::MAX);
                let more = if what == "pending" { taken_out } else { 0 };
                if count > max.saturating_add(more) {
                    let name = &cluster.name;
                    let word = priority.word();
                    self.ledger.violate(format!(
                        "{count} {what} of {name}, priority {word}, and {max} are allowed"
                    ));
                }
            }
        }
    }

    /// What is counted is there: nothing that is over goes on to count.
    pub(super) fn check_that_bounds_are_free(&mut self) {
        let Some(snapshot) = self.snapshot.clone() else { return };
        // A worker that ends does not close its pools one by one.
        let has_ended = |number| self.threads.get(number).is_none_or(Option::is_none);
        if self.has_failed() || self.process.clone().any(has_ended) || !self.moves.is_empty() {
            return;
        }
        for listener in snapshot.listeners.iter().filter(|it| it.breakers.requests() > 0) {
            let requests = listener.breakers.requests();
            self.ledger.violate(format!("{} still has {requests} requests in use", listener.name));
        }
        let (open, open_to) = self.open_connections();
        for (id, cluster) in snapshot.clusters.iter() {
            for in_use in std::iter::once(&cluster.breakers).chain(cluster.breakers.high()) {
                let others = (in_use.pending(), in_use.requests(), in_use.retries());
                if others != (0, 0, (0, 0)) {
                    self.ledger.violate(format!("{} still has {others:?} in use", cluster.name));
                }
            }
            let high = cluster.breakers.high().map_or(0, |in_use| in_use.connections());
            // Those of high priority do not count by endpoint.
            for endpoint in cluster.endpoints.iter().filter(|_| high == 0) {
                let open = open_to.get(&endpoint.id).copied().unwrap_or(0);
                let counted = endpoint.connections.open().unwrap_or(open);
                if cluster.checks.is_empty() && counted != open {
                    let (name, address) = (&cluster.name, &endpoint.address);
                    self.ledger.violate(format!(
                        "{address} of {name} has {open} connections, and {counted} are counted"
                    ));
                }
            }
            let open = open.get(&id.slot).copied().unwrap_or(0);
            let counted = cluster.breakers.connections() + high;
            if cluster.checks.is_empty() && counted != open {
                let name = &cluster.name;
                self.ledger
                    .violate(format!("{name} has {open} connections, and {counted} are counted"));
            }
        }
    }

    /// Upstream connections of all workers of the process, by the slots of their clusters, and by endpoint.
    fn open_connections(&mut self) -> (BTreeMap<u32, u32>, BTreeMap<EndpointId, u32>) {
        let now = self.now();
        let (mut open, mut open_to) = (BTreeMap::new(), BTreeMap::new());
        let workers = self.threads.get_mut(self.process.clone()).unwrap_or_default();
        for thread in workers.iter_mut().flatten() {
            for connection in thread.worker.proxy().describe(0, u32::MAX, now).connections {
                if let ConnectionSide::Upstream(cluster, endpoint) = connection.side {
                    *open.entry(cluster.0.slot).or_default() += 1;
                    *open_to.entry(endpoint).or_default() += 1;
                }
            }
        }
        (open, open_to)
    }
}
