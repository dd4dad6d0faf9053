//! Warnings that clients were closed for what they held, at a bounded rate.

use std::collections::BTreeMap;

use config::snapshot::ListenerId;

/// Between two warnings about one listener, ns.
const WARNING_INTERVAL: u64 = 10_000_000_000;

/// Listeners whose clients held more than `buffered_max` lately: as many as are configured, at most.
#[derive(Debug, Default)]
pub(crate) struct Overflows {
    listeners: BTreeMap<ListenerId, Overflow>,
}

#[derive(Debug)]
struct Overflow {
    /// When the last warning was given.
    warned_at: u64,
    /// Connections that were closed since.
    closed: u64,
}

impl Overflows {
    /// Notes that a worker closed so many connections of a listener. Gives the number to warn of,
    /// with those that were closed since the last warning, if it is time for another one. `now` is
    /// ns of a clock that does not step.
    pub(crate) fn note(&mut self, listener: ListenerId, closed: u32, now: u64) -> Option<u64> {
        let is_recent = |at: u64| now.saturating_sub(at) < WARNING_INTERVAL;
        let closed = u64::from(closed);
        let closed = match self.listeners.get_mut(&listener) {
            Some(overflow) if is_recent(overflow.warned_at) => {
                overflow.closed += closed;
                return None;
            }
            Some(overflow) => overflow.closed + closed,
            None => closed,
        };
        self.listeners.retain(|_, overflow| is_recent(overflow.warned_at));
        self.listeners.insert(listener, Overflow { warned_at: now, closed: 0 });
        Some(closed)
    }
}

#[cfg(test)]
mod tests {
    use config::snapshot::Id;

    use super::*;

    const fn listener(slot: u32) -> ListenerId {
        ListenerId(Id { slot, generation: 0 })
    }

    #[test]
    fn a_listener_is_warned_of_once_in_ten_seconds_and_all_that_was_closed_is_in_it() {
        let second = |seconds: u64| seconds * 1_000_000_000;
        let mut overflows = Overflows::default();
        for (which, closed, now, expected) in [
            (1, 3, 0, Some(3)),
            (1, 4, 1, None),
            (2, 5, 1, Some(5)),
            (1, 1, 9, None),
            (1, 2, 10, Some(7)),
            (2, 1, 10, None),
            (2, 1, 40, Some(2)),
            (1, 1, 41, Some(1)),
        ] {
            let noted = overflows.note(listener(which), closed, second(now));
            assert_eq!(noted, expected, "listener {which} at {now} s");
        }
        assert_eq!(overflows.listeners.len(), 2, "those that are recent");
    }
}
