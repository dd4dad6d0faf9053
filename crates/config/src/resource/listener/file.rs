//! `listeners`: where connections are taken, and how HTTP is read there.

use std::num::{NonZeroU16, NonZeroU32};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::rpc::RpcName;

use crate::address::Address;
use crate::cidr::Cidr;
use crate::defaults;
use crate::file::http2::Http2;
use crate::file::keepalive::Keepalive;
use crate::file::one_or_several::OneOrSeveral;
use crate::file::rpc::Rpc;
use crate::file::scalar::{OrNone, Timeout};
use crate::file_mode::FileMode;
use crate::resource::error_pages::ErrorPage;
use crate::resource::listener::chain::ListenerChain;
use crate::resource::tls::file::ListenerTls;
use crate::units::Size;

/// Addresses to listen on, and what happens to their connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "bind": "write `address`",
    "body_max": "write `http: { body_max: … }`",
    "client_max_body_size": "write `http: { body_max: … }`",
    "filter_chains": "write `chains`",
    "limit_conn": "write `connections_per_client_max` or `exchanges_per_client_max`",
    "limit_req": "no limit of requests per second exists; `requests_max`, `exchanges_per_client_max`, `connections_per_client_max` and `accept_rate` limit what is active and new connections",
    "listen": "write `address`",
    "port": "write `address`, with the port behind a colon",
    "rate_limit": "no limit of requests per second exists; `requests_max`, `exchanges_per_client_max`, `connections_per_client_max` and `accept_rate` limit what is active and new connections",
    "route_config": "write `routes`",
    "rules": "write them in an entry of `routes`, and its name here",
    "server_name": "write `hosts` in an entry of `routes`",
    "ssl": "write `tls`",
    "ssl_certificate": "write `tls: { certificates: [{ chain: FILE, key: FILE }] }`",
    "transport_socket": "write `tls`",
}))]
pub struct Listener {
    /// Name in logs and metrics. Unique among listeners.
    pub name: String,
    /// The address to listen on, or a list of several. Each must be unique among listeners. If the addresses,
    /// `backlog`, `fast_open`, `keepalive` or `original_destination` change, Strait opens new sockets, and connections
    /// of the old ones drain.
    pub address: OneOrSeveral<Address>,
    /// The protocol of its connections.
    #[serde(default)]
    pub protocol: Protocol,
    /// Terminates TLS. Absent: connections are plaintext, or their TLS is passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// The filters for HTTP requests, in order. Each item is a map with one key, the filter's name, whose value is the
    /// filter's configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<NoFilter>")]
    pub filters: Vec<serde_json::Value>,
    /// The handlers that decide which rule a request meets before `routes` are asked, in order. Each item is a map with one
    /// key, the handler's name, whose value is the handler's configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<NoFilter>")]
    pub handlers: Vec<serde_json::Value>,
    /// The route table for HTTP requests, or a list of several. Two of them must not contain the same host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<OneOrSeveral<String>>,
    /// The cluster that connections are relayed to: all connections of a `tcp` listener, and those of an `auto`
    /// listener that are not HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Instead of `cluster`: several clusters, one of which is selected at random by weight for each connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<WeightedCluster>,
    /// Filter chains with other settings for some connections. Other connections use the settings of the listener
    /// itself, or are closed if it has neither `routes` nor a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<ListenerChain>,
    /// How HTTP is parsed and rewritten.
    #[serde(default)]
    pub http: Http,
    /// Limits of one HTTP/2 connection.
    #[serde(default)]
    #[schemars(extend("x-meant" = {
        "true": "remove it: HTTP/2 is accepted by default",
        "false": "write `protocol: http1` beside it, and remove this",
    }))]
    pub http2: Http2,
    /// Limits of one connection of an RPC protocol.
    #[serde(default)]
    pub rpc: Rpc,
    /// Whether each connection begins with a PROXY protocol header, version 1 or 2. A connection without it is closed.
    /// The header contains the address of the client, so `from` lists the proxies that may send it; with `true`, every
    /// peer may.
    #[serde(default)]
    pub proxy_protocol: ProxyProtocol,
    /// How Strait finds the address to which a connection was going before firewall rules of this machine redirected
    /// it. That address, the original destination, replaces the listener's own in `x-forwarded-port` and in PROXY
    /// protocol headers, and clusters with `original_destination` connect to it.
    #[serde(default)]
    pub original_destination: OriginalDestination,
    /// Timeouts for clients.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Open connections in the process, split evenly among the workers, each of which has at least one. Beyond its
    /// share, a worker closes new connections at once. The kernel distributes connections at random, so with several
    /// workers some may be closed slightly below the limit.
    #[serde(default = "connections_max")]
    pub connections_max: NonZeroU32,
    /// Open connections of one client to this listener, split among the workers like `connections_max`. A client is an
    /// IPv4 address, or the /64 network of an IPv6 address. Beyond it, new connections are closed at once. Absent: half
    /// of `connections_max`, so that a load balancer in front may have many. If `http.trusted_hops` says that peers are
    /// proxies, there is no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_client_max: Option<NonZeroU32>,
    /// New connections per second, in the whole process. As many may come at once. Beyond it, new connections are closed
    /// at once. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_rate: Option<NonZeroU32>,
    /// Active requests, in the whole process, from their head to the end of the response, waiting ones included; not
    /// relayed connections. Beyond it: 503. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_max: Option<NonZeroU32>,
    /// Active exchanges of one client at this listener, split among the workers in the same way. With
    /// `http.trusted_hops`, the client is the one that the trusted proxies name. Beyond it: 429. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchanges_per_client_max: Option<NonZeroU32>,
    /// Bytes that the clients of the listener may occupy in buffers of the process, split evenly among the workers:
    /// incomplete heads, bodies that wait, and responses that clients do not read. Each worker checks ten times a
    /// second, as soon as its buffers are that large. While a listener exceeds the limit, its connections that occupy
    /// the most are closed, and among equal ones the one whose client has been stalled the longest. `none`: no limit.
    #[serde(default = "buffered_max")]
    #[schemars(extend("x-minimum" = "64KiB"))]
    pub buffered_max: OrNone<Size>,
    /// Permissions of its unix socket, as for chmod(1). A program needs write permission to connect. Absent: `0660`. A
    /// change requires a restart, an upgrade, or another path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    /// Length of the queue of connections that are not accepted yet. The kernel limits it to `net.core.somaxconn`.
    #[serde(default = "backlog")]
    #[schemars(range(max = 1_048_576))]
    pub backlog: NonZeroU32,
    /// Length of the queue for TCP Fast Open. Absent: Fast Open is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_048_576))]
    pub fast_open: Option<NonZeroU32>,
    /// TCP keep-alive of accepted connections. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
}

