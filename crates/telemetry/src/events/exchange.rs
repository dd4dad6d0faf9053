//! Exchanges: one request and its response.

use super::LabelId;
use crate::cause::Cause;

/// A request head was read.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeStarted {
    /// The listener.
    pub listener: LabelId,
}

/// An exchange became a tunnel. Its [`ExchangeFinished`] with `is_tunnel` is the other half of the
/// pair.
#[derive(Clone, Copy, Debug)]
pub struct TunnelStarted {
    /// The listener.
    pub listener: LabelId,
}

/// An exchange is over: its last response byte was handed to the kernel, or it was given up.
///
/// The started and finished events of an exchange come in pairs, so that `active` gauges derived
/// from them cannot drift.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeFinished<'a> {
    /// The listener.
    pub listener: LabelId,
    /// The route table and the slot of the rule there, if one matched: a number that stays while the table has the rule.
    pub rule: Option<(LabelId, u32)>,
    /// The slot of its weighted cluster, if the rule has several. Slots of one table are of rules or of weighted clusters.
    pub weighted: Option<u32>,
    /// The cluster, if the rule forwards to one.
    pub cluster: Option<LabelId>,
    /// The endpoint, if one was chosen.
    pub endpoint_id: Option<LabelId>,
    /// Keys and values of the subset that it asked for, as text, if there is such a one; empty otherwise.
    pub subset: &'a [u8],
    /// The endpoint's address as text, if one was chosen; empty otherwise.
    pub endpoint: &'a [u8],
    /// The address of the downstream, as text (the client's own if a trusted proxy reported it).
    pub client: &'a [u8],
    /// `GET`, as received.
    pub method: &'a [u8],
    /// The normalised path with query as forwarded, cut at a bound.
    pub target: &'a [u8],
    /// Host as received.
    pub host: &'a [u8],
    /// `x-request-id`, if any.
    pub request_id: &'a [u8],
    /// `user-agent`, if any.
    pub user_agent: &'a [u8],
    /// The name that the client asked for in TLS that ended here, if any.
    pub server_name: &'a [u8],
    /// The version of that TLS, as `TLSv1.3`; empty without it.
    pub tls_version: &'a [u8],
    /// Its cipher suite, by its name in IANA's registry.
    pub tls_cipher: &'a [u8],
    /// The identity in the client's certificate: its first URI, or host name, or its subject.
    pub peer_identity: &'a [u8],
    /// HTTP version of the request: 10, 11 or 20; 1 for a relayed connection, 2 for relayed TLS, 3 for
    /// a call of an RPC protocol.
    pub version: u8,
    /// Status sent to the downstream; 0 if none was.
    pub status: u16,
    /// The reason for which it failed, if it did.
    pub cause: Option<Cause>,
    /// Whose fault the cause is.
    pub fault: Fault,
    /// How many failed like it, with it, since the last that was reported to control; 0 if this one is not
    /// reported. [`Emitter::note_failure`](crate::Emitter::note_failure) counts them.
    pub failures: u32,
    /// Details of the cause from a peer or the kernel; empty if there are none. A peer may have
    /// chosen the bytes.
    pub cause_detail: &'a [u8],
    /// The attempts before the last one, each as the endpoint's address and the cause of its failure, separated by `, `; empty if
    /// there was one attempt at most.
    pub failed_attempts: &'a [u8],
    /// Header fields that the access log has asked for, as [`crate::captures`] writes them; empty if there are none.
    pub captures: &'a [u8],
    /// Whether the proxy made the response itself.
    pub is_reply: bool,
    /// Body bytes from the downstream.
    pub request_bytes: u64,
    /// Body bytes to the downstream.
    pub response_bytes: u64,
    /// Upstream attempts, 0 if none was made.
    pub attempts: u8,
    /// The gRPC call, if the exchange was one.
    pub grpc: Option<GrpcCall>,
    /// Whether it became a tunnel; `request_bytes` and `response_bytes` then count its bytes.
    pub is_tunnel: bool,
    /// Wall-clock time of the request's first byte, ns since the Unix epoch.
    pub started_at: u64,
    /// Where the time went.
    pub stages: Stages,
}

