//! TLS handshakes with peers, from the first record to the last.

use telemetry::cause::Cause;
use tls::signing::{SignError, Signature};
use tls::{Handshake, HandshakeError, HandshakeFacts};
use wire::detect::Detected;
use wire::tls::record::RecordLayer;

use crate::connection::handshake_slots::HANDSHAKES_TOGETHER;
use crate::connection::transport::handshakes::Failure;
use crate::connection::transport::{ClientFacts, Early, Tls, TlsState, last_words};
use crate::connection::{Connection, ConnectionRole};
use crate::keys::ConnKey;
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::timers::TimerOwner;
use crate::tools::detail::Detail;
use crate::tools::time::Time;
use crate::upstream::connecting::ConnectFault;

/// To a client that speaks HTTP/1 where TLS is spoken: browsers and curl show it. A request line begins with
/// a method, which is in upper case.
const PLAIN_HTTP_REPLY: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: text/plain\r\n\
    content-length: 40\r\n\
    connection: close\r\n\r\n\
    This port speaks HTTPS: ask by https://\n";

/// How tests begin behind a handshake: the simulation, whose seeds no handshake follows, and conversations about
/// records. No configuration leads here.
pub trait SkipHandshake {
    /// Goes on with the record layer of a handshake that was done on a connection's socket. Nothing was read of what
    /// came behind the handshake, and nothing sent; the connection may be one that is still being established.
    fn begin_records(&mut self, key: ConnKey, records: RecordLayer, now: Time);
}

impl SkipHandshake for Proxy {
    fn begin_records(&mut self, key: ConnKey, records: RecordLayer, now: Time) {
        if let Some(connection) = self.connections.get_mut(key) {
            let state = TlsState::Records(Box::new(records));
            connection.tls = Some(Box::new(Tls::new(state, now)));
        }
    }
}

impl Proxy {
    /// Lets a few handshakes with clients go on, and no more until this is called again: once before
    /// a turn's events, and once before what was left lying is gone on with.
    pub const fn admit_handshakes(&mut self) {
        self.connections.handshakes_admitted = HANDSHAKES_TOGETHER;
    }

    /// Whether a client's handshake waits for others to have their turn. What it sends is not read.
    #[must_use]
    pub fn is_handshake_held(&self, key: ConnKey) -> bool {
        let is_held = |connection: &Connection| {
            connection.is_handshaking() && connection.downstream().is_some()
        };
        self.connections.handshakes_admitted == 0 && self.connections.get(key).is_some_and(is_held)
    }

    /// The first bytes of a client's handshake are there: it takes a slot, if need be that of the
    /// handshake that is still for longest (`handshake_slots`).
    pub(super) fn admit_handshake(&mut self, key: ConnKey, now: Time) {
        let slots_max = self.cx.share.of(self.cx.snapshot.limits.handshakes_max.get());
        let Some(downstream) = self.connections.get(key).and_then(Connection::downstream) else {
            return;
        };
        let listener = self.listen.listeners.get(downstream.listener).id;
        // The bound may have become lower: it is reached again by and by.
        for _ in 0..2 {
            if self.connections.handshakes.len() < slots_max {
                break;
            }
            if let Some(stillest) = self.connections.handshakes.stillest(listener) {
                let max = self.cx.snapshot.limits.handshakes_max;
                let detail = Detail::of(&format_args!("limits.handshakes_max: {max}"));
                let cause = Cause::HandshakesOverflow;
                let failure = Failure { cause, word: "overflow", detail };
                self.end_unfinished(stillest, failure, now);
            }
        }
        let Some(tls) = self.connections.tls_mut(key) else { return };
        let TlsState::Expected(settings) = &tls.state else { return };
        let handshake = Handshake::accept(&settings.context);
        tls.state = TlsState::Handshake(Some(Box::new(handshake)));
        let slot = self.connections.handshakes.insert(key, listener);
        self.connections.handshakes_expected -= 1;
        if let Some(tls) = self.connections.tls_mut(key) {
            tls.slot = Some(slot);
        }
    }

