//! `resolvers`: how host names among endpoints are resolved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Timeout;
use crate::defaults;
use crate::units::Period;

/// How host names among endpoints are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resolvers {
    /// The DNS servers, asked in this order until one answers, each an IP address, with a port if that is not 53; names
    /// are then absolute. At most 8. Absent: those of
    /// `/etc/resolv.conf`, with its search domains and options; the file is read again when it changes.
    /// `/etc/hosts` and `localhost` go first either way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// How long one server may take to answer before the next is asked. Each is asked twice. Absent: 2 s, or
    /// what `/etc/resolv.conf` says where that names the servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// How long a start waits for the first answer to each name before it goes on without, and how long a
    /// reload with new names leaves the former configuration serving. `0s`: for as long as it takes.
    #[schemars(extend("x-maximum" = "24h"))]
    pub initial_fetch_timeout: Period,
    /// How long a request waits for a cluster that nothing has delivered, where a source is asked for clusters once a request
    /// needs them. Then it gets 503 (`no_cluster`). `0s`: it gets that at once, and the source is asked all the same.
    #[schemars(extend("x-maximum" = "24h"))]
    pub on_demand_timeout: Period,
}

impl Default for Resolvers {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            timeout: None,
            initial_fetch_timeout: defaults::INITIAL_FETCH_TIMEOUT,
            on_demand_timeout: defaults::ON_DEMAND_TIMEOUT,
        }
    }
}
