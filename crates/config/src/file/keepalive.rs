//! `keepalive`: TCP keep-alive probes, on listeners and clusters alike.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults;
use crate::units::Period;

/// TCP keep-alive probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keepalive {
    /// Idle time before the first probe, in whole seconds.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "32767s"))]
    pub idle: Period,
    /// Time between probes, in whole seconds.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "32767s"))]
    pub interval: Period,
    /// Number of unanswered probes that end the connection.
    #[schemars(range(max = 127))]
    pub probes: NonZeroU32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            idle: defaults::KEEPALIVE_IDLE,
            interval: defaults::KEEPALIVE_INTERVAL,
            probes: defaults::KEEPALIVE_PROBES,
        }
    }
}
