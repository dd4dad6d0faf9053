//! Hop 8: the body of a request on its way to the upstream.
//!
//! Data, ends and resets go to the other side's connection, which frames them as it needs.

use telemetry::cause::Cause;

use crate::exchange::stage::Stage;
use crate::exchange::{Exchange, Wait};
use crate::keys::{ExchangeKey, StreamKey};
use crate::proxy::Proxy;
use crate::tools::sent::Sent;
use crate::tools::time::Time;

impl Proxy {
    /// A piece of the request body.
    pub(in crate::proxy) fn on_request_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        self.exchanges.count_request_data(key, data.len(), now);
        let Some(exchange) = self.exchanges.get(key) else { return };
        let bytes_max = exchange.listener().http.body_bytes_max;
        if !exchange.progress.is_tunnel
            && bytes_max.is_some_and(|max| exchange.progress.request_bytes > max)
        {
            return self.fail(key, Cause::RequestBodyTooLarge, now);
        }
        if exchange.call.is_none() {
            return self.pass_request_data(key, data, now);
        }
        let pass = |proxy: &mut Self, data: &[u8]| proxy.pass_request_data(key, data, now);
        if let Err(cause) = self.translate_request(key, data, pass) {
            self.fail(key, cause, now);
        }
    }

    /// A piece of the request body as it goes on.
    fn pass_request_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.show_request_data(data);
        if exchange.copies.is_some() {
            self.exchanges.copy_request_data(key, data, &mut self.cx);
        }
        let exchange = self.exchanges.get(key).expect("filling copies ends no exchange");
        let is_gathering = matches!(exchange.stage(), Stage::Gathering { .. });
        let is_buffering = matches!(exchange.stage(), Stage::Buffering { .. });
        let (upstream, has_retries) = (exchange.upstream(), exchange.progress.has_retries);
        if is_gathering || is_buffering || upstream.is_some() {
            self.exchanges.await_request_data(key, data.len(), now, &mut self.cx);
        }
        if is_buffering {
            return self.buffer_request_data(key, data, now);
        }
        if is_gathering {
            return self.gather_request_data(key, data, now);
        }
        let Some(upstream) = upstream else { return };
        if has_retries {
            self.bound_kept_request(key, upstream);
        }
        if self.exchanges.get(key).is_some_and(Exchange::moves_on) {
            self.exchanges.restart_stall(key, now);
        }
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        if connection.is_send_broken {
            // The upstream takes nothing more, but may have answered: the rest is dropped.
            return connection.forget_body(upstream.slot, &mut self.cx.buffers);
        }
        self.connections.send_data(upstream, data, &mut self.cx);
    }

    /// The end of the request, with its trailer section.
    pub(in crate::proxy) fn on_request_end(
        &mut self,
        key: ExchangeKey,
        trailers: &[u8],
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        exchange.request.is_complete = true;
        exchange.on_request_whole(now);
        exchange.record.stamps.on_body(now);
        exchange.deadlines.clear(Wait::RequestBody);
        if !matches!(exchange.stage(), Stage::Responding { .. }) {
            exchange.end_stall(&mut self.exchanges.stalls);
        }
        let is_tunnel = exchange.progress.is_tunnel;
        if !is_tunnel && !matches!(exchange.stage(), Stage::Responding { .. }) {
            exchange.deadlines.clear(Wait::TunnelIdle);
        }
        let upstream = exchange.upstream();
        if exchange.progress.has_retries && matches!(exchange.stage(), Stage::Attempting { .. }) {
            exchange.begin_try(now, &mut self.cx);
        }
        let has_call = exchange.call.is_some();
        if let Some(downstream) = self.connections.get_mut(exchange.downstream.connection) {
            downstream.codec.complete_read();
        }
        if has_call && let Err(cause) = self.exchanges.end_call_request(key) {
            return self.fail(key, cause, now);
        }
        let mut room = Vec::new();
        let trailers = match self.exchanges.screen_trailers(key, trailers, &mut room, &mut self.cx)
        {
            Ok(trailers) => trailers,
            Err(cause) => return self.fail(key, cause, now),
        };
        let exchange = self.exchanges.get(key).expect("looking at trailers ends no exchange");
        if exchange.copies.is_some() {
            self.exchanges.send_copies(key, trailers, now, &mut self.cx);
        }
        let exchange = self.exchanges.get(key).expect("sending copies ends no exchange");
        if matches!(exchange.stage(), Stage::Gathering { .. }) {
            return self.on_request_gathered(key, trailers, now);
        }
        if matches!(exchange.stage(), Stage::Buffering { .. }) {
            return self.on_request_buffered(key, trailers, now);
        }
        let Some(upstream) = upstream else { return };
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        if connection.is_send_broken {
            return connection.forget_body(upstream.slot, &mut self.cx.buffers);
        }
        let is_connecting = connection.is_connecting();
        let is_sent = self.connections.send_end(upstream, trailers, &mut self.cx);
        if is_sent && !is_connecting && upstream.is_alone() {
            self.on_upstream_sent(upstream.connection, Sent::nothing(now), now);
        }
        if is_tunnel {
            self.finish_tunnel(key, now);
        }
    }

    /// Reads on, on a connection or a stream.
    pub(in crate::proxy) fn resume_source(&mut self, source: StreamKey, now: Time) {
        if source.is_alone() {
            self.resume_inbox(source.connection, now);
        } else {
            self.resume_stream(source, now);
        }
    }
}
