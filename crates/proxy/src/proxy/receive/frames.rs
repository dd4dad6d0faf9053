//! Hop 4 for connections that exchanges share: frames become elements, what waits becomes frames, and what
//! concerns the connection as a whole is decided: settings, PINGs, GOAWAY, failures.
//!
//! What an element means for its exchange is in `streams`.

use std::time::Duration;

use telemetry::cause::Cause;
use telemetry::events::UpstreamPaused;
use wire::detect::Detected;
use wire::h2::ErrorCode;

use crate::agenda::Note;
use crate::connection::bounds::{OUTBOX_BYTES_MAX, UNDELIVERED_BYTES_MAX};
use crate::connection::codec::elements::Element;
use crate::connection::codec::multiplex::{Decoded, Framed, FramesError, Multiplex};
use crate::connection::codec::streams::Stream;
use crate::connection::codec::watches::Watch;
use crate::connection::delivery::Lingering;
use crate::connection::http2::GOAWAY_PING;
use crate::connection::{Connection, ConnectionRole, Downstream, Life, is_peer_behind};
use crate::exchange::stage::Stage;
use crate::keys::{ConnKey, ExchangeKey, StreamKey, label};
use crate::listen::drain::DRAIN_IDLE;
use crate::proxy::Proxy;
use crate::proxy::receive::elements::Source;
use crate::tools::detail::Detail;
use crate::tools::sent::Sent;
use crate::tools::time::Time;

/// How long a connection without streams keeps the storage for them.
const REST: Duration = Duration::from_secs(1);

/// What other PINGs hold.
const SIGN_OF_LIFE: [u8; 8] = *b"alive???";

impl Proxy {
    /// Consumes frames as far as possible.
    pub(super) fn consume_frames(&mut self, key: ConnKey, input: &[u8], now: Time) -> usize {
        let Some(connection) = self.connections.get(key) else { return input.len() };
        let is_downstream = connection.downstream().is_some();
        let silence = self.listen.silence(connection, &self.cx);
        if let Some(multiplex) = self.connections.multiplex_mut(key) {
            multiplex.on_sign_of_life(now);
        }
        let mut scratch = self.cx.frame_scratch.take().unwrap_or_default();
        let mut at = 0;
        let heard = self.connections.frames_heard(key);
        loop {
            let Some(connection) = self.connections.get_mut(key) else {
                at = input.len();
                break;
            };
            let is_behind = is_peer_behind(connection);
            let is_over = connection.is_lingering()
                || connection.multiplex().is_none_or(|multiplex| multiplex.failure.is_some());
            if is_behind || is_over || self.connections.is_share_spent(key) {
                break;
            }
            let connection = self.connections.get_mut(key).expect("it was found above");
            let multiplex = connection.codec.multiplex_mut().expect("it was looked at above");
            if multiplex.owes_many_answers() {
                multiplex.frame_control(&mut connection.outbox, &mut self.cx.buffers);
            }
            if multiplex.is_full_of_calls() {
                self.frame(key, now);
                if self.connections.multiplex_mut(key).is_some_and(|it| it.is_full_of_calls()) {
                    // The peer takes no answers: what it asks waits.
                    break;
                }
                continue;
            }
            let rest = input.get(at..).unwrap_or_default();
            match multiplex.decode(rest, &mut scratch) {
                Ok((n, Decoded::NeedMore)) => {
                    at += n;
                    break;
                }
                Ok((n, decoded)) => {
                    at += n;
                    self.on_decoded(key, is_downstream, decoded, now);
                }
                Err(error) => {
                    at = input.len();
                    self.on_frames_failed(key, error, rest, now);
                    break;
                }
            }
        }
        self.cx.frame_scratch = Some(scratch);
        if self.connections.frames_heard(key) != heard {
            self.after_calls(key, now);
        }
        self.after_frames(key, silence, now);
        at
    }

