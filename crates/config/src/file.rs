//! The configuration file as types: what may be written, and nothing about what it means.
//!
//! The doc comments here are the documentation: they become the descriptions of the JSON Schema
//! and the text of `docs/configuration/reference.md`. So they speak to operators. What the types
//! cannot say (names that must exist, hosts claimed twice) is checked in `sections`, where the
//! snapshot is made from these types.
//!
//! The types of a kind of resource are in `resource`, and named here as well.

pub mod handover;
pub mod http2;
pub mod keepalive;
pub mod limits;
pub mod one_or_several;
mod rebalance;
pub mod resolvers;
pub mod rpc;
pub(crate) mod scalar;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::resource::access_log::file as access_log;
pub use crate::resource::assignment::file as assignment;
pub use crate::resource::cluster::file as cluster;
pub use crate::resource::listener::{chain, file as listener};
pub use crate::resource::route::file as route;
pub use crate::resource::secret::file as secret;
pub use crate::resource::tls::file as tls;
pub use access_log::AccessLog;
pub use chain::ListenerChain;
pub use cluster::Cluster;
pub use handover::{FdStore, Handover};
pub use http2::Http2;
pub use keepalive::Keepalive;
pub use limits::Limits;
pub use listener::Listener;
pub use one_or_several::OneOrSeveral;
pub use rebalance::Rebalance;
pub use resolvers::Resolvers;
pub use route::RouteTable;
pub use rpc::Rpc;
pub use scalar::{OrNone, Timeout};
pub use tls::{ClusterTls, ListenerTls};

use crate::address::Address;
use crate::file_mode::FileMode;
use crate::metrics::Metrics;
use crate::percent::Percent;

/// The whole configuration of a Strait process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["listeners"]))]
#[schemars(extend("x-meant" = {
    "backends": "write `clusters`",
    "frontends": "write `listeners`",
    "http": "write `listeners`, `routes` and `clusters`",
    "overload_manager": "write `limits`",
    "servers": "write `listeners`, or `clusters` for what requests are forwarded to",
    "services": "write `clusters`",
    "static_resources": "write its `listeners` and `clusters` here",
    "upstreams": "write `clusters`",
    "virtual_hosts": "write `routes`",
}))]
pub struct File {
    /// Further files: paths, or patterns such as `conf.d/*.yaml`, relative to the folder of the first file. `*` and `?`
    /// are wildcards in the last component of a path only. Matching files are read in alphabetical order; it is no
    /// error if none matches. An included file has the same sections as this one and may include others. Its
    /// `listeners`, `routes` and `clusters` are appended to those read before; every other section may appear in one
    /// file only. Paths in it are also relative to the folder of the first file. Strait watches all files, and the
    /// folders of patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// The admin interface. Absent: none. A change requires a restart or an upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<Admin>,
    /// The threads that carry traffic. A change requires a restart or an upgrade.
    #[serde(default)]
    pub workers: Workers,
    /// Whether connections move between workers to balance their load. While the load is balanced, this costs nothing.
    /// `strait_worker_busy_seconds_total` shows how busy each worker is.
    #[serde(default)]
    pub rebalance: Rebalance,
    /// The location of this process: a region, a zone in it, and a part of that zone, such as `eu/a`. Clusters with
    /// `zone_aware` use it. Absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<String>,
    /// How another process can replace this one without clients noticing. A change requires a restart or an upgrade.
    #[serde(default)]
    pub handover: Handover,
    /// Values in percent, by name, that `fraction` of rules may use (`runtime`). The admin interface can override them
    /// while the process runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-public" = true))]
    pub runtime: BTreeMap<String, Percent>,
    /// Addresses where Strait accepts connections.
    #[serde(default)]
    pub listeners: Vec<Listener>,
    /// Route tables: which request goes where. Listeners refer to them by name.
    #[serde(default)]
    pub routes: Vec<Arc<RouteTable>>,
    /// The upstreams that requests are forwarded to. Routes refer to them by name.
    #[serde(default)]
    pub clusters: Vec<Arc<Cluster>>,
    /// How host names of endpoints are resolved. Absent: as `/etc/resolv.conf` and `/etc/hosts` say.
    #[serde(default)]
    pub resolvers: Resolvers,
    /// A folder, such as `/var/lib/strait`, for the last valid answers of sources other than files: addresses from DNS,
    /// and resources that other sources delivered, except private keys. A start uses them if its sources do not
    /// respond. Each process needs its own folder, owned by its user with mode 0700; Strait creates the folder if it is
    /// missing. Absent: answers are not stored. A change requires a restart or an upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Limits of the process.
    #[serde(default)]
    pub limits: Limits,
    /// Optional metrics.
    #[serde(default)]
    pub metrics: Metrics,
    /// What is logged about each exchange. Absent: there is no access log; stage times are still measured.
    #[serde(default)]
    pub access_log: AccessLog,
}

