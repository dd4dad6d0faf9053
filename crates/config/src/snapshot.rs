//! What workers use: one complete, valid, immutable configuration.
//!
//! Nothing here is optional in the sense of "use the default": defaults were filled in when the
//! text was read. Nothing names another thing by string: references are ids that stay the same
//! from one snapshot to the next for as long as the named thing exists, so that a worker can keep
//! what changes at run time (pools, cursors, health) in tables of its own under those ids.
//!
//! The types of a kind of resource are in `resource`, and named here as well.
//!
//! `F` is the built filter. The binary chooses it; this crate only carries it.

pub(crate) mod connection_options;
pub(crate) mod id;
mod listeners;
mod slots;

use std::num::{NonZeroU16, NonZeroU32};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::file::{self, FdStore, Rebalance};
use crate::file_mode::FileMode;
use crate::memory::MemoryMax;
use crate::metrics::Metrics;
use crate::origins::{Origins, ResourceName};
use crate::protocols::Protocols;
use crate::resource::assignment::locality::LocalityKey;
use crate::resource::runtime::Runtime;
use crate::text::shape::Shape;

pub use crate::address::Address;
pub use crate::resource::assignment::dns::{DnsAnswer, DnsFamily, DnsMode, DnsName, Resolved};
// Words of the file that have no invalid values.
pub use crate::resource::access_log::file::Format as AccessLogFormat;
pub use crate::resource::cluster::file::{Protocol as ClusterProtocol, ProxyProtocol};
pub use crate::resource::listener::chain::SourceType;
pub use crate::resource::listener::file::{
    ForwardClientCert, Forwarded as ForwardedFields, HeadersWithUnderscores as Underscores,
    OriginalDestination, Protocol as ListenerProtocol,
};
pub use crate::resource::tls::file::{Mode as TlsMode, Signing};

pub use wire::detect::Detected;

pub use self::connection_options::{Http2Options, Keepalive, Ping, RpcOptions};
pub use self::id::{ChainId, ClusterId, EndpointId, Id, ListenerId, RouteTableId, TransportId};
pub use self::listeners::Listeners;
pub use self::slots::Slots;
pub use crate::resource::access_log::{
    AccessLog, AccessLogCondition, AccessLogField, AccessLogOutput, Captures,
};
pub use crate::resource::assignment::endpoints_from::{
    EndpointsFrom, LeftOut, ListedEndpoint, Resolvers, Traits,
};
pub(crate) use crate::resource::cluster::Description;
pub use crate::resource::cluster::{Cluster, Endpoint, UpstreamTimeouts};
pub(crate) use crate::resource::listener::handlers::BuiltHandler;
pub use crate::resource::listener::handlers::{Decision, HANDLERS_MAX, HandledRule, Handlers};
pub use crate::resource::listener::{
    ChainMatch, ClientCertDetails, DownstreamTimeouts, FILTERS_MAX, HttpOptions, ListenSocket,
    Listener, ListenerBounds, ListenerChain, Relay,
};
pub use crate::resource::route::RouteTable;
pub use crate::resource::route::rule::{Action, Forward, Redirect, RedirectPath, Respond, Rule};
pub use crate::resource::route::rule_slots::RuleSlot;
pub(crate) use crate::resource::route::rule_slots::RuleSlots;
pub use crate::resource::tls::{
    CertificateSource, ClientTrust, ClusterTls, ClusterTlsSource, ListenerTls, ListenerTlsSource,
    RootsSource, TicketKeySource,
};

/// One complete valid configuration.
#[derive(Debug)]
pub struct Snapshot<F> {
    /// Counts the snapshots of this process, from 1.
    pub version: u64,
    /// What was taken up when the process started, and stays until it ends.
    pub startup: StartupOptions,
    /// The listeners, in the order of the file.
    pub listeners: Listeners<F>,
    /// What bounds connections of any listener.
    pub listener_bounds: ListenerBounds,
    /// What `routes` holds, by [`RouteTableId`].
    pub route_tables: Slots<Arc<RouteTable>>,
    /// The clusters, by [`ClusterId`].
    pub clusters: Slots<Arc<Cluster>>,
    /// The names of clusters that rules or listeners lead to, that are not there, and that a source is asked for once a request
    /// needs them: by the ids that they will have. Never used where no source is asked on demand.
    pub clusters_on_demand: Slots<Arc<str>>,
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
    /// Where this process is, if that is known.
    pub locality: Option<LocalityKey>,
    /// What the sections were built from, all but those that are lists.
    pub source: Arc<file::File>,
    /// What may stand in a file, which says what of `source` is secret.
    pub(crate) shape: Arc<Shape>,
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
        self.listeners.find(id)
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
    pub state: Option<StateFolder>,
}

/// Where the last good answers of sources are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFolder {
    /// The folder.
    pub path: Arc<Path>,
    /// Whether secrets with private keys are among them.
    pub keeps_keys: bool,
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
    /// What the service manager keeps for the next process.
    pub fd_store: FdStore,
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
    /// Listeners that stay, with a chain or none for connections without one, whose connections have to be or to prove something else
    /// from now on: what they speak, TLS, a certificate, where they come from. Open ones drain on what they met.
    pub admissions_changed: Vec<(ListenerId, Option<ChainId>)>,
    /// Chains of listeners that stay which are new, or match other connections: open ones that would meet one of them now drain.
    pub matches_added: Vec<(ListenerId, ChainId)>,
    /// Clusters that are new.
    pub clusters_added: Vec<ClusterId>,
    /// Clusters that are gone: their idle connections close.
    pub clusters_removed: Vec<ClusterId>,
    /// Clusters whose content changed: limits and schedules are read again.
    pub clusters_changed: Vec<ClusterId>,
    /// Endpoints that stay and are spoken to in another way: the idle connections to them close.
    pub transports_changed: Vec<(ClusterId, EndpointId)>,
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
    /// Resident memory of the process.
    pub memory_max: MemoryMax,
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
