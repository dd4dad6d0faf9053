//! One transport connection: plain data, moved forward by [`Proxy`](crate::Proxy).
//!
//! ```text
//! downstream   Opening ─► exchanges … ─► Lingering ─► closed
//! upstream     Connecting ─► Busy ─► Idle ─► Busy …     (of one exchange at a time)
//!              Connecting ─► Shared                     (of many: `codec::http2`)
//! ```
//!
//! What it says and understands is its [`Codec`]'s.

pub(crate) mod bounds;
pub(crate) mod check_target;
pub(crate) mod codec;
pub(crate) mod connections;
pub(crate) mod debug_log;
pub(crate) mod delivery;
pub(crate) mod destination;
mod drain;
pub(crate) mod failures;
pub(crate) mod handshake_slots;
pub(crate) mod holding_back;
pub(crate) mod http2;
pub(crate) mod keepalive;
pub(crate) mod lingering;
pub(crate) mod reading;
pub(crate) mod rpc;
pub(crate) mod sending;
pub(crate) mod signers;
pub(crate) mod streams;
pub(crate) mod transport;
pub(crate) mod turns;

use std::net::SocketAddr;

use config::priority::Priority;
use config::snapshot::{ChainId, Cluster, ClusterId, EndpointId, TransportId};
use serde::{Deserialize, Serialize};
use wire::buffer::Buffer;
use wire::head::{Framing, ResponseHead};

use crate::connection::bounds::{OUTBOX_BYTES_MAX, UNDELIVERED_BYTES_MAX};
use crate::connection::check_target::{CheckTarget, CheckedPort};
use crate::connection::codec::elements::Output;
use crate::connection::codec::multiplex::Multiplex;
use crate::connection::codec::streams::Stream;
use crate::connection::codec::{Codec, Opening};
use crate::connection::delivery::Lingering;
use crate::connection::transport::Tls;
use crate::keys::{ConnKey, EndpointKey, ExchangeKey, PoolId, Slot};
use crate::listen::clients::ClientPlace;
use crate::listen::listeners::ListenerKey;
use crate::tools::buffers::Buffers;
use crate::tools::detail::Detail;
use crate::tools::outbox::Outbox;
use crate::tools::peer_address::PeerAddress;
use crate::tools::time::Time;
use crate::tools::wheel::TimerKey;

/// One transport connection.
#[derive(Debug)]
pub struct Connection {
    pub(crate) role: ConnectionRole,
    pub(crate) codec: Codec,
    /// Bytes that were read and could not be consumed yet.
    pub(crate) inbox: Option<Buffer>,
    pub(crate) outbox: Outbox,
    /// What it has in addition if it is one of TLS.
    pub(crate) tls: Option<Box<Tls>>,
    pub(crate) timer: TimerKey,
    pub(crate) peer: PeerAddress,
    pub(crate) local: PeerAddress,
    /// Accepted, or established.
    pub(crate) opened: Time,
    /// Requests that it carried.
    pub(crate) requests: u32,
    /// The peer will send nothing more.
    pub(crate) is_read_closed: bool,
    /// The peer takes nothing more, but may have said something before.
    pub(crate) is_send_broken: bool,
    /// Our side is shut: nothing more is sent.
    pub(crate) is_shut: bool,
    /// A send is already among the operations to do.
    pub(crate) is_flush_queued: bool,
}

/// Which way a connection faces, and what only such a connection has.
#[derive(Debug)]
pub(crate) enum ConnectionRole {
    Downstream(Downstream),
    Upstream(Upstream),
}

