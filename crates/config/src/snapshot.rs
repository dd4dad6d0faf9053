//! What workers use: one complete, valid, immutable configuration.
//!
//! Nothing here is optional in the sense of "use the default": defaults were filled in when the
//! text was read. Nothing names another thing by string: references are ids that stay the same
//! from one snapshot to the next for as long as the named thing exists, so that a worker can keep
//! what changes at run time (pools, cursors, health) in tables of its own under those ids.
//!
//! `F` is the built filter. The binary chooses it; this crate only carries it.

mod endpoints;
pub(crate) mod id;
mod tls;

use std::num::{NonZeroU16, NonZeroU32};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use wire::path::Slashes;

use crate::access_log::{REQUEST_HEADERS, RESPONSE_HEADERS};
use crate::balance::Balancer;
use crate::chain_names::ChainNames;
use crate::chains::ListenerChains;
use crate::checks::HealthCheck;
use crate::cidr::Cidr;
use crate::clients::ClientMatch;
use crate::edits::HeaderEdits;
use crate::error_pages::ErrorPages;
use crate::file::delivered::{Locality, ReportedHealth};
use crate::file::{self, Rebalance};
use crate::file_mode::FileMode;
use crate::filters::FilterSource;
use crate::hash::Hashing;
use crate::health::{Activity, HealthCell};
use crate::hosts::{Host, HostTable};
use crate::matching::{Asked, Case, Criterion, PathKind, PathMatch, Percent, Regexes, Searches};
use crate::metrics::Metrics;
use crate::mirrors::Mirror;
use crate::origins::{Origins, ResourceName};
use crate::outlier::Outlier;
use crate::paths::PathTable;
use crate::protocols::Protocols;
use crate::retry::{RetryBudget, RetryPolicy};
use crate::rewrite::{PathRewrite, Rewrite};
use crate::runtime::{Runtime, RuntimeUse};
use crate::slow_start::SlowStart;
use crate::subsets::{Metadata, Selectors, SubsetAsked};
use crate::targets::Target;
use crate::view::View;

pub use crate::address::Address;
pub use crate::dns::{DnsAnswer, DnsFamily, DnsMode, DnsName, Resolved};
// Words of the file that have no invalid values.
pub use crate::file::access_log::Format as AccessLogFormat;
pub use crate::file::cluster::{Protocol as ClusterProtocol, ResponseParsing};
pub use crate::file::listener::{
    ForwardClientCert, Forwarded as ForwardedFields, HeadersWithUnderscores as Underscores,
    OriginalDestination, Protocol as ListenerProtocol,
};
pub use crate::file::tls::{Mode as TlsMode, Signing};

pub use wire::detect::Detected;

pub use self::endpoints::{EndpointsFrom, ListedEndpoint, Resolvers, Traits};
pub use self::id::{ChainId, ClusterId, EndpointId, Id, ListenerId, RouteTableId, TransportId};
pub use self::tls::{
    CertificateSource, ClientTrust, ClusterTls, ClusterTlsSource, ListenerTls, ListenerTlsSource,
    RootsSource, TicketKeySource,
};

/// Slots of a chunk: a change copies one chunk, and the pointers to all of them.
const CHUNK_SLOTS: usize = 64;

/// A table from ids to resources with shared structure: the next one shares all chunks but those in
/// which it differs.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    chunks: Vec<Arc<Chunk<T>>>,
}

type Chunk<T> = [Option<(u32, T)>; CHUNK_SLOTS];

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

/// The chunk of a slot, and its place there.
const fn place(slot: u32) -> (usize, usize) {
    let slot = slot as usize;
    (slot / CHUNK_SLOTS, slot % CHUNK_SLOTS)
}

impl<T> Slots<T> {
    /// The resource with this id, if this snapshot still has it.
    #[must_use]
    pub fn find(&self, id: Id) -> Option<&T> {
        let (chunk, place) = place(id.slot);
        match self.chunks.get(chunk)?.get(place) {
            Some(Some((generation, value))) if *generation == id.generation => Some(value),
            _ => None,
        }
    }

    /// All resources with their ids, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        slots.zip(0u32..).filter_map(|(place, slot)| {
            place.as_ref().map(|(generation, value)| (Id { slot, generation: *generation }, value))
        })
    }
}

impl<T: Clone> Slots<T> {
    /// Puts `value` under `id`, replacing what the slot held. Slots are given out densely: a table
    /// is as long as the largest slot.
    pub fn insert(&mut self, id: Id, value: T) {
        let (chunk, place) = place(id.slot);
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, || Arc::new([const { None }; CHUNK_SLOTS]));
        }
        if let Some(slot) = self.slot_mut(chunk, place) {
            *slot = Some((id.generation, value));
        }
    }

    /// Empties the slot of `id`, if it holds that.
    pub(crate) fn remove(&mut self, id: Id) {
        let (chunk, place) = place(id.slot);
        if self.find(id).is_some()
            && let Some(slot) = self.slot_mut(chunk, place)
        {
            *slot = None;
        }
    }

    fn slot_mut(&mut self, chunk: usize, place: usize) -> Option<&mut Option<(u32, T)>> {
        Arc::make_mut(self.chunks.get_mut(chunk)?).get_mut(place)
    }
}

