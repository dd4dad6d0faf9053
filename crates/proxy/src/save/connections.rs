//! Connections as they are written down, and what makes one of the other.

mod checks;
mod names;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::memory::MemoryLevel;
use serde::{Deserialize, Serialize};
use telemetry::events::Relocated;
use wire::buffer::Buffer;

use super::codecs::{
    CodecSettings, SavedCodec, SavedOutbox, restore_codec, restore_outbox, save_codec, save_outbox,
};
use super::{GONE, RestoreError, SavedEnd, before, since};
use crate::connection::codec::Codec;
use crate::connection::codec::Opening;
use crate::connection::codec::http1::{Http1, RESPONSE_HEAD};
use crate::connection::codec::http2::{self};
use crate::connection::connections::Connections;
use crate::connection::delivery::Lingering;
use crate::connection::rpc::rpc_limits;
use crate::connection::transport::{SavedTls, Tls, TlsState};
use crate::connection::{
    Connection, ConnectionRole, Downstream, Life, Origin, Upstream, UpstreamState,
};
use crate::cx::Cx;
use crate::keys::{ConnKey, EndpointKey, ExchangeKey, Slot, label};
use crate::listen::Listen;
use crate::listen::clients::Part;
use crate::tools::detail::Detail;
use crate::tools::peer_address::PeerAddress;
use crate::tools::time::Time;
use crate::upstream::Upstreams;
use crate::upstream::pool::Pool;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedConnection {
    codec: SavedCodec,
    lingering: Option<Lingering>,
    inbox: Vec<u8>,
    outbox: SavedOutbox,
    tls: Option<Box<SavedTls>>,
    peer: PeerAddress,
    local: PeerAddress,
    age: u64,
    requests: u32,
    is_read_closed: bool,
    is_send_broken: bool,
    is_shut: bool,
    deadline: Option<Duration>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedDownstream {
    pub(super) connection: SavedConnection,
    pub(super) listener: String,
    pub(super) chain: Option<String>,
    life: Life,
    is_detected: bool,
    is_aged: bool,
    head_began: Option<u64>,
    original: Option<Box<SocketAddr>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedUpstream {
    pub(super) connection: SavedConnection,
    cluster: String,
    endpoint: Vec<u8>,
    is_personal: bool,
    is_reusable: bool,
    reason: Option<Vec<u8>>,
    state: SavedUpstreamState,
}

#[derive(Debug, Serialize, Deserialize)]
enum SavedUpstreamState {
    Connecting { age: u64 },
    Busy,
    Idle,
    Shared { connecting_age: Option<u64> },
}

impl SavedConnection {
    /// Its record layer.
    pub(super) fn into_tls(self) -> Option<Box<SavedTls>> {
        self.tls
    }

    /// Whether an exchange may be there.
    pub(super) fn has_slot(&self, slot: Slot) -> bool {
        match &self.codec {
            SavedCodec::Http2(saved) => saved.has_slot(slot),
            SavedCodec::Rpc(saved) => saved.shared.has_slot(slot),
            SavedCodec::Opening(_) | SavedCodec::Http1(_) | SavedCodec::Bytes(_) => {
                slot == Slot::ONLY
            }
        }
    }
}

impl Cx {
    /// Writes a connection down.
    pub(super) fn write_end(&mut self, end: TakenEnd, now: Time) -> SavedEnd {
        let TakenEnd { connection, deadline, facts } = end;
        let (connection, role) = self.write_connection(connection, deadline, now);
        match (role, facts) {
            (ConnectionRole::Downstream(downstream), EndFacts::Downstream { listener, chain }) => {
                let head_began = since(downstream.head_began, now);
                let original = downstream.original().map(Box::new);
                let Downstream { life, is_detected, is_aged, .. } = downstream;
                SavedEnd::Downstream(SavedDownstream {
                    connection,
                    listener,
                    chain,
                    life,
                    is_detected,
                    is_aged,
                    head_began,
                    original,
                })
            }
            (ConnectionRole::Upstream(upstream), EndFacts::Upstream(state)) => {
                let (cluster, endpoint) = self.names_of(&upstream);
                let Upstream { is_personal, is_reusable, reason, .. } = upstream;
                let reason = reason.map(|reason| reason.as_bytes().to_vec());
                SavedEnd::Upstream(SavedUpstream {
                    connection,
                    cluster,
                    endpoint,
                    is_personal,
                    is_reusable,
                    reason,
                    state,
                })
            }
            (ConnectionRole::Downstream(_) | ConnectionRole::Upstream(_), _) => {
                unreachable!("each has the facts of its role")
            }
        }
    }

    fn write_connection(
        &mut self,
        mut connection: Connection,
        deadline: Option<Duration>,
        now: Time,
    ) -> (SavedConnection, ConnectionRole) {
        let inbox = connection.inbox.take();
        let saved = SavedConnection {
            lingering: connection.downstream().and_then(|it| it.lingering.as_deref().copied()),
            codec: save_codec(connection.codec, &mut self.buffers, now),
            inbox: inbox.as_ref().map_or(&[][..], Buffer::filled).to_vec(),
            outbox: save_outbox(&mut connection.outbox, &mut self.buffers),
            tls: connection.tls.and_then(|tls| tls.save(&mut self.buffers)).map(Box::new),
            peer: connection.peer,
            local: connection.local,
            age: now.nanos_since(connection.opened),
            requests: connection.requests,
            is_read_closed: connection.is_read_closed,
            is_send_broken: connection.is_send_broken,
            is_shut: connection.is_shut,
            deadline,
        };
        if let Some(inbox) = inbox {
            self.buffers.give_back(inbox);
        }
        (saved, connection.role)
    }
}

/// A connection that is out of the table and not written down yet.
#[derive(Debug)]
pub(super) struct TakenEnd {
    connection: Connection,
    deadline: Option<Duration>,
    facts: EndFacts,
}

/// What the worker's tables said of it.
#[derive(Debug)]
enum EndFacts {
    Downstream { listener: String, chain: Option<String> },
    Upstream(SavedUpstreamState),
}

impl Connections {
    /// A connection without its timer, and the time that this had left.
    fn take_connection(
        &mut self,
        key: ConnKey,
        now: Time,
        cx: &mut Cx,
    ) -> Option<(Connection, Option<Duration>)> {
        let mut connection = self.remove(key)?;
        // One of which nothing has come begins where it goes.
        self.end_handshake(&mut connection, cx);
        let deadline = cx.timers.deadline(connection.timer);
        cx.timers.remove(connection.timer);
        Some((connection, deadline.is_set().then(|| deadline - now)))
    }

    pub(super) fn take_downstream(
        &mut self,
        key: ConnKey,
        now: Time,
        listen: &mut Listen,
        cx: &mut Cx,
    ) -> Option<TakenEnd> {
        let (connection, deadline) = self.take_connection(key, now, cx)?;
        let downstream = connection.downstream()?;
        let state = listen.listeners.get(downstream.listener);
        cx.emitter.left(Relocated::Downstream { listener: label(state.id.0) });
        let listener = state.listener();
        let chain = downstream.chain.and_then(|id| listener.chains.find(id));
        let chain = chain.map(|(_, chain)| chain.name.to_string());
        let listener = listener.name.to_string();
        listen.listeners.on_closed(downstream.listener);
        listen.clients.remove(downstream.client, Part::Connection);
        let facts = EndFacts::Downstream { listener, chain };
        Some(TakenEnd { connection, deadline, facts })
    }

    fn restore_connection(
        &mut self,
        key: ConnKey,
        saved: SavedConnection,
        now: Time,
        listen: &Listen,
        cx: &mut Cx,
    ) {
        let outbox = restore_outbox(&saved.outbox, &mut cx.buffers);
        let tls = saved.tls.map(|saved| Box::new(Tls::restore(*saved, &mut cx.buffers)));
        let inbox = (!saved.inbox.is_empty()).then(|| cx.buffers.lease_with(&saved.inbox));
        let Some(connection) = self.get_mut(key) else { return };
        connection.inbox = inbox;
        connection.outbox = outbox;
        connection.tls = tls;
        connection.peer = saved.peer;
        connection.local = saved.local;
        connection.opened = before(saved.age, now);
        connection.requests = saved.requests;
        connection.is_read_closed = saved.is_read_closed;
        connection.is_send_broken = saved.is_send_broken;
        connection.is_shut = saved.is_shut;
        if let Some(downstream) = connection.downstream_mut() {
            downstream.lingering = saved.lingering.map(Box::new);
        }
        let deadline = saved.deadline.map_or(Time::NEVER, |left| now + left);
        cx.timers.arm(connection.timer, deadline);
        let settings = self.codec_settings(key, listen, cx);
        let codec = restore_codec(saved.codec, &settings, &mut cx.buffers, now);
        if let Some(connection) = self.get_mut(key) {
            connection.codec = codec;
        }
    }

    /// What the configuration allows a connection to hold now.
    fn codec_settings(&self, key: ConnKey, listen: &Listen, cx: &Cx) -> CodecSettings {
        let protocols = cx.snapshot.protocols.clone();
        let (http2, rpc) = match self.get(key).map(|connection| &connection.role) {
            Some(ConnectionRole::Downstream(downstream)) => {
                let listener = listen.listeners.get(downstream.listener).listener();
                // Its windows are saved with it.
                let memory = MemoryLevel::Normal;
                let http2 = http2::downstream_limits(&listener.http, &listener.http2, memory);
                (http2, rpc_limits(&listener.rpc))
            }
            Some(ConnectionRole::Upstream(upstream)) => match cx.snapshot.cluster(upstream.cluster)
            {
                Some(cluster) => {
                    let memory = MemoryLevel::Normal;
                    let http2 = http2::limits(RESPONSE_HEAD, &cluster.http2, memory);
                    (http2, rpc_limits(&cluster.rpc))
                }
                None => return CodecSettings { protocols, ..CodecSettings::default() },
            },
            None => return CodecSettings { protocols, ..CodecSettings::default() },
        };
        CodecSettings { http2, rpc, protocols }
    }

    pub(super) fn restore_downstream(
        &mut self,
        saved: SavedDownstream,
        now: Time,
        listen: &mut Listen,
        cx: &mut Cx,
    ) -> Result<ConnKey, RestoreError> {
        let listener = listen.listener_named(&saved.listener, cx)?;
        listen.listeners.on_opened(listener);
        let id = listen.listeners.get(listener).id;
        cx.emitter.came(Relocated::Downstream { listener: label(id.0) });
        let head_began = saved.head_began.map_or(Time::NEVER, |age| before(age, now));
        let found = listen.listeners.get(listener).listener();
        let address = saved.client_address(found);
        let chain = saved.chain.and_then(|name| found.chains.named(&name).map(|chain| chain.id));
        // What was let in stays, whatever the bounds are here.
        let (client, _) = listen.clients.enter(address, id, Part::Connection);
        let downstream = Downstream {
            listener,
            client,
            chain,
            exchange: None,
            life: saved.life,
            lingering: None,
            is_detected: saved.is_detected,
            is_aged: saved.is_aged,
            is_restored: true,
            head_began,
            origin: Origin::of_original(saved.original.as_deref().copied()),
        };
        let key = self.insert_connection(
            ConnectionRole::Downstream(downstream),
            Codec::Http1(Http1::new()),
            now,
            cx,
        );
        self.restore_connection(key, saved.connection, now, listen, cx);
        self.expect_handshake(key, now, listen);
        if saved.is_aged {
            listen.close_restored(key, self, now);
        }
        Ok(key)
    }

    /// Has a client begin its handshake here, if it had sent nothing of it where it comes from.
    fn expect_handshake(&mut self, key: ConnKey, now: Time, listen: &Listen) {
        let Some(connection) = self.table.get_mut(key) else { return };
        let Some(downstream) = connection.downstream() else { return };
        if connection.tls.is_some() || connection.opening() != Some(Opening::Handshake) {
            return;
        }
        let listener = listen.listeners.get(downstream.listener).listener();
        if let Some(settings) = &listener.seen_by(downstream.chain).tls {
            let state = TlsState::Expected(Arc::clone(settings));
            connection.tls = Some(Box::new(Tls::new(state, now)));
            self.handshakes_expected += 1;
        }
    }
}

impl Upstreams {
    pub(super) fn take_upstream(
        &mut self,
        key: ConnKey,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) -> Option<TakenEnd> {
        let upstream = connections.get(key)?.upstream()?;
        let ids = upstream.endpoint_key();
        let state = match upstream.state {
            UpstreamState::Connecting { since, .. } => {
                SavedUpstreamState::Connecting { age: now.nanos_since(since) }
            }
            UpstreamState::Busy { .. } => SavedUpstreamState::Busy,
            UpstreamState::Idle(_) => {
                self.pools.remove_idle(key, connections);
                SavedUpstreamState::Idle
            }
            UpstreamState::Shared { connecting_since, links } => {
                if links.is_some() {
                    self.pools.remove_idle(key, connections);
                }
                let connecting_age = connecting_since.map(|since| now.nanos_since(since));
                SavedUpstreamState::Shared { connecting_age }
            }
        };
        if connections.get(key).is_some_and(|connection| !connection.is_connecting()) {
            cx.emitter.left(Relocated::Upstream { cluster: label(ids.pool.cluster.0) });
        }
        let (connection, deadline) = connections.take_connection(key, now, cx)?;
        self.pools.on_closed(ids, false);
        Some(TakenEnd { connection, deadline, facts: EndFacts::Upstream(state) })
    }

    pub(super) fn restore_upstream(
        &mut self,
        saved: SavedUpstream,
        now: Time,
        connections: &mut Connections,
        listen: &Listen,
        cx: &mut Cx,
    ) -> ConnKey {
        let spoken = saved.connection.spoken();
        let (pool, endpoint, transport) = cx.ids_of(&saved.cluster, &saved.endpoint, spoken);
        let unknown = ExchangeKey::from_bits(u64::MAX >> 1);
        let state = match saved.state {
            SavedUpstreamState::Connecting { age } => UpstreamState::Connecting {
                exchange: None,
                since: before(age, now),
                is_begun: true,
            },
            SavedUpstreamState::Busy | SavedUpstreamState::Idle => {
                UpstreamState::Busy { exchange: unknown }
            }
            SavedUpstreamState::Shared { connecting_age } => UpstreamState::Shared {
                connecting_since: connecting_age.map(|age| before(age, now)),
                links: None,
            },
        };
        let SavedUpstream { is_personal, is_reusable, .. } = saved;
        let reason = saved.reason.map(|bytes| Box::new(Detail::from_bytes(bytes)));
        let upstream = Upstream {
            cluster: pool.cluster,
            priority: pool.priority,
            endpoint,
            transport,
            state,
            is_personal,
            // Those for checks do not move.
            checked_port: None,
            is_reusable,
            is_withheld: false,
            reason,
        };
        let key = connections.insert_connection(
            ConnectionRole::Upstream(upstream),
            Codec::Http1(Http1::new()),
            now,
            cx,
        );
        let random = &mut cx.random;
        let known = cx.snapshot.cluster(pool.cluster).map(|it| Pool::new(it, pool.priority));
        self.pools.on_restored(known, endpoint, || random.next());
        connections.restore_connection(key, saved.connection, now, listen, cx);
        if connections.get(key).is_some_and(|connection| !connection.is_connecting()) {
            cx.emitter.came(Relocated::Upstream { cluster: label(pool.cluster.0) });
        }
        if matches!(saved.state, SavedUpstreamState::Idle)
            && (pool.cluster.0 == GONE
                || !self.pools.put_idle(key, EndpointKey { pool, endpoint }, connections))
        {
            self.close_upstream(key, None, now, connections, cx);
        }
        if matches!(saved.state, SavedUpstreamState::Shared { .. }) {
            self.offer(key, connections, cx);
        }
        key
    }
}