impl Listener {
    /// Whether it listens on a unix socket, be it beside other addresses.
    pub(crate) fn has_unix(&self) -> bool {
        self.address.as_slice().iter().any(Address::is_unix)
    }
}

/// Whether connections begin with a PROXY protocol header, and which peers may send it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ProxyProtocol {
    /// All connections, from any peer, or none.
    Any(bool),
    /// All connections, and only from these peers.
    Listed(ProxyProtocolSources),
}

impl Default for ProxyProtocol {
    fn default() -> Self {
        Self::Any(false)
    }
}

/// The proxies that may send PROXY protocol headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyProtocolSources {
    /// Address ranges of the proxies. A connection from another address is closed at accept, and counted as
    /// `proxy_protocol_source` in `strait_downstream_connections_refused_total`.
    #[schemars(length(min = 1))]
    pub from: Vec<Cidr>,
}

/// The protocol of connections.
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
    /// HTTP/1 and HTTP/2 (by prior knowledge, or `Upgrade: h2c`). With a `cluster`, the first bytes of each connection
    /// decide whether it is HTTP; connections that are not HTTP are relayed.
    #[default]
    Auto,
    /// HTTP/1 only.
    Http1,
    /// HTTP/2 only, by prior knowledge.
    Http2,
    /// Any protocol: bytes are relayed unchanged.
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

/// How Strait finds the original destination of a connection.
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
    /// Connections are not redirected.
    #[default]
    Off,
    /// The kernel redirects connections (REDIRECT, DNAT), and Strait asks it for the destination (`SO_ORIGINAL_DST`).
    Redirect,
    /// The kernel delivers connections unmodified (TPROXY, `IP_TRANSPARENT`). Needs `CAP_NET_ADMIN`.
    Tproxy,
}

