//! Downstream connections that are to end soon, since they are old enough or a drain began: with GOAWAY, or by a
//! timer where they are silent.

use crate::connection::Downstream;
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::keys::ConnKey;
use crate::listen::drain::DRAIN_IDLE;
use crate::tools::time::Time;

impl Connections {
    /// Asks the client of a connection to connect again: at once if that can be said, else with its next
    /// response.
    pub(crate) fn on_aged(&mut self, key: ConnKey, now: Time, cx: &mut Cx) {
        let Some(connection) = self.get_mut(key) else { return };
        let timer = connection.timer;
        let is_multiplexed = connection.multiplex().is_some();
        let Some(downstream) = connection.downstream_mut() else { return };
        downstream.is_aged = true;
        let is_idle = downstream.exchange.is_none();
        let deadline = now + DRAIN_IDLE;
        if is_multiplexed {
            self.begin_goaway(key, now, cx);
        } else if is_idle && deadline < cx.timers.deadline(timer) {
            // It may be about to ask, and is answered with `connection: close` then.
            cx.timers.arm(timer, deadline);
        }
    }

    /// Connections of a drain that are silent end soon.
    pub(crate) fn hasten_idle(
        &mut self,
        now: Time,
        concerns: impl Fn(&Downstream) -> bool,
        cx: &mut Cx,
    ) {
        let deadline = now + DRAIN_IDLE;
        let mut multiplexed = Vec::new();
        for (key, connection) in self.table.iter() {
            let Some(downstream) = connection.downstream() else { continue };
            if !concerns(downstream) {
                continue;
            }
            if connection.multiplex().is_some() {
                multiplexed.push(key);
            } else if downstream.exchange.is_none()
                && deadline < cx.timers.deadline(connection.timer)
            {
                cx.timers.arm(connection.timer, deadline);
            }
        }
        for key in multiplexed {
            self.begin_goaway(key, now, cx);
        }
    }
}
