//! `rpc`: what one connection of an RPC protocol may hold, on listeners and clusters alike.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults;
use crate::units::Size;

/// What one connection of an RPC protocol may hold. A change concerns connections that are opened after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rpc {
    /// Calls under way at a time on one connection. On a listener, further ones are answered with an error; on a
    /// cluster, they go over another connection.
    #[schemars(range(max = 65_535))]
    pub requests_max: NonZeroU32,
    /// Bytes of a message in front of its body. A longer one ends its connection.
    #[schemars(extend("x-minimum" = "64B", "x-maximum" = "60KiB"))]
    pub head_max: Size,
    /// Bytes of a body, which waits in memory until all of it is here. A call with a longer one is answered with an
    /// error, and a longer response becomes one.
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
