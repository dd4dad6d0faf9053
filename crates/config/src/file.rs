//! The configuration file as types: what may be written, and nothing about what it means.
//!
//! The doc comments here are the documentation: they become the descriptions of the JSON Schema
//! and the text of `docs/configuration/reference.md`. So they speak to operators. What the types
//! cannot say (names that must exist, hosts claimed twice) is checked in `build`, where the
//! snapshot is made from these types.

pub mod access_log;
pub mod chain;
pub mod cluster;
pub mod delivered;
pub mod handover;
pub mod http2;
pub mod limits;
pub mod listener;
mod rebalance;
pub mod resolvers;
pub mod route;
pub mod rpc;
mod scalar;
pub mod tls;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access_log::AccessLog;
pub use chain::ListenerChain;
pub use cluster::Cluster;
pub use handover::{FdStore, Handover};
pub use http2::Http2;
pub use limits::Limits;
pub use listener::Listener;
pub use rebalance::Rebalance;
pub use resolvers::Resolvers;
pub use route::RouteTable;
pub use rpc::Rpc;
pub use scalar::{OrNone, Timeout};
pub use tls::{ClusterTls, ListenerTls};

use crate::address::Address;
use crate::file_mode::FileMode;
use crate::matching::Percent;
use crate::metrics::Metrics;

/// The whole configuration of a Strait process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["listeners"]))]
pub struct File {
    /// Further files: paths, or patterns such as `conf.d/*.yaml`, relative to the folder of the first file. `*` and `?` stand in the last
    /// part of a path only; the files that fit are taken in the order of their names, and there may be none. An included file has
    /// sections as this one has, and may include others: its `listeners`, `routes` and `clusters` follow those before, every other
    /// section stands in one file alone. Paths in it are relative to the folder of the first file as well. All of them, and the
    /// folders of patterns, are watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// The admin interface. Absent: none. Takes a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<Admin>,
    /// The threads that carry traffic. Takes a restart.
    #[serde(default)]
    pub workers: Workers,
    /// Whether connections move between workers, so that these are about equally busy. It costs nothing while they are;
    /// `strait_worker_busy_seconds_total` says how busy each is.
    #[serde(default)]
    pub rebalance: Rebalance,
    /// Where this process is: a region, a zone in it, and a part of that, such as `eu/a`. Clusters with `zone_aware` ask for it. Absent:
    /// it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<String>,
    /// How another process takes this one's place without a client noticing. Takes a restart, or a handover.
    #[serde(default)]
    pub handover: Handover,
    /// Values by name, in percent, that `fraction` of rules may ask for (`runtime`). The admin interface puts others over them
    /// while the process runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-public" = true))]
    pub runtime: BTreeMap<String, Percent>,
    /// Where connections are taken.
    #[serde(default)]
    pub listeners: Vec<Listener>,
    /// Route tables: which request goes where. Listeners name them.
    #[serde(default)]
    pub routes: Vec<Arc<RouteTable>>,
    /// The services that requests are forwarded to. Routes name them.
    #[serde(default)]
    pub clusters: Vec<Arc<Cluster>>,
    /// How host names among endpoints are resolved. Absent: as `/etc/resolv.conf` and `/etc/hosts` say.
    #[serde(default)]
    pub resolvers: Resolvers,
    /// A folder, such as `/var/lib/strait`, for the last good answers of sources other than files: addresses from DNS, and
    /// resources that other sources delivered, but for private keys. A start whose sources are silent serves them.
    /// Each process has a folder of its own, owned by its user with mode 0700, which is made if it is missing. Absent: none
    /// are kept. Takes a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2))]
    pub state: Option<String>,
    /// Bounds of the process.
    #[serde(default)]
    pub limits: Limits,
    /// What is reported beside the metrics that are always there.
    #[serde(default)]
    pub metrics: Metrics,
    /// What is written about each exchange. Absent: no access log, and stage times are taken.
    #[serde(default)]
    pub access_log: AccessLog,
}

/// The admin interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Where it listens. It has no authentication: keep it on loopback or on a unix socket. Absent:
    /// nowhere, which leaves `metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// Permissions of the files of its unix sockets, as chmod(1) has them. Absent: what the umask of the process leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    /// Names under which requests may ask for it, in addition to `localhost` and IP addresses. A request with
    /// another `Host` gets 421, so that a page in a browser cannot reach it by a DNS name of its own (DNS
    /// rebinding). Requests on a unix socket may have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Where `/metrics`, `/ready` and `/healthz` are served, and nothing else, whatever the `Host`: for
    /// scrapers and probes, which may be elsewhere. Absent: only on `address`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Address>,
}

/// `auto`, a number, or a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Workers {
    /// How many, not pinned.
    Count(WorkerCount),
    /// How many, and whether pinned.
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

/// How many worker threads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WorkerCount {
    /// One for each core that the process may use, by its affinity and the CPU quota of its cgroups.
    Auto(Auto),
    /// That many.
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
    /// One for each core that the process may use, by its affinity and the CPU quota of its cgroups.
    Auto,
}

/// How many worker threads there are and where they run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerOptions {
    /// How many worker threads there are: `auto` is one for each core that the process may use, by its affinity and
    /// the CPU quota of its cgroups (v1 or v2, rounded up).
    pub count: WorkerCount,
    /// Whether each worker stays on one core. Helps on machines that do nothing else.
    pub pin: bool,
}
