//! Where a connection came from, and where it was going before it was brought here.

use std::net::SocketAddr;

use config::chains::ConnectionFacts;

use crate::connection::connections::Connections;
use crate::connection::{Connection, Downstream, Origin};
use crate::keys::ConnKey;
use crate::tools::peer_address::PeerAddress;

/// Where a downstream connection was going, if that is known.
pub(crate) fn destination(connections: &Connections, downstream: ConnKey) -> Option<SocketAddr> {
    connections.get(downstream)?.downstream()?.original()
}

/// Where an upstream connection goes that is not to an endpoint of its cluster's own.
pub(crate) fn destination_of(connections: &Connections, upstream: ConnKey) -> Option<SocketAddr> {
    connections.get(upstream)?.peer.socket_address()
}

impl Downstream {
    /// Where the connection was going before it was brought here, if that is known.
    pub(crate) fn original(&self) -> Option<SocketAddr> {
        self.origin.as_deref()?.original
    }

    /// Keeps who connected, where a PROXY header named another address.
    pub(crate) fn keep_direct(&mut self, direct: PeerAddress) {
        self.origin.get_or_insert_default().direct = Some(direct);
    }
}

impl Origin {
    /// What is known of a connection when it comes, if that is anything.
    pub(crate) fn of_original(original: Option<SocketAddr>) -> Option<Box<Self>> {
        original.map(|original| Box::new(Self { original: Some(original), direct: None }))
    }
}

impl Connection {
    /// What is known of a downstream connection before it says anything.
    pub(crate) fn address_facts(&self) -> ConnectionFacts<'static> {
        let origin = self.downstream().and_then(|downstream| downstream.origin.as_deref());
        let direct = origin.and_then(|origin| origin.direct.as_ref());
        let original = origin.and_then(|origin| origin.original);
        ConnectionFacts {
            source: self.peer.ip(),
            source_port: self.peer.port(),
            direct_source: direct.unwrap_or(&self.peer).ip(),
            destination: original.or_else(|| self.local.socket_address()),
            protocol: None,
            server_name: None,
            alpn: &[],
        }
    }
}
