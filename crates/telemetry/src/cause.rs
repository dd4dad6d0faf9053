//! The closed vocabulary of why an exchange or a connection failed.
//!
//! A cause stands in the access log, in the metrics, and in the body of the replies that Strait
//! makes itself. `proxy::fault` says which reply each becomes.

macro_rules! causes {
    ($($(#[doc = $doc:literal])* $variant:ident => $text:literal,)*) => {
        /// Why an exchange or a connection failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Cause {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Cause {
            /// Every cause, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word for it in logs, metrics and replies.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The meaning, for the documentation.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc,)*),)* }
            }
        }
    };
}

causes! {
    // Caused by the downstream.
    /// The request line, a pseudo-header field or a header field violates the syntax of HTTP.
    RequestInvalid => "request_invalid",
    /// `Content-Length` and `Transfer-Encoding` contradict themselves or each other.
    RequestFramingInvalid => "request_framing_invalid",
    /// The name of a field or a trailer contains `_`, and `http.headers_with_underscores` of the listener
    /// is `refuse`.
    RequestHeaderUnderscore => "request_header_underscore",
    /// `Host` is missing, repeated or not a host.
    RequestHostInvalid => "request_host_invalid",
    /// The request target has no valid form, or its path cannot be normalised.
    RequestTargetInvalid => "request_target_invalid",
    /// The request line is longer than the listener's `http.request_line_max`.
    RequestLineTooLong => "request_line_too_long",
    /// The head is longer than the listener's `http.head_max` or has more fields than
    /// `http.fields_max`.
    RequestHeadTooLarge => "request_head_too_large",
    /// A chunk or the trailer section violates the syntax of the chunked coding, or the base64 of a
    /// gRPC-Web call is invalid.
    RequestBodyInvalid => "request_body_invalid",
    /// The body is longer than the listener's `http.body_max`, or than a filter accepts.
    RequestBodyTooLarge => "request_body_too_large",
    /// The method, a transfer coding, or a protocol to upgrade to is not supported or not allowed.
    RequestNotImplemented => "request_not_implemented",
    /// The version of HTTP is not supported.
    RequestVersionUnsupported => "request_version_unsupported",
    /// The request has an expectation other than `100-continue`.
    RequestExpectationUnknown => "request_expectation_unknown",
    /// The PROXY protocol header is missing or invalid.
    ProxyProtocolInvalid => "proxy_protocol_invalid",
    /// The connection came from an address that `proxy_protocol.from` of its listener does not contain.
    ProxyProtocolSource => "proxy_protocol_source",
    /// The TLS handshake failed; `strait_tls_handshakes_failed_total` has the reason.
    TlsHandshakeFailed => "tls_handshake_failed",
    /// The TLS handshake took longer than the listener's `timeouts.tls_handshake`.
    TlsHandshakeTimeout => "tls_handshake_timeout",
    /// A TLS record is not authentic, too long or incomplete, so the connection cannot continue.
    TlsInvalid => "tls_invalid",
    /// The peer of an HTTP/2 connection violated a rule in a way that ends the connection.
    Http2Invalid => "http2_invalid",
    /// The peer of an HTTP/2 connection caused more useless work than `http2.work_max` allows: resets,
    /// empty frames, settings or pings.
    Http2Abuse => "http2_abuse",
    /// A client of an RPC protocol sent bytes that are not a frame, or a frame that clients must not send.
    RpcInvalid => "rpc_invalid",
    /// The peer of an HTTP/2 connection did not acknowledge a keep-alive PING within its
    /// `http2.ping.timeout`.
    Http2PingTimeout => "http2_ping_timeout",
    /// The client did not send a complete request head within the listener's `timeouts.request_head`.
    RequestHeadTimeout => "request_head_timeout",
    /// The client stopped sending the request body.
    RequestBodyTimeout => "request_body_timeout",
    /// The client sent the request body more slowly than the listener's `http.request_rate_min`.
    RequestTooSlow => "request_too_slow",
    /// The client stopped reading the response.
    ResponseWriteTimeout => "response_write_timeout",
    /// The client stalled, sending the request's body or reading the response, while other
    /// exchanges waited for its upstream connection: see the cluster's `timeouts.stall`.
    Stalled => "stalled",
    /// The client read the response more slowly than the listener's `http.response_rate_min`.
    ResponseTooSlow => "response_too_slow",
    /// The connection ended before the client had acknowledged all of its last response: the client stopped
    /// reading, or `limits.linger_max` expired.
    ResponseUndelivered => "response_undelivered",
    /// The client closed or reset the connection before the end of the exchange.
    DownstreamClosed => "downstream_closed",
    /// The client cancelled the request by resetting its stream.
    RequestCancelled => "request_cancelled",
    /// No further request arrived in time on a keep-alive connection. This is not a failure.
    IdleTimeout => "idle_timeout",
    /// A tunnel carried no bytes in either direction for its idle timeout.
    TunnelIdleTimeout => "tunnel_idle_timeout",

    // Decided by the proxy.
    /// No filter chain of the listener matches the connection, and the listener has no default.
    NoChain => "no_chain",
    /// No route table contains the request's host.
    NoHost => "no_host",
    /// No rule of the route table matches.
    NoRoute => "no_route",
    /// The request's host belongs to another filter chain of the listener than its TLS connection, which
    /// has another server name. A client that shares connections between names repeats the request on a
    /// connection for the right name.
    RequestMisdirected => "request_misdirected",
    /// The request arrived as TLS early data, which an attacker may replay, and its method is not safe. The
    /// client repeats it after the handshake.
    RequestTooEarly => "request_too_early",
    /// A filter replied.
    FilterReply => "filter_reply",
    /// The header that names the cluster is missing, occurs twice, or names a cluster that the rule does
    /// not allow; or no source has delivered the cluster.
    NoCluster => "no_cluster",
    /// The cluster has no endpoint, or a newer configuration removed the cluster.
    NoEndpoint => "no_endpoint",
    /// The cluster connects to the original destination of the downstream connection, and that is unknown,
    /// or is an address of this process.
    NoOriginalDestination => "no_original_destination",
    /// `connections_max` and `pending_max` of the cluster are reached.
    PendingOverflow => "pending_overflow",
    /// `requests_max` of the cluster or the listener is reached.
    RequestsOverflow => "requests_overflow",
    /// The limit of `adaptive_concurrency` of the cluster is reached.
    ConcurrencyLimited => "concurrency_limited",
    /// No connection became available within the cluster's `timeouts.pending`.
    PendingTimeout => "pending_timeout",
    /// A filter got no answer within the listener's `timeouts.filter`.
    FilterTimeout => "filter_timeout",
    /// `connections_max` of the listener or the process is reached.
    ConnectionsOverflow => "connections_overflow",
    /// The listener has accepted `accept_rate` connections within a second.
    AcceptRate => "accept_rate",
    /// The memory of the process is near `limits.memory_max`.
    Overloaded => "overloaded",
    /// The client has reached `connections_per_client_max` of the listener.
    ClientConnectionsOverflow => "client_connections_overflow",
    /// The client has reached `exchanges_per_client_max` of the listener.
    ClientExchangesOverflow => "client_exchanges_overflow",
    /// The listener's clients occupied more than its `buffered_max` in buffers, and this connection was
    /// among those that occupied the most.
    BufferedOverflow => "buffered_overflow",
    /// `limits.handshakes_max` was reached, and this handshake had made no progress for the longest time.
    HandshakesOverflow => "handshakes_overflow",
    /// The whole exchange took longer than its route's `timeout`.
    RequestTimeout => "request_timeout",
    /// The connection was older than `timeouts.connection_age`, or than `connection_age_max` for
    /// clients with certificates, or was beyond a limit of its listener after an upgrade, and did not end
    /// within `timeouts.connection_age_grace`.
    ConnectionAge => "connection_age",
    /// The exchange was still active at the end of `limits.drain_timeout`, or when a second signal, or a third
    /// upgrade, stopped the process at once.
    DrainTimeout => "drain_timeout",
    /// The process has no file descriptor left for a connection.
    OutOfDescriptors => "out_of_descriptors",
    /// The kernel could not accept a connection: it had ended, or memory was short.
    AcceptFailed => "accept_failed",

    // Caused by the upstream.
    /// The connection could not be established.
    ConnectFailed => "connect_failed",
    /// The connection, including its TLS handshake, was not established in time.
    ConnectTimeout => "connect_timeout",
    /// The TLS handshake failed: the upstream's certificate was not accepted, or the upstream does not use
    /// TLS.
    UpstreamTlsFailed => "upstream_tls_failed",
    /// The upstream closed or reset the connection before the response head.
    UpstreamClosed => "upstream_closed",
    /// The upstream refused the request's stream without processing it (`REFUSED_STREAM`).
    StreamRefused => "stream_refused",
    /// The upstream accepts no further streams (`GOAWAY`) and did not process the request's stream.
    UpstreamGoingAway => "upstream_going_away",
    /// The upstream reset the request's stream.
    StreamReset => "stream_reset",
    /// The upstream sent bytes before the request was sent: they belong to another request, or to none.
    ResponseUnasked => "response_unasked",
    /// The response violates the syntax of HTTP, or contradicts itself.
    ResponseInvalid => "response_invalid",
    /// The response head is too long.
    ResponseHeadTooLarge => "response_head_too_large",
    /// The response body is longer than a filter accepts.
    ResponseBodyTooLarge => "response_body_too_large",
    /// The upstream did not send a response head in time.
    ResponseHeadTimeout => "response_head_timeout",
    /// The response head did not arrive within `retry.try_timeout` of the rule.
    TryTimeout => "try_timeout",
    /// The response was one that `retry` of the rule repeats, and the request was sent again.
    ResponseRetried => "response_retried",
    /// The upstream stopped sending the response body.
    ResponseBodyTimeout => "response_body_timeout",
    /// The upstream closed or reset the connection before the end of the response.
    ResponseTruncated => "response_truncated",
    /// The upstream stopped reading the request.
    RequestWriteTimeout => "request_write_timeout",
}
