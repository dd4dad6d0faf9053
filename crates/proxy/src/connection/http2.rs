//! What a connection of HTTP/2 has as a whole: what it is watched for, GOAWAY, and how a connection becomes
//! one.
//!
//! Its streams are in `streams`, its frames in `codec::http2`.

use wire::detect::resembles_http2;
use wire::h2::{ErrorCode, Http2, Limits};

use crate::connection::ConnectionRole;
use crate::connection::codec::Codec;
use crate::connection::codec::http2::{Http2Frames, downstream_limits};
use crate::connection::codec::multiplex::{Frames, Multiplex};
use crate::connection::codec::watches::Watch;
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::keys::ConnKey;
use crate::listen::Listen;
use crate::listen::drain::DRAIN_IDLE;
use crate::tools::rate::Rate;
use crate::tools::time::Time;

/// What the PING behind the first GOAWAY holds; its answer says that the peer has seen both.
pub(crate) const GOAWAY_PING: [u8; 8] = *b"goodbye?";

impl Connections {
    /// Makes a connection one of HTTP/2.
    pub(crate) fn set_multiplex(&mut self, key: ConnKey, multiplex: Multiplex, cx: &mut Cx) {
        if let Some(connection) = self.get_mut(key) {
            connection.codec = Codec::Shared(Box::new(multiplex));
        }
        self.arm_watches(key, cx);
    }

    pub(crate) fn multiplex_mut(&mut self, key: ConnKey) -> Option<&mut Multiplex> {
        self.get_mut(key)?.multiplex_mut()
    }

    /// Sets what a connection is watched for, and its timer accordingly.
    pub(crate) fn watch(&mut self, key: ConnKey, watch: Watch, deadline: Time, cx: &mut Cx) {
        if let Some(multiplex) = self.multiplex_mut(key) {
            multiplex.watches.set(watch, deadline);
            self.arm_watches(key, cx);
        }
    }

    pub(crate) fn arm_watches(&self, key: ConnKey, cx: &mut Cx) {
        let Some(connection) = self.get(key) else { return };
        let Some(multiplex) = connection.multiplex() else { return };
        let (_, deadline) = multiplex.watches.first();
        // A timer that fires early looks what is next, so only an earlier one is armed.
        if deadline < cx.timers.deadline(connection.timer) || !deadline.is_set() {
            cx.timers.arm(connection.timer, deadline);
        }
    }

    /// Tells a downstream that its connection will end. What it asks for before it knows is
    /// answered (RFC 9113, section 6.8).
    pub(crate) fn begin_goaway(&mut self, key: ConnKey, now: Time, cx: &mut Cx) {
        let Some(multiplex) = self.multiplex_mut(key) else { return };
        multiplex.drain();
        multiplex.ping(GOAWAY_PING);
        self.watch(key, Watch::FinalGoaway, now + DRAIN_IDLE, cx);
        self.queue_send(key, cx);
    }

    /// It knows, or had time to: no further streams are taken.
    pub(crate) fn finish_goaway(&mut self, key: ConnKey, cx: &mut Cx) {
        let Some(multiplex) = self.multiplex_mut(key) else { return };
        multiplex.watches.clear(Watch::FinalGoaway);
        multiplex.go_away(ErrorCode::NO_ERROR);
        self.queue_send(key, cx);
    }
}

impl Connections {
    /// Goes on with a downstream connection as HTTP/2.
    pub(crate) fn begin_http2(&mut self, key: ConnKey, now: Time, listen: &Listen, cx: &mut Cx) {
        let Some(connection) = self.get(key) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let listener = listen.listeners.get(downstream.listener).listener();
        let limits = downstream_limits(&listener.http, &listener.http2, cx.memory.level);
        let opening = now + listener.timeouts.request_head;
        let mut multiplex = Multiplex::new(http2(Http2::server(&limits), limits, now));
        multiplex.watches.set(Watch::Opening, opening);
        self.set_multiplex(key, multiplex, cx);
        // SETTINGS are the first frame (RFC 9113, section 3.4).
        self.queue_send(key, cx);
    }

    /// Watches that the peer takes what waits for it, of which so many bytes have `moved` now.
    pub(crate) fn watch_writing(
        &mut self,
        key: ConnKey,
        now: Time,
        moved: usize,
        listen: &Listen,
        cx: &mut Cx,
    ) {
        let Some(connection) = self.get(key) else { return };
        let is_rpc = connection.multiplex().is_some_and(|multiplex| multiplex.rpc().is_some());
        let (timeout, bytes_min) = match &connection.role {
            ConnectionRole::Downstream(downstream) => {
                let listener = listen.listeners.get(downstream.listener).listener();
                (listener.timeouts.response_write, listener.http.response_rate_bytes_min)
            }
            ConnectionRole::Upstream(upstream) => match cx.snapshot.cluster(upstream.cluster) {
                Some(cluster) => (cluster.timeouts.request_write, 0),
                None => return,
            },
        };
        let is_empty = connection.is_sent() || connection.is_connecting();
        let Some(multiplex) = self.multiplex_mut(key) else { return };
        if is_empty {
            multiplex.watches.clear(Watch::Write);
        } else if moved > 0 || !multiplex.watches.is_set(Watch::Write) {
            // Of HTTP/2 each stream has its own rate; calls of RPC wait for the connection alone.
            let rate = Rate { bytes_min: if is_rpc { bytes_min } else { 0 }, timeout };
            let (deadline, _) = rate.extend(multiplex.watches.get(Watch::Write), moved, now);
            self.watch(key, Watch::Write, deadline, cx);
        }
    }

    /// Whether what came of a first head, so far, is the beginning of HTTP/2's preface.
    pub(crate) fn has_begun_preface(&self, key: ConnKey) -> bool {
        let Some(connection) = self.get(key) else { return false };
        let inbox = connection.inbox.as_ref().map(|inbox| inbox.filled());
        connection.requests == 0 && inbox.and_then(resembles_http2) == Some(true)
    }
}

pub(crate) fn http2(codec: Http2, limits: Limits, now: Time) -> Frames {
    Frames::Http2(Http2Frames::new(codec, limits, now))
}
