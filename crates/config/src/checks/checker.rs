//! When which endpoint is checked, and what follows from the results: one for the process.
//!
//! ```text
//!  snapshot ─► targets ─ poll: one is due ─► CheckTask ─► a worker ─► CheckResult ─ on_result ─┐
//!                 ▲                                                                            ▼
//!                 └──────────────── in a row? ◄─────────────── EndpointHealth, groups counted again
//! ```
//!
//! A *target* is an address with what is asked there. Clusters that ask the same of the same address, over the same transport,
//! share one, so that the address is asked once for all of them.
//!
//! A state machine without a clock: `now` is the time since any fixed moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{HealthCheck, Pace};
use crate::address::Address;
use crate::map::Map;
use crate::snapshot::{Cluster, ClusterId, Endpoint, EndpointId, Snapshot};
use crate::xxhash::xxh64;

/// Checks of the process that are under way at a time; others wait for their turn.
pub const CHECKS_UNDER_WAY_MAX: usize = 4_096;

/// How much longer than its timeout a check is waited for: beyond it, its worker is not heard of, and nothing is learnt.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// When a check is begun again of which nothing was learnt: the first time. Each time in a row doubles it, up to the interval.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// From one first check of new endpoints to the next.
const FIRST_APART: Duration = Duration::from_micros(500);

/// Due times are whole multiples of a tick, so that checks begin several at a time: of this one before the first check, and
/// then of a hundredth of the interval within these bounds. A thread that wakes for one check costs more than the check.
const TICK: Duration = Duration::from_millis(10);
const TICK_MAX: Duration = Duration::from_millis(50);

/// Bytes of the reason for a failure that are kept.
const REASON_BYTES_MAX: usize = 160;

/// A check to be made by a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckTask {
    /// Given back with the result.
    pub number: u64,
    /// The cluster.
    pub cluster: ClusterId,
    /// Which of its endpoints.
    pub endpoint: EndpointId,
    /// Which of its checks, by its place.
    pub check: u16,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The endpoint answered as expected.
    Passed,
    /// It did not.
    Failed {
        /// Why.
        reason: Box<str>,
        /// How much that counts.
        weight: FailureWeight,
    },
    /// The worker could not find out: its part of the configuration is another, or the connection moves.
    Undecided,
}

/// How much a check that failed counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureWeight {
    /// The first of an endpoint decides; later ones do when there are as many in a row as `unhealthy` says.
    Usual,
    /// The same, but the first alone decides nothing: it took too long, which may be this process's fault when it starts.
    Late,
    /// It decides at once.
    Final,
}

/// The health of an endpoint changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckEvent {
    /// The name of the cluster.
    pub cluster: Arc<str>,
    /// Which of its endpoints.
    pub endpoint: Address,
    /// Why it gets no requests any more; none if it gets them again.
    pub unfit: Option<Unfit>,
    /// How long it was the other way.
    pub after: Duration,
}

/// Why an endpoint gets no requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// What its last check said.
    pub reason: Box<str>,
    /// How many failed in a row.
    pub failures: u32,
}

/// What follows from results.
#[derive(Debug, Default)]
pub struct Checked {
    /// What operators want to know of.
    pub events: Vec<CheckEvent>,
    /// Clusters of which other endpoints may be chosen than before.
    pub changed: BTreeSet<ClusterId>,
    /// Endpoints that passed a check, and are healthy.
    pub passed: Vec<(ClusterId, EndpointId)>,
    /// Clusters for which the result counts.
    pub counted: Vec<Arc<str>>,
}

/// What checks say of an endpoint, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthWord {
    /// `healthy`, `unhealthy`, or `unknown` where no check has ended yet.
    pub word: &'static str,
    /// Why it is unhealthy, or what its last check failed with.
    pub reason: Option<Box<str>>,
    /// Since when it is.
    pub since: Duration,
}

/// An endpoint that is unhealthy, for another process that goes on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedCheck {
    /// Its address.
    pub endpoint: Address,
    /// What is asked there, as a number that is the same in every process.
    pub fingerprint: u64,
    /// Why it is unhealthy.
    pub reason: Box<str>,
    /// Since how long.
    pub lasted: Duration,
}

