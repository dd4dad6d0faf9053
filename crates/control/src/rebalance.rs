//! `rebalance`: which connections move, so that workers are about equally busy.
//!
//! Pure: it hears once a second how long each worker has been at work, and what connections of the busiest have
//! had done for them; it says whom to ask, and what to move. Connections are looked at only once workers are
//! uneven.
//!
//! ```text
//!              uneven for UNEVEN_SECONDS           a second later
//!   Watching ───────────────────────────► Weighing ──────────────► Moving ◄───────────┐
//!      ▲                                     │ even again             │ too large      │ a second later
//!      │                                     │                        ├────────► Apart ┘
//!      └─────────────────────────────────────┴────────────────────────┘ nothing for REST
//! ```
//!
//! Connections of clients that share upstream connections with other clients are set apart first: new requests get connections of
//! their own, and once the earlier ones are over the client moves alone.

use std::collections::BTreeMap;

use crate::moves::{ConnectionId, ConnectionWork};

/// A worker that is at work less than this share of the time needs no relief.
const BUSY_MIN: f64 = 0.5;

/// Workers differ if the busiest is at work for so much more of the time than the idlest.
const DIFFERENCE_MIN: f64 = 0.2;

/// They have to differ for so many seconds in a row.
const UNEVEN_SECONDS: u32 = 3;

/// Between two rounds, ns: what has moved stays for so long at least.
const REST: u64 = 10_000_000_000;

/// For so long nothing moves back to where it came from, ns.
const NO_RETURN: u64 = 300_000_000_000;

/// Connections that move in one round, one after the other: some 0.1 s.
const MOVES_MAX: usize = 512;

/// Connections that are set apart at a time: those with the most work.
const APART_MAX: usize = 8;

/// How often those are tried again, a second after the last time: longer than most requests take.
const TRIES_MAX: u32 = 8;

/// Connections of which it is remembered where they came from.
const REMEMBERED_MAX: usize = 4096;

/// Which worker is to be relieved, and by which.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Uneven {
    from: u32,
    to: u32,
    /// The share of the last second that each was at work.
    shares: (f64, f64),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask this worker what its connections have had done for them.
    Weigh(u32),
    /// Move these to this worker.
    Move(Vec<ConnectionId>, u32),
    /// Give the next requests of these upstream connections of their own.
    SetApart(Vec<ConnectionId>),
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Watching,
    /// The first answer is awaited, with which the second is compared.
    Asked,
    /// Requests of each connection at the first answer.
    Weighing(BTreeMap<ConnectionId, u32>),
    /// The second answer is awaited.
    AskedAgain(BTreeMap<ConnectionId, u32>),
    /// So often it was tried before.
    Moving(u32),
    /// These are set apart, and move to this worker when their groups are small; so often it was tried.
    Apart(Vec<ConnectionId>, u32, u32),
}

/// Decides what moves.
#[derive(Debug, Default)]
pub(crate) struct Rebalancer {
    state: State,
    /// When workers were looked at last, and for how long each had been at work by then, both ns.
    looked: Option<(u64, Vec<u64>)>,
    uneven: Option<Uneven>,
    /// For how many seconds in a row the same worker has been the busiest of uneven ones.
    seconds: u32,
    rest_until: u64,
    /// From where connections came, and when.
    moved: BTreeMap<ConnectionId, (u32, u64)>,
}

impl Rebalancer {
    /// A second is over: each worker has been at work for so long since its start, ns. `now` is monotonic time, ns.
    pub(crate) fn on_second(&mut self, busy: &[u64], now: u64) -> Option<Step> {
        self.compare(busy, now);
        let Some(uneven) = self.uneven else {
            if matches!(self.state, State::Apart(..)) {
                self.state = State::Watching;
            }
            return None;
        };
        match std::mem::take(&mut self.state) {
            State::Watching if self.seconds >= UNEVEN_SECONDS && now >= self.rest_until => {
                self.state = State::Asked;
                Some(Step::Weigh(uneven.from))
            }
            State::Weighing(before) => {
                self.state = State::AskedAgain(before);
                Some(Step::Weigh(uneven.from))
            }
            State::Apart(connections, to, tries) => {
                let from = connections.first().map(|connection| connection.worker);
                if (from, to) != (Some(uneven.from), uneven.to) {
                    // Others differ by now.
                    return None;
                }
                self.state = State::Moving(tries);
                Some(Step::Move(connections, to))
            }
            state => {
                self.state = state;
                None
            }
        }
    }

