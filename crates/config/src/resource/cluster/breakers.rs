//! What of a cluster's bounds is in use, in the whole process: connections, requests, exchanges that wait, retries.
//!
//! One cell for each cluster, which all snapshots and workers share, as that of [`crate::resource::cluster::health`]: a bound of 1 is 1 with
//! any number of workers. What happens for few requests (a connection, a place in the queue, a retry) is one number.
//! What happens for each request is *leased*: a worker has a few slots more than it uses, and takes and gives those back
//! without a write to memory that others use. Where none is left, it takes back what others have leased and do not use,
//! so that a request is refused only if the bound is reached by requests that are under way:
//!
//! ```text
//!  used by a worker ≤ leased by it          sum of all that is leased = taken ≤ bound
//! ```
//!
//! A bound that becomes smaller ends nothing that is under way.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::resource::cluster::priority::Priority;
use crate::resource::route::retry::RetryBudget;
use crate::shared_cell::SharedCell;

/// Slots that a worker leases at a time, far from the bound.
const BATCH_MAX: u32 = 64;

/// One worker among several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which, from 0.
    pub worker: u32,
    /// How many there are, at least 1.
    pub workers: u32,
}

impl Member {
    /// Its bit in a set of workers. Beyond 64 several have the same one.
    const fn bit(self) -> u64 {
        1 << (self.worker % u64::BITS)
    }
}

/// What of a cluster's bounds is in use, in the process.
#[derive(Debug, Default)]
pub struct InUse {
    /// Connections that are open, or being opened.
    connections: AtomicU32,
    /// How often connections were given back, modulo 2^32: whether there may be room that was not there before.
    freed: AtomicU32,
    /// What that was when workers were last woken for it.
    woken_at: AtomicU32,
    /// Exchanges that wait for a connection.
    pending: AtomicU32,
    /// Retries that are under way.
    retries: AtomicU32,
    /// Workers in which exchanges wait since the bound of connections is reached.
    wanting: AtomicU64,
    /// Those of them that have less than their part of it.
    entitled: AtomicU64,
    requests: Leases,
    /// The same of requests of high priority, once there was one.
    high: OnceLock<Breakers>,
}

