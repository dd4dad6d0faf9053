//! `clusters`: the services that requests are forwarded to.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use wire::rpc::RpcName;

use crate::resource::cluster::adaptive::AdaptiveConcurrency;

use crate::address::Address;
use crate::decimal::Decimal;
use crate::defaults;
use crate::file::http2::Http2;
use crate::file::keepalive::Keepalive;
use crate::file::rpc::Rpc;
use crate::file::scalar::{OrNone, Timeout};
use crate::percent::Percent;
use crate::resource::assignment::dns::{DnsFamily, DnsMode, EndpointAddress};
use crate::resource::assignment::file::ReportedHealth;
use crate::resource::assignment::locality::Localities;
use crate::resource::cluster::balance::Balance;
use crate::resource::cluster::checks::Check;
use crate::resource::cluster::outlier::Outlier;
pub use crate::resource::cluster::parsing::ResponseParsing;
use crate::resource::cluster::priority::Bounds;
use crate::resource::cluster::slow_start::SlowStart;
use crate::resource::cluster::subsets::{Metadata, Subsets};
use crate::resource::cluster::transports::EndpointTransport;
use crate::resource::route::retry::RetryBudget;
use crate::resource::tls::file::ClusterTls;
use crate::units::Period;

/// An upstream service with its endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "algorithm": "write `balance`",
    "dns": "write `endpoints: { dns: HOST:PORT }`",
    "health_check": "write `checks`",
    "hosts": "write `endpoints`",
    "http2_protocol_options": "write `protocol: http2`",
    "load_assignment": "write `endpoints`",
    "max_connections": "write `connections_max`, or `connections_per_endpoint_max` for each endpoint",
    "max_conns": "write `connections_per_endpoint_max`",
    "maxconn": "write `connections_per_endpoint_max`, or `connections_max` for all endpoints together",
    "max_pending_requests": "write `pending_max`",
    "max_requests": "write `requests_max`",
    "circuit_breakers": "write connections_max, pending_max, requests_max and retry_budget here, and `high_priority` for that priority",
    "health_checks": "write `checks`",
    "outlier_detection": "write `outlier`",
    "lb_policy": "write `balance`",
    "nodes": "write `endpoints`",
    "preconnect_policy": "write `preconnect`, the ratio for each endpoint",
    "servers": "write `endpoints`",
    "sni": "write `tls: { server_name: … }`",
    "ssl": "write `tls`",
    "targets": "write `endpoints`",
    "timeout": "write `connect_timeout` or `timeouts`, or `timeout` in the rule of the route",
    "transport_socket": "write `tls`",
    "transport_socket_matches": "write `transports`",
    "upstream_tls": "write `tls`",
}))]
pub struct Cluster {
    /// Name in routes, logs and metrics. Unique among clusters.
    pub name: String,
    /// Its endpoints: a list, a file that contains a list, or a DNS name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Endpoints>,
    /// Instead of `endpoints`: connects to the original destination of the downstream connection, according to
    /// `original_destination` of the listener. If there is none, or if it is an address of a listener of this process
    /// (`0.0.0.0` and `[::]` include every address with their port): 503.
    #[serde(default)]
    pub original_destination: bool,
    /// How requests are distributed among the endpoints. A change applies to new requests. Absent: `round_robin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<Balance>,
    /// How requests are distributed among the localities of endpoints, before `balance` selects an endpoint there. Not
    /// with `maglev` and `ring_hash`. Absent: localities are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localities: Option<Localities>,
    /// Gives new endpoints less than their weight for a while. With `round_robin`, `random`, `least_request` and
    /// `peak_ewma`. Absent: new endpoints have their full weight at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<SlowStart>,
    /// Health checks of each endpoint. An endpoint that fails gets no requests. Absent: no checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub checks: Vec<Check>,
    /// With `checks`, how long a new cluster waits for the first check of each of its endpoints, at most. Until then its
    /// requests wait in the queue (`pending_max`, `timeouts.pending`), and `/ready` of a process that starts answers 503. An
    /// endpoint gets no request before it has passed. Absent: a new cluster does not wait, and its endpoints get requests
    /// before their first check.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub initial_check_timeout: Option<Period>,
    /// Outlier detection: ejects endpoints for a while if their attempts fail. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlier: Option<Outlier>,
    /// If fewer than this share of the endpoints of a priority are available and the other priorities cannot take the
    /// load, all of its endpoints get requests, including ejected and unhealthy ones. 0: never; requests get 503.
    #[serde(default = "panic")]
    pub panic: Percent,
    /// Groups of endpoints by `metadata`; `subset` of a rule selects one. Absent: requests may go to any endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subsets: Option<Subsets>,
    /// The protocol of the endpoints.
    #[serde(default)]
    pub protocol: Protocol,
    /// Limits of one HTTP/2 connection.
    #[serde(default)]
    #[schemars(extend("x-meant" = {
        "true": "remove it, and write `protocol: http2` beside it",
        "false": "remove it: HTTP/1 is the default",
    }))]
    pub http2: Http2,
    /// Limits of one connection of an RPC protocol.
    #[serde(default)]
    pub rpc: Rpc,
    /// How strictly HTTP/1 responses are parsed. In both modes Strait forwards responses in strict form, and refuses
    /// anything that could hide a second response.
    #[serde(default)]
    pub response_parsing: ResponseParsing,
    /// Interim responses (1xx) before the final one. Beyond it: 502.
    #[serde(default = "interim_responses_max")]
    pub interim_responses_max: u8,
    /// Uses TLS to the endpoints. Absent: connections are plaintext. After a change, new connections use the new
    /// settings, and old ones drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTls>,
    /// Other settings for some endpoints, selected by their `metadata`: the first entry that matches is used, in place of
    /// `tls`. Not with `proxy_protocol`. Absent: all endpoints have the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub transports: Vec<EndpointTransport>,
    /// Time to establish a connection, including TLS. Beyond it: another attempt, three in total, then 503.
    #[serde(default = "connect_timeout")]
    pub connect_timeout: Timeout,
    /// Timeouts for upstreams.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Open connections in the process. Beyond it, exchanges wait. A worker that has more than its share of the
    /// connections closes one for another worker that has less.
    #[serde(default = "connections_max")]
    pub connections_max: NonZeroU32,
    /// Open connections to each endpoint in the process, those of health checks not included. Beyond it, a request goes to
    /// another endpoint, or waits. Not with `original_destination`. Requests of high priority are not limited by it. Absent:
    /// only `connections_max` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_endpoint_max: Option<NonZeroU32>,
    /// Exchanges that wait for a connection in the process. Beyond it: 503.
    #[serde(default = "pending_max")]
    pub pending_max: u32,
    /// Active requests at the endpoints in the process; waiting requests, relayed connections and health checks do
    /// not count. Beyond it: 503, at once. Absent: only connections and their streams are limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_max: Option<NonZeroU32>,
    /// Limits active requests by how long responses take, within `requests_max`. Beyond it: 503. Absent: no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive_concurrency: Option<AdaptiveConcurrency>,
    /// Requests on one connection. After the last one it closes, once its active requests have ended. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_connection_max: Option<NonZeroU32>,
    /// Connections that are open to an endpoint for each of its active requests, in each worker: with 1.5, the first request
    /// opens two, so that the next one need not wait until its connection is established. One HTTP/2 connection is enough for
    /// as many requests as it may have streams. From 1 to 3. Not with `proxy_protocol` and `original_destination`. Absent: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preconnect: Option<Decimal>,
    /// Limits the share of retries among the active requests of the process whose rules have `retry`. Beyond it, the
    /// client gets the response or the failure.
    #[serde(default)]
    pub retry_budget: RetryBudget,
    /// Limits of requests whose rule has `priority: high`, in place of those above. These have connections and a queue of
    /// their own. Absent: the defaults, as for `{}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_priority: Option<Box<Bounds>>,
    /// Whether each connection begins with a PROXY protocol header that names the client. Such a connection is used for
    /// one client only.
    #[serde(default)]
    pub proxy_protocol: ProxyProtocol,
    /// TCP keep-alive. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
    /// Whether the first bytes of a request may be sent with the SYN (TCP Fast Open).
    #[serde(default)]
    pub fast_open: bool,
    /// Mark of outgoing packets (`SO_MARK`), so that firewall rules of this machine can recognise them and not redirect
    /// them again. Needs `CAP_NET_ADMIN`. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<NonZeroU32>,
}

