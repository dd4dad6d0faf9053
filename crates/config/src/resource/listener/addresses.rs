//! Where listeners listen, and that none is in the way of another.

use std::net::SocketAddr;
use std::path::{Component, Path as FilePath, PathBuf};
use std::sync::Arc;

use crate::file;
use crate::file::one_or_several::OneOrSeveral;
use crate::findings::{Findings, Problem};
use crate::map::Map;
use crate::snapshot::Address;
use crate::text::tree::Site;

/// Notes where a listener listens, and that each address has one listener.
pub(crate) fn take_addresses(
    file: &file::Listener,
    site: &Site<'_>,
    addresses: &mut Addresses,
    findings: &mut Findings<'_>,
) {
    let mut take = |address: &Address, at: &Site<'_>| {
        if let Some(problem) = unbindable(address) {
            return at.error(findings, problem);
        }
        let line = findings.line_name(at.at().line);
        let owner = format!("listener {:?} on {line}", file.name);
        addresses.take(Taken::by_listener(address, owner), at, findings);
    };
    match &file.address {
        OneOrSeveral::One(address) => take(address, site),
        OneOrSeveral::Several(several) => {
            several.iter().zip(site.items()).for_each(|(address, at)| take(address, &at));
            for (place, at) in (0..several.len()).zip(site.items()) {
                let (before, rest) = several.split_at(place);
                // Of the others it is known that they are in the way of each other.
                if rest.first().is_some_and(|it| it.is_any_port() && before.contains(it)) {
                    let rule =
                        "two ports of the system's choice, on one address, cannot be distinguished";
                    at.error(findings, Problem::new(rule, "write the port, or remove one"));
                }
            }
        }
    }
}

/// A path without what only spells it otherwise. Links are not followed: what they are is not known here.
fn plain(path: &FilePath) -> Arc<FilePath> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => plain.push(part),
        }
    }
    plain.into()
}

/// Why no process can listen there, whatever the machine is.
fn unbindable(address: &Address) -> Option<Problem> {
    match address {
        Address::Tcp(SocketAddr::V6(v6)) => {
            let v4 = v6.ip().to_ipv4_mapped()?;
            let rule = "a listener on IPv6 takes no connections of IPv4";
            Some(Problem::new(rule, format!("write {v4}:{}", v6.port())))
        }
        Address::Tcp(SocketAddr::V4(_)) | Address::Unix(_) => None,
    }
}

/// Who listens where, by what two must share to be in each other's way.
#[derive(Default)]
pub(crate) struct Addresses(Map<Place, Vec<Taken>>);

#[derive(PartialEq, Eq, Hash)]
enum Place {
    Port(u16),
    Path(Arc<FilePath>),
}

/// An address with its owner.
pub(crate) struct Taken {
    address: Address,
    owner: String,
    /// Whether all addresses of IPv6 are those of IPv4 as well. Listeners keep the two apart.
    is_dual: bool,
}

impl Taken {
    fn by_listener(address: &Address, owner: String) -> Self {
        Self { address: address.clone(), owner, is_dual: false }
    }

    pub(crate) fn by_admin(address: &Address, owner: String) -> Self {
        let is_dual =
            matches!(address, Address::Tcp(tcp) if tcp.is_ipv6() && tcp.ip().is_unspecified());
        Self { address: address.clone(), owner, is_dual }
    }

    fn place(address: &Address) -> Place {
        match address {
            Address::Tcp(address) => Place::Port(address.port()),
            Address::Unix(path) => Place::Path(plain(path)),
        }
    }

    fn is_in_the_way_of(&self, other: &Self) -> bool {
        // Of one path there is one socket.
        self.address.is_unix()
            || self.address.overlaps(&other.address)
            || self.is_dual
            || other.is_dual
    }
}

impl Addresses {
    /// Notes an address that is in use whatever the file says.
    pub(crate) fn keep(&mut self, taken: Taken) {
        self.0.entry(Taken::place(&taken.address)).or_default().push(taken);
    }

    pub(crate) fn take(&mut self, taken: Taken, site: &Site<'_>, findings: &mut Findings<'_>) {
        // Port 0 is any free port: two listeners get two.
        if taken.address.is_any_port() {
            return;
        }
        let others = self.0.entry(Taken::place(&taken.address)).or_default();
        if let Some(other) = others.iter().find(|other| other.is_in_the_way_of(&taken)) {
            let Taken { address, owner, .. } = other;
            let problem = if *address == taken.address {
                let hint = format!("{owner} has it already; choose another port");
                Problem::new("each listener has its own address", hint)
            } else {
                let hint = format!("{owner} has {address} already; choose another port");
                let rule = "each listener has its own address, of which 0.0.0.0 and [::] are all";
                Problem::new(rule, hint)
            };
            site.error(findings, problem);
        }
        others.push(taken);
    }
}