impl InUse {
    // Connections.

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::SeqCst)
    }

    /// Counts one more, if there are fewer than `connections_max`.
    pub fn take_connection(&self, connections_max: u32) -> bool {
        take_below(&self.connections, connections_max)
    }

    /// Counts one more, whatever the bound is: it is there.
    pub fn add_connection(&self) {
        self.connections.fetch_add(1, Ordering::SeqCst);
    }

    /// So many are gone.
    pub fn give_connections(&self, count: u32) {
        if count > 0 {
            give(&self.connections, count);
            self.note_freed();
        }
    }

    /// A connection to an endpoint may be opened that could not before.
    pub fn note_freed(&self) {
        self.freed.fetch_add(1, Ordering::SeqCst);
    }

    /// Changes whenever a connection may be opened that could not before.
    #[must_use]
    pub fn freed(&self) -> u32 {
        self.freed.load(Ordering::SeqCst)
    }

    /// Exchanges of this worker wait for a connection, or do not any more; `is_entitled`: it has less than its part.
    pub fn set_wanting(&self, member: Member, is_wanting: bool, is_entitled: bool) {
        for (set, is_in) in
            [(&self.wanting, is_wanting), (&self.entitled, is_wanting && is_entitled)]
        {
            match is_in {
                true => set.fetch_or(member.bit(), Ordering::SeqCst),
                false => set.fetch_and(!member.bit(), Ordering::SeqCst),
            };
        }
    }

    /// Whether exchanges of other workers wait for a connection.
    #[must_use]
    pub fn is_wanted_by_others(&self, member: Member) -> bool {
        self.others_wanting(member) != 0
    }

    /// The same of workers that have less than their part.
    #[must_use]
    pub fn is_owed_to_others(&self, member: Member) -> bool {
        self.entitled.load(Ordering::SeqCst) & !member.bit() != 0
    }

    /// The other workers in which exchanges wait for a connection, as a set.
    fn others_wanting(&self, member: Member) -> u64 {
        self.wanting.load(Ordering::SeqCst) & !member.bit()
    }

    /// The same, if they have not been woken since a connection was given back: none otherwise, so that workers whose exchanges
    /// find no endpoint with room do not wake each other without end.
    #[must_use]
    pub fn others_to_wake(&self, member: Member) -> Option<u64> {
        let others = self.others_wanting(member);
        let freed = self.freed();
        (others != 0 && self.woken_at.swap(freed, Ordering::SeqCst) != freed).then_some(others)
    }

    /// The next worker behind this one in which exchanges wait for a connection; those that have less than their part come
    /// first.
    #[must_use]
    pub fn next_wanting(&self, member: Member) -> Option<u32> {
        let next_of = |set: &AtomicU64| {
            let set = set.load(Ordering::SeqCst) & !member.bit();
            let own = member.worker % u64::BITS;
            let from_own = set.rotate_right(own);
            (set != 0).then(|| (own + from_own.trailing_zeros()) % u64::BITS)
        };
        next_of(&self.entitled).or_else(|| next_of(&self.wanting))
    }

    // Exchanges that wait.

    /// Exchanges that wait.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Counts one more, if there are fewer than `pending_max`.
    pub fn take_pending(&self, pending_max: u32) -> bool {
        take_below(&self.pending, pending_max)
    }

    /// Counts one more, whatever the bound is.
    pub fn add_pending(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// So many wait no more.
    pub fn give_pending(&self, count: u32) {
        give(&self.pending, count);
    }

    // Requests.

    /// Counts one more request that is under way, if there are fewer than `requests_max`.
    pub fn take_request(&self, member: Member, requests_max: u32) -> bool {
        self.requests.take(member, requests_max)
    }

    /// Counts one more, whatever the bound is: it is under way.
    pub fn add_request(&self, member: Member) {
        self.requests.add(member);
    }

    /// One that this worker counted is over.
    pub fn give_request(&self, member: Member) {
        self.requests.give(member);
    }

    /// Requests under way, where the cluster bounds them.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.requests.used()
    }

    // Retries.

    /// An exchange of this worker began whose rule has `retry`.
    pub fn add_retriable(&self, member: Member) {
        self.requests.part(member).retriable.fetch_add(1, Ordering::Relaxed);
    }

    /// It is over.
    pub fn give_retriable(&self, member: Member) {
        give(&self.requests.part(member).retriable, 1);
    }

    /// Counts one more retry, if the budget allows one more.
    pub fn take_retry(&self, budget: RetryBudget) -> bool {
        let requests = self.retriable();
        let take =
            |retries: u32| budget.allows(retries, requests).then(|| retries.saturating_add(1));
        self.retries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Whether the budget allows one that counts already to be sent once more.
    #[must_use]
    pub fn keeps_retry(&self, budget: RetryBudget) -> bool {
        let others = self.retries.load(Ordering::Relaxed).saturating_sub(1);
        budget.allows(others, self.retriable())
    }

    fn retriable(&self) -> u32 {
        let parts = self.requests.parts();
        parts.fold(0, |sum, part| sum.saturating_add(part.retriable.load(Ordering::Relaxed)))
    }

    /// Counts one more, whatever the budget is: it is under way.
    pub fn add_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// A retry is over.
    pub fn give_retry(&self) {
        give(&self.retries, 1);
    }

    /// Retries under way, and exchanges that may have some.
    #[must_use]
    pub fn retries(&self) -> (u32, u32) {
        (self.retries.load(Ordering::Relaxed), self.retriable())
    }
}

/// Connections to one endpoint that are open in the process, if its cluster bounds these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointConnections(SharedCell<AtomicU32>);

impl EndpointConnections {
    /// A new count, or that of `former`; none if the cluster has no such bound.
    pub(crate) fn new(is_bounded: bool, former: Option<&Self>) -> Self {
        Self(SharedCell::new(is_bounded, former.map(|former| &former.0)))
    }

    /// How many are open, if they are counted.
    #[must_use]
    pub fn open(&self) -> Option<u32> {
        self.0.get().map(|open| open.load(Ordering::SeqCst))
    }

    /// Whether both are one count, or none.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }

    /// Counts one more, if there are fewer than `max`, or none are counted.
    #[must_use]
    pub fn take(&self, max: u32) -> bool {
        self.0.get().is_none_or(|open| take_below(open, max))
    }

    /// Counts so many more, whatever the bound is: they are there.
    pub fn add(&self, count: u32) {
        if let Some(open) = self.0.get() {
            open.fetch_add(count, Ordering::SeqCst);
        }
    }

