//! Addresses of peers, as small as a connection can keep them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

use serde::{Deserialize, Serialize};

/// An address of a peer, in the 16 bytes that a connection has for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerAddress {
    /// A unix socket; its peers have no name.
    Unix,
    /// IPv4 address and port.
    V4(Ipv4Addr, u16),
    /// IPv6 address, port and scope; apart, because it is long and less common.
    V6(Box<SocketAddrV6>),
}

impl PeerAddress {
    /// The address without the port.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Unix => None,
            Self::V4(ip, _) => Some(IpAddr::V4(*ip)),
            Self::V6(address) => Some(IpAddr::V6(*address.ip())),
        }
    }

    /// The whole address.
    #[must_use]
    pub fn socket_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix => None,
            Self::V4(ip, port) => Some(SocketAddr::from((*ip, *port))),
            Self::V6(address) => Some(SocketAddr::V6(**address)),
        }
    }

    /// The port, if there is one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Unix => None,
            Self::V4(_, port) => Some(*port),
            Self::V6(address) => Some(address.port()),
        }
    }
}

impl From<SocketAddr> for PeerAddress {
    /// An IPv4 address inside an IPv6 one becomes what it is.
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::V4(*v4.ip(), v4.port()),
            SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
                Some(ip) => Self::V4(ip, v6.port()),
                None => Self::V6(Box::new(v6)),
            },
        }
    }
}

impl From<Option<SocketAddr>> for PeerAddress {
    fn from(address: Option<SocketAddr>) -> Self {
        address.map_or(Self::Unix, Self::from)
    }
}
