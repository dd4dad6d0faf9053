//! The budget for work that a peer causes beyond its requests.
//!
//! Every published attack on HTTP/2 makes a peer work for frames that are cheap to send: streams
//! opened and reset, settings and pings to be answered, header blocks in crumbs, indices that
//! expand to kilobytes, frames of nothing. So there is one account for each connection, whatever
//! the trick: such work is charged to it, useful work and time pay some back, and a peer that would
//! overdraw it gets ENHANCE_YOUR_CALM.
//!
//! Three things are not charged. Heads, streams, and answers that wait to be read have limits of
//! their own. A peer that does nothing at all, such as one that never opens its window, costs no
//! work: the caller's deadlines end that. And a frame with a byte of data is a legitimate frame: it
//! may be a keystroke in a terminal, and a proxy that forwards it must not end the connection that
//! other streams share. It costs no more than a chunk of HTTP/1, and earns nothing if it is tiny.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Limits;
use super::error::ConnectionError;

/// Work that a peer causes, and its price.
///
/// A request that runs to its end earns [`REQUEST_EARNS`]. A frame with data of an open stream, in
/// either direction, earns [`DATA_EARNS`] and one for each [`BYTES_EARNING_ONE`] bytes, which pay for
/// what comes along with data and for nothing else: PING, WINDOW_UPDATE, and frames of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Work {
    /// A stream that a client resets after it held it for a while: 1.
    Cancel,
    /// A CONTINUATION frame: 50. Header blocks fit in one frame, or a few.
    Continuation,
    /// A DATA frame of nothing that does not end its stream: 50.
    DataEmpty,
    /// A field of a head that is over its limits already, or 64 bytes that come from the table
    /// more than once: 1.
    Expansion,
    /// A frame of no use: of an unknown type, or for a stream that is closed: 5.
    Idle,
    /// A PING to be answered: 5.
    Ping,
    /// A PRIORITY frame: 20.
    Priority,
    /// A stream more than allowed: 20. Clients that do not wait for settings open many at once.
    Refused,
    /// A stream that a client resets soon after its head, before it was answered, or makes reset: 100.
    Reset,
    /// A SETTINGS frame: 100.
    Settings,
    /// A WINDOW_UPDATE, or an open stream whose window SETTINGS change: 5.
    WindowUpdate,
}

// A cancelled request costs us a request; it costs the client one of its streams for as long as it
// runs. Rapid reset is cheap because that is no time at all. Held for `early_reset_millis` and
// then reset, streams are as many as `streams_max` allows in that time, which is what a client may ask for
// anyway, and the price of 1 bounds them where `streams_max` is large.

/// The earning of a request that was answered to its end: enough for a reset, so that a client may
/// cancel every other request for ever, as Envoy allows it.
pub const REQUEST_EARNS: u32 = 100;

/// The earning of a DATA frame that is not tiny: enough for a PING and a WINDOW_UPDATE, which some
/// peers send for each.
pub const DATA_EARNS: u32 = 10;

/// Bytes of data that earn one more.
pub const BYTES_EARNING_ONE: u32 = 128;

/// Frames of fewer bytes earn nothing. A gRPC message without content has five.
pub const TINY_LEN: u32 = 5;

impl Work {
    const fn price(self) -> u32 {
        match self {
            Self::Cancel | Self::Expansion => 1,
            Self::Idle | Self::Ping | Self::WindowUpdate => 5,
            Self::Priority | Self::Refused => 20,
            Self::Continuation | Self::DataEmpty => 50,
            Self::Reset | Self::Settings => 100,
        }
    }

    /// Whether honest peers cause it by the data that goes to and fro.
    const fn comes_with_data(self) -> bool {
        matches!(self, Self::Idle | Self::Ping | Self::WindowUpdate)
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancel => "cancellations",
            Self::Continuation => "continuations",
            Self::DataEmpty => "empty data frames",
            Self::Expansion => "header expansion",
            Self::Idle => "useless frames",
            Self::Ping => "pings",
            Self::Priority => "priorities",
            Self::Refused => "streams more than allowed",
            Self::Reset => "resets",
            Self::Settings => "settings",
            Self::WindowUpdate => "window updates",
        })
    }
}

/// The account of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Budget {
    left: u32,
    /// Earnings from data that frames which come with data have not used yet.
    of_data: u32,
    max: u32,
    per_second: u32,
    /// Milliseconds that have passed and not been paid back for yet: less than a second.
    millis: u32,
    early_reset_millis: u32,
}

