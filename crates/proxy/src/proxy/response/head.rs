//! Hop 8, backwards: what an upstream answers, from the head to the end of the body.

use config::memory::MemoryLevel;
use telemetry::cause::Cause;
use telemetry::events::TunnelStarted;
use wire::h1::ConnectionField;
use wire::head::{Framing, Method, ResponseHead, Version};

use crate::agenda::Note;
use crate::connection::Life;
use crate::connection::bounds::OUTBOX_BYTES_MAX;
use crate::connection::codec::elements::Answer;
use crate::exchange::encoding::announces_trailers;
use crate::exchange::{Exchange, Wait};
use crate::keys::{ExchangeKey, StreamKey, label};
use crate::proxy::Proxy;
use crate::proxy::receive::elements::Following;
use crate::tools::detail::Detail;
use crate::tools::sent::Sent;
use crate::tools::time::Time;

impl Proxy {
    /// A 1xx response other than 101: passed on to those who can understand it.
    pub(in crate::proxy) fn on_interim_response(
        &mut self,
        key: ExchangeKey,
        head: &ResponseHead<'_>,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let max = exchange.cluster().map_or(0, |cluster| cluster.interim_responses_max);
        if exchange.progress.interim_responses >= max {
            let words =
                format_args!("interim_responses_max of the cluster: {max}, and one more came");
            self.exchanges.note_detail(key, || Detail::of(&words));
            return self.fail_attempt(key, Cause::ResponseInvalid, now);
        }
        exchange.progress.interim_responses += 1;
        if head.status() == 100 {
            exchange.request.expects_continue = false;
        }
        if exchange.request.version == Version::Http10 {
            return;
        }
        let downstream = exchange.downstream;
        self.connections.send_interim(downstream, head, &mut self.cx);
    }

    /// The final response's head.
    pub(in crate::proxy) fn on_response_head(
        &mut self,
        upstream: StreamKey,
        exchange_key: ExchangeKey,
        head: &mut ResponseHead<'_>,
        following: Following,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.table.get_mut(exchange_key) else { return };
        let received = exchange.on_call_response(head, following.is_end);
        exchange.add_made_cookie(head, &mut self.cx);
        if exchange.has_edits() {
            exchange.edit_response(head, None, &self.connections, &mut self.cx, now);
        }
        let gather_bytes_max = exchange.run_response_chain(head, &mut self.cx);
        if self.cx.emitter.is_debug() {
            let words = format_args!("response {} over {upstream}", head.status());
            self.cx.debug(exchange.downstream, words, now);
        }
        if exchange.record.captures.is_some() {
            exchange.record.capture_response(&exchange.snapshot.access_log.captures, head);
        }
        exchange.on_answered(head, &mut self.upstream.pools, &mut self.cx, now);
        exchange.deadlines.clear(Wait::ResponseHead);
        exchange.deadlines.clear(Wait::Try);
        // From here on either side may be silent while the other speaks.
        exchange.deadlines.clear(Wait::RequestBody);
        exchange.begin_responding(upstream);
        exchange.end_stall(&mut self.exchanges.stalls);
        match gather_bytes_max {
            Some(bytes_max) => {
                self.exchanges.hold_response(exchange_key, head, bytes_max, &mut self.cx);
            }
            None => self.begin_response(exchange_key, head, received, following),
        }
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        connection.forget_request(upstream.slot, &mut self.cx.buffers);
        if upstream.is_alone() {
            connection.note_reusable(head);
        }
        if following.is_end {
            self.on_response_end(upstream, exchange_key, &[], following.bytes == 0, now);
        } else {
            self.exchanges.await_response_data(exchange_key, now, &mut self.cx);
        }
    }

    /// Sends a response's head to the downstream.
    pub(in crate::proxy) fn begin_response(
        &mut self,
        key: ExchangeKey,
        head: &ResponseHead<'_>,
        received: Framing,
        following: Following,
    ) {
        let Following { bytes: behind, is_end } = following;
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let version = exchange.request.version;
        let framing = match (received, version) {
            (Framing::Chunked, Version::Http10) => Framing::UntilClose,
            (Framing::UntilClose, Version::Http11) => Framing::Chunked,
            // Only the chunked coding has a place for trailers.
            (Framing::Length(_), Version::Http11) if !is_end && has_late_trailers(head) => {
                Framing::Chunked
            }
            (framing, _) => framing,
        };
        exchange.record.status = head.status();
        exchange.progress.has_response = true;
        let downstream = exchange.downstream;
        let field = self.settle_life(key, framing);
        self.connections.send_response(
            downstream,
            &Answer { head, version, framing, field, behind, is_end },
            &mut self.cx,
        );
    }

