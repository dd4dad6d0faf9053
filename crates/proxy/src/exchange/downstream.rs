//! Hop 5: an exchange begins with its request's head.

use telemetry::cause::Cause;
use telemetry::events::ExchangeStarted;
use wire::head::{Framing, Known, Method, RequestHead};

use crate::connection::codec::Codec;
use crate::connection::connections::Connections;
use crate::connection::transport::Tls;
use crate::connection::{ExchangeKey, Role, StreamKey};
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::progress::Progress;
use crate::exchange::record::{Record, Stamps, Words, label};
use crate::exchange::{Deadlines, Exchange, Kind, Request, Stage, lookalikes, route};
use crate::filter::chain::{BodyObservers, ChainStep};
use crate::listen::Listen;
use crate::listen::clients::Part;
use crate::proxy::Proxy;
use crate::timers::TimerOwner;
use crate::tools::time::Time;

impl Exchanges {
    /// Puts an exchange on the downstream connection, or stream, whose head was just read, or refused.
    pub(crate) fn begin_exchange(
        &mut self,
        at: StreamKey,
        request: Request,
        now: Time,
        connections: &mut Connections,
        listen: &mut Listen,
        cx: &mut Cx,
    ) -> Option<ExchangeKey> {
        let connection = connections.get_mut(at.connection)?;
        let Role::Downstream(downstream) = &mut connection.role else { return None };
        let is_first = connection.requests == 0;
        connection.requests += 1;
        let opened = connection.opened;
        let state = listen.listeners.get(downstream.listener);
        let (snapshot, place) = state.pin();
        let listener = label(state.id.0);
        let client = downstream.client;
        listen.clients.add(client, Part::Exchange);
        let began = std::mem::replace(&mut downstream.head_began, Time::NEVER).min(now);
        let accepted = if is_first { opened } else { Time::NEVER };
        let stamps = Stamps { accepted, began, head_read: now, ..Stamps::NONE };
        let timer = cx.timers.insert(TimerOwner::Exchange(ExchangeKey::from_bits(0)).into());
        let exchange = self.table.insert(Exchange {
            snapshot,
            listener: place,
            chain: downstream.chain,
            downstream: at,
            client,
            is_holding: false,
            stall: None,
            kind: Kind::Http,
            stage: Stage::Finishing,
            request,
            route: None,
            timer,
            deadlines: Deadlines::default(),
            slots: None,
            observers: BodyObservers::default(),
            gathered: None,
            held: None,
            progress: Progress::default(),
            record: Record::new(stamps),
            call: None,
            handshake: None,
            is_request_slow: false,
            is_response_slow: false,
        });
        cx.timers.set_owner(timer, TimerOwner::Exchange(exchange).into());
        match &mut connection.codec {
            Codec::Http2(multiplex) => multiplex.begin_stream(at.slot, exchange),
            Codec::Opening(_) | Codec::Http1(_) | Codec::Bytes(_) => {
                downstream.exchange = Some(exchange);
            }
        }
        cx.emitter.exchange_started(&ExchangeStarted { listener });
        Some(exchange)
    }
}

impl Proxy {
    /// Hop 5: a whole request head.
    pub(crate) fn on_request_head(
        &mut self,
        key: ExchangeKey,
        head: &mut RequestHead<'_>,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let Some(connection) = self.connections.get(exchange.downstream.connection) else {
            return;
        };
        let snapshot = exchange.snapshot.clone();
        let listener = exchange.listener();
        let facts = crate::exchange::forwarded::Facts {
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
        let listener_label = label(listener.id.0);
        let dropped = lookalikes::screen(head, &listener.http);
        let client = crate::exchange::forwarded::rewrite(
            head,
            &facts,
            &mut self.cx.random,
            &mut self.cx.scratch,
        );
        let body_bytes_max = listener.http.body_bytes_max.unwrap_or(u64::MAX);
        let exchanges_max = listener.exchanges_per_client_max;
        exchange.record.client = client;
        if client.is_some() {
            // The one that a trusted hop named.
            self.listen.clients.remove(exchange.client, Part::Exchange);
            (exchange.client, _) = self.listen.clients.enter(client, Part::Exchange);
        }
        let has_too_many = exchanges_max.is_some_and(|max| {
            self.listen.clients.exchanges_of(exchange.client) > self.cx.share.of(max.get())
        });
        if snapshot.access_log.stage_times || snapshot.access_log.output.is_some() {
            exchange.record.words = Words::take(head, &mut self.cx.buffers);
        }
        let has_unknown_expectation =
            head.field(Known::Expect).is_some() && !head.expects_continue();
        let is_too_large = matches!(head.framing(), Framing::Length(n) if n > body_bytes_max);
        let counts = dropped.unwrap_or_default();
        if counts != lookalikes::Dropped::default() {
            self.cx.count_dropped(listener_label, counts);
        }
        if let Err(cause) = dropped {
            self.fail(key, cause, now);
        } else if has_too_many {
            self.fail(key, Cause::ClientExchangesOverflow, now);
        } else if is_too_early {
            self.fail(key, Cause::RequestTooEarly, now);
        } else if is_misdirected {
            self.fail(key, Cause::RequestMisdirected, now);
        } else if has_unknown_expectation {
            self.fail(key, Cause::RequestExpectationUnknown, now);
        } else if is_too_large {
            self.fail(key, Cause::RequestBodyTooLarge, now);
        } else if is_last_hop(head) {
            self.reply_as_last(key, head.method(), now);
        } else {
            self.exchanges.begin_call(key, head);
            self.exchanges.begin_chain(key);
            self.run_chain(key, head, ChainStep::Head(0), now);
        }
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