/// One complete valid configuration.
#[derive(Debug)]
pub struct Snapshot<F> {
    /// Counts the snapshots of this process, from 1.
    pub version: u64,
    /// What was taken up when the process started, and stays until it ends.
    pub startup: StartupOptions,
    /// The listeners, in the order of the file.
    pub listeners: Arc<[Arc<Listener<F>>]>,
    /// The places of the listeners in that order, by [`ListenerId`].
    pub(crate) listener_places: Slots<u32>,
    /// What bounds connections of any listener.
    pub listener_bounds: ListenerBounds,
    /// What `routes` holds, by [`RouteTableId`].
    pub route_tables: Slots<Arc<RouteTable>>,
    /// The clusters, by [`ClusterId`].
    pub clusters: Slots<Arc<Cluster>>,
    /// How host names are resolved.
    pub resolvers: Resolvers,
    /// Bounds of the process. A worker takes its share of those that are counted.
    pub limits: Limits,
    /// What is observed of each exchange.
    pub access_log: AccessLog,
    /// The RPC protocols that the program knows.
    pub protocols: Protocols,
    /// What is reported beside the metrics that are always there.
    pub metrics: Metrics,
    /// Whether connections move between workers.
    pub rebalance: Rebalance,
    /// What the sections were built from, all but those that are lists.
    pub source: Arc<file::File>,
    /// The values that rules ask for and operators may change.
    pub runtime: Arc<Runtime>,
    /// Where its resources come from.
    pub(crate) origins: Arc<Origins>,
    /// What differs from the snapshot of `version - 1`.
    pub changes: Changes,
}

impl<F> Snapshot<F> {
    /// The listener with this id, if this snapshot still has it, and its place in `listeners`.
    #[must_use]
    pub fn listener(&self, id: ListenerId) -> Option<(usize, &Arc<Listener<F>>)> {
        let place = *self.listener_places.find(id.0)? as usize;
        Some((place, self.listeners.get(place)?))
    }

    /// The cluster with this id, if this snapshot still has it.
    #[must_use]
    pub fn cluster(&self, id: ClusterId) -> Option<&Arc<Cluster>> {
        self.clusters.find(id.0)
    }

    /// Whether a resource is of the file, and not of another source.
    #[must_use]
    pub fn is_in_file(&self, name: &ResourceName) -> bool {
        self.origins.has(name.kind, &name.name)
    }

    /// The route table with this id, if this snapshot still has it.
    #[must_use]
    pub fn route_table(&self, id: RouteTableId) -> Option<&Arc<RouteTable>> {
        self.route_tables.find(id.0)
    }
}

/// What bounds connections of any listener, so that a worker that takes up a snapshot need not look at
/// all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerBounds {
    /// Whether a listener or a chain bounds the age of connections.
    pub has_connection_age: bool,
    /// The smallest `buffered_bytes_max`, or none if no listener has one.
    pub buffered_bytes_least: Option<u64>,
    /// Whether a listener or a route table has error pages, which need words of the request.
    pub has_error_pages: bool,
}

impl ListenerBounds {
    pub(crate) fn of<F>(listeners: &[Arc<Listener<F>>], tables: &[Arc<RouteTable>]) -> Self {
        Self {
            has_connection_age: listeners.iter().any(|listener| listener.bounds_connection_age()),
            buffered_bytes_least: listeners
                .iter()
                .filter_map(|listener| listener.buffered_bytes_max)
                .min(),
            has_error_pages: listeners.iter().any(|it| !it.http.error_pages.is_empty())
                || tables.iter().any(|it| !it.error_pages.is_empty()),
        }
    }

    /// Holds for what `other` holds for as well.
    pub(crate) fn widen(&mut self, other: Self) {
        let least = [self.buffered_bytes_least, other.buffered_bytes_least];
        self.has_connection_age |= other.has_connection_age;
        self.buffered_bytes_least = least.into_iter().flatten().min();
        self.has_error_pages |= other.has_error_pages;
    }
}

/// What cannot change while a process runs. The first snapshot sets it; those that follow carry it
/// on, whatever their file says (which is then a warning).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupOptions {
    /// Where the admin interface listens, or none for no admin interface.
    pub admin: Option<Address>,
    /// Permissions of the files of its unix sockets, or none for what the umask leaves.
    pub admin_mode: Option<FileMode>,
    /// Names, in lower case, under which requests may ask for it beside `localhost` and addresses.
    pub admin_hosts: Arc<[Box<str>]>,
    /// Where what scrapers and probes ask for is served alone, or none for nowhere.
    pub metrics: Option<Address>,
    /// How many worker threads there are, or none for one for each core.
    pub workers: Option<NonZeroU16>,
    /// Whether each worker stays on one core.
    pub pins_workers: bool,
    /// How another process takes this one's place.
    pub handover: HandoverOptions,
    /// The folder for the last good answers of sources, or none if they are not kept.
    pub state: Option<Arc<Path>>,
}

/// How another process takes this one's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverOptions {
    /// The socket that it connects to, or none for the one below `RUNTIME_DIRECTORY`.
    pub socket: Option<Arc<Path>>,
    /// How long it may take until the other process has everything that can move.
    pub timeout: Duration,
    /// How long this process then keeps the listening sockets.
    pub probation: Duration,
    /// Users, beside this process's own and root, whose processes may take over.
    pub users: Arc<[u32]>,
}

