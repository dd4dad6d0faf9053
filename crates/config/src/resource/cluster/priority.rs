//! `priority` of a rule, and what a cluster allows the requests of each: connections, a queue, and limits of their own.
//!
//! Names and meaning are those of Envoy's routing priority and its `circuit_breakers.thresholds`: requests of one priority do
//! not use a connection, or a place in the queue, of the other. It is not the `priority` of an endpoint, which says when that
//! stands in for others.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults;
use crate::resource::route::retry::RetryBudget;

/// Which connections, queue and limits of a cluster a request uses.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Those of most requests.
    #[default]
    Default,
    /// Those of `high_priority`.
    High,
}

impl Priority {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Default, Self::High];

    /// Its name in the file and in metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::High => "high",
        }
    }
}

/// Limits of a cluster for the requests of one priority, in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "max_connections": "write `connections_max`",
    "max_pending_requests": "write `pending_max`",
    "max_requests": "write `requests_max`",
    "max_retries": "write `retry_budget: { share: 0%, at_least: … }`",
}))]
pub struct Bounds {
    /// Open connections for them. Beyond it, they wait.
    pub connections_max: NonZeroU32,
    /// Exchanges that wait for a connection. Beyond it: 503.
    pub pending_max: u32,
    /// Active requests at the endpoints. Beyond it: 503, at once. `adaptive_concurrency` does not apply to them. Absent: only
    /// connections and their streams are limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_max: Option<NonZeroU32>,
    /// Limits the share of retries among those whose rules have `retry`.
    pub retry_budget: RetryBudget,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections_max: defaults::UPSTREAM_CONNECTIONS_MAX,
            pending_max: defaults::PENDING_MAX,
            requests_max: None,
            retry_budget: RetryBudget::default(),
        }
    }
}
