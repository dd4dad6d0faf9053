//! What is checked, and how it went: the memory of the [`Checker`](super::Checker), which a process has for each of tens of
//! thousands of endpoints.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::BuildHasher as _;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::{CheckResult, FailureWeight, Pace};
use crate::address::Address;
use crate::snapshot::{ClusterId, EndpointId};

/// Due times are whole multiples of a tick, so that checks begin several at a time: of this one before the first check, and
/// then of one that follows from the interval. A thread that wakes for one check costs more than the check, and what it runs and
/// reads has left the caches since the last.
const TICK_FIRST: Duration = Duration::from_millis(10);

/// Later ticks of an interval: at least as many, ...
const TICKS: u32 = 50;

/// ... each with this many checks at most where all targets have the same interval, as requests wait while they begin, ...
const CHECKS_OF_TICK: u32 = 128;

/// ... within these bounds.
const TICK_MIN: Duration = Duration::from_millis(1);
const TICK_MAX: Duration = Duration::from_millis(100);

/// Bytes of the reason for a failure that are kept.
const REASON_BYTES_MAX: usize = 160;

/// Different values of a kind that are kept once for all targets that have them.
const SHARED_MAX: usize = 16;

/// Targets that stand together in memory: a table grows by so many at a time, and not to twice its size.
const PAGE: usize = 256;

/// A moment, as the time since a fixed one in half the memory of a [`Duration`], or of one that may be none: ns, and one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(NonZeroU64);

impl From<Duration> for Moment {
    fn from(since: Duration) -> Self {
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }
}

impl From<Moment> for Duration {
    fn from(Moment(nanos): Moment) -> Self {
        Self::from_nanos(nanos.get() - 1)
    }
}

/// The place of a target, until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TargetId(u32);

/// What is asked: targets that are asked the same at the same address are one.
#[derive(Debug)]
pub(super) struct Asked {
    /// The host that TLS asks for there.
    pub(super) host: Option<Arc<str>>,
    /// Names the rest.
    pub(super) fingerprint: u64,
    /// Follows from that, too.
    pub(super) pace: Arc<Pace>,
}

impl Asked {
    fn is(&self, host: Option<&str>, fingerprint: u64) -> bool {
        (self.host.as_deref(), self.fingerprint) == (host, fingerprint)
    }
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
    pub(super) address: Address,
    pub(super) asked: Arc<Asked>,
    /// Lends its cluster for the next check.
    pub(super) first: User,
    /// Few have any.
    others: Option<Box<Users>>,
    /// None until a first check has ended.
    pub(super) is_healthy: Option<bool>,
    /// Whether it said so when it last answered as expected.
    pub(super) is_degraded: bool,
    /// Whether another process has found that out, and no check of this one has ended yet.
    pub(super) is_adopted: bool,
    /// Checks in a row of which nothing was learnt.
    pub(super) undecided: u8,
    /// Results in a row that speak against that; of one that is unhealthy, those it passed.
    against: u32,
    /// Failures in a row.
    pub(super) failures: u32,
    /// Since when it is as it is.
    pub(super) since: Moment,
    /// What the last check failed with.
    reason: Option<Arc<Box<str>>>,
    /// When the last check began, and which one it is; none before the first one.
    pub(super) began: Option<(Moment, u64)>,
    /// When the next one is due, if none is under way.
    pub(super) due: Option<Moment>,
}

/// Users of a target beside the first, in one word where there are none.
#[derive(Debug, Default)]
struct Users(Vec<User>);

impl Target {
    pub(super) fn new(address: Address, asked: Arc<Asked>, user: User, now: Moment) -> Self {
        Self {
            address,
            asked,
            first: user,
            others: None,
            is_healthy: None,
            is_degraded: false,
            is_adopted: false,
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
        let others = self.others.iter().flat_map(|users| &users.0);
        std::iter::once(&self.first).chain(others)
    }

    /// Whether a check has ended, however it did.
    pub(super) const fn has_result(&self) -> bool {
        self.is_healthy.is_some() || self.failures > 0
    }

    pub(super) fn pace(&self) -> &Pace {
        &self.asked.pace
    }

    /// What the last check failed with.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_ref().map(|reason| &***reason)
    }

    /// It is unhealthy, as another process has found.
    pub(super) fn fail_as_before(&mut self, reason: &str) {
        (self.is_healthy, self.is_degraded, self.is_adopted) = (Some(false), false, true);
        (self.against, self.failures) = (0, 1);
        self.reason = Some(Arc::new(reason.into()));
    }

