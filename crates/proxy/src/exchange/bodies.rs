//! Bodies as they come, either way: what is counted, and how long the next piece may take.

use crate::cx::Cx;
use crate::exchange::Wait;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::stage::Stage;
use crate::keys::ExchangeKey;
use crate::tools::rate::Rate;
use crate::tools::time::Time;

impl Exchanges {
    /// So many bytes of the response body came.
    pub(crate) fn count_response_data(&mut self, key: ExchangeKey, n: usize) {
        if let Some(exchange) = self.get_mut(key) {
            exchange.record.response_bytes += n as u64;
        }
    }

    /// Some of the response body came: how long the next piece may take.
    pub(crate) fn await_response_data(&mut self, key: ExchangeKey, now: Time, cx: &mut Cx) {
        let Some(exchange) = self.get_mut(key) else { return };
        let (wait, timeout) = exchange.silence();
        exchange.set_deadline(wait, now + timeout, cx);
    }
}

impl Exchanges {
    /// So many bytes of the request body came.
    pub(crate) fn count_request_data(&mut self, key: ExchangeKey, n: usize, now: Time) {
        let Some(exchange) = self.get_mut(key) else { return };
        exchange.record.stamps.on_body(now);
        // The upstream has to take them now, if it has room.
        if n > 0 {
            exchange.record.stamps.written = Time::NEVER;
        }
        exchange.progress.request_bytes += n as u64;
        // A client that sends the body does not wait for a 100 any more.
        exchange.request.expects_continue = false;
    }

    /// So many bytes of the request body came: how long the next piece may take.
    pub(crate) fn await_request_data(
        &mut self,
        key: ExchangeKey,
        n: usize,
        now: Time,
        cx: &mut Cx,
    ) {
        let Some(exchange) = self.get_mut(key) else { return };
        let (wait, timeout) = match exchange.stage() {
            Stage::Responding { .. } => exchange.silence(),
            Stage::Gathering { .. } | Stage::Buffering { .. } => {
                exchange.record.stamps.await_body(now);
                exchange.silence_of_client()
            }
            _ if exchange.is_conversation() => exchange.silence(),
            _ => exchange.silence_of_client(),
        };
        let deadline = match wait {
            Wait::RequestBody => {
                let rate_min = exchange.listener().http.request_rate_bytes_min;
                let (deadline, is_slow) = Rate { bytes_min: rate_min, timeout }.extend(
                    exchange.deadlines.get(wait),
                    n,
                    now,
                );
                exchange.is_request_slow = is_slow;
                deadline
            }
            _ => now + timeout,
        };
        exchange.set_deadline(wait, deadline, cx);
    }
}
