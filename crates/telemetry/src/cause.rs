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
    /// The request line, a pseudo-header field or a field breaks the syntax of HTTP.
    RequestInvalid => "request_invalid",
    /// `Content-Length` and `Transfer-Encoding` contradict themselves or each other.
    RequestFramingInvalid => "request_framing_invalid",
    /// The name of a field or a trailer holds `_`, and `http.headers_with_underscores` of the listener is `refuse`.
    RequestHeaderUnderscore => "request_header_underscore",
    /// `Host` is missing, repeated or not a host.
    RequestHostInvalid => "request_host_invalid",
    /// The request target is not a form that HTTP allows, or its path cannot be normalised.
    RequestTargetInvalid => "request_target_invalid",
    /// The request line is longer than the listener's `http.request_line_max`.
    RequestLineTooLong => "request_line_too_long",
    /// The head is longer than the listener's `http.head_max` or has more fields than
    /// `http.fields_max`.
    RequestHeadTooLarge => "request_head_too_large",
    /// A chunk or the trailer section breaks the syntax of the chunked coding, or the base64 of a
    /// gRPC-Web call is none.
    RequestBodyInvalid => "request_body_invalid",
    /// The body is longer than the listener's `http.body_max`, or than a filter can take.
    RequestBodyTooLarge => "request_body_too_large",
    /// A method, a transfer coding or a protocol to change to that is not let through here.
    RequestNotImplemented => "request_not_implemented",
    /// A version of HTTP that is not spoken here.
    RequestVersionUnsupported => "request_version_unsupported",
    /// An expectation other than `100-continue`.
    RequestExpectationUnknown => "request_expectation_unknown",
    /// The PROXY protocol header is missing or wrong.
    ProxyProtocolInvalid => "proxy_protocol_invalid",
    /// The connection came from an address that `proxy_protocol.from` of its listener does not have.
    ProxyProtocolSource => "proxy_protocol_source",
    /// The TLS handshake failed; `strait_tls_handshakes_failed_total` has the reason.
    TlsHandshakeFailed => "tls_handshake_failed",
    /// The TLS handshake took longer than the listener's `timeouts.tls_handshake`.
    TlsHandshakeTimeout => "tls_handshake_timeout",
    /// A TLS record behind which the connection cannot go on: the peer did not seal it, or it is too
    /// long, or its end does not come.
    TlsInvalid => "tls_invalid",
    /// The peer of an HTTP/2 connection broke a rule that ends the connection.
    Http2Invalid => "http2_invalid",
    /// The peer of an HTTP/2 connection caused more work than its budget allows: resets, empty
    /// frames, settings or pings.
    Http2Abuse => "http2_abuse",
    /// What a client sent on a connection of an RPC protocol is no frame, or none that a client sends.
    RpcInvalid => "rpc_invalid",
    /// The peer of an HTTP/2 connection did not answer a keep-alive PING within its `http2.ping.timeout`.
    Http2PingTimeout => "http2_ping_timeout",
    /// The client did not send a whole request head within the listener's `timeouts.request_head`.
    RequestHeadTimeout => "request_head_timeout",
    /// The request body stopped coming.
    RequestBodyTimeout => "request_body_timeout",
    /// The request body came more slowly than the listener's `http.request_rate_min`.
    RequestTooSlow => "request_too_slow",
    /// The downstream stopped taking the response.
    ResponseWriteTimeout => "response_write_timeout",
    /// The client stalled, sending the request's body or reading the response, while other
    /// exchanges waited for its upstream connection: see the cluster's `timeouts.stall`.
    Stalled => "stalled",
    /// The downstream took the response more slowly than the listener's `http.response_rate_min`.
    ResponseTooSlow => "response_too_slow",
    /// The connection ended before the downstream had acknowledged all of its last response: it
    /// stopped reading, or `limits.linger_max` was over.
    ResponseUndelivered => "response_undelivered",
    /// The downstream closed or reset before the exchange was over.
    DownstreamClosed => "downstream_closed",
    /// The downstream reset the request's stream: the client cancelled the request.
    RequestCancelled => "request_cancelled",
    /// No further request came in time on a keep-alive connection. This is not a fault.
    IdleTimeout => "idle_timeout",
    /// A tunnel carried no bytes in either direction for its idle timeout.
    TunnelIdleTimeout => "tunnel_idle_timeout",

    // Decided by the proxy.
    /// No filter chain of the listener matches the connection, and the listener has no default.
    NoChain => "no_chain",
    /// No route table has the request's host.
    NoHost => "no_host",
    /// No rule of the route table matches.
    NoRoute => "no_route",
    /// The request's host belongs to another filter chain of the listener than its TLS connection,
    /// which has another server name: a client that shares connections between names repeats the
    /// request on a connection for this name.
    RequestMisdirected => "request_misdirected",
    /// The request came as early data of TLS, which an attacker may replay, and its method is not
    /// safe. The client repeats it after the handshake.
    RequestTooEarly => "request_too_early",
    /// A filter answered.
    FilterReply => "filter_reply",
    /// The header that names the cluster is absent, stands twice, or names none that the rule allows; or no source has delivered the cluster.
    NoCluster => "no_cluster",
    /// The cluster has no endpoint, or a newer configuration removed the cluster.
    NoEndpoint => "no_endpoint",
    /// The cluster connects to the original destination of the downstream connection, and that is
    /// not known, or is an address of this process.
    NoOriginalDestination => "no_original_destination",
    /// `connections_max` and then `pending_max` of the cluster are reached.
    PendingOverflow => "pending_overflow",
    /// `requests_max` of the cluster is reached.
    RequestsOverflow => "requests_overflow",
    /// No connection became free in the cluster's `timeouts.pending`.
    PendingTimeout => "pending_timeout",
    /// A filter got no answer within the listener's `timeouts.filter`.
    FilterTimeout => "filter_timeout",
    /// `connections_max` of the listener or the process is reached.
    ConnectionsOverflow => "connections_overflow",
    /// The client has `connections_per_client_max` of the listener.
    ClientConnectionsOverflow => "client_connections_overflow",
    /// The client has `exchanges_per_client_max` of the listener.
    ClientExchangesOverflow => "client_exchanges_overflow",
    /// The listener's clients held more than its `buffered_max` in buffers, and this connection was
    /// among those that held the most.
    BufferedOverflow => "buffered_overflow",
    /// `limits.handshakes_max` was reached, and this handshake had made no progress for longest.
    HandshakesOverflow => "handshakes_overflow",
    /// The whole exchange took longer than its route's `timeout`.
    RequestTimeout => "request_timeout",
    /// The connection was older than `timeouts.connection_age`, or than `connection_age_max` for
    /// clients with certificates, and did not end within `timeouts.connection_age_grace`.
    ConnectionAge => "connection_age",
    /// The drain timeout ended what was still running.
    DrainTimeout => "drain_timeout",
    /// The proxy has no file descriptor left for a connection.
    OutOfDescriptors => "out_of_descriptors",
    /// The kernel could not accept a connection: it was gone, or memory was short.
    AcceptFailed => "accept_failed",

    // Caused by the upstream.
    /// The connection could not be established.
    ConnectFailed => "connect_failed",
    /// The connection, including its TLS handshake, was not established in time.
    ConnectTimeout => "connect_timeout",
    /// The TLS handshake failed: the upstream's certificate is not accepted, or the upstream does
    /// not speak TLS.
    UpstreamTlsFailed => "upstream_tls_failed",
    /// The upstream closed or reset the connection before a response head.
    UpstreamClosed => "upstream_closed",
    /// The upstream refused the request's stream without processing it (`REFUSED_STREAM`).
    StreamRefused => "stream_refused",
    /// The upstream takes no further streams (`GOAWAY`), and did not process the request's.
    UpstreamGoingAway => "upstream_going_away",
    /// The upstream reset the request's stream.
    StreamReset => "stream_reset",
    /// The upstream sent bytes before the request was sent: they answer another request, or none.
    ResponseUnasked => "response_unasked",
    /// The response breaks the syntax of HTTP/1 or contradicts itself.
    ResponseInvalid => "response_invalid",
    /// The response head is too long.
    ResponseHeadTooLarge => "response_head_too_large",
    /// The response body is longer than a filter can take.
    ResponseBodyTooLarge => "response_body_too_large",
    /// The upstream did not send a response head in time.
    ResponseHeadTimeout => "response_head_timeout",
    /// The response's head did not come within `retry.try_timeout` of the rule.
    TryTimeout => "try_timeout",
    /// The response was one that `retry` of the rule is for, and the request was sent again.
    ResponseRetried => "response_retried",
    /// The response body stopped coming.
    ResponseBodyTimeout => "response_body_timeout",
    /// The upstream closed or reset the connection before the end of the response.
    ResponseTruncated => "response_truncated",
    /// The upstream stopped taking the request.
    RequestWriteTimeout => "request_write_timeout",
}
