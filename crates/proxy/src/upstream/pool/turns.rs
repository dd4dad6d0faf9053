//! The queue for a cluster's connections: clients take turns in it, exchanges of one client are in
//! order.
//!
//! Each client has a lane. The lane that is served next is, of the first few whose turn it is, the
//! one of the client that holds the fewest connections; it goes to the end then. So the thousandth
//! request of one client waits behind the first of another. The lane of a client that may have no
//! connection now is passed. An exchange that gives up leaves its place, which is passed when it is
//! met.

use std::collections::{BTreeMap, VecDeque};

use crate::keys::ExchangeKey;
use crate::listen::clients::ClientPlace;

/// Lanes that are looked at for the client that holds the fewest connections.
pub(super) const LANES_LOOKED_AT_MAX: usize = 8;

/// Lanes without exchanges that are kept, with what they have allocated.
const EMPTY_LANES_MAX: usize = 64;

/// The exchanges that wait for a connection of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    lanes: BTreeMap<ClientPlace, Lane>,
    /// Clients with exchanges that wait, each once, in the order of their turns; those whose last one
    /// gave up may still stand here.
    order: VecDeque<ClientPlace>,
    /// Exchanges that wait.
    waiting: u32,
    /// The client that had the most when one was added last.
    longest: Option<ClientPlace>,
}

#[derive(Debug, Default)]
struct Lane {
    /// In order; those that gave up may still stand here.
    queue: VecDeque<ExchangeKey>,
    waiting: u32,
    /// Whether it stands in the order of turns.
    is_in_order: bool,
}

impl Turns {
    /// Exchanges that wait.
    pub(crate) const fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Adds an exchange behind the others of its client.
    pub(crate) fn push(&mut self, client: ClientPlace, exchange: ExchangeKey) {
        let lane = self.lanes.entry(client).or_default();
        lane.queue.push_back(exchange);
        lane.waiting += 1;
        self.waiting += 1;
        if !lane.is_in_order {
            lane.is_in_order = true;
            self.order.push_back(client);
        }
        let count = lane.waiting;
        if self.longest.is_none_or(|longest| count >= self.waiting_of(longest)) {
            self.longest = Some(client);
        }
    }

    /// An exchange of this client left the queue without having been taken from it.
    pub(crate) fn give_up(
        &mut self,
        client: ClientPlace,
        is_waiting: impl Fn(ExchangeKey) -> bool,
    ) {
        let Some(lane) = self.lanes.get_mut(&client) else { return };
        lane.waiting -= 1;
        self.waiting -= 1;
        if lane.queue.len() > 2 * lane.waiting as usize + 16 {
            lane.queue.retain(|exchange| is_waiting(*exchange));
        }
    }

    /// The client whose exchange is served next. `held`: how many connections each holds; none if it
    /// may not have another now.
    pub(crate) fn next_client(
        &mut self,
        held: impl Fn(ClientPlace) -> Option<u32>,
    ) -> Option<ClientPlace> {
        let place = self.next_place(held)?;
        self.order.get(place).copied()
    }

    /// Takes the exchange that is served next out of the queue.
    pub(crate) fn pop(
        &mut self,
        held: impl Fn(ClientPlace) -> Option<u32>,
        is_waiting: impl Fn(ExchangeKey) -> bool,
    ) -> Option<ExchangeKey> {
        let place = self.next_place(held)?;
        let client = self.order.remove(place)?;
        let lane = self.lanes.get_mut(&client)?;
        let exchange = loop {
            let exchange = lane.queue.pop_front()?;
            if is_waiting(exchange) {
                break exchange;
            }
        };
        lane.waiting -= 1;
        self.waiting -= 1;
        lane.is_in_order = lane.waiting > 0;
        if lane.is_in_order {
            self.order.push_back(client);
        } else {
            lane.queue.clear();
        }
        self.trim();
        Some(exchange)
    }

    /// The newest exchange of the client that has the most of them, if that is more than another one
    /// of `client` would make its own.
    pub(crate) fn newest_of_longest(
        &mut self,
        client: ClientPlace,
        is_waiting: impl Fn(ExchangeKey) -> bool,
    ) -> Option<ExchangeKey> {
        let longest = self.longest?;
        if self.waiting_of(longest) <= self.waiting_of(client) + 1 {
            return None;
        }
        let queue = &mut self.lanes.get_mut(&longest)?.queue;
        while queue.back().is_some_and(|newest| !is_waiting(*newest)) {
            queue.pop_back();
        }
        queue.back().copied()
    }