    /// It is healthy, as another process has found.
    pub(super) fn pass_as_before(&mut self, is_degraded: bool) {
        (self.is_healthy, self.is_degraded, self.is_adopted) = (Some(true), is_degraded, true);
        (self.against, self.failures) = (0, 0);
        self.reason = None;
    }

    /// An endpoint of a cluster uses it, or does so with another check.
    pub(super) fn add_user(&mut self, user: User) {
        let others = self.others.iter_mut().flat_map(|users| &mut users.0);
        let mut users = std::iter::once(&mut self.first).chain(others);
        match users.find(|it| it.is_same_endpoint(user.cluster, user.endpoint)) {
            Some(known) => known.check = user.check,
            None => self.others.get_or_insert_default().0.push(user),
        }
    }

    /// An endpoint uses it no more. Returns whether it was the last one, which stays.
    pub(super) fn remove_user(&mut self, cluster: ClusterId, endpoint: EndpointId) -> bool {
        let is_first = self.first.is_same_endpoint(cluster, endpoint);
        let Some(others) = &mut self.others else { return is_first };
        others.0.retain(|user| !user.is_same_endpoint(cluster, endpoint));
        if is_first && !others.0.is_empty() {
            self.first = others.0.remove(0);
            return false;
        }
        is_first
    }

    /// Counts a result. `reasons` are those of others.
    pub(super) fn count(
        &mut self,
        result: CheckResult,
        now: Moment,
        reasons: &mut Recent<Box<str>>,
    ) {
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
                (true, self.pace().healthy)
            }
            CheckResult::Failed { reason, weight } => {
                self.failures = self.failures.saturating_add(1);
                let end = reason.floor_char_boundary(REASON_BYTES_MAX);
                let reason = reason.get(..end).unwrap_or_default();
                self.reason = Some(reasons.share(|it| **it == *reason, || reason.into()));
                is_late = weight == FailureWeight::Late;
                (false, if weight == FailureWeight::Final { 1 } else { self.pace().unhealthy })
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

    /// When something is due that is to be at `at`: at its tick, or behind it. There are `targets` in all.
    pub(super) fn on_tick(&self, at: Duration, targets: u32) -> Moment {
        let tick = match self.began {
            None => TICK_FIRST,
            Some(_) => {
                let ticks = TICKS.max(targets / CHECKS_OF_TICK);
                (self.interval(false) / ticks).clamp(TICK_MIN, TICK_MAX)
            }
        };
        let (at, tick) = (at.as_nanos(), tick.as_nanos());
        let nanos = u64::try_from(at.div_ceil(tick) * tick).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos).into()
    }

    /// From one check to the next.
    pub(super) fn interval(&self, is_quiet: bool) -> Duration {
        match (self.is_healthy, is_quiet) {
            (Some(false), _) => self.pace().interval_unhealthy.0,
            (_, true) => self.pace().interval_quiet.0,
            (_, false) => self.pace().interval.0,
        }
    }

    /// When the next check is due of one that began then. The second one of this process comes after any part of the interval, so that endpoints
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

/// All targets, found by place, and by address and what is asked.
#[derive(Debug, Default)]
pub(super) struct Targets {
    pages: Vec<Vec<Option<Target>>>,
    free: Vec<TargetId>,
    /// Their places, by the hash of their keys.
    by_key: HashTable<TargetId>,
    /// What the last ones are asked.
    asked: Recent<Asked>,
}

impl Targets {
    pub(super) fn get(&self, id: TargetId) -> Option<&Target> {
        place(&self.pages, id)
    }

    fn place_mut(&mut self, TargetId(place): TargetId) -> Option<&mut Option<Target>> {
        let place = place as usize;
        self.pages.get_mut(place / PAGE)?.get_mut(place % PAGE)
    }

    pub(super) fn get_mut(&mut self, id: TargetId) -> Option<&mut Target> {
        self.place_mut(id)?.as_mut()
    }

    pub(super) fn find(
        &self,
        address: &Address,
        host: Option<&str>,
        fingerprint: u64,
    ) -> Option<TargetId> {
        let is_it = |id: &TargetId| {
            let target = self.get(*id);
            target.is_some_and(|it| it.address == *address && it.asked.is(host, fingerprint))
        };
        self.by_key.find(hash(address, host, fingerprint), is_it).copied()
    }

