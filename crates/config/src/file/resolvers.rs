//! `resolvers`: how host names among endpoints are resolved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scalar::Timeout;
use crate::defaults;
use crate::units::Period;

/// How host names of endpoints are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resolvers {
    /// The DNS servers: at most 8 IP addresses, each with a port if that is not 53. Strait asks them in this order
    /// until one responds, those last that did not respond before, and treats names as absolute. Absent: the servers of
    /// `/etc/resolv.conf`, with its search domains and options; Strait reads that file again when it changes. `/etc/hosts`
    /// and `localhost` have precedence in both cases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// How long Strait waits for a server before it asks the next one. Each is asked twice. Absent: 2 s, or as
    /// `/etc/resolv.conf` says if its servers are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// How long a start waits for the first answer for each name before it continues without it, and how long a reload
    /// with new names keeps the previous configuration in use. Also how long resources of other sources wait for those that
    /// they refer to. `0s`: without limit.
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
