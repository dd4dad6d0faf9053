//! Connections as they are written down, and what makes one of the other.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use config::chains::{ConnectionFacts, Criterion};
use config::memory::MemoryLevel;
use config::priority::Priority;
use config::protocols::Protocols;
use config::snapshot::{
    Address, ClusterId, ClusterProtocol, Detected, EndpointId, Listener, OriginalDestination,
    TransportId,
};
use serde::{Deserialize, Serialize};
use telemetry::events::Relocated;
use wire::buffer::Buffer;
use wire::rpc::RpcName;

use super::codecs::{
    CodecSettings, SavedCodec, SavedOutbox, restore_codec, restore_outbox, save_codec, save_outbox,
};
use super::group::Group;
use super::{Differing, GONE, RestoreError, SavedEnd, before, since};
use crate::connection::codec::Codec;
use crate::connection::codec::Opening;
use crate::connection::codec::http1::{Http1, RESPONSE_HEAD, Receive};
use crate::connection::codec::http2::{self};
use crate::connection::connections::Connections;
use crate::connection::delivery::Lingering;
use crate::connection::rpc::rpc_limits;
use crate::connection::transport::{SavedTls, Tls, TlsState};
use crate::connection::{
    Connection, ConnectionRole, Downstream, Life, Origin, Upstream, UpstreamState,
};
use crate::cx::Cx;
use crate::filter::Filter;
use crate::keys::{ConnKey, EndpointKey, ExchangeKey, PoolId, Slot, label};
use crate::listen::Listen;
use crate::listen::clients::Part;
use crate::tools::detail::Detail;
use crate::tools::peer_address::PeerAddress;
use crate::tools::text::Text;
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
    /// Whether so many exchanges may be there: one on each stream, or one where there are no streams.
    fn carries(&self, exchanges: usize) -> bool {
        match &self.codec {
            SavedCodec::Http2(saved) => saved.carries(exchanges),
            SavedCodec::Rpc(saved) => saved.shared.carries(exchanges),
            SavedCodec::Opening(_) => exchanges == 0,
            SavedCodec::Http1(_) | SavedCodec::Bytes(_) => exchanges <= 1,
        }
    }

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

/// What an upstream connection speaks.
#[derive(Clone, Copy)]
enum Spoken<'s> {
    Alone,
    Http2,
    Rpc(&'s str),
}

impl Spoken<'_> {
    fn is_of(self, protocol: ClusterProtocol) -> bool {
        match (self, protocol) {
            (Self::Alone, ClusterProtocol::Http1) | (Self::Http2, ClusterProtocol::Http2) => true,
            (Self::Rpc(spoken), ClusterProtocol::Rpc(name)) => spoken == name.as_str(),
            _ => false,
        }
    }
}

impl SavedConnection {
    const fn spoken(&self) -> Spoken<'_> {
        match &self.codec {
            SavedCodec::Http2(_) => Spoken::Http2,
            SavedCodec::Rpc(saved) => Spoken::Rpc(saved.protocol.as_str()),
            SavedCodec::Opening(_) | SavedCodec::Http1(_) | SavedCodec::Bytes(_) => Spoken::Alone,
        }
    }

    /// Whether what it speaks is known, and what is written of that agrees with itself.
    fn check_protocol(&self, protocols: &Protocols) -> Result<(), RestoreError> {
        let SavedCodec::Rpc(saved) = &self.codec else { return Ok(()) };
        let known = RpcName::new(&saved.protocol).and_then(|name| protocols.find(name));
        known.ok_or(RestoreError::Differs("protocol"))?;
        let (streams, last) = (&saved.shared.streams, saved.shared.codec.last_slot());
        let is_sound = streams.iter().all(|stream| (1..=last).contains(&stream.id));
        let damage = RestoreError::Damaged("a call has an id that its connection has not given");
        if is_sound { Ok(()) } else { Err(damage) }
    }
}

impl SavedEnd {
    /// Whether what it speaks is known.
    pub(super) fn check_protocol(&self, protocols: &Protocols) -> Result<(), RestoreError> {
        match self {
            Self::Downstream(saved) => saved.connection.check_protocol(protocols),
            Self::Upstream(saved) => saved.connection.check_protocol(protocols),
        }
    }