impl Budget {
    pub(super) fn new(limits: &Limits) -> Self {
        let Limits { work_max, work_per_second, early_reset_millis, .. } = *limits;
        Self {
            left: work_max,
            of_data: 0,
            max: work_max,
            per_second: work_per_second,
            millis: 0,
            early_reset_millis,
        }
    }

    pub(super) fn spend(&mut self, work: Work) -> Result<(), ConnectionError> {
        self.spend_times(work, 1)
    }

    pub(super) fn spend_times(&mut self, work: Work, times: u32) -> Result<(), ConnectionError> {
        let price = work.price().saturating_mul(times);
        let of_data = if work.comes_with_data() { price.min(self.of_data) } else { 0 };
        let left = self.left.checked_sub(price - of_data);
        self.left = left.ok_or(ConnectionError::TooMuchWork(work))?;
        self.of_data -= of_data;
        Ok(())
    }

    pub(super) fn on_request_finished(&mut self) {
        self.earn(REQUEST_EARNS);
    }

    /// A DATA frame of `len` bytes went in either direction, on a stream that is open.
    pub(super) fn on_data(&mut self, len: u32) {
        if len >= TINY_LEN {
            let earned = DATA_EARNS + len / BYTES_EARNING_ONE;
            self.of_data = self.of_data.saturating_add(earned).min(self.max);
        }
    }

    pub(super) fn on_time(&mut self, millis: u32) {
        let millis = self.millis.saturating_add(millis);
        self.millis = millis % 1_000;
        self.earn(self.per_second.saturating_mul(millis / 1_000));
    }

    /// A client resets a stream that it opened so many milliseconds ago, before its answer ended.
    pub(super) fn on_reset(&mut self, age_millis: u32) -> Result<(), ConnectionError> {
        let is_early = age_millis < self.early_reset_millis;
        self.spend(if is_early { Work::Reset } else { Work::Cancel })
    }

    fn earn(&mut self, amount: u32) {
        self.left = self.left.saturating_add(amount).min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_earned_again() {
        let limits = Limits { work_max: 250, work_per_second: 60, ..Limits::default() };
        let mut budget = Budget::new(&limits);
        budget.spend(Work::Reset).unwrap();
        budget.spend(Work::Reset).unwrap();
        let over = ConnectionError::TooMuchWork(Work::Reset);
        assert_eq!(budget.spend(Work::Reset), Err(over));
        budget.spend(Work::Continuation).unwrap();
        assert_eq!(budget.left, 0);
        budget.on_time(999);
        assert_eq!(budget.left, 0);
        budget.on_time(1_002);
        assert_eq!(budget.left, 120, "every whole second once");
        budget.spend(Work::Continuation).unwrap();
        budget.on_data(TINY_LEN - 1);
        budget.on_request_finished();
        budget.on_request_finished();
        assert_eq!(budget.left, 250, "and no more");
        budget.on_time(u32::MAX);
        assert_eq!(budget.left, 250);
    }

    #[test]
    fn a_reset_costs_by_how_long_the_stream_was_held() {
        let limits = Limits { work_max: 250, early_reset_millis: 40, ..Limits::default() };
        let mut budget = Budget::new(&limits);
        for (age, left) in [(0, 150), (39, 50), (40, 49), (1_000, 48), (u32::MAX, 47)] {
            budget.on_reset(age).unwrap();
            assert_eq!(budget.left, left, "{age}");
        }
        assert_eq!(budget.on_reset(39), Err(ConnectionError::TooMuchWork(Work::Reset)));
        // With 0 no reset is early.
        let limits = Limits { early_reset_millis: 0, ..limits };
        Budget::new(&limits).on_reset(0).unwrap();
    }

    #[test]
    fn data_pays_for_what_comes_with_it_alone() {
        let mut budget = Budget::new(&Limits { work_max: 250, ..Limits::default() });
        budget.on_data(TINY_LEN - 1);
        assert_eq!(budget.of_data, 0);
        budget.on_data(TINY_LEN);
        budget.on_data(1280);
        assert_eq!((budget.left, budget.of_data), (250, 30));
        budget.spend(Work::Reset).unwrap();
        assert_eq!((budget.left, budget.of_data), (150, 30));
        budget.spend_times(Work::Ping, 5).unwrap();
        assert_eq!((budget.left, budget.of_data), (150, 5));
        budget.spend_times(Work::WindowUpdate, 2).unwrap();
        assert_eq!((budget.left, budget.of_data), (145, 0));
        budget.on_data(u32::MAX);
        assert_eq!(budget.of_data, 250, "no more than all the rest");
    }
}
