//! Who ejects endpoints and takes them back: one for the process.
//!
//! ```text
//!  workers ─ count ─► EndpointHealth ─ a bound is reached ─► Detector::on_reached ─┐
//!                        ▲    │ intervals                                          ├─► ejected, events
//!                        │    └────────────────────────► Detector::on_deadlines ───┘
//!                        └──────────────── set_ejected, groups counted again ◄─────┘
//! ```
//!
//! A state machine without a clock: `now` is the time since any fixed moment. Clusters of which no endpoint was ejected
//! lately, and whose endpoints are not compared, cost nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Outlier, OutlierKind};
use crate::address::Address;
use crate::snapshot::{Cluster, ClusterId, Endpoint, EndpointId, Snapshot};

/// Something that operators want to know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The name of the cluster.
    pub cluster: Arc<str>,
    /// What happened in it.
    pub happened: Happened,
}

/// What happened to an endpoint or a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It gets no requests for a while.
    Ejected {
        /// Which endpoint.
        endpoint: Address,
        /// What it did.
        kind: OutlierKind,
        /// For how long.
        length: Duration,
        /// How often it was lately, this time included.
        times: u32,
    },
    /// It was not ejected although it reached a bound, since as many are ejected as may be.
    Kept {
        /// Which endpoint.
        endpoint: Address,
        /// What it did.
        kind: OutlierKind,
    },
    /// It gets requests again.
    Returned {
        /// Which endpoint.
        endpoint: Address,
    },
    /// So few endpoints are left that those that are ejected get requests too.
    PanicBegan,
    /// Enough are left again.
    PanicEnded,
}

/// An ejection that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejected {
    /// Why.
    pub kind: OutlierKind,
    /// Until when.
    pub until: Duration,
    /// How often it was lately, this time included.
    pub times: u32,
}

/// What is known of an endpoint that was ejected lately, by names: another process goes on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The name of the cluster.
    pub cluster: Arc<str>,
    /// Which endpoint.
    pub endpoint: Address,
    /// How often it was lately.
    pub times: u32,
    /// Why it is, and for how long yet; none if it was returned.
    pub ejection: Option<(OutlierKind, Duration)>,
}

/// An endpoint that was ejected lately.
#[derive(Clone, Copy, Debug)]
struct EjectionHistory {
    /// How often, less one for each interval since.
    times: u32,
    /// While it is.
    ejection: Option<Ejected>,
    /// Since when it is not, else.
    returned: Duration,
}

/// A cluster of which something is remembered.
#[derive(Debug, Default)]
struct Watched {
    /// When the interval ends; none while there is nothing to do then.
    interval_ends: Option<Duration>,
    histories: BTreeMap<EndpointId, EjectionHistory>,
    /// Endpoints that reached a bound while no more could be ejected. What they do is not looked at before that changes.
    kept: BTreeSet<EndpointId>,
    is_panicking: bool,
}

impl Watched {
    fn ejected(&self) -> usize {
        self.histories.values().filter(|history| history.ejection.is_some()).count()
    }

    fn next_deadline(&self) -> Option<Duration> {
        let untils = self.histories.values().filter_map(|history| Some(history.ejection?.until));
        untils.chain(self.interval_ends).min()
    }
}

/// Ejects endpoints and takes them back.
#[derive(Debug, Default)]
pub struct Detector {
    clusters: BTreeMap<ClusterId, Watched>,
    /// What is next to do for which of them.
    deadlines: BTreeSet<(Duration, ClusterId)>,
}

impl Detector {
    /// There is a new configuration, with these changes to the one of before.
    pub fn on_snapshot<F>(&mut self, snapshot: &Snapshot<F>, now: Duration) -> Vec<Event> {
        let changes = &snapshot.changes;
        for id in &changes.clusters_removed {
            self.forget(*id);
        }
        let mut events = Vec::new();
        for id in changes.clusters_added.iter().chain(&changes.clusters_changed) {
            let Some(cluster) = snapshot.cluster(*id) else { continue };
            let Some(policy) = &cluster.outlier else {
                let was_panicking = self.clusters.get(id).is_some_and(|it| it.is_panicking);
                self.forget(*id);
                if !cluster.checks.is_empty() {
                    // Their cells stay, for the checks.
                    for health in cluster.endpoints.iter().filter_map(|it| it.health.get()) {
                        health.set_ejected(false);
                    }
                    self.update(*id, |watched| {
                        watched.is_panicking = was_panicking;
                        settle(watched, cluster, &mut events);
                    });
                }
                continue;
            };
            self.update(*id, |watched| {
                watched.histories.retain(|endpoint, _| cluster.place_of(*endpoint).is_some());
                begin_anew(watched, cluster);
                schedule(watched, policy, now);
                settle(watched, cluster, &mut events);
            });
        }
        events
    }

