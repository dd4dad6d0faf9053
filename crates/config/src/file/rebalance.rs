//! `rebalance`: whether connections move between workers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether connections move from a busy worker to one that is less so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rebalance {
    /// Once one worker is at work more than half of the time, and for a fifth of the time more than another, for
    /// three seconds: connections move, with all that belongs to each, until half of the difference is reached. Nothing
    /// moves twice in ten seconds, or back within five minutes.
    #[default]
    Auto,
    /// A connection stays with the worker that accepted it.
    Off,
}
