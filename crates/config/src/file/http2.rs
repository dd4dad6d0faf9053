//! `http2`: what one connection of HTTP/2 may hold, on listeners and clusters alike.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults;
use crate::units::{Period, Size};

/// Limits of one HTTP/2 connection, some of which SETTINGS announce to the peer. A change applies to new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http2 {
    /// Open streams on one connection. For a cluster, the upstream's own limit applies, too.
    #[schemars(range(max = 65_535))]
    pub streams_max: NonZeroU32,
    /// Bytes that the peer may send on a stream before they have been forwarded (`SETTINGS_INITIAL_WINDOW_SIZE`). At
    /// most this much of each stream waits in memory because the other side is slow, in addition to the data in its own
    /// queue.
    #[schemars(extend("x-minimum" = "1KiB", "x-maximum" = "1GiB"))]
    pub stream_window_max: Size,
    /// The same for all streams of a connection together. If it is less than `streams_max` times `stream_window_max`,
    /// stalled streams can block the others.
    #[schemars(extend("x-minimum" = "64KiB", "x-maximum" = "1GiB"))]
    pub connection_window_max: Size,
    /// Bytes of the header compression table, for each direction (`SETTINGS_HEADER_TABLE_SIZE`).
    #[schemars(extend("x-minimum" = "0B", "x-maximum" = "64KiB"))]
    pub header_table_max: Size,
    /// Bytes of a frame that the peer may send (`SETTINGS_MAX_FRAME_SIZE`).
    #[schemars(extend("x-minimum" = "16KiB", "x-maximum" = "1MiB"))]
    pub frame_max: Size,
    /// Points for useless work that the peer may cause before its connection is ended with `ENHANCE_YOUR_CALM`. Costs:
    /// an early reset, a malformed request or SETTINGS 100; CONTINUATION or DATA without data 50; PRIORITY or a refused
    /// stream 20; PING or WINDOW_UPDATE 5, as each open stream whose window SETTINGS change; any other reset 1. Data
    /// pays for PING and WINDOW_UPDATE, and each answered request pays for one early reset.
    #[schemars(range(min = 1_000))]
    pub work_max: NonZeroU32,
    /// Points that come back each second.
    pub work_per_second: u32,
    /// A client's reset is early if it comes within this time of the head of its request, and before the response has
    /// ended. A later reset occupied one of the client's streams for as long as it occupied Strait. `0s`: no reset is
    /// early. Without effect on clusters, because upstreams may refuse any request.
    #[schemars(extend("x-minimum" = "0s", "x-maximum" = "1m"))]
    pub early_reset: Period,
    /// Sends keep-alive PINGs while the peer is silent and streams are open. Absent: no PINGs.
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

/// When a keep-alive PING is sent, and how long the acknowledgement may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ping {
    /// Silence before a PING is sent.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1h"))]
    pub interval: Period,
    /// Time for the acknowledgement. Beyond it, the connection is closed.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub timeout: Period,
}

impl Default for Ping {
    fn default() -> Self {
        Self { interval: defaults::PING_INTERVAL, timeout: defaults::PING_TIMEOUT }
    }
}
