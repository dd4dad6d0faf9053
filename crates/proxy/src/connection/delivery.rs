//! What is known of a connection that lingers: what its peer has not acknowledged, and what may still come.
//!
//! How it is found out and what follows is in [`lingering`](super::lingering).

use serde::{Deserialize, Serialize};

/// How far the last bytes of a connection have come. Times are counted in looks, of which there is one
/// in each `limits.linger_timeout` behind the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delivery {
    /// What the peer had not acknowledged at the last look.
    undelivered: u32,
    looks: u16,
    /// Looks since it took anything.
    still: u16,
    /// Whether it said anything since the last look.
    has_spoken: bool,
    /// It has no more time: a drain is over.
    pub(crate) is_urgent: bool,
}

/// What becomes of a connection after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Delivered,
    Lost,
    Wait,
}

impl Delivery {
    /// The peer said something.
    pub(super) const fn on_spoken(&mut self) {
        self.has_spoken = true;
    }

    /// So many bytes are not acknowledged. `still_max` and `looks_max` count looks behind the first.
    pub(crate) fn look(&mut self, undelivered: usize, still_max: u64, looks_max: u64) -> Verdict {
        // What is left when all data is acknowledged is our FIN, which counts as one.
        let undelivered = match undelivered {
            0 | 1 => 0,
            n => u32::try_from(n).unwrap_or(u32::MAX),
        };
        let is_first = self.looks == 0;
        let before = std::mem::replace(&mut self.undelivered, undelivered);
        self.looks = self.looks.saturating_add(1);
        // The first look, which comes early, leaves what was said before it to the next.
        let has_spoken = !is_first && std::mem::take(&mut self.has_spoken);
        let has_moved = is_first || undelivered < before;
        self.still = if has_moved { 0 } else { self.still.saturating_add(1) };
        let is_over = self.is_urgent || u64::from(self.looks) > looks_max;
        let is_still = u64::from(self.still) >= still_max;
        match undelivered {
            // The peer's kernel has it since the last look; the peer may still have to read it.
            0 if (is_first || before > 0) && !is_over => Verdict::Wait,
            0 if has_spoken && !is_still && !is_over => Verdict::Wait,
            0 => Verdict::Delivered,
            _ if is_over || is_still => Verdict::Lost,
            _ => Verdict::Wait,
        }
    }
}

/// A connection whose codec reads nothing more: what comes is dropped, until the peer closes or has what
/// was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lingering {
    /// Bytes that are read at most.
    pub(super) left: u64,
    pub(crate) delivery: Delivery,
}

impl Lingering {
    /// Drops up to so many bytes.
    pub(crate) fn new(left: u64) -> Self {
        Self { left, delivery: Delivery::default() }
    }

    /// Bytes that are read at most.
    pub(crate) const fn left(&self) -> u64 {
        self.left
    }

    /// Bytes that the peer had not acknowledged at the last look.
    pub(crate) const fn undelivered(&self) -> u64 {
        self.delivery.undelivered as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gets_less_is_waited_for_and_what_does_not_is_lost() {
        use Verdict::{Delivered, Lost, Wait};
        for (what, looks, verdicts) in [
            ("all was there", &[1, 1][..], &[Wait, Delivered][..]),
            ("it gets there", &[900, 500, 1, 1], &[Wait, Wait, Wait, Delivered]),
            ("it stops", &[900, 500, 500, 500, 500], &[Wait, Wait, Wait, Wait, Lost]),
            ("it goes on", &[9, 9, 9, 8, 8, 8, 7], &[Wait, Wait, Wait, Wait, Wait, Wait, Wait]),
            (
                "it takes too long",
                &[10, 9, 8, 7, 6, 5, 4, 3, 2],
                &[Wait, Wait, Wait, Wait, Wait, Wait, Wait, Wait, Lost],
            ),
        ] {
            let mut delivery = Delivery::default();
            for (look, verdict) in looks.iter().zip(verdicts) {
                assert_eq!(delivery.look(*look, 3, 8), *verdict, "{what}: {look}");
            }
        }
        let mut chatty = Delivery::default();
        for verdict in [Wait, Wait, Wait, Delivered] {
            chatty.on_spoken();
            assert_eq!(chatty.look(1, 3, 8), verdict, "it speaks, and all was there");
        }
        let mut urgent = Delivery { is_urgent: true, ..Delivery::default() };
        urgent.on_spoken();
        assert_eq!(urgent.look(9, 3, 8), Lost);
        let mut urgent = Delivery { is_urgent: true, undelivered: 9, ..Delivery::default() };
        assert_eq!(urgent.look(1, 3, 8), Delivered);
    }
}