    /// Workers saw an endpoint reach a bound.
    pub fn on_reached(
        &mut self,
        cluster: &Arc<Cluster>,
        endpoint: EndpointId,
        kind: OutlierKind,
        (now, die): (Duration, u64),
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let endpoint = cluster.place_of(endpoint).and_then(|place| cluster.endpoints.get(place));
        if let (Some(policy), Some(endpoint)) = (&cluster.outlier, endpoint) {
            self.update(cluster.id, |watched| {
                eject(watched, (cluster, policy), endpoint, kind, (now, die), &mut events);
                schedule(watched, policy, now);
                settle(watched, cluster, &mut events);
            });
        }
        events
    }

    /// An endpoint that may be ejected has passed its checks: it is taken back, as in Envoy.
    pub fn on_check_passed(
        &mut self,
        cluster: &Arc<Cluster>,
        endpoint: EndpointId,
        now: Duration,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let is_ejected = |watched: &Watched| {
            watched.histories.get(&endpoint).is_some_and(|history| history.ejection.is_some())
        };
        if !self.clusters.get(&cluster.id).is_some_and(is_ejected) {
            return events;
        }
        let Some(policy) = &cluster.outlier else { return events };
        self.update(cluster.id, |watched| {
            if let Some(ejection) =
                watched.histories.get_mut(&endpoint).and_then(|history| history.ejection.as_mut())
            {
                ejection.until = now;
            }
            take_back(watched, cluster, now, &mut events);
            schedule(watched, policy, now);
            settle(watched, cluster, &mut events);
        });
        events
    }

    /// Other endpoints of a cluster pass their checks than before: counts again who may be chosen.
    pub fn recount(&mut self, cluster: &Arc<Cluster>) -> Vec<Event> {
        let mut events = Vec::new();
        self.update(cluster.id, |watched| settle(watched, cluster, &mut events));
        events
    }

    /// When [`Detector::on_deadlines`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Takes endpoints back whose time is over, and compares those of clusters whose interval is.
    pub fn on_deadlines<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        now: Duration,
        mut random: impl FnMut() -> u64,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((_, id)) = self.deadlines.first().filter(|(at, _)| *at <= now).copied() {
            let Some((cluster, policy)) =
                snapshot.cluster(id).and_then(|it| Some((it, it.outlier.as_ref()?)))
            else {
                self.forget(id);
                continue;
            };
            self.update(id, |watched| {
                take_back(watched, cluster, now, &mut events);
                if watched.interval_ends.is_some_and(|end| end <= now) {
                    watched.interval_ends = None;
                    forgive(watched, policy.interval.0, now);
                    for (endpoint, kind) in outliers(cluster, policy) {
                        let at = (now, random());
                        eject(watched, (cluster, policy), endpoint, kind, at, &mut events);
                    }
                }
                schedule(watched, policy, now);
                settle(watched, cluster, &mut events);
            });
        }
        events
    }

    /// The endpoints of a cluster that are ejected.
    pub fn ejections(&self, cluster: ClusterId) -> impl Iterator<Item = (EndpointId, Ejected)> {
        let watched = self.clusters.get(&cluster).into_iter();
        let histories = watched.flat_map(|watched| &watched.histories);
        histories.filter_map(|(endpoint, history)| Some((*endpoint, history.ejection?)))
    }

    /// The ejection of an endpoint of a cluster, while it is ejected. Takes about as long for any number of endpoints.
    #[must_use]
    pub fn ejection(&self, cluster: ClusterId, endpoint: EndpointId) -> Option<Ejected> {
        self.clusters.get(&cluster)?.histories.get(&endpoint)?.ejection
    }

    /// All endpoints that are ejected.
    pub fn all_ejections(&self) -> impl Iterator<Item = (EndpointId, Ejected)> {
        self.clusters.keys().flat_map(|cluster| self.ejections(*cluster))
    }

    /// What is known of endpoints that were ejected lately.
    pub fn remembered<F>(&self, snapshot: &Snapshot<F>, now: Duration) -> Vec<Remembered> {
        let clusters =
            self.clusters.iter().filter_map(|(id, it)| Some((snapshot.cluster(*id)?, it)));
        let remembered = clusters.flat_map(|(cluster, watched)| {
            watched.histories.iter().filter_map(move |(id, history)| {
                let endpoint = cluster.endpoints.get(cluster.place_of(*id)?)?;
                let left = |it: Ejected| (it.kind, it.until.saturating_sub(now));
                Some(Remembered {
                    cluster: Arc::clone(&cluster.name),
                    endpoint: endpoint.address.clone(),
                    times: history.times,
                    ejection: history.ejection.map(left),
                })
            })
        });
        remembered.collect()
    }

    /// Goes on with what another process knew, beside what this one has seen. Endpoints that are not configured, or whose
    /// cluster does not eject any more, are left out; no more are ejected than `share_max` lets be, and none for longer than
    /// `max`.
    pub fn adopt<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        remembered: &[Remembered],
        now: Duration,
    ) -> Vec<Event> {
        let mut by_cluster = BTreeMap::<&str, Vec<&Remembered>>::new();
        for one in remembered {
            by_cluster.entry(&one.cluster).or_default().push(one);
        }
        let mut events = Vec::new();
        for (_, cluster) in snapshot.clusters.iter() {
            let Some(policy) = &cluster.outlier else { continue };
            let Some(remembered) = by_cluster.get(&*cluster.name) else { continue };
            self.update(cluster.id, |watched| {
                for one in remembered {
                    go_on(watched, (cluster, policy), one, now);
                }
                schedule(watched, policy, now);
                settle(watched, cluster, &mut events);
            });
        }
        events
    }

    fn forget(&mut self, id: ClusterId) {
        if let Some(deadline) = self.clusters.remove(&id).and_then(|gone| gone.next_deadline()) {
            self.deadlines.remove(&(deadline, id));
        }
    }

    /// Changes what is remembered of a cluster, and when it is looked at again.
    fn update(&mut self, id: ClusterId, change: impl FnOnce(&mut Watched)) {
        let watched = self.clusters.entry(id).or_default();
        let before = watched.next_deadline();
        change(watched);
        let after = watched.next_deadline();
        if before != after {
            before.map(|before| self.deadlines.remove(&(before, id)));
            self.deadlines.extend(after.map(|after| (after, id)));
        }
        let is_known = !watched.histories.is_empty() || !watched.kept.is_empty();
        if !is_known && !watched.is_panicking && after.is_none() {
            self.clusters.remove(&id);
        }
    }
}

