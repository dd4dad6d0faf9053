//! The exchanges of a worker: their table, and which of them stand still.

use telemetry::cause::Cause;
use telemetry::events::TunnelStarted;

use crate::agenda::Note;
use crate::connection::Connection;
use crate::connection::ConnectionRole;
use crate::connection::codec::streams::Stream;
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::exchange::Exchange;
use crate::exchange::ExchangeKind;
use crate::exchange::Wait;
use crate::exchange::fault::follows_from_connection;
use crate::exchange::queued_request::QueuedRequest;
use crate::exchange::stage::Stage;
use crate::exchange::stalls::Stalls;
use crate::keys::OfExchange;
use crate::keys::StreamKey;
use crate::keys::{ExchangeKey, label};
use crate::listen::Listen;
use crate::tools::detail::Detail;
use crate::tools::slab::Slab;
use crate::tools::time::Time;
use crate::upstream::pool::Pools;

/// The exchanges of a worker.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    pub(crate) table: Slab<Exchange, OfExchange>,
    pub(crate) stalls: Stalls,
    /// How many of them are earlier attempts of others.
    pub(crate) hedges: usize,
}

/// What an exchange takes beside its buffers: it has a stream on one side at least.
pub(crate) const EXCHANGE_BYTES: u64 = (size_of::<Exchange>() + size_of::<Stream>()) as u64;

impl Exchanges {
    /// What all of them take beside their buffers.
    #[inline]
    pub(crate) const fn bytes(&self) -> u64 {
        self.table.len() as u64 * EXCHANGE_BYTES
    }

    #[inline]
    pub(crate) fn get(&self, key: ExchangeKey) -> Option<&Exchange> {
        self.table.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: ExchangeKey) -> Option<&mut Exchange> {
        self.table.get_mut(key)
    }

    /// Whether an exchange's upstream connection carries bytes that are not read here.
    pub(crate) fn is_raw(&self, key: ExchangeKey) -> bool {
        self.get(key).is_some_and(|exchange| exchange.kind != ExchangeKind::Http)
    }

    /// Whether an exchange has a client to which a reply would mean something: it has none, or carries bytes of a
    /// protocol that is not read here.
    pub(crate) fn takes_reply(&self, key: ExchangeKey) -> bool {
        self.get(key).is_some_and(|exchange| {
            exchange.detached.is_none()
                && !matches!(exchange.kind, ExchangeKind::Tcp | ExchangeKind::Tls)
        })
    }

    /// Notes why the exchange is about to fail, unless it has failed before.
    pub(crate) fn note_detail(&mut self, key: ExchangeKey, detail: impl FnOnce() -> Detail) {
        if let Some(exchange) = self.get_mut(key)
            && exchange.record.cause.is_none()
        {
            exchange.record.cause_detail = Some(detail());
        }
    }

    /// An exchange is about to fail: if that is because of the configuration, what that says.
    pub(crate) fn note_configured_reason(&mut self, key: ExchangeKey, cause: Cause) {
        let exchange = self.get(key).filter(|exchange| exchange.record.cause_detail.is_none());
        if let Some(reason) = exchange.and_then(|exchange| exchange.configured_reason(cause)) {
            self.note_detail(key, || reason);
        }
    }

    /// An exchange is about to fail: if that is because of its connection, what is known of that.
    pub(crate) fn take_reason(
        &mut self,
        key: ExchangeKey,
        cause: Cause,
        connections: &Connections,
    ) {
        let Some(exchange) = self.get(key) else { return };
        if !follows_from_connection(cause) || exchange.record.cause_detail.is_some() {
            return;
        }
        let connection = exchange.upstream().and_then(|at| connections.get(at.connection));
        let reason = connection.and_then(Connection::upstream).and_then(|it| it.reason.clone());
        if let Some(reason) = reason {
            self.note_detail(key, || *reason);
        }
    }