/// What one snapshot changes against the one before. A worker's work follows the length of these
/// lists, not the size of the configuration. The first snapshot adds everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Listeners that are new, or whose address or socket options changed (these also stand in
    /// `listeners_removed` under their former id).
    pub listeners_added: Vec<ListenerId>,
    /// Listeners whose content changed while socket and id stay.
    pub listeners_changed: Vec<ListenerId>,
    /// Listeners that are gone: their sockets close, their connections drain.
    pub listeners_removed: Vec<ListenerId>,
    /// Chains that are gone, with their listener (those of a listener that is gone among them): their
    /// connections drain.
    pub chains_removed: Vec<(ListenerId, ChainId)>,
    /// Clusters that are new.
    pub clusters_added: Vec<ClusterId>,
    /// Clusters that are gone: their idle connections close.
    pub clusters_removed: Vec<ClusterId>,
    /// Clusters whose content changed: limits and schedules are read again.
    pub clusters_changed: Vec<ClusterId>,
    /// Clusters of them whose endpoints are spoken to in another way: the idle connections to all of these
    /// close.
    pub transports_changed: Vec<ClusterId>,
    /// Endpoints that are new, with their cluster.
    pub endpoints_added: Vec<(ClusterId, EndpointId)>,
    /// Endpoints that are gone, with the cluster that had them (those of a cluster that is gone
    /// among them): their idle connections close.
    pub endpoints_removed: Vec<(ClusterId, EndpointId)>,
    /// Route tables that are new.
    pub route_tables_added: Vec<RouteTableId>,
    /// Route tables whose content changed.
    pub route_tables_changed: Vec<RouteTableId>,
    /// Route tables that are gone.
    pub route_tables_removed: Vec<RouteTableId>,
}

/// A bound address and what happens to its connections.
#[derive(Debug)]
pub struct Listener<F> {
    /// Stable name.
    pub id: ListenerId,
    /// What it was built from, all but its chains. A listener as a chain sees it has that of its listener.
    pub source: Arc<file::Listener>,
    /// Name in the file.
    pub name: Arc<str>,
    /// Addresses to bind: at least one.
    pub addresses: Arc<[Address]>,
    /// Options of the listening socket.
    pub socket: ListenSocket,
    /// What its connections speak.
    pub protocol: ListenerProtocol,
    /// How their TLS is ended, if it is.
    pub tls: Option<Arc<ListenerTls>>,
    /// Where connections go that speak something else, or all of them.
    pub relay: Option<Relay>,
    /// What connections meet that match.
    pub chains: ListenerChains<F>,
    /// The chains by server name, if a request may belong to another one than its connection.
    pub chain_names: Option<Box<ChainNames>>,
    /// Whether there is something for those that match none of the chains.
    pub has_default: bool,
    /// The filter chain, in order.
    pub filters: Arc<[F]>,
    /// What each filter was built from, in the same order.
    pub filter_sources: Arc<[FilterSource]>,
    /// The route tables, in the order of the file.
    pub route_tables: Vec<RouteTableId>,
    /// Host name ⇒ route table.
    pub hosts: HostTable<RouteTableId>,
    /// How HTTP is read and rewritten here.
    pub http: HttpOptions,
    /// What one connection of HTTP/2 may hold.
    pub http2: Http2Options,
    /// What one connection of an RPC protocol may hold.
    pub rpc: RpcOptions,
    /// How long its peers may take.
    pub timeouts: DownstreamTimeouts,
    /// Connections open at a time, in the process.
    pub connections_max: NonZeroU32,
    /// The same of one client.
    pub connections_per_client_max: NonZeroU32,
    /// Exchanges of one client at a time, in the process, or none for no bound.
    pub exchanges_per_client_max: Option<NonZeroU32>,
    /// Bytes that its clients may hold in buffers, in the process, or none for no bound.
    pub buffered_bytes_max: Option<u64>,
}

impl<F> Listener<F> {
    /// The clusters that it and its chains relay to, whether they are there or not, as often as they are named.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = ClusterId> {
        let relays = self.chains.iter().map(|chain| &chain.listener.relay).chain([&self.relay]);
        relays.flatten().flat_map(|relay| relay.clusters.iter().map(|(id, _)| *id))
    }

    /// The listener as connections of this chain see it, and as those see it that have none, or
    /// whose chain is gone.
    #[must_use]
    #[inline]
    pub fn seen_by(&self, chain: Option<ChainId>) -> &Self {
        // Most connections have none, and each request asks often.
        chain.map_or(self, |id| self.seen_by_chain(id))
    }

    /// Whether it, or one of its chains, bounds the age of connections.
    fn bounds_connection_age(&self) -> bool {
        let client = self.tls.as_ref().and_then(|tls| tls.source.client.as_ref());
        self.timeouts.connection_age.is_some()
            || client.is_some_and(|client| client.connection_age_max.is_some())
            || self.chains.iter().any(|chain| chain.listener.bounds_connection_age())
    }

    #[inline(never)]
    fn seen_by_chain(&self, id: ChainId) -> &Self {
        self.chains.find(id).map_or(self, |(_, chain)| &chain.listener)
    }
}

