//! A connection as bytes, and back: in another worker, with another configuration.
//!
//! What is moved together: a connection, the exchanges on it, the connections on their other side,
//! and what these have in common with others; or an idle upstream connection alone. Clusters, endpoints, listeners and
//! route tables go by name, deadlines as the time that is left. Nothing is said of readiness: it
//! is assumed, and the first call that finds it wrong corrects it.
//!
//! The form is [`VERSION`] in two bytes, then the structures below in postcard's encoding. A change
//! of any of them is a new version.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use config::snapshot::{Address, ClusterId, ClusterProtocol, EndpointId, Id, RouteTableId};
use serde::{Deserialize, Serialize};
use telemetry::cause::Cause;
use wire::buffer::Buffer;
use wire::h2::{Http2, Limits};

use crate::buffers::Buffers;
use crate::calls::Call;
use crate::chain::{ChainStep, Gathered, Held, Onlookers};
use crate::connection::{
    ConnKey, Connection, Downstream, ExchangeKey, Life, PeerAddress, Receive, Role, Send,
    StreamKey, Upstream, UpstreamState,
};
use crate::exchange::{
    Deadlines, Exchange, Form, Handshake, Kind, Request, Route, Stage, Unbound, Wait,
};
use crate::filter::Question;
use crate::http2::{Multiplex, Stream, StreamInbox, Tail, Watches};
use crate::listeners::ListenerKey;
use crate::ops::Op;
use crate::outbox::Outbox;
use crate::pinned::Pinned;
use crate::proxy::{Proxy, TimerOwner};
use crate::record::{Record, Stamps, Words};
use crate::text::Text;
use crate::time::Time;
use crate::transport::{SavedTls, Tls};
use crate::upstream::RESPONSE_HEAD;

/// Version of the form that is written, and the only one that is read.
pub const VERSION: u16 = 5;

/// The id of something that the new configuration does not have.
const GONE: Id = Id { slot: u32::MAX, generation: u32::MAX };

/// What was taken out of a worker.
#[derive(Debug)]
pub struct Saved {
    /// Everything but the sockets.
    pub bytes: Vec<u8>,
    /// The connections whose sockets go with it, in the order in which [`Proxy::restore`] names
    /// their successors. The keys are stale.
    pub connections: Vec<ConnKey>,
    /// Clusters in which there is room now.
    clusters: Vec<ClusterId>,
}

/// Why bytes cannot become connections.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RestoreError {
    /// The bytes are not what [`Proxy::save`] wrote.
    #[error("the saved connection is damaged")]
    Damaged,
    /// The listener that it came through is not in this configuration.
    #[error("there is no listener of the saved connection's name")]
    NoListener,
    /// Another version of this program wrote them.
    #[error("the saved connection has form {0}, and this program reads form {VERSION}")]
    Version(u16),
}

/// Connections and exchanges that know each other by their places here.
#[derive(Default, Serialize, Deserialize)]
struct Group {
    connections: Vec<SavedEnd>,
    exchanges: Vec<SavedExchange>,
}

#[derive(Serialize, Deserialize)]
enum SavedEnd {
    Downstream(SavedDownstream),
    Upstream(SavedUpstream),
}

/// One side of an exchange: the place of a connection, and the stream on it.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct SavedSide {
    connection: u32,
    stream: u32,
}

#[derive(Serialize, Deserialize)]
struct SavedConnection {
    receive: Receive,
    send: Send,
    inbox: Vec<u8>,
    outbox: SavedOutbox,
    tls: Option<Box<SavedTls>>,
    multiplex: Option<Box<SavedMultiplex>>,
    peer: PeerAddress,
    local: PeerAddress,
    age: u64,
    requests: u32,
    is_read_closed: bool,
    is_send_broken: bool,
    deadline: Option<Duration>,
}