    /// Ends a connection with a client that has not finished its handshake, requests that came early
    /// included.
    fn end_unfinished(&mut self, key: ConnKey, failure: Failure, now: Time) {
        let cause = failure.cause;
        self.connections.tell_handshake(key, Some(failure), now, &self.listen, &mut self.cx);
        match self.connections.tls_mut(key).is_some_and(|tls| tls.is_early()) {
            true => self.break_downstream(key, Some(cause), now),
            false => self.close_downstream(key, Some(cause), now),
        }
    }

    /// A client whose connection has begun early did not finish its handshake in time.
    pub(in crate::proxy) fn on_early_deadline(&mut self, key: ConnKey, now: Time) {
        if self.connections.tls_mut(key).is_some_and(|tls| tls.is_early()) {
            let failure = self.connections.handshake_timeout(key, &self.listen);
            self.end_unfinished(key, failure, now);
        }
    }

    /// What came with the first bytes of a handshake.
    pub(in crate::proxy) fn resume_handshake(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !connection.is_handshaking() {
            return;
        }
        if let Some(mut inbox) = connection.inbox.take() {
            self.on_records(key, inbox.filled_mut(), now);
            self.cx.buffers.give_back(inbox);
        }
    }

    /// Begins the handshake with an upstream, once its connection stands. Says whether there is one.
    pub(in crate::proxy) fn begin_upstream_tls(&mut self, key: ConnKey, now: Time) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let Some(tls) = connection.tls.as_deref_mut() else { return false };
        let TlsState::Waiting { settings, is_raw, server_name } = &tls.state else { return false };
        let of_relays = settings.relay_context.as_ref().filter(|_| *is_raw);
        let context = of_relays.unwrap_or(&settings.context);
        match Handshake::connect(context, server_name) {
            Ok(mut handshake) => {
                let mut out = Vec::new();
                handshake.poll_output(&mut out);
                tls.state = TlsState::Handshake(Some(Box::new(handshake)));
                if let Some(connection) = self.connections.get_mut(key)
                    && let Some(tls) = connection.tls.as_deref_mut()
                {
                    tls.outbox.push(&out, &mut self.cx.buffers);
                }
                self.connections.queue_send(key, &mut self.cx);
            }
            Err(error) => {
                self.on_handshake_failed(key, Failure::of(&error), now);
            }
        }
        true
    }

    /// Feeds a handshake: how many bytes it consumed. None if the connection is over.
    pub(super) fn advance_handshake(
        &mut self,
        key: ConnKey,
        input: &[u8],
        now: Time,
    ) -> Option<usize> {
        if self.connections.tls_mut(key)?.is_early() {
            self.step_early(key, input, now)
        } else {
            self.step_handshake(key, input, |handshake| handshake.on_bytes(input), now)
        }
    }

    /// The same where the connection has begun. Its early data is data like all other.
    fn step_early(&mut self, key: ConnKey, input: &[u8], now: Time) -> Option<usize> {
        let tls = self.connections.tls_mut(key)?;
        tls.is_warm = true;
        let TlsState::Early(early) = &mut tls.state else { return None };
        let mut data = Vec::new();
        match early.handshake.on_bytes(input, &mut data) {
            Ok(n) => {
                let is_done = early.handshake.is_done();
                if n > 0 {
                    self.connections.touch_handshake(key);
                }
                if is_done {
                    self.connections.tell_handshake(key, None, now, &self.listen, &mut self.cx);
                    self.connections.end_early(key, &mut self.cx);
                }
                if !data.is_empty() {
                    self.on_data(key, &data, now);
                }
                Some(n)
            }
            Err(error) => {
                if let Some(alert) = error.alert() {
                    early.records.send_failure(alert.of_record());
                }
                let is_sent = tls.outbox.is_empty();
                let words = tls.records_mut().and_then(last_words).filter(|_| is_sent);
                self.cx.ops.extend(words.map(|words| Op::SendNow(key, words)));
                self.connections.tell_handshake(
                    key,
                    Some(Failure::of(&error)),
                    now,
                    &self.listen,
                    &mut self.cx,
                );
                self.break_downstream(key, Some(Cause::TlsHandshakeFailed), now);
                None
            }
        }
    }

    /// A signature that a handshake waited for is there, or is not to be had.
    pub(super) fn on_signature(
        &mut self,
        key: ConnKey,
        result: Result<Signature, SignError>,
        now: Time,
    ) {
        if !self.connections.get(key).is_some_and(Connection::awaits_signature) {
            return;
        }
        let step = |handshake: &mut Handshake| handshake.on_signature(result).map(|()| 0);
        if self.step_handshake(key, &[], step, now).is_none() {
            return;
        }
        if let Some(mut partial) = self.connections.tls_mut(key).and_then(|tls| tls.partial.take())
        {
            let (n, wanted) = self.open_records(key, partial.filled_mut(), now);
            partial.consume(n);
            self.connections.put_partial(key, partial, wanted, &mut self.cx);
        }
        // What was left lying while the signature was made.
        self.cx.ops.push_back(Op::Read(key));
    }

    /// A step of a handshake; `input` are the bytes that it looks at, if it is fed.
    fn step_handshake(
        &mut self,
        key: ConnKey,
        input: &[u8],
        step: impl FnOnce(&mut Handshake) -> Result<usize, HandshakeError>,
        now: Time,
    ) -> Option<usize> {
        let is_downstream = self.connections.is_downstream(key);
        let connection = self.connections.table.get_mut(key)?;
        let deadline = self.cx.timers.deadline(connection.timer);
        let tls = connection.tls.as_deref_mut()?;
        tls.is_warm = true;
        let TlsState::Handshake(handshake) = &mut tls.state else { return None };
        let mut handshake = handshake.take().expect("it is put back after each step");
        let result = step(&mut handshake);
        let mut out = Vec::new();
        handshake.poll_output(&mut out);
        let mut job = None;
        let mut early = None;
        let done = match result {
            Ok(n) if handshake.is_done() => handshake.finish().map(|done| (n, Some(done))),
            Ok(n) if handshake.may_begin_early() => handshake.into_early().map(|(begun, rest)| {
                early = Some(rest);
                (n, Some(begun))
            }),
            Ok(n) => {
                job = handshake.pending();
                tls.state = TlsState::Handshake(Some(handshake));
                Ok((n, None))
            }
            Err(error) => {
                // What it has read is for the log.
                tls.state = TlsState::Handshake(Some(handshake));
                Err(error)
            }
        };
        match done {
            Ok((n, done)) => {
                // A piece of a hello is no step: a client may send one now and then for ever.
                if let Some(slot) = tls.slot
                    && (job.is_some() || !out.is_empty())
                {
                    self.connections.handshakes.touch(slot);
                }
                if is_downstream && (job.is_some() || !out.is_empty()) {
                    // A step of work, and not a piece of a hello.
                    self.connections.handshakes_admitted =
                        self.connections.handshakes_admitted.saturating_sub(1);
                }
                if !out.is_empty() {
                    tls.outbox.push(&out, &mut self.cx.buffers);
                }
                let facts = done.map(|done| {
                    let records = done.records;
                    tls.state = match early {
                        Some(handshake) => {
                            let timer = self.cx.timers.insert(TimerOwner::Handshake(key).into());
                            self.cx.timers.arm(timer, deadline);
                            TlsState::Early(Box::new(Early { records, handshake, timer }))
                        }
                        None => TlsState::Records(records),
                    };
                    tls.tickets = done.tickets.map(Box::new);
                    done.facts
                });
                if !out.is_empty() {
                    self.connections.queue_send(key, &mut self.cx);
                }
                if let Some(job) = job {
                    self.connections.signers.submit(key, job, now);
                }
                if let Some(facts) = facts {
                    self.on_handshake_done(key, facts, now);
                }
                Some(n)
            }
            Err(error) => {
                self.on_step_failed(key, &error, (input, out), now);
                None
            }
        }
    }

    /// A step found an error. What the handshake has to say of it goes out, and to a client of HTTP without TLS that this is the wrong
    /// port for it.
    #[cold]
    fn on_step_failed(
        &mut self,
        key: ConnKey,
        error: &HandshakeError,
        (input, mut out): (&[u8], Vec<u8>),
        now: Time,
    ) {
        let is_downstream = self.connections.is_downstream(key);
        let is_not_tls = matches!(error, HandshakeError::NotTls);
        let detail = match is_not_tls {
            true if is_downstream => Detail::of_client(input),
            true => Detail::of_other_protocol(Detected::Tls, input),
            false => None,
        };
        let mut failure = Failure::of(error);
        failure.detail = detail.unwrap_or(failure.detail);
        let is_http = input.first().is_some_and(u8::is_ascii_uppercase);
        if is_downstream && is_http && is_not_tls {
            out.extend_from_slice(PLAIN_HTTP_REPLY);
        }
        let has_words = !out.is_empty();
        if has_words {
            self.cx.ops.push_back(Op::SendNow(key, out.into()));
        }
        if has_words && is_downstream {
            self.connections.refuse_handshake(key, failure, now, &mut self.listen, &mut self.cx);
        } else {
            self.on_handshake_failed(key, failure, now);
        }
    }

    fn on_handshake_done(&mut self, key: ConnKey, mut facts: HandshakeFacts, now: Time) {
        let Some(connection) = self.connections.table.get_mut(key) else { return };
        match &connection.role {
            ConnectionRole::Downstream(downstream) => {
                let listener = self.listen.listeners.get(downstream.listener).listener();
                let settings = listener.seen_by(downstream.chain).tls.as_ref();
                let shown = settings.filter(|_| facts.peer.is_some()).and_then(|settings| {
                    let shown = settings.context.certificate_for(facts.server_name.as_deref());
                    shown.uris().first().cloned()
                });
                // It is known from what is spoken.
                let (alpn, server_name) = (facts.alpn.take(), facts.server_name.clone());
                if let Some(tls) = connection.tls.as_deref_mut() {
                    let facts = ClientFacts { handshake: facts, shown_uri: shown };
                    tls.facts = Some(Box::new(facts));
                }
                if !connection.owes_handshake() {
                    if let Some(slot) = connection.tls.as_deref_mut().and_then(|it| it.slot.take())
                    {
                        self.connections.handshakes.remove(slot);
                    }
                    self.connections.tell_handshake(key, None, now, &self.listen, &mut self.cx);
                }
                self.begin_inside_tls(key, alpn.as_deref(), server_name.as_deref(), now);
            }
            ConnectionRole::Upstream(_) => {
                self.connections.upstream_handshakes -= 1;
                // Without a word about it, it is what the configuration says.
                let is_shared = connection.multiplex().is_some();
                let other = facts.alpn.as_deref().filter(|alpn| is_shared && *alpn != b"h2");
                let result = match other {
                    Some(alpn) => {
                        let alpn = alpn.escape_ascii();
                        let words = format!("the peer has chosen {alpn} instead of h2");
                        self.connections.note_reason(key, || Detail::of(&words));
                        let reason = "alpn_mismatch";
                        Err(ConnectFault { cause: Cause::UpstreamTlsFailed, reason })
                    }
                    None => Ok(()),
                };
                self.on_established(key, result, now);
            }
        }
    }

    /// The peer closed or reset its connection before the end of the handshake.
    pub(super) fn on_peer_gone(&mut self, key: ConnKey, how: &str, now: Time) {
        let words =
            format_args!("the peer closed the connection before the end of the handshake: {how}");
        let detail = Detail::of(&words);
        let failure = Failure { cause: Cause::TlsHandshakeFailed, word: "peer_gone", detail };
        self.on_handshake_failed(key, failure, now);
    }

    fn on_handshake_failed(&mut self, key: ConnKey, failure: Failure, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        match connection.role {
            ConnectionRole::Downstream(_) => {
                self.connections.tell_handshake(
                    key,
                    Some(failure),
                    now,
                    &self.listen,
                    &mut self.cx,
                );
                self.close_downstream(key, Some(Cause::TlsHandshakeFailed), now);
            }
            ConnectionRole::Upstream(_) => {
                let reason = failure.word;
                self.connections.note_reason(key, || failure.detail);
                let fault = ConnectFault { cause: Cause::UpstreamTlsFailed, reason };
                self.on_established(key, Err(fault), now);
            }
        }
    }
}
