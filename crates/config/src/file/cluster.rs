//! `clusters`: the services that requests are forwarded to.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::rpc::RpcName;

use super::listener::Keepalive;
use super::{ClusterTls, Http2, OrNone, Rpc, Timeout};
use crate::address::Address;
use crate::balance::Balance;
use crate::checks::Check;
use crate::defaults;
use crate::dns::{DnsFamily, DnsMode, EndpointAddress};
use crate::locality::Localities;
use crate::matching::Percent;
use crate::outlier::Outlier;
use crate::retry::RetryBudget;
use crate::slow_start::SlowStart;
use crate::subsets::{Metadata, Subsets};
use crate::units::Period;

/// A logical service with its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Name, used by routes, in logs and metrics. Unique among clusters.
    pub name: String,
    /// Its addresses: a list, a file that holds one, or a name that DNS knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Endpoints>,
    /// In place of `endpoints`: connects to where the downstream connection was going before it was
    /// brought here, as the listener's `original_destination` tells. Without such an address, or
    /// with one that a listener here has (`0.0.0.0` and `[::]` have all of their port): 503.
    #[serde(default)]
    pub original_destination: bool,
    /// How requests are shared among its endpoints. A change holds for requests that begin after it.
    /// Absent: `round_robin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<Balance>,
    /// How requests are shared by the `locality` of endpoints, before `balance` chooses there: not with `maglev` and
    /// `ring_hash`. Absent: localities do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localities: Option<Localities>,
    /// Gives an endpoint that came lately less than its weight says, for a while: with `round_robin`, `random`,
    /// `least_request` and `peak_ewma`. Absent: it gets all at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<SlowStart>,
    /// Asks each endpoint at intervals whether it is well: one that is not gets no requests. Absent: none is asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub checks: Vec<Check>,
    /// Ejects endpoints for a while whose attempts fail. Absent: none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlier: Option<Outlier>,
    /// All endpoints get requests, those that are ejected or fail checks too, while fewer than this share of them (of
    /// each priority) is left and the others cannot take their load. With 0, never: requests get 503.
    #[serde(default = "panic")]
    pub panic: Percent,
    /// Groups of its endpoints by their `metadata`, of which rules choose one by `subset`. Absent: each request may go
    /// to any endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subsets: Option<Subsets>,
    /// What its endpoints speak.
    #[serde(default)]
    pub protocol: Protocol,
    /// What one connection of HTTP/2 may hold.
    #[serde(default)]
    pub http2: Http2,
    /// What one connection of an RPC protocol may hold.
    #[serde(default)]
    pub rpc: Rpc,
    /// How strictly its responses in HTTP/1 are read. What goes on to clients is in plain form either
    /// way, and what could hide a second response is refused either way.
    #[serde(default)]
    pub response_parsing: ResponseParsing,
    /// Interim responses (1xx) that it may send before the final one. Beyond it: 502.
    #[serde(default = "interim_responses_max")]
    pub interim_responses_max: u8,
    /// Speaks TLS with its endpoints. Absent: connections are not encrypted. A change opens new
    /// connections; those of before finish what they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTls>,
    /// Time to establish a connection, TLS included. Beyond it: another attempt, three in all, then 503.
    #[serde(default = "connect_timeout")]
    pub connect_timeout: Timeout,
    /// How long peers may take.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Connections open at a time, in the process. Beyond it, exchanges wait; a worker that has more than its part of
    /// them closes one for another that has less.
    #[serde(default = "connections_max")]
    pub connections_max: NonZeroU32,
    /// Exchanges that wait for a connection at a time, in the process. Beyond it: 503.
    #[serde(default = "pending_max")]
    pub pending_max: u32,
    /// Requests under way at its endpoints at a time, in the process: those that wait do not count, nor do relayed
    /// connections and health checks. Beyond it: 503, at once. Absent: no bound but that of connections and their streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_max: Option<NonZeroU32>,
    /// How many of the requests under way in the process may be retries, of those whose rules have `retry`. Beyond it: the
    /// response, or the failure, goes to the client.
    #[serde(default)]
    pub retry_budget: RetryBudget,
    /// Whether each connection begins with a PROXY protocol header that names the client. Such
    /// connections are used for one client only.
    #[serde(default)]
    pub proxy_protocol: ProxyProtocol,
    /// TCP keepalive. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
    /// Whether a request's first bytes may travel with the SYN (TCP Fast Open).
    #[serde(default)]
    pub fast_open: bool,
    /// Mark of the packets that go to it (`SO_MARK`), for the rules of this machine to tell them by:
    /// what is marked must not be brought here again. Needs `CAP_NET_ADMIN`. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<NonZeroU32>,
}

/// What endpoints speak.
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
    /// HTTP/1.1: one exchange at a time on a connection.
    #[default]
    Http1,
    /// HTTP/2 by prior knowledge: many exchanges share a connection. gRPC needs it.
    Http2,
    /// An RPC protocol, which the program registers: many calls share a connection.
    #[serde(untagged)]
    #[schemars(skip)]
    Rpc(RpcName),
}

