//! What answers make of the host names among endpoints. A name without an answer stands for none.
//!
//! Nothing that DNS says takes a place from what the list itself has: addresses of names are left out where there are too
//! many. What is left out stands with the cluster, so that it can be shown.

use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::hash_map::Entry;

use crate::address::Address;
use crate::map::Map;
use crate::resource::assignment::dns::{DnsAnswer, DnsName, Resolved};
use crate::resource::assignment::endpoints_from::LeftOut;
use crate::resource::{Assignment, Endpoint, WEIGHTS_MAX};
use crate::snapshot::{ClusterId, EndpointsFrom, ListedEndpoint, Traits};

/// Endpoints of a cluster that has host names among them. Of answers that bring more, as many are used as there is room for beside the
/// addresses of the list, in the order of the list.
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
    /// Where each address stands, and what it counts for; none where it is the list's, which comes later.
    places: Map<Address, Option<(usize, Rank)>>,
    /// How many more there may be that the list itself has not.
    room: usize,
    left_out: Vec<LeftOut>,
}

/// Whether a name brought it, and its priority: less counts before more.
type Rank = (bool, u8);

impl Distinct {
    /// For a list that has these addresses itself.
    fn beside<'a>(own: impl Iterator<Item = &'a Address>) -> Self {
        let places: Map<_, _> = own.map(|address| (canonical(address), None)).collect();
        let room = ENDPOINTS_MAX.saturating_sub(places.len());
        Self { places, room, ..Self::default() }
    }

    /// Adds one that the list has, or that this name brought.
    fn add(&mut self, name: Option<&Arc<DnsName>>, endpoint: Endpoint) {
        let rank = (name.is_some(), endpoint.traits.priority);
        let place = self.endpoints.len();
        match self.places.entry(canonical(&endpoint.address)) {
            Entry::Vacant(entry) if self.room > 0 => {
                self.room -= 1;
                entry.insert(Some((place, rank)));
                self.endpoints.push(endpoint);
            }
            Entry::Vacant(_) => self.leave_out(name),
            Entry::Occupied(mut entry) => match entry.get_mut() {
                known @ None => {
                    *known = Some((place, rank));
                    self.endpoints.push(endpoint);
                }
                Some((place, known)) => {
                    if rank < *known
                        && let Some(other) = self.endpoints.get_mut(*place)
                    {
                        (*known, *other) = (rank, endpoint);
                    }
                }
            },
        }
    }

    /// Counts another address of a name. Those of one name come one after the other, unless the list has it twice.
    fn leave_out(&mut self, name: Option<&Arc<DnsName>>) {
        let Some(name) = name else { return };
        match self.left_out.last_mut() {
            Some(last) if last.name == *name => last.count = last.count.saturating_add(1),
            _ => self.left_out.push(LeftOut { name: Arc::clone(name), count: 1 }),
        }
    }

    fn into_assignment(mut self) -> Assignment {
        lessen_weights(&mut self.endpoints);
        Assignment { endpoints: self.endpoints, left_out: self.left_out.into() }
    }
}

/// Halves all weights, and rounds them up, until their sum is within its bound: answers are not refused, as a text is. So the shares
/// stay, and none becomes 0.
fn lessen_weights(endpoints: &mut [Endpoint]) {
    let is_over = |endpoints: &[Endpoint]| {
        endpoints.iter().map(|it| u64::from(it.weight)).sum::<u64>() > WEIGHTS_MAX
    };
    // At the latest it ends with weights of 1: 2^32 endpoints do not fit into memory before.
    while is_over(endpoints) && endpoints.iter().any(|it| it.weight > 1) {
        for endpoint in &mut *endpoints {
            endpoint.weight = endpoint.weight.div_ceil(2);
        }
    }
}

/// What these answers make of the names among endpoints. See [`Distinct`] for addresses that occur several times.
pub(crate) fn assignment(from: &EndpointsFrom, answers: &Answers) -> Assignment {
    let of = |name: &Arc<DnsName>| answers.get(name).map(|answer| &**answer).unwrap_or_default();
    let endpoint = |resolved: &Resolved, weight: u16, traits: &Traits| Endpoint {
        address: Address::Tcp(resolved.address),
        weight,
        host: Some(Arc::clone(&resolved.host)),
        traits: traits.clone(),
    };
    let mut endpoints = Distinct::beside(from.addresses());
    match from {
        EndpointsFrom::Addresses | EndpointsFrom::File(_) | EndpointsFrom::Assignment => {}
        EndpointsFrom::Dns(name) => {
            of(name).iter().for_each(|resolved| {
                let traits = Traits { priority: resolved.priority, ..Traits::default() };
                endpoints.add(Some(name), endpoint(resolved, resolved.weight.get(), &traits));
            });
        }
        EndpointsFrom::Names(listed) => {
            for entry in &**listed {
                match entry {
                    ListedEndpoint::Address { address, weight, host, traits } => {
                        let (address, traits) = (address.clone(), traits.clone());
                        let (weight, host) = (*weight, host.clone());
                        endpoints.add(None, Endpoint { address, weight, host, traits });
                    }
                    ListedEndpoint::Name { name, weight, traits } => {
                        let all = of(name).iter();
                        all.for_each(|it| endpoints.add(Some(name), endpoint(it, *weight, traits)));
                    }
                }
            }
        }
    }
    endpoints.into_assignment()
}
