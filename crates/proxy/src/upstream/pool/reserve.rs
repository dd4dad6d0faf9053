//! Connections of a cluster that are kept for others than clients that had more than their share.
//!
//! When a stalled exchange of such a client gives way (see `stalls`), the one that waited gets its
//! connection, and is done with it soon. If the client that gave way had it again then, every
//! further request of others would have to wait until that exchange has stalled for long enough,
//! too. So as many connections as exchanges gave way are reserved: while no more than these are
//! free, the clients that gave way wait, as long as they hold more than their share. No other
//! client ever waits for it.
//!
//! ```text
//! an exchange gives way ─► one connection more is reserved, and a period begins
//! the end of a period   ─► what was never needed in it is reserved no more; the last ends the reserve
//! ```

use std::time::Duration;

use super::turns::LANES_LOOKED_AT_MAX;
use crate::listen::clients::ClientPlace;
use crate::tools::time::Time;

/// How long a connection stays reserved that no client needs. A client that sends one request after
/// the other is back sooner; one that gave way loses no more than this by what is not used.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a reserve lasts of which nothing is heard: a period, and as much again for its end to be
/// noticed.
pub(super) const RESERVE_MAX: Duration = PERIOD.saturating_mul(2);

/// Clients from which connections are kept. No more can have more than an eighth of a cluster each.
const CLIENTS_MAX: usize = 7;

// Among the lanes that are looked at is one of another client, if any waits.
const _: () = assert!(CLIENTS_MAX < LANES_LOOKED_AT_MAX);

/// The reserve of one cluster. By default there is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserve {
    /// Connections that are reserved.
    connections: u32,
    /// The fewest connections that were free in this period: so many were not needed.
    spare: u32,
    /// When this period ends.
    until: Time,
    /// Clients that gave way. A place may have become another client's, which does not have more than
    /// its share then.
    from: [ClientPlace; CLIENTS_MAX],
    /// The place in `from` of the next.
    next: u8,
}

impl Default for Reserve {
    fn default() -> Self {
        Self {
            connections: 0,
            spare: 0,
            until: Time::NEVER,
            from: [ClientPlace::UNKNOWN; CLIENTS_MAX],
            next: 0,
        }
    }
}

impl Reserve {
    /// Whether any connection is reserved.
    pub(super) const fn is_some(&self) -> bool {
        self.connections > 0
    }

    /// An exchange of this client gave way.
    pub(super) fn on_gave_way(&mut self, client: ClientPlace, now: Time) {
        self.connections = self.connections.saturating_add(1);
        self.spare = 0;
        self.until = now + PERIOD;
        if !self.from.contains(&client) {
            let place = usize::from(self.next) % CLIENTS_MAX;
            if let Some(entry) = self.from.get_mut(place) {
                *entry = client;
            }
            self.next = self.next.wrapping_add(1);
        }
    }

    /// Whether a client that has more than its share waits while so many connections are free.
    pub(super) fn keeps_from(&self, client: ClientPlace, free: u32) -> bool {
        free <= self.connections && self.is_some() && self.from.contains(&client)
    }

    /// A connection was needed, and so many are free beside it.
    pub(super) fn on_needed(&mut self, free: u32) {
        self.spare = self.spare.min(free);
    }

    /// Ends a period that is over, when so many connections are free. Returns whether fewer are
    /// reserved now.
    pub(super) fn end_period(&mut self, free: u32, now: Time) -> bool {
        if !self.is_some() || now < self.until {
            return false;
        }
        // What happened was seen as long as a client had to wait. Later, nothing of it counts.
        let is_stale = now - self.until >= PERIOD;
        let unneeded = if is_stale { self.connections } else { self.spare };
        let left = self.connections.saturating_sub(unneeded);
        let is_less = left < self.connections;
        if left == 0 {
            *self = Self::default();
        } else {
            (self.connections, self.spare, self.until) = (left, free, now + PERIOD);
        }
        is_less
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientPlace = ClientPlace::at(0);
    const B: ClientPlace = ClientPlace::at(1);

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn as_many_as_gave_way_are_kept_from_those_that_did() {
        let mut reserve = Reserve::default();
        assert!(!reserve.keeps_from(A, 0) && !reserve.keeps_from(ClientPlace::UNKNOWN, 0));
        reserve.on_gave_way(A, at(0));
        reserve.on_gave_way(A, at(0));
        for (client, free, is_kept) in
            [(A, 0, true), (A, 2, true), (A, 3, false), (B, 0, false), (B, 2, false)]
        {
            assert_eq!(reserve.keeps_from(client, free), is_kept, "{client:?} {free}");
        }
    }

    #[test]
    fn what_is_not_needed_for_a_period_is_reserved_no_more() {
        let mut reserve = Reserve::default();
        (0..5).for_each(|_| reserve.on_gave_way(A, at(0)));
        assert!(!reserve.end_period(5, at(999)));
        // The connections that gave way were all needed in the first period.
        assert!(!reserve.end_period(5, at(1_000)));
        [3, 4, 1, 2].into_iter().for_each(|free| reserve.on_needed(free));
        // All but one of them in the second.
        assert!(reserve.end_period(5, at(2_000)));
        assert!(reserve.keeps_from(A, 4) && !reserve.keeps_from(A, 5));
        // None in the third.
        assert!(reserve.end_period(5, at(3_000)));
        assert!(!reserve.is_some());
    }

    #[test]
    fn a_period_that_ended_long_ago_ends_the_reserve() {
        let mut reserve = Reserve::default();
        reserve.on_gave_way(A, at(0));
        assert!(reserve.end_period(0, at(2_000)));
        assert!(!reserve.is_some() && !reserve.keeps_from(A, 0));
    }

    #[test]
    fn the_last_clients_that_gave_way_are_remembered() {
        let mut reserve = Reserve::default();
        let client = |n: usize| ClientPlace::at(u32::try_from(n).unwrap());
        (0..CLIENTS_MAX + 1).for_each(|n| reserve.on_gave_way(client(n), at(0)));
        assert!(!reserve.keeps_from(client(0), 0));
        assert!((1..=CLIENTS_MAX).all(|n| reserve.keeps_from(client(n), 0)));
    }
}
