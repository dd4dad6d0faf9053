//! Hop 3 while the handshake lasts: steps of `tls::Handshake`, what comes of them, and who learns of it.
//!
//! ```text
//!   begin_tls, begin_upstream_tls ─► step_handshake ─► done ───► on_handshake_done ─► records
//!                                      │    ▲   │                      ▲
//!                              on_signature ┘   ├─► early ─► step_early┘ (data meanwhile)
//!                                               └─► failed ─► alert, counted, closed
//! ```

use std::sync::Arc;
use std::time::Duration;

use config::snapshot::ListenerTls;
use telemetry::cause::Cause;
use telemetry::events::{TlsHandshakeFinished, TlsHandshakeKind};
use tls::HandshakeError;

use super::{Early, Tls, TlsState};
use crate::connection::codec::Codec;
use crate::connection::codec::Opening;
use crate::connection::connections::Connections;
use crate::connection::debug_log::{Named, cut};
use crate::connection::{Connection, Life};
use crate::cx::Cx;
use crate::keys::{ConnKey, label};
use crate::listen::Listen;
use crate::tools::detail::Detail;
use crate::tools::time::Time;

impl Connections {
    /// A handshake made progress: it is not the next to give way.
    pub(crate) fn touch_handshake(&mut self, key: ConnKey) {
        if let Some(slot) = self.tls_mut(key).and_then(|tls| tls.slot) {
            self.handshakes.touch(slot);
        }
    }

    /// Gives back what a connection holds for its handshake, which is over or goes with it.
    pub(crate) fn end_handshake(&mut self, connection: &mut Connection, cx: &mut Cx) {
        let is_upstream = connection.upstream().is_some();
        let Some(tls) = connection.tls.as_deref_mut() else { return };
        if let Some(slot) = tls.slot.take() {
            self.handshakes.remove(slot);
        }
        match &tls.state {
            TlsState::Expected(_) => self.handshakes_expected -= 1,
            TlsState::Waiting { .. } | TlsState::Handshake(_) if is_upstream => {
                self.upstream_handshakes -= 1;
            }
            TlsState::Early(early) => cx.timers.remove(early.timer),
            TlsState::Waiting { .. } | TlsState::Handshake(_) | TlsState::Records(_) => {}
        }
    }

    /// The client has shown that it is there: it gets a ticket for the next time.
    pub(crate) fn end_early(&mut self, key: ConnKey, cx: &mut Cx) {
        let Some(connection) = self.table.get_mut(key) else { return };
        let Some(tls) = connection.tls.as_deref_mut() else { return };
        match std::mem::replace(&mut tls.state, TlsState::Handshake(None)) {
            TlsState::Early(early) => {
                let Early { mut records, handshake, timer } = *early;
                cx.timers.remove(timer);
                if let Some(slot) = tls.slot.take() {
                    self.handshakes.remove(slot);
                }
                for ticket in handshake.into_tickets() {
                    let room = records.ticket_len(&ticket);
                    tls.outbox.push_with(room, &mut cx.buffers, |out| {
                        records.send_ticket(&ticket, out);
                    });
                }
                tls.state = TlsState::Records(records);
            }
            state => tls.state = state,
        }
        self.queue_send(key, cx);
    }
}

impl Connections {
    /// A client is to begin a handshake. Until it sends something, it costs as much as any other
    /// silent connection.
    pub(crate) fn begin_tls(
        &mut self,
        key: ConnKey,
        settings: &Arc<ListenerTls>,
        now: Time,
        listen: &Listen,
        cx: &mut Cx,
    ) {
        let Some(connection) = self.table.get_mut(key) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let listener = listen.listeners.get(downstream.listener).listener();
        let deadline = now + listener.timeouts.tls_handshake;
        self.handshakes_expected += 1;
        connection.tls = Some(Box::new(Tls::new(TlsState::Expected(Arc::clone(settings)), now)));
        // The time of a hello that came slowly is that of its handshake.
        let came_slowly = connection.opening() == Some(Opening::Hello);
        connection.codec = Codec::Opening(Opening::Handshake);
        if !came_slowly {
            cx.timers.arm(connection.timer, deadline);
        }
    }