    /// Decides what becomes of the downstream connection after a response, and how to say it.
    pub(super) fn settle_life(&mut self, key: ExchangeKey, framing: Framing) -> ConnectionField {
        let Some(exchange) = self.exchanges.get(key) else { return ConnectionField::Close };
        let (key, request) = (exchange.downstream.connection, &exchange.request);
        if !exchange.downstream.is_alone() {
            // Other streams live on.
            return ConnectionField::Default;
        }
        let Some(connection) = self.connections.get_mut(key) else {
            return ConnectionField::Close;
        };
        let is_near_limit = connection.is_key_near_limit();
        let Some(downstream) = connection.downstream_mut() else { return ConnectionField::Close };
        let is_draining = self.listen.is_draining(downstream, &self.cx)
            || downstream.is_aged
            || is_near_limit
            || self.cx.memory.level >= MemoryLevel::High;
        // A client that waits for leave to send a body may send it or not: which is not known
        // of its bytes would begin the next request.
        let is_ambiguous = request.expects_continue && !request.is_complete;
        // What it sent behind its CONNECT was for the tunnel (RFC 9110, section 9.3.6).
        let is_tunnel_refused = request.method == Method::Connect;
        if downstream.life == Life::Open {
            if !request.is_persistent {
                downstream.life = Life::CloseWhenSent;
            } else if is_draining
                || is_ambiguous
                || is_tunnel_refused
                || framing == Framing::UntilClose
            {
                downstream.life = Life::LingerWhenSent;
            }
        }
        match (downstream.life, request.version) {
            (Life::Open, Version::Http11) => ConnectionField::Default,
            (Life::Open, Version::Http10) => ConnectionField::KeepAlive,
            _ => ConnectionField::Close,
        }
    }

    /// 101: from here on both connections carry bytes that belong to neither head.
    pub(in crate::proxy) fn on_switching_protocols(
        &mut self,
        upstream: StreamKey,
        exchange_key: ExchangeKey,
        head: &mut ResponseHead<'_>,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        // In HTTP/2 there is one protocol that was asked for, and none is named in the answer.
        let is_allowed = !upstream.is_alone()
            || head.upgrade().is_some_and(|protocols| exchange.allows_upgrade(protocols));
        let is_asked = !exchange.downstream.is_alone() || exchange.request.is_complete;
        if !exchange.request.asks_upgrade || !is_asked || !is_allowed {
            let words = "a protocol switch that was not requested";
            self.exchanges.note_detail(exchange_key, || Detail::of(&words));
            return self.fail(exchange_key, Cause::ResponseInvalid, now);
        }
        if let Some(handshake) = &exchange.handshake {
            head.set_status(101);
            head.set_upgrade(&handshake.protocol);
            if let Some(accept) = &handshake.accept {
                head.append(b"sec-websocket-accept", accept);
            }
        }
        exchange.add_made_cookie(head, &mut self.cx);
        if exchange.has_edits() {
            exchange.edit_response(head, None, &self.connections, &mut self.cx, now);
        }
        exchange.run_response_chain(head, &mut self.cx);
        // In HTTP/2 a tunnel begins with 200 (RFC 8441, section 5).
        exchange.record.status = if exchange.downstream.is_alone() { head.status() } else { 200 };
        exchange.progress.has_response = true;
        exchange.progress.is_tunnel = true;
        exchange.on_tunnel(&mut self.cx);
        let listener = label(exchange.listener().id.0);
        self.cx.emitter.tunnel_started(&TunnelStarted { listener });
        let was_complete = std::mem::take(&mut exchange.request.is_complete);
        exchange.begin_responding(upstream);
        exchange.deadlines = crate::exchange::Deadlines::default();
        let downstream = exchange.downstream;
        let timeout = exchange.listener().timeouts.tunnel_idle;
        self.exchanges.set_deadline(exchange_key, Wait::TunnelIdle, now + timeout, &mut self.cx);
        if let Some(connection) = self.connections.get_mut(upstream.connection) {
            connection.forget_request(upstream.slot, &mut self.cx.buffers);
        }
        self.connections.send_switching(downstream, head, &mut self.cx);
        for side in [upstream, downstream] {
            self.connections.begin_bytes(side);
        }
        if !downstream.is_alone() && was_complete {
            return self.on_request_end(exchange_key, &[], now);
        }
        self.cx.agenda.push(Note::Resume(downstream));
    }