/// What some connections of a listener meet in place of what it has itself.
#[derive(Debug)]
pub struct ListenerChain<F> {
    /// Stable name.
    pub id: ChainId,
    /// Name in the file.
    pub name: Arc<str>,
    /// What it was built from.
    pub source: Arc<file::ListenerChain>,
    /// The connections it is for.
    pub matches: ChainMatch,
    /// The listener as these connections see it.
    pub listener: Listener<F>,
}

/// What a connection must be like. An empty list asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChainMatch {
    /// Names that a TLS client asks for; none of them is [`Host::Any`].
    pub server_names: Vec<Host>,
    /// Protocols that a TLS client offers.
    pub alpn: Vec<Box<[u8]>>,
    /// What the first bytes are.
    pub protocols: Vec<Detected>,
    /// Where connections come from.
    pub sources: Vec<Cidr>,
    /// Where connections were going.
    pub destinations: Vec<Cidr>,
    /// The port of that.
    pub destination_ports: Vec<NonZeroU16>,
}

impl ChainMatch {
    /// Whether the first bytes have to be looked at.
    #[must_use]
    pub const fn needs_bytes(&self) -> bool {
        !self.server_names.is_empty() || !self.alpn.is_empty() || !self.protocols.is_empty()
    }
}

/// Clusters of which each relayed connection goes to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// The clusters with their shares; at least one.
    pub clusters: Box<[(ClusterId, NonZeroU16)]>,
}

impl Relay {
    /// The cluster for a connection, by a random number.
    #[must_use]
    pub fn choose(&self, random: u64) -> Option<ClusterId> {
        let total = self.clusters.iter().map(|(_, weight)| u64::from(weight.get())).sum::<u64>();
        let mut left = random.checked_rem(total)?;
        self.clusters.iter().find_map(|(cluster, weight)| {
            let weight = u64::from(weight.get());
            let is_it = left < weight;
            left = left.saturating_sub(weight);
            is_it.then_some(*cluster)
        })
    }
}

/// Options of a listening socket; a change of these needs a new socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenSocket {
    /// Queue of connections not yet accepted.
    pub backlog: NonZeroU32,
    /// Queue of TCP Fast Open requests, or none to leave Fast Open off.
    pub fast_open: Option<NonZeroU32>,
    /// TCP keepalive of accepted connections.
    pub keepalive: Option<Keepalive>,
    /// How it is known where its connections were going.
    pub original_destination: OriginalDestination,
    /// Permissions of the file of a unix socket.
    pub mode: FileMode,
}

/// TCP keepalive probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes that end the connection.
    pub probes: NonZeroU32,
}

/// How HTTP is read and rewritten on a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    /// What replies to failures say.
    pub error_pages: ErrorPages,
    /// Bytes of a request line (method, target, version).
    pub request_line_bytes_max: u32,
    /// Bytes of a head, request line included.
    pub head_bytes_max: u32,
    /// Fields of a head.
    pub fields_max: u16,
    /// Bytes of a request body, or none for no bound.
    pub body_bytes_max: Option<u64>,
    /// Bytes of a request body that have to be there before the request takes one of the last
    /// connections; 0 for none.
    pub request_buffer_bytes_max: u32,
    /// Bytes a second that a client has to send of a request body; 0 for none.
    pub request_rate_bytes_min: u32,
    /// Bytes a second that a client has to take of a response; 0 for none.
    pub response_rate_bytes_min: u32,
    /// What several slashes in a row are in the path of a request.
    pub slashes: Slashes,
    /// Proxies in front of this one whose `x-forwarded-*`, `forwarded` and `x-request-id` are
    /// believed. 0 means that the peer is the client and that those fields are replaced.
    pub trusted_hops: u8,
    /// Which fields tell the upstream about the client.
    pub forwarded: ForwardedFields,
    /// Names, in lower case, that begin with `x-forwarded-` and go through though no hop is trusted.
    pub forwarded_allowed: Arc<[Box<[u8]>]>,
    /// What becomes of fields with `_` in their names.
    pub underscores: Underscores,
    /// What becomes of `x-forwarded-client-cert`.
    pub forward_client_cert: ForwardClientCert,
    /// What is said there of a client's certificate.
    pub client_cert_details: ClientCertDetails,
    /// Pseudonym for `via`, or none to leave that field alone.
    pub via: Option<Arc<str>>,
    /// Whether a request without `x-request-id` gets one.
    pub request_id: bool,
    /// Whether calls of gRPC-Web go on as calls of gRPC.
    pub grpc_web: bool,
    /// Whether each connection begins with a PROXY protocol header (versions 1 and 2), and where it
    /// has to come from for that; from anywhere, if the list is empty.
    pub proxy_protocol: Option<Arc<[Cidr]>>,
}

/// What one connection of an RPC protocol may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcOptions {
    /// Calls under way at a time.
    pub requests_max: NonZeroU32,
    /// Bytes of a message in front of its body.
    pub head_bytes_max: u32,
    /// Bytes of a body.
    pub body_bytes_max: u64,
}