impl ExchangeFinished<'_> {
    /// Without a word, a count or a time. What is only counted keeps the words of it.
    pub const EMPTY: ExchangeFinished<'static> = ExchangeFinished {
        listener: LabelId { slot: 0, generation: 0 },
        rule: None,
        weighted: None,
        cluster: None,
        endpoint_id: None,
        subset: &[],
        endpoint: &[],
        client: &[],
        method: &[],
        target: &[],
        host: &[],
        request_id: &[],
        user_agent: &[],
        server_name: &[],
        tls_version: &[],
        tls_cipher: &[],
        peer_identity: &[],
        version: 0,
        status: 0,
        cause: None,
        fault: Fault::None,
        failures: 0,
        cause_detail: &[],
        failed_attempts: &[],
        captures: &[],
        is_reply: false,
        request_bytes: 0,
        response_bytes: 0,
        attempts: 0,
        grpc: None,
        is_tunnel: false,
        started_at: 0,
        stages: Stages::NONE,
    };
}

/// Whose fault it is that an exchange failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// It has not failed.
    #[default]
    None,
    /// The client.
    Downstream,
    /// This proxy, its limits or its configuration.
    Proxy,
    /// The service.
    Upstream,
}

/// A call of gRPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrpcCall {
    /// Its `grpc-status`, from 0 to 16; none if it ended without one.
    pub status: Option<u8>,
    /// Messages from the downstream.
    pub request_messages: u64,
    /// Messages to the downstream.
    pub response_messages: u64,
}

impl GrpcCall {
    /// Names of the statuses, by their numbers.
    pub const STATUSES: [&'static str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
}

/// Where an exchange's time went. Each is a length in ns; a stage that did not happen is 0, and
/// all but `total` are 0 when stage times are off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// From the kernel's accept to the connection's first byte (first request of a connection).
    pub accept: u64,
    /// From the head's first byte to its last.
    pub read_head: u64,
    /// Filters, routing and encoding, a filter's waiting included.
    pub route: u64,
    /// Waiting for the downstream to send more of the body, while nothing else was waited for.
    pub request_body: u64,
    /// Earlier attempts of the request, and the pauses between them, without `request_body`.
    pub retries: u64,
    /// Waiting for a pooled connection.
    pub pool_wait: u64,
    /// Establishing an upstream connection.
    pub connect: u64,
    /// From the first request byte handed to the upstream's socket to the last, without `request_body`.
    pub upstream_write: u64,
    /// From there to the response's first byte, without `request_body`.
    pub first_byte: u64,
    /// From the response's first byte to its last, without the time in which the upstream was not read because
    /// the downstream did not take what was there.
    pub response: u64,
    /// That time, and from the last response byte read to the last one written.
    pub downstream_write: u64,
    /// From the head's first byte to the last response byte written.
    pub total: u64,
}

impl Stages {
    /// None of them took place.
    pub const NONE: Self = Self {
        accept: 0,
        read_head: 0,
        route: 0,
        request_body: 0,
        retries: 0,
        pool_wait: 0,
        connect: 0,
        upstream_write: 0,
        first_byte: 0,
        response: 0,
        downstream_write: 0,
        total: 0,
    };

    /// Names of the stages in the order in which they happen; `values` has the same order.
    pub const NAMES: [&'static str; 12] = [
        "accept",
        "read_head",
        "route",
        "request_body",
        "retries",
        "pool_wait",
        "connect",
        "upstream_write",
        "first_byte",
        "response",
        "downstream_write",
        "total",
    ];

    /// The lengths, ns, in the order of [`Stages::NAMES`].
    #[must_use]
    pub const fn values(&self) -> [u64; 12] {
        [
            self.accept,
            self.read_head,
            self.route,
            self.request_body,
            self.retries,
            self.pool_wait,
            self.connect,
            self.upstream_write,
            self.first_byte,
            self.response,
            self.downstream_write,
            self.total,
        ]
    }
}

/// Fields of a request were dropped, since a service could take them for a proxy's.
#[derive(Clone, Copy, Debug)]
pub struct HeadersDropped {
    /// The listener.
    pub listener: LabelId,
    /// The reason for which fields were dropped.
    pub reason: HeaderDrop,
    /// The number of fields dropped.
    pub count: u64,
}

/// Why fields are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HeaderDrop {
    /// `x-forwarded-*` of a client that is not trusted to send it.
    Forwarded,
    /// A name with `_`.
    Underscore,
}

impl HeaderDrop {
    /// The words for them, in their order.
    pub const NAMES: [&'static str; 2] = ["forwarded", "underscore"];
}
