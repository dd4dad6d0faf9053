//! Two attempts of one exchange at a time, where its rule has `hedge`.
//!
//! ```text
//!            Attempting A ── try_timeout ─► Retrying ─► Attempting B ─► Responding …      (B is first)
//!                                │                          │
//!                                │            the same, over A's connection ◄─┐           (A is first, or B fails)
//!                                ▼                                            │
//!    without a downstream:   Attempting A ────────────────────────────────────┘ or cancelled
//! ```
//!
//! An exchange has one attempt. When that takes too long, it goes on as an exchange of its own, without a downstream, and the
//! first one sends its request again. Whichever gets a response that the rule's `retry` does not repeat is the one: if it is
//! the earlier attempt, the first exchange takes its connection over, in place of its own. The other attempt is cancelled.
//! There are never more than two: an attempt that takes too long beside another is cancelled, as without `hedge`.
//!
//! An attempt begins beside another only where it might follow it, too: the method is idempotent (or the rule says `any`), all
//! of the request is here and was sent, attempts are left, and the budget for retries allows it.
//!
//! The earlier attempt never moves to another worker or process: it is cancelled, and the later one goes on.

use config::retry::RetryPolicy;
use telemetry::cause::Cause;
use telemetry::events::LabelId;

use crate::agenda::Note;
use crate::connection::Connection;
use crate::connection::codec::Codec;
use crate::connection::codec::http1::Http1;
use crate::cx::Cx;
use crate::exchange::detached::Detached;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::fault::{Side, consequence};
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::exchange::record::Stamps;
use crate::exchange::stage::Stage;
use crate::exchange::{Beginning, Exchange, ExchangeKind, Request, Route, Wait};
use crate::keys::{ExchangeKey, Slot, StreamKey, label};
use crate::tools::time::Time;
use crate::tools::wheel::TimerKey;

/// What an exchange waits for at its attempt. It waits for these no longer once it is at another.
pub(crate) const WAITS_OF_ATTEMPT: [Wait; 4] =
    [Wait::RequestWrite, Wait::ResponseHead, Wait::TunnelIdle, Wait::Try];

impl QueuedRequest {
    /// Whether a connection, or a stream of one, has sent all of its request.
    pub(crate) fn is_sent(connection: &Connection, slot: Slot) -> bool {
        match connection.codec.multiplex() {
            Some(multiplex) => multiplex
                .streams
                .get(slot)
                .is_some_and(|stream| stream.is_ended && stream.outbox.is_empty()),
            None => connection.is_sent() && connection.codec.is_between_sends(),
        }
    }

    /// A request that [`QueuedRequest::is_sent`] and is still here, to be sent once more. The connection goes on to wait for its
    /// response.
    pub(crate) fn take_sent(connection: &mut Connection, slot: Slot) -> Option<Self> {
        let is_personal = connection.upstream().is_some_and(|upstream| upstream.is_personal);
        let (mut outbox, form) = match connection.codec.multiplex_mut() {
            Some(multiplex) => {
                let stream = multiplex.streams.get_mut(slot)?;
                let form = Form::Stream { head: stream.head.take()?, tail: stream.tail.clone() };
                (std::mem::take(&mut stream.outbox), form)
            }
            None => {
                let form = Form::Alone { codec: Codec::Http1(Http1::new()), is_personal };
                (std::mem::take(&mut connection.outbox), form)
            }
        };
        outbox.rewind();
        Some(Self { outbox, form })
    }
}

impl Exchange {
    /// The exchange whose earlier attempt it is.
    #[inline]
    pub(crate) fn hedge_of(&self) -> Option<ExchangeKey> {
        self.detached.as_ref()?.hedge_of
    }

    /// Its earlier attempt, if one may go on.
    #[inline]
    pub(crate) fn hedge(&self) -> Option<ExchangeKey> {
        self.own_retries.as_ref()?.hedge
    }

    /// Whether another attempt may begin beside the one that it is at.
    pub(crate) fn may_hedge(&self) -> bool {
        self.kind == ExchangeKind::Http
            && self.detached.is_none()
            && self.request.is_complete
            && self.retry_policy().is_some_and(|policy: &RetryPolicy| policy.hedges)
            && matches!(self.stage(), Stage::Attempting { .. })
    }