/// Checks endpoints, and says which of them are healthy.
#[derive(Debug, Default)]
pub struct Checker {
    clusters: BTreeMap<ClusterId, Watched>,
    targets: BTreeMap<u64, Target>,
    by_key: Map<TargetKey, u64>,
    /// Targets by when they are due.
    due: BTreeSet<(Duration, u64)>,
    /// Tasks of which no result has come, by number.
    under_way: BTreeMap<u64, u64>,
    /// They, by when they are given up.
    lost_at: BTreeSet<(Duration, u64)>,
    /// For targets and tasks.
    number_next: u64,
    /// Targets that came with this configuration so far.
    first_count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TargetKey {
    address: Address,
    /// The host that TLS asks for there.
    host: Option<Arc<str>>,
    fingerprint: u64,
}

/// An address with what is asked there.
#[derive(Debug)]
struct Target {
    key: TargetKey,
    /// Whose endpoint it is, and which check of the cluster. The first one lends its cluster for the next check.
    users: Vec<(ClusterId, EndpointId, u16)>,
    pace: Pace,
    /// None until a first check has ended.
    is_healthy: Option<bool>,
    /// Results in a row that speak against that; of one that is unhealthy, those it passed.
    against: u32,
    /// Failures in a row.
    failures: u32,
    /// Checks in a row of which nothing was learnt.
    undecided: u8,
    /// Since when it is as it is.
    since: Duration,
    /// What the last check failed with.
    reason: Option<Box<str>>,
    /// When the last check began, and which one it is; none before the first one.
    began: Option<(Duration, u64)>,
    /// When the next one is due, if none is under way.
    due: Option<Duration>,
}

/// A cluster with checks.
#[derive(Debug, Default)]
struct Watched {
    endpoints: BTreeMap<EndpointId, OfEndpoint>,
    /// Whether it has had no request yet.
    is_quiet: bool,
}

#[derive(Debug, Default)]
struct OfEndpoint {
    targets: Box<[u64]>,
    /// Whether it joined others that serve, and gets no request before all its checks have passed.
    waits: bool,
}

/// Names what is asked of this endpoint, whose transport may be one of several of its cluster.
fn fingerprint_at(check: &HealthCheck, endpoint: &Endpoint) -> u64 {
    match endpoint.transport {
        0 => check.fingerprint,
        place => xxh64(&[place], check.fingerprint),
    }
}

impl Checker {
    /// There is a new configuration, with these changes to the one of before.
    pub fn on_snapshot<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        now: Duration,
        mut random: impl FnMut() -> u64,
    ) -> Checked {
        let mut checked = Checked::default();
        self.first_count = 0;
        let changes = &snapshot.changes;
        for id in &changes.clusters_removed {
            self.forget(*id);
        }
        for id in changes.clusters_added.iter().chain(&changes.clusters_changed) {
            match snapshot.cluster(*id) {
                Some(cluster) if !cluster.checks.is_empty() => {
                    self.watch(cluster, now, &mut random);
                    self.settle_cluster(cluster);
                    checked.changed.insert(*id);
                }
                _ if self.clusters.contains_key(id) => {
                    self.forget(*id);
                    if let Some(cluster) = snapshot.cluster(*id) {
                        release(cluster);
                        checked.changed.insert(*id);
                    }
                }
                _ => {}
            }
        }
        checked
    }

    /// Takes over what a cluster asks of its endpoints.
    fn watch(&mut self, cluster: &Cluster, now: Duration, random: &mut impl FnMut() -> u64) {
        let former = self.clusters.remove(&cluster.id).unwrap_or_default();
        let stays = |endpoint: &Endpoint| former.endpoints.contains_key(&endpoint.id);
        let serves = cluster.endpoints.iter().any(stays);
        let mut watched = Watched { is_quiet: !cluster.activity.is_used(), ..Watched::default() };
        for endpoint in &cluster.endpoints {
            let checks = cluster.checks.iter().zip(0u16..);
            let user = |place| (cluster.id, endpoint.id, place);
            let targets = checks.map(|(check, place)| {
                self.target(endpoint, check, user(place), (now, watched.is_quiet), random)
            });
            let targets: Box<[u64]> = targets.collect();
            // What failed a check that is another now waits for the verdict of that.
            let before = former.endpoints.get(&endpoint.id);
            let waits = before.map_or(serves, |before| !self.is_fit(before));
            watched.endpoints.insert(endpoint.id, OfEndpoint { targets, waits });
        }
        for (endpoint, of_endpoint) in former.endpoints {
            let kept = watched.endpoints.get(&endpoint).map_or(&[][..], |it| &it.targets);
            let gone = of_endpoint.targets.iter().filter(|target| !kept.contains(target));
            gone.for_each(|target| self.leave(*target, (cluster.id, endpoint)));
        }
        self.clusters.insert(cluster.id, watched);
    }

