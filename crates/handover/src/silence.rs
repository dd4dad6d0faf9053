//! Whether the other process still runs: it sends `Alive` again and again where it has nothing else to send.
//!
//! A process that is stopped keeps its end of the connection, so only its silence shows. A process of an earlier version sends no
//! `Alive`; nothing is concluded from its silence here.

use std::time::Duration;

use crate::deadlines::later;

/// Between two `Alive`.
pub const ALIVE_INTERVAL: Duration = Duration::from_millis(250);

/// How long a process that sends `Alive` may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// What one look adds to the silence, at most. If more time has passed, this process was stopped itself, perhaps together with the
/// other one, which then needs time to send.
const LOOK_MAX: Duration = Duration::from_millis(250);

/// How long the other process has been silent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silence {
    /// When this process last looked; none as long as no `Alive` came.
    looked_at: Option<u64>,
    silent_ns: u64,
}

impl Silence {
    /// `Alive` came.
    pub(crate) const fn on_alive(&mut self, now: u64) {
        *self = Self { looked_at: Some(now), silent_ns: 0 };
    }

    /// Another frame came.
    pub(crate) const fn on_frame(&mut self) {
        self.silent_ns = 0;
    }

    /// Time has passed. Whether the other process has been silent for too long.
    pub(crate) fn on_time(&mut self, now: u64) -> bool {
        let Some(looked_at) = &mut self.looked_at else { return false };
        let passed = now.saturating_sub(*looked_at).min(later(0, LOOK_MAX));
        *looked_at = now;
        self.silent_ns = self.silent_ns.saturating_add(passed);
        self.silent_ns >= later(0, SILENCE_MAX)
    }

    /// When to look again.
    pub(crate) fn next_look(&self) -> Option<u64> {
        self.looked_at.map(|looked_at| later(looked_at, LOOK_MAX))
    }

    /// Whether the next `Alive` is due: as things are, the other process may run or not.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.looked_at.is_some() && self.silent_ns >= later(0, ALIVE_INTERVAL)
    }

    /// How long it has been.
    pub(crate) const fn so_far(&self) -> Duration {
        Duration::from_nanos(self.silent_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_process_that_never_sent_alive_may_be_silent() {
        let mut silence = Silence::default();
        silence.on_frame();
        assert!(!silence.on_time(u64::MAX));
        assert_eq!(silence.next_look(), None);
    }

    #[test]
    fn four_seconds_are_too_long() {
        let mut silence = Silence::default();
        silence.on_alive(0);
        let over = (1..).find(|look| silence.on_time(look * 100 * MS));
        assert_eq!(over, Some(40));
        silence.on_frame();
        assert!(!silence.on_time(4100 * MS));
    }

    #[test]
    fn time_in_which_this_process_was_stopped_does_not_count() {
        let mut silence = Silence::default();
        silence.on_alive(0);
        assert!(!silence.on_time(3_600_000 * MS));
        assert_eq!(silence.so_far(), LOOK_MAX);
        assert!(silence.is_in_doubt());
        silence.on_frame();
        assert!(!silence.is_in_doubt());
    }
}
