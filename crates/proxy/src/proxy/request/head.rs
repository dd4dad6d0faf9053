//! Hop 5: a request's head is judged, and goes through filters.

use std::num::NonZeroU32;

use config::memory::MemoryLevel;
use telemetry::cause::Cause;
use wire::head::{Framing, Known, Method, RequestHead};

use crate::connection::transport::Tls;
use crate::exchange::request_fields::{Prepared, prepare};
use crate::exchange::{ExchangeKind, lookalikes, route};
use crate::filter::filter_chain::FilterStep;
use crate::keys::{ExchangeKey, label};
use crate::listen::clients::Part;
use crate::proxy::Proxy;
use crate::tools::time::Time;

impl Proxy {
    /// Hop 5: a whole request head.
    pub(in crate::proxy) fn on_request_head(
        &mut self,
        key: ExchangeKey,
        head: &mut RequestHead<'_>,
        now: Time,
    ) {
        if head.rpc().is_some() {
            return self.on_call_head(key, head, now);
        }
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let Some(connection) = self.connections.get(exchange.downstream.connection) else {
            return;
        };
        let listener = exchange.listener();
        let facts = crate::exchange::forwarded::ForwardedFacts {
            peer: &connection.peer,
            local: &connection.local,
            options: &listener.http,
            is_secure: connection.tls.is_some(),
            is_early: connection.tls.as_deref().is_some_and(Tls::is_early),
            client_cert: connection.tls.as_deref().and_then(Tls::client_cert),
        };
        // RFC 8470, section 4. What follows a change of protocols is not read here, and cannot be judged.
        let is_too_early = facts.is_early && !(head.method().is_safe() && head.upgrade().is_none());
        let is_misdirected = route::is_misdirected(exchange, connection, head);
        let has_filters = !listener.filters.is_empty();
        let exchanges_max = listener.exchanges_per_client_max;
        let listener_id = listener.id;
        let (random, scratch) = (&mut self.cx.random, &mut self.cx.scratch);
        let Prepared { dropped, client } = prepare(head, &facts, random, scratch);
        let body_bytes_max = listener.http.body_bytes_max.unwrap_or(u64::MAX);
        exchange.record.client = client;
        if client.is_some() {
            // The one that a trusted hop named.
            self.listen.clients.remove(exchange.client, Part::Exchange);
            (exchange.client, _) = self.listen.clients.enter(client, listener_id, Part::Exchange);
        }
        let has_too_many = self.listen.has_too_many(exchange.client, exchanges_max, &self.cx);
        exchange.record_head(head, &mut self.cx, now);
        let has_unknown_expectation =
            head.field(Known::Expect).is_some() && !head.expects_continue();
        let is_too_large = matches!(head.framing(), Framing::Length(n) if n > body_bytes_max);
        let counts = dropped.unwrap_or_default();
        if counts != lookalikes::Dropped::default() {
            self.cx.count_dropped(label(listener_id.0), counts);
        }
        if let Err(cause) = dropped {
            self.fail(key, cause, now);
        } else if self.cx.memory.level >= MemoryLevel::High {
            self.refuse_overloaded(key, now);
        } else if has_too_many {
            self.refuse_client(key, now);
        } else if is_too_early {
            self.fail(key, Cause::RequestTooEarly, now);
        } else if is_misdirected {
            self.fail(key, Cause::RequestMisdirected, now);
        } else if has_unknown_expectation {
            let asked = head.field(Known::Expect).unwrap_or_default();
            let words = format_args!("expect: {}", asked.escape_ascii());
            self.fail_with(key, Cause::RequestExpectationUnknown, &words, now);
        } else if is_too_large {
            self.fail(key, Cause::RequestBodyTooLarge, now);
        } else if is_last_hop(head) {
            self.reply_as_last(key, head.method(), now);
        } else {
            if let Err(max) = exchange.take_listener_request(self.cx.share) {
                return self.refuse_overflow(key, max, now);
            }
            exchange.begin_call(head);
            if !has_filters {
                return self.route(key, head, now);
            }
            exchange.begin_chain();
            self.run_filters(key, head, FilterStep::Head(0), now);
        }
    }

    /// Hop 5 for a call of RPC, of which HTTP's rules say nothing.
    #[inline(never)]
    fn on_call_head(&mut self, key: ExchangeKey, head: &mut RequestHead<'_>, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.kind = ExchangeKind::Rpc;
        exchange.record_head(head, &mut self.cx, now);
        let connection = self.connections.get(exchange.downstream.connection);
        let tls = connection.and_then(|connection| connection.tls.as_deref());
        let exchanges_max = exchange.listener().exchanges_per_client_max;
        if self.cx.memory.level >= MemoryLevel::High {
            self.refuse_overloaded(key, now);
        } else if self.listen.has_too_many(exchange.client, exchanges_max, &self.cx) {
            self.refuse_client(key, now);
        } else if tls.is_some_and(Tls::is_early) {
            // Who recorded it may send it again, and nothing says that this is harmless.
            self.fail(key, Cause::RequestTooEarly, now);
        } else if let Err(max) = exchange.take_listener_request(self.cx.share) {
            self.refuse_overflow(key, max, now);
        } else {
            exchange.begin_chain();
            self.run_filters(key, head, FilterStep::Head(0), now);
        }
    }

    /// The client has as many exchanges under way as it may.
    #[cold]
    fn refuse_client(&mut self, key: ExchangeKey, now: Time) {
        let max = self.exchanges.get(key).and_then(|it| it.listener().exchanges_per_client_max);
        let max = max.map_or(0, NonZeroU32::get);
        let own = self.cx.share.of(max);
        let words = format_args!(
            "exchanges_per_client_max of the listener: {max}, of which the client's worker has {own}"
        );
        self.fail_with(key, Cause::ClientExchangesOverflow, &words, now);
    }

    /// The listener has as many requests under way as it may.
    #[cold]
    fn refuse_overflow(&mut self, key: ExchangeKey, max: NonZeroU32, now: Time) {
        let words = format_args!("requests_max of the listener: {max}");
        self.fail_with(key, Cause::RequestsOverflow, &words, now);
    }
}

/// Whether `Max-Forwards` ends the request's way here (RFC 9110, section 7.6.2). Counts it down
/// where it does not.
#[inline]
fn is_last_hop(head: &mut RequestHead<'_>) -> bool {
    matches!(head.method(), Method::Options | Method::Trace) && is_counted_down(head)
}

fn is_counted_down(head: &mut RequestHead<'_>) -> bool {
    let value = head.field(Known::MaxForwards).and_then(|value| std::str::from_utf8(value).ok());
    let Some(left) = value.and_then(|value| value.parse::<u32>().ok()) else { return false };
    if let Some(left) = left.checked_sub(1) {
        head.set_known(Known::MaxForwards, left.to_string().as_bytes());
    }
    left == 0
}