    /// What was done for connections of the worker that was to be asked.
    pub(crate) fn on_weighed(&mut self, work: Vec<ConnectionWork>, now: u64) -> Option<Step> {
        match std::mem::take(&mut self.state) {
            State::Asked => {
                let before = work.into_iter().map(|it| (it.connection, it.requests));
                self.state = State::Weighing(before.collect());
                None
            }
            State::AskedAgain(before) => {
                self.rest_until = now.saturating_add(REST);
                let uneven = self.uneven?;
                self.moved.retain(|_, (_, at)| now.saturating_sub(*at) < NO_RETURN);
                let chosen = self.choose(uneven, work, &before);
                if chosen.is_empty() {
                    return None;
                }
                self.state = State::Moving(0);
                Some(Step::Move(chosen, uneven.to))
            }
            state
            @ (State::Watching | State::Weighing(_) | State::Moving(_) | State::Apart(..)) => {
                self.state = state;
                None
            }
        }
    }

    /// Connections have moved from one worker to another, and have these names now; of others, too many would have had to move along.
    pub(crate) fn on_moved(
        &mut self,
        (from, to): (u32, u32),
        moved: &[ConnectionId],
        too_large: &[ConnectionId],
        now: u64,
    ) -> Option<Step> {
        let tries = if let State::Moving(tries) = self.state { tries + 1 } else { TRIES_MAX };
        self.state = State::Watching;
        self.rest_until = now.saturating_add(REST);
        self.seconds = 0;
        for connection in moved {
            if self.moved.len() < REMEMBERED_MAX {
                self.moved.insert(*connection, (from, now));
            }
        }
        if too_large.is_empty() || tries >= TRIES_MAX {
            return None;
        }
        // They are in the order of their work.
        let apart: Vec<_> = too_large.iter().take(APART_MAX).copied().collect();
        self.state = State::Apart(apart.clone(), to, tries);
        (tries == 1).then_some(Step::SetApart(apart))
    }

    /// How many connections are set apart, to move later.
    pub(crate) const fn waiting(&self) -> usize {
        if let State::Apart(connections, ..) = &self.state { connections.len() } else { 0 }
    }

    /// Begins anew, as after its start; what has moved is remembered.
    pub(crate) fn reset(&mut self) {
        self.state = State::Watching;
        self.looked = None;
        self.uneven = None;
        self.seconds = 0;
    }

    fn compare(&mut self, busy: &[u64], now: u64) {
        let before = self.looked.replace((now, busy.to_vec()));
        let uneven = before.and_then(|(at, before)| uneven(&before, busy, now.saturating_sub(at)));
        let is_same = match (&uneven, &self.uneven) {
            (Some(now), Some(before)) => now.from == before.from,
            _ => false,
        };
        self.seconds =
            if is_same { self.seconds.saturating_add(1) } else { u32::from(uneven.is_some()) };
        if !is_same && !matches!(self.state, State::Moving(_) | State::Apart(..)) {
            self.state = State::Watching;
        }
        self.uneven = uneven;
    }

    /// What brings two workers together: the connections with the most work, until half of the difference is reached.
    fn choose(
        &self,
        uneven: Uneven,
        work: Vec<ConnectionWork>,
        before: &BTreeMap<ConnectionId, u32>,
    ) -> Vec<ConnectionId> {
        let weight = |it: &ConnectionWork| {
            let requests = it.requests.saturating_sub(*before.get(&it.connection).unwrap_or(&0));
            f64::from(it.operations) + f64::from(requests)
        };
        let mut weights: Vec<_> = work.iter().map(|it| (weight(it), it.connection)).collect();
        weights.sort_by(|one, other| other.0.total_cmp(&one.0));
        let all: f64 = weights.iter().map(|(weight, _)| weight).sum();
        let (busiest, idlest) = uneven.shares;
        let wanted = (busiest - idlest) / 2.0;
        let (mut chosen, mut taken) = (Vec::new(), 0.0);
        for (weight, connection) in weights {
            let share = busiest * weight / all.max(1.0);
            // One alone may be too much by a half: the two are closer together then, too.
            let room = if chosen.is_empty() { 1.5 * wanted } else { wanted - taken };
            let came_from = self.moved.get(&connection).map(|(from, _)| *from);
            if share <= room && came_from != Some(uneven.to) && chosen.len() < MOVES_MAX {
                chosen.push(connection);
                taken += share;
            }
        }
        // Where one connection is nearly all the work, the others are no relief.
        let is_relief = taken >= wanted / 4.0 || chosen.len() == MOVES_MAX;
        if is_relief { chosen } else { Vec::new() }
    }
}