    /// Frames of RPC have begun: a head that is incomplete now has begun since, and a connection whose peer says that it is
    /// alive is not idle.
    fn after_calls(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_downstream = connection.downstream().is_some();
        let Some(multiplex) = connection.codec.multiplex_mut() else { return };
        if multiplex.rpc().is_none() || !is_downstream {
            return;
        }
        multiplex.watches.clear(Watch::Opening);
        if multiplex.streams.is_empty() {
            self.await_streams(key, now);
        }
    }

    /// What was said is answered, if need be.
    fn after_frames(&mut self, key: ConnKey, silence: Option<Duration>, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let listener = connection.downstream().map(|downstream| downstream.listener);
        let Some(multiplex) = connection.codec.multiplex_mut() else { return };
        multiplex.watch_silence(now, silence);
        let has_work = multiplex.has_work() || multiplex.is_finished();
        let is_amid_head = multiplex.is_amid_head();
        if !multiplex.watches.is_set(Watch::Opening) {
            if let Some(listener) = listener.filter(|_| is_amid_head) {
                // The rest of it holds up all streams.
                let timeout = self.listen.listeners.get(listener).listener().timeouts.request_head;
                self.connections.watch(key, Watch::Opening, now + timeout, &mut self.cx);
            }
        } else if multiplex.has_peer_settings() && !is_amid_head {
            multiplex.watches.clear(Watch::Opening);
            self.await_streams(key, now);
        }
        if has_work {
            self.connections.queue_send(key, &mut self.cx);
        }
    }

    #[inline]
    fn on_decoded(&mut self, key: ConnKey, is_downstream: bool, decoded: Decoded<'_>, now: Time) {
        match decoded {
            Decoded::NeedMore | Decoded::Nothing => {}
            Decoded::Of(slot, element) => {
                let at = StreamKey { connection: key, slot };
                let exchange = self.connections.exchange_of(at);
                self.connections.count(key, &element, exchange.is_some());
                if let (Element::Interim { .. } | Element::Response { .. }, Some(exchange)) =
                    (&element, exchange)
                {
                    self.on_first_byte(at, exchange, now);
                }
                self.on_element(Source { at, is_downstream, exchange }, element, 0, now);
            }
            Decoded::SettingsChanged => {
                if let Some(pool) = self.upstream.offer(key, &mut self.connections, &mut self.cx) {
                    self.upstream.note_room(pool, &mut self.cx);
                }
            }
            Decoded::GoingAway { code, debug } => {
                self.connections.note_reason(key, || Detail::of_goaway(code, debug));
                self.on_going_away(key, now);
            }
            Decoded::PingAnswered(opaque) => {
                if opaque == GOAWAY_PING {
                    self.connections.finish_goaway(key, &mut self.cx);
                }
            }
        }
    }

    /// The peer broke a rule that the connection does not survive, at the beginning of `input`.
    fn on_frames_failed(&mut self, key: ConnKey, error: FramesError, input: &[u8], now: Time) {
        let cause = error.cause();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let left = self.cx.snapshot.limits.discard_bytes_max;
        if let Some(downstream) = connection.downstream_mut() {
            downstream.life = Life::LingerWhenSent;
            downstream.lingering = Some(Box::new(Lingering::new(left)));
        }
        // What a service does wrong is nothing that its clients asked for.
        let reported = if connection.upstream().is_some() { Cause::ResponseInvalid } else { cause };
        if let Some(multiplex) = connection.codec.multiplex_mut() {
            multiplex.failure = Some(reported);
        }
        let is_first = connection.multiplex().is_some_and(|it| !it.has_peer_settings());
        self.connections.note_reason(key, || {
            let other = match error {
                FramesError::Http2(_) => Detail::of_other_protocol(Detected::Http2, input),
                FramesError::Rpc(_) => None,
            };
            other.filter(|_| is_first).unwrap_or_else(|| error.detail())
        });
        if self.connections.is_downstream(key) {
            for exchange in self.connections.exchanges_on(key) {
                self.exchanges.note_detail(exchange, || error.detail());
            }
            self.log_failed(key, cause, || error.detail(), now);
        }
        self.end_streams(key, reported, now);
        // GOAWAY says why.
        self.connections.queue_send(key, &mut self.cx);
    }