    /// So many are gone.
    pub fn give(&self, count: u32) {
        if let Some(open) = self.0.get() {
            give(open, count);
        }
    }
}

/// One more, if there are fewer than `max`.
fn take_below(count: &AtomicU32, max: u32) -> bool {
    let take = |count: u32| (count < max).then_some(count + 1);
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
}

/// So many less. Never below 0, which would be a bound that holds for good.
fn give(count: &AtomicU32, less: u32) {
    let less = |count: u32| {
        debug_assert!(count >= less, "what is given back was taken");
        Some(count.saturating_sub(less))
    };
    let _ = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
}

/// What is taken of a bound by all workers, a part for each.
#[derive(Debug, Default)]
struct Leases {
    /// The sum of what is leased.
    taken: AtomicU32,
    parts: OnceLock<Box<[Part]>>,
}

/// What one worker has, in a line of memory of its own: two, since processors fetch them by twos.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Part {
    /// Slots: leased in the upper half, of these used in the lower one.
    slots: AtomicU64,
    /// Exchanges whose rules have `retry`.
    retriable: AtomicU32,
}

/// The halves of [`Part::slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slots {
    leased: u32,
    used: u32,
}

impl Slots {
    const fn unpack(packed: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = packed.to_be_bytes();
        Self { leased: u32::from_be_bytes([a, b, c, d]), used: u32::from_be_bytes([e, f, g, h]) }
    }

    fn pack(self) -> u64 {
        (u64::from(self.leased) << u32::BITS) | u64::from(self.used)
    }

    const fn unused(self) -> u32 {
        self.leased.saturating_sub(self.used)
    }
}

impl Part {
    fn slots(&self) -> Slots {
        Slots::unpack(self.slots.load(Ordering::Acquire))
    }

    /// Changes the slots, unless `change` says that nothing is to be. Returns those of before.
    fn change(&self, mut change: impl FnMut(Slots) -> Option<Slots>) -> Option<Slots> {
        let change = |packed| change(Slots::unpack(packed)).map(Slots::pack);
        let before = self.slots.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        before.ok().map(Slots::unpack)
    }

    /// Takes back all that is leased and not used but `kept`; returns how much.
    fn reclaim(&self, kept: u32) -> u32 {
        let before = self.change(|it| {
            let leased = it.leased.min(it.used.saturating_add(kept));
            (leased < it.leased).then_some(Slots { leased, ..it })
        });
        before.map_or(0, |before| before.unused().saturating_sub(kept))
    }
}

impl Leases {
    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.get().into_iter().flatten()
    }

    fn part(&self, member: Member) -> &Part {
        let parts = self.parts.get_or_init(|| {
            std::iter::repeat_with(Part::default).take(member.workers as usize).collect()
        });
        parts.get(member.worker as usize).expect("there is a part for each worker")
    }

    fn used(&self) -> u32 {
        self.parts().fold(0, |sum, part| sum.saturating_add(part.slots().used))
    }

    #[inline]
    fn take(&self, member: Member, max: u32) -> bool {
        let part = self.part(member);
        let use_one =
            |it: Slots| (it.used < it.leased).then_some(Slots { used: it.used + 1, ..it });
        // A bound that became smaller is not for those that were leased before.
        (self.taken.load(Ordering::Acquire) <= max && part.change(use_one).is_some())
            || self.take_anew(member, max)
    }

    #[cold]
    fn take_anew(&self, member: Member, max: u32) -> bool {
        let part = self.part(member);
        let use_new = |more: u32| {
            part.change(|it| Some(Slots { leased: it.leased + more, used: it.used + 1 }))
        };
        if let Some(more) = self.take_slots(member, max) {
            use_new(more);
            return true;
        }
        for other in self.parts() {
            let less = other.reclaim(0);
            give(&self.taken, less);
        }
        self.take_slots(member, max).map(use_new).is_some()
    }

    /// Takes some of the slots that no worker has: more, the farther the bound is.
    fn take_slots(&self, member: Member, max: u32) -> Option<u32> {
        let mut taken = 0;
        let take = |before: u32| {
            let left = max.checked_sub(before).filter(|left| *left > 0)?;
            taken = (left / member.workers.saturating_mul(4)).clamp(1, BATCH_MAX);
            Some(before + taken)
        };
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        Some(taken)
    }

    fn add(&self, member: Member) {
        self.taken.fetch_add(1, Ordering::AcqRel);
        let more = |it: Slots| {
            Some(Slots { leased: it.leased.saturating_add(1), used: it.used.saturating_add(1) })
        };
        self.part(member).change(more);
    }

    #[inline]
    fn give(&self, member: Member) {
        let part = self.part(member);
        let before = part.change(|it| {
            debug_assert!(it.used > 0, "what is given back was taken");
            Some(Slots { used: it.used.saturating_sub(1), ..it })
        });
        if before.is_some_and(|before| before.unused() >= 2 * BATCH_MAX) {
            self.give_back(part);
        }
    }

    #[cold]
    fn give_back(&self, part: &Part) {
        let less = part.reclaim(BATCH_MAX);
        give(&self.taken, less);
    }
}

