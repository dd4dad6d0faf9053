//! What answers make of the host names among endpoints. A name without an answer stands for none.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::address::Address;
use crate::dns::{DnsAnswer, DnsName, Resolved};
use crate::map::Map;
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
        for name in from.names() {
            self.users.entry(Arc::clone(name)).or_default().push(user);
        }
        assignment(from, self.answers)
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

/// Of equal addresses one counts: that which the list itself has, before those that names bring; then that of the first priority; then
/// that which comes first.
fn without_equals(mut endpoints: Vec<(bool, Endpoint)>) -> Vec<Endpoint> {
    let rank = |(is_named, endpoint): &(bool, Endpoint)| (*is_named, endpoint.traits.priority);
    let mut best: Map<Address, usize> = Map::default();
    for (place, candidate) in endpoints.iter().enumerate() {
        let other = best.entry(canonical(&candidate.1.address)).or_insert(place);
        if endpoints.get(*other).is_some_and(|other| rank(candidate) < rank(other)) {
            *other = place;
        }
    }
    let mut place = 0..;
    endpoints
        .retain(|(_, endpoint)| best.get(&canonical(&endpoint.address)).copied() == place.next());
    endpoints.truncate(ENDPOINTS_MAX);
    endpoints.into_iter().map(|(_, endpoint)| endpoint).collect()
}

/// What these answers make of the names among endpoints. See [`without_equals`] for addresses that occur several times.
pub(crate) fn assignment(from: &EndpointsFrom, answers: &Answers) -> Assignment {
    let mut endpoints = Vec::new();
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
                endpoints.push((true, endpoint(resolved, resolved.weight.get(), &traits)));
            });
        }
        EndpointsFrom::Names(listed) => {
            for entry in &**listed {
                match entry {
                    ListedEndpoint::Address { address, weight, host, traits } => {
                        let (address, traits) = (address.clone(), traits.clone());
                        let (weight, host) = (*weight, host.clone());
                        endpoints.push((false, Endpoint { address, weight, host, traits }));
                    }
                    ListedEndpoint::Name { name, weight, traits } => {
                        let all = of(name).iter();
                        let all = all.map(|resolved| (true, endpoint(resolved, *weight, traits)));
                        endpoints.extend(all);
                    }
                }
            }
        }
    }
    Assignment { endpoints: without_equals(endpoints) }
}
