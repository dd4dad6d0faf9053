//! Bounds on a connection.

use serde::{Deserialize, Serialize};

use crate::h1::HeadLimits;
use crate::path::Slashes;

/// Limits of one connection.
///
/// SETTINGS announce windows, streams, frames and the header table when the connection begins; a
/// change of them applies to later connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Heads and trailer sections. SETTINGS_MAX_HEADER_LIST_SIZE is `head_bytes_max`.
    pub head: HeadLimits,
    /// Bytes of the table of either direction, as RFC 7541 counts them.
    pub header_table_bytes_max: u32,
    /// Streams that are open at a time.
    pub streams_max: u32,
    /// Bytes that the peer may send on a stream before they are passed on; at most 2^31 - 1.
    pub stream_window_bytes_max: u32,
    /// The same for all streams of a connection together; at least 65,535, which no setting can
    /// take back, and at most 2^31 - 1.
    ///
    /// With less than `streams_max` times `stream_window_bytes_max`, streams that are not passed
    /// on can hold up the others.
    pub connection_window_bytes_max: u32,
    /// Bytes of a frame's payload; from 2^14 to 2^24 - 1.
    pub frame_bytes_max: u32,
    /// Work that the peer may cause before it has paid for it with what is useful. See
    /// [`Work`](super::Work) for the prices.
    pub work_max: u32,
    /// Work that each second forgives.
    pub work_per_second: u32,
    /// Milliseconds from its head on in which the reset of a request is an early one.
    pub early_reset_millis: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // As for HTTP/1.
            head: HeadLimits {
                request_line_bytes_max: 8 << 10,
                head_bytes_max: 64 << 10,
                fields_max: 100,
                slashes: Slashes::Keep,
            },
            // The size that every peer begins with: no setting has to be sent for it.
            header_table_bytes_max: super::hpack::TABLE_BYTES_DEFAULT,
            // The least that RFC 9113 recommends.
            streams_max: 100,
            // A stream of 5 Mbit/s at 100 ms.
            stream_window_bytes_max: 64 << 10,
            // Every stream may be stuck, and none holds up another.
            connection_window_bytes_max: 100 * (64 << 10),
            // Larger ones would only hold up what comes behind them.
            frame_bytes_max: super::frame::PAYLOAD_LEN_MIN,
            // 500 streams reset at once, by a browser that closes 500 tabs.
            work_max: 50_000,
            // 25 streams reset every second, for ever.
            work_per_second: 2_500,
            // With 100 streams that are held for so long, 2,500 a second: what time forgives.
            early_reset_millis: 40,
        }
    }
}
