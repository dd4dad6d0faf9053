//! A connection whose last bytes were sent waits until its peer has them.

use std::time::Duration;

use config::snapshot::Limits;
use telemetry::cause::Cause;

use crate::connection::delivery::Verdict;
use crate::connection::lingering::{LOOK_INTERVAL_MIN, lingering_of};
use crate::keys::ConnKey;
use crate::proxy::Proxy;
use crate::tools::time::Time;

impl Proxy {
    /// So many bytes that were sent on a connection, our FIN among them, are not acknowledged: the answer
    /// to [`Op::Undelivered`](crate::Op::Undelivered).
    pub fn on_undelivered(&mut self, key: ConnKey, bytes: usize, now: Time) {
        let Limits { linger_timeout, linger_max, .. } = self.cx.snapshot.limits;
        let Some(connection) = self.connections.get_mut(key) else { return };
        let timer = connection.timer;
        let Some(downstream) = connection.downstream() else { return };
        let listener = self.listen.listeners.get(downstream.listener).listener();
        let interval = linger_timeout.max(LOOK_INTERVAL_MIN);
        let looks = |span: Duration| {
            let looks = span.as_nanos().div_ceil(interval.as_nanos());
            u64::try_from(looks).unwrap_or(u64::MAX)
        };
        let bounds = (looks(listener.timeouts.response_write), looks(linger_max));
        let Some(lingering) = lingering_of(connection) else { return };
        let is_urgent = lingering.delivery.is_urgent;
        match lingering.delivery.look(bytes, bounds.0, bounds.1) {
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
