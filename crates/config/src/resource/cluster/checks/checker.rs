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

mod remembered;
mod warming;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use self::remembered::RememberedCheck;
pub use self::warming::Warmed;
use self::warming::WarmingClusters;
use super::HealthCheck;
use super::targets::{Due, OfEndpoint, Recent, Target, TargetId, Targets, User, Watched, part};
use crate::address::Address;
use crate::resource::cluster::health::{EndpointHealth, HealthStatus};
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
    /// It did, and said that it is degraded.
    Degraded,
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

impl CheckResult {
    /// Whether the endpoint answered as expected.
    #[must_use]
    pub const fn has_passed(&self) -> bool {
        matches!(self, Self::Passed | Self::Degraded)
    }
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
    /// What it is now.
    pub change: HealthChange,
    /// How long it was the other way.
    pub after: Duration,
}

/// What became of the health of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// It gets requests.
    Healthy,
    /// It gets those that the healthy ones cannot take.
    Degraded,
    /// It gets no requests.
    Unhealthy(Unfit),
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
    /// Endpoints that passed a check, and are healthy, where endpoints may be ejected.
    pub passed: Vec<(ClusterId, EndpointId)>,
    /// Clusters for which the result counts.
    pub counted: Vec<Arc<str>>,
    /// Clusters that waited for it, and serve now.
    pub warmed: Vec<Warmed>,
}

/// What checks say of an endpoint, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthWord {
    /// `healthy`, `degraded`, `unhealthy`, or `unknown` where no check has ended yet.
    pub word: &'static str,
    /// Why it is unhealthy, or what its last check failed with.
    pub reason: Option<Box<str>>,
    /// Since when it is.
    pub since: Duration,
}

