//! `listeners`: where connections are taken, and how HTTP is read there.

use std::num::{NonZeroU16, NonZeroU32};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::rpc::RpcName;

use super::{Http2, ListenerChain, ListenerTls, OrNone, Rpc, Timeout};
use crate::address::Address;
use crate::cidr::Cidr;
use crate::defaults;
use crate::error_pages::ErrorPage;
use crate::file_mode::FileMode;
use crate::units::{Period, Size};

/// A bound address and what happens to its connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Name, used in logs and metrics. Unique among listeners.
    pub name: String,
    /// Where it listens: an address, or a list of several. Each is unique among listeners. A change of the
    /// addresses, of `backlog`, `fast_open`, `keepalive` or `original_destination` opens new sockets; connections of
    /// the old ones finish what they do.
    pub address: OneOrSeveral<Address>,
    /// What its connections speak.
    #[serde(default)]
    pub protocol: Protocol,
    /// Ends the TLS of its connections. Absent: they are not encrypted, or passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// The filter chain of HTTP requests, in order. Each item is a map with one key, the filter's name, and the
    /// filter's configuration as its value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<NoFilter>")]
    pub filters: Vec<serde_json::Value>,
    /// The route table that HTTP requests are looked up in, or a list of several. No two of them may
    /// claim the same host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<OneOrSeveral<String>>,
    /// The cluster that TCP connections are relayed to: all of a `tcp` listener, and those of an
    /// `auto` listener that speak something else than HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// In place of `cluster`: several, one of which is chosen for each connection by their weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<WeightedCluster>,
    /// Chains for some of its connections; the others meet what the listener has itself, or are
    /// closed if it has neither `routes` nor a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<ListenerChain>,
    /// How HTTP is read and rewritten.
    #[serde(default)]
    pub http: Http,
    /// What one connection of HTTP/2 may hold.
    #[serde(default)]
    pub http2: Http2,
    /// What one connection of an RPC protocol may hold.
    #[serde(default)]
    pub rpc: Rpc,
    /// Whether each connection begins with a PROXY protocol header, version 1 or 2. A connection
    /// without it is closed. The header says where the connection comes from, so `from` lists the
    /// proxies that may send it; with `true`, every client may.
    #[serde(default)]
    pub proxy_protocol: ProxyProtocol,
    /// How it is known where a connection was going before rules of this machine brought it here.
    /// That address, the original destination, stands for the listener's own in `x-forwarded-port`
    /// and in PROXY protocol headers, and is where clusters with `original_destination` connect.
    #[serde(default)]
    pub original_destination: OriginalDestination,
    /// How long peers may take.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Connections open at a time, in the process, split evenly among the workers: each has one at
    /// least. Beyond its part, a worker closes new ones at once; the kernel spreads connections by
    /// chance, so with several workers the first may be refused a little below the whole.
    #[serde(default = "connections_max")]
    pub connections_max: NonZeroU32,
    /// Connections of one client open at a time, split among the workers as `connections_max` is. A client
    /// is an IPv4 address, or the /64 of an IPv6 one. Beyond it, new ones are closed at once. Absent: half
    /// of `connections_max`, so that a load balancer in front may have many. Where `http.trusted_hops`
    /// says that peers are proxies, connections are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_client_max: Option<NonZeroU32>,
    /// Exchanges of one client at a time, split among the workers likewise. With `http.trusted_hops`, the
    /// client is the one that the trusted proxies name. Beyond it: 429. Absent: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchanges_per_client_max: Option<NonZeroU32>,
    /// Bytes that its clients may hold in buffers, in the process, split evenly among the workers: of heads
    /// that are not here whole, bodies that wait, and responses that are not taken. Each worker compares
    /// ten times a second, once its buffers are as large as that: while a listener is over it, the
    /// connections that hold the most are closed, of those alike the one whose client stood still for
    /// longest. `none`: no bound.
    #[serde(default = "buffered_max")]
    #[schemars(extend("x-minimum" = "64KiB"))]
    pub buffered_max: OrNone<Size>,
    /// Permissions of the file of a unix socket, as chmod(1) has them: to connect, a program needs to be allowed to write.
    /// Absent: `0660`. A change requires a restart, or another path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    /// Queue of connections that are not yet accepted. The kernel lowers it to
    /// `net.core.somaxconn`.
    #[serde(default = "backlog")]
    #[schemars(range(max = 1_048_576))]
    pub backlog: NonZeroU32,
    /// Queue of TCP Fast Open requests. Absent: Fast Open is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_048_576))]
    pub fast_open: Option<NonZeroU32>,
    /// TCP keepalive of accepted connections. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
}

