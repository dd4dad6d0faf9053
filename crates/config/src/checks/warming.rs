//! New clusters that wait for the first checks of their endpoints (`initial_check_timeout`), and until when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::health::Warming;
use crate::snapshot::{Cluster, ClusterId};

/// A cluster that waited, and serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warmed {
    /// Which.
    pub id: ClusterId,
    /// Its name.
    pub cluster: Arc<str>,
    /// How many endpoints it has.
    pub endpoints: usize,
    /// How many of them have passed their checks.
    pub passed: usize,
    /// How many have had no result: the time was over.
    pub unchecked: usize,
    /// How long it waited.
    pub after: Duration,
}

/// One that waits.
#[derive(Debug)]
pub(super) struct WarmingCluster {
    pub(super) name: Arc<str>,
    pub(super) began: Duration,
    until: Duration,
    /// What workers read.
    cell: Warming,
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct WarmingClusters {
    clusters: BTreeMap<ClusterId, WarmingCluster>,
    /// They, by when they wait no longer.
    by_end: BTreeSet<(Duration, ClusterId)>,
}

impl WarmingClusters {
    /// A cluster waits, at most for so long; one that does already goes on with the time that it has.
    pub(super) fn begin(&mut self, cluster: &Cluster, timeout: Duration, now: Duration) {
        let (name, cell) = (Arc::clone(&cluster.name), cluster.warming.clone());
        cell.set(true);
        let until = now.saturating_add(timeout);
        let new = WarmingCluster { name, began: now, until, cell };
        let known = self.clusters.entry(cluster.id).or_insert(new);
        self.by_end.insert((known.until, cluster.id));
    }

    pub(super) fn has(&self, id: ClusterId) -> bool {
        self.clusters.contains_key(&id)
    }

    /// A cluster waits no longer.
    pub(super) fn end(&mut self, id: ClusterId) -> Option<WarmingCluster> {
        let ended = self.clusters.remove(&id)?;
        self.by_end.remove(&(ended.until, id));
        ended.cell.set(false);
        Some(ended)
    }

    /// The next one whose time is over, and when it is.
    pub(super) fn first(&self) -> Option<(Duration, ClusterId)> {
        self.by_end.first().copied()
    }

    pub(super) fn names(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.clusters.values().map(|cluster| &cluster.name)
    }
}
