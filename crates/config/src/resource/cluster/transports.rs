//! `transports` of a cluster: which TLS is spoken with an endpoint, by its metadata.
//!
//! A cluster may be partly plaintext while its endpoints change over, as in a mesh whose sidecars come one by one. Names and
//! meanings are those of Envoy's `transport_socket_matches`: the first entry whose values an endpoint has is used, and
//! without one the cluster's own `tls`.

pub(crate) mod build;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::cluster::Endpoint;
use crate::resource::cluster::subsets::Metadata;
use crate::resource::tls::ClusterTls;
use crate::resource::tls::file::ClusterTls as FileTls;
use crate::snapshot::id::TransportId;

/// How some endpoints of a cluster are spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "transport_socket": "write `tls`, or neither for plaintext",
}))]
pub struct EndpointTransport {
    /// Its name in the pages of the admin interface. Unique in the cluster.
    pub name: String,
    /// The values of `metadata` that an endpoint must have, by key. Empty: any endpoint.
    #[serde(default, rename = "match")]
    pub metadata: Metadata,
    /// Uses TLS to these endpoints. Absent: connections are plaintext.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<FileTls>,
}

/// One way to speak to endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Stable name: connections of one are not used for another.
    pub id: TransportId,
    /// Its name in the file; empty for what the cluster says of all endpoints.
    pub name: Arc<str>,
    /// How TLS is spoken, if it is.
    pub tls: Option<Arc<ClusterTls>>,
    /// The values that an endpoint must have.
    pub(crate) metadata: Metadata,
}

impl Transport {
    /// Whether endpoints may be sockets of the file system.
    fn allows_unix(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.allows_unix())
    }
}

/// All ways to speak to the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transports {
    own: Transport,
    matched: Box<[Transport]>,
}

impl Transports {
    /// `own` is for endpoints that have the values of none of `matched`.
    pub(crate) const fn new(own: Transport, matched: Box<[Transport]>) -> Self {
        Self { own, matched }
    }

    /// What an endpoint is spoken to with that has no metadata, as one that stands for original destinations.
    #[must_use]
    #[inline]
    pub const fn own(&self) -> &Transport {
        &self.own
    }

    /// How this endpoint of the cluster is spoken to.
    #[must_use]
    #[inline]
    pub fn of(&self, endpoint: &Endpoint) -> &Transport {
        self.at(endpoint.transport)
    }

    /// The one at this place in [`Self::all`].
    fn at(&self, place: u8) -> &Transport {
        let matched = usize::from(place).checked_sub(1).and_then(|place| self.matched.get(place));
        matched.unwrap_or(&self.own)
    }

    /// All of them, that of the cluster itself first.
    pub fn all(&self) -> impl Iterator<Item = &Transport> {
        std::iter::once(&self.own).chain(&self.matched)
    }

    /// How TLS is spoken with any of the endpoints.
    pub fn tls(&self) -> impl Iterator<Item = &Arc<ClusterTls>> {
        self.all().filter_map(|transport| transport.tls.as_ref())
    }

    /// Whether metadata makes a difference.
    #[must_use]
    pub const fn differ(&self) -> bool {
        !self.matched.is_empty()
    }

    /// The place in [`Self::all`] of what an endpoint with this metadata is spoken to with.
    pub(crate) fn choose(&self, metadata: &Metadata) -> u8 {
        let found = self.matched.iter().zip(1..).find(|(it, _)| has_all(metadata, &it.metadata));
        found.map_or(0, |(_, place)| place)
    }

    /// Whether an endpoint with this metadata may be a socket of the file system, which has no name of its own.
    pub(crate) fn allow_unix(&self, metadata: &Metadata) -> bool {
        self.at(self.choose(metadata)).allows_unix()
    }

    /// The one with this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Transport> {
        self.all().find(|transport| &*transport.name == name)
    }
}

/// Whether all values of `wanted` are among those of `metadata`.
pub(crate) fn has_all(metadata: &Metadata, wanted: &Metadata) -> bool {
    wanted.iter().all(|(key, value)| metadata.get(key) == Some(value))
}
