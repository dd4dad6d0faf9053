//! Where a socket listens or connects.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};

/// Where to listen or connect. Borrowed, so that naming a unix socket allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address<'a> {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A unix stream socket.
    Unix(&'a Path),
}

impl Address<'_> {
    pub(crate) fn family(self) -> AddressFamily {
        match self {
            Self::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Self::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Self::Unix(_) => AddressFamily::UNIX,
        }
    }

    /// The form that the kernel takes. Fails for a unix path over 107 bytes or with a NUL.
    pub(crate) fn to_kernel(self) -> rustix::io::Result<SocketAddrAny> {
        match self {
            Self::Tcp(address) => Ok(SocketAddrAny::from(address)),
            Self::Unix(path) => Ok(SocketAddrUnix::new(path)?.into()),
        }
    }
}

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}