    /// Whether so many exchanges of its group may be on it.
    pub(super) fn carries(&self, exchanges: usize) -> bool {
        match self {
            Self::Downstream(saved) => saved.connection.carries(exchanges),
            Self::Upstream(saved) => {
                let codec = &saved.connection.codec;
                let has_streams = matches!(codec, SavedCodec::Http2(_) | SavedCodec::Rpc(_));
                // What only clients' connections are: not known yet, or read for nothing.
                let is_of_client = matches!(
                    codec,
                    SavedCodec::Opening(_)
                        | SavedCodec::Http1(Http1 { receive: Receive::Discard { .. }, .. })
                );
                let fits = !is_of_client
                    && match saved.state {
                        SavedUpstreamState::Connecting { .. } => !has_streams,
                        SavedUpstreamState::Busy => !has_streams && exchanges == 1,
                        SavedUpstreamState::Idle => !has_streams && exchanges == 0,
                        SavedUpstreamState::Shared { .. } => has_streams,
                    };
                fits && saved.connection.carries(exchanges)
            }
        }
    }
}

impl Listen {
    /// Whether the listeners and clients of these connections may have so many more here.
    pub(super) fn check_room(&self, group: &Group, cx: &Cx) -> Result<(), RestoreError> {
        let (mut of_listeners, mut of_clients) = (BTreeMap::new(), BTreeMap::new());
        for end in &group.connections {
            let SavedEnd::Downstream(saved) = end else { continue };
            let listener = self.listener_named(&saved.listener, cx)?;
            let state = self.listeners.get(listener);
            let settings = state.listener();
            let open = of_listeners.entry(listener.to_bits()).or_insert(state.open);
            *open += 1;
            if *open > cx.share.of(settings.connections_max.get()) {
                return Err(RestoreError::NoRoom("connections_max"));
            }
            let Some(address) = saved.client_address(settings) else { continue };
            let (network, count) = self.clients.at(address, Part::Connection);
            let count = of_clients.entry(network).or_insert(count);
            *count += 1;
            if *count > cx.share.of(settings.connections_per_client_max.get()) {
                return Err(RestoreError::NoRoom("connections_per_client_max"));
            }
        }
        Ok(())
    }
}

impl SavedDownstream {
    /// The address of its client, if that counts for this listener.
    fn client_address(&self, listener: &Listener<Box<dyn Filter>>) -> Option<IpAddr> {
        let is_known = !matches!(self.connection.codec, SavedCodec::Opening(Opening::ProxyHeader))
            && listener.http.trusted_hops == 0;
        self.connection.peer.ip().filter(|_| is_known)
    }

    /// Whether it would be agreed on and admitted in the same way on this listener, which has its name.
    pub(super) fn check(
        &self,
        listener: &Listener<Box<dyn Filter>>,
        differing: &Differing,
    ) -> Result<(), RestoreError> {
        let chain = self.chain.as_deref();
        if chain.is_some_and(|name| listener.chains.named(name).is_none()) {
            return Err(RestoreError::Differs("chain"));
        }
        if differing.listeners.contains(&self.listener) {
            return Err(RestoreError::Differs("listener"));
        }
        let named = |chain: &str| format!("{}/{chain}", self.listener);
        if chain.is_some_and(|chain| differing.chains.contains(&named(chain))) {
            return Err(RestoreError::Differs("chain"));
        }
        if differing.moved.contains(&self.listener) && !self.came_to(listener) {
            return Err(RestoreError::Differs("address"));
        }
        let is_decided = !matches!(self.connection.codec, SavedCodec::Opening(_));
        if chain.is_none() && is_decided && !listener.has_default {
            return Err(RestoreError::Differs("listener"));
        }
        if self.is_chosen_unread()
            && differing.chains_new.iter().any(|it| self.chain_of(it).is_some())
        {
            return Err(RestoreError::Differs("chain, which may be another here,"));
        }
        if self.may_meet_new_chain(listener, differing) {
            return Err(RestoreError::Differs("chain, which may be another here,"));
        }
        if !differing.chains_new.is_empty()
            && let Some(facts) = self.facts()
            && let Some(met) = listener.chains.choose(&facts)
            && Some(&*met.name) != chain
            && differing.chains_new.contains(&named(&met.name))
        {
            return Err(RestoreError::Differs("chain, which would be another here,"));
        }
        Ok(())
    }