/// The protocol of endpoints.
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
#[schemars(extend("x-meant" = {
    "https": "leave `protocol` out, and add `tls: {}` to the cluster",
    "tls": "leave `protocol` out, and add `tls: {}` to the cluster",
    "http": "leave `protocol` out, or write http1",
    "auto": "leave `protocol` out, or write http1",
    "grpc": "write http2, which carries gRPC",
    "h2c": "write http2",
    "h2": "write http2",
    "tcp": "leave `protocol` out: whether bytes are relayed is a matter of the listener's `protocol: tcp`",
    "http3": "HTTP/3 is not supported: write http2",
}))]
pub enum Protocol {
    /// HTTP/1.1: one request at a time on a connection.
    #[default]
    Http1,
    /// HTTP/2 by prior knowledge: many requests share a connection. gRPC needs it.
    Http2,
    /// An RPC protocol, which the program registers: many calls share a connection.
    #[serde(untagged)]
    #[schemars(skip)]
    Rpc(RpcName),
}

impl Cluster {
    /// The endpoints that stand in the text.
    pub(crate) fn listed_endpoints(&self) -> &[Endpoint] {
        match &self.endpoints {
            Some(Endpoints::List(endpoints)) => endpoints,
            Some(Endpoints::File(_) | Endpoints::Dns(_)) | None => &[],
        }
    }
}

