//! What sources other than the file deliver of an assignment.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults;
use crate::resource::assignment::dns::EndpointAddress;
use crate::resource::cluster::health::HealthStatus;
use crate::resource::cluster::subsets::Metadata;

/// The endpoints of a cluster, separate from the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// Name of the cluster.
    pub name: String,
    /// All of its endpoints; an empty list for none.
    pub endpoints: Vec<AssignedEndpoint>,
}

/// An address, or a map with an address and further properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AssignedEndpoint {
    /// An address, with weight 1.
    Address(EndpointAddress),
    /// An address with further properties.
    Described(DescribedEndpoint),
}

/// An address with further properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DescribedEndpoint {
    /// Its address. Unique in the assignment.
    pub address: EndpointAddress,
    /// Its share of the requests, relative to the other weights of the cluster. 0: it gets no new requests.
    #[serde(default = "weight")]
    pub weight: u16,
    /// As in a list of endpoints. Numbers must not be skipped.
    #[serde(default)]
    pub priority: u8,
    /// Its location, for `localities`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
    /// Its health, as reported by the source.
    #[serde(default)]
    pub health: ReportedHealth,
    /// Its properties for `subsets`, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// The host that it belongs to, for TLS and for `host` rewrites.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The location of an endpoint, from large to small.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Locality {
    /// The region.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// A data center in the region.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// A part of the data center.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subzone: String,
}

/// Health of an endpoint, as reported by a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportedHealth {
    /// The endpoint gets requests.
    #[default]
    Healthy,
    /// As `healthy`.
    Unknown,
    /// The endpoint gets requests only if there are too few healthy ones.
    Degraded,
    /// The endpoint gets no new requests unless too few others are available (`panic`). Active ones finish.
    Unhealthy,
    /// As `unhealthy`: it did not answer in time.
    Timeout,
    /// The endpoint gets no new requests, and counts as removed. Active ones finish.
    Draining,
}

impl ReportedHealth {
    /// Which requests an endpoint gets of which this is said.
    pub(crate) const fn status(self) -> HealthStatus {
        match self {
            Self::Healthy | Self::Unknown => HealthStatus::Healthy,
            Self::Degraded => HealthStatus::Degraded,
            Self::Unhealthy | Self::Timeout | Self::Draining => HealthStatus::Unhealthy,
        }
    }

    /// The weight of an endpoint of which this is said, and which has this one otherwise.
    pub(crate) const fn weight(self, weight: u16) -> u16 {
        match self {
            // It counts no more where endpoints are compared, as in Envoy.
            Self::Draining => 0,
            Self::Healthy | Self::Unknown | Self::Degraded | Self::Unhealthy | Self::Timeout => {
                weight
            }
        }
    }

    /// The word for it in pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unknown => "unknown",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
            Self::Timeout => "timeout",
            Self::Draining => "draining",
        }
    }
}

const fn weight() -> u16 {
    defaults::WEIGHT.get()
}
