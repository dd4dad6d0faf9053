//! Downstream connections.

use super::{ExchangeFinished, LabelId, Stages};
use crate::cause::Cause;

/// A downstream connection was accepted.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOpened {
    /// The listener.
    pub listener: LabelId,
}

/// What left a worker and goes on elsewhere, or came from elsewhere: another worker or process.
#[derive(Clone, Copy, Debug)]
pub enum Relocated {
    /// A downstream connection.
    Downstream {
        /// Its listener.
        listener: LabelId,
    },
    /// An exchange of a client.
    Exchange {
        /// Its listener.
        listener: LabelId,
        /// Whether it is a tunnel by now.
        is_tunnel: bool,
    },
    /// An upstream connection that is established.
    Upstream {
        /// Its cluster.
        cluster: LabelId,
    },
}

/// The protocol of a downstream connection was detected, or could not be in time.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionDetected {
    /// The listener.
    pub listener: LabelId,
    /// The detected protocol.
    pub protocol: DetectedProtocol,
}

/// The detected protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DetectedProtocol {
    /// A request of HTTP/1.
    Http1,
    /// HTTP/2 by prior knowledge.
    Http2,
    /// A TLS handshake.
    Tls,
    /// A frame of an RPC protocol.
    Rpc,
    /// None of these.
    Other,
    /// Too few bytes for a verdict within the detection timeout.
    Timeout,
}

impl DetectedProtocol {
    /// The words for them, in their order.
    pub const NAMES: [&'static str; 6] = ["http1", "http2", "tls", "rpc", "other", "timeout"];
}

/// A downstream connection was closed at accept.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionRefused {
    /// The listener.
    pub listener: LabelId,
    /// The reason for which the connection was refused.
    pub cause: Cause,
}

/// A downstream connection came to nothing before it had a request: it was refused, its handshake failed,
/// or its first bytes were wrong. It has a line in the access log, since no exchange has one for it.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionFailed<'a> {
    /// The listener.
    pub listener: LabelId,
    /// Where the downstream connects from, as text.
    pub client: &'a [u8],
    /// The server name that the client asked for by TLS, as far as that was read.
    pub server_name: &'a [u8],
    /// Why.
    pub cause: Cause,
    /// What is known about that. A peer may have chosen its bytes.
    pub cause_detail: &'a [u8],
    /// Wall-clock time at which it was accepted, ns since the Unix epoch.
    pub started_at: u64,
    /// From there on, ns.
    pub duration: u64,
}

impl<'a> ConnectionFailed<'a> {
    /// The same as the access log knows it: an exchange without a request.
    pub(crate) const fn as_exchange(&self) -> ExchangeFinished<'a> {
        ExchangeFinished {
            listener: self.listener,
            client: self.client,
            server_name: self.server_name,
            cause: Some(self.cause),
            cause_detail: self.cause_detail,
            started_at: self.started_at,
            stages: Stages { total: self.duration, ..Stages::NONE },
            ..ExchangeFinished::EMPTY
        }
    }
}

/// A downstream connection ended.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionClosed {
    /// The listener.
    pub listener: LabelId,
    /// Why, if not because either side was done with it.
    pub cause: Option<Cause>,
    /// From accept to close, ns.
    pub lifetime: u64,
    /// Requests it carried.
    pub requests: u32,
    /// Bytes that were handed to the kernel and lost: those that the client had not acknowledged when the
    /// connection was given up for [`Cause::ResponseUndelivered`].
    pub undelivered_bytes: u64,
}