    /// All exchanges of a connection that is no more end, or go on elsewhere.
    pub(in crate::proxy) fn end_streams(&mut self, key: ConnKey, cause: Cause, now: Time) {
        let is_downstream = self.connections.get(key).is_some_and(|c| c.downstream().is_some());
        self.upstream.withdraw(key, &mut self.connections);
        let Some(multiplex) = self.connections.multiplex_mut(key) else { return };
        multiplex.is_gone = true;
        if !is_downstream && !multiplex.has_peer_settings() {
            // One of them may go on with an earlier attempt, which has a stream here.
            self.fail_awaiting(key, cause, now);
        }
        for exchange in self.connections.exchanges_on(key) {
            if is_downstream {
                self.abort(exchange, cause, now);
            } else {
                self.lose_upstream(exchange, cause, now);
            }
        }
    }

    /// An exchange's upstream connection is gone before the end of the response.
    pub(super) fn lose_upstream(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        match (exchange.stage(), cause) {
            (Stage::Responding { .. }, Cause::UpstreamClosed) => {
                self.fail(key, Cause::ResponseTruncated, now);
            }
            (Stage::Responding { .. }, _) => self.fail(key, cause, now),
            _ => self.fail_attempt(key, cause, now),
        }
    }

    /// What a connection was watched for did not happen.
    pub(in crate::proxy) fn on_watch(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_upstream = connection.upstream().is_some();
        let Some(multiplex) = connection.codec.multiplex_mut() else { return };
        let (watch, deadline) = multiplex.watches.first();
        if deadline > now {
            return self.cx.timers.arm(connection.timer, deadline);
        }
        multiplex.watches.clear(watch);
        match watch {
            Watch::Opening if is_upstream => {
                let fault = self.connect_timeout(key);
                self.on_established(key, Err(fault), now);
            }
            Watch::Opening => {
                self.log_head_bound(key, now);
                self.end_streams(key, Cause::RequestHeadTimeout, now);
                self.close_downstream(key, Some(Cause::RequestHeadTimeout), now);
            }
            Watch::Idle => {
                multiplex.go_away(ErrorCode::NO_ERROR);
                self.upstream.withdraw(key, &mut self.connections);
                self.connections.queue_send(key, &mut self.cx);
                // A peer that does not take even that is closed soon.
                self.connections.watch(key, Watch::Write, now + DRAIN_IDLE, &mut self.cx);
            }
            Watch::PingDue => {
                multiplex.ping(SIGN_OF_LIFE);
                let timeout =
                    self.connections.get(key).and_then(|c| self.listen.ping_of(c, &self.cx));
                if let Some(ping) = timeout {
                    self.connections.watch(
                        key,
                        Watch::PingTimeout,
                        now + ping.timeout,
                        &mut self.cx,
                    );
                }
                self.connections.queue_send(key, &mut self.cx);
            }
            Watch::PingTimeout | Watch::Write => {
                let cause = match (watch, is_upstream) {
                    (Watch::PingTimeout, _) => Cause::Http2PingTimeout,
                    (_, true) => Cause::RequestWriteTimeout,
                    (_, false) => Cause::ResponseWriteTimeout,
                };
                self.note_watch_bound(key, watch);
                self.end_streams(key, cause, now);
                self.close(key, Some(cause), now);
            }
            Watch::FinalGoaway => self.connections.finish_goaway(key, &mut self.cx),
            Watch::CoolDown => {
                if let Some(multiplex) =
                    self.connections.multiplex_mut(key).filter(|it| it.streams.is_empty())
                {
                    multiplex.on_idle();
                }
            }
        }
        if self.connections.get(key).is_some() {
            self.connections.arm_watches(key, &mut self.cx);
        }
    }