    /// A piece of the response body; with the last one, the end follows at once.
    #[inline]
    pub(in crate::proxy) fn on_response_data(
        &mut self,
        key: ExchangeKey,
        data: &[u8],
        is_last: bool,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.record.response_bytes += data.len() as u64;
        if exchange.call.is_none() {
            return self.pass_response_data(key, data, is_last, now);
        }
        self.translate_response(key, data, |proxy, data| {
            proxy.pass_response_data(key, data, is_last, now);
        });
    }

    /// A piece of the response body as it goes on.
    #[inline]
    fn pass_response_data(&mut self, key: ExchangeKey, data: &[u8], is_last: bool, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        // Of a tunnel the other way goes on, and what is said either way counts for both.
        if !is_last || exchange.progress.is_tunnel {
            let (wait, timeout) = exchange.silence();
            exchange.set_deadline(wait, now + timeout, &mut self.cx);
        }
        if exchange.detached.is_some() {
            return self.exchanges.take_detached_data(key, data, &mut self.cx);
        }
        exchange.show_response_data(data);
        let (downstream, is_held) = (exchange.downstream, exchange.held.is_some());
        if is_held {
            return self.gather_response_data(key, data, now);
        }
        if self.connections.send_data(downstream, data, &mut self.cx) >= OUTBOX_BYTES_MAX {
            self.exchanges.on_response_stalled(key, now);
        }
    }

    /// The response is whole. `is_last`: no bytes came behind it.
    pub(in crate::proxy) fn on_response_end(
        &mut self,
        upstream: StreamKey,
        exchange_key: ExchangeKey,
        trailers: &[u8],
        is_last: bool,
        now: Time,
    ) {
        // The last piece of the body may have been one too many.
        let is_over = |exchange: &Exchange| exchange.upstream() != Some(upstream);
        if self.exchanges.get(exchange_key).is_none_or(is_over)
            || !self.release_response(exchange_key, now)
        {
            return;
        }
        let is_said = self.end_call_response(exchange_key, trailers, |proxy, data| {
            proxy.pass_response_data(exchange_key, data, true, now);
        });
        let trailers = if is_said { &[] } else { trailers };
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        exchange.on_answer_over(&mut self.cx);
        exchange.record.stamps.response_read = now;
        exchange.deadlines.clear(Wait::ResponseBody);
        if !exchange.progress.is_tunnel {
            exchange.deadlines.clear(Wait::TunnelIdle);
        }
        let (downstream, is_tunnel) = (exchange.downstream, exchange.progress.is_tunnel);
        let is_request_complete = exchange.request.is_complete;
        let is_sent = self.connections.send_end(downstream, trailers, &mut self.cx);
        if is_tunnel {
            if let Some(connection) = self.connections.get_mut(upstream.connection) {
                connection.codec.complete_read();
            }
            if let Some(exchange) = self.exchanges.get_mut(exchange_key) {
                exchange.progress.is_response_complete = true;
            }
        } else {
            if let Some(exchange) = self.exchanges.table.get_mut(exchange_key) {
                exchange.begin_finishing();
                exchange.let_go(
                    &mut self.listen.clients,
                    &mut self.exchanges.stalls,
                    &mut self.upstream.pools,
                );
            }
            if !is_request_complete {
                if let Some(exchange) = self.exchanges.get_mut(exchange_key) {
                    exchange.deadlines.clear(Wait::RequestBody);
                }
                self.connections.discard_request(downstream, &self.cx);
            }
            self.release(upstream, is_last && is_request_complete, now);
        }
        if is_sent && downstream.is_alone() {
            self.on_downstream_sent(downstream.connection, Sent::nothing(now), now);
        } else if is_sent {
            self.on_response_sent(exchange_key, Sent::nothing(now), true, now);
        }
    }
}

/// Whether trailers may come behind a body whose length is known.
fn has_late_trailers(head: &ResponseHead<'_>) -> bool {
    head.version() == Version::Http2 && announces_trailers(head)
}