/// What one connection of HTTP/2 may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Options {
    /// Streams open at a time.
    pub streams_max: NonZeroU32,
    /// Bytes that the peer may send on a stream before they are passed on.
    pub stream_window_bytes_max: u32,
    /// The same for all streams of a connection together.
    pub connection_window_bytes_max: u32,
    /// Bytes of the header compression table, in either direction.
    pub header_table_bytes_max: u32,
    /// Bytes of a frame's payload that the peer may send.
    pub frame_bytes_max: u32,
    /// Work that the peer may cause beyond what is useful.
    pub work_max: NonZeroU32,
    /// Work that each second forgives.
    pub work_per_second: u32,
    /// Time from its head on in which the reset of a request is an early one.
    pub early_reset: Duration,
    /// When a keep-alive PING is sent, if ever.
    pub ping: Option<Ping>,
}

/// When a keep-alive PING is sent, and how long its answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Silence before it is asked.
    pub interval: Duration,
    /// Time for its answer.
    pub timeout: Duration,
}

/// Filters of a chain, at most.
pub const FILTERS_MAX: usize = 64;

/// What is said of a client's certificate, beside its digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCertDetails {
    /// All of it.
    pub cert: bool,
    /// The same with those that lead from it to one that is known.
    pub chain: bool,
    /// Whom it is about.
    pub subject: bool,
    /// Its URIs.
    pub uri: bool,
    /// Its host names.
    pub dns: bool,
}

/// How long a downstream may take. Each has a counter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownstreamTimeouts {
    /// From a head's first byte (or the accepted connection) to its last.
    pub request_head: Duration,
    /// For the first bytes of a connection that may be relayed.
    pub detect: Duration,
    /// For the TLS handshake, from the accepted connection on.
    pub tls_handshake: Duration,
    /// Between requests on a kept connection.
    pub idle: Duration,
    /// Between two pieces of a request body.
    pub request_body: Duration,
    /// For a filter that waits for the answer to a question.
    pub filter: Duration,
    /// Without progress while response bytes wait to be taken by the downstream.
    pub response_write: Duration,
    /// Without a byte either way in a tunnel.
    pub tunnel_idle: Duration,
    /// Age from which on a client is asked to connect again, or none.
    pub connection_age: Option<Duration>,
    /// What such a connection may still take.
    pub connection_age_grace: Duration,
}

/// One entry of `routes`: rules tried in order.
#[derive(Debug, PartialEq, Eq)]
pub struct RouteTable {
    /// Stable name.
    pub id: RouteTableId,
    /// What it was built from.
    pub source: Arc<file::RouteTable>,
    /// Name in the file.
    pub name: Arc<str>,
    /// The hosts it is for.
    pub hosts: Vec<Host>,
    /// Index over the paths of `rules`; yields the first rule that matches.
    pub paths: PathTable,
    /// The rules, in the order of the file.
    pub rules: Vec<Rule>,
    /// What replies to failures say, before those of the listener.
    pub error_pages: ErrorPages,
    /// Regular expressions for values of requests.
    pub values: Arc<Regexes>,
    /// Whether some rule takes a share of requests, so that a die has to be cast.
    pub casts_dice: bool,
    /// The values of `runtime` that its rules ask for, each once.
    pub runtime: Box<[RuntimeUse]>,
    /// Edits of header fields, after those of the rule.
    pub edits: Option<Box<HeaderEdits>>,
    /// Whether it, a rule or a weighted cluster edits header fields.
    pub has_edits: bool,
}

impl RouteTable {
    /// The clusters that its rules name, whether they are there or not, as often as they are named.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = ClusterId> {
        let forwards = self.rules.iter().filter_map(|rule| match &rule.action {
            Action::Forward(forward) => Some(forward.clusters()),
            Action::Respond(_) | Action::Redirect(_) => None,
        });
        forwards.flatten()
    }

    /// The first rule that a request meets, with its place among the rules. `searches` is the worker's.
    #[must_use]
    #[inline]
    pub fn find(&self, asked: &Asked<'_>, searches: &mut Searches) -> Option<(usize, &Rule)> {
        let place = self.paths.find(&self.rules, asked, &self.values, searches)?;
        Some((place, self.rules.get(place)?))
    }

    /// Whether a rule looks at where requests come from.
    pub(crate) fn asks_sources(&self) -> bool {
        let mut criteria = self.rules.iter().flat_map(|rule| &rule.also);
        criteria.any(|criterion| matches!(criterion, Criterion::Sources { .. }))
    }

    /// What identifies the rule at this place (its name, or what it matches), and how many before it that does for as well:
    /// by both another configuration may know it, wherever it stands there.
    #[must_use]
    pub fn name_of(&self, place: usize) -> Option<(String, usize)> {
        let rule = self.rules.get(place)?;
        let before = self.rules.iter().take(place);
        Some((rule.identity(), before.filter(|before| before.is_named_the_same(rule)).count()))
    }

    /// The edits of header fields for what a rule of it takes, in their order: those of the weighted cluster, of the
    /// rule and of the table. `share`: the place of the cluster among the weights.
    #[must_use]
    pub fn edits_for<'r>(
        &'r self,
        rule: &'r Rule,
        share: Option<u32>,
    ) -> [Option<&'r HeaderEdits>; 3] {
        let of_share = match &rule.action {
            Action::Forward(forward) => forward.target.edits_of_share(share),
            Action::Respond(_) | Action::Redirect(_) => None,
        };
        [of_share, rule.edits.as_deref(), self.edits.as_deref()]
    }

    /// The place of the rule with this identity.
    #[must_use]
    pub fn place_named(&self, identity: &str, nth: usize) -> Option<usize> {
        let places = self.rules.iter().enumerate();
        let mut alike = places.filter(|(_, rule)| rule.has_identity(identity));
        alike.nth(nth).map(|(place, _)| place)
    }
}

