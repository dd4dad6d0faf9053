//! Everything that one worker's connections are, and the events that move it.
//!
//! Methods named `on_*` take what happened; [`Proxy::poll_op`] says what to do next. A method
//! that finds its key stale does nothing: what it is about is over.
//!
//! Methods stand in a folder for each phase of a request. What others may call of a phase is
//! `pub(in crate::proxy)` in its folder, and `cargo xtask tidy` compares this table with the calls:
//!
//! | phase | calls | where |
//! |---|---|---|
//! | `listen` | `end`, `receive`, `request` | a relayed connection fails, a connection of RPC awaits calls, the client of a tunnel has ended its side |
//! | `receive` | `end`, `listen`, `request`, `response` | an element goes to its exchange, first bytes are read, a connection breaks or is sent to |
//! | `request` | `end`, `listen`, `receive`, `response` | a request fails, is to be relayed, or gets a reply; a handshake begins; a body goes on |
//! | `response` | `end`, `request` | a response fails or releases its upstream; a filter holds it, an upgrade ends its request |
//! | `end` | `listen`, `receive`, `request`, `response` | an attempt is made again or a reply is sent; FIN ends a message; a deadline passes |

mod describe;
mod end;
mod listen;
pub(crate) mod receive;
mod request;
mod response;
mod settle;

use std::io::IoSlice;
use std::sync::Arc;

use config::snapshot::ClusterId;
use telemetry::Emitter;
use telemetry::cause::Cause;
use wire::buffer::Buffer;
use wire::head::RequestHead;

use crate::Snapshot;
use crate::connection::bounds::OUTBOX_BYTES_MAX;
use crate::connection::codec::Codec;
use crate::connection::codec::http1::Http1;
use crate::connection::codec::http1::Receive;
use crate::connection::connections::Connections;
use crate::connection::holding_back::has_request_waiting;
use crate::connection::{Connection, ConnectionRole, Downstream, is_peer_behind};
use crate::cx::Cx;
use crate::exchange::Request;
use crate::exchange::exchanges::Exchanges;
use crate::keys::{ConnKey, ExchangeKey, StreamKey};
use crate::listen::Listen;
use crate::listen::listeners::Listeners;
use crate::ops::Op;
use crate::save::Leaving;
use crate::share::Settings;
use crate::timers::TimerOwner;
use crate::tools::buffers::BufferUse;
use crate::tools::detail::Detail;
use crate::tools::outbox::SLICES_MAX;
use crate::tools::pinned::Pinned;
use crate::tools::sent::Sent;
use crate::tools::time::Time;
use crate::upstream::Upstreams;

/// How much a worker has of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Connections, either way.
    pub connections: usize,
    /// Handshakes of TLS that are going on, or expected: connections that cannot be moved.
    pub handshakes: usize,
    /// Exchanges.
    pub exchanges: usize,
    /// Exchanges that wait for an upstream connection.
    pub waiting: usize,
    /// Requests under way at endpoints whose balancer compares them.
    pub counted: usize,
    /// Exchanges that hold one while their client stands still.
    pub stalled: usize,
    /// Client addresses that are known.
    pub clients: usize,
    /// Upstream connections in pools.
    pub idle: usize,
    /// Leases of buffers.
    pub buffers: BufferUse,
}

/// Everything that one worker's connections are.
#[derive(Debug)]
pub struct Proxy {
    pub(crate) connections: Connections,
    pub(crate) exchanges: Exchanges,
    pub(crate) upstream: Upstreams,
    pub(crate) listen: Listen,
    /// A group that is about to leave.
    pub(crate) leaving: Option<Leaving>,
    pub(crate) cx: Cx,
}

impl Proxy {
    /// A worker's state before its first connection.
    #[must_use]
    pub fn new(settings: Settings, snapshot: Arc<Snapshot>, emitter: Emitter, now: Time) -> Self {
        let share = settings.share;
        let cx = Cx::new(settings, snapshot, emitter, now);
        let listeners = Listeners::new(&cx.snapshot);
        let mut upstream = Upstreams::new(share);
        let clusters: Vec<_> = cx.snapshot.clusters.iter().map(|(_, cluster)| cluster.id).collect();
        upstream.note_ages(&cx.snapshot, &clusters);
        Self {
            connections: Connections::default(),
            exchanges: Exchanges::default(),
            upstream,
            listen: Listen::new(listeners, now),
            leaving: None,
            cx,
        }
    }

