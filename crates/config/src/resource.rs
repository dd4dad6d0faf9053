//! Resources: what snapshots are linked of, typed and valid in themselves.
//!
//! A resource names others by name and has no ids: those belong to a snapshot, and [`crate::store`]
//! gives them. So a resource may come from the configuration file or from a source of its own, and what
//! is made of it is the same.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::address::Address;
use crate::snapshot::{RouteTable, Traits};

/// The endpoints of a cluster, apart from the cluster: they may come from elsewhere, and change more
/// often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Each with an address of its own, in the order in which they were given.
    pub(crate) endpoints: Vec<Endpoint>,
}

/// One address of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Where it listens.
    pub(crate) address: Address,
    /// Its share of the requests; 0 for none.
    pub(crate) weight: u16,
    /// The host whose address it is, if that is known.
    pub(crate) host: Option<Arc<str>>,
    /// What else is said of it.
    pub(crate) traits: Traits,
}

/// Virtual hosts that listeners name together. Each is a table of its own, so that one that changes leaves the others,
/// and the listeners, as they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteConfig {
    /// In the order in which they were given.
    pub(crate) virtual_hosts: Vec<Arc<RouteTable>>,
    /// The clusters that their rules open tunnels to.
    pub(crate) tunnelled: BTreeSet<Box<str>>,
}

impl RouteConfig {
    /// Whether listeners find the same tables for the same hosts here.
    pub(crate) fn leads_the_same(&self, other: &Self) -> bool {
        let (own, others) = (&self.virtual_hosts, &other.virtual_hosts);
        own.len() == others.len()
            && own.iter().zip(others).all(|(own, other)| leads_the_same(own, other))
    }
}

/// Whether listeners find the same table for the same hosts.
pub(crate) fn leads_the_same(table: &RouteTable, other: &RouteTable) -> bool {
    (table.id, &table.hosts, table.has_ports) == (other.id, &other.hosts, other.has_ports)
}

/// What TLS needs beside its options: a certificate with its key, authorities, or a key of tickets.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Secret {
    parts: [Option<Arc<Zeroizing<Vec<u8>>>>; SecretPart::ALL.len()],
}

/// A part of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretPart {
    /// A certificate with those behind it.
    Chain,
    /// Its key.
    Key,
    /// Authorities.
    Ca,
    /// What these have revoked.
    Crl,
    /// An answer of the authority that the certificate is good, DER.
    Ocsp,
    /// A key of session tickets, as it is.
    TicketKey,
}

impl SecretPart {
    const ALL: [Self; 6] =
        [Self::Chain, Self::Key, Self::Ca, Self::Crl, Self::Ocsp, Self::TicketKey];

    /// What stands before it in a secret.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Key => "key",
            Self::Ca => "ca",
            Self::Crl => "crl",
            Self::Ocsp => "ocsp",
            Self::TicketKey => "ticket_key",
        }
    }
}

impl Secret {
    /// A secret of these parts, each PEM unless it says otherwise, by the order of [`SecretPart`].
    pub(crate) fn new(parts: [Option<Zeroizing<Vec<u8>>>; SecretPart::ALL.len()]) -> Self {
        Self { parts: parts.map(|part| part.map(Arc::new)) }
    }

    /// A part of it.
    pub(crate) fn part(&self, part: SecretPart) -> Option<&Arc<Zeroizing<Vec<u8>>>> {
        self.parts.get(part as usize)?.as_ref()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = SecretPart::ALL.into_iter().filter(|part| self.part(*part).is_some());
        f.debug_list().entries(known).finish()
    }
}