    /// Notes which time was over that an upstream was watched for.
    fn note_watch_bound(&mut self, key: ConnKey, watch: Watch) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(upstream) = connection.upstream() else { return };
        let cluster = self.cx.snapshot.cluster(upstream.cluster);
        let (what, bound) = match watch {
            Watch::PingTimeout => (
                "http2.ping.timeout of the cluster",
                self.listen.ping_of(connection, &self.cx).map(|ping| ping.timeout),
            ),
            _ => (
                "timeouts.request_write of the cluster",
                cluster.map(|cluster| cluster.timeouts.request_write),
            ),
        };
        if let Some(bound) = bound {
            self.connections.note_reason(key, || Detail::of_bound(what, bound));
        }
    }

    fn close(&mut self, key: ConnKey, cause: Option<Cause>, now: Time) {
        match self.connections.get(key).map(|connection| &connection.role) {
            Some(ConnectionRole::Downstream(_)) => {
                self.close_downstream(key, cause, now);
            }
            Some(ConnectionRole::Upstream(_)) => {
                self.close_upstream(key, cause, now);
            }
            None => {}
        }
    }

    /// An upstream takes no further streams; what it did not process goes elsewhere.
    fn on_going_away(&mut self, key: ConnKey, now: Time) {
        if self.connections.get(key).is_none_or(|connection| connection.upstream().is_none()) {
            return;
        }
        self.upstream.withdraw(key, &mut self.connections);
        let connection = self.connections.get(key).expect("withdrawing closes no connection");
        let Some((multiplex, upstream)) = connection.multiplex().zip(connection.upstream()) else {
            return;
        };
        let is_lost = |stream: &&Stream| !multiplex.is_open(stream);
        let lost: Vec<_> = multiplex.streams.iter().filter(is_lost).map(|s| s.exchange).collect();
        if !lost.is_empty() {
            let lost = u32::try_from(lost.len()).unwrap_or(u32::MAX);
            let processed = connection.requests.saturating_sub(lost);
            let is_for_checks = upstream.checked_port.is_some();
            if !is_for_checks {
                self.upstream.pools.on_streams_limited(upstream.endpoint, processed);
            }
            if processed == 0 && !is_for_checks {
                let (cluster, endpoint) = (label(upstream.cluster.0), upstream.endpoint);
                let (to, random) = (connection.peer.socket_address(), self.cx.random.next());
                if let Some(until) = self.upstream.pools.on_refused(endpoint, to, random, now) {
                    let until = self.cx.wall_clock_zero.saturating_add(until.as_nanos());
                    let endpoint = label(endpoint.0);
                    self.cx.emitter.upstream_paused(&UpstreamPaused { cluster, endpoint, until });
                }
            }
        }
        for exchange in lost {
            self.fail_attempt(exchange, Cause::UpstreamGoingAway, now);
        }
    }

    /// Lets streams fill a connection's queue.
    pub(in crate::proxy) fn frame(&mut self, key: ConnKey, now: Time) {
        let multiplex = self.connections.get(key).and_then(Connection::multiplex);
        let was_full = multiplex.is_some_and(Multiplex::is_full_of_calls);
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return };
            let is_connecting = connection.is_connecting();
            let Some(multiplex) = connection.codec.multiplex_mut() else { return };
            if is_connecting && multiplex.rpc().is_some() {
                // What is in no frame yet can go elsewhere.
                return;
            }
            match multiplex.frame(&mut connection.outbox, &mut self.cx.buffers) {
                Some(framed) => self.on_framed(key, framed, now),
                None => break,
            }
        }
        let Some(connection) = self.connections.get(key) else { return };
        let Some(multiplex) = connection.multiplex() else { return };
        if was_full && !multiplex.is_full_of_calls() {
            self.cx.agenda.push(Note::Resume(StreamKey::alone(key)));
        }
        let is_over = multiplex.failure.is_some() || multiplex.is_finished();
        if is_over && connection.is_sent() {
            return self.end_shared(key, now);
        }
        self.connections.watch_writing(key, now, 0, &self.listen, &mut self.cx);
    }

    /// A frame of a stream is in the queue.
    fn on_framed(&mut self, key: ConnKey, framed: Framed, now: Time) {
        let at = StreamKey { connection: key, slot: framed.slot };
        let Some(exchange) = self.connections.exchange_of(at) else { return };
        let waited = framed.left + framed.bytes;
        if waited >= OUTBOX_BYTES_MAX
            && framed.left < OUTBOX_BYTES_MAX
            && let Some(source) = self.exchanges.opposite_of(at, &self.connections)
        {
            self.connections.on_caught_up(source, &mut self.cx);
            self.exchanges.resume_response(exchange, now);
        }
        let is_downstream = self.connections.get(key).is_some_and(|c| c.downstream().is_some());
        let Framed { bytes, left, is_ended, .. } = framed;
        if is_downstream {
            self.on_response_sent(exchange, Sent { bytes, left, began: now }, is_ended, now);
        } else {
            self.on_request_sent(exchange, Sent { bytes, left, began: now }, is_ended, now);
        }
    }

    /// The socket took bytes of a connection: `n` of the `before` bytes of frames that waited. None
    /// of them where it took records of TLS that hold no data, which may be the last that a
    /// connection waits for before it ends.
    pub(in crate::proxy) fn on_frames_sent(
        &mut self,
        key: ConnKey,
        before: usize,
        n: usize,
        now: Time,
    ) {
        if n > 0 || before == 0 {
            self.frame(key, now);
        }
        self.connections.watch_writing(key, now, n, &self.listen, &mut self.cx);
        if before >= UNDELIVERED_BYTES_MAX && before - n < UNDELIVERED_BYTES_MAX {
            self.resume_inbox(key, now);
        }
    }

    /// Everything is said: the connection ends.
    fn end_shared(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let cause = connection.codec.multiplex().and_then(|multiplex| multiplex.failure);
        match connection.role {
            ConnectionRole::Downstream(Downstream { life: Life::Lingering, .. }) => {}
            ConnectionRole::Downstream(_) => {
                self.connections.linger(key, now, &mut self.listen, &mut self.cx);
            }
            ConnectionRole::Upstream(_) => {
                self.close_upstream(key, cause, now);
            }
        }
    }

    /// A connection has no stream: it waits for one, or ends if it is to.
    pub(in crate::proxy) fn await_streams(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        let timeout = match &connection.role {
            ConnectionRole::Downstream(downstream) => {
                Some(self.listen.listeners.get(downstream.listener).listener().timeouts.idle)
            }
            ConnectionRole::Upstream(upstream) => {
                self.cx.snapshot.cluster(upstream.cluster).map(|cluster| cluster.timeouts.idle)
            }
        };
        let is_upstream = connection.upstream().is_some();
        let is_connecting = connection.is_connecting();
        let Some(multiplex) = self.connections.multiplex_mut(key) else { return };
        if !multiplex.streams.is_empty() || is_connecting {
            return;
        }
        multiplex.watches.set(Watch::CoolDown, now + REST);
        multiplex.watches.clear(Watch::PingDue);
        multiplex.watches.clear(Watch::PingTimeout);
        if is_upstream && timeout.is_none() {
            multiplex.go_away(ErrorCode::NO_ERROR);
            self.upstream.withdraw(key, &mut self.connections);
        }
        let multiplex = self.connections.multiplex_mut(key).expect("withdrawing closes nothing");
        if multiplex.is_finished() || multiplex.has_work() {
            self.connections.queue_send(key, &mut self.cx);
        }
        if let Some(timeout) = timeout {
            self.connections.watch(key, Watch::Idle, now + timeout, &mut self.cx);
        }
    }
}