    /// Says how a client's handshake ended.
    pub(crate) fn tell_handshake(
        &self,
        key: ConnKey,
        failure: Option<Failure>,
        now: Time,
        listen: &Listen,
        cx: &mut Cx,
    ) {
        let Some(connection) = self.get(key) else { return };
        let Some((downstream, tls)) = connection.downstream().zip(connection.tls.as_deref()) else {
            return;
        };
        let listener = label(listen.listeners.get(downstream.listener).id.0);
        let duration = now.nanos_since(tls.began);
        let is_resumed = tls.facts.as_ref().is_some_and(|facts| facts.handshake.is_resumed);
        let kind = match is_resumed {
            _ if tls.is_early() => TlsHandshakeKind::Early,
            true => TlsHandshakeKind::Resumed,
            false => TlsHandshakeKind::Full,
        };
        let failed = failure.as_ref().map(|failure| failure.word);
        let event = TlsHandshakeFinished { listener, kind, duration, failure: failed };
        cx.emitter.tls_handshake_finished(&event);
        if cx.emitter.is_debug() {
            match &failure {
                None => self.debug_tls(key, now, cx),
                Some(Failure { word, detail, .. }) => {
                    let words = format_args!("TLS failed: {word}, {}", cut(detail.as_bytes()));
                    cx.debug(Named(key), words, now);
                }
            }
        }
        // One that says nothing and goes is a probe, or has changed its mind.
        let is_begun = !matches!(tls.state, TlsState::Expected(_));
        if let Some(Failure { cause, detail, .. }) = failure.filter(|_| is_begun) {
            self.log_failed(key, cause, || detail, now, listen, cx);
        }
    }
}

impl Connections {
    /// A client's handshake failed, and an alert went out. What it sends before it reads that would be
    /// answered by a reset, which takes the words from it: so it is read for a while.
    pub(crate) fn refuse_handshake(
        &mut self,
        key: ConnKey,
        failure: Failure,
        now: Time,
        listen: &mut Listen,
        cx: &mut Cx,
    ) {
        self.tell_handshake(key, Some(failure), now, listen, cx);
        let Some(connection) = self.get_mut(key) else { return };
        if let Some(mut tls) = connection.tls.take() {
            tls.clear(&mut cx.buffers);
            if let Some(slot) = tls.slot.take() {
                self.handshakes.remove(slot);
            }
        }
        self.linger(key, now, listen, cx);
        if let Some(downstream) = self.get_mut(key).and_then(Connection::downstream_mut) {
            downstream.life = Life::Refused;
        }
    }

    /// A handshake did not come to its end in time.
    pub(crate) fn on_handshake_timeout(
        &mut self,
        key: ConnKey,
        now: Time,
        listen: &mut Listen,
        cx: &mut Cx,
    ) {
        let failure = self.handshake_timeout(key, listen);
        self.tell_handshake(key, Some(failure), now, listen, cx);
        self.close_downstream(key, Some(Cause::TlsHandshakeTimeout), now, listen, cx);
    }
}

impl Connections {
    /// The time that a client has for its handshake is over.
    pub(crate) fn handshake_timeout(&self, key: ConnKey, listen: &Listen) -> Failure {
        let downstream = self.get(key).and_then(Connection::downstream);
        let bound = downstream.map_or(Duration::ZERO, |downstream| {
            listen.listeners.get(downstream.listener).listener().timeouts.tls_handshake
        });
        let detail = Detail::of_bound("timeouts.tls_handshake of the listener", bound);
        Failure { cause: Cause::TlsHandshakeTimeout, word: "tls_timeout", detail }
    }
}

/// How a handshake failed.
pub(crate) struct Failure {
    /// What it is called of a client's handshake.
    pub(crate) cause: Cause,
    /// The reason, of a closed set.
    pub(crate) word: &'static str,
    /// What else is known.
    pub(crate) detail: Detail,
}

impl Failure {
    pub(crate) fn of(error: &HandshakeError) -> Self {
        let cause = Cause::TlsHandshakeFailed;
        Self { cause, word: error.word(), detail: Detail::of(error) }
    }
}