    /// The target of an endpoint's check, which it is a user of from here on.
    fn target(
        &mut self,
        endpoint: &Endpoint,
        check: &HealthCheck,
        user: (ClusterId, EndpointId, u16),
        (now, is_quiet): (Duration, bool),
        random: &mut impl FnMut() -> u64,
    ) -> u64 {
        let key = TargetKey {
            address: endpoint.address.clone(),
            host: endpoint.host.clone(),
            fingerprint: fingerprint_at(check, endpoint),
        };
        if let Some(number) = self.by_key.get(&key).copied() {
            if let Some(target) = self.targets.get_mut(&number) {
                let is_user =
                    |it: &&mut (ClusterId, EndpointId, u16)| (it.0, it.1) == (user.0, user.1);
                match target.users.iter_mut().find(is_user) {
                    Some(known) => known.2 = user.2,
                    None => target.users.push(user),
                }
                if !is_quiet {
                    self.hasten(number, now, random);
                }
            }
            return number;
        }
        let number = self.number();
        // At once, but not all at once: each is a connection, and with TLS a handshake.
        let apart = FIRST_APART.saturating_mul(self.first_count);
        self.first_count = self.first_count.saturating_add(1);
        let first = now + apart.min(part(check.pace.interval.0, random()));
        let target = Target {
            key: key.clone(),
            users: vec![user],
            pace: check.pace,
            is_healthy: None,
            against: 0,
            failures: 0,
            undecided: 0,
            since: now,
            reason: None,
            began: None,
            due: None,
        };
        self.by_key.insert(key, number);
        self.targets.insert(number, target);
        self.set_due(number, first);
        number
    }

    fn set_due(&mut self, number: u64, due: Duration) {
        let Some(target) = self.targets.get_mut(&number) else { return };
        let due = on_tick(due, target.tick());
        if let Some(former) = target.due.replace(due) {
            self.due.remove(&(former, number));
        }
        self.due.insert((due, number));
    }

    /// A cluster has had its first request: its endpoints are checked more often from here on.
    fn hasten(&mut self, number: u64, now: Duration, random: &mut impl FnMut() -> u64) {
        let Some(target) = self.targets.get_mut(&number) else { return };
        let Some(due) = target.due else { return };
        let interval = target.interval(false);
        if due > now + interval {
            let sooner = now + part(interval, random());
            self.set_due(number, sooner);
        }
    }

    /// A cluster has nothing to do with a target any more.
    fn leave(&mut self, number: u64, (cluster, endpoint): (ClusterId, EndpointId)) {
        let Some(target) = self.targets.get_mut(&number) else { return };
        target.users.retain(|user| (user.0, user.1) != (cluster, endpoint));
        if !target.users.is_empty() {
            return;
        }
        let target = self.targets.remove(&number).expect("it was found");
        self.by_key.remove(&target.key);
        if let Some(due) = target.due {
            self.due.remove(&(due, number));
        }
        // A task that is under way finds no target when it ends.
    }

    fn forget(&mut self, id: ClusterId) {
        let Some(gone) = self.clusters.remove(&id) else { return };
        for (endpoint, of_endpoint) in gone.endpoints {
            of_endpoint.targets.iter().for_each(|target| self.leave(*target, (id, endpoint)));
        }
    }

    fn number(&mut self) -> u64 {
        self.number_next += 1;
        self.number_next
    }