impl Listener {
    /// Whether it listens on a unix socket, be it beside other addresses.
    pub(crate) fn has_unix(&self) -> bool {
        self.address.as_slice().iter().any(Address::is_unix)
    }
}

/// Whether connections begin with a PROXY protocol header, and whose may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ProxyProtocol {
    /// All of them, from any peer, or none.
    Any(bool),
    /// All of them, and only these may connect.
    Listed(ProxyProtocolSources),
}

impl Default for ProxyProtocol {
    fn default() -> Self {
        Self::Any(false)
    }
}

/// The proxies that send PROXY protocol headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyProtocolSources {
    /// Their addresses, as ranges. A connection from elsewhere is closed at accept, and counted as
    /// `proxy_protocol_source` in `strait_downstream_connections_refused_total`.
    #[schemars(length(min = 1))]
    pub from: Vec<Cidr>,
}

/// What connections speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-meant" = {
    "https": "leave `protocol` out, and add `tls` with the certificates",
    "tls": "leave `protocol` out, and add `tls` with the certificates",
    "http": "leave `protocol` out, which takes HTTP/1 and HTTP/2, or write http1",
    "h2c": "write http2",
    "h2": "write http2",
    "grpc": "write http2, which carries gRPC",
    "http3": "HTTP/3 is not supported: leave `protocol` out, which takes HTTP/1 and HTTP/2",
}))]
pub enum Protocol {
    /// HTTP/1 and HTTP/2 (by prior knowledge, or `Upgrade: h2c`) if there is no `cluster`. With
    /// one, each connection's first bytes tell whether it is HTTP; whatever is not is relayed.
    #[default]
    Auto,
    /// HTTP/1.
    Http1,
    /// HTTP/2, by prior knowledge.
    Http2,
    /// Anything: bytes are relayed as they come.
    Tcp,
    /// An RPC protocol, which the program registers.
    #[serde(untagged)]
    #[schemars(skip)]
    Rpc(RpcName),
}

impl Protocol {
    /// The RPC protocol, if it is one.
    pub(crate) const fn rpc(self) -> Option<RpcName> {
        match self {
            Self::Rpc(name) => Some(name),
            Self::Auto | Self::Http1 | Self::Http2 | Self::Tcp => None,
        }
    }
}

/// How it is known where a connection was going.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OriginalDestination {
    /// It was coming here.
    #[default]
    Off,
    /// The kernel redirected it (REDIRECT, DNAT) and is asked (`SO_ORIGINAL_DST`).
    Redirect,
    /// The kernel handed it over as it was (TPROXY, `IP_TRANSPARENT`). Needs `CAP_NET_ADMIN`.
    Tproxy,
}

/// A cluster and its share of the connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedCluster {
    /// Its name.
    pub cluster: String,
    /// Its share, against the other weights of the listener.
    #[serde(default = "weight")]
    pub weight: NonZeroU16,
}

/// One or a list of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrSeveral<T> {
    /// One.
    One(T),
    /// Several.
    Several(#[schemars(length(min = 1))] Vec<T>),
}

impl<T> OneOrSeveral<T> {
    /// All of them.
    #[must_use]
    pub const fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several.as_slice(),
        }
    }
}