/// The admin interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Address of the admin interface. It has no authentication: use a loopback address or a unix socket. Absent: only
    /// `metrics` is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// Permissions of its unix sockets, as for chmod(1). Absent: as the umask of the process says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    /// Names that the `Host` of a request may have, in addition to `localhost` and IP addresses. Other requests get
    /// 421, so that a page in a browser cannot reach the interface through its own DNS name (DNS rebinding). Requests
    /// on a unix socket may have any `Host`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Address that serves only `/metrics`, `/ready` and `/healthz`, with any `Host`: for scrapers and probes on other
    /// machines. Absent: only `address` serves them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Address>,
}

/// A folder, or a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum State {
    /// The folder; private keys are not stored.
    Folder(#[schemars(length(min = 2))] String),
    /// The folder, and whether private keys are stored.
    Options(StateOptions),
}

impl State {
    /// The map that says the same.
    pub(crate) fn options(&self) -> StateOptions {
        match self {
            Self::Folder(folder) => StateOptions { folder: folder.clone(), keys: false },
            Self::Options(options) => options.clone(),
        }
    }
}

/// What is stored of the last valid answers of sources, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateOptions {
    /// The folder.
    #[schemars(length(min = 2))]
    pub folder: String,
    /// Whether secrets with private keys are stored, unencrypted. Without them, a start without its sources does not
    /// serve listeners and clusters that use such secrets. Users who can read the folder, or a backup of it, have the keys.
    #[serde(default)]
    #[schemars(extend("x-public" = true))]
    pub keys: bool,
}

/// `auto`, a number, or a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Workers {
    /// Number of workers, not pinned to cores.
    Count(WorkerCount),
    /// Number of workers, and whether they are pinned to cores.
    Options(WorkerOptions),
}

impl Workers {
    /// The map that says the same.
    pub(crate) fn options(&self) -> WorkerOptions {
        match self {
            Self::Count(count) => WorkerOptions { count: *count, pin: false },
            Self::Options(options) => options.clone(),
        }
    }
}

impl Default for Workers {
    fn default() -> Self {
        Self::Count(WorkerCount::default())
    }
}

/// The number of worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WorkerCount {
    /// One for each core that the affinity of the process and the CPU quota of its cgroups allow.
    Auto(Auto),
    /// This number.
    Exactly(#[schemars(range(min = 1, max = 1024))] NonZeroU16),
}

impl Default for WorkerCount {
    fn default() -> Self {
        Self::Auto(Auto::Auto)
    }
}

/// The word `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Auto {
    /// One for each core that the affinity of the process and the CPU quota of its cgroups allow.
    Auto,
}

/// The number of worker threads, and where they run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerOptions {
    /// Number of worker threads. `auto` is one for each core that the affinity of the process and the CPU quota of its
    /// cgroups (v1 or v2, rounded up) allow.
    pub count: WorkerCount,
    /// Whether each worker runs on one fixed core. Useful on machines that run nothing else.
    pub pin: bool,
}