/// A cluster and its share of the connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedCluster {
    /// Name of the cluster.
    pub cluster: String,
    /// Its share, relative to the other weights of the listener.
    #[serde(default = "weight")]
    pub weight: NonZeroU16,
}

/// How HTTP is parsed and rewritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "client_max_body_size": "write `body_max`",
}))]
pub struct Http {
    /// Bodies of replies to failures. The first page that matches a failure is used, if the route table has none that
    /// matches. gRPC calls get `grpc-status` instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub error_pages: Vec<ErrorPage>,
    /// Bytes of a request line (method, target, version). Beyond it: 414.
    #[schemars(extend("x-minimum" = "64B", "x-maximum" = "60KiB"))]
    pub request_line_max: Size,
    /// Bytes of a request head, including the request line. Beyond it: 431.
    #[schemars(extend("x-minimum" = "256B", "x-maximum" = "60KiB"))]
    pub head_max: Size,
    /// Fields of a request head. Beyond it: 431.
    #[schemars(range(min = 1, max = 1000))]
    pub fields_max: u16,
    /// Bytes of a request body, or `none`. Beyond it: 413.
    pub body_max: OrNone<Size>,
    /// Bytes of a request body that must have arrived before the request takes a connection, once half of the cluster's
    /// `connections_max` are in use; a shorter body must have arrived completely. This keeps slow clients from
    /// occupying more than half of a cluster. 0 disables it. It does not apply to gRPC calls, requests for tunnels, and
    /// requests that wait for `100 Continue`.
    #[schemars(extend("x-maximum" = "64KiB"))]
    pub request_buffer: Size,
    /// Minimum rate in bytes per second at which a client must send a request body while Strait waits for it. Each byte
    /// extends `timeouts.request_body` only by its part of a second, so a client below the rate gets 408 when it has
    /// used up that timeout. 0 disables it.
    #[schemars(extend("x-maximum" = "1MiB"))]
    pub request_rate_min: Size,
    /// The same for a response that waits for the client to read it, with `timeouts.response_write`.
    #[schemars(extend("x-maximum" = "1MiB"))]
    pub response_rate_min: Size,
    /// Whether consecutive slashes in the path of a request are merged: `//admin/` becomes `/admin/`, for rules and for
    /// upstreams.
    pub merge_slashes: bool,
    /// Number of proxies in front of Strait that are trusted. Strait believes their `x-forwarded-*`, `forwarded` and
    /// `x-request-id`, and appends to them. 0: the peer is the client, and Strait replaces those fields.
    #[schemars(range(max = 16))]
    pub trusted_hops: u8,
    /// Which fields inform the upstream about the client.
    pub forwarded: Forwarded,
    /// Further fields with names that begin with `x-forwarded-`, such as `x-forwarded-prefix`, that are forwarded
    /// although no hop is trusted. All others that a client sends are removed.
    pub forwarded_allowed: Vec<String>,
    /// How to treat request fields and trailers with `_` in their names. Many upstreams treat `_` like `-`, and read
    /// `x_forwarded_for` as `x-forwarded-for`.
    pub headers_with_underscores: HeadersWithUnderscores,
    /// How to treat `x-forwarded-client-cert`, which describes the certificates of clients.
    pub forward_client_cert: ForwardClientCert,
    /// Which properties of a client's certificate the field contains, in addition to its digest and the name of
    /// Strait's own certificate.
    pub client_cert_details: Vec<ClientCertDetail>,
    /// Name for a `via` field that is added to requests and responses. Absent: `via` does not change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// Whether a request without a trusted `x-request-id` gets one.
    pub request_id: bool,
    /// Whether requests may set their timeout with `x-envoy-upstream-rq-timeout-ms`, in milliseconds. It replaces the
    /// `timeout` of the rule; 0 means no timeout. The upstream gets it as `x-envoy-expected-rq-timeout-ms`. Use it only
    /// for trusted clients. With `false`, these fields are removed.
    pub trust_timeouts: bool,
    /// Whether requests may control their retries, in addition to `retry` of the rule: `x-envoy-retry-on` and
    /// `x-envoy-retry-grpc-on` add to `on`; `x-envoy-max-retries` (up to 15) and
    /// `x-envoy-upstream-rq-per-try-timeout-ms` replace `attempts_max` and `try_timeout`;
    /// `x-envoy-hedge-on-per-try-timeout` (`true` or `false`) replaces `hedge`; `x-envoy-retriable-status-codes` and `x-envoy-retriable-header-names` add to `status` and `headers`. Only the
    /// rule decides which methods are retried. Use it only for trusted clients. These fields are always removed.
    pub trust_retries: bool,
    /// Whether gRPC-Web calls, in both forms, are forwarded as gRPC calls, and their responses converted back. Their
    /// clusters need `protocol: http2`. Browsers on other origins also need CORS.
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
            headers_with_underscores: HeadersWithUnderscores::default(),
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

/// Which fields inform the upstream about the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarded {
    /// No fields are added; received ones are removed unless hops are trusted.
    Off,
    /// `x-forwarded-for`, `-proto`, `-host`, `-port`.
    XForwarded,
    /// `forwarded` (RFC 7239).
    Forwarded,
    /// All of these fields.
    Both,
}

