//! Where connections were going before rules of the machine brought them here, and clusters that
//! connect there.
//!
//! A destination is the kernel's word, asked for when a connection is accepted; a PROXY protocol header
//! changes who the peers are, and never this: its sender would choose what the proxy
//! connects to. An address of our own would come back to us, so it is forgotten at once.
//!
//! Upstream connections of such a cluster have the destination for their peer, and are pooled by
//! it: `pool::original`.

use std::net::SocketAddr;

use config::snapshot::Address;

use crate::cx::Cx;
use crate::tools::peer_address::PeerAddress;

/// Whether the admin interface has this address. On `[::]` it has those of IPv4 as well.
fn is_admin(admin: Option<&Address>, address: &Address) -> bool {
    match (admin, address) {
        (Some(Address::Tcp(admin)), Address::Tcp(tcp)) if admin.ip().is_unspecified() => {
            admin.port() == tcp.port()
        }
        (Some(admin), address) => admin.overlaps(address),
        (None, _) => false,
    }
}

impl Cx {
    /// What is kept of where a connection was going: nothing, if that is an address of this
    /// process, where it would begin anew.
    pub(crate) fn keep_original(&self, original: Option<SocketAddr>) -> Option<SocketAddr> {
        let mut original = PeerAddress::from(original?).socket_address()?;
        if let SocketAddr::V6(address) = &mut original {
            // Of one connection only; the others to this address cannot be distinguished from it.
            address.set_flowinfo(0);
        }
        let address = Address::Tcp(original);
        let mut ours = self.snapshot.listeners.iter().flat_map(|listener| &*listener.addresses);
        let is_ours = ours.any(|ours| ours.overlaps(&address));
        let startup = &self.snapshot.startup;
        let is_ours = is_ours
            || is_admin(startup.admin.as_ref(), &address)
            || is_admin(startup.metrics.as_ref(), &address);
        (!is_ours).then_some(original)
    }
}