/// How strictly responses are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResponseParsing {
    /// As RFC 9112 has them.
    Strict,
    /// Beside that, what can be read in one way only: heads whose lines all end in a bare LF, several spaces
    /// before the status, an empty line more behind an interim response, `chunked` in HTTP/1.0, spaces
    /// behind the size of a chunk, and trailers such as `date` or `content-length`, which go no further.
    #[default]
    Tolerant,
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

/// A list of endpoints, the file that holds one, or the name of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Endpoints {
    /// The endpoints.
    List(Vec<Endpoint>),
    /// The file with the endpoints.
    File(EndpointsFile),
    /// The name of a host, whose addresses are the endpoints.
    Dns(EndpointsDns),
}

/// A file with the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointsFile {
    /// The file: a list as `endpoints` is, in YAML or JSON, 8 MiB and 100,000 endpoints at most; relative to the folder of this file. Several
    /// clusters may name the same. It is watched, and a change is taken up without reading this file again. While
    /// there is a mistake in it, or it cannot be read, the last good list stays.
    pub file: String,
}

/// A name that DNS is asked for, again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointsDns {
    /// The host with a port, such as `api.internal:8080`; in mode `srv`, the name of the records without a port, such
    /// as `_http._tcp.api.internal`. It is asked for again when an answer's time to live ends. That the name does not exist, or
    /// has no addresses, leaves the cluster without endpoints; while no server answers, or answers with a failure, the last
    /// addresses stay. At most 4,096 addresses are used.
    pub dns: String,
    /// What its addresses are used for.
    #[serde(default)]
    pub mode: DnsMode,
    /// Which addresses it is asked for.
    #[serde(default)]
    pub family: DnsFamily,
    /// An answer is used for at least so long, whatever its time to live.
    #[serde(default = "ttl_min")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "24h"))]
    pub ttl_min: Period,
    /// An answer is used for at most so long, whatever its time to live.
    #[serde(default = "ttl_max")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "24h"))]
    pub ttl_max: Period,
}

/// An address, or a map with an address and a weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Endpoint {
    /// An address, or a host with a port, with a weight of 1.
    Address(EndpointAddress),
    /// An address and its weight.
    Weighted(WeightedEndpoint),
}

impl Endpoint {
    pub(crate) const fn address(&self) -> &EndpointAddress {
        let (Self::Address(address) | Self::Weighted(WeightedEndpoint { address, .. })) = self;
        address
    }

    pub(crate) fn is_unix(&self) -> bool {
        self.address().address().is_some_and(Address::is_unix)
    }
}

/// An address and its weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedEndpoint {
    /// Where it listens: an address, or a host with a port, each of whose addresses is an endpoint (as with `dns` in mode
    /// `strict`). Unique in the cluster.
    pub address: EndpointAddress,
    /// Its share of the requests, against the other weights of the cluster. Each address of a host has it. 0: it gets no
    /// new ones, and what runs there goes on.
    #[serde(default = "weight")]
    pub weight: u16,
    /// Requests go to the endpoints with the lowest number that may be chosen: to others only where there are none, or
    /// where an attempt at the only one failed.
    #[serde(default)]
    pub priority: u8,
    /// Where it is: a region, a zone in it, and a part of that, such as `eu/a`, for `localities`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<String>,
    /// What it is, by keys, for `subsets`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

/// How long an upstream may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "connect": "write `connect_timeout`, beside `timeouts`",
    "connect_timeout": "it stands beside `timeouts`",
    "request": "write `timeout` in the rule of the route",
    "response": "write `response_head` or `response_body`",
}))]
pub struct Timeouts {
    /// For a connection while `connections_max` are in use. Beyond it: 503.
    pub pending: Timeout,
    /// From the request's last byte to the response's head. Beyond it: 504. A call of gRPC has the
    /// listener's `tunnel_idle` instead, since services may send the head with their first message.
    pub response_head: Timeout,
    /// Once a response has begun, without a byte of its body, or of a request body that still comes.
    /// Beyond it, the response is cut off. A call of gRPC has the listener's `tunnel_idle` instead.
    pub response_body: Timeout,
    /// Without progress while request bytes wait for the upstream to take them.
    pub request_write: Timeout,
    /// While other exchanges wait for a connection, how long one may have a connection whose client stands
    /// still: sends nothing of the request's body, or takes nothing of the response. The longest
    /// stalled ends first. One of a client that has more than an eighth of `connections_max`, and more than
    /// twice as many as the client that waits, ends after 100 ms. `none`: none ends for others.
    pub stall: OrNone<Timeout>,
    /// Unused in the pool. Keep it below the time after which the upstream closes.
    pub idle: Timeout,
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
        }
    }
}

/// Which PROXY protocol header is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProxyProtocol {
    /// None.
    #[default]
    Off,
    /// Version 1, text.
    V1,
    /// Version 2, binary.
    V2,
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