/// Begins an interval, if there is something to do at its end and none has begun.
fn schedule(watched: &mut Watched, policy: &Outlier, now: Duration) {
    let compares = policy.success_rate.is_some() || policy.failure_percentage.is_some();
    let is_needed = compares || !watched.histories.is_empty();
    watched.interval_ends = match watched.interval_ends.filter(|_| is_needed) {
        Some(end) => Some(end.min(now + policy.interval.0)),
        None => is_needed.then(|| now + policy.interval.0),
    };
}

/// Endpoints that nothing is remembered of begin anew: this machine alone ejects.
fn begin_anew(watched: &mut Watched, cluster: &Cluster) {
    watched.kept.clear();
    let ejected = |id| watched.histories.get(&id).is_some_and(|history| history.ejection.is_some());
    for endpoint in cluster.endpoints.iter().filter(|endpoint| !ejected(endpoint.id)) {
        match endpoint.health.get() {
            Some(health) if health.is_ejected() => health.set_ejected(false),
            Some(health) => health.settle(),
            None => {}
        }
    }
}

/// Goes on with what another process knew of an endpoint.
fn go_on(
    watched: &mut Watched,
    (cluster, policy): (&Arc<Cluster>, &Outlier),
    one: &Remembered,
    now: Duration,
) {
    let found = cluster.endpoints.iter().find(|endpoint| endpoint.address == one.endpoint);
    let Some((endpoint, health)) = found.and_then(|it| Some((it, it.health.get()?))) else {
        return;
    };
    let has_room = has_room(watched, cluster, policy);
    let anew = EjectionHistory { times: 0, ejection: None, returned: now };
    let history = watched.histories.entry(endpoint.id).or_insert(anew);
    history.times = history.times.max(one.times);
    if let Some((kind, left)) = one.ejection.filter(|_| has_room && !health.is_ejected()) {
        let until = now + left.min(policy.ejection.max.0);
        history.ejection = Some(Ejected { kind, until, times: history.times });
        health.set_ejected(true);
    }
}

/// Whether one more endpoint may be ejected.
fn has_room(watched: &Watched, cluster: &Cluster, policy: &Outlier) -> bool {
    let ejected = watched.ejected();
    let max = cluster.endpoints.len() as f64 * policy.ejection.share_max.part();
    ejected == 0 || (ejected + 1) as f64 <= max
}

fn eject(
    watched: &mut Watched,
    (cluster, policy): (&Arc<Cluster>, &Outlier),
    endpoint: &Endpoint,
    kind: OutlierKind,
    (now, die): (Duration, u64),
    events: &mut Vec<Event>,
) {
    let Some(health) = endpoint.health.get().filter(|health| !health.is_ejected()) else { return };
    let address = endpoint.address.clone();
    if !has_room(watched, cluster, policy) {
        if watched.kept.insert(endpoint.id) {
            note(events, cluster, Happened::Kept { endpoint: address, kind });
        }
        return;
    }
    let history = watched.histories.entry(endpoint.id).or_insert(EjectionHistory {
        times: 0,
        ejection: None,
        returned: now,
    });
    history.times = history.times.saturating_add(1);
    let times = history.times;
    let longest = policy.ejection.base.0.saturating_mul(times).min(policy.ejection.max.0);
    let tenth = u64::try_from(longest.as_nanos() / 10).unwrap_or(u64::MAX).max(1);
    let length = longest - Duration::from_nanos(die % tenth);
    history.ejection = Some(Ejected { kind, until: now + length, times });
    health.set_ejected(true);
    note(events, cluster, Happened::Ejected { endpoint: address, kind, length, times });
}