/// Match ⇒ action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name in the file, if it has one.
    pub name: Option<Arc<str>>,
    /// What paths it matches.
    pub path: PathMatch,
    /// What else it asks for; all of it has to be met.
    pub also: Box<[Criterion]>,
    /// What is done.
    pub action: Action,
    /// Edits of header fields, between those of the weighted cluster and those of the table.
    pub edits: Option<Box<HeaderEdits>>,
}

impl Rule {
    /// Whether a die decides about it, or about what it does.
    #[must_use]
    pub fn casts_dice(&self) -> bool {
        let by_share = |criterion: &Criterion| matches!(criterion, Criterion::Fraction(_));
        let by_weight =
            matches!(&self.action, Action::Forward(forward) if forward.target.casts_dice());
        by_weight || self.also.iter().any(by_share)
    }

    /// Whether it, or one of its weighted clusters, edits header fields.
    #[must_use]
    pub fn has_edits(&self) -> bool {
        let of_shares = |action: &Action| match action {
            Action::Forward(Forward { target: Target::Shares(shares), .. }) => {
                shares.clusters().iter().any(|share| share.edits.is_some())
            }
            Action::Forward(_) | Action::Respond(_) | Action::Redirect(_) => false,
        };
        self.edits.is_some() || of_shares(&self.action)
    }

    /// Whether a request meets everything that it asks for beside a path.
    pub fn meets(&self, asked: &Asked<'_>, values: &Arc<Regexes>, searches: &mut Searches) -> bool {
        self.also.iter().all(|criterion| criterion.is_met(asked, values, searches))
    }

    /// What it matches as text, which is the same for all that match the same.
    #[must_use]
    pub fn condition(&self) -> String {
        let mut text = String::new();
        for criterion in &*self.also {
            match criterion {
                Criterion::Client(ClientMatch::Named(names)) => {
                    for name in &**names {
                        text.extend(["client ", &name.to_string(), "\n"]);
                    }
                }
                criterion => text.extend([&criterion.to_string(), "\n"]),
            }
        }
        if self.path.case == Case::Insensitive {
            text.push_str("any case\n");
        }
        // Last, since a path may hold anything.
        text.extend([self.path.key(), " ", &self.path.text]);
        text
    }

    /// Its name, or what it matches in a few words, for metrics: the path, with `*` for what may follow, and what else it asks for.
    #[must_use]
    pub fn label(&self) -> String {
        if let Some(name) = &self.name {
            return name.to_string();
        }
        let mut label = match self.path.how {
            PathKind::Exact => self.path.text.to_string(),
            PathKind::Prefix => format!("{}*", self.path.text),
            _ => self.path.to_string(),
        };
        for criterion in &*self.also {
            if !matches!(criterion, Criterion::Client(_)) {
                label.extend([", ", &criterion.to_string()]);
            }
        }
        label
    }

    /// Its name in the file, or what it matches where it has none: as text that no other rule has, unless both have no
    /// name and match the same.
    fn identity(&self) -> String {
        // No condition begins so: its last line, which may be its first, begins with a kind of path.
        self.name.as_ref().map_or_else(|| self.condition(), |name| format!("name {name}"))
    }

    fn has_identity(&self, identity: &str) -> bool {
        match &self.name {
            Some(name) => identity.strip_prefix("name ") == Some(&**name),
            None => identity.ends_with(&*self.path.text) && self.condition() == identity,
        }
    }

    fn is_named_the_same(&self, other: &Self) -> bool {
        match (&self.name, &other.name) {
            (None, None) => self.path == other.path && self.also == other.also,
            (name, of_other) => name == of_other,
        }
    }
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Forward to a cluster.
    Forward(Forward),
    /// Answer from here.
    Respond(Respond),
    /// Send the client elsewhere.
    Redirect(Redirect),
}

/// Forward to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The cluster, or how it is found.
    pub target: Target,
    /// What says to which endpoint of it, where that is chosen by a hash.
    pub hashing: Option<Box<Hashing>>,
    /// Which of its endpoints are asked for.
    pub subset: Option<Box<SubsetAsked>>,
    /// How the request is changed; none for no change.
    pub rewrite: Option<Box<Rewrite>>,
    /// Bound on the whole exchange, from the request's head to the response's last byte; none
    /// for no bound.
    pub timeout: Option<Duration>,
    /// When the request is sent again, beyond where that is safe without asking.
    pub retry: Option<Box<RetryPolicy>>,
    /// Clusters that get copies of the request.
    pub mirrors: Box<[Mirror]>,
    /// `Upgrade` tokens that are let through, lower case. `h2c` is never among them.
    pub upgrades: Arc<[Box<str>]>,
}

