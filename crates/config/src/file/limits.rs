//! `limits`: bounds of the process.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scalar::{OrNone, Timeout};
use crate::defaults;
use crate::units::{Period, Size};

/// Limits of the process. Limits on counts are split evenly among the workers, each of which has at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Open downstream connections. Beyond it, new ones are closed at once. The limit on open files may reduce it; a
    /// warning at the start says so.
    pub connections_max: NonZeroU32,
    /// TLS handshakes with clients at a time, each counted from the client's first byte. Beyond it, the listener with
    /// the most handshakes closes the one that has made no progress for the longest time.
    pub handshakes_max: NonZeroU32,
    /// Bytes of a request body that are read and discarded after an early response, before the connection closes.
    #[schemars(extend("x-maximum" = "1GiB"))]
    pub discard_max: Size,
    /// Bytes of all copies that `mirror` of rules makes, from the first byte of a copy until its cluster has responded.
    /// Beyond it, copies are dropped and counted.
    pub mirrored_max: Size,
    /// Resident memory of the process. From 80 % of it on, new HTTP/2 connections announce stream windows of 16 KiB; from
    /// 90 % on, new requests get 503 (`overloaded`) and idle connections close; from 95 % on, new connections are refused,
    /// and those close that hold the most in buffers. Each of these ends 5 % below. The admin interface goes on to
    /// respond. `none`: no limit. Absent: the memory limit of the control groups of the process, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-minimum" = "1MiB"))]
    pub memory_max: Option<OrNone<Size>>,
    /// How long Strait still reads from a connection that it closes, so that the peer receives the last bytes and not a
    /// reset. It starts again whenever the peer sends something, up to the listener's `timeouts.response_write`.
    #[schemars(extend("x-maximum" = "1m"))]
    pub linger_timeout: Period,
    /// Total time for such a connection to deliver data that the kernel still has for the client, while the client
    /// reads some of it within the listener's `timeouts.response_write`. Data that is lost then is counted as
    /// `response_undelivered`.
    #[schemars(extend("x-maximum" = "1h"))]
    pub linger_max: Period,
    /// How long the process continues to accept connections after SIGTERM or `POST /drain`, with `/ready` returning
    /// 503, before the drain begins, so that load balancers can notice. A second signal ends the delay.
    #[schemars(extend("x-maximum" = "1h"))]
    pub drain_delay: Period,
    /// How long active exchanges may continue after a drain began (SIGTERM, or a removed listener).
    pub drain_timeout: Timeout,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: defaults::DOWNSTREAM_CONNECTIONS_MAX,
            handshakes_max: defaults::HANDSHAKES_MAX,
            discard_max: defaults::DISCARD_MAX,
            mirrored_max: defaults::MIRRORED_MAX,
            memory_max: None,
            linger_timeout: defaults::LINGER_TIMEOUT,
            linger_max: defaults::LINGER_MAX,
            drain_delay: defaults::DRAIN_DELAY,
            drain_timeout: Timeout(defaults::DRAIN_TIMEOUT),
        }
    }
}
