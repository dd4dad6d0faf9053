//! `chains`: what some connections of a listener meet in place of what it has itself.

use std::num::NonZeroU16;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;
use wire::detect::Detected;

use crate::cidr::Cidr;
use crate::file::one_or_several::OneOrSeveral;
use crate::resource::listener::file::{NoFilter, Protocol, WeightedCluster};
use crate::resource::tls::file::ListenerTls;

/// Settings for the connections that match. If several chains match, the most specific one is used, as in Envoy: they
/// are compared by destination port, destination, server name, protocol, ALPN, direct source, source type, source and
/// source port, in this order, and each criterion compares only those that are equal by the previous ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerChain {
    /// Name. Unique in the listener.
    pub name: String,
    /// The connections that use this filter chain.
    #[serde(rename = "match")]
    pub matches: ChainMatch,
    /// The protocol of its connections.
    #[serde(default)]
    pub protocol: Protocol,
    /// Terminates TLS of its connections, independent of the listener. Absent: TLS is not terminated, so with
    /// `protocol: tcp` it is passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// The filters for HTTP requests, as for a listener.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<NoFilter>")]
    pub filters: Vec<serde_json::Value>,
    /// The handlers that decide which rule a request meets before `routes` are asked, as for a listener.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<NoFilter>")]
    pub handlers: Vec<serde_json::Value>,
    /// The route table for HTTP requests, or a list of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<OneOrSeveral<String>>,
    /// The cluster that connections are relayed to, as for a listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Instead of `cluster`: several clusters, one of which is selected at random by weight for each connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<WeightedCluster>,
}

/// Conditions on a connection. One entry of each list must match; an empty list matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChainMatch {
    /// Server names (SNI) of TLS clients: full names, or `*.suffix`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_names: Vec<String>,
    /// ALPN protocols. A TLS client must offer one of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alpn: Vec<String>,
    /// Protocols of the first bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "detected")]
    pub protocols: Vec<Detected>,
    /// Addresses that connections come from directly: those of the proxies that send PROXY headers, where `sources`
    /// has the addresses in these headers. A connection without such a header, and one that sent its header before a
    /// chain of the listener had `direct_sources`, comes directly from its source address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub direct_sources: Vec<Cidr>,
    /// Whether connections come from this machine. Absent: `any`.
    #[serde(skip_serializing_if = "SourceType::is_any")]
    pub source_type: SourceType,
    /// Source addresses of connections.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Cidr>,
    /// Source ports of connections.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_ports: Vec<NonZeroU16>,
    /// Destination addresses of connections: the original destination if it is known, else the local address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Cidr>,
    /// Ports of these destinations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination_ports: Vec<NonZeroU16>,
}

/// Whether connections come from this machine.
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
pub enum SourceType {
    /// All connections.
    #[default]
    Any,
    /// Connections from a loopback address, from the address that they go to, or to a unix socket.
    Local,
    /// All other connections.
    External,
}

impl SourceType {
    /// Whether it is that of a connection that comes from this machine, or not.
    pub(crate) const fn holds(self, is_local: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Local => is_local,
            Self::External => !is_local,
        }
    }

    const fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }
}

/// What first bytes may be; [`compiled`](crate::text::schema::compiled) adds the RPC protocols.
fn detected(_: &mut SchemaGenerator) -> Schema {
    let word = |name: &str, description: &str| json!({ "type": "string", "const": name, "description": description });
    let words = [
        word("http1", "A request of HTTP/1."),
        word("http2", "HTTP/2 by prior knowledge."),
        word("tls", "A TLS handshake."),
        word("other", "Another protocol, or too few bytes to tell within `timeouts.detect`."),
    ];
    json_schema!({ "type": "array", "items": { "oneOf": words } })
}