impl Forward {
    /// The clusters that requests, or copies of them, may go to.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterId> {
        self.target.clusters().chain(self.mirrors.iter().map(|mirror| mirror.cluster))
    }
}

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Respond {
    /// 200 to 599.
    pub status: u16,
    /// Sent as `text/plain`, unless `fields` says otherwise.
    pub body: Arc<[u8]>,
    /// Further fields, valid names and values.
    pub fields: Vec<(Box<str>, Box<str>)>,
}

/// A redirect: what is none stays as the request had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// `http` or `https`.
    pub scheme: Option<Box<str>>,
    /// Host, with port if any.
    pub host: Option<Box<str>>,
    /// What stands in for the path.
    pub path: Option<RedirectPath>,
    /// Whether the query is dropped.
    pub strip_query: bool,
}

/// How a redirect changes the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectPath {
    /// Replaces all of it.
    Whole(Box<str>),
    /// Replaces the matched prefix.
    Prefix(Box<str>),
    /// Changes it as that of a request that goes on.
    Rewritten(PathRewrite),
}

/// A logical service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Stable name.
    pub id: ClusterId,
    /// What it was built from.
    pub source: Arc<file::Cluster>,
    /// Name in the file.
    pub name: Arc<str>,
    /// Its addresses; none if it has an original destination.
    pub endpoints: Vec<Endpoint>,
    /// Where they come from.
    pub endpoints_from: EndpointsFrom,
    /// Stands for every address, if it connects to where downstream connections were going.
    pub original_destination: Option<EndpointId>,
    /// Their places in the order of their ids; empty if they stand in that order.
    pub(crate) places_by_id: Box<[u32]>,
    /// How requests are shared among them.
    pub balancer: Balancer,
    /// What one of them gets that came lately, if that is less.
    pub slow_start: Option<SlowStart>,
    /// What its endpoints are asked at intervals.
    pub checks: Arc<[HealthCheck]>,
    /// Whether it has had a request, where it has checks.
    pub activity: Activity,
    /// When its endpoints are ejected, if they are.
    pub outlier: Option<Outlier>,
    /// All endpoints get requests where fewer than this share of them may be chosen.
    pub panic: Percent,
    /// How many retries may be under way.
    pub retry_budget: RetryBudget,
    /// Who of them may be chosen, by what a request asks for.
    pub view: View,
    /// By what they make subsets, if they do.
    pub selectors: Option<Selectors>,
    /// How they are spoken to: this names `protocol`, `tls` and `proxy_protocol` together.
    pub transport: TransportId,
    /// What its endpoints speak.
    pub protocol: ClusterProtocol,
    /// What one connection of HTTP/2 may hold.
    pub http2: Http2Options,
    /// What one connection of an RPC protocol may hold.
    pub rpc: RpcOptions,
    /// How strictly its responses are read.
    pub response_parsing: ResponseParsing,
    /// Interim responses before the final one.
    pub interim_responses_max: u8,
    /// How TLS is spoken with its endpoints, if it is.
    pub tls: Option<Arc<ClusterTls>>,
    /// How long its peers may take.
    pub timeouts: UpstreamTimeouts,
    /// Connections open at a time, in the process.
    pub connections_max: NonZeroU32,
    /// Exchanges that wait for a connection at a time, in the process.
    pub pending_max: u32,
    /// Whether each connection begins with a PROXY protocol header, and of which version.
    pub proxy_protocol: Option<ProxyProtocolVersion>,
    /// TCP keepalive.
    pub keepalive: Option<Keepalive>,
    /// Whether a request's first bytes may travel with the SYN.
    pub fast_open: bool,
    /// Mark of the packets that go to it.
    pub mark: Option<NonZeroU32>,
}

impl Cluster {
    /// The ids of its endpoints, that of its original destination among them.
    pub fn endpoint_ids(&self) -> impl Iterator<Item = EndpointId> {
        self.endpoints.iter().map(|endpoint| endpoint.id).chain(self.original_destination)
    }

    /// Whether this is one of its endpoints, or stands for its original destinations.
    #[must_use]
    pub fn has_endpoint(&self, id: EndpointId) -> bool {
        self.place_of(id).is_some() || self.original_destination == Some(id)
    }

    /// Whether the health of its endpoints is known.
    #[must_use]
    pub fn has_health(&self) -> bool {
        self.outlier.is_some() || !self.checks.is_empty()
    }

    /// Whether requests may meet endpoints that are ejected or unfit, since too few others are left.
    #[must_use]
    pub fn is_panicking(&self) -> bool {
        self.view.is_panicking(self.panic)
    }

    /// The place of the endpoint with this id among its endpoints, found by bisection.
    #[must_use]
    pub fn place_of(&self, id: EndpointId) -> Option<usize> {
        if self.places_by_id.is_empty() {
            return self.endpoints.binary_search_by_key(&id, |endpoint| endpoint.id).ok();
        }
        let id_at = |place: &u32| self.endpoints.get(*place as usize).map(|endpoint| endpoint.id);
        let found = self.places_by_id.binary_search_by_key(&Some(id), id_at).ok()?;
        self.places_by_id.get(found).map(|place| *place as usize)
    }
}

