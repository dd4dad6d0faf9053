//! What each fault means: whose it is, whether another attempt may help, which reply it becomes.
//!
//! One table, one function. The words themselves are [`telemetry::cause::Cause`]; they stand in
//! the access log, in the metrics and in the body of the reply.

use config::retry::RetryOn;
use telemetry::cause::Cause;
use telemetry::events::Fault;

/// On which side of the proxy the fault lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Downstream,
    /// This proxy, its limits or its configuration.
    Proxy,
    /// The service.
    Upstream,
}

impl From<Side> for Fault {
    fn from(side: Side) -> Self {
        match side {
            Side::Downstream => Self::Downstream,
            Side::Proxy => Self::Proxy,
            Side::Upstream => Self::Upstream,
        }
    }
}

/// When a request that met this fault may be sent again on another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It would not help, or would not be right.
    Never,
    /// Always: the upstream has not seen a byte.
    Unsent,
    /// If the method is idempotent and every byte is still here (RFC 9110, section 9.2.2), and
    /// either the connection had been used before (RFC 9112, section 9.3.1), or the request has no
    /// body and there is another endpoint to try.
    ///
    /// The first byte of a response ends that: the request is forgotten then, although the RFCs would allow
    /// another attempt. With TLS, a byte counts when its record was opened: what came of a record that
    /// is cut off, or is not authentic, is no response.
    IfIdempotent,
    /// If every byte is still here: the upstream said that it did not process the request.
    Unprocessed,
}

/// What follows from a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consequence {
    /// Whose fault it is.
    pub side: Side,
    /// The status of the reply if no response was begun; none if there is no client to answer.
    pub status: Option<u16>,
    /// Whether another attempt may help.
    pub retry: Retry,
}

/// Whether an exchange fails with this cause when its upstream connection does, so that what was said
/// of the one is a reason for the other.
pub(crate) const fn follows_from_connection(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ConnectFailed
            | Cause::ConnectTimeout
            | Cause::Http2PingTimeout
            | Cause::OutOfDescriptors
            | Cause::RequestWriteTimeout
            | Cause::ResponseInvalid
            | Cause::ResponseTruncated
            | Cause::ResponseUnasked
            | Cause::StreamRefused
            | Cause::UpstreamClosed
            | Cause::UpstreamGoingAway
            | Cause::UpstreamTlsFailed
    )
}

/// Whether the log warns of requests that fail with this cause: something is wrong upstream, or is too small
/// here. What clients do wrong or ask for in vain is for the access log alone.
pub(crate) const fn is_warned_of(cause: Cause) -> bool {
    match consequence(cause).side {
        Side::Downstream => false,
        Side::Upstream => true,
        Side::Proxy => matches!(
            cause,
            Cause::FilterTimeout
                | Cause::NoEndpoint
                | Cause::NoOriginalDestination
                | Cause::OutOfDescriptors
                | Cause::Overloaded
                | Cause::PendingOverflow
                | Cause::PendingTimeout
                | Cause::RequestTimeout
                | Cause::RequestsOverflow
                | Cause::ConcurrencyLimited
        ),
    }
}

/// What `retry` of a rule calls a failure without a response, if it may be on that.
#[must_use]
pub const fn retry_word(cause: Cause) -> Option<RetryOn> {
    match cause {
        Cause::ConnectFailed | Cause::ConnectTimeout | Cause::UpstreamTlsFailed => {
            Some(RetryOn::ConnectFailure)
        }
        Cause::StreamRefused | Cause::UpstreamGoingAway => Some(RetryOn::RefusedStream),
        Cause::Http2PingTimeout
        | Cause::RequestWriteTimeout
        | Cause::ResponseHeadTimeout
        | Cause::ResponseHeadTooLarge
        | Cause::ResponseInvalid
        | Cause::ResponseUnasked
        | Cause::StreamReset
        | Cause::TryTimeout
        | Cause::UpstreamClosed => Some(RetryOn::Reset),
        _ => None,
    }
}