    /// Whether a chain was chosen for it, or none, before what it is going to say is known.
    fn is_chosen_unread(&self) -> bool {
        match self.connection.codec {
            SavedCodec::Opening(Opening::Handshake) => true,
            SavedCodec::Opening(Opening::Detect) => self.connection.tls.is_some(),
            _ => false,
        }
    }

    /// Whether it cannot be said that it would meet none of the new chains, as that depends on what is not written down: who
    /// connected, where a PROXY header says something else, and which protocols its client offered beside the one agreed upon.
    fn may_meet_new_chain(
        &self,
        listener: &Listener<Box<dyn Filter>>,
        differing: &Differing,
    ) -> bool {
        if differing.chains_new.is_empty() {
            return false;
        }
        let Some(facts) = self.facts() else { return false };
        let is_proxied = listener.http.proxy_protocol.is_some();
        let is_hidden = is_proxied && listener.chains.asks_direct_source();
        let met = self.chain.as_deref().and_then(|name| listener.chains.named(name));
        let met = met.map(|chain| &chain.matches);
        let names = differing.chains_new.iter().filter_map(|chain| self.chain_of(chain));
        let mut new = names.filter_map(|name| listener.chains.named(name));
        new.any(|chain| {
            let is_own = self.chain.as_deref() == Some(&*chain.name);
            is_hidden || !is_own && Criterion::may_be_offered(&chain.matches, met, &facts)
        })
    }

    /// The name of a chain, given as `listener/chain`, if it is one of its listener.
    fn chain_of<'n>(&self, chain: &'n str) -> Option<&'n str> {
        chain.strip_prefix(&*self.listener)?.strip_prefix('/')
    }

    /// Whether it was accepted at an address of this listener, as far as its own address says that.
    fn came_to(&self, listener: &Listener<Box<dyn Filter>>) -> bool {
        let is_own = listener.http.proxy_protocol.is_none()
            && listener.socket.original_destination == OriginalDestination::Off;
        let local = self.connection.local.socket_address().filter(|_| is_own).map(Address::Tcp);
        local.is_some_and(|local| listener.addresses.iter().any(|it| it.overlaps(&local)))
    }

    /// What is known of it; none if that says nothing of which chain it would meet, or it brings no further requests.
    fn facts(&self) -> Option<ConnectionFacts<'_>> {
        let tls = self.connection.tls.as_deref();
        let (protocol, agreed): (_, &[&[u8]]) = match &self.connection.codec {
            SavedCodec::Http1(_) => (Detected::Http1, &[b"http/1.1"]),
            SavedCodec::Http2(_) => (Detected::Http2, &[b"h2"]),
            SavedCodec::Rpc(saved) => (Detected::Rpc(RpcName::new(&saved.protocol)?), &[]),
            SavedCodec::Opening(_) | SavedCodec::Bytes(_) => return None,
        };
        let original = self.original.as_deref().copied();
        Some(ConnectionFacts {
            source: self.connection.peer.ip(),
            source_port: self.connection.peer.port(),
            // Who connected before a PROXY header is not written down; the socket says that once it is here.
            direct_source: self.connection.peer.ip(),
            destination: original.or_else(|| self.connection.local.socket_address()),
            protocol: Some(if tls.is_some() { Detected::Tls } else { protocol }),
            server_name: tls.and_then(SavedTls::server_name),
            // What was agreed upon was offered.
            alpn: if tls.is_some() { agreed } else { &[] },
        })
    }
}

impl SavedUpstream {
    pub(super) fn check_differing(&self, differing: &Differing) -> Result<(), RestoreError> {
        if differing.clusters.contains(&self.cluster) {
            return Err(RestoreError::Differs("cluster"));
        }
        Ok(())
    }
}

/// Stands for the endpoint of a connection on which it is spoken to in a way that is not that of its cluster
/// any more, so that the connection carries no other exchange. No address is written like this.
const FORMER_TRANSPORT: &[u8] = b"-";

