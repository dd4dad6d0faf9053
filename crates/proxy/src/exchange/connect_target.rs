//! Where the upstream connection of an exchange goes: to an endpoint of its cluster, or to where its client was
//! going before rules of the machine brought it here.

use std::sync::Arc;

use config::snapshot::{Address, Cluster, EndpointId};

use crate::connection::connections::Connections;
use crate::connection::destination::destination;
use crate::exchange::Exchange;
use crate::exchange::exchanges::Exchanges;
use crate::keys::ExchangeKey;
use crate::tools::peer_address::PeerAddress;
use crate::upstream::pool::endpoint_at;

impl Exchange {
    /// Where it went, or tried to, if it went to no endpoint of its cluster's own.
    pub(crate) fn connect_target(&self, connections: &Connections) -> Option<Address> {
        self.cluster()?.original_destination.filter(|_| self.progress.attempts > 0)?;
        destination(connections, self.downstream.connection).map(Address::Tcp)
    }
}

impl Exchanges {
    /// Where to connect for an exchange, and what the connection has for its peer.
    pub(crate) fn way(
        &self,
        key: ExchangeKey,
        cluster: &Arc<Cluster>,
        place: usize,
        connections: &Connections,
    ) -> (EndpointId, Address, PeerAddress) {
        if let Some(endpoint) = cluster.original_destination
            && let Some(exchange) = self.get(key)
            && let Some(destination) = destination(connections, exchange.downstream.connection)
        {
            return (endpoint, Address::Tcp(destination), PeerAddress::from(destination));
        }
        let endpoint = endpoint_at(cluster, place);
        let port = self.get(key).and_then(|exchange| exchange.check()?.check()?.port);
        if let (Some(port), Address::Tcp(address)) = (port, &endpoint.address) {
            let mut address = *address;
            address.set_port(port.get());
            return (endpoint.id, Address::Tcp(address), PeerAddress::Unix);
        }
        (endpoint.id, endpoint.address.clone(), PeerAddress::Unix)
    }
}
