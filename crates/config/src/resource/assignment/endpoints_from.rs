//! Where the endpoints of a cluster come from.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use crate::address::Address;
use crate::resource::assignment::dns::{DnsMode, DnsName};
use crate::resource::assignment::file::{Locality, ReportedHealth};
use crate::resource::cluster::subsets::Metadata;

/// Where the endpoints of a cluster come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EndpointsFrom {
    /// The text lists their addresses, or there are none.
    #[default]
    Addresses,
    /// The text lists host names, perhaps with addresses among them.
    Names(Arc<[ListedEndpoint]>),
    /// One name stands for all of them.
    Dns(Arc<DnsName>),
    /// The file that has them, as the text names it.
    File(Arc<str>),
    /// A source delivers them, as an assignment with the cluster's name.
    Assignment,
}

/// An endpoint, or a name that stands for some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedEndpoint {
    /// One address.
    Address {
        /// Where it listens.
        address: Address,
        /// Its share of the requests.
        weight: u16,
        /// Its host name, if it says one.
        host: Option<Arc<str>>,
        /// What else is said of it.
        traits: Traits,
    },
    /// The addresses of a name.
    Name {
        /// The name.
        name: Arc<DnsName>,
        /// The share of the requests that each address has.
        weight: u16,
        /// What else is said of each.
        traits: Traits,
    },
}

/// Addresses of a name that a cluster leaves out, because it has too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The name.
    pub name: Arc<DnsName>,
    /// How many.
    pub count: u32,
}

/// What is said of an endpoint, or of all that a name stands for, beside address and weight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// It is chosen only where no endpoint of a lower number may be.
    pub(crate) priority: u8,
    /// None for nothing.
    pub(crate) metadata: Option<Arc<Metadata>>,
    /// Where it is; none if that is not said.
    pub(crate) locality: Option<Arc<Locality>>,
    /// What its source knows of its health.
    pub(crate) health: ReportedHealth,
}

impl ListedEndpoint {
    /// Its share of the requests; 0 for none.
    pub(crate) const fn weight(&self) -> u16 {
        match self {
            Self::Address { weight, .. } | Self::Name { weight, .. } => *weight,
        }
    }
}

impl EndpointsFrom {
    /// The host names among them.
    pub fn names(&self) -> impl Iterator<Item = &Arc<DnsName>> {
        let (one, listed) = match self {
            Self::Addresses | Self::File(_) | Self::Assignment => (None, &[][..]),
            Self::Dns(name) => (Some(name), &[][..]),
            Self::Names(listed) => (None, &**listed),
        };
        let listed = listed.iter().filter_map(|listed| match listed {
            ListedEndpoint::Name { name, .. } => Some(name),
            ListedEndpoint::Address { .. } => None,
        });
        one.into_iter().chain(listed)
    }

    /// The addresses beside host names in a list.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        let listed = match self {
            Self::Names(listed) => &**listed,
            Self::Addresses | Self::Dns(_) | Self::File(_) | Self::Assignment => &[][..],
        };
        listed.iter().filter_map(|listed| match listed {
            ListedEndpoint::Address { address, .. } => Some(address),
            ListedEndpoint::Name { .. } => None,
        })
    }

    /// Why a cluster has no endpoints that has none, unless host names stand for them.
    #[must_use]
    pub fn why_none(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Addresses => Some("the cluster lists no endpoint".into()),
            Self::Assignment => Some("no source delivers an endpoint of the cluster".into()),
            Self::File(path) => Some(format!("{path} lists no endpoint").into()),
            Self::Names(_) | Self::Dns(_) => None,
        }
    }

    /// The file that has them, if one has.
    #[must_use]
    pub const fn file(&self) -> Option<&Arc<str>> {
        match self {
            Self::File(file) => Some(file),
            Self::Addresses | Self::Names(_) | Self::Dns(_) | Self::Assignment => None,
        }
    }

    /// Whether they are an assignment: they come from elsewhere than the cluster, and change by themselves.
    #[must_use]
    pub const fn is_apart(&self) -> bool {
        !matches!(self, Self::Addresses)
    }

    /// The name whose address changes without the endpoint becoming another, if that is so: connections to
    /// former addresses stay in use.
    pub(crate) fn logical(&self) -> Option<(&str, Option<NonZeroU16>)> {
        match self {
            Self::Dns(name) if name.mode == DnsMode::Logical => Some((&name.host, name.port)),
            Self::Dns(_) | Self::Addresses | Self::Names(_) => None,
            Self::File(_) | Self::Assignment => None,
        }
    }
}

/// How host names are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolvers {
    /// The DNS servers, in the order in which they are asked; none for those of the machine.
    pub servers: Arc<[SocketAddr]>,
    /// How long one server may take, or none for as long as the machine says, where it names the servers.
    pub timeout: Option<Duration>,
    /// How long a start, or a reload with new names, waits for first answers; zero for as long as they take.
    pub initial_fetch_timeout: Duration,
    /// How long a request waits for a cluster that a source is asked for on demand.
    pub on_demand_timeout: Duration,
}