/// The cell of a cluster, or of its requests of one priority.
#[derive(Clone, Default)]
pub struct Breakers(Arc<InUse>);

impl Breakers {
    /// A new cell, or that of `former`.
    pub(crate) fn new(former: Option<&Self>) -> Self {
        former.cloned().unwrap_or_default()
    }

    /// The cell of its requests of this priority, of one that is for all.
    #[must_use]
    pub fn of(&self, priority: Priority) -> Self {
        match priority {
            Priority::Default => self.clone(),
            Priority::High => self.high.get_or_init(Self::default).clone(),
        }
    }

    /// That of its requests of high priority, if there ever was one.
    #[must_use]
    pub fn high(&self) -> Option<&Self> {
        self.high.get()
    }
}

impl Deref for Breakers {
    type Target = InUse;

    fn deref(&self) -> &InUse {
        &self.0
    }
}

impl PartialEq for Breakers {
    /// What is in use is no part of a configuration.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Breakers {}

impl fmt::Debug for Breakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Breakers").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const fn member(worker: u32) -> Member {
        Member { worker, workers: 4 }
    }

    fn take(in_use: &InUse, worker: u32, max: u32, count: u32) -> u32 {
        (0..count).map(|_| u32::from(in_use.take_request(member(worker), max))).sum()
    }

    #[test]
    fn a_bound_of_one_is_one_with_four_workers() {
        let in_use = InUse::default();
        for worker in 0..4 {
            assert_eq!(take(&in_use, worker, 1, 3), 1, "{worker}");
            assert!((0..4).all(|other| take(&in_use, other, 1, 1) == 0), "{worker}");
            in_use.give_request(member(worker));
        }
        assert_eq!(in_use.requests(), 0);
    }

    #[test]
    fn what_others_have_leased_and_do_not_use_is_no_reason_to_refuse() {
        let in_use = InUse::default();
        for worker in 0..4 {
            assert_eq!(take(&in_use, worker, 1_000, 1), 1);
        }
        assert!(in_use.requests.taken.load(Ordering::Relaxed) > 100, "they lease by batches");
        assert_eq!(take(&in_use, 2, 1_000, 2_000), 996);
        assert_eq!(in_use.requests(), 1_000);
        in_use.give_request(member(0));
        assert_eq!((take(&in_use, 3, 1_000, 1), take(&in_use, 0, 1_000, 1)), (1, 0));
    }

    #[test]
    fn far_from_the_bound_a_worker_writes_to_memory_of_its_own() {
        let in_use = InUse::default();
        assert_eq!(take(&in_use, 1, 100_000, 1), 1);
        in_use.give_request(member(1));
        let before = in_use.requests.taken.load(Ordering::Relaxed);
        for _ in 0..10_000 {
            assert_eq!(take(&in_use, 1, 100_000, 10), 10);
            (0..10).for_each(|_| in_use.give_request(member(1)));
        }
        assert_eq!(in_use.requests.taken.load(Ordering::Relaxed), before);
    }

    #[test]
    fn what_a_burst_leased_is_given_back() {
        let in_use = InUse::default();
        assert_eq!(take(&in_use, 0, 10_000, 5_000), 5_000);
        (0..5_000).for_each(|_| in_use.give_request(member(0)));
        assert!(in_use.requests.taken.load(Ordering::Relaxed) <= 2 * BATCH_MAX);
    }

    #[test]
    fn a_bound_that_becomes_smaller_holds_for_what_comes() {
        let in_use = InUse::default();
        assert_eq!(take(&in_use, 0, 1_000, 10), 10);
        assert_eq!(take(&in_use, 1, 1_000, 1), 1);
        assert_eq!(take(&in_use, 0, 8, 5), 0);
        assert_eq!(take(&in_use, 2, 12, 5), 1);
        (0..10).for_each(|_| in_use.give_request(member(0)));
        assert_eq!(take(&in_use, 3, 8, 20), 6);
        assert_eq!(in_use.requests(), 8);
    }

    #[test]
    fn what_is_under_way_counts_beyond_the_bound() {
        let in_use = InUse::default();
        in_use.add_request(member(0));
        in_use.add_request(member(0));
        assert_eq!(take(&in_use, 0, 1, 1), 0);
        in_use.give_request(member(0));
        assert_eq!(take(&in_use, 1, 1, 1), 0);
        in_use.give_request(member(0));
        assert_eq!(take(&in_use, 1, 1, 2), 1);
    }

    #[test]
    fn no_bound_is_exceeded_by_threads_that_take_at_the_same_time() {
        for max in [1, 3, 7, 300] {
            let (in_use, under_way) = (InUse::default(), AtomicU32::new(0));
            let (connections, is_exceeded) = (AtomicU32::new(0), AtomicBool::new(false));
            let count = |count: &AtomicU32| {
                let now = count.fetch_add(1, Ordering::SeqCst) + 1;
                is_exceeded.fetch_or(now > max, Ordering::SeqCst);
            };
            std::thread::scope(|scope| {
                for worker in 0..4 {
                    let (in_use, under_way, connections) = (&in_use, &under_way, &connections);
                    let count = &count;
                    scope.spawn(move || {
                        let mut held = 0;
                        for n in 0_u32..20_000 {
                            if n.wrapping_mul(2_654_435_761) >> 30 < 2 {
                                if in_use.take_request(member(worker), max) {
                                    count(under_way);
                                    held += 1;
                                }
                                if in_use.take_connection(max) {
                                    count(connections);
                                    connections.fetch_sub(1, Ordering::SeqCst);
                                    in_use.give_connections(1);
                                }
                            } else if held > 0 {
                                held -= 1;
                                under_way.fetch_sub(1, Ordering::SeqCst);
                                in_use.give_request(member(worker));
                            }
                        }
                        for _ in 0..held {
                            under_way.fetch_sub(1, Ordering::SeqCst);
                            in_use.give_request(member(worker));
                        }
                    });
                }
            });
            assert!(!is_exceeded.into_inner(), "{max}");
            assert_eq!((in_use.requests(), in_use.connections()), (0, 0));
            assert_eq!(take(&in_use, 0, max, max + 1), max, "nothing is lost");
        }
    }

    #[test]
    fn the_budget_is_of_all_workers_together() {
        let in_use = InUse::default();
        let budget = RetryBudget { share: "20".parse().unwrap(), at_least: 3 };
        assert_eq!((0..9).filter(|_| in_use.take_retry(budget)).count(), 3);
        for worker in 0..4 {
            (0..10).for_each(|_| in_use.add_retriable(member(worker)));
        }
        assert_eq!((0..20).filter(|_| in_use.take_retry(budget)).count(), 5);
        assert_eq!(in_use.retries(), (8, 40));
        in_use.give_retry();
        (0..5).for_each(|_| in_use.give_retriable(member(2)));
        assert!(!in_use.take_retry(budget), "7 of 35");
        in_use.give_retry();
        assert!(in_use.take_retry(budget));
    }

    #[test]
    fn those_that_have_less_than_their_part_come_first() {
        let in_use = InUse::default();
        assert_eq!(in_use.next_wanting(member(0)), None);
        in_use.set_wanting(member(3), true, false);
        in_use.set_wanting(member(1), true, true);
        assert_eq!(in_use.next_wanting(member(0)), Some(1));
        assert_eq!(in_use.next_wanting(member(2)), Some(1));
        assert_eq!(in_use.next_wanting(member(1)), Some(3), "not itself");
        in_use.set_wanting(member(1), true, false);
        assert_eq!(in_use.next_wanting(member(2)), Some(3), "they take turns");
        assert!(in_use.is_wanted_by_others(member(0)) && !in_use.is_owed_to_others(member(0)));
        in_use.set_wanting(member(1), false, true);
        in_use.set_wanting(member(3), false, false);
        assert!(!in_use.is_wanted_by_others(member(0)));
    }
}