    // What the worker asks.

    /// The next thing to do, if any.
    pub fn poll_op(&mut self, now: Time) -> Option<Op> {
        debug_assert!(self.cx.agenda.is_empty(), "each event is settled");
        self.relieve_noted(now);
        let op = loop {
            let op = self.cx.ops.pop_front()?;
            // The exchange that asked for it may be gone: then there is nothing to connect for.
            let is_stale = matches!(&op, Op::Connect { connection, .. } if self.connections.get(*connection).is_none());
            if !is_stale {
                break op;
            }
        };
        match op {
            Op::Send(key) => {
                self.frame(key, now);
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.is_flush_queued = false;
                }
                self.seal(key, now);
            }
            Op::Read(key) => self.on_close_notify(key, now),
            _ => return Some(op),
        }
        self.settle(now);
        Some(op)
    }

    /// Bytes to read from a connection now; 0 while it is held back.
    #[must_use]
    pub fn read_bytes_max(&self, key: ConnKey) -> usize {
        let Some(connection) = self.connections.get(key) else { return 0 };
        if connection.is_read_closed {
            return 0;
        }
        let room = connection.inbox_room();
        if connection.is_handshaking() {
            let waits = connection.awaits_signature() || self.is_handshake_held(key);
            return if waits { 0 } else { room };
        }
        let has_exchange = match &connection.role {
            ConnectionRole::Downstream(Downstream { lingering: Some(lingering), .. }) => {
                return if lingering.left() == 0 { 0 } else { room };
            }
            ConnectionRole::Downstream(downstream) => downstream.exchange.is_some(),
            ConnectionRole::Upstream(_) if connection.is_connecting() => return 0,
            ConnectionRole::Upstream(_) => false,
        };
        match &connection.codec {
            Codec::Http1(Http1 { receive: Receive::Head(_), .. }) => {
                if has_exchange || has_request_waiting(connection) { 0 } else { room }
            }
            Codec::Opening(_) | Codec::Http1(Http1 { receive: Receive::Discard { .. }, .. }) => {
                room
            }
            Codec::Http1(Http1 { receive: Receive::Complete, .. }) => 0,
            Codec::Shared(multiplex) => {
                let is_held = is_peer_behind(connection) || multiplex.share.is_held();
                if is_held { 0 } else { room }
            }
            Codec::Bytes(codec) if codec.is_read_complete => 0,
            Codec::Http1(_) | Codec::Bytes(_) => {
                match self.exchanges.opposite_of(StreamKey::alone(key), &self.connections) {
                    Some(other) if !self.connections.is_held_back(other) => room,
                    None if self.exchanges.gathers(connection) => room,
                    _ => 0,
                }
            }
        }
    }

    /// Whether bytes wait to be sent.
    #[must_use]
    pub fn has_unsent(&self, key: ConnKey) -> bool {
        self.connections.get(key).is_some_and(|connection| {
            let is_open = !connection.is_send_broken;
            match &connection.tls {
                Some(tls) => is_open && !tls.outbox().is_empty(),
                None => is_open && !connection.outbox.is_empty() && !connection.is_connecting(),
            }
        })
    }

    /// Fills `slices` with what waits to be sent; returns how many were filled.
    #[must_use]
    pub fn unsent<'a>(&'a self, key: ConnKey, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        self.connections.get(key).map_or(0, |connection| match &connection.tls {
            Some(tls) => tls.outbox().slices(slices),
            None => connection.outbox.slices(slices),
        })
    }

    /// When to call [`Proxy::on_deadlines`] again, if ever.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let timers = self.cx.timers.next_deadline();
        let drains = self.listen.draining_listeners.iter().map(|(_, deadline)| *deadline);
        let buffered_due = self.listen.buffered_due(self.exchanges.bytes(), &self.cx);
        let looks = self.upstream.crowds.due().into_iter().chain(buffered_due);
        let others = self.cx.drain_deadline.into_iter().chain(looks);
        timers.into_iter().chain(others).chain(drains).min()
    }

    /// The newest configuration.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        self.cx.snapshot.shared()
    }

    /// How much there is of everything.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            connections: self.connections.table.len(),
            handshakes: (self.connections.handshakes.len()
                + self.connections.handshakes_expected
                + self.connections.upstream_handshakes) as usize,
            exchanges: self.exchanges.table.len(),
            waiting: self.upstream.pools.waiting as usize,
            counted: self.upstream.pools.counted as usize,
            stalled: self.exchanges.stalls.len(),
            clients: self.listen.clients.len(),
            idle: self.upstream.pools.idle as usize,
            buffers: self.cx.buffers.usage(),
        }
    }

    // What the worker tells.

    /// The wall clock, as the time of the monotonic clock's zero: ns since the Unix epoch.
    pub const fn on_wall_clock(&mut self, zero: u64) {
        self.cx.wall_clock_zero = zero;
    }

    /// A newer configuration. Work follows what it changes, not its size.
    pub fn on_snapshot(&mut self, snapshot: Arc<Snapshot>, now: Time) {
        let snapshot = Pinned::new(snapshot);
        self.cx.set_snapshot(snapshot.clone());
        for lost in self.listen.listeners.split(&snapshot) {
            if !self.listen.move_to_draining(&lost, &snapshot, &mut self.connections) {
                continue;
            }
            self.listen.drain_listener(
                lost.to,
                &snapshot,
                now,
                &mut self.connections,
                &mut self.cx,
            );
        }
        for listener in self.listen.listeners.update(&snapshot) {
            self.listen.drain_listener(
                listener,
                &snapshot,
                now,
                &mut self.connections,
                &mut self.cx,
            );
        }
        let changes = &snapshot.changes;
        for listener in &changes.listeners_removed {
            self.cx.ops.push_back(Op::CloseListener(*listener));
        }
        for (_, endpoint) in &changes.transports_changed {
            self.upstream.dismiss_idle(*endpoint, now, &mut self.connections, &mut self.cx);
        }
        for (cluster, endpoint) in &changes.endpoints_removed {
            self.upstream.dismiss_idle(*endpoint, now, &mut self.connections, &mut self.cx);
            self.upstream.pools.forget_endpoint(*endpoint);
            self.serve_cluster(*cluster, now);
        }
        for (cluster, endpoint) in &changes.endpoints_added {
            if let Some(cluster) = snapshot.cluster(*cluster) {
                self.upstream.pools.on_endpoint_added(cluster, *endpoint, now);
            }
        }
        self.upstream.note_ages(&snapshot, &changes.clusters_added);
        self.upstream.note_ages(&snapshot, &changes.clusters_changed);
        for id in &changes.clusters_changed {
            if let Some(cluster) = snapshot.cluster(*id) {
                self.upstream.pools.count_endpoints(cluster);
            }
            for pool in self.upstream.pools.pools_of(*id) {
                self.upstream.pools.forget_full(pool);
            }
            self.serve_cluster(*id, now);
        }
        for cluster in &changes.clusters_removed {
            for pool in self.upstream.pools.pools_of(*cluster) {
                self.upstream.pools.forget_pool(pool);
            }
        }
        self.cx.retire_former();
        self.settle(now);
    }

    /// Clusters that waited for the first checks of their endpoints serve.
    pub fn on_warmed(&mut self, clusters: &[ClusterId], now: Time) {
        clusters.iter().for_each(|cluster| self.serve_cluster(*cluster, now));
        self.settle(now);
    }

    /// Data of a connection.
    pub(in crate::proxy) fn on_data(&mut self, key: ConnKey, bytes: &[u8], now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.inbox.take() {
            None => {
                let consumed = self.consume(key, bytes, now);
                let rest = bytes.get(consumed..).unwrap_or_default();
                if !rest.is_empty() && self.connections.get(key).is_some() {
                    let mut inbox = self.cx.buffers.lease(rest.len());
                    inbox.push(rest);
                    self.connections.put_inbox(key, inbox, &mut self.cx);
                }
            }
            Some(inbox) => {
                let mut inbox = self.cx.buffers.widen(inbox, bytes.len());
                inbox.push(bytes);
                self.consume_inbox(key, inbox, now);
            }
        }
    }

    /// No more data comes.
    pub(in crate::proxy) fn on_data_end(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.is_read_closed = true;
        match connection.role {
            ConnectionRole::Downstream(_) => self.on_downstream_end(key, now),
            ConnectionRole::Upstream(_) => self.on_upstream_end(key, now),
        }
    }

    /// The connection is broken or closed on both sides while it is held back from reading. An
    /// upstream's last bytes may still be there to read, and those of a downstream that was sent all
    /// that there is: only another downstream is given up.
    pub fn on_hangup(&mut self, key: ConnKey, now: Time) {
        let is_gone = |connection: &Connection| {
            let was_told_all = connection.is_shut;
            connection.downstream().is_some() && !(was_told_all && connection.exchange().is_some())
        };
        if self.connections.get(key).is_some_and(is_gone) {
            self.on_downstream_broken(key, "closed or reset", now);
            self.settle(now);
        }
    }

    /// The socket took `n` of the unsent bytes; the send began at `began`.
    pub fn on_sent(&mut self, key: ConnKey, n: usize, began: Time, now: Time) {
        self.handle_sent(key, n, began, now);
        self.settle(now);
    }

    fn handle_sent(&mut self, key: ConnKey, n: usize, began: Time, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (before, n) = connection.on_bytes_sent(n, &mut self.cx.buffers);
        let after = before - n;
        if connection.multiplex().is_some() {
            self.on_frames_sent(key, before, n, now);
            // These frames have to be sealed too.
            return self.connections.seal_more(key, &mut self.cx);
        }
        if connection.tls.is_some() {
            self.connections.seal_more(key, &mut self.cx);
        }
        if before >= OUTBOX_BYTES_MAX
            && after < OUTBOX_BYTES_MAX
            && let Some(source) =
                self.exchanges.opposite_of(StreamKey::alone(key), &self.connections)
        {
            self.connections.on_caught_up(source, &mut self.cx);
            if let Some(exchange) = self.connections.get(key).and_then(Connection::exchange) {
                self.exchanges.resume_response(exchange, now);
            }
        }
        let sent = Sent { bytes: n, left: after, began };
        match self.connections.get(key).map(|connection| &connection.role) {
            Some(ConnectionRole::Downstream(_)) => self.on_downstream_sent(key, sent, now),
            Some(ConnectionRole::Upstream(_)) => self.on_upstream_sent(key, sent, now),
            None => {}
        }
    }

    /// The socket takes nothing more: the peer reset it, or closed it and got our bytes, or the network failed. `errno` is the error's
    /// name, such as `EPIPE`; empty if there is none.
    pub fn on_send_failed(&mut self, key: ConnKey, errno: &'static str, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.role {
            ConnectionRole::Downstream(_) => {
                let how =
                    if errno.is_empty() { "closed or reset while it was sent to" } else { errno };
                self.on_downstream_broken(key, how, now);
            }
            // What the upstream said before it closed may still be there to read.
            ConnectionRole::Upstream(_) => self.on_upstream_send_failed(key, errno, now),
        }
        self.settle(now);
    }

    /// Time passed.
    pub fn on_deadlines(&mut self, now: Time) {
        while let Some(owner) = self.cx.timers.pop_expired(now) {
            match owner.unpack() {
                TimerOwner::Connection(key) if self.cx.has_part_of_group => {
                    // It may be one whose exchange is not here yet, or not any more.
                    self.connections.postpone(key, now, &mut self.cx);
                }
                TimerOwner::Connection(key) => self.on_connection_deadline(key, now),
                TimerOwner::Exchange(key) if self.is_leaving_exchange(key) => {
                    self.exchanges.postpone(key, now, &mut self.cx);
                }
                TimerOwner::Exchange(key) => self.on_exchange_deadline(key, now),
                TimerOwner::Handshake(key) => self.on_early_deadline(key, now),
            }
            self.settle(now);
        }
        if self.cx.has_part_of_group {
            return;
        }
        let is_over = |(_, deadline): &(_, Time)| *deadline <= now;
        while let Some(place) = self.listen.draining_listeners.iter().position(is_over) {
            let (listener, _) = self.listen.draining_listeners.swap_remove(place);
            let why = self.drain_bound();
            self.end_downstreams(&why, now, |downstream| downstream.listener == listener);
        }
        if self.cx.drain_deadline.is_some_and(|deadline| deadline <= now) {
            self.end_drain(now);
        }
        self.settle(now);
        self.relieve_crowds(now);
        self.bound_growth(now);
        self.bound_buffered(now);
    }

    /// Gives memory back that was not needed lately, looks at what clients hold, and says what has failed. Called every ten
    /// seconds.
    pub fn on_quiet(&mut self) {
        self.cx.emitter.report_failures();
        self.cx.agenda.trim();
        self.cx.buffers.trim();
        self.look_at_held();
        self.listen.clients.trim();
        self.connections.table.shrink();
        self.exchanges.table.shrink();
        self.cx.timers.shrink();
    }

    /// Places for connections, used or not: beyond them no key leads anywhere.
    #[must_use]
    pub const fn connection_slots(&self) -> usize {
        self.connections.table.slots()
    }

    // What methods of `Proxy` ask of one part, with what that takes.

    /// [`Connections::log_failed`].
    pub(in crate::proxy) fn log_failed(
        &mut self,
        key: ConnKey,
        cause: Cause,
        detail: impl FnOnce() -> Detail,
        now: Time,
    ) {
        self.connections.log_failed(key, cause, detail, now, &self.listen, &mut self.cx);
    }

    /// [`Connections::close_downstream`].
    pub(in crate::proxy) fn close_downstream(
        &mut self,
        key: ConnKey,
        cause: Option<Cause>,
        now: Time,
    ) {
        self.connections.close_downstream(key, cause, now, &mut self.listen, &mut self.cx);
    }

    /// [`Upstreams::close_upstream`].
    pub(crate) fn close_upstream(&mut self, key: ConnKey, cause: Option<Cause>, now: Time) {
        self.upstream.close_upstream(key, cause, now, &mut self.connections, &mut self.cx);
    }

    /// [`Exchanges::begin_exchange`].
    #[inline]
    pub(in crate::proxy) fn begin_exchange(
        &mut self,
        at: StreamKey,
        request: Request,
        now: Time,
    ) -> Option<ExchangeKey> {
        let Self { connections, exchanges, listen, cx, .. } = self;
        exchanges.begin_exchange(at, request, now, connections, listen, cx)
    }

    /// [`Exchanges::upgrade_to_http2`].
    pub(in crate::proxy) fn upgrade_to_http2(
        &mut self,
        key: ExchangeKey,
        head: &RequestHead<'_>,
        now: Time,
    ) {
        let Self { connections, exchanges, cx, .. } = self;
        exchanges.upgrade_to_http2(key, head, now, connections, cx);
    }

    /// [`Exchanges::remove_exchange`].
    #[inline]
    pub(in crate::proxy) fn remove_exchange(
        &mut self,
        key: ExchangeKey,
        cause: Option<Cause>,
        now: Time,
    ) -> Option<StreamKey> {
        let Self { connections, exchanges, upstream, listen, cx, .. } = self;
        exchanges.remove_exchange(key, cause, now, upstream, connections, listen, cx)
    }

    // What several parts share.

    /// Reads on from a connection, beginning with what it could not consume before.
    pub(crate) fn resume_inbox(&mut self, key: ConnKey, now: Time) {
        if self.connections.get(key).is_some_and(Connection::is_handshaking) {
            return self.resume_handshake(key, now);
        }
        self.consume_left(key, now);
        self.cx.ops.push_back(Op::Read(key));
    }

    /// Feeds a connection what it could not consume before.
    pub(in crate::proxy) fn consume_left(&mut self, key: ConnKey, now: Time) {
        let inbox = self.connections.get_mut(key).and_then(|connection| connection.inbox.take());
        if let Some(inbox) = inbox {
            self.consume_inbox(key, inbox, now);
        }
    }

    fn consume_inbox(&mut self, key: ConnKey, mut inbox: Buffer, now: Time) {
        let consumed = self.consume(key, inbox.filled(), now);
        inbox.consume(consumed);
        self.connections.put_inbox(key, inbox, &mut self.cx);
    }
}
