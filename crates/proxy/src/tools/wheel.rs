//! Deadlines of one worker: one coarse wheel with intrusive entries.
//!
//! Arming an entry later than it stands only overwrites a field: when its place comes round, it is
//! put where it belongs by then. Most deadlines are pushed back again and again and never fire,
//! so that is the case to be cheap at. An entry fires at the first tick at or after its deadline,
//! never before it.

use crate::tools::places::Places;
use crate::tools::slab::{Chunks, SHRINK_CHUNKS_MAX};
use crate::tools::time::Time;

/// A tick is 2^23 ns, some 8 ms: finer than any timeout an operator sets, and coarse enough that
/// a worker with nothing else to do wakes up a few times a second at most.
const TICK_SHIFT: u32 = 23;

/// Places of the wheel; a deadline further off than this many ticks (34 s) waits in the last
/// place and is looked at again when that comes round.
const PLACES: usize = 4096;

const NONE: u32 = u32::MAX;

/// Names one entry of a [`Wheel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey(u32);

/// The deadlines of one worker, each with an owner of type `T`.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    entries: Chunks<Entry<T>>,
    /// Unused entries.
    free: Places,
    /// First entry of each place.
    places: Box<[u32]>,
    /// One bit a place: whether it has entries.
    occupied: [u64; PLACES / 64],
    /// The tick whose place is being emptied; everything before it was.
    current: u64,
}

#[derive(Debug)]
struct Entry<T> {
    deadline: Time,
    /// The tick of the place it stands in; `u64::MAX` when it stands in none.
    due: u64,
    next: u32,
    prev: u32,
    owner: T,
}

const NOWHERE: u64 = u64::MAX;

impl<T: Copy> Wheel<T> {
    /// An empty wheel that starts at `now`.
    pub(crate) fn new(now: Time) -> Self {
        Self {
            entries: Chunks::default(),
            free: Places::default(),
            places: vec![NONE; PLACES].into_boxed_slice(),
            occupied: [0; PLACES / 64],
            current: now.as_nanos() >> TICK_SHIFT,
        }
    }

    /// An entry for `owner`, not armed.
    pub(crate) fn insert(&mut self, owner: T) -> TimerKey {
        let unused =
            || Entry { deadline: Time::NEVER, due: NOWHERE, next: NONE, prev: NONE, owner };
        let index = self.free.take().unwrap_or_else(|| {
            self.entries.grow(|_| unused());
            self.free.grow();
            self.free.take().expect("a new chunk has places, and there are fewer than 2^32")
        });
        *self.entry(index) = unused();
        TimerKey(index)
    }

    /// Names the owner of an entry that was inserted before its owner was.
    pub(crate) fn set_owner(&mut self, timer: TimerKey, owner: T) {
        self.entry(timer.0).owner = owner;
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, timer: TimerKey) {
        self.unlink(timer.0);
        self.free.give_back(timer.0);
    }

    /// Gives empty chunks at the end back to the allocator, a bounded number at a time.
    pub(crate) fn shrink(&mut self) {
        for _ in 0..SHRINK_CHUNKS_MAX {
            if !self.free.shrink() {
                break;
            }
            self.entries.shrink();
        }
    }

    /// Sets an entry's deadline; [`Time::NEVER`] for none.
    #[inline]
    pub(crate) fn arm(&mut self, timer: TimerKey, deadline: Time) {
        let entry = self.entry(timer.0);
        entry.deadline = deadline;
        if entry.due <= tick_at_or_after(deadline) || !deadline.is_set() {
            return;
        }
        self.unlink(timer.0);
        self.link(timer.0);
    }

    /// The deadline that an entry is armed for.
    pub(crate) fn deadline(&self, timer: TimerKey) -> Time {
        self.entries.get(timer.0 as usize).map_or(Time::NEVER, |entry| entry.deadline)
    }

    /// When to look at the wheel again, if ever. May be early: for an entry that was pushed back.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.next_occupied().map(|tick| Time::from_nanos(tick << TICK_SHIFT))
    }

    /// The owner of an entry whose deadline has come; the entry stays, disarmed. Call until none.
    pub(crate) fn pop_expired(&mut self, now: Time) -> Option<T> {
        let now_tick = now.as_nanos() >> TICK_SHIFT;
        loop {
            let head = self.places.get(place_of(self.current)).copied().unwrap_or(NONE);
            if head != NONE {
                self.unlink(head);
                let entry = self.entry(head);
                if !entry.deadline.is_set() {
                    continue;
                }
                if tick_at_or_after(entry.deadline) > now_tick {
                    self.link(head);
                    continue;
                }
                entry.deadline = Time::NEVER;
                return Some(entry.owner);
            }
            if self.current >= now_tick {
                return None;
            }
            self.current = self.next_occupied().map_or(now_tick, |tick| tick.min(now_tick));
        }
    }

    /// The tick of the next place with entries.
    fn next_occupied(&self) -> Option<u64> {
        let first = place_of(self.current + 1);
        let words = self.occupied.len();
        // The word of the first place twice: its high bits first, its low bits last.
        (0..=words).find_map(|step| {
            let index = (first / 64 + step) % words;
            let mut word = *self.occupied.get(index)?;
            let low = (1u64 << (first % 64)) - 1;
            if step == 0 {
                word &= !low;
            } else if step == words {
                word &= low;
            }
            (word != 0).then(|| {
                let place = index * 64 + word.trailing_zeros() as usize;
                let ahead = (place + PLACES - first) % PLACES;
                self.current + 1 + ahead as u64
            })
        })
    }

    /// Puts an unlinked entry where its deadline wants it.
    fn link(&mut self, index: u32) {
        let current = self.current;
        let entry = self.entry(index);
        let due = tick_at_or_after(entry.deadline).clamp(current + 1, current + PLACES as u64 - 1);
        let place = place_of(due);
        let head = self.places.get(place).copied().unwrap_or(NONE);
        let entry = self.entry(index);
        entry.due = due;
        entry.prev = NONE;
        entry.next = head;
        if head != NONE {
            self.entry(head).prev = index;
        }
        if let Some(first) = self.places.get_mut(place) {
            *first = index;
        }
        if let Some(word) = self.occupied.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    /// Takes an entry out of its place, if it stands in one.
    fn unlink(&mut self, index: u32) {
        let entry = self.entry(index);
        if entry.due == NOWHERE {
            return;
        }
        let (next, prev, place) = (entry.next, entry.prev, place_of(entry.due));
        entry.due = NOWHERE;
        if next != NONE {
            self.entry(next).prev = prev;
        }
        if prev != NONE {
            self.entry(prev).next = next;
            return;
        }
        if let Some(first) = self.places.get_mut(place) {
            *first = next;
        }
        if next == NONE
            && let Some(word) = self.occupied.get_mut(place / 64)
        {
            *word &= !(1 << (place % 64));
        }
    }

    fn entry(&mut self, index: u32) -> &mut Entry<T> {
        self.entries.get_mut(index as usize).expect("timer keys name entries of this wheel")
    }
}