/// A list of endpoints, a file that contains one, or a DNS name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Endpoints {
    /// The endpoints.
    List(Vec<Endpoint>),
    /// A file with the endpoints.
    File(EndpointsFile),
    /// A DNS name whose addresses are the endpoints.
    Dns(EndpointsDns),
}

/// A file with the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointsFile {
    /// Path of the file, relative to the folder of the configuration. It contains a list like `endpoints`, in YAML or
    /// JSON, of at most 8 MiB and 100,000 endpoints. Several clusters may use the same file. Strait watches it, and
    /// applies changes without reading the configuration again. While it has an error or cannot be read, the last valid
    /// list stays in use.
    pub file: String,
}

/// A name that Strait resolves with DNS, repeatedly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointsDns {
    /// The host with a port, such as `api.internal:8080`; in mode `srv`, the name of the records without a port, such
    /// as `_http._tcp.api.internal`. Strait resolves it again when the time to live of an answer ends. If the name does
    /// not exist or has no addresses, the cluster has no endpoints. While no server responds, or servers report
    /// failures, the last addresses stay in use. At most 4,096 addresses are used.
    pub dns: String,
    /// How its addresses are used.
    #[serde(default)]
    pub mode: DnsMode,
    /// Which addresses are queried.
    #[serde(default)]
    pub family: DnsFamily,
    /// An answer is used for at least this time, whatever its time to live.
    #[serde(default = "ttl_min")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "24h"))]
    pub ttl_min: Period,
    /// An answer is used for at most this time, whatever its time to live.
    #[serde(default = "ttl_max")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "24h"))]
    pub ttl_max: Period,
}

/// An address, or a map with an address and a weight.
// Each of tens of thousands stays as it was written, and takes a third of the memory for that where it is an address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Endpoint {
    /// An address, or a host with a port, with weight 1.
    Address(EndpointAddress),
    /// An address with further properties.
    Weighted(Box<WeightedEndpoint>),
}

/// As it is shown, with every default.
impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Address(address) => WeightedEndpoint::from(address.clone()).serialize(serializer),
            Self::Weighted(weighted) => weighted.serialize(serializer),
        }
    }
}

impl Endpoint {
    pub(crate) fn address(&self) -> &EndpointAddress {
        match self {
            Self::Address(address) => address,
            Self::Weighted(weighted) => &weighted.address,
        }
    }

    pub(crate) fn priority(&self) -> u8 {
        match self {
            Self::Address(_) => 0,
            Self::Weighted(weighted) => weighted.priority,
        }
    }

    /// Leaves out what is the default anyway: two that mean the same are equal then.
    pub(crate) fn shorten(&mut self) {
        if let Self::Weighted(weighted) = self {
            let shortened = WeightedEndpoint::from(weighted.address.clone());
            if **weighted == shortened {
                *self = Self::Address(shortened.address);
            }
        }
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        static NONE: Metadata = Metadata::new();
        match self {
            Self::Address(_) => &NONE,
            Self::Weighted(weighted) => &weighted.metadata,
        }
    }

    pub(crate) fn is_unix(&self) -> bool {
        self.address().address().is_some_and(Address::is_unix)
    }
}