    /// All that wait, and maybe some that do not any more.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ExchangeKey> {
        self.lanes.values().flat_map(|lane| &lane.queue)
    }

    fn waiting_of(&self, client: ClientPlace) -> u32 {
        self.lanes.get(&client).map_or(0, |lane| lane.waiting)
    }

    /// Where in the order the client stands that is next.
    fn next_place(&mut self, held: impl Fn(ClientPlace) -> Option<u32>) -> Option<usize> {
        let mut best: Option<(u32, usize)> = None;
        let mut place = 0;
        while let Some(client) =
            self.order.get(place).copied().filter(|_| place < LANES_LOOKED_AT_MAX)
        {
            let lane = self.lanes.get_mut(&client);
            if let Some(lane) = lane.filter(|lane| lane.waiting > 0) {
                debug_assert!(lane.is_in_order, "it stands there");
                if let Some(held) = held(client)
                    && best.is_none_or(|(fewest, _)| held < fewest)
                {
                    best = Some((held, place));
                }
                place += 1;
                continue;
            }
            if let Some(lane) = self.lanes.get_mut(&client) {
                lane.is_in_order = false;
                lane.queue.clear();
            }
            self.order.remove(place);
        }
        best.map(|(_, place)| place)
    }

    /// Gives back what a crowd left behind.
    fn trim(&mut self) {
        if self.waiting == 0 && self.lanes.len() > EMPTY_LANES_MAX {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientPlace = ClientPlace::at(0);
    const B: ClientPlace = ClientPlace::at(1);
    const C: ClientPlace = ClientPlace::at(2);

    fn key(n: u64) -> ExchangeKey {
        ExchangeKey::from_bits(n)
    }

    fn numbers(turns: &mut Turns, held: impl Fn(ClientPlace) -> Option<u32>) -> Vec<u64> {
        std::iter::from_fn(|| turns.pop(&held, |_| true)).map(ExchangeKey::to_bits).collect()
    }

    #[test]
    fn clients_take_turns_and_exchanges_of_one_are_in_order() {
        let mut turns = Turns::default();
        for (client, n) in [(A, 1), (A, 2), (A, 3), (B, 10), (C, 20), (B, 11)] {
            turns.push(client, key(n));
        }
        assert_eq!(turns.waiting(), 6);
        assert_eq!(numbers(&mut turns, |_| Some(0)), [1, 10, 20, 2, 11, 3]);
        assert_eq!(turns.waiting(), 0);
    }

    #[test]
    fn the_client_that_holds_the_fewest_is_served_first() {
        let mut turns = Turns::default();
        for (client, n) in [(A, 1), (A, 2), (B, 10), (C, 20)] {
            turns.push(client, key(n));
        }
        let held = |client| Some(if client == A { 9 } else { u32::from(client == B) });
        assert_eq!(turns.next_client(held), Some(C));
        assert_eq!(numbers(&mut turns, held), [20, 10, 1, 2]);
    }

    #[test]
    fn a_client_that_may_have_none_now_keeps_its_turn() {
        let mut turns = Turns::default();
        for (client, n) in [(A, 1), (B, 10), (A, 2), (B, 11)] {
            turns.push(client, key(n));
        }
        let not_a = |client| (client != A).then_some(5);
        assert_eq!(turns.next_client(not_a), Some(B));
        assert_eq!(numbers(&mut turns, not_a), [10, 11]);
        assert_eq!((turns.next_client(not_a), turns.waiting()), (None, 2));
        turns.push(B, key(12));
        assert_eq!(numbers(&mut turns, |_| Some(0)), [1, 12, 2]);
    }

    #[test]
    fn who_gave_up_is_passed() {
        let mut turns = Turns::default();
        for (client, n) in [(A, 1), (B, 10), (A, 2)] {
            turns.push(client, key(n));
        }
        turns.give_up(A, |_| true);
        turns.give_up(B, |_| true);
        assert_eq!(turns.waiting(), 1);
        assert_eq!(turns.next_client(|_| Some(0)), Some(A));
        assert_eq!(turns.pop(|_| Some(0), |exchange| exchange == key(2)), Some(key(2)));
        assert_eq!(turns.pop(|_| Some(0), |_| true), None);
        turns.push(B, key(11));
        assert_eq!(numbers(&mut turns, |_| Some(0)), [11]);
    }

    #[test]
    fn a_lane_of_many_that_gave_up_does_not_grow() {
        let mut turns = Turns::default();
        for n in 0..10_000 {
            turns.push(A, key(n));
            turns.give_up(A, |_| false);
        }
        assert!(turns.iter().count() < 32);
    }

    #[test]
    fn the_longest_lane_loses_its_newest_to_a_shorter_one_only() {
        let mut turns = Turns::default();
        for n in 0..4 {
            turns.push(A, key(n));
        }
        assert_eq!(turns.newest_of_longest(A, |_| true), None);
        assert_eq!(turns.newest_of_longest(B, |_| true), Some(key(3)));
        assert_eq!(turns.newest_of_longest(B, |exchange| exchange != key(3)), Some(key(2)));
        for n in 10..13 {
            turns.push(B, key(n));
        }
        assert_eq!(turns.newest_of_longest(B, |_| true), None, "it has nearly as many");
    }
}
