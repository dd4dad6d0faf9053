//! What is checked, and how it went: the memory of the [`Checker`](super::Checker), which a process has for each of tens of
//! thousands of endpoints.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::{CheckResult, FailureWeight, Pace};
use crate::address::Address;
use crate::snapshot::{ClusterId, EndpointId};

/// Due times are whole multiples of a tick, so that checks begin several at a time: of this one before the first check, and
/// then of a hundredth of the interval within these bounds. A thread that wakes for one check costs more than the check.
const TICK: Duration = Duration::from_millis(10);
const TICK_MAX: Duration = Duration::from_millis(50);

/// Bytes of the reason for a failure that are kept.
const REASON_BYTES_MAX: usize = 160;

/// Different reasons that are kept once for all targets that failed for them.
const SHARED_REASONS_MAX: usize = 16;

/// A moment, as the time since a fixed one in half the memory of a [`Duration`]: ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

impl From<Duration> for Moment {
    fn from(since: Duration) -> Self {
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Moment> for Duration {
    fn from(Moment(nanos): Moment) -> Self {
        Self::from_nanos(nanos)
    }
}

/// The place of a target, until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TargetId(u32);

/// What is asked where: targets that are asked the same are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TargetKey {
    pub(super) address: Address,
    /// The host that TLS asks for there.
    pub(super) host: Option<Arc<str>>,
    pub(super) fingerprint: u64,
}

/// A cluster's endpoint at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) cluster: ClusterId,
    pub(super) endpoint: EndpointId,
    /// Which check of the cluster.
    pub(super) check: u16,
}

impl User {
    pub(super) fn is_same_endpoint(&self, cluster: ClusterId, endpoint: EndpointId) -> bool {
        (self.cluster, self.endpoint) == (cluster, endpoint)
    }
}

/// An address with what is asked there.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) key: TargetKey,
    /// Lends its cluster for the next check.
    pub(super) first: User,
    pub(super) others: Vec<User>,
    pub(super) pace: Arc<Pace>,
    /// None until a first check has ended.
    pub(super) is_healthy: Option<bool>,
    /// Whether it said so when it last answered as expected.
    pub(super) is_degraded: bool,
    /// Checks in a row of which nothing was learnt.
    pub(super) undecided: u8,
    /// Results in a row that speak against that; of one that is unhealthy, those it passed.
    against: u32,
    /// Failures in a row.
    pub(super) failures: u32,
    /// Since when it is as it is.
    pub(super) since: Moment,
    /// What the last check failed with.
    pub(super) reason: Option<Arc<str>>,
    /// When the last check began, and which one it is; none before the first one.
    pub(super) began: Option<(Moment, u64)>,
    /// When the next one is due, if none is under way.
    pub(super) due: Option<Moment>,
}

impl Target {
    pub(super) fn new(key: TargetKey, user: User, pace: Arc<Pace>, now: Moment) -> Self {
        Self {
            key,
            first: user,
            others: Vec::new(),
            pace,
            is_healthy: None,
            is_degraded: false,
            undecided: 0,
            against: 0,
            failures: 0,
            since: now,
            reason: None,
            began: None,
            due: None,
        }
    }

    pub(super) fn users(&self) -> impl Iterator<Item = &User> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// An endpoint of a cluster uses it, or does so with another check.
    pub(super) fn add_user(&mut self, user: User) {
        let mut users = std::iter::once(&mut self.first).chain(&mut self.others);
        match users.find(|it| it.is_same_endpoint(user.cluster, user.endpoint)) {
            Some(known) => known.check = user.check,
            None => self.others.push(user),
        }
    }

    /// An endpoint uses it no more. Returns whether it was the last one, which stays.
    pub(super) fn remove_user(&mut self, cluster: ClusterId, endpoint: EndpointId) -> bool {
        self.others.retain(|user| !user.is_same_endpoint(cluster, endpoint));
        if !self.first.is_same_endpoint(cluster, endpoint) {
            return false;
        }
        if self.others.is_empty() {
            return true;
        }
        self.first = self.others.remove(0);
        false
    }