/// What only a downstream connection has.
#[derive(Debug)]
pub(crate) struct Downstream {
    pub(crate) listener: ListenerKey,
    /// Its client, once it is known where the connection comes from.
    pub(crate) client: ClientPlace,
    /// The chain that it meets, if its listener has any for it.
    pub(crate) chain: Option<ChainId>,
    /// The exchange of a connection without streams.
    pub(crate) exchange: Option<ExchangeKey>,
    pub(crate) life: Life,
    /// Whatever still comes is dropped, once its codec is to read nothing more. Few linger, so it stands
    /// apart.
    pub(crate) lingering: Option<Box<Lingering>>,
    /// Whether it was counted what it speaks.
    pub(crate) is_detected: bool,
    /// Whether it is over its age: it has announced its end, or does with its next response.
    pub(crate) is_aged: bool,
    /// Whether another process accepted it, or another worker.
    pub(crate) is_restored: bool,
    /// When the first byte of the head that is being read came, or of what is not known to be one yet; `NEVER` before it.
    pub(crate) head_began: Time,
    /// Few have other addresses than their own, so these stand apart.
    pub(crate) origin: Option<Box<Origin>>,
}

/// Addresses of a downstream connection that are not those of its client and its own.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// Where it was going before it was brought here, if that is known.
    pub(crate) original: Option<SocketAddr>,
    /// Who connected, if a PROXY header named another address and a chain of the listener asks for this one.
    pub(crate) direct: Option<PeerAddress>,
}

/// What becomes of a downstream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Life {
    /// Kept for further requests if the exchange allows it.
    Open,
    /// Closed once the outbox is empty. The downstream said that it sends nothing more.
    CloseWhenSent,
    /// As above, but the downstream may still be sending: its bytes are read for a while, so that
    /// the reset they would cause does not overtake our response.
    LingerWhenSent,
    /// Our side is shut; reading until the downstream closes.
    Lingering,
    /// As above, after a handshake of TLS that failed; the downstream has got an alert.
    Refused,
}

/// What only an upstream connection has.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) cluster: ClusterId,
    /// Whose requests it is for.
    pub(crate) priority: Priority,
    pub(crate) endpoint: EndpointId,
    /// How the endpoint is spoken to on it.
    pub(crate) transport: TransportId,
    pub(crate) state: UpstreamState,
    /// Whether it began with a PROXY header: it is one client's then, and carries one exchange.
    pub(crate) is_personal: bool,
    /// Which port it checks, if it is for health checks alone.
    pub(crate) checked_port: Option<CheckedPort>,
    /// Whether it may carry another exchange, as far as this one's heads say.
    pub(crate) is_reusable: bool,
    /// Whether no pool has it, though it has room: its group is about to leave, or it is one client's.
    pub(crate) is_withheld: bool,
    /// Why it fails, or takes no further streams, as its peer or the kernel said last.
    /// Few have one, so it stands apart.
    pub(crate) reason: Option<Box<Detail>>,
}

/// Where an upstream connection stands.
#[derive(Debug)]
pub(crate) enum UpstreamState {
    /// Being established for an exchange, or spare (`spare`).
    Connecting {
        exchange: Option<ExchangeKey>,
        since: Time,
        /// Whether the worker has begun to.
        is_begun: bool,
    },
    Busy {
        exchange: ExchangeKey,
    },
    /// In its endpoint's pool.
    Idle(Links),
    /// Of HTTP/2: exchanges have streams on it, from the moment on that it is asked for.
    Shared {
        /// Since when it is being established, if it is.
        connecting_since: Option<Time>,
        /// Its place in its endpoint's pool while it has a free slot.
        links: Option<Links>,
    },
}

/// Neighbours in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Links {
    pub(crate) newer: Option<ConnKey>,
    pub(crate) older: Option<ConnKey>,
}

impl Upstream {
    /// Its endpoint.
    pub(crate) const fn endpoint_key(&self) -> EndpointKey {
        EndpointKey { pool: self.pool(), endpoint: self.endpoint }
    }

    /// Its pool, whether or not it stands there.
    pub(crate) const fn pool(&self) -> PoolId {
        PoolId { cluster: self.cluster, priority: self.priority }
    }

