//! `http2`: what one connection of HTTP/2 may hold, on listeners and clusters alike.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults;
use crate::units::{Period, Size};

/// What one connection of HTTP/2 may hold, which SETTINGS tell its peer. A change concerns
/// connections that are opened after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http2 {
    /// Streams open at a time on one connection. On a cluster, the upstream's own bound counts too.
    #[schemars(range(max = 65_535))]
    pub streams_max: NonZeroU32,
    /// Bytes of a body that the peer may send on a stream before they are passed on
    /// (`SETTINGS_INITIAL_WINDOW_SIZE`). At most this much of each stream waits in memory because
    /// the other side is slow, beside what waits in its own queue.
    #[schemars(extend("x-minimum" = "1KiB", "x-maximum" = "1GiB"))]
    pub stream_window_max: Size,
    /// The same for all streams of a connection together. With less than `streams_max` times
    /// `stream_window_max`, streams that stand still can hold up the others.
    #[schemars(extend("x-minimum" = "64KiB", "x-maximum" = "1GiB"))]
    pub connection_window_max: Size,
    /// Bytes of the header compression table, in either direction (`SETTINGS_HEADER_TABLE_SIZE`).
    #[schemars(extend("x-minimum" = "0B", "x-maximum" = "64KiB"))]
    pub header_table_max: Size,
    /// Bytes of a frame that the peer may send (`SETTINGS_MAX_FRAME_SIZE`).
    #[schemars(extend("x-minimum" = "16KiB", "x-maximum" = "1MiB"))]
    pub frame_max: Size,
    /// Work without use that the peer may cause before its connection is ended with
    /// `ENHANCE_YOUR_CALM`. Prices: an early reset, a malformed request or SETTINGS 100; CONTINUATION or
    /// DATA without data 50; PRIORITY or a refused stream 20; PING or WINDOW_UPDATE 5; any other reset
    /// 1. Data pays for PING and WINDOW_UPDATE, and each request that is answered for one early reset.
    #[schemars(range(min = 1_000))]
    pub work_max: NonZeroU32,
    /// Work that each second forgives.
    pub work_per_second: u32,
    /// A client's reset is early if it comes within this time from its request's head on, before the
    /// response has ended. Later, it cost the client a stream for as long as it cost Strait. `0s`: none
    /// is early. On a cluster it means nothing: upstreams may refuse what they like.
    #[schemars(extend("x-minimum" = "0s", "x-maximum" = "1m"))]
    pub early_reset: Period,
    /// Sends keep-alive PINGs while the peer is silent and streams are open. Absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping: Option<Ping>,
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            streams_max: defaults::STREAMS_MAX,
            stream_window_max: defaults::STREAM_WINDOW_MAX,
            connection_window_max: defaults::CONNECTION_WINDOW_MAX,
            header_table_max: defaults::HEADER_TABLE_MAX,
            frame_max: defaults::FRAME_MAX,
            work_max: defaults::WORK_MAX,
            work_per_second: defaults::WORK_PER_SECOND,
            early_reset: defaults::EARLY_RESET,
            // Many gRPC servers hang up on those who ask more often than every five minutes.
            ping: None,
        }
    }
}

/// When a keep-alive PING is sent, and how long its answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ping {
    /// Silence before it is asked.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1h"))]
    pub interval: Period,
    /// Time for its answer. Beyond it, the connection is closed.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub timeout: Period,
}

impl Default for Ping {
    fn default() -> Self {
        Self { interval: defaults::PING_INTERVAL, timeout: defaults::PING_TIMEOUT }
    }
}
