//! New clusters that wait for the first checks of their endpoints (`initial_check_timeout`), and until when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Checked, Checker};
use crate::resource::cluster::checks::targets::{Target, TargetId, Watched};
use crate::resource::cluster::health::Warming;
use crate::snapshot::{Cluster, ClusterId};

/// A cluster that waited, and serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warmed {
    /// The cluster that warms.
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
struct WarmingCluster {
    name: Arc<str>,
    began: Duration,
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
        let (mut began, mut until) = (now, now.saturating_add(timeout));
        if let Some(former) = self.clusters.remove(&cluster.id) {
            (began, until) = (former.began, former.until);
            // The cells differ where a configuration in between did not ask for it, and never was in effect.
            if !former.cell.is_same(&cell) {
                former.cell.set(false);
            }
        }
        self.clusters.insert(cluster.id, WarmingCluster { name, began, until, cell });
        self.by_end.insert((until, cluster.id));
    }

    pub(super) fn has(&self, id: ClusterId) -> bool {
        self.clusters.contains_key(&id)
    }

    /// A cluster waits no longer, if it did: there is nothing more to wait for.
    pub(super) fn end(&mut self, id: ClusterId) {
        self.take(id);
    }

    fn take(&mut self, id: ClusterId) -> Option<WarmingCluster> {
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

impl Checker {
    /// If the endpoints of a cluster that waits for it have all been checked, it serves.
    pub(super) fn look_at_warming(&mut self, id: ClusterId, now: Duration, checked: &mut Checked) {
        let Some(watched) = self.clusters.get_mut(&id).filter(|_| self.warming.has(id)) else {
            return;
        };
        if watched.is_checked(&self.targets) {
            self.end_warming(id, now, checked);
        }
    }

    fn end_warming(&mut self, id: ClusterId, now: Duration, checked: &mut Checked) {
        let Some(ended) = self.warming.take(id) else { return };
        let endpoints = self.clusters.get(&id).into_iter().flat_map(Watched::iter);
        let mut warmed = Warmed {
            id,
            cluster: ended.name,
            endpoints: 0,
            passed: 0,
            unchecked: 0,
            after: now.saturating_sub(ended.began),
        };
        for (endpoint, targets) in endpoints {
            let has_result = |id: &TargetId| self.targets.get(*id).is_some_and(Target::has_result);
            warmed.endpoints += 1;
            warmed.passed += usize::from(self.is_fit((endpoint, targets)));
            warmed.unchecked += usize::from(!targets.iter().all(has_result));
        }
        checked.changed.insert(id);
        checked.warmed.push(warmed);
    }

    /// Has clusters serve that have waited long enough for the first checks of their endpoints: all of them, where no more
    /// checks are to come.
    pub fn end_late_warming(&mut self, now: Duration) -> Checked {
        let mut checked = Checked::default();
        while let Some((_, id)) = self.warming.first().filter(|(until, _)| *until <= now) {
            self.end_warming(id, now, &mut checked);
        }
        checked
    }

    /// When [`Checker::end_late_warming`] has something to do.
    #[must_use]
    pub fn next_late_warming(&self) -> Option<Duration> {
        self.warming.first().map(|(until, _)| until)
    }

    /// The clusters that wait for the first checks of their endpoints.
    pub fn warming(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.warming.names()
    }
}