/// Checks endpoints, and says which of them are healthy.
#[derive(Debug, Default)]
pub struct Checker {
    clusters: BTreeMap<ClusterId, Watched>,
    targets: Targets,
    reasons: Recent<Box<str>>,
    due: Due,
    /// Tasks of which no result has come, by number.
    under_way: BTreeMap<u64, TargetId>,
    /// They, by when they are given up.
    lost_at: BTreeSet<(Duration, u64)>,
    /// The number of the last task.
    number_last: u64,
    /// Targets that came with this configuration so far.
    first_count: u32,
    /// Clusters that wait for the first checks of their endpoints.
    warming: WarmingClusters,
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
        random: impl FnMut() -> u64,
    ) -> Checked {
        self.take_up(snapshot, true, now, random)
    }

    /// The same for the first configuration of a process that goes on with what another knew ([`Checker::adopt`]): no cluster
    /// of it is new.
    pub fn on_adopted_snapshot<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        now: Duration,
        random: impl FnMut() -> u64,
    ) -> Checked {
        self.take_up(snapshot, false, now, random)
    }

    fn take_up<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        may_warm: bool,
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
                    // One that gets checks only now serves already.
                    let is_new =
                        self.clusters.contains_key(id) || changes.clusters_added.contains(id);
                    self.watch(cluster, may_warm && is_new, now, &mut random);
                    self.settle_cluster(cluster);
                    checked.changed.insert(*id);
                    self.look_at_warming(*id, now, &mut checked);
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
    fn watch(
        &mut self,
        cluster: &Cluster,
        may_warm: bool,
        now: Duration,
        random: &mut impl FnMut() -> u64,
    ) {
        let former = self.clusters.remove(&cluster.id).unwrap_or_default();
        let has_former = cluster.endpoints.iter().any(|endpoint| former.has(endpoint.id));
        let waits_already = self.warming.has(cluster.id);
        match cluster.initial_check_timeout {
            Some(timeout) if waits_already || (may_warm && !has_former) => {
                self.warming.begin(cluster, timeout, now);
            }
            Some(_) => {}
            None => self.warming.end(cluster.id),
        }
        let joins = has_former || self.warming.has(cluster.id);
        let is_quiet = !cluster.activity.is_used();
        let mut endpoints = Vec::with_capacity(cluster.endpoints.len());
        for endpoint in &cluster.endpoints {
            let checks = cluster.checks.iter().zip(0u16..);
            let (cluster, id) = (cluster.id, endpoint.id);
            let targets = checks.map(|(check, place)| {
                let user = User { cluster, endpoint: id, check: place };
                self.target(endpoint, check, user, (now, is_quiet), random)
            });
            let targets: Vec<TargetId> = targets.collect();
            // What failed a check that is another now waits for the verdict of that.
            let before = former.find(id);
            let waits = before.map_or(joins, |before| !self.is_fit(before));
            endpoints.push((OfEndpoint { id, waits }, targets));
        }
        let watched = Watched::new(endpoints, is_quiet);
        for (endpoint, targets) in former.iter() {
            let kept = watched.find(endpoint.id).map_or(&[][..], |(_, targets)| targets);
            let gone = targets.iter().filter(|target| !kept.contains(target));
            gone.for_each(|target| self.leave(*target, (cluster.id, endpoint.id)));
        }
        self.clusters.insert(cluster.id, watched);
    }

    /// The target of an endpoint's check, which it is a user of from here on.
    fn target(
        &mut self,
        endpoint: &Endpoint,
        check: &HealthCheck,
        user: User,
        (now, is_quiet): (Duration, bool),
        random: &mut impl FnMut() -> u64,
    ) -> TargetId {
        let (host, fingerprint) = (endpoint.host(), fingerprint_at(check, endpoint));
        let known = self.targets.find(&endpoint.address, host.map(|host| &**host), fingerprint);
        if let Some(id) = known {
            if let Some(target) = self.targets.get_mut(id) {
                target.add_user(user);
                if !is_quiet {
                    self.hasten(id, now, random);
                }
            }
            return id;
        }
        // At once, but not all at once: each is a connection, and with TLS a handshake.
        let apart = FIRST_APART.saturating_mul(self.first_count);
        self.first_count = self.first_count.saturating_add(1);
        let first = now + apart.min(part(check.pace.interval.0, random()));
        let asked = self.targets.share(host, fingerprint, &check.pace);
        let target = Target::new(endpoint.address.clone(), asked, user, now.into());
        let id = self.targets.insert(target);
        self.set_due(id, first);
        id
    }

    fn set_due(&mut self, id: TargetId, due: Duration) {
        let targets = self.targets.count();
        let Some(target) = self.targets.get_mut(id) else { return };
        let due = target.on_tick(due, targets);
        if let Some(former) = target.due.replace(due) {
            self.due.remove(former, id);
        }
        self.due.insert(due, id);
    }

    /// A cluster has had its first request: its endpoints are checked more often from here on.
    fn hasten(&mut self, id: TargetId, now: Duration, random: &mut impl FnMut() -> u64) {
        let Some(target) = self.targets.get_mut(id) else { return };
        let Some(due) = target.due else { return };
        let interval = target.interval(false);
        if Duration::from(due) > now + interval {
            let sooner = now + part(interval, random());
            self.set_due(id, sooner);
        }
    }

    /// A cluster has nothing to do with a target any more.
    fn leave(&mut self, id: TargetId, (cluster, endpoint): (ClusterId, EndpointId)) {
        let target = self.targets.get_mut(id);
        if !target.is_some_and(|target| target.remove_user(cluster, endpoint)) {
            return;
        }
        if let Some(due) = self.targets.remove(id).and_then(|target| target.due) {
            self.due.remove(due, id);
        }
        // A task that is under way finds no target when it ends, or one that waits for another task.
    }

    fn forget(&mut self, id: ClusterId) {
        self.warming.end(id);
        let Some(gone) = self.clusters.remove(&id) else { return };
        for (endpoint, targets) in gone.iter() {
            targets.iter().for_each(|target| self.leave(*target, (id, endpoint.id)));
        }
    }

    fn number(&mut self) -> u64 {
        self.number_last += 1;
        self.number_last
    }

    /// When [`Checker::poll`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let lost = self.lost_at.first().map(|(at, _)| *at);
        let has_room = self.under_way.len() < CHECKS_UNDER_WAY_MAX;
        let due = self.due.first().filter(|_| has_room).map(Duration::from);
        lost.into_iter().chain(due).min()
    }

    /// The checks that are due.
    pub fn poll(&mut self, now: Duration) -> Vec<CheckTask> {
        while let Some((_, number)) = self.lost_at.first().filter(|(at, _)| *at <= now).copied() {
            if let Some(id) = self.end_task(number) {
                self.ask_again(id, now);
            }
        }
        let mut tasks = Vec::new();
        while self.under_way.len() < CHECKS_UNDER_WAY_MAX
            && let Some(id) = self.due.pop(now.into())
        {
            let number = self.number();
            let Some(target) = self.targets.get_mut(id) else { continue };
            let User { cluster, endpoint, check } = target.first;
            (target.due, target.began) = (None, Some((now.into(), number)));
            let lost_at = now + target.pace().timeout.0 + LOST_AFTER;
            self.under_way.insert(number, id);
            self.lost_at.insert((lost_at, number));
            tasks.push(CheckTask { number, cluster, endpoint, check });
        }
        tasks
    }

    /// Takes a task off the list; its target, if that is there and waits for it.
    fn end_task(&mut self, number: u64) -> Option<TargetId> {
        let id = self.under_way.remove(&number)?;
        let target = self.targets.get_mut(id);
        let timeout = target.as_ref().map(|target| (target.began, target.pace().timeout.0));
        match timeout {
            Some((Some((began, last)), timeout)) if last == number => {
                self.lost_at.remove(&(Duration::from(began) + timeout + LOST_AFTER, number));
            }
            _ => self.lost_at.retain(|(_, other)| *other != number),
        }
        target.is_some_and(|it| it.began.is_some_and(|(_, last)| last == number)).then_some(id)
    }

    /// Nothing was learnt from a target's check, which is to be made again.
    fn ask_again(&mut self, id: TargetId, now: Duration) {
        let Some(target) = self.targets.get_mut(id) else { return };
        let pause = AGAIN_AFTER.saturating_mul(1 << target.undecided.min(16));
        let due = now + pause.min(target.pace().interval.0);
        target.undecided = target.undecided.saturating_add(1);
        self.set_due(id, due);
    }

    /// A check ended.
    pub fn on_result<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        (number, result): (u64, CheckResult),
        (now, die): (Duration, u64),
    ) -> Checked {
        let mut checked = Checked::default();
        let Some(id) = self.end_task(number) else { return checked };
        let Some(target) = self.targets.get_mut(id) else { return checked };
        if result == CheckResult::Undecided {
            let names = target.users().filter_map(|user| snapshot.cluster(user.cluster));
            checked.counted.extend(names.map(|cluster| Arc::clone(&cluster.name)));
            self.ask_again(id, now);
            return checked;
        }
        let (has_passed, before) = (result.has_passed(), (target.is_healthy, target.is_degraded));
        let since = Duration::from(target.since);
        target.count(result, now.into(), &mut self.reasons);
        let is_quiet =
            |it: &User| self.clusters.get(&it.cluster).is_some_and(|watched| watched.is_quiet);
        let is_quiet = target.users().all(is_quiet);
        let began = target.began.map_or(now, |(began, _)| began.into());
        let was_first = std::mem::take(&mut target.is_adopted) || before.0.is_none();
        let next = target.next(began, is_quiet, was_first, die).max(now);
        let users: Vec<User> = target.users().copied().collect();
        // Nothing follows from most results.
        let unfit = ((target.is_healthy, target.is_degraded) != before).then(|| Unfit {
            reason: target.reason().unwrap_or_default().into(),
            failures: target.failures,
        });
        self.set_due(id, next);
        for user in users {
            let after = now.saturating_sub(since);
            let Some(cluster) = snapshot.cluster(user.cluster) else { continue };
            checked.counted.push(Arc::clone(&cluster.name));
            if let Some(unfit) = &unfit {
                self.settle_user(cluster, user.endpoint, (unfit, after), &mut checked);
            }
            let may_be_ejected = has_passed && cluster.outlier.is_some();
            if may_be_ejected && self.is_fit_endpoint(user.cluster, user.endpoint) {
                checked.passed.push((user.cluster, user.endpoint));
            }
            self.look_at_warming(user.cluster, now, &mut checked);
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
        if self.settle_endpoint(cluster.id, endpoint) {
            checked.changed.insert(cluster.id);
        } else if !waited || self.waits(cluster.id, endpoint.id) {
            // Where one has waited until now, the log does not have its reason yet.
            return;
        }
        let change = match endpoint.health.get().map(EndpointHealth::checked) {
            // It joins the others.
            None | Some(HealthStatus::Healthy) if waited => return,
            None | Some(HealthStatus::Healthy) => HealthChange::Healthy,
            Some(HealthStatus::Degraded) => HealthChange::Degraded,
            Some(HealthStatus::Unhealthy) => HealthChange::Unhealthy(unfit.clone()),
        };
        checked.events.push(CheckEvent {
            cluster: Arc::clone(&cluster.name),
            endpoint: endpoint.address.clone(),
            change,
            after,
        });
    }

    fn waits(&self, cluster: ClusterId, endpoint: EndpointId) -> bool {
        let watched = self.clusters.get(&cluster);
        watched.and_then(|it| it.find(endpoint)).is_some_and(|(endpoint, _)| endpoint.waits)
    }

    fn is_fit_endpoint(&self, cluster: ClusterId, endpoint: EndpointId) -> bool {
        let watched = self.clusters.get(&cluster);
        watched.and_then(|it| it.find(endpoint)).is_some_and(|it| self.is_fit(it))
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
        let found = watched.and_then(|watched| watched.find(endpoint_id));
        let targets = found.map(|(_, targets)| targets.to_vec()).unwrap_or_default();
        let mut users = BTreeMap::new();
        for id in targets {
            let Some(target) = self.targets.get_mut(id).filter(|it| it.is_healthy != Some(false))
            else {
                continue;
            };
            let after = now.saturating_sub(target.since.into());
            let failed =
                CheckResult::Failed { reason: reason.into(), weight: FailureWeight::Final };
            target.count(failed, now.into(), &mut self.reasons);
            users.extend(target.users().map(|user| ((user.cluster, user.endpoint), after)));
        }
        let unfit = Unfit { reason: reason.into(), failures: 1 };
        for ((cluster, endpoint), after) in users {
            if let Some(found) = snapshot.cluster(cluster) {
                self.settle_user(found, endpoint, (&unfit, after), &mut checked);
            }
            self.look_at_warming(cluster, now, &mut checked);
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
            targets.extend_from_slice(watched.targets());
        }
        targets.into_iter().for_each(|target| self.hasten(target, now, &mut random));
    }

    /// What is known of an endpoint of a cluster; none if the cluster has no checks. Takes about as long for any number of endpoints.
    #[must_use]
    pub fn word(&self, cluster: ClusterId, endpoint: EndpointId) -> Option<HealthWord> {
        let (_, targets) = self.clusters.get(&cluster)?.find(endpoint)?;
        let targets = targets.iter().filter_map(|id| self.targets.get(*id));
        // The one that keeps it from its requests comes first.
        let target = targets.min_by_key(|target| match target.is_healthy {
            Some(false) => 0,
            None => 1,
            Some(true) => 2 + u8::from(!target.is_degraded),
        })?;
        let word = match target.is_healthy {
            Some(true) if target.is_degraded => "degraded",
            Some(true) => "healthy",
            Some(false) => "unhealthy",
            None => "unknown",
        };
        let is_of_now = target.failures > 0 || target.is_healthy == Some(false);
        let reason = target.reason().filter(|_| is_of_now).map(Into::into);
        Some(HealthWord { word, reason, since: target.since.into() })
    }

    /// How many endpoints of a cluster are unhealthy.
    #[must_use]
    pub fn unhealthy(&self, cluster: ClusterId) -> usize {
        let endpoints = self.clusters.get(&cluster).into_iter().flat_map(Watched::iter);
        endpoints.filter(|endpoint| !self.is_fit(*endpoint)).count()
    }

    fn settle_cluster(&mut self, cluster: &Cluster) {
        for endpoint in &cluster.endpoints {
            self.settle_endpoint(cluster.id, endpoint);
        }
    }

    /// Says in an endpoint's cell whether it may be chosen; whether that is another answer than before.
    fn settle_endpoint(&mut self, cluster: ClusterId, endpoint: &Endpoint) -> bool {
        let watched = self.clusters.get(&cluster);
        let Some((_, targets)) = watched.and_then(|it| it.find(endpoint.id)) else { return false };
        let mut targets = targets.iter().filter_map(|id| self.targets.get(*id));
        let is_degraded = targets.clone().any(|target| target.is_degraded);
        let is_known = targets.all(|target| target.is_healthy.is_some());
        if is_known && let Some(watched) = self.clusters.get_mut(&cluster) {
            watched.end_wait(endpoint.id);
        }
        let is_fit = self.is_fit_endpoint(cluster, endpoint.id);
        let Some(health) = endpoint.health.get() else { return false };
        let before = health.checked();
        health.set_unfit(!is_fit);
        health.set_degraded(is_degraded);
        health.checked() != before
    }

    fn is_fit(&self, (endpoint, targets): (OfEndpoint, &[TargetId])) -> bool {
        let mut targets = targets.iter().filter_map(|id| self.targets.get(*id));
        !endpoint.waits && targets.all(|target| target.is_healthy != Some(false))
    }
}

/// No check says anything of its endpoints any more.
fn release(cluster: &Cluster) {
    for health in cluster.endpoints.iter().filter_map(|endpoint| endpoint.health.get()) {
        health.set_unfit(false);
        health.set_degraded(false);
    }
}