/// How HTTP is read and rewritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// What replies to failures say, unless the route table has a page of its own: the first page that is for a failure is
    /// taken. Replies to calls of gRPC stay `grpc-status`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub error_pages: Vec<ErrorPage>,
    /// Bytes of a request line (method, target, version). Beyond it: 414.
    #[schemars(extend("x-minimum" = "64B", "x-maximum" = "60KiB"))]
    pub request_line_max: Size,
    /// Bytes of a head, request line included. Beyond it: 431.
    #[schemars(extend("x-minimum" = "256B", "x-maximum" = "60KiB"))]
    pub head_max: Size,
    /// Fields of a head. Beyond it: 431.
    #[schemars(range(min = 1, max = 1000))]
    pub fields_max: u16,
    /// Bytes of a request body, or `none`. Beyond it: 413.
    pub body_max: OrNone<Size>,
    /// Bytes of a request body that have to be there before the request takes a connection, once half
    /// of the cluster's `connections_max` are in use; a body that is shorter has to be there whole. So
    /// clients that send slowly leave half of a cluster to the others. At most 64 KiB; 0: none have to.
    /// Calls of gRPC, requests for tunnels and those that wait for `100 Continue` are not held.
    #[schemars(extend("x-maximum" = "64KiB"))]
    pub request_buffer: Size,
    /// Bytes a second that a client has to send of a request body while it is the one waited for. Each
    /// byte extends `timeouts.request_body` by its part of a second only, so a client below the rate
    /// is ended, with 408, when it has used up that timeout. 0: none.
    #[schemars(extend("x-maximum" = "1MiB"))]
    pub request_rate_min: Size,
    /// The same of a response that waits for the client to take it, and `timeouts.response_write`.
    #[schemars(extend("x-maximum" = "1MiB"))]
    pub response_rate_min: Size,
    /// Whether several slashes in a row are one in the path of a request: `//admin/` is `/admin/` then,
    /// for rules and upstreams alike.
    pub merge_slashes: bool,
    /// How many proxies in front of this one are trusted. Their `x-forwarded-*`, `forwarded` and
    /// `x-request-id` are believed and added to. 0: the peer is the client, and those fields are
    /// replaced.
    #[schemars(range(max = 16))]
    pub trusted_hops: u8,
    /// Which fields tell the upstream about the client.
    pub forwarded: Forwarded,
    /// Further fields whose names begin with `x-forwarded-`, such as `x-forwarded-prefix`, that go
    /// through though no hop is trusted. All others that a client sends are dropped.
    pub forwarded_allowed: Vec<String>,
    /// What becomes of fields of requests, trailers among them, with `_` in their names. Many services
    /// take `_` for `-`, and read `x_forwarded_for` as `x-forwarded-for`.
    pub headers_with_underscores: HeadersWithUnderscores,
    /// What becomes of `x-forwarded-client-cert`, which says whom certificates of clients are about.
    pub forward_client_cert: ForwardClientCert,
    /// What is said there of a client's certificate, beside the digest of it and the name of the
    /// certificate that it was shown.
    pub client_cert_details: Vec<ClientCertDetail>,
    /// Name under which a `via` field is added to requests and responses. Absent: `via` is left
    /// alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// Whether a request without a trusted `x-request-id` gets one.
    pub request_id: bool,
    /// Whether requests may say how long they may take, by `x-envoy-upstream-rq-timeout-ms`: a number of milliseconds that
    /// goes before the `timeout` of the rule; 0 for no bound. `x-envoy-expected-rq-timeout-ms` says it to the upstream.
    /// Only for listeners whose clients are trusted with it. Otherwise these fields are removed.
    pub trust_timeouts: bool,
    /// Whether requests may say when they are sent again, beside the `retry` of the rule: `x-envoy-retry-on` and
    /// `x-envoy-retry-grpc-on` add to `on`, `x-envoy-max-retries` (up to 15) and `x-envoy-upstream-rq-per-try-timeout-ms`
    /// go before `attempts_max` and `try_timeout`, `x-envoy-retriable-status-codes` and `x-envoy-retriable-header-names`
    /// add to `status` and `headers`. Which methods are sent twice is the rule's. Only for listeners whose clients are
    /// trusted with it. These fields are removed in either case.
    pub trust_retries: bool,
    /// Whether calls of gRPC-Web, in either of its forms, go on as calls of gRPC, and their answers
    /// back. Their clusters speak `protocol: http2`. Browsers on other origins need CORS besides.
    pub grpc_web: bool,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            error_pages: Vec::new(),
            request_line_max: defaults::REQUEST_LINE_MAX,
            head_max: defaults::HEAD_MAX,
            fields_max: defaults::FIELDS_MAX,
            // Bodies are streamed, so their length costs no memory.
            body_max: OrNone::None,
            request_buffer: defaults::REQUEST_BUFFER,
            request_rate_min: defaults::REQUEST_RATE_MIN,
            response_rate_min: defaults::RESPONSE_RATE_MIN,
            merge_slashes: defaults::MERGE_SLASHES,
            // No hop is believed unless the operator says so.
            trusted_hops: 0,
            forwarded: Forwarded::XForwarded,
            forwarded_allowed: Vec::new(),
            headers_with_underscores: defaults::HEADERS_WITH_UNDERSCORES,
            // A client that was not checked says nothing of the kind.
            forward_client_cert: ForwardClientCert::Sanitize,
            client_cert_details: vec![
                ClientCertDetail::Subject,
                ClientCertDetail::Uri,
                ClientCertDetail::Dns,
            ],
            via: None,
            request_id: true,
            trust_timeouts: false,
            trust_retries: false,
            grpc_web: false,
        }
    }
}

/// Which fields tell the upstream about the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarded {
    /// None; those that came in are removed unless hops are trusted.
    Off,
    /// `x-forwarded-for`, `-proto`, `-host`, `-port`.
    XForwarded,
    /// `forwarded` (RFC 7239).
    Forwarded,
    /// Both kinds.
    Both,
}

/// What becomes of fields with `_` in their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeadersWithUnderscores {
    /// The request gets 400.
    Refuse,
    /// They are dropped.
    Drop,
    /// Those are dropped whose name is, with `-`, one that Strait reads or sets itself, such as
    /// `x-forwarded-for`, `content-length` or `authorization`, or that begins with `x-forwarded-`.
    DropReserved,
    /// They go through, but for those that begin as `x-forwarded-` does and come from a client.
    Pass,
}

