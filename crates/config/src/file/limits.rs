//! `limits`: bounds of the process.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Timeout;
use crate::defaults;
use crate::units::{Period, Size};

/// Bounds of the process. Those that are counted are split evenly among the workers, each of which
/// has one at least.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Downstream connections open at a time. Beyond it, new ones are closed at once. It is at most what the limit
    /// on open files has room for, which a warning at the start says.
    pub connections_max: NonZeroU32,
    /// TLS handshakes with downstreams that run at a time, each from its client's first byte on. Beyond
    /// it, the listener with the most of them closes the one that made no progress for longest.
    pub handshakes_max: NonZeroU32,
    /// Bytes read from a request body after an early response, before the connection closes.
    #[schemars(extend("x-maximum" = "1GiB"))]
    pub discard_max: Size,
    /// Bytes of all copies that `mirror` of rules makes, from the first byte that is kept of one until its cluster has
    /// answered. Beyond it, copies are dropped and counted.
    pub mirrored_max: Size,
    /// How long a connection that is being closed is still read from, so that its peer gets the
    /// last bytes and not a reset; again and again while the peer speaks, up to the listener's
    /// `timeouts.response_write`.
    #[schemars(extend("x-maximum" = "1m"))]
    pub linger_timeout: Period,
    /// How long such a connection may take in all to deliver what the kernel has for its client, as long
    /// as the client takes some of it in the listener's `timeouts.response_write`. What is lost then is
    /// counted as `response_undelivered`.
    #[schemars(extend("x-maximum" = "1h"))]
    pub linger_max: Period,
    /// How long the process goes on accepting after SIGTERM or `POST /drain`, while `/ready` says 503, before
    /// the drain begins: load balancers need that long to notice. A second signal ends it.
    #[schemars(extend("x-maximum" = "1h"))]
    pub drain_delay: Period,
    /// How long running exchanges may take once a drain began (SIGTERM, or a removed listener).
    pub drain_timeout: Timeout,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: defaults::DOWNSTREAM_CONNECTIONS_MAX,
            handshakes_max: defaults::HANDSHAKES_MAX,
            discard_max: defaults::DISCARD_MAX,
            mirrored_max: defaults::MIRRORED_MAX,
            linger_timeout: defaults::LINGER_TIMEOUT,
            linger_max: defaults::LINGER_MAX,
            drain_delay: defaults::DRAIN_DELAY,
            drain_timeout: Timeout(defaults::DRAIN_TIMEOUT),
        }
    }
}
