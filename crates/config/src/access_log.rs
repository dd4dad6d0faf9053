//! The fields that a line of the access log may have.
//!
//! `telemetry` writes them, and this crate does not see it; a test of `control` compares the two lists.

/// Names of the fields, in the order that they have where none are chosen.
pub const FIELDS: [&str; 42] = [
    "time",
    "client",
    "method",
    "target",
    "protocol",
    "status",
    "response_bytes",
    "request_bytes",
    "host",
    "request_id",
    "listener",
    "route",
    "rule",
    "cluster",
    "subset",
    "endpoint",
    "attempts",
    "failed_attempts",
    "cause",
    "cause_detail",
    "reply",
    "grpc_status",
    "grpc_request_messages",
    "grpc_response_messages",
    "tunnel",
    "duration_us",
    "accept_us",
    "read_head_us",
    "route_us",
    "request_body_us",
    "retries_us",
    "pool_wait_us",
    "connect_us",
    "upstream_write_us",
    "first_byte_us",
    "response_us",
    "downstream_write_us",
    "server_name",
    "tls_version",
    "tls_cipher",
    "peer_identity",
    "user_agent",
];

/// Before the name of a header field of the request.
pub const REQUEST_HEADERS: &str = "request_headers.";

/// Before the name of a header field of the response.
pub const RESPONSE_HEADERS: &str = "response_headers.";
