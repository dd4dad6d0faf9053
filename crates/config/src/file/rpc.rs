//! `rpc`: what one connection of an RPC protocol may hold, on listeners and clusters alike.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults;
use crate::units::Size;

/// Limits of one connection of an RPC protocol. A change applies to new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rpc {
    /// Active calls on one connection. On a listener, further calls get an error; on a cluster, they use another
    /// connection.
    #[schemars(range(max = 65_535))]
    pub requests_max: NonZeroU32,
    /// Bytes of a message before its body. A longer head ends its connection.
    #[schemars(extend("x-minimum" = "64B", "x-maximum" = "60KiB"))]
    pub head_max: Size,
    /// Bytes of a body, which waits in memory until it is complete. A call with a longer body gets an error, and so
    /// does a call with a longer response.
    #[schemars(extend("x-minimum" = "0B", "x-maximum" = "1GiB"))]
    pub body_max: Size,
}

impl Default for Rpc {
    fn default() -> Self {
        Self {
            requests_max: defaults::RPC_REQUESTS_MAX,
            head_max: defaults::RPC_HEAD_MAX,
            body_max: defaults::RPC_BODY_MAX,
        }
    }
}