    /// What an endpoint is asked, which is kept once where many are asked the same.
    pub(super) fn share(
        &mut self,
        host: Option<&Arc<str>>,
        fingerprint: u64,
        pace: &Arc<Pace>,
    ) -> Arc<Asked> {
        let is_it = |asked: &Asked| asked.is(host.map(|host| &**host), fingerprint);
        let new = || Asked { host: host.cloned(), fingerprint, pace: Arc::clone(pace) };
        self.asked.share(is_it, new)
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.by_key.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Target> {
        self.pages.iter().flatten().flatten()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        self.pages.iter_mut().flatten().flatten()
    }

    /// Adds one whose key no other has.
    pub(super) fn insert(&mut self, target: Target) -> TargetId {
        let hash_of_key = hash_of(&target);
        let id = self.free.pop().unwrap_or_else(|| self.grow());
        if let Some(place) = self.place_mut(id) {
            *place = Some(target);
        }
        let pages = &self.pages;
        let hash_at = |id: &TargetId| place(pages, *id).map_or(0, hash_of);
        self.by_key.insert_unique(hash_of_key, id, hash_at);
        id
    }

    fn grow(&mut self) -> TargetId {
        let count = self.pages.len() * PAGE;
        match self.pages.last_mut().filter(|page| page.len() < PAGE) {
            Some(page) => {
                page.push(None);
                place_id(count - PAGE + page.len() - 1)
            }
            None => {
                let mut page = Vec::with_capacity(PAGE);
                page.push(None);
                self.pages.push(page);
                place_id(count)
            }
        }
    }

    pub(super) fn remove(&mut self, id: TargetId) -> Option<Target> {
        let target = self.place_mut(id)?.take()?;
        if let Ok(entry) = self.by_key.find_entry(hash_of(&target), |other| *other == id) {
            entry.remove();
        }
        self.free.push(id);
        Some(target)
    }
}

fn place(pages: &[Vec<Option<Target>>], TargetId(place): TargetId) -> Option<&Target> {
    let place = place as usize;
    pages.get(place / PAGE)?.get(place % PAGE)?.as_ref()
}

/// A table of 2^32 targets does not fit into memory.
fn place_id(place: usize) -> TargetId {
    TargetId(u32::try_from(place).unwrap_or(u32::MAX))
}

fn hash_of(target: &Target) -> u64 {
    hash(&target.address, target.asked.host.as_deref(), target.asked.fingerprint)
}

/// The seed is fixed, as that of [`crate::map`]: keys come from configurations.
fn hash(address: &Address, host: Option<&str>, fingerprint: u64) -> u64 {
    FixedState::default().hash_one((address, host, fingerprint))
}

/// The last values of a kind: most targets have the same, and share it.
#[derive(Debug)]
pub(super) struct Recent<T> {
    values: Vec<Arc<T>>,
    next: usize,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { values: Vec::new(), next: 0 }
    }
}

impl<T> Recent<T> {
    fn share(&mut self, is_it: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> Arc<T> {
        if let Some(known) = self.values.iter().find(|known| is_it(known)) {
            return Arc::clone(known);
        }
        let value = Arc::new(new());
        match self.values.get_mut(self.next) {
            Some(oldest) => *oldest = Arc::clone(&value),
            None => self.values.push(Arc::clone(&value)),
        }
        self.next = (self.next + 1) % SHARED_MAX;
        value
    }
}

/// Targets by when they are due: at whole ticks, each of which has many.
#[derive(Debug, Default)]
pub(super) struct Due(BTreeMap<Moment, Vec<TargetId>>);

impl Due {
    pub(super) fn insert(&mut self, at: Moment, id: TargetId) {
        self.0.entry(at).or_default().push(id);
    }

    pub(super) fn remove(&mut self, at: Moment, id: TargetId) {
        let Entry::Occupied(mut tick) = self.0.entry(at) else { return };
        let ids = tick.get_mut();
        if let Some(place) = ids.iter().position(|other| *other == id) {
            ids.swap_remove(place);
        }
        if ids.is_empty() {
            tick.remove();
        }
    }

    /// When the first one is.
    pub(super) fn first(&self) -> Option<Moment> {
        self.0.first_key_value().map(|(at, _)| *at)
    }

    /// Takes one that is due by now.
    pub(super) fn pop(&mut self, now: Moment) -> Option<TargetId> {
        let mut tick = self.0.first_entry().filter(|tick| *tick.key() <= now)?;
        let id = tick.get_mut().pop();
        if tick.get().is_empty() {
            tick.remove();
        }
        id
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
    /// So many of its targets have had a result, as far as was looked.
    checked: usize,
}

/// An endpoint of a cluster with checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfEndpoint {
    pub(super) id: EndpointId,
    /// Whether it gets no request before all its checks have passed: it joined others that serve, or a cluster that warms.
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
            checked: 0,
        }
    }

