//! Assignments: the endpoints of clusters, which sources deliver apart from these.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::findings::{Findings, Problem};
use crate::resource::assignment::endpoints;
use crate::resource::assignment::file::{AssignedEndpoint, Assignment as FileAssignment, Locality};
use crate::resource::assignment::files::check_bounds;
use crate::resource::cluster::file::{Endpoint as FileEndpoint, WeightedEndpoint};
use crate::resource::{Assignment, Endpoint};
use crate::snapshot::{Cluster, EndpointsFrom, Traits};
use crate::text::tree::Site;

/// What sources have assigned to clusters of these names.
pub(crate) struct Assignments<'a> {
    find: &'a dyn Fn(&str) -> Option<Arc<Assignment>>,
    user: User,
    /// The clusters without one.
    missing: BTreeSet<Box<str>>,
}

/// Whose clusters want assignments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The file's, which is taken whole and waits for none: a cluster goes on with the endpoints that it had, wherever they
    /// were from.
    File,
    /// Another source's, each of which serves as its former version does until it has one.
    Source,
}

impl<'a> Assignments<'a> {
    pub(crate) const fn new(find: &'a dyn Fn(&str) -> Option<Arc<Assignment>>, user: User) -> Self {
        Self { find, user, missing: BTreeSet::new() }
    }

    /// The endpoints of a cluster, if there are some.
    pub(crate) fn find(&self, cluster: &str) -> Option<Arc<Assignment>> {
        (self.find)(cluster)
    }

    /// The endpoints of a cluster. Those that it had stay where an assignment is gone.
    pub(crate) fn of(&mut self, cluster: &str, former: Option<&Arc<Cluster>>) -> Arc<Assignment> {
        (self.find)(cluster).unwrap_or_else(|| {
            self.missing.insert(cluster.into());
            let former = former.filter(|it| {
                self.user == User::File || it.endpoints_from == EndpointsFrom::Assignment
            });
            Arc::new(former.map(|former| as_it_is(former)).unwrap_or_default())
        })
    }

    /// The clusters without one.
    pub(crate) const fn missing(&self) -> &BTreeSet<Box<str>> {
        &self.missing
    }
}

fn as_it_is(cluster: &Cluster) -> Assignment {
    let endpoints = cluster.endpoints.iter().map(|endpoint| Endpoint {
        address: endpoint.address.clone(),
        weight: endpoint.weight_undrained,
        host: endpoint.host().cloned(),
        traits: Traits {
            priority: endpoint.priority,
            metadata: endpoint.description.as_ref().and_then(|it| it.metadata.clone()),
            locality: endpoint.locality().cloned(),
            health: endpoint.reported,
        },
    });
    Assignment { endpoints: endpoints.collect(), ..Assignment::default() }
}

/// An assignment that a source has delivered. If something was reported, it is not to be used.
pub(crate) fn assignment(
    file: &FileAssignment,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Assignment {
    let site = site.key("endpoints");
    let listed: Vec<FileEndpoint> = file.endpoints.iter().map(listed).collect();
    for (entry, site) in file.endpoints.iter().zip(site.items()) {
        check(entry, &site, findings);
    }
    let list = endpoints::lower(&listed, &|_| true, &site, findings);
    let mut assignment = list.into_assignment();
    for (endpoint, entry) in assignment.endpoints.iter_mut().zip(&file.endpoints) {
        let AssignedEndpoint::Described(entry) = entry else { continue };
        endpoint.traits.locality = entry.locality.clone().map(Arc::new);
    }
    if let Err(problem) = check_bounds(&assignment) {
        site.error(findings, problem);
    }
    assignment
}

fn listed(entry: &AssignedEndpoint) -> FileEndpoint {
    match entry {
        AssignedEndpoint::Address(address) => FileEndpoint::Address(address.clone()),
        AssignedEndpoint::Described(it) => FileEndpoint::Weighted(Box::new(WeightedEndpoint {
            address: it.address.clone(),
            weight: it.weight,
            priority: it.priority,
            locality: None,
            health: it.health,
            metadata: it.metadata.clone(),
            host: it.host.clone(),
        })),
    }
}

fn check(entry: &AssignedEndpoint, site: &Site<'_>, findings: &mut Findings<'_>) {
    let inner = site.key("address");
    let (address, site_of_address) = match entry {
        AssignedEndpoint::Address(address) => (address, site),
        AssignedEndpoint::Described(it) => (&it.address, &inner),
    };
    let hint = "let the source deliver an address with a port";
    match address.address() {
        None => {
            let rule = "an assignment contains addresses only, not host names";
            site_of_address.error(findings, Problem::new(rule, hint));
        }
        Some(address) if address.is_unix() => {
            let rule = "a delivered resource cannot name unix sockets of this machine";
            site_of_address.error(findings, Problem::new(rule, hint));
        }
        Some(_) => {}
    }
    if let AssignedEndpoint::Described(it) = entry
        && let Some(Err(problem)) = it.locality.as_ref().map(Locality::check)
    {
        site.key("locality").error(findings, problem);
    }
}
