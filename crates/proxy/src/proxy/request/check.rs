//! Hop 8 for a health check: its request begins here.

use config::checks::{CheckResult, CheckTask, HealthCheck, Probe};
use config::snapshot::ClusterProtocol;
use telemetry::cause::Cause;
use wire::head::RequestHead;

use crate::connection::Connection;
use crate::connection::codec::Codec;
use crate::connection::codec::bytes::Bytes;
use crate::exchange::calls::Call;
use crate::exchange::check_run::CheckRun;
use crate::exchange::detached::Detached;
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::exchange::{Beginning, Exchange, ExchangeKind, Request, Route, Wait};
use crate::keys::{ConnKey, ExchangeKey};
use crate::listen::clients::ClientPlace;
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::timers::TimerOwner;
use crate::tools::outbox::Outbox;
use crate::tools::time::Time;

impl Proxy {
    /// Control wants to know how an endpoint is. The answer is [`Op::Checked`], always.
    pub fn on_check(&mut self, task: CheckTask, now: Time) {
        if !self.begin_check(task, now) {
            let (number, result) = (task.number, CheckResult::Undecided);
            self.cx.ops.push_back(Op::Checked { number, result });
        }
        self.settle(now);
    }

    /// Begins a check, if this worker knows what is asked for.
    fn begin_check(&mut self, task: CheckTask, now: Time) -> bool {
        let snapshot = self.cx.snapshot.clone();
        // A check has no listener. What asks for one is about clients, and finds any.
        if self.cx.drain_deadline.is_some() || snapshot.listeners.is_empty() {
            return false;
        }
        let Some(cluster) = snapshot.cluster(task.cluster).cloned() else { return false };
        let Some(check) = cluster.checks.get(usize::from(task.check)) else { return false };
        if cluster.place_of(task.endpoint).is_none() {
            return false;
        }
        let timer = self.cx.timers.insert(TimerOwner::Exchange(ExchangeKey::from_bits(0)).into());
        let beginning = Beginning::detached(snapshot, (0, None), ClientPlace::COPIES, now);
        let request = Request { is_persistent: true, is_complete: true, ..Request::NONE };
        let mut exchange = Exchange::new(beginning, request, timer);
        exchange.route = Some(Route::new(None, Some(task.cluster)));
        exchange.detached = Some(Detached::of_check(CheckRun {
            number: task.number,
            endpoint: task.endpoint,
            checks: cluster.checks.clone(),
            place: usize::from(task.check),
            body: Vec::new(),
            received: 0,
            verdict: None,
            is_degraded: false,
            has_failed_itself: false,
        }));
        let is_shared = cluster.protocol == ClusterProtocol::Http2;
        let request = match &check.probe {
            Probe::Tcp { send, .. } => Some(self.bytes_of_check(&mut exchange, send)),
            Probe::Http { request, .. } => {
                self.request_of_check(&mut exchange, check, request, &[], is_shared)
            }
            Probe::Grpc { request, message } => {
                self.request_of_check(&mut exchange, check, request, message, is_shared)
            }
        };
        let Some(request) = request else {
            self.cx.timers.remove(timer);
            return false;
        };
        let deadline = now + check.timeout;
        let key = self.exchanges.table.insert(exchange);
        self.cx.timers.set_owner(timer, TimerOwner::Exchange(key).into());
        self.exchanges.set_deadline(key, Wait::Whole, deadline, &mut self.cx);
        self.ask(key, request, None, now);
        true
    }

    /// What a check of TCP sends, on a connection of its own.
    fn bytes_of_check(&mut self, exchange: &mut Exchange, send: &[u8]) -> QueuedRequest {
        exchange.kind = ExchangeKind::Tcp;
        let mut outbox = Outbox::new();
        exchange.push_proxy_header(&mut outbox, &self.connections, &mut self.cx);
        outbox.push(send, &mut self.cx.buffers);
        let codec = Codec::Bytes(Bytes::new());
        QueuedRequest { outbox, form: Form::Alone { codec, is_personal: true } }
    }

    /// The request of a check, with its body, for a connection of its own or for a stream.
    fn request_of_check(
        &mut self,
        exchange: &mut Exchange,
        check: &HealthCheck,
        text: &[u8],
        body: &[u8],
        is_shared: bool,
    ) -> Option<QueuedRequest> {
        let parked = self.cx.buffers.lease_with(text);
        let encoded = self.read_parked(&parked, |proxy, head| {
            exchange.request = Request { is_persistent: true, ..Request::of(head, true) };
            exchange.call = Call::begin(head, false).map(Box::new);
            proxy.encode_check(exchange, check, head, body, is_shared)
        });
        self.cx.buffers.give_back(parked);
        encoded
    }

    fn encode_check(
        &mut self,
        exchange: &Exchange,
        check: &HealthCheck,
        head: &mut RequestHead<'_>,
        body: &[u8],
        is_shared: bool,
    ) -> QueuedRequest {
        let mut request = if is_shared {
            self.cx.encode_for_stream(head, body.is_empty())
        } else {
            exchange.encode_whole(head, false, &self.connections, &mut self.cx)
        };
        if let Form::Alone { is_personal, .. } = &mut request.form {
            *is_personal |= !check.reuse;
        }
        if !body.is_empty() {
            request.push_data(body, &mut self.cx.buffers);
            request.push_end(&[], &mut self.cx.buffers);
        }
        request
    }

    /// A connection that is to be moved is closed, with its checks, if it is for these. Returns whether it was.
    pub(crate) fn end_checks_on(&mut self, key: ConnKey, now: Time) -> bool {
        let upstream = self.connections.get(key).and_then(Connection::upstream);
        if upstream.is_none_or(|upstream| upstream.checked_port.is_none()) {
            return false;
        }
        for exchange in self.connections.exchanges_on(key) {
            self.abort(exchange, Cause::DrainTimeout, now);
        }
        self.close_upstream(key, None, now);
        self.settle(now);
        true
    }
}