/// What becomes of `x-forwarded-client-cert`. All but the first and the last remove what comes from a client
/// without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForwardClientCert {
    /// It is removed.
    Sanitize,
    /// It goes on as it came from a client with a certificate, such as another proxy.
    ForwardOnly,
    /// The client's certificate is added to it.
    AppendForward,
    /// The client's certificate takes its place.
    SanitizeSet,
    /// It goes on as it came, from any client: for a listener that only trusted proxies reach.
    AlwaysForwardOnly,
}

/// What is said of a client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientCertDetail {
    /// All of it, PEM, percent-encoded.
    Cert,
    /// The same with what leads from it to one that is known.
    Chain,
    /// Whom it is about.
    Subject,
    /// Its URIs, such as `spiffe://example.org/ns/shop/sa/web`.
    Uri,
    /// Its host names.
    Dns,
}

/// How long a downstream may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// From the first byte of a head, or from the accepted connection, to the head's last byte.
    /// Beyond it: 408, or nothing if not a byte came.
    pub request_head: Timeout,
    /// For the first bytes of a connection that may be relayed (`protocol: auto` with a `cluster`),
    /// or whose chain they decide. Beyond it the connection goes on as what they most likely begin,
    /// and without any its service speaks first. Once they begin a ClientHello that decides the
    /// chain, the rest of it has `tls_handshake`.
    pub detect: Timeout,
    /// For the TLS handshake, from the accepted connection to the client's Finished. Beyond it, the
    /// connection is closed, with the requests that came as early data.
    pub tls_handshake: Timeout,
    /// Between requests on a kept connection, which is then closed.
    pub idle: Timeout,
    /// Between two pieces of a request body, while no response has begun. Beyond it: 408. A call of
    /// gRPC has `tunnel_idle` instead.
    pub request_body: Timeout,
    /// For a filter that waits for the answer to a question. Beyond it: 503.
    pub filter: Timeout,
    /// Without progress while response bytes wait for the downstream to take them.
    pub response_write: Timeout,
    /// Without a byte either way in a tunnel (WebSocket), a call of gRPC, or a relayed TCP connection.
    pub tunnel_idle: Timeout,
    /// Age of a connection from which on its client is asked to connect again, or `none`: with GOAWAY over
    /// HTTP/2, and with `connection: close` in the next response over HTTP/1. Each connection has up to 10 % more
    /// or less, so that those that came together do not leave together.
    pub connection_age: OrNone<Timeout>,
    /// How long such a connection may go on with what runs on it. Then it is closed, with its requests, tunnels
    /// and what is relayed.
    pub connection_age_grace: Timeout,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            request_head: Timeout(defaults::REQUEST_HEAD_TIMEOUT),
            detect: Timeout(defaults::DETECT_TIMEOUT),
            tls_handshake: Timeout(defaults::TLS_HANDSHAKE_TIMEOUT),
            idle: Timeout(defaults::DOWNSTREAM_IDLE_TIMEOUT),
            request_body: Timeout(defaults::REQUEST_BODY_TIMEOUT),
            filter: Timeout(defaults::FILTER_TIMEOUT),
            response_write: Timeout(defaults::RESPONSE_WRITE_TIMEOUT),
            tunnel_idle: Timeout(defaults::TUNNEL_IDLE_TIMEOUT),
            // Connections that are used cost nothing by being old.
            connection_age: OrNone::None,
            connection_age_grace: Timeout(defaults::CONNECTION_AGE_GRACE),
        }
    }
}

/// TCP keepalive probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keepalive {
    /// Silence before the first probe, in whole seconds.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "32767s"))]
    pub idle: Period,
    /// Time between probes, in whole seconds.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "32767s"))]
    pub interval: Period,
    /// Unanswered probes that end the connection.
    #[schemars(range(max = 127))]
    pub probes: NonZeroU32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            idle: defaults::KEEPALIVE_IDLE,
            interval: defaults::KEEPALIVE_INTERVAL,
            probes: defaults::KEEPALIVE_PROBES,
        }
    }
}

/// Stands in the schema where the filters that a program knows are put.
#[derive(Debug, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoFilter {}

const fn buffered_max() -> OrNone<Size> {
    OrNone::Some(defaults::BUFFERED_MAX)
}

const fn connections_max() -> NonZeroU32 {
    defaults::DOWNSTREAM_CONNECTIONS_MAX
}

const fn weight() -> NonZeroU16 {
    defaults::WEIGHT
}

const fn backlog() -> NonZeroU32 {
    defaults::BACKLOG
}