    /// Counts a result. `reasons` are those of others.
    pub(super) fn count(&mut self, result: CheckResult, now: Moment, reasons: &mut Reasons) {
        self.undecided = 0;
        let mut is_late = false;
        let (has_passed, needed) = match result {
            CheckResult::Undecided => return,
            CheckResult::Passed | CheckResult::Degraded => {
                self.failures = 0;
                let is_degraded = result == CheckResult::Degraded;
                let has_changed =
                    std::mem::replace(&mut self.is_degraded, is_degraded) != is_degraded;
                // One that is unhealthy goes on to be that, whatever it answers until it has passed often enough.
                if has_changed && self.is_healthy != Some(false) {
                    self.since = now;
                }
                (true, self.pace.healthy)
            }
            CheckResult::Failed { reason, weight } => {
                self.failures = self.failures.saturating_add(1);
                let end = reason.floor_char_boundary(REASON_BYTES_MAX);
                self.reason = reason.get(..end).map(|reason| reasons.share(reason));
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

    /// When something is due that is to be at `at`: at its tick, or behind it.
    pub(super) fn on_tick(&self, at: Duration) -> Moment {
        let tick = match self.began {
            None => TICK,
            Some(_) => (self.interval(false) / 100).clamp(TICK, TICK_MAX),
        };
        let (at, tick) = (at.as_nanos(), tick.as_nanos());
        Moment(u64::try_from(at.div_ceil(tick) * tick).unwrap_or(u64::MAX))
    }

    /// From one check to the next.
    pub(super) fn interval(&self, is_quiet: bool) -> Duration {
        match (self.is_healthy, is_quiet) {
            (Some(false), _) => self.pace.interval_unhealthy.0,
            (_, true) => self.pace.interval_quiet.0,
            (_, false) => self.pace.interval.0,
        }
    }

    /// When the next check is due of one that began then. The second one comes after any part of the interval, so that endpoints
    /// that came together are not checked together for good.
    pub(super) fn next(
        &self,
        began: Duration,
        is_quiet: bool,
        was_first: bool,
        die: u64,
    ) -> Duration {
        let interval = self.interval(is_quiet);
        if was_first {
            return began + part(interval, die);
        }
        began + interval * 9 / 10 + part(interval / 5, die)
    }
}

/// A part of a time, by a die.
pub(super) fn part(whole: Duration, die: u64) -> Duration {
    let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(die % nanos)
}

/// All targets, found by place and by key.
#[derive(Debug, Default)]
pub(super) struct Targets {
    places: Vec<Option<Target>>,
    free: Vec<TargetId>,
    /// Their places, by the hash of their keys.
    by_key: HashTable<TargetId>,
}

impl Targets {
    pub(super) fn get(&self, TargetId(place): TargetId) -> Option<&Target> {
        self.places.get(place as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, TargetId(place): TargetId) -> Option<&mut Target> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    pub(super) fn find(&self, key: &TargetKey) -> Option<TargetId> {
        let is_it = |id: &TargetId| self.get(*id).is_some_and(|target| target.key == *key);
        self.by_key.find(hash(key), is_it).copied()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Target> {
        self.places.iter().flatten()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        self.places.iter_mut().flatten()
    }

    /// Adds one whose key no other has.
    pub(super) fn insert(&mut self, target: Target) -> TargetId {
        let hash_of_key = hash(&target.key);
        let id = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            // A table of 2^32 targets does not fit into memory before.
            TargetId(u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX))
        });
        if let Some(place) = self.places.get_mut(id.0 as usize) {
            *place = Some(target);
        }
        let places = &self.places;
        let hash_at = |TargetId(place): &TargetId| {
            let target = places.get(*place as usize).and_then(Option::as_ref);
            target.map_or(0, |target| hash(&target.key))
        };
        self.by_key.insert_unique(hash_of_key, id, hash_at);
        id
    }

    pub(super) fn remove(&mut self, id: TargetId) -> Option<Target> {
        let target = self.places.get_mut(id.0 as usize)?.take()?;
        if let Ok(entry) = self.by_key.find_entry(hash(&target.key), |other| *other == id) {
            entry.remove();
        }
        self.free.push(id);
        Some(target)
    }
}

/// The seed is fixed, as that of [`crate::map`]: keys come from configurations.
fn hash(key: &TargetKey) -> u64 {
    FixedState::default().hash_one(key)
}

/// The last reasons for failures: where many endpoints fail, most do for the same.
#[derive(Debug, Default)]
pub(super) struct Reasons {
    shared: Vec<Arc<str>>,
    next: usize,
}

impl Reasons {
    fn share(&mut self, reason: &str) -> Arc<str> {
        if let Some(known) = self.shared.iter().find(|known| ***known == *reason) {
            return Arc::clone(known);
        }
        let reason: Arc<str> = reason.into();
        match self.shared.get_mut(self.next) {
            Some(oldest) => *oldest = Arc::clone(&reason),
            None => self.shared.push(Arc::clone(&reason)),
        }
        self.next = (self.next + 1) % SHARED_REASONS_MAX;
        reason
    }
}

/// A cluster with checks.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Its endpoints, in the order of their ids.
    endpoints: Box<[OfEndpoint]>,
    /// The targets of the first endpoint, then those of the second, and so on.
    targets: Box<[TargetId]>,
    /// Whether it has had no request yet.
    pub(super) is_quiet: bool,
}

/// An endpoint of a cluster with checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfEndpoint {
    pub(super) id: EndpointId,
    /// Whether it joined others that serve, and gets no request before all its checks have passed.
    pub(super) waits: bool,
}

