//! Route tables and their rules.

pub(crate) mod build;
pub mod clients;
pub mod edits;
pub mod error_pages;
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
pub(crate) mod rule_slots;
pub(crate) mod tables;
pub mod targets;
pub(crate) mod tunnels;
pub(crate) mod virtual_hosts;

use std::num::NonZeroU16;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::clients::ClientMatch;
use crate::edits::HeaderEdits;
use crate::error_pages::ErrorPages;
use crate::hash::Hashing;
use crate::hosts::Host;
use crate::map::Map;
use crate::matching::{Asked, Case, Criterion, PathKind, PathMatch, Regexes, Searches, printable};
use crate::mirrors::Mirror;
use crate::paths::PathTable;
use crate::priority::Priority;
use crate::resource::route::rule_slots::{RuleSlot, RuleSlots};
use crate::retry::RetryPolicy;
use crate::rewrite::{PathRewrite, Rewrite};
use crate::runtime::RuntimeUse;
use crate::snapshot::id::{ClusterId, RouteTableId};
use crate::subsets::SubsetAsked;
use crate::targets::{ShareKey, Shares, Target};

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

/// Match ⇒ action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name in the file, if it has one.
    pub name: Option<Arc<str>>,
    /// What paths it matches.
    pub path: PathMatch,
    /// What else it asks for; all of it has to be met.
    pub also: Box<[Criterion]>,
    /// What is done.
    pub action: Action,
    /// Edits of header fields, between those of the weighted cluster and those of the table.
    pub edits: Option<Box<HeaderEdits>>,
    /// Where it is counted.
    pub slot: RuleSlot,
}

impl Rule {
    /// Its clusters by weight, if it has several.
    #[must_use]
    pub const fn shares(&self) -> Option<&Shares> {
        match &self.action {
            Action::Forward(Forward { target: Target::Shares(shares), .. }) => Some(shares),
            _ => None,
        }
    }

    pub(crate) const fn shares_mut(&mut self) -> Option<&mut Shares> {
        match &mut self.action {
            Action::Forward(Forward { target: Target::Shares(shares), .. }) => Some(shares),
            _ => None,
        }
    }

    /// Whether a die decides about it, or about what it does.
    #[must_use]
    pub fn casts_dice(&self) -> bool {
        let by_share = |criterion: &Criterion| matches!(criterion, Criterion::Fraction(_));
        let by_weight =
            matches!(&self.action, Action::Forward(forward) if forward.target.casts_dice());
        by_weight || self.also.iter().any(by_share)
    }

    /// Whether it, or one of its weighted clusters, edits header fields.
    #[must_use]
    pub fn has_edits(&self) -> bool {
        let of_shares = |action: &Action| match action {
            Action::Forward(Forward { target: Target::Shares(shares), .. }) => {
                shares.clusters().iter().any(|share| share.edits.is_some())
            }
            Action::Forward(_) | Action::Respond(_) | Action::Redirect(_) => false,
        };
        self.edits.is_some() || of_shares(&self.action)
    }

    /// Whether a request meets everything that it asks for beside a path.
    pub fn meets(&self, asked: &Asked<'_>, values: &Arc<Regexes>, searches: &mut Searches) -> bool {
        self.also.iter().all(|criterion| criterion.is_met(asked, values, searches))
    }

    /// What it matches as text, which is the same for all that match the same.
    #[must_use]
    pub fn condition(&self) -> String {
        let mut text = String::new();
        for criterion in &*self.also {
            match criterion {
                Criterion::Client(ClientMatch::Named(names)) => {
                    for name in &**names {
                        text.extend(["client ", &name.to_string(), "\n"]);
                    }
                }
                criterion => text.extend([&criterion.to_string(), "\n"]),
            }
        }
        if self.path.case == Case::Insensitive {
            text.push_str("any case\n");
        }
        // Last, since a path may hold anything.
        text.extend([self.path.key(), " ", &self.path.text]);
        text
    }

    /// Its name, or what it matches in a few words, for metrics: the path, with `*` for what may follow, and what else it asks for.
    #[must_use]
    pub fn label(&self) -> String {
        if let Some(name) = &self.name {
            return name.to_string();
        }
        let mut label = match self.path.how {
            PathKind::Exact => self.path.text.to_string(),
            PathKind::Prefix => format!("{}*", self.path.text),
            _ => printable(self.path.to_string()),
        };
        for criterion in &*self.also {
            if !matches!(criterion, Criterion::Client(_)) {
                label.extend([", ", &criterion.shown()]);
            }
        }
        label
    }

    /// Its name in the file, or what it matches where it has none: as text that no other rule has, unless both have no
    /// name and match the same.
    pub(crate) fn identity(&self) -> String {
        // No condition begins so: its last line, which may be its first, begins with a kind of path.
        self.name.as_ref().map_or_else(|| self.condition(), |name| format!("name {name}"))
    }

    fn has_identity(&self, identity: &str) -> bool {
        match &self.name {
            Some(name) => identity.strip_prefix("name ") == Some(&**name),
            None => identity.ends_with(&*self.path.text) && self.condition() == identity,
        }
    }

    pub(crate) fn is_named_the_same(&self, other: &Self) -> bool {
        match (&self.name, &other.name) {
            (None, None) => self.path == other.path && self.also == other.also,
            (name, of_other) => name == of_other,
        }
    }
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Forward to a cluster.
    Forward(Forward),
    /// Answer from here.
    Respond(Respond),
    /// Send the client elsewhere.
    Redirect(Redirect),
}

/// Forward to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The cluster, or how it is found.
    pub target: Target,
    /// What says to which endpoint of it, where that is chosen by a hash.
    pub hashing: Option<Box<Hashing>>,
    /// Which of its endpoints are asked for.
    pub subset: Option<Box<SubsetAsked>>,
    /// How the request is changed; none for no change.
    pub rewrite: Option<Box<Rewrite>>,
    /// Bound on the whole exchange, from the request's head to the response's last byte; none
    /// for no bound.
    pub timeout: Option<Duration>,
    /// When the request is sent again, beyond where that is safe without asking.
    pub retry: Option<Box<RetryPolicy>>,
    /// Whose connections and limits of the cluster the request uses.
    pub priority: Priority,
    /// Clusters that get copies of the request.
    pub mirrors: Box<[Mirror]>,
    /// `Upgrade` tokens that are let through, lower case. `h2c` is never among them.
    pub upgrades: Arc<[Box<str>]>,
}

impl Forward {
    /// The clusters that requests, or copies of them, may go to.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterId> {
        self.target.clusters().chain(self.mirrors.iter().map(|mirror| mirror.cluster))
    }
}

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Respond {
    /// 200 to 599.
    pub status: u16,
    /// Sent as `text/plain`, unless `fields` says otherwise.
    pub body: Arc<[u8]>,
    /// Further fields, valid names and values.
    pub fields: Vec<(Box<str>, Box<str>)>,
}

/// A redirect: what is none stays as the request had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// `http` or `https`.
    pub scheme: Option<Box<str>>,
    /// Host, with port if any.
    pub host: Option<Box<str>>,
    /// Port, where `host` has none.
    pub port: Option<NonZeroU16>,
    /// What stands in for the path.
    pub path: Option<RedirectPath>,
    /// Whether the query is dropped.
    pub strip_query: bool,
}

/// How a redirect changes the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectPath {
    /// Replaces all of it.
    Whole(Box<str>),
    /// Replaces the matched prefix.
    Prefix(Box<str>),
    /// Changes it as that of a request that goes on.
    Rewritten(PathRewrite),
}