    /// Whether all its targets have had a result. Looks no further than at the first that has had none, and at each once.
    pub(super) fn is_checked(&mut self, targets: &Targets) -> bool {
        let has_result = |id: &TargetId| targets.get(*id).is_some_and(Target::has_result);
        let rest = self.targets.get(self.checked..).unwrap_or_default();
        self.checked += rest.iter().take_while(|id| has_result(id)).count();
        self.checked >= self.targets.len()
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

    fn address(port: u32) -> Address {
        format!("127.0.0.1:{port}").parse().unwrap()
    }

    fn find(targets: &Targets, port: u32) -> Option<TargetId> {
        targets.find(&address(port), None, u64::from(port % 3))
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
        let asked = Asked { host: None, fingerprint: u64::from(port % 3), pace: Arc::new(pace) };
        Target::new(address(port), Arc::new(asked), user(port), Duration::ZERO.into())
    }

    #[test]
    fn targets_are_found_by_key_however_often_places_are_used_again() {
        let mut targets = Targets::default();
        let mut ids: Vec<(u32, TargetId)> =
            (1..1_000).map(|port| (port, targets.insert(target(port)))).collect();
        for round in 0..5 {
            for (place, entry) in ids.iter_mut().enumerate().filter(|(place, _)| place % 2 == 0) {
                let (former, id) = *entry;
                assert_eq!(targets.remove(id).map(|it| it.address), Some(address(former)));
                assert_eq!(find(&targets, former), None);
                let port = 1_000 * (round + 1) + u32::try_from(place).unwrap();
                *entry = (port, targets.insert(target(port)));
            }
            for (port, id) in &ids {
                assert_eq!(find(&targets, *port), Some(*id));
                assert_eq!(targets.get(*id).map(|it| &it.address), Some(&address(*port)));
            }
        }
        let places = targets.pages.iter().map(Vec::len).sum::<usize>();
        assert_eq!((targets.values().count(), places), (999, 999));
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
    fn a_value_that_many_have_is_kept_once_and_others_are_bounded() {
        let mut reasons: Recent<u32> = Recent::default();
        let mut share = |reason| reasons.share(|it| *it == reason, || reason);
        let first = share(7);
        assert!(Arc::ptr_eq(&first, &share(7)));
        for number in 0..1_000 {
            share(number);
        }
        assert_eq!(reasons.values.len(), SHARED_MAX);
    }

    #[test]
    fn targets_are_due_by_their_ticks_and_none_that_was_removed() {
        let at = |seconds| Moment::from(Duration::from_secs(seconds));
        let mut due = Due::default();
        for (seconds, id) in [(5, 1), (5, 2), (5, 3), (2, 4), (8, 5)] {
            due.insert(at(seconds), TargetId(id));
        }
        due.remove(at(5), TargetId(1));
        due.remove(at(2), TargetId(1));
        assert_eq!((due.first(), due.pop(at(1))), (Some(at(2)), None));
        due.remove(at(2), TargetId(4));
        let mut popped = [due.pop(at(7)), due.pop(at(7))];
        popped.sort_unstable();
        assert_eq!(popped, [2, 3].map(|id| Some(TargetId(id))));
        assert_eq!((due.pop(at(7)), due.first()), (None, Some(at(8))));
        assert_eq!((due.pop(at(8)), due.first()), (Some(TargetId(5)), None));
    }

    #[test]
    fn checks_begin_several_at_a_time_and_in_many_parts_of_the_interval() {
        let at = |micros| Duration::from_micros(micros);
        let tick_of = |target: &Target, targets| Duration::from(target.on_tick(at(1), targets));
        let mut target = target(1);
        assert_eq!(tick_of(&target, 1), at(10_000), "before its first check");
        target.began = Some((Duration::ZERO.into(), 1));
        // Of one second.
        assert_eq!(tick_of(&target, 1), at(20_000));
        assert_eq!(tick_of(&target, 6_000), at(20_000));
        assert_eq!(tick_of(&target, 12_800), at(10_000));
        assert_eq!(tick_of(&target, 1_000_000), at(1_000));
        assert_eq!(Duration::from(target.on_tick(at(20_000), 1)), at(20_000), "it is one");
        assert_eq!(Duration::from(target.on_tick(at(20_001), 1)), at(40_000));
    }

    #[test]
    fn a_target_takes_little_memory() {
        // The process has tens of thousands of them.
        assert!(size_of::<Option<Target>>() <= 120, "{} bytes", size_of::<Option<Target>>());
    }
}
