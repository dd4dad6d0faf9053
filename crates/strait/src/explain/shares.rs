//! What part of the requests for a cluster each of its endpoints gets.
//!
//! The weights of a group are added up once for each status, however many of its endpoints are asked about: clusters
//! have up to 100,000.

use std::collections::BTreeMap;

use config::health::HealthStatus;
use config::locality::LocalityKey;
use config::snapshot::{Cluster, Endpoint};
use config::subsets::SubsetHash;
use config::view::{self, Group, GroupShares};

/// The shares of a cluster's endpoints for the requests that ask for one subset, or for none.
#[derive(Debug)]
pub(super) struct Shares<'c> {
    groups: Vec<OfGroup<'c>>,
}

/// What is shared out among the endpoints of one priority.
#[derive(Debug)]
struct OfGroup<'c> {
    group: &'c Group,
    of_all: GroupShares,
    weights: Weights,
    /// Of healthy endpoints and of degraded ones, where localities count for these.
    by_locality: [Option<ByLocality>; 2],
}

/// What is shared out among the endpoints that have one status.
#[derive(Debug)]
struct ByLocality {
    /// What a locality gets of the requests, and the weights of its endpoints.
    parts: BTreeMap<LocalityKey, (f64, Weights)>,
    /// What goes to any endpoint of the group.
    others: f64,
}

/// The sums of weights by status.
#[derive(Clone, Copy, Debug, Default)]
struct Weights {
    healthy: u64,
    degraded: u64,
    unhealthy: u64,
}

impl<'c> Shares<'c> {
    /// `own`: the locality of the process.
    pub(super) fn new(
        cluster: &'c Cluster,
        subset: Option<SubsetHash>,
        own: Option<LocalityKey>,
    ) -> Self {
        let levels = cluster.view.levels(subset);
        let of_all = view::parts(levels, cluster.panic);
        let groups = levels.iter().zip(of_all).map(|(group, of_all)| {
            let by_locality = [HealthStatus::Healthy, HealthStatus::Degraded]
                .map(|status| ByLocality::new(cluster, group, own, status));
            OfGroup { group, of_all, weights: Weights::of(cluster, group), by_locality }
        });
        Self { groups: groups.collect() }
    }

    /// The share of the endpoint at this place in the cluster.
    pub(super) fn of(&self, place: usize, endpoint: &Endpoint) -> f64 {
        let found = self.groups.iter().find(|it| it.group.inner(place).is_some());
        found.map_or(0.0, |of_group| of_group.share(endpoint))
    }
}

impl OfGroup<'_> {
    fn share(&self, endpoint: &Endpoint) -> f64 {
        let GroupShares { healthy, degraded, is_panicking } = self.of_all;
        let part_of = |all: u64| f64::from(endpoint.weight) / all.max(1) as f64;
        if is_panicking {
            return (healthy + degraded) * part_of(self.weights.all());
        }
        let status = endpoint.status();
        let [of_healthy, of_degraded] = &self.by_locality;
        let (of_status, by_locality) = match status {
            HealthStatus::Healthy => (healthy, of_healthy),
            HealthStatus::Degraded => (degraded, of_degraded),
            HealthStatus::Unhealthy => return 0.0,
        };
        let any = part_of(self.weights.having(status));
        let Some(by_locality) = by_locality else { return of_status * any };
        let key = endpoint.locality().map_or_else(LocalityKey::unknown, |it| it.key());
        let part = by_locality.parts.get(&key);
        let of_part = part.map_or(0.0, |(share, all)| share * part_of(all.having(status)));
        of_status * (of_part + by_locality.others * any)
    }
}

impl ByLocality {
    fn new(
        cluster: &Cluster,
        group: &Group,
        own: Option<LocalityKey>,
        status: HealthStatus,
    ) -> Option<Self> {
        let (parts, others) = group.part_shares(own, status)?;
        let parts = parts.into_iter().map(|(part, share)| {
            let weights = Weights::of(cluster, &part.group);
            (part.key, (share, weights))
        });
        Some(Self { parts: parts.collect(), others })
    }
}

impl Weights {
    fn of(cluster: &Cluster, group: &Group) -> Self {
        let mut weights = Self::default();
        let members = (0..group.len()).filter_map(|at| cluster.endpoints.get(group.place(at)?));
        for endpoint in members {
            let of_status = match endpoint.status() {
                HealthStatus::Healthy => &mut weights.healthy,
                HealthStatus::Degraded => &mut weights.degraded,
                HealthStatus::Unhealthy => &mut weights.unhealthy,
            };
            *of_status += u64::from(endpoint.weight);
        }
        weights
    }

    const fn having(self, status: HealthStatus) -> u64 {
        match status {
            HealthStatus::Healthy => self.healthy,
            HealthStatus::Degraded => self.degraded,
            HealthStatus::Unhealthy => self.unhealthy,
        }
    }

    const fn all(self) -> u64 {
        self.healthy + self.degraded + self.unhealthy
    }
}
