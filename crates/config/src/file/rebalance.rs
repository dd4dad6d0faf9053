//! `rebalance`: whether connections move between workers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether connections move from a busy worker to a less busy one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rebalance {
    /// If a worker is busy for more than half of the time, and by a fifth of the time more than the least busy worker,
    /// for three seconds, clients' connections move until half of the difference is reached, each with its upstream connections
    /// and without other clients. A round follows after ten seconds at the earliest, and no connection moves back within
    /// five minutes.
    #[default]
    Auto,
    /// A connection stays with the worker that accepted it.
    Off,
}