    /// When [`Checker::poll`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let lost = self.lost_at.first().map(|(at, _)| *at);
        let has_room = self.under_way.len() < CHECKS_UNDER_WAY_MAX;
        let due = self.due.first().filter(|_| has_room).map(|(at, _)| *at);
        lost.into_iter().chain(due).min()
    }

    /// The checks that are due.
    pub fn poll(&mut self, now: Duration) -> Vec<CheckTask> {
        while let Some((_, number)) = self.lost_at.first().filter(|(at, _)| *at <= now).copied() {
            self.end_task(number, now);
        }
        let mut tasks = Vec::new();
        while self.under_way.len() < CHECKS_UNDER_WAY_MAX
            && let Some((at, id)) = self.due.first().filter(|(at, _)| *at <= now).copied()
        {
            self.due.remove(&(at, id));
            let number = self.number();
            let Some(target) = self.targets.get_mut(&id) else { continue };
            let Some((cluster, endpoint, check)) = target.users.first().copied() else { continue };
            (target.due, target.began) = (None, Some((now, number)));
            let lost_at = now + target.pace.timeout.0 + LOST_AFTER;
            self.under_way.insert(number, id);
            self.lost_at.insert((lost_at, number));
            tasks.push(CheckTask { number, cluster, endpoint, check });
        }
        tasks
    }

    /// Takes a task off the list; its target, if that is there and waits for it.
    fn end_task(&mut self, number: u64, now: Duration) -> Option<u64> {
        let id = self.under_way.remove(&number)?;
        let target = self.targets.get_mut(&id);
        let timeout = target.as_ref().map(|target| (target.began, target.pace.timeout.0));
        match timeout {
            Some((Some((began, last)), timeout)) if last == number => {
                self.lost_at.remove(&(began + timeout + LOST_AFTER, number));
            }
            _ => self.lost_at.retain(|(_, other)| *other != number),
        }
        let target = target.filter(|it| it.began.is_some_and(|(_, last)| last == number))?;
        let pause = AGAIN_AFTER.saturating_mul(1 << target.undecided.min(16));
        let due = now + pause.min(target.pace.interval.0);
        target.undecided = target.undecided.saturating_add(1);
        self.set_due(id, due);
        Some(id)
    }

    /// A check ended.
    pub fn on_result<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        (number, result): (u64, CheckResult),
        (now, die): (Duration, u64),
    ) -> Checked {
        let mut checked = Checked::default();
        let Some(id) = self.end_task(number, now) else { return checked };
        let Some(target) = self.targets.get_mut(&id) else { return checked };
        if result == CheckResult::Undecided {
            let names = target.users.iter().filter_map(|user| snapshot.cluster(user.0));
            checked.counted.extend(names.map(|cluster| Arc::clone(&cluster.name)));
            return checked;
        }
        let (has_passed, was_first) = (result == CheckResult::Passed, target.is_healthy.is_none());
        let since = target.since;
        target.count(result, now);
        let is_quiet = |(cluster, ..): &(ClusterId, EndpointId, u16)| {
            self.clusters.get(cluster).is_some_and(|watched| watched.is_quiet)
        };
        let is_quiet = target.users.iter().all(is_quiet);
        let began = target.began.map_or(now, |(began, _)| began);
        let next = target.next(began, is_quiet, was_first, die).max(now);
        let users = target.users.clone();
        let reason = target.reason.clone().unwrap_or_default();
        let unfit = Unfit { reason, failures: target.failures };
        self.set_due(id, next);
        for user in users {
            let after = now.saturating_sub(since);
            let Some(cluster) = snapshot.cluster(user.0) else { continue };
            checked.counted.push(Arc::clone(&cluster.name));
            self.settle_user(cluster, user.1, (&unfit, after), &mut checked);
            if has_passed && self.is_fit_endpoint(user.0, user.1) {
                checked.passed.push((user.0, user.1));
            }
        }
        checked
    }

    /// Says in an endpoint's cell whether it may be chosen, and notes what follows if that is another answer than before.
    fn settle_user(
        &mut self,
        cluster: &Cluster,
        endpoint: EndpointId,
        (unfit, after): (&Unfit, Duration),
        checked: &mut Checked,
    ) {
        let place = cluster.place_of(endpoint);
        let Some(endpoint) = place.and_then(|place| cluster.endpoints.get(place)) else { return };
        let waited = self.waits(cluster.id, endpoint.id);
        if !self.settle_endpoint(cluster.id, endpoint) {
            return;
        }
        checked.changed.insert(cluster.id);
        let is_fit = self.is_fit_endpoint(cluster.id, endpoint.id);
        if is_fit && waited {
            // It joins the others.
            return;
        }
        checked.events.push(CheckEvent {
            cluster: Arc::clone(&cluster.name),
            endpoint: endpoint.address.clone(),
            unfit: (!is_fit).then(|| unfit.clone()),
            after,
        });
    }

    fn waits(&self, cluster: ClusterId, endpoint: EndpointId) -> bool {
        let watched = self.clusters.get(&cluster);
        watched.and_then(|it| it.endpoints.get(&endpoint)).is_some_and(|it| it.waits)
    }

    fn is_fit_endpoint(&self, cluster: ClusterId, endpoint: EndpointId) -> bool {
        let watched = self.clusters.get(&cluster);
        watched.and_then(|it| it.endpoints.get(&endpoint)).is_some_and(|it| self.is_fit(it))
    }

    /// An endpoint said in a response that it is not healthy: it gets no request until it has passed its checks again.
    pub fn on_failed_itself<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        (cluster_id, endpoint_id): (ClusterId, EndpointId),
        reason: &str,
        now: Duration,
    ) -> Checked {
        let mut checked = Checked::default();
        let watched = self.clusters.get(&cluster_id);
        let targets = watched.and_then(|watched| watched.endpoints.get(&endpoint_id));
        let targets = targets.map(|of_endpoint| of_endpoint.targets.clone()).unwrap_or_default();
        let mut users = BTreeMap::new();
        for id in targets {
            let Some(target) = self.targets.get_mut(&id).filter(|it| it.is_healthy != Some(false))
            else {
                continue;
            };
            let after = now.saturating_sub(target.since);
            let weight = FailureWeight::Final;
            target.count(CheckResult::Failed { reason: reason.into(), weight }, now);
            users.extend(target.users.iter().map(|user| ((user.0, user.1), after)));
        }
        let unfit = Unfit { reason: reason.into(), failures: 1 };
        for ((cluster, endpoint), after) in users {
            if let Some(cluster) = snapshot.cluster(cluster) {
                self.settle_user(cluster, endpoint, (&unfit, after), &mut checked);
            }
        }
        checked
    }

    /// Some time has passed: clusters that had their first request are checked more often.
    pub fn look_at_activity<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        now: Duration,
        mut random: impl FnMut() -> u64,
    ) {
        let is_used =
            |id: &ClusterId| snapshot.cluster(*id).is_some_and(|it| it.activity.is_used());
        let quiet =
            self.clusters.iter_mut().filter(|(id, watched)| watched.is_quiet && is_used(id));
        let mut targets = Vec::new();
        for (_, watched) in quiet {
            watched.is_quiet = false;
            targets.extend(watched.endpoints.values().flat_map(|it| it.targets.iter().copied()));
        }
        targets.into_iter().for_each(|target| self.hasten(target, now, &mut random));
    }

    /// What is known of the endpoints of all clusters with checks.
    pub fn words(&self) -> impl Iterator<Item = (EndpointId, HealthWord)> {
        let endpoints = self.clusters.values().flat_map(|watched| &watched.endpoints);
        endpoints.filter_map(|(endpoint, of_endpoint)| {
            let targets = of_endpoint.targets.iter().filter_map(|id| self.targets.get(id));
            // The one that keeps it from its requests comes first.
            let target = targets.min_by_key(|target| match target.is_healthy {
                Some(false) => 0,
                None => 1,
                Some(true) => 2,
            })?;
            let word = match target.is_healthy {
                Some(true) => "healthy",
                Some(false) => "unhealthy",
                None => "unknown",
            };
            let is_of_now = target.failures > 0 || target.is_healthy == Some(false);
            let reason = target.reason.clone().filter(|_| is_of_now);
            Some((*endpoint, HealthWord { word, reason, since: target.since }))
        })
    }

    /// How many endpoints of a cluster are unhealthy.
    #[must_use]
    pub fn unhealthy(&self, cluster: ClusterId) -> usize {
        let endpoints =
            self.clusters.get(&cluster).into_iter().flat_map(|it| it.endpoints.values());
        endpoints.filter(|of_endpoint| !self.is_fit(of_endpoint)).count()
    }

    /// Up to `count_max` endpoints that are unhealthy.
    #[must_use]
    pub fn remembered(&self, now: Duration, count_max: usize) -> Vec<RememberedCheck> {
        let unhealthy = self.targets.values().filter(|target| target.is_healthy == Some(false));
        let remembered = unhealthy.take(count_max).map(|target| RememberedCheck {
            endpoint: target.key.address.clone(),
            fingerprint: target.key.fingerprint,
            reason: target.reason.clone().unwrap_or_default(),
            lasted: now.saturating_sub(target.since),
        });
        remembered.collect()
    }

    /// Goes on with what another process knew. What this one has found out itself stays.
    pub fn adopt<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        remembered: &[RememberedCheck],
        now: Duration,
    ) -> Checked {
        let known: Map<(&Address, u64), &RememberedCheck> =
            remembered.iter().map(|one| ((&one.endpoint, one.fingerprint), one)).collect();
        let mut clusters = BTreeSet::new();
        for target in self.targets.values_mut().filter(|target| target.is_healthy.is_none()) {
            let Some(one) = known.get(&(&target.key.address, target.key.fingerprint)) else {
                continue;
            };
            (target.is_healthy, target.failures) = (Some(false), 1);
            target.reason = Some(one.reason.clone());
            target.since = now.saturating_sub(one.lasted);
            clusters.extend(target.users.iter().map(|user| user.0));
        }
        for cluster in clusters.iter().filter_map(|id| snapshot.cluster(*id)) {
            self.settle_cluster(cluster);
        }
        Checked { changed: clusters, ..Checked::default() }
    }

    fn settle_cluster(&mut self, cluster: &Cluster) {
        for endpoint in &cluster.endpoints {
            self.settle_endpoint(cluster.id, endpoint);
        }
    }

    /// Says in an endpoint's cell whether it may be chosen; whether that is another answer than before.
    fn settle_endpoint(&mut self, cluster: ClusterId, endpoint: &Endpoint) -> bool {
        let watched = self.clusters.get(&cluster);
        let Some(of_endpoint) = watched.and_then(|it| it.endpoints.get(&endpoint.id)) else {
            return false;
        };
        let targets = of_endpoint.targets.iter().filter_map(|id| self.targets.get(id));
        let is_known = targets.clone().all(|target| target.is_healthy.is_some());
        if is_known
            && let Some(of_endpoint) =
                self.clusters.get_mut(&cluster).and_then(|it| it.endpoints.get_mut(&endpoint.id))
        {
            of_endpoint.waits = false;
        }
        let of_endpoint = self.clusters.get(&cluster).and_then(|it| it.endpoints.get(&endpoint.id));
        let is_fit = of_endpoint.is_some_and(|of_endpoint| self.is_fit(of_endpoint));
        endpoint.health.get().is_some_and(|health| health.set_unfit(!is_fit))
    }

    fn is_fit(&self, of_endpoint: &OfEndpoint) -> bool {
        let mut targets = of_endpoint.targets.iter().filter_map(|id| self.targets.get(id));
        !of_endpoint.waits && targets.all(|target| target.is_healthy != Some(false))
    }
}

