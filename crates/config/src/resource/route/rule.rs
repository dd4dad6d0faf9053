//! A rule of a route table: what it matches, and what it does.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use crate::printable::Printable;
use crate::resource::cluster::priority::Priority;
use crate::resource::cluster::subsets::SubsetAsked;
use crate::resource::route::clients::ClientMatch;
use crate::resource::route::edits::HeaderEdits;
use crate::resource::route::hash::Hashing;
use crate::resource::route::matching::{
    Asked, Case, Criterion, PathKind, PathMatch, Regexes, Searches,
};
use crate::resource::route::mirrors::Mirror;
use crate::resource::route::retry::RetryPolicy;
use crate::resource::route::rewrite::{PathRewrite, Rewrite};
use crate::resource::route::rule_slots::RuleSlot;
use crate::resource::route::targets::{Shares, Target};
use crate::snapshot::id::ClusterId;

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
            _ => Printable(&self.path.to_string()).to_string(),
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

    pub(crate) fn has_identity(&self, identity: &str) -> bool {
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
    /// Changes it as that of a request that is forwarded.
    Rewritten(PathRewrite),
}
