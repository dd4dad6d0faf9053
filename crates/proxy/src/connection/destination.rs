//! Where a connection was going before it was brought here.

use std::net::SocketAddr;

use crate::connection::connections::Connections;
use crate::keys::ConnKey;

/// Where a downstream connection was going, if that is known.
pub(crate) fn destination(connections: &Connections, downstream: ConnKey) -> Option<SocketAddr> {
    connections.get(downstream)?.downstream()?.original.as_deref().copied()
}

/// Where an upstream connection goes that is not to an endpoint of its cluster's own.
pub(crate) fn destination_of(connections: &Connections, upstream: ConnKey) -> Option<SocketAddr> {
    connections.get(upstream)?.peer.socket_address()
}
