//! What a worker has learned of clusters and endpoints, for another process to go on with: whose turn it is, how long responses
//! took, which endpoints are new, or refuse.
//!
//! It is handed over beside connections, by name, and a part at a time, so that no turn gets long. What the other configuration
//! does not have is left out there.

use config::priority::Priority;
use config::snapshot::{Cluster, ClusterId};
use serde::{Deserialize, Serialize};

use crate::proxy::Proxy;
use crate::tools::text::Text;
use crate::tools::time::Time;
use crate::upstream::pool::{LearnedOfEndpoint, Pool, Turns};

/// Clusters and endpoints that are looked at for a part, and how many of those are worth as much as one that is written down.
const LOOKS_MAX: u32 = 4_096;
const LOOKS_A_TEXT: u32 = 8;

/// What was learned of a cluster, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterBalancing {
    /// Its name.
    pub cluster: String,
    /// Whose turn it is in each group of its endpoints, for requests of default priority.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<Turns>,
    /// The same for those of high priority.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns_high: Vec<Turns>,
    /// What was learned of endpoints, by their addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<(String, LearnedOfEndpoint)>,
}

/// Where to go on with writing down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalancingPlace {
    cluster: u32,
    endpoint: u32,
}

impl Proxy {
    /// What this worker has learned, from a place on, and where to go on if there is more. The snapshot may not change meanwhile.
    #[must_use]
    pub fn save_balancing(
        &self,
        from: BalancingPlace,
        now: Time,
    ) -> (Vec<ClusterBalancing>, Option<BalancingPlace>) {
        let (mut saved, mut looks) = (Vec::new(), 0);
        let clusters = self.snapshot().clusters.iter().map(|(_, cluster)| cluster).zip(0u32..);
        for (cluster, place) in clusters.skip(from.cluster as usize) {
            let first = if place == from.cluster { from.endpoint } else { 0 };
            let mut learned = ClusterBalancing::default();
            if first == 0 {
                let turns = |priority| self.upstream.pools.turns(Pool::new(cluster, priority).id());
                learned.turns = turns(Priority::Default);
                learned.turns_high = turns(Priority::High);
            }
            looks += 1;
            let next = self.save_endpoints(cluster, first, (&mut learned, &mut looks), now);
            let is_learned = !learned.turns.is_empty() || !learned.turns_high.is_empty();
            if is_learned || !learned.endpoints.is_empty() {
                learned.cluster = cluster.name.to_string();
                saved.push(learned);
                looks += LOOKS_A_TEXT;
            }
            if let Some(endpoint) = next {
                return (saved, Some(BalancingPlace { cluster: place, endpoint }));
            }
            if looks >= LOOKS_MAX {
                return (saved, Some(BalancingPlace { cluster: place + 1, endpoint: 0 }));
            }
        }
        (saved, None)
    }

    /// The endpoints of a cluster from a place on, and where to go on if there are more.
    fn save_endpoints(
        &self,
        cluster: &Cluster,
        first: u32,
        (learned, looks): (&mut ClusterBalancing, &mut u32),
        now: Time,
    ) -> Option<u32> {
        for (endpoint, place) in cluster.endpoints.iter().zip(0u32..).skip(first as usize) {
            if *looks >= LOOKS_MAX {
                return Some(place);
            }
            *looks += 1;
            if let Some(of_endpoint) = self.upstream.pools.learned(endpoint.id, now) {
                let address = Text::of_address(Some(&endpoint.address));
                let address = String::from_utf8_lossy(address.as_bytes()).into_owned();
                learned.endpoints.push((address, of_endpoint));
                *looks += LOOKS_A_TEXT;
            }
        }
        None
    }

    /// Goes on with what a worker of another process has learned. It may be anything.
    pub fn restore_balancing(&mut self, saved: &[ClusterBalancing], now: Time) {
        for learned in saved {
            let id = self.cx.names().cluster(&learned.cluster, &self.cx.snapshot);
            let snapshot = self.cx.snapshot.clone();
            let Some(cluster) = id.and_then(|ClusterId(id)| snapshot.clusters.find(id)) else {
                continue;
            };
            let pools = &mut self.upstream.pools;
            pools.set_turns(Pool::new(cluster, Priority::Default), &learned.turns);
            pools.set_turns(Pool::new(cluster, Priority::High), &learned.turns_high);
            for (address, of_endpoint) in &learned.endpoints {
                let place = self.cx.found.endpoint(cluster, address.as_bytes());
                if let Some(endpoint) = place.and_then(|place| cluster.endpoints.get(place)) {
                    pools.learn(endpoint.id, of_endpoint, now);
                }
            }
        }
    }
}
