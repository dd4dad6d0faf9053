//! The cluster and the endpoint of an upstream connection by names, and what another configuration makes of these.

use config::priority::Priority;
use config::snapshot::{ClusterId, ClusterProtocol, EndpointId, TransportId};

use super::SavedConnection;
use crate::connection::Upstream;
use crate::cx::Cx;
use crate::keys::PoolId;
use crate::save::GONE;
use crate::save::codecs::SavedCodec;
use crate::tools::text::Text;

/// What an upstream connection speaks.
#[derive(Clone, Copy)]
pub(super) enum Spoken<'s> {
    Alone,
    Http2,
    Rpc(&'s str),
}

impl Spoken<'_> {
    fn is_of(self, protocol: ClusterProtocol) -> bool {
        match (self, protocol) {
            (Self::Alone, ClusterProtocol::Http1) | (Self::Http2, ClusterProtocol::Http2) => true,
            (Self::Rpc(spoken), ClusterProtocol::Rpc(name)) => spoken == name.as_str(),
            _ => false,
        }
    }
}

impl SavedConnection {
    pub(super) const fn spoken(&self) -> Spoken<'_> {
        match &self.codec {
            SavedCodec::Http2(_) => Spoken::Http2,
            SavedCodec::Rpc(saved) => Spoken::Rpc(saved.protocol.as_str()),
            SavedCodec::Opening(_) | SavedCodec::Http1(_) | SavedCodec::Bytes(_) => Spoken::Alone,
        }
    }
}

/// Stands for the endpoint of a connection on which it is spoken to in a way that is not that of its cluster
/// any more, so that the connection carries no other exchange. No address is written like this.
const FORMER_TRANSPORT: &[u8] = b"-";

/// Stands between the address of an endpoint, the name of its transport and the priority whose requests the connection is for,
/// where these are not the cluster's own and the default. No address contains it, so that a program that knows no transports,
/// or no priorities, does not find the endpoint.
const SEPARATOR: u8 = 0;

impl Cx {
    /// Names by which another configuration may know the cluster and the endpoint of a connection;
    /// empty if this one has them no more.
    pub(super) fn names_of(&self, upstream: &Upstream) -> (String, Vec<u8>) {
        let Some(cluster) = self.snapshot.cluster(upstream.cluster) else {
            return Default::default();
        };
        let transport = cluster.transport_of(upstream.endpoint);
        let transport = transport.filter(|it| it.id == upstream.transport);
        let place = cluster.place_of(upstream.endpoint);
        let found = place.and_then(|place| cluster.endpoints.get(place));
        let mut endpoint = match transport {
            Some(_) => {
                Text::of_address(found.map(|endpoint| &endpoint.address)).as_bytes().to_vec()
            }
            None => FORMER_TRANSPORT.to_vec(),
        };
        let name = transport.map_or("", |transport| &*transport.name);
        let has_priority = upstream.priority != Priority::Default;
        if !name.is_empty() || has_priority {
            endpoint.push(SEPARATOR);
            endpoint.extend_from_slice(name.as_bytes());
        }
        // Whatever the connection may carry, it counts there.
        if has_priority {
            endpoint.push(SEPARATOR);
            endpoint.extend_from_slice(upstream.priority.word().as_bytes());
        }
        (cluster.name.to_string(), endpoint)
    }

    /// The cluster and endpoint of these names, and how that is spoken to. One that spoke another protocol is
    /// not known.
    pub(super) fn ids_of(
        &mut self,
        cluster: &str,
        endpoint: &[u8],
        spoken: Spoken<'_>,
    ) -> (PoolId, EndpointId, TransportId) {
        let gone = PoolId { cluster: ClusterId(GONE), priority: Priority::Default };
        let id = self.names().cluster(cluster, &self.snapshot);
        let Some(found) = id.and_then(|id| self.snapshot.cluster(id)) else {
            return (gone, EndpointId(GONE), TransportId(GONE));
        };
        let mut parts = endpoint.splitn(3, |byte| *byte == SEPARATOR);
        let mut part = || parts.next().unwrap_or_default();
        let (address, name, word) = (part(), part(), part());
        let is_it = |it: &Priority| match word {
            b"" => *it == Priority::Default,
            word => it.word().as_bytes() == word,
        };
        let priority = Priority::ALL.into_iter().find(is_it);
        let place = self.found.endpoint(found, address);
        let endpoint = place
            .and_then(|place| found.endpoints.get(place))
            .map(|endpoint| endpoint.id)
            .or_else(|| found.original_destination.filter(|_| *address != *FORMER_TRANSPORT));
        let transport = endpoint.and_then(|endpoint| found.transport_of(endpoint));
        // One that is spoken to in another way here is not known either.
        let transport = transport.filter(|transport| transport.name.as_bytes() == name);
        let is_known = transport.is_some() && priority.is_some();
        let endpoint = endpoint.filter(|_| spoken.is_of(found.protocol) && is_known);
        let transport = transport.map_or(TransportId(GONE), |transport| transport.id);
        let pool = PoolId { cluster: found.id, priority: priority.unwrap_or_default() };
        (pool, endpoint.unwrap_or(EndpointId(GONE)), transport)
    }
}
