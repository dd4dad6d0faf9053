//! What a process knows of the health of endpoints, for the one that takes its place.
//!
//! Those that are unhealthy or degraded are named, with the reason. Those that are healthy are tens of thousands: of each there is
//! only a number of 32 bits, its *mark*. An endpoint with neither is as unknown to the other process as a new one.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::{Checked, Checker};
use crate::address::Address;
use crate::map::Map;
use crate::resource::cluster::checks::targets::Target;
use crate::snapshot::Snapshot;
use crate::xxhash::xxh64;

/// An endpoint that is unhealthy or degraded, for another process that goes on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedCheck {
    /// Its address.
    pub endpoint: Address,
    /// What is asked there, as a number that is the same in every process.
    pub fingerprint: u64,
    /// Why it is unhealthy; none if it is degraded.
    pub reason: Option<Box<str>>,
    /// Since how long.
    pub lasted: Duration,
}

impl Checker {
    /// Up to `count_max` endpoints that are unhealthy or degraded.
    #[must_use]
    pub fn remembered(&self, now: Duration, count_max: usize) -> Vec<RememberedCheck> {
        let listed = self.targets.values().filter(|target| is_unhealthy_or_degraded(target));
        let remembered = listed.take(count_max).map(|target| RememberedCheck {
            endpoint: target.address.clone(),
            fingerprint: target.asked.fingerprint,
            reason: (target.is_healthy == Some(false))
                .then(|| target.reason().unwrap_or_default().into()),
            lasted: now.saturating_sub(target.since.into()),
        });
        remembered.collect()
    }

    /// The marks of up to `count_max` endpoints that have passed their check, and are neither unhealthy nor degraded.
    #[must_use]
    pub fn marks_of_healthy(&self, count_max: usize) -> Vec<u32> {
        let all = self.targets.values();
        let healthy = all.filter(|target| target.is_healthy == Some(true) && !target.is_degraded);
        healthy.take(count_max).map(mark).collect()
    }

    /// Goes on with what another process knew: which endpoints were unhealthy or degraded, and the marks of healthy ones. What this one
    /// has found out itself stays, unless the other `is_newer`: then what it does not name is healthy.
    pub fn adopt<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        (listed, healthy): (&[RememberedCheck], &[u32]),
        is_newer: bool,
        now: Duration,
    ) -> Checked {
        let known: Map<(&Address, u64), &RememberedCheck> =
            listed.iter().map(|one| ((&one.endpoint, one.fingerprint), one)).collect();
        let mut healthy = healthy.to_vec();
        healthy.sort_unstable();
        let mut clusters = BTreeSet::new();
        for target in self.targets.values_mut() {
            let key = (&target.address, target.asked.fingerprint);
            let one = known.get(&key).copied();
            let is_adopted = match target.is_healthy {
                None => one.is_some() || healthy.binary_search(&mark(target)).is_ok(),
                Some(_) => is_newer && (is_unhealthy_or_degraded(target) || one.is_some()),
            };
            if !is_adopted {
                continue;
            }
            match one.map(|one| &one.reason) {
                Some(Some(reason)) => target.fail_as_before(reason),
                Some(None) => target.pass_as_before(true),
                None => target.pass_as_before(false),
            }
            let lasted = one.map_or(Duration::ZERO, |one| one.lasted);
            target.since = now.saturating_sub(lasted).into();
            clusters.extend(target.users().map(|user| user.cluster));
        }
        for cluster in clusters.iter().filter_map(|id| snapshot.cluster(*id)) {
            self.settle_cluster(cluster);
        }
        Checked { changed: clusters, ..Checked::default() }
    }
}

fn is_unhealthy_or_degraded(target: &Target) -> bool {
    target.is_healthy == Some(false) || target.is_degraded
}

/// Stands for an address and what is asked there, in each process and version alike. Two that have the same by chance do no harm: one
/// is taken for healthy until its checks fail.
fn mark(target: &Target) -> u32 {
    let fingerprint = target.asked.fingerprint;
    let hash = match &target.address {
        Address::Tcp(address) => {
            let port = xxh64(&address.port().to_be_bytes(), fingerprint);
            match address.ip() {
                IpAddr::V4(ip) => xxh64(&ip.octets(), port),
                IpAddr::V6(ip) => xxh64(&ip.octets(), port),
            }
        }
        Address::Unix(path) => xxh64(path.as_os_str().as_encoded_bytes(), fingerprint),
    };
    let [first, second, third, fourth, ..] = hash.to_be_bytes();
    u32::from_be_bytes([first, second, third, fourth])
}
