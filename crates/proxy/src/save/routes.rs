//! The rule that an exchange met, as it is written down: by name, never by its place.
//!
//! A rule that is gone is no error: the exchange goes on with its cluster, and what only the rule says is left out.

use std::num::NonZeroU64;
use std::sync::Arc;

use config::priority::Priority;
use config::snapshot::{Action, ClusterId, Forward, Rule};
use config::targets::{Share, Target};
use serde::{Deserialize, Serialize};
use wire::host::Authority;

use super::GONE;
use crate::cx::Cx;
use crate::exchange::route::{edits_response, takes_endpoint_host};
use crate::exchange::{Exchange, Route};
use crate::tools::pinned::Pinned;
use crate::tools::text::Text;

/// A rule by its table and by what it matches, and which it is of several that match the same: where it
/// stands may be another place in the next configuration, or another rule's.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedRule {
    table: String,
    condition: String,
    nth: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedRoute {
    rule: Option<SavedRule>,
    cluster: Option<String>,
    endpoint: Option<Vec<u8>>,
    hash: Option<NonZeroU64>,
    subset: Option<NonZeroU64>,
    cookie: Option<NonZeroU64>,
    share: Option<u32>,
    host_before: Option<Vec<u8>>,
}

/// The place of a cluster among the weights of a rule: where it was, or else the first with this cluster.
pub(super) fn share_of(rule: &Rule, cluster: ClusterId, place: Option<u32>) -> Option<u32> {
    let Action::Forward(Forward { target: Target::Shares(shares), .. }) = &rule.action else {
        return None;
    };
    let place = usize::try_from(place?).ok()?;
    let is_same = |share: &Share| share.cluster == cluster;
    let found = match shares.clusters().get(place).is_some_and(is_same) {
        true => Some(place),
        false => shares.clusters().iter().position(is_same),
    };
    found.and_then(|place| u32::try_from(place).ok())
}

/// Whose connections the requests of a rule use.
const fn priority_of(rule: &Rule) -> Priority {
    match &rule.action {
        Action::Forward(forward) => forward.priority,
        Action::Respond(_) | Action::Redirect(_) => Priority::Default,
    }
}

/// Whether these octets may stand in a head as its host.
fn is_host(octets: &&[u8]) -> bool {
    octets.is_empty() || Authority::parse(octets).is_some()
}

/// The host of a share of the weights.
fn host_of(forward: &Forward, share: Option<u32>) -> Option<&str> {
    let Target::Shares(shares) = &forward.target else { return None };
    shares.clusters().get(usize::try_from(share?).ok()?)?.host.as_deref()
}

impl Cx {
    pub(super) fn write_route(&mut self, exchange: &Exchange, route: &Route) -> SavedRoute {
        let is_newest = self.is_newest(&exchange.snapshot);
        let rule = route.rule.and_then(|(table, place)| {
            let table = exchange.snapshot.route_table(table)?;
            let named = match is_newest {
                true => self.found.identity(table, place as usize),
                false => table.name_of(place as usize),
            };
            let (condition, nth) = named?;
            let nth = u32::try_from(nth).ok()?;
            Some(SavedRule { table: table.name.to_string(), condition, nth })
        });
        let cluster = exchange.cluster();
        let endpoint = cluster
            .zip(route.endpoint)
            .and_then(|(cluster, place)| cluster.endpoints.get(place))
            .map(|endpoint| Text::of_address(Some(&endpoint.address)).as_bytes().to_vec());
        let Route { hash, subset, cookie, share, .. } = *route;
        let cluster = cluster.map(|cluster| cluster.name.to_string());
        let host_before = route.host_before.as_ref().map(|host| host.filled().to_vec());
        SavedRoute { rule, cluster, endpoint, hash, subset, cookie, share, host_before }
    }

    pub(super) fn restore_route(&mut self, snapshot: &Pinned, saved: &SavedRoute) -> Route {
        // A listener that exchanges come to does not drain: it is seen as the newest snapshot has it.
        debug_assert!(self.is_newest(snapshot), "names are those of the newest snapshot");
        let found = saved.rule.as_ref().and_then(|saved| {
            let table = self.names().route_table(&saved.table, snapshot)?;
            let table = snapshot.route_table(table)?;
            Some((table, self.found.rule(table, &saved.condition, saved.nth)?))
        });
        let rule = found.and_then(|(table, place)| Some((table.id, u32::try_from(place).ok()?)));
        let cluster = saved.cluster.as_ref().map(|name| {
            let id = self.names().cluster(name, snapshot);
            id.and_then(|id| snapshot.cluster(id))
        });
        let endpoint = saved.endpoint.as_ref().zip(cluster.flatten());
        let endpoint =
            endpoint.and_then(|(address, cluster)| self.found.endpoint(cluster, address));
        let id = cluster.map(|found| found.map_or(ClusterId(GONE), |cluster| cluster.id));
        let rules = found.and_then(|(table, place)| Some((table, table.rules.get(place)?)));
        // The weights may be others now.
        let share = rules.and_then(|(_, rule)| share_of(rule, id?, saved.share));
        let has_edits = rules.is_some_and(|(table, rule)| edits_response(table, rule, share));
        let takes_endpoint_host = rules.is_some_and(|(_, rule)| {
            let Action::Forward(forward) = &rule.action else { return false };
            takes_endpoint_host(forward, host_of(forward, share))
        });
        let priority = rules.map_or(Priority::Default, |(_, rule)| priority_of(rule));
        let SavedRoute { hash, subset, cookie, .. } = *saved;
        let host_before = saved.host_before.as_deref().filter(is_host);
        Route {
            priority,
            endpoint,
            hash,
            subset,
            cookie,
            share,
            has_edits,
            takes_endpoint_host,
            host_before: host_before.map(|host| self.buffers.lease_with(host)),
            ..Route::new(rule, id)
        }
    }

    /// Whether a snapshot is the newest, whose names are known.
    fn is_newest(&self, snapshot: &Pinned) -> bool {
        Arc::ptr_eq(self.snapshot.shared(), snapshot.shared())
    }
}
