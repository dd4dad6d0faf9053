//! The end of a downstream connection: our side is shut, and what the kernel has of it still goes out.
//!
//! A socket that is closed while its peer speaks is reset, and the bytes that the kernel had for the
//! peer are lost, though they were counted as sent. Megabytes of them may wait for one that reads
//! slowly. So a connection lingers: what the peer says is read and dropped, within a bound, and the
//! worker is asked every while how much the peer has not acknowledged ([`Op::Undelivered`]). As long as
//! that gets less the connection stays, up to `limits.linger_max`; what is lost in the end is counted.
//! When all is acknowledged the connection stays for `limits.linger_timeout` behind the look that found it so:
//! the first look comes early, since nothing is known of what was acknowledged before it.
//!
//! What is acknowledged may still wait in the peer's kernel, behind which the peer has not seen our FIN. It
//! shows by what it says (windows, PINGs), and to close then would be a reset again, on which some systems
//! drop what their program has not read. So the connection stays while the peer speaks, for
//! `timeouts.response_write` behind the last acknowledgement. A peer that is refused has no such time.

use std::time::Duration;

use config::snapshot::Limits;
use serde::{Deserialize, Serialize};
use telemetry::cause::Cause;

use crate::connection::connections::Connections;
use crate::connection::{ConnKey, Connection, Life, Receive};
use crate::cx::Cx;
use crate::exchange::downstream::Step;
use crate::listen::Listen;
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::tools::time::Time;

/// The least time between two looks at what is not delivered, and the longest before the first.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(250);

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
    is_urgent: bool,
}

/// What becomes of a connection after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Delivered,
    Lost,
    Wait,
}

impl Delivery {
    /// Bytes that the peer had not acknowledged at the last look.
    pub(crate) const fn undelivered(self) -> u64 {
        self.undelivered as u64
    }

    /// The peer said something.
    pub(crate) const fn on_spoken(&mut self) {
        self.has_spoken = true;
    }

    /// So many bytes are not acknowledged. `still_max` and `looks_max` count looks behind the first.
    fn look(&mut self, undelivered: usize, still_max: u64, looks_max: u64) -> Verdict {
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

impl Receive {
    /// Whatever still comes, up to so many bytes.
    pub(crate) fn linger(left: u64) -> Self {
        Self::Linger { left, delivery: Delivery::default() }
    }
}

impl Cx {
    /// A connection has lingered for a while.
    pub(crate) fn on_lingered(&mut self, key: ConnKey) {
        self.ops.push_back(Op::Undelivered(key));
    }
}

impl Connections {
    /// A connection that lingers has to end now; says whether it is one.
    pub(crate) fn hasten_lingering(&mut self, key: ConnKey, cx: &mut Cx) -> bool {
        let Some(connection) = self.get_mut(key) else { return false };
        if !is_lingering(connection) {
            return false;
        }
        if let Receive::Linger { delivery, .. } = &mut connection.receive {
            delivery.is_urgent = true;
        }
        cx.ops.push_back(Op::Undelivered(key));
        true
    }
}

impl Connections {
    /// Shuts our side and reads on for a while.
    pub(crate) fn linger(&mut self, key: ConnKey, now: Time, listen: &mut Listen, cx: &mut Cx) {
        let Some(connection) = self.get_mut(key) else { return };
        if connection.is_read_closed {
            return self.close_downstream(key, None, now, listen, cx);
        }
        let Limits { discard_bytes_max, linger_timeout, .. } = cx.snapshot.limits;
        if !matches!(connection.receive, Receive::Linger { .. }) {
            connection.receive = Receive::linger(discard_bytes_max);
        }
        if let Some(inbox) = connection.inbox.take() {
            cx.buffers.give_back(inbox);
        }
        if let Some(downstream) = connection.downstream_mut() {
            downstream.life = Life::Lingering;
        }
        cx.timers.arm(connection.timer, now + linger_timeout.min(LOOK_INTERVAL_MIN));
        self.shut(key, cx);
        cx.ops.push_back(Op::Read(key));
    }

    pub(crate) fn on_lingering_bytes(&mut self, key: ConnKey, input: &[u8]) -> Step {
        let Some(connection) = self.get_mut(key) else { return Step::Wait(0) };
        let is_refused = connection.downstream().is_some_and(|it| it.life == Life::Refused);
        if let Receive::Linger { left, delivery } = &mut connection.receive {
            // At the bound nothing more is read, and the peer stops; closing now would be a reset
            // that could overtake our last bytes.
            *left = left.saturating_sub(input.len() as u64);
            if !is_refused {
                delivery.on_spoken();
            }
        }
        Step::Took(input.len())
    }
}

impl Proxy {
    /// So many bytes that were sent on a connection, our FIN among them, are not acknowledged: the answer
    /// to [`Op::Undelivered`].
    pub fn on_undelivered(&mut self, key: ConnKey, bytes: usize, now: Time) {
        let Limits { linger_timeout, linger_max, .. } = self.cx.snapshot.limits;
        let Some(connection) = self.connections.get_mut(key).filter(|it| is_lingering(it)) else {
            return;
        };
        let timer = connection.timer;
        let Some(downstream) = connection.downstream() else { return };
        let listener = self.listen.listeners.get(downstream.listener).listener();
        let interval = linger_timeout.max(LOOK_INTERVAL_MIN);
        let looks = |span: Duration| {
            let looks = span.as_nanos().div_ceil(interval.as_nanos());
            u64::try_from(looks).unwrap_or(u64::MAX)
        };
        let bounds = (looks(listener.timeouts.response_write), looks(linger_max));
        let Receive::Linger { delivery, .. } = &mut connection.receive else { return };
        let is_urgent = delivery.is_urgent;
        match delivery.look(bytes, bounds.0, bounds.1) {
            Verdict::Wait => self.cx.timers.arm(timer, now + interval),
            Verdict::Delivered => {
                self.close_downstream(key, None, now);
            }
            Verdict::Lost => {
                self.listen.cut_off += u32::from(is_urgent);
                self.close_downstream(key, Some(Cause::ResponseUndelivered), now);
            }
        }
        self.settle(now);
    }
}

fn is_lingering(connection: &Connection) -> bool {
    matches!(connection.receive, Receive::Linger { .. })
        && connection
            .downstream()
            .is_some_and(|downstream| matches!(downstream.life, Life::Lingering | Life::Refused))
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