impl Target {
    /// Counts a result.
    fn count(&mut self, result: CheckResult, now: Duration) {
        self.undecided = 0;
        let mut is_late = false;
        let (has_passed, needed) = match result {
            CheckResult::Undecided => return,
            CheckResult::Passed => {
                self.failures = 0;
                (true, self.pace.healthy)
            }
            CheckResult::Failed { reason, weight } => {
                self.failures = self.failures.saturating_add(1);
                let end = reason.floor_char_boundary(REASON_BYTES_MAX);
                self.reason = reason.get(..end).map(Into::into);
                is_late = weight == FailureWeight::Late;
                (false, if weight == FailureWeight::Final { 1 } else { self.pace.unhealthy })
            }
        };
        match self.is_healthy {
            Some(is_healthy) if is_healthy == has_passed => self.against = 0,
            None if !is_late => self.against = u32::MAX,
            Some(_) | None => self.against = self.against.saturating_add(1),
        }
        if self.is_healthy != Some(has_passed) && self.against >= needed {
            (self.is_healthy, self.against, self.since) = (Some(has_passed), 0, now);
        }
    }

    /// From one time at which checks begin to the next.
    fn tick(&self) -> Duration {
        match self.began {
            None => TICK,
            Some(_) => (self.interval(false) / 100).clamp(TICK, TICK_MAX),
        }
    }

