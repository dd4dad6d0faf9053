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

use crate::connection::connections::Connections;
use crate::connection::delivery::Lingering;
use crate::connection::reading::Step;
use crate::connection::{Connection, Life};
use crate::cx::Cx;
use crate::keys::ConnKey;
use crate::listen::Listen;
use crate::ops::Op;
use crate::tools::time::Time;

/// The least time between two looks at what is not delivered, and the longest before the first.
pub(crate) const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(250);

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
        let Some(lingering) = lingering_of(connection) else { return false };
        lingering.delivery.is_urgent = true;
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
        if let Some(inbox) = connection.inbox.take() {
            cx.buffers.give_back(inbox);
        }
        if let Some(downstream) = connection.downstream_mut() {
            downstream.life = Life::Lingering;
            downstream.lingering.get_or_insert_with(|| Box::new(Lingering::new(discard_bytes_max)));
        }
        cx.timers.arm(connection.timer, now + linger_timeout.min(LOOK_INTERVAL_MIN));
        self.shut(key, cx);
        cx.ops.push_back(Op::Read(key));
    }

    pub(crate) fn on_lingering_bytes(&mut self, key: ConnKey, input: &[u8]) -> Step {
        let downstream = self.get_mut(key).and_then(Connection::downstream_mut);
        let Some(downstream) = downstream else { return Step::Wait(0) };
        let is_refused = downstream.life == Life::Refused;
        if let Some(lingering) = &mut downstream.lingering {
            // At the bound nothing more is read, and the peer stops; closing now would be a reset
            // that could overtake our last bytes.
            lingering.left = lingering.left.saturating_sub(input.len() as u64);
            if !is_refused {
                lingering.delivery.on_spoken();
            }
        }
        Step::Took(input.len())
    }
}

/// What is left of a connection whose side is shut, while its peer may still speak.
pub(crate) fn lingering_of(connection: &mut Connection) -> Option<&mut Lingering> {
    let downstream = connection.downstream_mut()?;
    let is_shut = matches!(downstream.life, Life::Lingering | Life::Refused);
    downstream.lingering.as_deref_mut().filter(|_| is_shut)
}