    /// Its attempt as an exchange of its own, `key` being this one. It has the attempt's connection from here on, and counts where
    /// the attempt counts. `stamps` are those of the exchange while it was at this attempt.
    pub(crate) fn part_with_attempt(
        &mut self,
        key: ExchangeKey,
        upstream: StreamKey,
        (timer, stamps): (TimerKey, Stamps),
        now: Time,
    ) -> Self {
        let place = (self.listener, self.chain);
        let beginning = Beginning {
            stamps,
            ..Beginning::detached(self.snapshot.clone(), place, self.client, now)
        };
        let request = Request {
            method: self.request.method,
            is_persistent: true,
            is_complete: true,
            ..Request::NONE
        };
        let mut attempt = Self::new(beginning, request, timer);
        attempt.route = self.route.as_ref().map(|route| Route {
            newer: route.newer.clone(),
            priority: route.priority,
            endpoint: route.endpoint,
            ..Route::new(route.rule, route.cluster)
        });
        attempt.detached = Some(Detached::of_hedge(key));
        attempt.progress.attempts = 1;
        for wait in [Wait::Whole, Wait::ResponseHead, Wait::TunnelIdle] {
            attempt.deadlines.set(wait, self.deadlines.get(wait));
        }
        attempt.take_places_of(self);
        attempt.begin_attempt(upstream);
        self.begin_finishing();
        for wait in WAITS_OF_ATTEMPT {
            self.deadlines.clear(wait);
        }
        attempt
    }

    /// It takes the attempt of another exchange, which has none then. What came behind that attempt was no part of its way to
    /// a response: its times are as if nothing had.
    pub(crate) fn take_attempt_of(&mut self, other: &mut Self, upstream: StreamKey) {
        self.take_places_of(other);
        self.record.stamps = other.record.stamps;
        if let (Some(route), Some(of_other)) = (&mut self.route, &mut other.route) {
            (route.newer, route.endpoint) = (of_other.newer.take(), of_other.endpoint);
            route.chosen = None;
        }
        other.begin_finishing();
        self.begin_attempt(upstream);
        for wait in
            WAITS_OF_ATTEMPT.into_iter().chain([Wait::Connection, Wait::Pause, Wait::Backoff])
        {
            self.deadlines.clear(wait);
        }
        for wait in [Wait::ResponseHead, Wait::TunnelIdle] {
            self.deadlines.set(wait, other.deadlines.get(wait));
        }
    }

    /// Where another exchange counts as under way, this one does instead.
    fn take_places_of(&mut self, other: &mut Self) {
        self.is_holding = std::mem::take(&mut other.is_holding);
        self.holds_request = std::mem::take(&mut other.holds_request);
        self.counted_at = other.counted_at.take();
        self.measured_from = other.measured_from.take();
        self.attempt = std::mem::take(&mut other.attempt);
    }

    /// It needs its earlier attempt no more.
    #[inline]
    pub(crate) fn end_hedge(&mut self, cx: &mut Cx) {
        if let Some(own) = &mut self.own_retries
            && let Some(hedge) = own.hedge.take()
        {
            cx.agenda.push(Note::Abandon(hedge));
        }
    }
}

impl Exchanges {
    /// Where attempts of an exchange are counted.
    pub(crate) fn cluster_label(&self, key: ExchangeKey) -> Option<LabelId> {
        let cluster = self.get(key)?.route.as_ref()?.cluster?;
        Some(label(cluster.0))
    }

    /// The earlier attempt of an exchange that is about to fail for this, if one goes on that may do better.
    pub(crate) fn hedge_left(&self, key: ExchangeKey, cause: Cause) -> Option<ExchangeKey> {
        let exchange = self.get(key)?;
        let is_of_attempt = consequence(cause).side != Side::Downstream
            && cause != Cause::RequestTimeout
            && !exchange.has_responded();
        let hedge = exchange.hedge().filter(|_| is_of_attempt)?;
        self.get(hedge)?.upstream().map(|_| hedge)
    }
}
