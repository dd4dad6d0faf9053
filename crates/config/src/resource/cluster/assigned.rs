//! The endpoints of a cluster as workers use them: with ids, health, and what follows for choosing among them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::address::Address;
use crate::ids::Draft;
use crate::map::Map;
use crate::resource::assignment::endpoints_from::LeftOut;
use crate::resource::assignment::locality::{LocalityKey, LocalityRule};
use crate::resource::cluster::balance::Balancer;
use crate::resource::cluster::breakers::EndpointConnections;
use crate::resource::cluster::health::HealthCell;
use crate::resource::cluster::subsets::{Metadata, Selectors};
use crate::resource::cluster::transports::Transports;
use crate::resource::cluster::view::{Member, View};
use crate::resource::{self, Assignment};
use crate::snapshot::{Cluster, Description, Endpoint, EndpointId, EndpointsFrom};

/// By what a cluster chooses among its endpoints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choosing<'c> {
    pub(crate) balancer: Balancer,
    pub(crate) selectors: Option<&'c Selectors>,
    pub(crate) localities: Option<&'c LocalityRule>,
    pub(crate) transports: &'c Transports,
    /// Whether their health counts.
    pub(crate) has_health: bool,
    /// Whether connections to each of them are bounded.
    pub(crate) bounds_connections: bool,
    /// Those that operators drain, if there are any.
    pub(crate) drained: Option<&'c BTreeSet<Address>>,
}

/// The endpoints of a cluster with their ids, and what follows from them.
#[derive(Debug)]
pub(crate) struct Assigned {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) places_by_id: Box<[u32]>,
    pub(crate) view: View,
    pub(crate) left_out: Box<[LeftOut]>,
}

impl Assigned {
    /// An endpoint that `former` has keeps its id: it is its cluster, its address, and the host that TLS asks for
    /// there. That of a logical name is the name.
    pub(crate) fn new(
        assignment: &Assignment,
        from: &EndpointsFrom,
        choosing: Choosing<'_>,
        former: Option<&Arc<Cluster>>,
        draft: &mut Draft<'_>,
    ) -> Self {
        let Choosing { balancer, selectors, localities, transports, drained, .. } = choosing;
        let is_same_name = |former: &&Arc<Cluster>| {
            from.logical().is_some() && former.endpoints_from.logical() == from.logical()
        };
        let logical = former.filter(is_same_name).and_then(|former| former.endpoints.first());
        // The endpoint of a logical name is all that the name stood for: connections to what it stood for before are not the next one's.
        let is_address = |former: &&Arc<Cluster>| former.endpoints_from.logical().is_none();
        let known: Map<(&Address, Option<&str>), &Endpoint> = former
            .filter(is_address)
            .iter()
            .flat_map(|former| &former.endpoints)
            .map(|endpoint| ((&endpoint.address, endpoint.host().map(|host| &**host)), endpoint))
            .collect();
        let before = |endpoint: &resource::Endpoint| match logical {
            Some(logical) => Some(logical),
            None => known.get(&(&endpoint.address, endpoint.host.as_deref())).copied(),
        };
        let mut last_description = None;
        let endpoints = assignment.endpoints.iter().map(|endpoint| {
            let before = before(endpoint);
            let is_drained = drained.is_some_and(|drained| drained.contains(&endpoint.address));
            let weight_undrained = endpoint.traits.health.weight(endpoint.weight);
            Endpoint {
                id: before.map_or_else(|| draft.endpoint(), |before| before.id),
                address: endpoint.address.clone(),
                weight: if is_drained { 0 } else { weight_undrained },
                weight_undrained,
                is_drained,
                priority: endpoint.traits.priority,
                reported: endpoint.traits.health,
                health: HealthCell::new(choosing.has_health, before.map(|before| &before.health)),
                connections: EndpointConnections::new(
                    choosing.bounds_connections,
                    before.map(|before| &before.connections),
                ),
                transport: match &endpoint.traits.metadata {
                    Some(metadata) => transports.choose(metadata),
                    None => transports.choose(&Metadata::new()),
                },
                description: describe(endpoint, &mut last_description),
            }
        });
        let by = (balancer, selectors, localities);
        Self { left_out: assignment.left_out.clone(), ..Self::of(endpoints.collect(), by, former) }
    }

    /// The same endpoints as before, of which others are drained; none if the same are.
    pub(crate) fn drained(
        before: &Arc<Cluster>,
        drained: Option<&BTreeSet<Address>>,
    ) -> Option<Self> {
        let mut endpoints = before.endpoints.clone();
        for endpoint in &mut endpoints {
            endpoint.is_drained = drained.is_some_and(|it| it.contains(&endpoint.address));
            endpoint.weight = if endpoint.is_drained { 0 } else { endpoint.weight_undrained };
        }
        if endpoints == before.endpoints {
            return None;
        }
        let by = (before.balancer, before.selectors.as_ref(), before.localities.as_ref());
        let left_out = before.left_out.clone();
        Some(Self { left_out, ..Self::of(endpoints, by, Some(before)) })
    }

    fn of(
        endpoints: Vec<Endpoint>,
        (balancer, selectors, localities): (Balancer, Option<&Selectors>, Option<&LocalityRule>),
        former: Option<&Arc<Cluster>>,
    ) -> Self {
        let places_by_id = places_by_id(&endpoints);
        let of_former = former.map(|former| members(&former.endpoints));
        let former = former.zip(of_former.as_deref());
        let former = former.map(|(former, members)| (&former.view, members, former.balancer));
        let view = View::new(&members(&endpoints), selectors, localities, balancer, former);
        Self { endpoints, places_by_id, view, left_out: Box::default() }
    }

    pub(crate) fn put_into(self, cluster: Cluster) -> Cluster {
        let Self { endpoints, places_by_id, view, left_out } = self;
        Cluster { endpoints, places_by_id, view, left_out, ..cluster }
    }
}

fn members(endpoints: &[Endpoint]) -> Vec<Member<'_>> {
    let members = endpoints.iter().map(|endpoint| Member {
        address: &endpoint.address,
        weight: endpoint.weight,
        priority: endpoint.priority,
        metadata: endpoint.metadata(),
        locality: endpoint.locality().map_or_else(LocalityKey::unknown, |it| it.key()),
        status: endpoint.status(),
        has_health: endpoint.health.get().is_some(),
    });
    members.collect()
}

/// The places of endpoints in the order of their ids, or none if they stand in that order, as they do
/// unless an endpoint took the id of one that is gone.
pub(crate) fn places_by_id(endpoints: &[Endpoint]) -> Box<[u32]> {
    if endpoints.is_sorted_by_key(|endpoint| endpoint.id) {
        return Box::default();
    }
    let mut places: Vec<(EndpointId, u32)> =
        endpoints.iter().map(|endpoint| endpoint.id).zip(0..).collect();
    places.sort_unstable();
    places.into_iter().map(|(_, place)| place).collect()
}

/// What is said of an endpoint beside its address. It is often what is said of the one before.
fn describe(
    endpoint: &resource::Endpoint,
    last: &mut Option<Arc<Description>>,
) -> Option<Arc<Description>> {
    let (host, traits) = (endpoint.host.clone(), &endpoint.traits);
    let (locality, metadata) = (traits.locality.clone(), traits.metadata.clone());
    let description = Description { host, locality, metadata };
    if last.as_deref() != Some(&description) {
        *last = (description != Description::default()).then(|| Arc::new(description));
    }
    last.clone()
}