/// An address with further properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "backup": "write `priority: 1`",
    "fail_timeout": "write `outlier` in the cluster",
    "health_status": "write `health`",
    "hostname": "write `host`",
    "load_balancing_weight": "write `weight`",
    "max_fails": "write `outlier` in the cluster",
}))]
pub struct WeightedEndpoint {
    /// Its address, or a host with a port, each of whose addresses becomes an endpoint (as with `dns` in mode
    /// `strict`). Unique in the cluster.
    pub address: EndpointAddress,
    /// Its share of the requests, relative to the other weights of the cluster. Each address of a host has this weight.
    /// 0: it gets no new requests, and active ones finish.
    #[serde(default = "weight")]
    pub weight: u16,
    /// Requests go to the available endpoints with the lowest number. Others get requests only if there are none, or
    /// after an attempt at the only one failed. Numbers begin at 0, and none is skipped.
    #[serde(default)]
    pub priority: u8,
    /// Its location for `localities`: a region, a zone in it, and a part of that zone, such as `eu/a`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<String>,
    /// Its health, as far as the author of this list knows. What `checks` and `outlier` find out counts, too: the worse of
    /// both applies.
    #[serde(default)]
    pub health: ReportedHealth,
    /// Its properties for `subsets` and `transports`, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// Its host name, for the server name of TLS and for `rewrite.host_endpoint`. A host in `address` is its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl From<EndpointAddress> for WeightedEndpoint {
    fn from(address: EndpointAddress) -> Self {
        Self {
            address,
            weight: weight(),
            priority: 0,
            locality: None,
            health: ReportedHealth::default(),
            metadata: Metadata::new(),
            host: None,
        }
    }
}

/// Timeouts for upstreams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "connect": "write `connect_timeout`, beside `timeouts`",
    "connect_timeout": "it belongs beside `timeouts`",
    "request": "write `timeout` in the rule of the route",
    "response": "write `response_head` or `response_body`",
}))]
pub struct Timeouts {
    /// For a connection while `connections_max` are in use, or until one that is established has said how many requests
    /// it takes. Beyond it: 503.
    pub pending: Timeout,
    /// From the last byte of the request to the head of the response. Beyond it: 504. gRPC calls have the listener's
    /// `tunnel_idle` instead, because upstreams may send the head only with their first message.
    pub response_head: Timeout,
    /// After a response has begun: without a byte of its body, or of a request body that is still being sent. Beyond
    /// it, the response is truncated. gRPC calls have the listener's `tunnel_idle` instead.
    pub response_body: Timeout,
    /// Without progress while request bytes wait for the upstream to read them.
    pub request_write: Timeout,
    /// While other exchanges wait for a connection: how long an exchange may keep one although its client is stalled,
    /// that is, sends nothing of the request body or reads nothing of the response. The longest stalled exchange is
    /// ended first. If its client occupies more than an eighth of `connections_max`, and more than twice as many as the
    /// waiting client, it is ended after 100 ms. `none`: never.
    pub stall: OrNone<Timeout>,
    /// Idle time in the pool. Keep it shorter than the time after which the upstream closes.
    pub idle: Timeout,
    /// Age from which a connection takes no further requests, or `none`. It closes once its active requests have ended.
    /// Each connection has up to 10 % more or less, so that connections opened together do not end together.
    pub connection_age: OrNone<Timeout>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            pending: Timeout(defaults::PENDING_TIMEOUT),
            response_head: Timeout(defaults::RESPONSE_HEAD_TIMEOUT),
            response_body: Timeout(defaults::RESPONSE_BODY_TIMEOUT),
            request_write: Timeout(defaults::REQUEST_WRITE_TIMEOUT),
            stall: OrNone::Some(Timeout(defaults::STALL_TIMEOUT)),
            idle: Timeout(defaults::UPSTREAM_IDLE_TIMEOUT),
            connection_age: OrNone::None,
        }
    }
}

/// Which PROXY protocol header is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProxyProtocol {
    /// No header is sent.
    #[default]
    Off,
    /// Version 1, text.
    V1,
    /// Version 2, binary.
    V2,
}

impl ProxyProtocol {
    /// Whether connections begin with a header.
    #[must_use]
    pub const fn is_sent(self) -> bool {
        !matches!(self, Self::Off)
    }
}

const fn connect_timeout() -> Timeout {
    Timeout(defaults::CONNECT_TIMEOUT)
}

const fn connections_max() -> NonZeroU32 {
    defaults::UPSTREAM_CONNECTIONS_MAX
}

fn panic() -> Percent {
    Percent::HALF
}

const fn interim_responses_max() -> u8 {
    defaults::INTERIM_RESPONSES_MAX
}

const fn pending_max() -> u32 {
    defaults::PENDING_MAX
}

const fn ttl_min() -> Period {
    defaults::DNS_TTL_MIN
}

const fn ttl_max() -> Period {
    defaults::DNS_TTL_MAX
}

const fn weight() -> u16 {
    defaults::WEIGHT.get()
}