/// The first tick that is not before `deadline`.
const fn tick_at_or_after(deadline: Time) -> u64 {
    let nanos = deadline.as_nanos();
    (nanos >> TICK_SHIFT) + (nanos & ((1 << TICK_SHIFT) - 1) != 0) as u64
}

#[expect(clippy::cast_possible_truncation, reason = "less than PLACES")]
const fn place_of(tick: u64) -> usize {
    (tick % PLACES as u64) as usize
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: Time = Time::from_nanos(1_000_000_007);
    const TICK: Duration = Duration::from_nanos(1 << TICK_SHIFT);

    fn expired(wheel: &mut Wheel<u32>, now: Time) -> Vec<u32> {
        std::iter::from_fn(|| wheel.pop_expired(now)).collect()
    }

    #[test]
    fn nothing_fires_before_its_deadline_and_everything_within_a_tick_after() {
        for millis in [1, 8, 9, 500, 33_000, 34_500, 35_000, 70_000, 3_600_000] {
            let mut wheel = Wheel::new(START);
            let deadline = START + Duration::from_millis(millis);
            let timer = wheel.insert(7);
            wheel.arm(timer, deadline);
            let mut now = START;
            let fired = loop {
                now = wheel.next_deadline().expect("armed").max(now);
                if !expired(&mut wheel, now).is_empty() {
                    break now;
                }
            };
            assert!(fired >= deadline, "{millis} ms: early");
            assert!(fired - deadline <= TICK, "{millis} ms: late by {:?}", fired - deadline);
            assert_eq!(wheel.next_deadline(), None);
        }
    }

    #[test]
    fn a_later_deadline_replaces_an_earlier_one_and_the_other_way_round() {
        let mut wheel = Wheel::new(START);
        let timer = wheel.insert(1);
        let second = Duration::from_secs(1);
        wheel.arm(timer, START + second);
        wheel.arm(timer, START + 3 * second);
        assert!(expired(&mut wheel, START + 2 * second).is_empty());
        wheel.arm(timer, START + second * 5 / 2);
        assert_eq!(expired(&mut wheel, START + second * 51 / 20), [1]);
        assert!(expired(&mut wheel, START + 4 * second).is_empty());
    }

    #[test]
    fn a_disarmed_or_removed_entry_does_not_fire() {
        let mut wheel = Wheel::new(START);
        let (disarmed, removed, kept) = (wheel.insert(1), wheel.insert(2), wheel.insert(3));
        for timer in [disarmed, removed, kept] {
            wheel.arm(timer, START + TICK);
        }
        wheel.arm(disarmed, Time::NEVER);
        wheel.remove(removed);
        assert_eq!(expired(&mut wheel, START + 3 * TICK), [3]);
    }

    #[test]
    fn a_wheel_that_has_shrunk_fires_what_is_left_and_what_comes() {
        let mut wheel = Wheel::new(START);
        let timers: Vec<_> = (0..2000).map(|n| wheel.insert(n)).collect();
        for timer in &timers {
            wheel.arm(*timer, START + 2 * TICK);
        }
        timers[2..].iter().for_each(|timer| wheel.remove(*timer));
        wheel.shrink();
        assert!(wheel.entries.len() < 500);
        let later = wheel.insert(2000);
        wheel.arm(later, START + TICK);
        let mut fired = expired(&mut wheel, START + 4 * TICK);
        fired.sort_unstable();
        assert_eq!(fired, [0, 1, 2000]);
    }

    #[test]
    fn a_jump_over_more_than_the_whole_wheel_fires_all_and_no_more() {
        let mut wheel = Wheel::new(START);
        for n in 0..100 {
            let timer = wheel.insert(n);
            wheel.arm(timer, START + Duration::from_secs(u64::from(n)));
        }
        let mut all = expired(&mut wheel, START + Duration::from_secs(98) + TICK);
        all.sort_unstable();
        assert_eq!(all, (0..=98).collect::<Vec<_>>());
    }

    #[test]
    fn an_owner_that_arms_for_the_past_fires_in_a_later_turn() {
        let mut wheel = Wheel::new(START);
        let timer = wheel.insert(1);
        let now = START + 10 * TICK;
        assert!(expired(&mut wheel, now).is_empty());
        wheel.arm(timer, START);
        assert!(expired(&mut wheel, now).is_empty());
        assert_eq!(expired(&mut wheel, now + 2 * TICK), [1]);
    }
}
