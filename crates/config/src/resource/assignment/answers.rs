//! What answers make of the host names among endpoints. A name without an answer stands for none.

use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::hash_map::Entry;

use crate::address::Address;
use crate::map::Map;
use crate::resource::assignment::dns::{DnsAnswer, DnsName, Resolved};
use crate::resource::{Assignment, Endpoint};
use crate::snapshot::{ClusterId, EndpointsFrom, ListedEndpoint, Traits};

/// Endpoints of a cluster that has host names among them. Answers that bring more are cut off here.
const ENDPOINTS_MAX: usize = 100_000;

/// The answers that there are, by their names.
pub(crate) type Answers = Map<Arc<DnsName>, DnsAnswer>;

/// The names of one load of the text, with the clusters that have them.
pub(crate) struct NameReads<'a> {
    answers: &'a Answers,
    users: NameUsers,
}

/// The clusters that have a name among their endpoints.
pub(crate) type NameUsers = Map<Arc<DnsName>, Vec<ClusterId>>;

impl<'a> NameReads<'a> {
    pub(crate) fn new(answers: &'a Answers) -> Self {
        Self { answers, users: Map::default() }
    }

    /// The endpoints of the cluster `user`, which has them from `from`.
    pub(crate) fn assignment(&mut self, from: &EndpointsFrom, user: ClusterId) -> Assignment {
        self.add_user(from, user);
        self.answered(from)
    }

    /// The endpoints of a cluster that has them from `from`.
    pub(crate) fn answered(&self, from: &EndpointsFrom) -> Assignment {
        assignment(from, self.answers)
    }

    /// Takes note that the cluster `user` has the names in `from`.
    pub(crate) fn add_user(&mut self, from: &EndpointsFrom, user: ClusterId) {
        for name in from.names() {
            self.users.entry(Arc::clone(name)).or_default().push(user);
        }
    }

    pub(crate) fn into_users(self) -> NameUsers {
        self.users
    }
}

/// The same machine by an address of either family is one endpoint.
fn canonical(address: &Address) -> Address {
    match address {
        Address::Tcp(address) => {
            Address::Tcp(SocketAddr::new(address.ip().to_canonical(), address.port()))
        }
        Address::Unix(_) => address.clone(),
    }
}

/// The endpoints of a list, each address once. Of equal ones that counts which the list itself has, before those that names bring; then
/// that of the first priority; then that which comes first.
#[derive(Default)]
struct Distinct {
    endpoints: Vec<Endpoint>,
    /// Where each address stands, and what it counts for.
    places: Map<Address, (usize, Rank)>,
}

/// Whether a name brought it, and its priority: less counts before more.
type Rank = (bool, u8);

impl Distinct {
    fn add(&mut self, is_named: bool, endpoint: Endpoint) {
        let rank = (is_named, endpoint.traits.priority);
        match self.places.entry(canonical(&endpoint.address)) {
            Entry::Vacant(entry) if self.endpoints.len() < ENDPOINTS_MAX => {
                entry.insert((self.endpoints.len(), rank));
                self.endpoints.push(endpoint);
            }
            Entry::Vacant(_) => {}
            Entry::Occupied(mut entry) => {
                let (place, known) = entry.get_mut();
                if rank < *known
                    && let Some(other) = self.endpoints.get_mut(*place)
                {
                    (*known, *other) = (rank, endpoint);
                }
            }
        }
    }
}

/// What these answers make of the names among endpoints. See [`Distinct`] for addresses that occur several times.
pub(crate) fn assignment(from: &EndpointsFrom, answers: &Answers) -> Assignment {
    let mut endpoints = Distinct::default();
    let of = |name: &Arc<DnsName>| answers.get(name).map(|answer| &**answer).unwrap_or_default();
    let endpoint = |resolved: &Resolved, weight: u16, traits: &Traits| Endpoint {
        address: Address::Tcp(resolved.address),
        weight,
        host: Some(Arc::clone(&resolved.host)),
        traits: traits.clone(),
    };
    match from {
        EndpointsFrom::Addresses | EndpointsFrom::File(_) | EndpointsFrom::Assignment => {}
        EndpointsFrom::Dns(name) => {
            of(name).iter().for_each(|resolved| {
                let traits = Traits { priority: resolved.priority, ..Traits::default() };
                endpoints.add(true, endpoint(resolved, resolved.weight.get(), &traits));
            });
        }
        EndpointsFrom::Names(listed) => {
            for entry in &**listed {
                match entry {
                    ListedEndpoint::Address { address, weight, host, traits } => {
                        let (address, traits) = (address.clone(), traits.clone());
                        let (weight, host) = (*weight, host.clone());
                        endpoints.add(false, Endpoint { address, weight, host, traits });
                    }
                    ListedEndpoint::Name { name, weight, traits } => {
                        let all = of(name).iter();
                        all.for_each(|it| endpoints.add(true, endpoint(it, *weight, traits)));
                    }
                }
            }
        }
    }
    Assignment { endpoints: endpoints.endpoints }
}