    /// From one check to the next.
    fn interval(&self, is_quiet: bool) -> Duration {
        match (self.is_healthy, is_quiet) {
            (Some(false), _) => self.pace.interval_unhealthy.0,
            (_, true) => self.pace.interval_quiet.0,
            (_, false) => self.pace.interval.0,
        }
    }

    /// When the next check is due of one that began then. The second one comes after any part of the interval, so that endpoints
    /// that came together are not checked together for good.
    fn next(&self, began: Duration, is_quiet: bool, was_first: bool, die: u64) -> Duration {
        let interval = self.interval(is_quiet);
        if was_first {
            return began + part(interval, die);
        }
        began + interval * 9 / 10 + part(interval / 5, die)
    }
}

/// No check says anything of its endpoints any more.
fn release(cluster: &Cluster) {
    for health in cluster.endpoints.iter().filter_map(|endpoint| endpoint.health.get()) {
        health.set_unfit(false);
    }
}

/// A part of a time, by a die.
fn part(whole: Duration, die: u64) -> Duration {
    let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(die % nanos)
}

/// The tick at which something is due, or behind it.
fn on_tick(at: Duration, tick: Duration) -> Duration {
    let (at, tick) = (at.as_nanos(), tick.as_nanos());
    Duration::from_nanos(u64::try_from(at.div_ceil(tick) * tick).unwrap_or(u64::MAX))
}