/// The busiest and the idlest worker, if they differ by enough.
#[expect(clippy::cast_precision_loss, reason = "shares of a second")]
fn uneven(before: &[u64], busy: &[u64], elapsed: u64) -> Option<Uneven> {
    let shares = before.iter().zip(busy);
    let shares =
        shares.map(|(before, busy)| busy.saturating_sub(*before) as f64 / elapsed.max(1) as f64);
    let shares = (0u32..).zip(shares);
    let (from, busiest) = shares.clone().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let (to, idlest) = shares.min_by(|one, other| one.1.total_cmp(&other.1))?;
    let is_uneven = busiest >= BUSY_MIN && busiest - idlest >= DIFFERENCE_MIN;
    is_uneven.then_some(Uneven { from, to, shares: (busiest, idlest) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Two or more workers that are at work for so many percent of each second, and their connections.
    struct Workers {
        rebalancer: Rebalancer,
        busy: Vec<u64>,
        now: u64,
        requests: u32,
    }

    impl Workers {
        fn new(count: usize) -> Self {
            let rebalancer = Rebalancer::default();
            Self { rebalancer, busy: vec![0; count], now: 0, requests: 0 }
        }

        fn second(&mut self, percent: &[u64]) -> Option<Step> {
            self.now += SECOND;
            for (busy, percent) in self.busy.iter_mut().zip(percent) {
                *busy += percent * SECOND / 100;
            }
            self.rebalancer.on_second(&self.busy, self.now)
        }

        /// Connections of worker 0 with this many operations in the last second.
        fn weighed(&mut self, operations: &[u32]) -> Option<Step> {
            self.requests += 1;
            let work = (0u32..).zip(operations).map(|(slot, operations)| ConnectionWork {
                connection: connection(slot),
                operations: *operations,
                requests: self.requests,
            });
            self.rebalancer.on_weighed(work.collect(), self.now)
        }

        /// What is moved once workers have been like this for long enough.
        fn moved(&mut self, percent: &[u64], operations: &[u32]) -> Option<Step> {
            for _ in 0..20 {
                if let Some(step) = self.second(percent) {
                    assert_eq!(step, Step::Weigh(0));
                    if let Some(step) = self.weighed(operations) {
                        return Some(step);
                    }
                }
            }
            None
        }
    }

    fn connection(slot: u32) -> ConnectionId {
        ConnectionId { worker: 0, slot, generation: 0 }
    }

    #[test]
    fn what_moves_brings_the_busiest_and_the_idlest_together() {
        for (percent, operations, expected) in [
            (&[80, 0][..], &[40, 30, 20, 10][..], Some(&[0][..])),
            (&[80, 0], &[10, 10, 10, 10], Some(&[0, 1])),
            (&[90, 60, 10], &[30, 30, 30], Some(&[0])),
            // One too many for half of the difference is still better than none.
            (&[80, 0], &[70, 30], Some(&[0])),
            // The one with all the work is as alone as it can be.
            (&[90, 0], &[1000, 1, 1], None),
            (&[90, 0], &[1000], None),
            (&[90, 0], &[], None),
            // Nearly even, or with time to spare.
            (&[90, 75], &[10, 10], None),
            (&[45, 0], &[10, 10], None),
            (&[90], &[10, 10], None),
        ] {
            let step = Workers::new(percent.len()).moved(percent, operations);
            let to = u32::try_from(percent.len()).unwrap() - 1;
            let expected = expected
                .map(|slots| Step::Move(slots.iter().map(|slot| connection(*slot)).collect(), to));
            assert_eq!(step, expected, "{percent:?} {operations:?}");
        }
    }

    #[test]
    fn many_small_ones_move_up_to_a_bound() {
        let Some(Step::Move(moved, 1)) = Workers::new(2).moved(&[100, 0], &[1; 10_000]) else {
            panic!("nothing");
        };
        assert_eq!(moved.len(), MOVES_MAX);
    }

    #[test]
    fn nothing_is_asked_while_load_is_even_or_uneven_for_a_moment() {
        let mut workers = Workers::new(2);
        for percent in [[60, 60], [90, 10], [90, 10], [60, 60]].iter().cycle().take(400) {
            assert_eq!(workers.second(percent), None);
        }
        // Nor where now this, now that one is the busiest.
        for percent in [[90, 10], [10, 90]].iter().cycle().take(400) {
            assert_eq!(workers.second(percent), None);
        }
    }

    #[test]
    fn nothing_moves_within_ten_seconds_and_nothing_moves_back() {
        let mut workers = Workers::new(2);
        let step = workers.moved(&[80, 0], &[10, 10, 10, 10]);
        assert_eq!(step, Some(Step::Move(vec![connection(0), connection(1)], 1)));
        let arrived = [7, 8].map(|slot| ConnectionId { worker: 1, slot, generation: 0 });
        assert_eq!(workers.rebalancer.on_moved((0, 1), &arrived, &[], workers.now), None);
        let moved_at = workers.now;
        // Now the other one is the busiest, for these and one more.
        let work = |requests| {
            let of = |connection| ConnectionWork { connection, operations: 10, requests };
            let other = ConnectionId { worker: 1, slot: 9, generation: 0 };
            arrived.into_iter().chain([other]).map(of).collect::<Vec<_>>()
        };
        let mut steps = Vec::new();
        for requests in 0..30 {
            if workers.second(&[10, 90]).is_some() {
                steps.extend(workers.rebalancer.on_weighed(work(requests), workers.now));
                assert!(workers.now - moved_at >= REST);
            }
        }
        let other = ConnectionId { worker: 1, slot: 9, generation: 0 };
        assert_eq!(steps, [Step::Move(vec![other], 0)]);
    }

    #[test]
    fn workers_that_are_even_by_the_second_look_keep_what_they_have() {
        let mut workers = Workers::new(2);
        let asked = (0..20).find_map(|_| workers.second(&[80, 0]));
        assert_eq!(asked, Some(Step::Weigh(0)));
        assert_eq!(workers.weighed(&[10, 10]), None);
        assert_eq!(workers.second(&[40, 40]), None);
        assert_eq!(workers.weighed(&[10, 10]), None, "the answer comes too late");
    }

    #[test]
    fn what_shares_too_much_is_set_apart_and_tried_again_until_it_moves() {
        let mut workers = Workers::new(2);
        let all: Vec<_> = (0..10).map(connection).collect();
        let step = workers.moved(&[100, 0], &[10; 20]);
        assert_eq!(step, Some(Step::Move(all.clone(), 1)));
        // The first has moved. Of the others, those with the most work are set apart.
        let (first, others) = all.split_first().unwrap();
        let apart = &others[..APART_MAX];
        let step = workers.rebalancer.on_moved((0, 1), &[*first], others, workers.now);
        assert_eq!(step, Some(Step::SetApart(apart.to_vec())));
        assert_eq!(workers.rebalancer.waiting(), APART_MAX);
        assert_eq!(workers.second(&[90, 10]), Some(Step::Move(apart.to_vec(), 1)));
        assert_eq!(workers.second(&[90, 10]), None, "while they are on their way");
        let left = &apart[1..];
        assert_eq!(workers.rebalancer.on_moved((0, 1), &apart[..1], left, workers.now), None);
        assert_eq!(workers.second(&[80, 20]), Some(Step::Move(left.to_vec(), 1)));
        assert_eq!(workers.rebalancer.on_moved((0, 1), left, &[], workers.now), None);
        assert_eq!(workers.rebalancer.waiting(), 0);
    }

    #[test]
    fn what_stays_too_large_is_given_up() {
        let mut workers = Workers::new(2);
        let Some(Step::Move(all, 1)) = workers.moved(&[100, 0], &[10; 4]) else { panic!() };
        let mut tries = 1;
        let step = workers.rebalancer.on_moved((0, 1), &[], &all, workers.now);
        assert_eq!(step, Some(Step::SetApart(all.clone())));
        while workers.rebalancer.waiting() > 0 {
            assert_eq!(workers.second(&[100, 0]), Some(Step::Move(all.clone(), 1)));
            assert_eq!(workers.rebalancer.on_moved((0, 1), &[], &all, workers.now), None);
            tries += 1;
        }
        assert_eq!(tries, TRIES_MAX);
        assert_eq!(workers.second(&[100, 0]), None, "nothing for a while");
    }

    #[test]
    fn what_is_set_apart_stays_where_the_other_worker_has_become_the_busier_one() {
        let mut workers = Workers::new(2);
        let Some(Step::Move(all, 1)) = workers.moved(&[100, 0], &[10; 4]) else { panic!() };
        let step = workers.rebalancer.on_moved((0, 1), &all[..1], &all[1..], workers.now);
        assert_eq!(step, Some(Step::SetApart(all[1..].to_vec())));
        assert_eq!(workers.second(&[20, 90]), None);
        assert_eq!(workers.rebalancer.waiting(), 0);
    }

    #[test]
    fn what_is_set_apart_stays_once_workers_are_even() {
        let mut workers = Workers::new(2);
        let Some(Step::Move(all, 1)) = workers.moved(&[100, 0], &[10; 4]) else { panic!() };
        let step = workers.rebalancer.on_moved((0, 1), &all[..1], &all[1..], workers.now);
        assert_eq!(step, Some(Step::SetApart(all[1..].to_vec())));
        assert_eq!(workers.second(&[55, 45]), None);
        assert_eq!(workers.rebalancer.waiting(), 0);
    }
}
