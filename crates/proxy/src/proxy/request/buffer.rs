//! A request that is held until enough of its body is there.

use crate::exchange::request_buffer::LOOK_INTERVAL;
use crate::exchange::{ExchangeKind, Wait};
use crate::keys::ExchangeKey;
use crate::proxy::Proxy;
use crate::tools::time::Time;

impl Proxy {
    /// A piece of a body that waits here.
    pub(super) fn buffer_request_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let Some(request) = exchange.buffered_mut() else { return };
        request.push_data(data, &mut self.cx.buffers);
        let is_enough = exchange.progress.request_bytes >= exchange.request_buffer_bytes_max();
        if is_enough && exchange.kind != ExchangeKind::Rpc {
            self.end_buffering(key, now);
        }
    }

    /// The body is whole.
    pub(super) fn on_request_buffered(&mut self, key: ExchangeKey, trailers: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let Some(request) = exchange.buffered_mut() else { return };
        request.push_end(trailers, &mut self.cx.buffers);
        self.end_buffering(key, now);
    }

    /// A request has waited for a while: it goes on if connections are free again.
    pub(in crate::proxy) fn look_at_buffered(&mut self, key: ExchangeKey, now: Time) {
        if self
            .exchanges
            .get(key)
            .is_some_and(|exchange| exchange.is_short(&self.upstream.pools, &self.cx))
        {
            self.exchanges.push_back_deadline(
                key,
                Wait::Connection,
                now + LOOK_INTERVAL,
                &mut self.cx,
            );
        } else {
            self.end_buffering(key, now);
        }
    }

    /// Asks for a connection for a request that waited for its body.
    fn end_buffering(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let Some(request) = exchange.take_buffered() else { return };
        exchange.record.stamps.on_body(now);
        exchange.deadlines.clear(Wait::Connection);
        exchange.deadlines.clear(Wait::RequestBody);
        self.ask(key, request, None, now);
    }
}