    /// What it checks, if it is for health checks alone.
    pub(crate) fn checks(&self) -> Option<CheckTarget> {
        let CheckedPort(port) = self.checked_port?;
        Some(CheckTarget { endpoint: self.endpoint, port })
    }

    /// Whether it goes to an endpoint of its cluster, and in the way in which this is spoken to, as the
    /// cluster is here.
    pub(crate) fn is_of(&self, cluster: &Cluster) -> bool {
        cluster.transport_of(self.endpoint).is_some_and(|it| it.id == self.transport)
    }

    /// Its place in a pool, if it has one.
    pub(crate) const fn links(&self) -> Option<Links> {
        match self.state {
            UpstreamState::Idle(links) => Some(links),
            UpstreamState::Shared { links, .. } => links,
            UpstreamState::Connecting { .. } | UpstreamState::Busy { .. } => None,
        }
    }

    pub(crate) const fn exchange(&self) -> Option<ExchangeKey> {
        match self.state {
            UpstreamState::Connecting { exchange, .. } => exchange,
            UpstreamState::Busy { exchange } => Some(exchange),
            UpstreamState::Idle(_) | UpstreamState::Shared { .. } => None,
        }
    }
}

impl Connection {
    pub(crate) const fn new(
        role: ConnectionRole,
        codec: Codec,
        timer: TimerKey,
        now: Time,
    ) -> Self {
        Self {
            role,
            codec,
            inbox: None,
            outbox: Outbox::new(),
            tls: None,
            timer,
            peer: PeerAddress::Unix,
            local: PeerAddress::Unix,
            opened: now,
            requests: 0,
            is_read_closed: false,
            is_send_broken: false,
            is_shut: false,
            is_flush_queued: false,
        }
    }

    pub(crate) const fn downstream(&self) -> Option<&Downstream> {
        match &self.role {
            ConnectionRole::Downstream(downstream) => Some(downstream),
            ConnectionRole::Upstream(_) => None,
        }
    }

    pub(crate) const fn downstream_mut(&mut self) -> Option<&mut Downstream> {
        match &mut self.role {
            ConnectionRole::Downstream(downstream) => Some(downstream),
            ConnectionRole::Upstream(_) => None,
        }
    }

    pub(crate) const fn upstream(&self) -> Option<&Upstream> {
        match &self.role {
            ConnectionRole::Upstream(upstream) => Some(upstream),
            ConnectionRole::Downstream(_) => None,
        }
    }

    pub(crate) const fn upstream_mut(&mut self) -> Option<&mut Upstream> {
        match &mut self.role {
            ConnectionRole::Upstream(upstream) => Some(upstream),
            ConnectionRole::Downstream(_) => None,
        }
    }

    /// Whether it is being established.
    pub(crate) const fn is_connecting(&self) -> bool {
        matches!(
            &self.role,
            ConnectionRole::Upstream(Upstream {
                state: UpstreamState::Connecting { .. }
                    | UpstreamState::Shared { connecting_since: Some(_), .. },
                ..
            })
        )
    }

    /// The exchange that it carries, if it has no streams.
    pub(crate) const fn exchange(&self) -> Option<ExchangeKey> {
        match &self.role {
            ConnectionRole::Downstream(downstream) => downstream.exchange,
            ConnectionRole::Upstream(upstream) => upstream.exchange(),
        }
    }

    /// Its streams, if it speaks HTTP/2.
    #[inline]
    pub(crate) fn multiplex(&self) -> Option<&Multiplex> {
        self.codec.multiplex()
    }

    /// [`Connection::multiplex`].
    #[inline]
    pub(crate) fn multiplex_mut(&mut self) -> Option<&mut Multiplex> {
        self.codec.multiplex_mut()
    }

    /// What comes before its protocol, if that is not known yet and may still be.
    pub(crate) const fn opening(&self) -> Option<Opening> {
        if self.is_lingering() { None } else { self.codec.opening() }
    }