#[derive(Serialize, Deserialize)]
struct SavedMultiplex {
    codec: Http2,
    streams: Vec<SavedStream>,
    watches: Vec<Option<Duration>>,
    failure: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct SavedStream {
    id: u32,
    outbox: SavedOutbox,
    tail: Tail,
    is_ended: bool,
    inbox: Option<(Vec<u8>, Tail)>,
    owed: u32,
    head: Option<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct SavedOutbox {
    /// Bytes that were sent and are kept, then those that wait.
    bytes: Vec<u8>,
    kept: u32,
    is_keeping: bool,
    is_untouched: bool,
}

#[derive(Serialize, Deserialize)]
struct SavedDownstream {
    connection: SavedConnection,
    listener: String,
    chain: Option<String>,
    life: Life,
    head_began: Option<u64>,
    original: Option<Box<SocketAddr>>,
}

#[derive(Serialize, Deserialize)]
struct SavedUpstream {
    connection: SavedConnection,
    cluster: String,
    endpoint: Vec<u8>,
    is_personal: bool,
    is_reusable: bool,
    state: SavedUpstreamState,
}

#[derive(Serialize, Deserialize)]
enum SavedUpstreamState {
    Connecting { age: u64 },
    Busy,
    Idle,
    Shared { connecting_age: Option<u64> },
}

#[derive(Serialize, Deserialize)]
struct SavedExchange {
    downstream: SavedSide,
    upstream: Option<SavedSide>,
    kind: Kind,
    stage: SavedStage,
    request: Request,
    route: Option<SavedRoute>,
    deadlines: Vec<(u8, Duration)>,
    /// Names of the chain's filters, which the slots belong to.
    filters: Vec<String>,
    slots: Option<Vec<u8>>,
    onlookers: Onlookers,
    gathered: Option<SavedGathered>,
    held: Option<SavedHeld>,
    record: SavedRecord,
    call: Option<Box<Call>>,
    handshake: Option<Box<Handshake>>,
    is_response_complete: bool,
}

#[derive(Serialize, Deserialize)]
enum SavedStage {
    Suspended { step: ChainStep, topic: String, payload: Vec<u8>, head: Vec<u8> },
    Gathering { filter: usize, head: Vec<u8> },
    Waiting { outbox: SavedOutbox, form: SavedForm },
    Attempting,
    Responding,
    Finishing,
}

#[derive(Serialize, Deserialize)]
enum SavedForm {
    Whole { send: Send, is_personal: bool },
    Stream { head: Vec<u8>, tail: Tail },
}

#[derive(Serialize, Deserialize)]
struct SavedGathered {
    body: Vec<u8>,
    trailers: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct SavedHeld {
    head: Vec<u8>,
    body: Vec<u8>,
    bytes_max: usize,
}

#[derive(Serialize, Deserialize)]
struct SavedRoute {
    /// Table and place.
    rule: Option<(String, u16)>,
    cluster: Option<String>,
    endpoint: Option<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct SavedRecord {
    /// Time since each stamp, none for those that are not set.
    stamps: [Option<u64>; Stamps::COUNT],
    status: u16,
    is_reply: bool,
    is_tunnel: bool,
    attempts: u8,
    interim_responses: u8,
    request_bytes: u64,
    response_bytes: u64,
    cause: Option<String>,
    client: Option<IpAddr>,
    words: Vec<u8>,
    lengths: [u16; 5],
}

impl Proxy {
    /// Takes a connection with all that belongs to it out of this worker. None for a stale key, and
    /// for an upstream connection whose exchange has it alone: it goes with its downstream. None, too,
    /// where some downstream came through a listener that is not configured any more: no worker
    /// could take it up, not even this one; and while a handshake of TLS lasts.
    ///
    /// Nothing of it is closed and nothing is counted: the sockets live on under [`Proxy::restore`].
    pub fn save(&mut self, key: ConnKey, now: Time) -> Option<Saved> {
        let upstream = self.connections.get(key)?.upstream();
        if upstream.is_some_and(|upstream| upstream.exchange().is_some()) {
            return None;
        }
        let (connections, exchanges) = self.companions(key);
        let is_movable = |key: &ConnKey| {
            let connection = self.connections.get(*key);
            // A handshake is finished where it began.
            self.has_known_listener(*key) && connection.is_some_and(|it| !it.owes_handshake())
        };
        if !connections.iter().all(is_movable) {
            return None;
        }
        let mut group = Group::default();
        let upstreams = connections.iter().filter_map(|key| self.connections.get(*key)?.upstream());
        let clusters = upstreams.map(|upstream| upstream.cluster).collect();
        for exchange in exchanges {
            let saved = self.save_exchange(exchange, &connections, now);
            group.exchanges.extend(saved);
        }
        for connection in &connections {
            let is_downstream =
                self.connections.get(*connection).is_some_and(|c| c.downstream().is_some());
            let saved = if is_downstream {
                self.save_downstream(*connection, now).map(SavedEnd::Downstream)
            } else {
                self.save_upstream(*connection, now).map(SavedEnd::Upstream)
            };
            group.connections.extend(saved);
        }
        self.end_if_drained(now);
        if self.has_former_snapshots() {
            self.retire_former();
        }
        let mut bytes = VERSION.to_be_bytes().to_vec();
        bytes.extend(postcard::to_stdvec(&group).expect("memory is the only thing it needs"));
        Some(Saved { bytes, connections, clusters })
    }

    /// Goes on with those that waited for the room of connections that were saved, once all that is
    /// to be saved is.
    pub fn on_saved(&mut self, saved: &Saved, now: Time) {
        for cluster in &saved.clusters {
            self.serve_waiting(*cluster, now);
        }
    }

    fn has_known_listener(&self, key: ConnKey) -> bool {
        let downstream = self.connections.get(key).and_then(Connection::downstream);
        downstream.is_none_or(|downstream| {
            let listener = self.listeners.get(downstream.listener).listener();
            self.listener_named(&listener.name).is_ok()
        })
    }

    /// Every connection and exchange that this connection cannot be moved without.
    fn companions(&self, key: ConnKey) -> (Vec<ConnKey>, Vec<ExchangeKey>) {
        let mut connections = vec![key];
        let mut exchanges = Vec::new();
        let mut seen = 0;
        while let Some(key) = connections.get(seen).copied() {
            seen += 1;
            for exchange in self.exchanges_on(key) {
                if exchanges.contains(&exchange) {
                    continue;
                }
                exchanges.push(exchange);
                let Some(exchange) = self.exchanges.get(exchange) else { continue };
                let sides = [Some(exchange.downstream), exchange.upstream()];
                for side in sides.into_iter().flatten() {
                    if !connections.contains(&side.connection) {
                        connections.push(side.connection);
                    }
                }
            }
        }
        (connections, exchanges)
    }

    /// Takes up what [`Proxy::save`] wrote, with its sockets to be registered under the returned
    /// keys, in the order of [`Saved::connections`].
    ///
    /// # Errors
    ///
    /// [`RestoreError`]; nothing was taken up then.
    pub fn restore(&mut self, bytes: &[u8], now: Time) -> Result<Vec<ConnKey>, RestoreError> {
        let (version, rest) = bytes.split_first_chunk().ok_or(RestoreError::Damaged)?;
        let version = u16::from_be_bytes(*version);
        if version != VERSION {
            return Err(RestoreError::Version(version));
        }
        let group: Group = postcard::from_bytes(rest).map_err(|_| RestoreError::Damaged)?;
        self.check(&group)?;
        let mut keys = Vec::new();
        for end in group.connections {
            keys.push(match end {
                SavedEnd::Downstream(saved) => self.restore_downstream(saved, now)?,
                SavedEnd::Upstream(saved) => self.restore_upstream(saved, now),
            });
        }
        for saved in group.exchanges {
            self.restore_exchange(saved, &keys, now);
        }
        for key in &keys {
            self.ops.push_back(Op::Send(*key));
            self.ops.push_back(Op::Read(*key));
        }
        Ok(keys)
    }

    /// Whether everything is there that the group speaks of.
    fn check(&self, group: &Group) -> Result<(), RestoreError> {
        let end = |side: SavedSide| {
            let end = group.connections.get(side.connection as usize);
            end.filter(|end| side.stream == 0 || end.has_stream(side.stream))
        };
        for saved in &group.exchanges {
            let needs_upstream =
                matches!(saved.stage, SavedStage::Attempting | SavedStage::Responding);
            let is_whole = matches!(end(saved.downstream), Some(SavedEnd::Downstream(_)))
                && saved.upstream.is_some() == needs_upstream
                && saved
                    .upstream
                    .is_none_or(|side| matches!(end(side), Some(SavedEnd::Upstream(_))));
            if !is_whole {
                return Err(RestoreError::Damaged);
            }
        }
        if group.connections.is_empty() {
            return Err(RestoreError::Damaged);
        }
        for end in &group.connections {
            if let SavedEnd::Downstream(saved) = end {
                self.listener_named(&saved.listener)?;
            }
        }
        Ok(())
    }

    fn listener_named(&self, name: &str) -> Result<ListenerKey, RestoreError> {
        let mut listeners = self.snapshot.listeners.iter();
        let id = listeners.find(|listener| *listener.name == *name);
        let id = id.ok_or(RestoreError::NoListener)?.id;
        self.listeners.find(id).ok_or(RestoreError::NoListener)
    }

    /// Whether the socket of a restored connection is still being connected.
    #[must_use]
    pub fn awaits_connection(&self, key: ConnKey) -> bool {
        self.connections.get(key).is_some_and(Connection::is_connecting)
    }

    /// Goes on with restored connections, once their sockets are registered.
    pub fn on_restored(&mut self, keys: &[ConnKey], now: Time) {
        for key in keys {
            let upstream = self.connections.get(*key).and_then(Connection::upstream);
            if let Some(cluster) = upstream.map(|upstream| upstream.cluster) {
                // Who was restored before it may be waiting for it.
                self.serve_waiting(cluster, now);
            }
            self.resume_inbox(*key, now);
            let streams = self.multiplex_mut(*key).map(|multiplex| multiplex.ids());
            for stream in streams.unwrap_or_default() {
                // Who waited for a connection may have got one on the way.
                self.resume_stream(StreamKey { connection: *key, stream }, now);
            }
        }
    }

    fn save_connection(&mut self, key: ConnKey, now: Time) -> Option<(SavedConnection, Role)> {
        let mut connection = self.connections.remove(key)?;
        let deadline = self.timers.deadline(connection.timer);
        self.timers.remove(connection.timer);
        let inbox = connection.inbox.take();
        let saved = SavedConnection {
            receive: connection.receive,
            send: connection.send,
            inbox: inbox.as_ref().map_or(&[][..], Buffer::filled).to_vec(),
            outbox: save_outbox(&mut connection.outbox, &mut self.buffers),
            tls: connection.tls.and_then(|tls| tls.save(&mut self.buffers)).map(Box::new),
            multiplex: connection
                .multiplex
                .map(|multiplex| Box::new(save_multiplex(*multiplex, &mut self.buffers, now))),
            peer: connection.peer,
            local: connection.local,
            age: now.nanos_since(connection.opened),
            requests: connection.requests,
            is_read_closed: connection.is_read_closed,
            is_send_broken: connection.is_send_broken,
            deadline: deadline.is_set().then(|| deadline - now),
        };
        if let Some(inbox) = inbox {
            self.buffers.give_back(inbox);
        }
        Some((saved, connection.role))
    }

    fn save_downstream(&mut self, key: ConnKey, now: Time) -> Option<SavedDownstream> {
        let (connection, role) = self.save_connection(key, now)?;
        let Role::Downstream(downstream) = role else { return None };
        let listener = self.listeners.get(downstream.listener).listener();
        let chain = listener.chains.iter().find(|chain| Some(chain.id) == downstream.chain);
        let chain = chain.map(|chain| chain.name.to_string());
        let listener = listener.name.to_string();
        self.listeners.on_closed(downstream.listener);
        let head_began = since(downstream.head_began, now);
        let Downstream { life, original, .. } = downstream;
        Some(SavedDownstream { connection, listener, chain, life, head_began, original })
    }

    fn save_upstream(&mut self, key: ConnKey, now: Time) -> Option<SavedUpstream> {
        let upstream = self.connections.get(key)?.upstream()?;
        let (cluster, endpoint) = (upstream.cluster, upstream.endpoint);
        let state = match upstream.state {
            UpstreamState::Connecting { since, .. } => {
                SavedUpstreamState::Connecting { age: now.nanos_since(since) }
            }
            UpstreamState::Busy { .. } => SavedUpstreamState::Busy,
            UpstreamState::Idle(_) => {
                self.pools.remove_idle(key, &mut self.connections);
                SavedUpstreamState::Idle
            }
            UpstreamState::Shared { connecting_since, links } => {
                if links.is_some() {
                    self.pools.remove_idle(key, &mut self.connections);
                }
                let connecting_age = connecting_since.map(|since| now.nanos_since(since));
                SavedUpstreamState::Shared { connecting_age }
            }
        };
        let (connection, role) = self.save_connection(key, now)?;
        let Role::Upstream(upstream) = role else { return None };
        self.pools.on_closed(cluster);
        let (cluster, endpoint) = self.names_of(cluster, endpoint);
        let Upstream { is_personal, is_reusable, .. } = upstream;
        Some(SavedUpstream { connection, cluster, endpoint, is_personal, is_reusable, state })
    }

    /// Names by which another configuration may know a cluster and an endpoint; empty if this one
    /// has them no more.
    fn names_of(&self, cluster: ClusterId, endpoint: EndpointId) -> (String, Vec<u8>) {
        let Some(cluster) = self.snapshot.cluster(cluster) else { return Default::default() };
        let found = cluster.endpoints.iter().find(|candidate| candidate.id == endpoint);
        let address = Text::of_address(found.map(|endpoint| &endpoint.address));
        (cluster.name.to_string(), address.as_bytes().to_vec())
    }

    fn save_exchange(
        &mut self,
        key: ExchangeKey,
        connections: &[ConnKey],
        now: Time,
    ) -> Option<SavedExchange> {
        let mut exchange = self.exchanges.remove(key)?;
        let side = |side: StreamKey| {
            let place = connections.iter().position(|key| *key == side.connection);
            let connection = place.and_then(|place| u32::try_from(place).ok()).unwrap_or(u32::MAX);
            SavedSide { connection, stream: side.stream }
        };
        let (downstream, upstream) = (side(exchange.downstream), exchange.upstream().map(side));
        self.timers.remove(exchange.timer);
        let gathered = exchange.gathered.as_ref().map(|gathered| SavedGathered {
            body: gathered.body.filled().to_vec(),
            trailers: gathered.trailers.clone(),
        });
        let held = exchange.held.as_ref().map(|held| SavedHeld {
            head: held.head.filled().to_vec(),
            body: held.body.filled().to_vec(),
            bytes_max: held.bytes_max,
        });
        self.drop_bodies(&mut exchange);
        let route = exchange.route.as_ref().map(|route| {
            let rule = route.rule.map(|(table, place)| {
                let table = exchange.snapshot.route_table(table);
                (table.map(|table| table.name.to_string()).unwrap_or_default(), place)
            });
            let cluster = route.cluster.and_then(|id| exchange.snapshot.cluster(id));
            let endpoint = cluster
                .zip(route.endpoint)
                .and_then(|(cluster, place)| cluster.endpoints.get(place))
                .map(|endpoint| Text::of_address(Some(&endpoint.address)).as_bytes().to_vec());
            SavedRoute { rule, cluster: cluster.map(|cluster| cluster.name.to_string()), endpoint }
        });
        let filters = exchange.listener().filter_sources.iter();
        let filters = filters.map(|source| source.name().to_owned()).collect();
        let stage = match exchange.stage {
            Stage::Suspended { step, question, head } => {
                let saved = SavedStage::Suspended {
                    step,
                    topic: question.topic.to_string(),
                    payload: question.payload.to_vec(),
                    head: head.filled().to_vec(),
                };
                self.buffers.give_back(head);
                saved
            }
            Stage::Gathering { filter, head } => {
                let saved = SavedStage::Gathering { filter, head: head.filled().to_vec() };
                self.buffers.give_back(head);
                saved
            }
            Stage::Waiting { mut request } => {
                if let Some(cluster) = exchange.route.as_ref().and_then(|route| route.cluster) {
                    let exchanges = &self.exchanges;
                    self.pools.give_up(cluster, |key| exchanges.get(key).is_some());
                }
                let outbox = save_outbox(&mut request.outbox, &mut self.buffers);
                let form = match request.form {
                    Form::Whole { send, is_personal } => SavedForm::Whole { send, is_personal },
                    Form::Stream { head, tail } => {
                        let saved = SavedForm::Stream { head: head.filled().to_vec(), tail };
                        self.buffers.give_back(head);
                        saved
                    }
                };
                SavedStage::Waiting { outbox, form }
            }
            Stage::Attempting { .. } => SavedStage::Attempting,
            Stage::Responding { .. } => SavedStage::Responding,
            Stage::Finishing => SavedStage::Finishing,
        };
        Some(SavedExchange {
            downstream,
            upstream,
            filters,
            kind: exchange.kind,
            stage,
            request: exchange.request,
            route,
            deadlines: exchange.deadlines.remaining(now),
            slots: exchange.slots.map(Vec::from),
            onlookers: exchange.onlookers,
            gathered,
            held,
            record: self.save_record(exchange.record, now),
            call: exchange.call,
            handshake: exchange.handshake,
            is_response_complete: exchange.is_response_complete,
        })
    }

    fn save_record(&mut self, mut record: Record, now: Time) -> SavedRecord {
        let text = record.words.text.take();
        let saved = SavedRecord {
            stamps: record.stamps.all_mut().map(|stamp| since(*stamp, now)),
            status: record.status,
            is_reply: record.is_reply,
            is_tunnel: record.is_tunnel,
            attempts: record.attempts,
            interim_responses: record.interim_responses,
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
            cause: record.cause.map(|cause| cause.as_str().to_owned()),
            client: record.client,
            words: text.as_ref().map_or(&[][..], Buffer::filled).to_vec(),
            lengths: record.words.lengths,
        };
        if let Some(text) = text {
            self.buffers.give_back(text);
        }
        saved
    }

    fn restore_connection(&mut self, key: ConnKey, saved: SavedConnection, now: Time) {
        let outbox = restore_outbox(&saved.outbox, &mut self.buffers);
        let tls = saved.tls.map(|saved| Box::new(Tls::restore(*saved, &mut self.buffers)));
        let inbox = (!saved.inbox.is_empty()).then(|| self.buffers.lease_with(&saved.inbox));
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.receive = saved.receive;
        connection.send = saved.send;
        connection.inbox = inbox;
        connection.outbox = outbox;
        connection.tls = tls;
        connection.peer = saved.peer;
        connection.local = saved.local;
        connection.opened = before(saved.age, now);
        connection.requests = saved.requests;
        connection.is_read_closed = saved.is_read_closed;
        connection.is_send_broken = saved.is_send_broken;
        let deadline = saved.deadline.map_or(Time::NEVER, |left| now + left);
        self.timers.arm(connection.timer, deadline);
        if let Some(saved) = saved.multiplex {
            let limits = self.http2_limits(key);
            let multiplex = restore_multiplex(*saved, limits, &mut self.buffers, now);
            if let Some(connection) = self.connections.get_mut(key) {
                connection.multiplex = Some(Box::new(multiplex));
            }
        }
    }

    /// What the configuration allows a connection to hold now.
    fn http2_limits(&self, key: ConnKey) -> Limits {
        let of_cluster = |id| self.snapshot.cluster(id).map(|cluster| cluster.http2);
        match self.connections.get(key).map(|connection| &connection.role) {
            Some(Role::Downstream(downstream)) => {
                let listener = self.listeners.get(downstream.listener).listener();
                crate::http2::downstream_limits(&listener.http, &listener.http2)
            }
            Some(Role::Upstream(upstream)) => of_cluster(upstream.cluster)
                .map_or_else(Limits::default, |http2| crate::http2::limits(RESPONSE_HEAD, &http2)),
            None => Limits::default(),
        }
    }

    fn restore_downstream(
        &mut self,
        saved: SavedDownstream,
        now: Time,
    ) -> Result<ConnKey, RestoreError> {
        let listener = self.listener_named(&saved.listener)?;
        self.listeners.on_opened(listener);
        let head_began = saved.head_began.map_or(Time::NEVER, |age| before(age, now));
        let found = self.listeners.get(listener).listener();
        let chain = saved.chain.and_then(|name| found.chain_named(&name).map(|chain| chain.id));
        let (life, original) = (saved.life, saved.original);
        let downstream = Downstream { listener, chain, exchange: None, life, head_began, original };
        let key = self.insert_connection(Role::Downstream(downstream), Receive::Complete, now);
        self.restore_connection(key, saved.connection, now);
        Ok(key)
    }

    fn restore_upstream(&mut self, saved: SavedUpstream, now: Time) -> ConnKey {
        let is_shared = matches!(saved.state, SavedUpstreamState::Shared { .. });
        let (cluster, endpoint) = self.ids_of(&saved.cluster, &saved.endpoint, is_shared);
        let nobody = ExchangeKey::from_bits(u64::MAX >> 1);
        let state = match saved.state {
            SavedUpstreamState::Connecting { age } => {
                UpstreamState::Connecting { exchange: nobody, since: before(age, now) }
            }
            SavedUpstreamState::Busy | SavedUpstreamState::Idle => {
                UpstreamState::Busy { exchange: nobody }
            }
            SavedUpstreamState::Shared { connecting_age } => UpstreamState::Shared {
                connecting_since: connecting_age.map(|age| before(age, now)),
                links: None,
            },
        };
        let SavedUpstream { is_personal, is_reusable, .. } = saved;
        let upstream = Upstream { cluster, endpoint, state, is_personal, is_reusable };
        let key = self.insert_connection(Role::Upstream(upstream), Receive::Complete, now);
        let random = &mut self.random;
        self.pools.on_restored(cluster, || random.next());
        self.restore_connection(key, saved.connection, now);
        if matches!(saved.state, SavedUpstreamState::Idle)
            && (cluster.0 == GONE
                || !self.pools.put_idle(key, (cluster, endpoint), &mut self.connections))
        {
            self.close_upstream(key, None, now);
        }
        if matches!(saved.state, SavedUpstreamState::Shared { .. }) {
            self.offer(key);
        }
        key
    }

    /// The cluster and endpoint of these names. An endpoint that is spoken to in another way now is
    /// another one.
    fn ids_of(&self, cluster: &str, endpoint: &[u8], is_shared: bool) -> (ClusterId, EndpointId) {
        let found = self.snapshot.clusters.iter().find(|(_, found)| *found.name == *cluster);
        let Some((_, found)) = found else { return (ClusterId(GONE), EndpointId(GONE)) };
        let is_same = |address: &Address| Text::of_address(Some(address)).as_bytes() == endpoint;
        let place = found.endpoints.iter().find(|candidate| is_same(&candidate.address));
        let endpoint = place.map(|endpoint| endpoint.id).or(found.original_destination);
        let endpoint = endpoint.filter(|_| (found.protocol == ClusterProtocol::Http2) == is_shared);
        (found.id, endpoint.unwrap_or(EndpointId(GONE)))
    }

    fn restore_exchange(&mut self, saved: SavedExchange, connections: &[ConnKey], now: Time) {
        let side = |side: SavedSide| {
            let connection = connections.get(side.connection as usize).copied()?;
            Some(StreamKey { connection, stream: side.stream })
        };
        let Some(downstream) = side(saved.downstream) else { return };
        let upstream = saved.upstream.and_then(side);
        let listener = self.connections.get(downstream.connection).and_then(Connection::downstream);
        let Some((listener, chain)) = listener.map(|role| (role.listener, role.chain)) else {
            return;
        };
        let state = self.listeners.get(listener);
        let listener = state.listener().seen_by(chain);
        let (snapshot, place) = (state.snapshot.clone(), state.place);
        let route = saved.route.map(|route| restore_route(&snapshot, &route));
        let timer = self.timers.insert(TimerOwner::Exchange(ExchangeKey::from_bits(0)).into());
        let deadlines = restore_deadlines(&saved.deadlines, now);
        let (_, first) = deadlines.first();
        let mut words = Words { text: None, lengths: saved.record.lengths };
        if !saved.record.words.is_empty() {
            words.text = Some(self.buffers.lease_with(&saved.record.words));
        }
        let slot_bytes = listener.filters.iter().map(|f| f.slot_bytes()).sum::<usize>();
        let names = listener.filter_sources.iter().map(|source| source.name());
        let is_same_chain = names.clone().eq(saved.filters.iter().map(String::as_str));
        // In another chain, a filter that waited is run again where it stands now.
        let waits = match &saved.stage {
            SavedStage::Suspended { step, .. } => Some(step.place()),
            SavedStage::Gathering { filter, .. } => Some(*filter),
            _ => None,
        };
        let again = waits.filter(|_| !is_same_chain).map(|filter| {
            let name = saved.filters.get(filter).map(String::as_str);
            names.clone().position(|other| Some(other) == name).unwrap_or(filter)
        });
        let onlookers =
            if is_same_chain { saved.onlookers } else { Onlookers::at_requests(&listener.filters) };
        let gathered = saved.gathered.map(|saved| restore_gathered(saved, &mut self.buffers));
        let held = saved.held.map(|saved| restore_held(&saved, &mut self.buffers));
        let key = self.exchanges.insert(Exchange {
            snapshot,
            listener: place,
            chain,
            downstream,
            kind: saved.kind,
            stage: Stage::Finishing,
            request: saved.request,
            route,
            timer,
            deadlines,
            // Slots of another chain would mean nothing to this one's filters.
            slots: saved
                .slots
                .filter(|slots| is_same_chain && slots.len() == slot_bytes)
                .or_else(|| (slot_bytes > 0).then(|| vec![0; slot_bytes]))
                .map(Vec::into_boxed_slice),
            onlookers,
            gathered,
            held,
            record: restore_record(&saved.record, words, now),
            call: saved.call,
            handshake: saved.handshake,
            is_response_complete: saved.is_response_complete,
        });
        self.timers.set_owner(timer, TimerOwner::Exchange(key).into());
        self.timers.arm(timer, first);
        self.join_exchange(key, downstream, upstream);
        match (again, saved.stage) {
            (
                Some(first),
                SavedStage::Suspended { head, .. } | SavedStage::Gathering { head, .. },
            ) => {
                let head = self.buffers.lease_with(&head);
                self.with_parked(key, head, now, |proxy, head| {
                    proxy.run_chain(key, head, ChainStep::Head(first), now);
                });
            }
            (_, stage) => self.restore_stage(key, stage, upstream, now),
        }
    }

    /// Makes the connections of a restored exchange know it.
    fn join_exchange(
        &mut self,
        key: ExchangeKey,
        downstream: StreamKey,
        upstream: Option<StreamKey>,
    ) {
        for side in [Some(downstream), upstream].into_iter().flatten() {
            if let Some(stream) = self.stream_mut(side) {
                stream.exchange = key;
                continue;
            }
            match self.connections.get_mut(side.connection).map(|connection| &mut connection.role) {
                Some(Role::Downstream(role)) => role.exchange = Some(key),
                Some(Role::Upstream(role)) => match &mut role.state {
                    UpstreamState::Connecting { exchange, .. }
                    | UpstreamState::Busy { exchange } => *exchange = key,
                    UpstreamState::Idle(_) | UpstreamState::Shared { .. } => {}
                },
                None => {}
            }
        }
    }

    fn restore_stage(
        &mut self,
        key: ExchangeKey,
        saved: SavedStage,
        upstream: Option<StreamKey>,
        now: Time,
    ) {
        let stage = match (saved, upstream) {
            (SavedStage::Attempting, Some(upstream)) => Stage::Attempting { upstream },
            (SavedStage::Responding, Some(upstream)) => Stage::Responding { upstream },
            (SavedStage::Suspended { step, topic, payload, head }, _) => {
                let head = self.buffers.lease_with(&head);
                let question = Question { topic: topic.into(), payload: payload.into() };
                self.ops.push_back(Op::Ask { exchange: key, question: question.clone() });
                Stage::Suspended { step, question, head }
            }
            (SavedStage::Gathering { filter, head }, _) => {
                Stage::Gathering { filter, head: self.buffers.lease_with(&head) }
            }
            (SavedStage::Waiting { outbox, form }, _) => {
                let outbox = restore_outbox(&outbox, &mut self.buffers);
                let form = match form {
                    SavedForm::Whole { send, is_personal } => Form::Whole { send, is_personal },
                    SavedForm::Stream { head, tail } => {
                        Form::Stream { head: self.buffers.lease_with(&head), tail }
                    }
                };
                return self.attempt(key, Unbound { outbox, form }, None, now);
            }
            (SavedStage::Finishing | SavedStage::Attempting | SavedStage::Responding, _) => {
                Stage::Finishing
            }
        };
        if let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.stage = stage;
        }
    }
}

impl SavedEnd {
    fn has_stream(&self, id: u32) -> bool {
        let (Self::Downstream(SavedDownstream { connection, .. })
        | Self::Upstream(SavedUpstream { connection, .. })) = self;
        let multiplex = connection.multiplex.as_ref();
        multiplex.is_some_and(|it| it.streams.iter().any(|stream| stream.id == id))
    }
}

fn save_multiplex(mut multiplex: Multiplex, buffers: &mut Buffers, now: Time) -> SavedMultiplex {
    let mut save = |stream: &mut Stream| {
        let inbox = stream.inbox.take().map(|inbox| {
            let saved = (inbox.body.filled().to_vec(), inbox.tail);
            buffers.give_back(inbox.body);
            saved
        });
        let head = stream.head.take().map(|head| {
            let saved = head.filled().to_vec();
            buffers.give_back(head);
            saved
        });
        SavedStream {
            id: stream.id,
            outbox: save_outbox(&mut stream.outbox, buffers),
            tail: std::mem::take(&mut stream.tail),
            is_ended: stream.is_ended,
            inbox,
            owed: stream.owed,
            head,
        }
    };
    SavedMultiplex {
        streams: multiplex.iter_mut().map(&mut save).collect(),
        watches: multiplex.watches.remaining(now),
        failure: multiplex.failure.map(|cause| cause.as_str().to_owned()),
        codec: multiplex.codec,
    }
}

fn restore_multiplex(
    saved: SavedMultiplex,
    limits: Limits,
    buffers: &mut Buffers,
    now: Time,
) -> Multiplex {
    let nobody = ExchangeKey::from_bits(u64::MAX >> 1);
    let mut multiplex = Multiplex::new(saved.codec, limits, now);
    for saved in saved.streams {
        let mut stream = Stream::new(saved.id, nobody);
        stream.outbox = restore_outbox(&saved.outbox, buffers);
        (stream.tail, stream.is_ended) = (saved.tail, saved.is_ended);
        stream.inbox = saved
            .inbox
            .map(|(body, tail)| Box::new(StreamInbox { body: buffers.lease_with(&body), tail }));
        stream.owed = saved.owed;
        stream.head = saved.head.map(|head| buffers.lease_with(&head));
        multiplex.insert(stream);
    }
    multiplex.watches = Watches::restored(&saved.watches, now);
    multiplex.failure = saved.failure.and_then(|word| cause_named(&word));
    multiplex
}

fn cause_named(word: &str) -> Option<Cause> {
    Cause::ALL.iter().copied().find(|cause| cause.as_str() == word)
}

fn restore_deadlines(saved: &[(u8, Duration)], now: Time) -> Deadlines {
    let mut deadlines = Deadlines::default();
    for (wait, left) in saved {
        if let Some(wait) = Wait::ALL.get(usize::from(*wait)) {
            deadlines.set(*wait, now + *left);
        }
    }
    deadlines
}

fn restore_gathered(saved: SavedGathered, buffers: &mut Buffers) -> Box<Gathered> {
    Box::new(Gathered { body: buffers.lease_with(&saved.body), trailers: saved.trailers })
}

fn restore_held(saved: &SavedHeld, buffers: &mut Buffers) -> Box<Held> {
    let (head, body) = (buffers.lease_with(&saved.head), buffers.lease_with(&saved.body));
    Box::new(Held { head, body, bytes_max: saved.bytes_max })
}

fn restore_route(snapshot: &Pinned, saved: &SavedRoute) -> Route {
    let rule = saved.rule.as_ref().map(|(name, place)| {
        let table = snapshot.route_tables.iter().find(|(_, table)| *table.name == **name);
        (table.map_or(RouteTableId(GONE), |(_, table)| table.id), *place)
    });
    let cluster = saved.cluster.as_ref().map(|name| {
        snapshot
            .clusters
            .iter()
            .find(|(_, cluster)| *cluster.name == **name)
            .map(|(_, found)| found)
    });
    let endpoint = saved.endpoint.as_ref().zip(cluster.flatten()).and_then(|(address, cluster)| {
        let is_same = |other: &Address| Text::of_address(Some(other)).as_bytes() == *address;
        cluster.endpoints.iter().position(|endpoint| is_same(&endpoint.address))
    });
    Route {
        rule,
        cluster: cluster.map(|found| found.map_or(ClusterId(GONE), |cluster| cluster.id)),
        endpoint,
    }
}

fn restore_record(saved: &SavedRecord, words: Words, now: Time) -> Record {
    let mut stamps = Stamps::NONE;
    for (stamp, age) in stamps.all_mut().into_iter().zip(saved.stamps) {
        *stamp = age.map_or(Time::NEVER, |age| before(age, now));
    }
    let cause = saved.cause.as_ref();
    Record {
        stamps,
        status: saved.status,
        is_reply: saved.is_reply,
        is_tunnel: saved.is_tunnel,
        attempts: saved.attempts,
        interim_responses: saved.interim_responses,
        request_bytes: saved.request_bytes,
        response_bytes: saved.response_bytes,
        cause: cause.and_then(|word| cause_named(word)),
        client: saved.client,
        words,
    }
}

fn save_outbox(outbox: &mut Outbox, buffers: &mut Buffers) -> SavedOutbox {
    let mut bytes = outbox.kept().to_vec();
    let kept = u32::try_from(bytes.len()).expect("kept bytes are in one buffer");
    bytes.extend(outbox.to_vec());
    let (is_keeping, is_untouched) = (outbox.is_keeping(), outbox.is_untouched());
    outbox.clear(buffers);
    SavedOutbox { bytes, kept, is_keeping, is_untouched }
}

fn restore_outbox(saved: &SavedOutbox, buffers: &mut Buffers) -> Outbox {
    let mut outbox = Outbox::new();
    if saved.is_keeping {
        outbox.keep();
    }
    outbox.push(&saved.bytes, buffers);
    if saved.kept > 0 {
        outbox.on_sent(saved.kept as usize, buffers);
    }
    outbox.restore_untouched(saved.is_untouched);
    outbox
}

/// Time since a stamp, if it is set.
fn since(stamp: Time, now: Time) -> Option<u64> {
    stamp.is_set().then(|| now.nanos_since(stamp))
}

/// The point that many nanoseconds before `now`.
const fn before(age: u64, now: Time) -> Time {
    Time::from_nanos(now.as_nanos().saturating_sub(age))
}