/// How to treat fields with `_` in their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeadersWithUnderscores {
    /// The request gets 400.
    Refuse,
    /// They are removed.
    Drop,
    /// They are removed if the name, with `-`, is one that Strait reads or sets itself, such as `x-forwarded-for`,
    /// `content-length` or `authorization`, or begins with `x-forwarded-`.
    // The default: services that take `_` for `-` must not read from a client what Strait says or has removed; fields of other
    // names concern the service alone. (Envoy lets all pass, nginx drops all.)
    #[default]
    DropReserved,
    /// They are forwarded, except those of clients that begin like `x-forwarded-`.
    Pass,
}

/// How to treat `x-forwarded-client-cert`. All values except the first and the last remove the field of a client
/// without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForwardClientCert {
    /// The field is removed.
    Sanitize,
    /// The field is forwarded unchanged if the client, such as another proxy, has a certificate.
    ForwardOnly,
    /// The client's certificate is appended to the field.
    AppendForward,
    /// The client's certificate replaces the field.
    SanitizeSet,
    /// The field is forwarded unchanged from any client: for a listener that only trusted proxies can reach.
    AlwaysForwardOnly,
}

/// A property of a client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientCertDetail {
    /// The whole certificate as PEM, percent-encoded.
    Cert,
    /// The same with its intermediate certificates.
    Chain,
    /// Its subject.
    Subject,
    /// Its URIs, such as `spiffe://example.org/ns/shop/sa/web`.
    Uri,
    /// Its host names.
    Dns,
}

/// Timeouts for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// From the first byte of a request head, or from accept, to the last byte of the head. Beyond it: 408, or no reply
    /// if not a byte was received.
    pub request_head: Timeout,
    /// For the first bytes of a connection whose protocol or filter chain they decide (`protocol: auto` with a
    /// `cluster`, or `chains`). Beyond it, the connection continues as the protocol that the bytes most likely begin;
    /// without any bytes it is relayed, and its upstream may speak first. A ClientHello that has begun and decides the
    /// filter chain must be complete within `tls_handshake`.
    pub detect: Timeout,
    /// For the TLS handshake, from accept to the client's Finished message. Beyond it, the connection is closed,
    /// including requests in early data.
    pub tls_handshake: Timeout,
    /// Between requests of a keep-alive connection. Beyond it, the connection is closed.
    pub idle: Timeout,
    /// Between two parts of a request body, while no response has begun. Beyond it: 408. gRPC calls have `tunnel_idle`
    /// instead.
    pub request_body: Timeout,
    /// For a filter that waits for the answer to a question. Beyond it: 503.
    pub filter: Timeout,
    /// Without progress while response bytes wait for the client to read them.
    pub response_write: Timeout,
    /// Without a byte in either direction in a tunnel (WebSocket), a gRPC call, or a relayed TCP connection.
    pub tunnel_idle: Timeout,
    /// Age at which a connection asks its client to reconnect, or `none`: with GOAWAY over HTTP/2, with `connection:
    /// close` in the next response over HTTP/1. Each connection has up to 10 % more or less, so that connections opened
    /// together do not end together.
    pub connection_age: OrNone<Timeout>,
    /// How long active requests, tunnels and relayed data of such a connection may continue. Then the connection is
    /// closed.
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
