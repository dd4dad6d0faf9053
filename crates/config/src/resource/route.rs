//! Route tables.

pub(crate) mod build;
pub mod clients;
pub mod edits;
pub mod explain;
pub mod file;
pub mod hash;
pub mod matching;
pub mod mirrors;
pub mod paths;
pub(crate) mod patterns;
pub(crate) mod redirects;
mod resolved;
pub mod retry;
pub mod rewrite;
pub(crate) mod rule;
pub(crate) mod rule_slots;
pub(crate) mod tables;
pub mod targets;
pub(crate) mod tunnels;
pub(crate) mod virtual_hosts;

use std::sync::{Arc, OnceLock};

use crate::hosts::Host;
use crate::map::Map;
use crate::resource::error_pages::ErrorPages;
use crate::resource::route::edits::HeaderEdits;
use crate::resource::route::matching::{Asked, Criterion, Regexes, Searches};
use crate::resource::route::paths::PathTable;
use crate::resource::route::rule::{Action, Rule};
use crate::resource::route::rule_slots::{RuleSlot, RuleSlots};
use crate::resource::route::targets::{ShareKey, Shares};
use crate::resource::runtime::RuntimeUse;
use crate::snapshot::id::{ClusterId, RouteTableId};

/// One entry of `routes`: rules tried in order.
#[derive(Debug, PartialEq, Eq)]
pub struct RouteTable {
    /// Stable name.
    pub id: RouteTableId,
    /// What it was built from.
    pub source: Arc<file::RouteTable>,
    /// Name in the file.
    pub name: Arc<str>,
    /// The hosts it is for.
    pub hosts: Vec<Host>,
    /// Whether they are compared with the port that a request names.
    pub has_ports: bool,
    /// Index over the paths of `rules`; yields the first rule that matches.
    pub paths: PathTable,
    /// The rules, in the order of the file.
    pub rules: Vec<Rule>,
    /// What replies to failures say, before those of the listener.
    pub error_pages: ErrorPages,
    /// Regular expressions for values of requests.
    pub values: Arc<Regexes>,
    /// Whether some rule takes a share of requests, so that a die has to be cast.
    pub casts_dice: bool,
    /// The values of `runtime` that its rules ask for, each once.
    pub runtime: Box<[RuntimeUse]>,
    /// The places of the rules with several clusters by weight, in their order.
    pub weighted: Box<[u32]>,
    /// Edits of header fields, after those of the rule.
    pub edits: Option<Box<HeaderEdits>>,
    /// Whether it, a rule or a weighted cluster edits header fields.
    pub has_edits: bool,
    /// See [`RouteTable::place_of`].
    pub(crate) places_by_name: PlacesByName,
    /// The slots of its rules, and of those that tables before it had.
    pub(crate) slots: RuleSlots,
}

/// The places of rules by their names, once that was asked for.
#[derive(Debug, Default)]
pub(crate) struct PlacesByName(OnceLock<Map<Arc<str>, usize>>);

impl PartialEq for PlacesByName {
    /// It follows from the rules.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for PlacesByName {}

impl RouteTable {
    /// The clusters that its rules name, whether they are there or not, as often as they are named.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = ClusterId> {
        let forwards = self.rules.iter().filter_map(|rule| match &rule.action {
            Action::Forward(forward) => Some(forward.clusters()),
            Action::Respond(_) | Action::Redirect(_) => None,
        });
        forwards.flatten()
    }

    /// The clusters of its weighted rules, each with the place of its rule, as they were written, and with their slots.
    pub fn weighted_clusters(&self) -> impl Iterator<Item = (u32, &ShareKey, &RuleSlot)> {
        let rules = self.weighted.iter();
        rules.flat_map(|rule| {
            self.weighted_clusters_of(*rule).map(|(share, slot)| (*rule, share, slot))
        })
    }

    /// The clusters by weight of the rule at this place, as they were written, and with their slots; none if it does not have
    /// several.
    pub fn weighted_clusters_of(&self, rule: u32) -> impl Iterator<Item = (&ShareKey, &RuleSlot)> {
        let place = usize::try_from(rule).unwrap_or(usize::MAX);
        let written = self.source.rules.get(place).and_then(|rule| rule.clusters.as_deref());
        let shares = self.rules.get(place).and_then(Rule::shares).map_or(&[][..], Shares::clusters);
        written.unwrap_or_default().iter().zip(shares.iter().map(|share| &share.slot))
    }

    /// The first rule that a request meets, with its place among the rules. `searches` is the worker's.
    #[must_use]
    #[inline]
    pub fn find(&self, asked: &Asked<'_>, searches: &mut Searches) -> Option<(usize, &Rule)> {
        let place = self.paths.find(&self.rules, asked, &self.values, searches)?;
        Some((place, self.rules.get(place)?))
    }

    /// Whether a rule looks at where requests come from.
    pub(crate) fn asks_sources(&self) -> bool {
        let mut criteria = self.rules.iter().flat_map(|rule| &rule.also);
        criteria.any(|criterion| matches!(criterion, Criterion::Sources { .. }))
    }

    /// What identifies the rule at this place (its name, or what it matches), and how many before it that does for as well:
    /// by both another configuration may know it, wherever it stands there.
    #[must_use]
    pub fn name_of(&self, place: usize) -> Option<(String, usize)> {
        let rule = self.rules.get(place)?;
        let before = self.rules.iter().take(place);
        Some((rule.identity(), before.filter(|before| before.is_named_the_same(rule)).count()))
    }

    /// The edits of header fields for what a rule of it takes, in their order: those of the weighted cluster, of the
    /// rule and of the table. `share`: the place of the cluster among the weights.
    #[must_use]
    pub fn edits_for<'r>(
        &'r self,
        rule: &'r Rule,
        share: Option<u32>,
    ) -> [Option<&'r HeaderEdits>; 3] {
        let of_share = match &rule.action {
            Action::Forward(forward) => forward.target.edits_of_share(share),
            Action::Respond(_) | Action::Redirect(_) => None,
        };
        [of_share, rule.edits.as_deref(), self.edits.as_deref()]
    }

    /// The place of the rule with this `name`. Found by a look-up, which is made by the first that asks.
    #[must_use]
    pub fn place_of(&self, name: &str) -> Option<usize> {
        let places = self.places_by_name.0.get_or_init(|| {
            let named = self.rules.iter().zip(0_usize..);
            named.filter_map(|(rule, place)| Some((rule.name.clone()?, place))).collect()
        });
        places.get(name).copied()
    }

    /// The place of the rule with this identity.
    #[must_use]
    pub fn place_named(&self, identity: &str, nth: usize) -> Option<usize> {
        let places = self.rules.iter().enumerate();
        let mut alike = places.filter(|(_, rule)| rule.has_identity(identity));
        alike.nth(nth).map(|(place, _)| place)
    }
}