/// The table.
#[must_use]
pub const fn consequence(cause: Cause) -> Consequence {
    use Cause::*;
    let (side, status, retry) = match cause {
        RequestInvalid
        | RequestFramingInvalid
        | RequestHeaderUnderscore
        | RequestHostInvalid
        | RequestTargetInvalid
        | RequestBodyInvalid
        | Http2Invalid => (Side::Downstream, 400, Retry::Never),
        Http2Abuse => (Side::Downstream, 429, Retry::Never),
        Http2PingTimeout => (Side::Upstream, 504, Retry::IfIdempotent),
        RequestHeadTimeout | RequestBodyTimeout | RequestTooSlow | Stalled => {
            (Side::Downstream, 408, Retry::Never)
        }
        RequestBodyTooLarge => (Side::Downstream, 413, Retry::Never),
        RequestLineTooLong => (Side::Downstream, 414, Retry::Never),
        RequestExpectationUnknown => (Side::Downstream, 417, Retry::Never),
        RequestHeadTooLarge => (Side::Downstream, 431, Retry::Never),
        RequestNotImplemented => (Side::Downstream, 501, Retry::Never),
        RequestVersionUnsupported => (Side::Downstream, 505, Retry::Never),
        ProxyProtocolInvalid | ProxyProtocolSource | RpcInvalid | TlsHandshakeFailed
        | TlsHandshakeTimeout | TlsInvalid | ResponseWriteTimeout | ResponseTooSlow
        | ResponseUndelivered | DownstreamClosed | RequestCancelled | IdleTimeout
        | TunnelIdleTimeout => (Side::Downstream, 0, Retry::Never),

        NoHost | NoRoute => (Side::Proxy, 404, Retry::Never),
        NoChain => (Side::Proxy, 0, Retry::Never),
        RequestMisdirected => (Side::Proxy, 421, Retry::Never),
        RequestTooEarly => (Side::Proxy, 425, Retry::Never),
        ClientExchangesOverflow => (Side::Proxy, 429, Retry::Never),
        NoCluster
        | NoEndpoint
        | NoOriginalDestination
        | PendingOverflow
        | PendingTimeout
        | RequestsOverflow
        | ConcurrencyLimited
        | FilterTimeout
        | ConnectionsOverflow
        | ClientConnectionsOverflow
        | AcceptRate
        | Overloaded
        | BufferedOverflow
        | HandshakesOverflow
        | OutOfDescriptors
        | AcceptFailed => (Side::Proxy, 503, Retry::Never),
        FilterReply => (Side::Proxy, 0, Retry::Never),
        RequestTimeout => (Side::Proxy, 504, Retry::Never),
        ConnectionAge | DrainTimeout => (Side::Proxy, 503, Retry::Never),

        ConnectFailed | ConnectTimeout | UpstreamTlsFailed => (Side::Upstream, 503, Retry::Unsent),
        UpstreamClosed => (Side::Upstream, 502, Retry::IfIdempotent),
        StreamRefused | UpstreamGoingAway => (Side::Upstream, 503, Retry::Unprocessed),
        StreamReset => (Side::Upstream, 502, Retry::Never),
        ResponseUnasked => (Side::Upstream, 502, Retry::Unsent),
        ResponseInvalid | ResponseHeadTooLarge | ResponseBodyTooLarge | ResponseTruncated => {
            (Side::Upstream, 502, Retry::Never)
        }
        // The response that it stands for went nowhere.
        ResponseRetried => (Side::Upstream, 0, Retry::Never),
        TryTimeout | ResponseHeadTimeout | ResponseBodyTimeout | RequestWriteTimeout => {
            (Side::Upstream, 504, Retry::Never)
        }
    };
    Consequence { side, status: if status == 0 { None } else { Some(status) }, retry }
}