/// Takes endpoints back whose time is over.
fn take_back(
    watched: &mut Watched,
    cluster: &Arc<Cluster>,
    now: Duration,
    events: &mut Vec<Event>,
) {
    let ejected = watched.ejected();
    for (id, history) in &mut watched.histories {
        if history.ejection.is_none_or(|ejection| ejection.until > now) {
            continue;
        }
        (history.ejection, history.returned) = (None, now);
        let endpoint = cluster.place_of(*id).and_then(|place| cluster.endpoints.get(place));
        let Some(endpoint) = endpoint else { continue };
        endpoint.health.get().into_iter().for_each(|health| health.set_ejected(false));
        note(events, cluster, Happened::Returned { endpoint: endpoint.address.clone() });
    }
    if watched.ejected() < ejected {
        look_again(watched, cluster);
    }
}

/// Others may be ejected: what kept endpoints do is looked at again.
fn look_again(watched: &mut Watched, cluster: &Cluster) {
    for id in std::mem::take(&mut watched.kept) {
        let endpoint = cluster.place_of(id).and_then(|place| cluster.endpoints.get(place));
        if let Some(health) = endpoint.and_then(|endpoint| endpoint.health.get()) {
            health.settle();
        }
    }
}

/// Forgets one ejection of each endpoint that was not ejected for all of the interval.
fn forgive(watched: &mut Watched, interval: Duration, now: Duration) {
    watched.histories.retain(|_, history| {
        if history.ejection.is_none() && now.saturating_sub(history.returned) >= interval {
            history.times = history.times.saturating_sub(1);
        }
        history.times > 0
    });
}

/// The endpoints that this interval sets apart from the others.
fn outliers<'c>(cluster: &'c Cluster, policy: &Outlier) -> Vec<(&'c Endpoint, OutlierKind)> {
    let of_interval = cluster.endpoints.iter().filter_map(|endpoint| {
        let health = endpoint.health.get().filter(|health| !health.is_ejected())?;
        let (attempts, successes) = health.take_interval();
        Some((endpoint, attempts, f64::from(successes) / f64::from(attempts.max(1))))
    });
    let rates: Vec<(&Endpoint, u32, f64)> = of_interval.collect();
    let enough = |requests: u32, endpoints: u32| {
        let found: Vec<_> = rates.iter().filter(|(_, attempts, _)| *attempts >= requests).collect();
        (found.len() >= endpoints as usize).then_some(found)
    };
    let mut found = Vec::new();
    if let Some(policy) = policy.success_rate
        && let Some(rates) = enough(policy.requests, policy.endpoints)
    {
        let count = rates.len() as f64;
        let mean = rates.iter().map(|(.., rate)| rate).sum::<f64>() / count;
        let variance = rates.iter().map(|(.., rate)| (rate - mean).powi(2)).sum::<f64>() / count;
        let least = mean - variance.sqrt() * policy.stdev.value();
        let below = rates.iter().filter(|(.., rate)| *rate < least);
        found.extend(below.map(|(endpoint, ..)| (*endpoint, OutlierKind::SuccessRate)));
    }
    if let Some(policy) = policy.failure_percentage
        && let Some(rates) = enough(policy.requests, policy.endpoints)
    {
        let above = rates.iter().filter(|(.., rate)| 1.0 - rate >= policy.threshold.part());
        found.extend(above.map(|(endpoint, ..)| (*endpoint, OutlierKind::FailurePercentage)));
    }
    found
}

/// Counts again who may be chosen, and says if panic began or ended.
fn settle(watched: &mut Watched, cluster: &Arc<Cluster>, events: &mut Vec<Event>) {
    let weighted = |place| cluster.endpoints.get(place).filter(|it: &&Endpoint| it.weight > 0);
    cluster.view.count_available(|place| weighted(place).map(Endpoint::status));
    let is_panicking = cluster.is_panicking();
    if std::mem::replace(&mut watched.is_panicking, is_panicking) != is_panicking {
        let happened = if is_panicking { Happened::PanicBegan } else { Happened::PanicEnded };
        note(events, cluster, happened);
    }
}

fn note(events: &mut Vec<Event>, cluster: &Cluster, happened: Happened) {
    events.push(Event { cluster: Arc::clone(&cluster.name), happened });
}
