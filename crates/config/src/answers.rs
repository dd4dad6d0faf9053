//! What answers make of the host names among endpoints. A name without an answer stands for none.

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

/// What these answers make of the names among endpoints. The first of equal addresses counts.
pub(crate) fn assignment(from: &EndpointsFrom, answers: &Answers) -> Assignment {
    let mut taken: Map<Address, ()> = Map::default();
    let mut endpoints = Vec::new();
    let mut add = |endpoint: Endpoint| {
        let is_new =
            endpoints.len() < ENDPOINTS_MAX && taken.insert(endpoint.address.clone(), ()).is_none();
        if is_new {
            endpoints.push(endpoint);
        }
    };
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
                add(endpoint(resolved, resolved.weight.get(), &traits));
            });
        }
        EndpointsFrom::Names(listed) => {
            for entry in &**listed {
                match entry {
                    ListedEndpoint::Address { address, weight, host, traits } => {
                        let (address, traits) = (address.clone(), traits.clone());
                        add(Endpoint { address, weight: *weight, host: host.clone(), traits });
                    }
                    ListedEndpoint::Name { name, weight, traits } => {
                        let all = of(name).iter();
                        all.for_each(|resolved| add(endpoint(resolved, *weight, traits)));
                    }
                }
            }
        }
    }
    Assignment { endpoints }
}