/// Stands between the address of an endpoint, the name of its transport and the priority whose requests the connection is for,
/// where these are not the cluster's own and the default. No address contains it, so that a program that knows no transports,
/// or no priorities, does not find the endpoint.
const SEPARATOR: u8 = 0;

impl Cx {
    /// Names by which another configuration may know the cluster and the endpoint of a connection;
    /// empty if this one has them no more.
    fn names_of(&self, upstream: &Upstream) -> (String, Vec<u8>) {
        let Some(cluster) = self.snapshot.cluster(upstream.cluster) else {
            return Default::default();
        };
        let transport = cluster.transport_of(upstream.endpoint);
        let transport = transport.filter(|it| it.id == upstream.transport);
        let place = cluster.place_of(upstream.endpoint);
        let found = place.and_then(|place| cluster.endpoints.get(place));
        let mut endpoint = match transport {
            Some(_) => {
                Text::of_address(found.map(|endpoint| &endpoint.address)).as_bytes().to_vec()
            }
            None => FORMER_TRANSPORT.to_vec(),
        };
        let name = transport.map_or("", |transport| &*transport.name);
        let has_priority = upstream.priority != Priority::Default;
        if !name.is_empty() || has_priority {
            endpoint.push(SEPARATOR);
            endpoint.extend_from_slice(name.as_bytes());
        }
        // Whatever the connection may carry, it counts there.
        if has_priority {
            endpoint.push(SEPARATOR);
            endpoint.extend_from_slice(upstream.priority.word().as_bytes());
        }
        (cluster.name.to_string(), endpoint)
    }

    /// The cluster and endpoint of these names, and how that is spoken to. One that spoke another protocol is
    /// not known.
    fn ids_of(
        &mut self,
        cluster: &str,
        endpoint: &[u8],
        spoken: Spoken<'_>,
    ) -> (PoolId, EndpointId, TransportId) {
        let gone = PoolId { cluster: ClusterId(GONE), priority: Priority::Default };
        let id = self.names().cluster(cluster, &self.snapshot);
        let Some(found) = id.and_then(|id| self.snapshot.cluster(id)) else {
            return (gone, EndpointId(GONE), TransportId(GONE));
        };
        let mut parts = endpoint.splitn(3, |byte| *byte == SEPARATOR);
        let mut part = || parts.next().unwrap_or_default();
        let (address, name, word) = (part(), part(), part());
        let is_it = |it: &Priority| match word {
            b"" => *it == Priority::Default,
            word => it.word().as_bytes() == word,
        };
        let priority = Priority::ALL.into_iter().find(is_it);
        let place = self.found.endpoint(found, address);
        let endpoint = place
            .and_then(|place| found.endpoints.get(place))
            .map(|endpoint| endpoint.id)
            .or_else(|| found.original_destination.filter(|_| *address != *FORMER_TRANSPORT));
        let transport = endpoint.and_then(|endpoint| found.transport_of(endpoint));
        // One that is spoken to in another way here is not known either.
        let transport = transport.filter(|transport| transport.name.as_bytes() == name);
        let is_known = transport.is_some() && priority.is_some();
        let endpoint = endpoint.filter(|_| spoken.is_of(found.protocol) && is_known);
        let transport = transport.map_or(TransportId(GONE), |transport| transport.id);
        let pool = PoolId { cluster: found.id, priority: priority.unwrap_or_default() };
        (pool, endpoint.unwrap_or(EndpointId(GONE)), transport)
    }

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
        let of = label(listen.listeners.get(listener).id.0);
        cx.emitter.came(Relocated::Downstream { listener: of });
        let head_began = saved.head_began.map_or(Time::NEVER, |age| before(age, now));
        let found = listen.listeners.get(listener).listener();
        let address = saved.client_address(found);
        let chain = saved.chain.and_then(|name| found.chains.named(&name).map(|chain| chain.id));
        // What was let in stays, whatever the bounds are here.
        let (client, _) = listen.clients.enter(address, Part::Connection);
        let downstream = Downstream {
            listener,
            client,
            chain,
            exchange: None,
            life: saved.life,
            lingering: None,
            is_detected: saved.is_detected,
            is_aged: saved.is_aged,
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
            listen.close_later(key, self, now);
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
}

impl Upstreams {
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
