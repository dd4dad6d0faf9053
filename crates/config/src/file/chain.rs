//! `chains`: what some connections of a listener meet in place of what it has itself.

use std::num::NonZeroU16;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;
use wire::detect::Detected;

use super::ListenerTls;
use super::listener::{NoFilter, OneOrSeveral, Protocol, WeightedCluster};
use crate::cidr::Cidr;

/// What the connections that match meet. Of several chains that match, the most specific wins, as
/// in Envoy: they are compared by destination port, destination, server name, protocol, ALPN and
/// source, in this order, and only those that are best by one are compared by the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerChain {
    /// Name. Unique in its listener.
    pub name: String,
    /// The connections it is for.
    #[serde(rename = "match")]
    pub matches: ChainMatch,
    /// What its connections speak.
    #[serde(default)]
    pub protocol: Protocol,
    /// Ends the TLS of its connections, whatever the listener does with others. Absent: they go on as
    /// they came, so that with `protocol: tcp` their TLS is passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// The filter chain of HTTP requests, as on a listener.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<NoFilter>")]
    pub filters: Vec<serde_json::Value>,
    /// The route table that HTTP requests are looked up in, or a list of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<OneOrSeveral<String>>,
    /// The cluster that connections are relayed to, as on a listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// In place of `cluster`: several, one of which is chosen for each connection by their weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<WeightedCluster>,
}

/// What a connection must be like. Each list holds alternatives; an empty one asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChainMatch {
    /// Names that a TLS client asks for (SNI): whole, or `*.suffix`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_names: Vec<String>,
    /// Protocols that a TLS client offers (ALPN), one of which is enough.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alpn: Vec<String>,
    /// What the first bytes are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "detected")]
    pub protocols: Vec<Detected>,
    /// Where connections come from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Cidr>,
    /// Where connections were going: the original destination where one is known, else the address
    /// that they came in at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Cidr>,
    /// The port of that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination_ports: Vec<NonZeroU16>,
}

/// What first bytes may be; [`compiled`](crate::schema::compiled) adds the RPC protocols.
fn detected(_: &mut SchemaGenerator) -> Schema {
    let word = |name: &str, description: &str| json!({ "type": "string", "const": name, "description": description });
    let words = [
        word("http1", "A request of HTTP/1."),
        word("http2", "HTTP/2 by prior knowledge."),
        word("tls", "A TLS handshake."),
        word("other", "None of these, or nothing that tells in `timeouts.detect`."),
    ];
    json_schema!({ "type": "array", "items": { "oneOf": words } })
}
