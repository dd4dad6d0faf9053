//! The deadlines of an exchange: which is next, and how they are set.

use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::{Exchange, Wait};
use crate::keys::ExchangeKey;
use crate::tools::time::Time;

impl Exchanges {
    /// Sets one of an exchange's deadlines.
    pub(crate) fn set_deadline(
        &mut self,
        key: ExchangeKey,
        wait: Wait,
        deadline: Time,
        cx: &mut Cx,
    ) {
        if let Some(exchange) = self.get_mut(key) {
            exchange.set_deadline(wait, deadline, cx);
        }
    }

    pub(crate) fn push_back_deadline(
        &mut self,
        key: ExchangeKey,
        wait: Wait,
        deadline: Time,
        cx: &mut Cx,
    ) {
        let Some(exchange) = self.get_mut(key) else { return };
        exchange.deadlines.set(wait, deadline);
        let (_, first) = exchange.deadlines.first();
        cx.timers.arm(exchange.timer, first);
    }

    /// All of the request was sent: how long the response's head may take. Of a call, the head may come
    /// with the first message, and that when the service has something to tell.
    #[inline]
    pub(crate) fn await_response_head(&mut self, key: ExchangeKey, now: Time, cx: &mut Cx) {
        let Some(exchange) = self.get_mut(key) else { return };
        let Some(cluster) = exchange.cluster() else { return };
        let (wait, timeout) = match exchange.call {
            None => (Wait::ResponseHead, cluster.timeouts.response_head),
            Some(_) => (Wait::TunnelIdle, exchange.listener().timeouts.tunnel_idle),
        };
        exchange.set_deadline(wait, now + timeout, cx);
    }
}

impl Exchange {
    /// Sets one of its deadlines.
    #[inline]
    pub(crate) fn set_deadline(&mut self, wait: Wait, deadline: Time, cx: &mut Cx) {
        self.deadlines.set(wait, deadline);
        // A timer that fires early looks which deadline is next, so only an earlier one is armed.
        if deadline < cx.timers.deadline(self.timer) {
            cx.timers.arm(self.timer, deadline);
        }
    }
}
