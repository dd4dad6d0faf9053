//! Endpoints that go away from a connection after a number of streams.

/// How many streams an endpoint takes on a connection before it goes away from it, if that is a habit of
/// its own: what is sent there beyond them comes back unprocessed.
#[derive(Debug, Default)]
pub(super) struct StreamBudget {
    /// How many it took when it went away last.
    last: u32,
    /// How many it takes, since it took as many twice in a row.
    streams_max: Option<u32>,
    /// Connections that end after so many before that is forgotten, and has to show again.
    uses_left: u8,
}

/// Connections for which the habit of an endpoint is believed before it is put to the test again.
const BUDGET_USES: u8 = 64;

impl StreamBudget {
    /// The endpoint took so many and left others.
    pub(super) fn on_streams_limited(&mut self, streams: u32) {
        let is_habit = streams > 0 && self.last == streams;
        *self = Self {
            last: streams,
            streams_max: is_habit.then_some(streams),
            uses_left: BUDGET_USES,
        };
    }

    /// How many it took last, how many it takes by habit or 0, and for how many connections that is believed.
    pub(super) fn save(&self) -> (u32, u32, u8) {
        (self.last, self.streams_max.unwrap_or(0), self.uses_left)
    }

    /// What [`Self::save`] has written.
    pub(super) fn restore((last, streams_max, uses_left): (u32, u32, u8)) -> Self {
        let streams_max = (streams_max > 0).then_some(streams_max);
        Self { last, streams_max, uses_left: uses_left.min(BUDGET_USES) }
    }

    pub(super) fn is_reached(&self, streams: u32) -> bool {
        self.streams_max.is_some_and(|max| streams >= max)
    }

    /// A connection had as many as it takes, and gets no more.
    pub(super) fn on_used(&mut self) {
        self.uses_left = self.uses_left.saturating_sub(1);
        if self.uses_left == 0 {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_habit_is_what_happened_twice_in_a_row_and_is_forgotten_after_a_while() {
        for (seen, streams_max) in [
            (&[][..], None),
            (&[50], None),
            (&[50, 50], Some(50)),
            (&[50, 50, 50], Some(50)),
            (&[50, 50, 49], None),
            (&[0, 0], None),
            (&[3, 50, 3, 50], None),
        ] {
            let mut stream_budget = StreamBudget::default();
            seen.iter().for_each(|streams| stream_budget.on_streams_limited(*streams));
            assert_eq!(stream_budget.streams_max, streams_max, "{seen:?}");
            assert_eq!(stream_budget.is_reached(50), streams_max.is_some(), "{seen:?}");
            assert!(!stream_budget.is_reached(49), "{seen:?}");
        }
        let mut stream_budget = StreamBudget::default();
        (0..2).for_each(|_| stream_budget.on_streams_limited(50));
        (1..BUDGET_USES).for_each(|_| stream_budget.on_used());
        assert!(stream_budget.is_reached(50));
        stream_budget.on_used();
        assert!(!stream_budget.is_reached(50));
    }
}