    /// Whether an upstream connection may carry another request, by the head of a response on it.
    #[inline]
    pub(crate) fn note_reusable(&mut self, head: &ResponseHead<'_>) {
        let is_near_limit = self.is_key_near_limit();
        if let Some(role) = self.upstream_mut() {
            role.is_reusable = head.persistent()
                && head.framing() != Framing::UntilClose
                && !role.is_personal
                && !is_near_limit;
        }
    }

    /// The upstream's final answer has begun: the request is not sent again.
    pub(crate) fn forget_request(&mut self, slot: Slot, buffers: &mut Buffers) {
        match self.codec.multiplex_mut() {
            Some(multiplex) => {
                if let Some(stream) = multiplex.streams.get_mut(slot) {
                    stream.forget_request(buffers);
                }
            }
            None => self.outbox.forget(buffers),
        }
    }

    /// Some of a request was dropped: what is kept of it is not the request any more, and not to be sent again.
    pub(crate) fn forget_body(&mut self, slot: Slot, buffers: &mut Buffers) {
        match self.codec.multiplex_mut() {
            Some(multiplex) => {
                if let Some(stream) = multiplex.streams.get_mut(slot) {
                    stream.outbox.forget(buffers);
                }
            }
            None => self.outbox.forget(buffers),
        }
    }

    /// Whether what comes is dropped.
    pub(crate) const fn is_lingering(&self) -> bool {
        matches!(&self.role, ConnectionRole::Downstream(Downstream { lingering: Some(_), .. }))
    }

    /// Whether all that it sends is queued, and its side is to be shut behind that.
    #[inline]
    pub(crate) const fn is_ending(&self) -> bool {
        self.codec.is_ending() && !self.is_shut
    }

    /// Its codec, and where that writes to.
    pub(crate) fn output<'c>(
        &'c mut self,
        buffers: &'c mut Buffers,
    ) -> (&'c mut Codec, Output<'c>) {
        (&mut self.codec, Output { outbox: &mut self.outbox, buffers })
    }

    /// Whether it carries an exchange.
    pub(crate) fn is_busy(&self) -> bool {
        self.exchange().is_some() || self.multiplex().is_some_and(|all| !all.streams.is_empty())
    }

    /// Whether a FIN now would make the peer take what it has for the whole message: its end is the
    /// connection's end, and it has not been sent. So is that of a connection which may be relayed, and
    /// whose first bytes were cut off: an orderly end would be its service's, of which nothing is known.
    pub(crate) fn would_end_early(&self) -> bool {
        !self.is_shut
            && (self.codec.is_open_ended()
                || self.is_ending() && !self.is_sent()
                || self.opening() == Some(Opening::Detect) && self.is_amid_record())
    }

    /// Bytes of the buffers that it has, those of its streams included.
    pub(crate) fn buffered_bytes(&self) -> usize {
        let inbox = self.inbox.as_ref().map_or(0, Buffer::capacity);
        let tls = self.tls.as_deref().map_or(0, Tls::buffered_bytes);
        let streams = self.multiplex().into_iter().flat_map(|all| all.streams.iter());
        let streams: usize = streams.map(Stream::buffered_bytes).sum();
        inbox + self.outbox.buffered_bytes() + tls + streams
    }

    /// Bytes that may be read now: 0 while the other side has to catch up first.
    pub(crate) fn inbox_room(&self) -> usize {
        OUTBOX_BYTES_MAX - self.inbox.as_ref().map_or(0, Buffer::len).min(OUTBOX_BYTES_MAX)
    }
}

/// Whether so much waits for a peer that nothing more is read from it.
pub(crate) fn is_peer_behind(connection: &Connection) -> bool {
    let is_behind = connection.unsent_len() >= UNDELIVERED_BYTES_MAX;
    // A long call of RPC goes on whole: the answers to others are read meanwhile.
    is_behind
        && (connection.upstream().is_none()
            || connection.multiplex().is_none_or(|it| it.rpc().is_none()))
}