    /// What is said both ways belongs to no message from here on.
    pub(crate) fn begin_tunnel(&mut self, key: ExchangeKey, now: Time, cx: &mut Cx) {
        let Some(exchange) = self.get_mut(key) else { return };
        exchange.progress.is_tunnel = true;
        let timeout = exchange.listener().timeouts.tunnel_idle;
        let listener = label(exchange.listener().id.0);
        cx.emitter.tunnel_started(&TunnelStarted { listener });
        self.set_deadline(key, Wait::TunnelIdle, now + timeout, cx);
    }

    /// Whether what this connection says of a body is kept here.
    pub(crate) fn gathers(&self, connection: &Connection) -> bool {
        let exchange = connection.exchange().and_then(|key| self.get(key));
        exchange.is_some_and(|exchange| {
            matches!(exchange.stage(), Stage::Gathering { .. } | Stage::Buffering { .. })
        })
    }

    /// The other side of the exchange that is at this one.
    pub(crate) fn opposite_of(
        &self,
        at: StreamKey,
        connections: &Connections,
    ) -> Option<StreamKey> {
        let connection = connections.get(at.connection)?;
        let exchange = self.get(connections.exchange_of(at)?)?;
        match connection.role {
            ConnectionRole::Downstream(_) => exchange.upstream(),
            ConnectionRole::Upstream(_) => Some(exchange.downstream),
        }
    }

    pub(crate) fn bind(
        &mut self,
        key: ExchangeKey,
        upstream: StreamKey,
        place: usize,
        now: Time,
        pools: &mut Pools,
        listen: &mut Listen,
        cx: &mut Cx,
    ) {
        let Some(exchange) = self.get_mut(key) else { return };
        exchange.begin_attempt(upstream);
        exchange.deadlines.clear(Wait::Connection);
        exchange.deadlines.clear(Wait::Pause);
        exchange.progress.attempts = exchange.progress.attempts.saturating_add(1);
        if let Some(route) = &mut exchange.route {
            (route.endpoint, route.chosen, route.awaits) = (Some(place), None, None);
        }
        let awaits_body = !exchange.request.is_complete && exchange.kind == ExchangeKind::Http;
        if cx.emitter.is_debug() {
            exchange.debug_bound(upstream, place, now, cx);
        }
        exchange.hold(&mut listen.clients, pools);
        exchange.on_attempt(pools, now);
        if exchange.progress.has_retries && exchange.request.is_complete {
            exchange.begin_try(now, cx);
        }
        if exchange.awaits_client() {
            self.on_stalled(key, now);
        }
        if awaits_body {
            self.await_request_data(key, 0, now, cx);
        }
    }
}

impl Exchanges {
    /// Makes an exchange try again. Its request waits with it.
    pub(crate) fn note_attempt(&mut self, key: ExchangeKey, request: QueuedRequest, cx: &mut Cx) {
        let Some(exchange) = self.get_mut(key) else {
            return request.clear(&mut cx.buffers);
        };
        exchange.begin_retrying(request);
        cx.agenda.push(Note::Attempt(key));
    }

    /// The body of a request may go on: its connection was waited for, or is another one.
    pub(crate) fn note_request(&self, key: ExchangeKey, cx: &mut Cx) {
        if let Some(exchange) = self.get(key)
            && !exchange.request.is_complete
        {
            cx.agenda.push(Note::Resume(exchange.downstream));
        }
    }
}

impl Exchange {
    /// Writes to the debug log which endpoint and connection it has.
    #[cold]
    #[inline(never)]
    fn debug_bound(&self, upstream: StreamKey, place: usize, now: Time, cx: &mut Cx) {
        let Some(cluster) = self.cluster() else { return };
        let (name, attempt) = (&cluster.name, self.progress.attempts);
        match cluster.endpoints.get(place).map(|endpoint| &endpoint.address) {
            Some(address) => {
                let words = format_args!(
                    "endpoint {address} of cluster {name} over {upstream}, attempt {attempt}"
                );
                cx.debug(self.downstream, words, now);
            }
            None => {
                let words = format_args!(
                    "original destination, cluster {name} over {upstream}, attempt {attempt}"
                );
                cx.debug(self.downstream, words, now);
            }
        }
    }
}
