//! What sources other than the file deliver and a file has in another form.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use super::RouteTable;
use crate::defaults;
use crate::dns::EndpointAddress;
use crate::subsets::Metadata;

/// Virtual hosts that listeners name together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Name, used by listeners in `routes`. Unique among route configurations and the file's route tables.
    pub name: String,
    /// Each as an entry of `routes`. In metrics and logs it has the name of both, with `/` between.
    pub virtual_hosts: Vec<RouteTable>,
}

/// The endpoints of a cluster, apart from the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// Name of the cluster.
    pub name: String,
    /// All of its endpoints; an empty list for none.
    pub endpoints: Vec<AssignedEndpoint>,
}

/// An address, or a map with an address and what is said of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AssignedEndpoint {
    /// An address, with a weight of 1.
    Address(EndpointAddress),
    /// An address with more.
    Described(DescribedEndpoint),
}

/// An address and what is said of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DescribedEndpoint {
    /// Where it listens. Unique in the assignment.
    pub address: EndpointAddress,
    /// Its share of the requests, against the other weights of the cluster. 0: it gets no new ones.
    #[serde(default = "weight")]
    pub weight: u16,
    /// As in a list of endpoints. None below one with endpoints may be without.
    #[serde(default)]
    pub priority: u8,
    /// Where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
    /// What the source knows of its health.
    #[serde(default)]
    pub health: ReportedHealth,
    /// What it is, by keys, for `subsets`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// The host whose address it is, for TLS and for `host` rewrites.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Where an endpoint is, from the large to the small.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Locality {
    /// A part of the world.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// A data center in it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// A part of that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subzone: String,
}

/// What a source knows of the health of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportedHealth {
    /// It gets requests.
    #[default]
    Healthy,
    /// It gets no new requests. What runs there goes on.
    Unhealthy,
    /// The same: it is about to go.
    Draining,
}

const fn weight() -> u16 {
    defaults::WEIGHT.get()
}

/// A certificate with its key, authorities with what they have revoked, or a key of session tickets. Where listeners and clusters of other
/// sources name a file, they write `secret:NAME`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    /// Name, used by listeners and clusters. Unique among secrets.
    pub name: String,
    /// A certificate with those behind it, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// The key of the certificate, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = true))]
    pub key: Option<String>,
    /// Authorities, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Lists of what these have revoked, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<String>,
    /// An answer of the authority that the certificate is good (OCSP): DER, as base64 between lines `BEGIN OCSP RESPONSE`
    /// and `END OCSP RESPONSE` as PEM has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ocsp: Option<String>,
    /// A key of session tickets, of 32 bytes at least: base64 between lines `BEGIN TICKET KEY` and `END TICKET KEY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = true))]
    pub ticket_key: Option<String>,
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.key.zeroize();
        self.ticket_key.zeroize();
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).finish_non_exhaustive()
    }
}