/// One address of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Stable name.
    pub id: EndpointId,
    /// Where it listens.
    pub address: Address,
    /// Weight as written, or 0 if its source says that it is not healthy. With 0, it gets no new requests.
    pub weight: u16,
    /// What its source says of its health.
    pub reported: ReportedHealth,
    /// Where it is, if its source says so.
    pub locality: Option<Arc<Locality>>,
    /// The host whose address it is, without the dot of the root, if a name led to it. TLS asks for it where
    /// the cluster's names no other.
    pub host: Option<Arc<str>>,
    /// It is chosen only where no endpoint of a lower number may be.
    pub priority: u8,
    /// What is known of its health, if its cluster asks for that.
    pub health: HealthCell,
    /// What it is, for subsets; none for nothing.
    pub(crate) metadata: Option<Arc<Metadata>>,
}

impl Endpoint {
    /// What it is, for subsets.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        static NONE: Metadata = Metadata::new();
        self.metadata.as_deref().unwrap_or(&NONE)
    }
}

/// How long an upstream may take. Each has a counter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// To establish a connection, TLS included.
    pub connect: Duration,
    /// For a connection while all are in use.
    pub pending: Duration,
    /// From the request's last byte to the response's head.
    pub response_head: Duration,
    /// Between two pieces of a response body.
    pub response_body: Duration,
    /// Without progress while request bytes wait to be taken by the upstream.
    pub request_write: Duration,
    /// With a client that stands still, while others wait for the connection; none for no bound.
    pub stall: Option<Duration>,
    /// In the pool.
    pub idle: Duration,
}

/// Version of the PROXY protocol to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProxyProtocolVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// Bounds of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Downstream connections open at a time, in the process.
    pub connections_max: NonZeroU32,
    /// TLS handshakes with downstreams that run at a time, in the process.
    pub handshakes_max: NonZeroU32,
    /// Bytes read from a request body after an early response, before the connection closes.
    pub discard_bytes_max: u64,
    /// Bytes of the copies that mirroring holds, in the process.
    pub mirrored_bytes_max: u64,
    /// How long a connection that is being closed is read from, so that its peer gets our last
    /// bytes and not a reset.
    pub linger_timeout: Duration,
    /// How long its last bytes may take in all to be delivered.
    pub linger_max: Duration,
    /// How long the process accepts, not ready, before it drains.
    pub drain_delay: Duration,
    /// How long running exchanges may take once a drain began.
    pub drain_timeout: Duration,
}

/// What is observed of each exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where lines go, or none for no access log.
    pub output: Option<AccessLogOutput>,
    /// How a line looks.
    pub format: AccessLogFormat,
    /// The fields of a line, or none for all but header fields.
    pub fields: Option<Arc<[AccessLogField]>>,
    /// The header fields that lines need; none of either side where there are none.
    pub captures: Arc<Captures>,
    /// If not empty, one of these holds for an exchange that has a line.
    pub only: Arc<[AccessLogCondition]>,
    /// None of these does.
    pub except: Arc<[AccessLogCondition]>,
    /// Whether stage times are taken (`/slow`, stage histograms, access log).
    pub stage_times: bool,
}

impl AccessLog {
    /// The names of the chosen fields, as a file has them.
    #[must_use]
    pub fn field_names(&self) -> Option<Vec<String>> {
        let named = |prefix: &str, names: &[Box<str>], place: usize| {
            format!("{prefix}{}", names.get(place).map_or("", AsRef::as_ref))
        };
        let name = |field: &AccessLogField| match *field {
            AccessLogField::Named(name) => name.to_owned(),
            AccessLogField::Request(place) => named(REQUEST_HEADERS, &self.captures.request, place),
            AccessLogField::Response(place) => {
                named(RESPONSE_HEADERS, &self.captures.response, place)
            }
        };
        self.fields.as_ref().map(|fields| fields.iter().map(name).collect())
    }
}

/// A field of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogField {
    /// One of [`crate::access_log::FIELDS`].
    Named(&'static str),
    /// A header field of the request, by its place in [`Captures::request`].
    Request(usize),
    /// A header field of the response, by its place in [`Captures::response`].
    Response(usize),
}

/// The header fields that are kept for the access log, by their names in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captures {
    /// Of requests.
    pub request: Box<[Box<str>]>,
    /// Of responses.
    pub response: Box<[Box<str>]>,
    /// Of the names: what was kept by other names is known by another digest.
    pub digest: u32,
}

impl Captures {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.request.is_empty() && self.response.is_empty()
    }
}

/// Which exchanges are meant: all that is given has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogCondition {
    /// Statuses, of which 0 is none; empty for any.
    pub statuses: Box<[RangeInclusive<u16>]>,
    /// Beginnings of the target; empty for any.
    pub prefixes: Box<[Box<str>]>,
    /// Longer than this.
    pub slower_than: Option<Duration>,
    /// One of so many.
    pub one_in: Option<NonZeroU32>,
}

/// Where access log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogOutput {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Appended to this file, which is opened again on SIGUSR1 (after a rotation).
    File(Arc<Path>),
}
