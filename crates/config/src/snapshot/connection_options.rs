//! What connections may hold and how they are kept alive, on listeners and clusters alike.

use std::num::NonZeroU32;
use std::time::Duration;

/// TCP keepalive probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes that end the connection.
    pub probes: NonZeroU32,
}

/// What one connection of an RPC protocol may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcOptions {
    /// Calls under way at a time.
    pub requests_max: NonZeroU32,
    /// Bytes of a message in front of its body.
    pub head_bytes_max: u32,
    /// Bytes of a body.
    pub body_bytes_max: u64,
}

/// What one connection of HTTP/2 may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Options {
    /// Streams open at a time.
    pub streams_max: NonZeroU32,
    /// Bytes that the peer may send on a stream before they are passed on.
    pub stream_window_bytes_max: u32,
    /// The same for all streams of a connection together.
    pub connection_window_bytes_max: u32,
    /// Bytes of the header compression table, in either direction.
    pub header_table_bytes_max: u32,
    /// Bytes of a frame's payload that the peer may send.
    pub frame_bytes_max: u32,
    /// Work that the peer may cause beyond what is useful.
    pub work_max: NonZeroU32,
    /// Work that each second forgives.
    pub work_per_second: u32,
    /// Time from its head on in which the reset of a request is an early one.
    pub early_reset: Duration,
    /// When a keep-alive PING is sent, if ever.
    pub ping: Option<Ping>,
}

/// When a keep-alive PING is sent, and how long its answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Silence before it is asked.
    pub interval: Duration,
    /// Time for its answer.
    pub timeout: Duration,
}