impl Watched {
    /// `endpoints` come with their targets, each with the same number of these.
    pub(super) fn new(mut endpoints: Vec<(OfEndpoint, Vec<TargetId>)>, is_quiet: bool) -> Self {
        endpoints.sort_unstable_by_key(|(endpoint, _)| endpoint.id);
        Self {
            targets: endpoints.iter().flat_map(|(_, targets)| targets).copied().collect(),
            endpoints: endpoints.into_iter().map(|(endpoint, _)| endpoint).collect(),
            is_quiet,
        }
    }

    fn place(&self, id: EndpointId) -> Option<usize> {
        self.endpoints.binary_search_by_key(&id, |endpoint| endpoint.id).ok()
    }

    pub(super) fn has(&self, id: EndpointId) -> bool {
        self.place(id).is_some()
    }

    pub(super) fn find(&self, id: EndpointId) -> Option<(OfEndpoint, &[TargetId])> {
        let place = self.place(id)?;
        Some((*self.endpoints.get(place)?, self.targets_at(place)))
    }

    /// An endpoint waits no more.
    pub(super) fn end_wait(&mut self, id: EndpointId) {
        let place = self.place(id);
        if let Some(endpoint) = place.and_then(|place| self.endpoints.get_mut(place)) {
            endpoint.waits = false;
        }
    }

    fn targets_at(&self, place: usize) -> &[TargetId] {
        let of_each = self.targets.len() / self.endpoints.len().max(1);
        self.targets.get(place * of_each..(place + 1) * of_each).unwrap_or_default()
    }

    /// All endpoints, with their targets.
    pub(super) fn iter(&self) -> impl Iterator<Item = (OfEndpoint, &[TargetId])> {
        let endpoints = self.endpoints.iter().enumerate();
        endpoints.map(|(place, endpoint)| (*endpoint, self.targets_at(place)))
    }

    pub(super) fn targets(&self) -> &[TargetId] {
        &self.targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Id;
    use crate::units::Period;

    const SECOND: Period = Period(Duration::from_secs(1));

    fn key(port: u32) -> TargetKey {
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        TargetKey { address, host: None, fingerprint: u64::from(port % 3) }
    }

    fn user(slot: u32) -> User {
        let id = Id { slot, generation: 0 };
        User { cluster: ClusterId(id), endpoint: EndpointId(id), check: 0 }
    }

    fn target(port: u32) -> Target {
        let pace = Pace {
            interval: SECOND,
            interval_unhealthy: SECOND,
            interval_quiet: SECOND,
            timeout: SECOND,
            healthy: 1,
            unhealthy: 1,
        };
        Target::new(key(port), user(port), Arc::new(pace), Moment(0))
    }

    #[test]
    fn targets_are_found_by_key_however_often_places_are_used_again() {
        let mut targets = Targets::default();
        let mut ids: Vec<(u32, TargetId)> =
            (1..1_000).map(|port| (port, targets.insert(target(port)))).collect();
        for round in 0..5 {
            for (place, entry) in ids.iter_mut().enumerate().filter(|(place, _)| place % 2 == 0) {
                let (former, id) = *entry;
                assert_eq!(targets.remove(id).map(|it| it.key), Some(key(former)));
                assert_eq!(targets.find(&key(former)), None);
                let port = 1_000 * (round + 1) + u32::try_from(place).unwrap();
                *entry = (port, targets.insert(target(port)));
            }
            for (port, id) in &ids {
                assert_eq!(targets.find(&key(*port)), Some(*id));
                assert_eq!(targets.get(*id).map(|it| &it.key), Some(&key(*port)));
            }
        }
        assert_eq!((targets.values().count(), targets.places.len()), (999, 999));
    }

    #[test]
    fn a_target_ends_with_its_last_user() {
        let mut target = target(1);
        target.add_user(user(2));
        target.add_user(User { check: 3, ..user(2) });
        assert_eq!(target.users().map(|user| user.check).collect::<Vec<_>>(), [0, 3]);
        let of = |slot| (user(slot).cluster, user(slot).endpoint);
        let mut remove = |slot| {
            let (cluster, endpoint) = of(slot);
            target.remove_user(cluster, endpoint)
        };
        assert!(!remove(7), "it is none of them");
        assert!(!remove(1), "another is left");
        assert!(remove(2));
    }

    #[test]
    fn a_reason_that_many_have_is_kept_once_and_others_are_bounded() {
        let mut reasons = Reasons::default();
        let first = reasons.share("refused");
        assert!(Arc::ptr_eq(&first, &reasons.share("refused")));
        for number in 0..1_000 {
            reasons.share(&number.to_string());
        }
        assert_eq!(reasons.shared.len(), SHARED_REASONS_MAX);
    }
}
