//! Why a route table sends a request where it does, rule by rule.
//!
//! The verdicts come from [`RouteTable::find`], [`PathMatch::matches`](crate::resource::route::matching::PathMatch::matches)
//! and [`Criterion::is_met`](crate::resource::route::matching::Criterion::is_met), the code that routes traffic.

use std::fmt;

use serde_json::Value as Json;

use crate::effective::{rule_shown, table_head_shown};
use crate::resource::route::matching::{Asked, Searches};
use crate::snapshot::{RouteTable, Rule, Snapshot};

/// What became of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It matches, and is the first that does.
    Matched,
    /// It does not match.
    PassedOver(Mismatch),
    /// An earlier rule had matched already.
    NotReached {
        /// Whether it would have matched.
        would_match: bool,
    },
}

/// Why a rule does not match: the first of its criteria that is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The path, in words.
    Path(&'static str),
    /// Something else that the rule asks for.
    Criterion {
        /// What it asks for.
        asked: String,
        /// What the request has there.
        seen: String,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(why) => f.write_str(why),
            Self::Criterion { asked, seen } => write!(f, "{asked} does not match: {seen}"),
        }
    }
}

/// The edits of header fields that a request gets which the rule at this place has taken, and its response, in their order and
/// as they are written. `shares`: the places among the weights of the clusters that it may go to.
#[must_use]
pub fn edits<F>(
    snapshot: &Snapshot<F>,
    table: &RouteTable,
    rule: usize,
    shares: &[u32],
) -> Vec<String> {
    let shown = table_head_shown(snapshot, table);
    let rule = table.source.rules.get(rule).map(|rule| rule_shown(snapshot, rule));
    let rule = rule.as_ref();
    let clusters = rule.and_then(|rule| rule.get("clusters"));
    let shares = shares.iter().filter_map(|share| {
        let share = clusters?.get(usize::try_from(*share).ok()?)?;
        Some((format!("cluster {}", share.get("cluster")?.as_str()?), share))
    });
    let levels: Vec<(String, &Json)> = shares
        .chain(rule.map(|rule| ("the rule".to_owned(), rule)))
        .chain([("the table".to_owned(), &shown)])
        .collect();
    let mut lines = Vec::new();
    for side in ["request", "response"] {
        for (whose, level) in &levels {
            let edits = level.get("headers").and_then(|headers| headers.get(side));
            push_edits(side, whose, edits, &mut lines);
        }
    }
    lines
}

fn push_edits(side: &str, whose: &str, edits: Option<&Json>, lines: &mut Vec<String>) {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let removed = edits.and_then(|edits| edits.get("remove")).and_then(Json::as_array);
    for name in removed.into_iter().flatten() {
        lines.push(format!("{side}: {} is removed, by {whose}", text(name)));
    }
    for (verb, words) in [
        ("set", "is set to"),
        ("set_if_present", "is set, if present, to"),
        ("append", "is appended as"),
        ("append_if_absent", "is appended, if absent, as"),
    ] {
        let written = edits.and_then(|edits| edits.get(verb)).and_then(Json::as_object);
        for (name, value) in written.into_iter().flatten() {
            lines.push(format!("{side}: {name} {words} {:?}, by {whose}", text(value)));
        }
    }
}

impl RouteTable {
    /// What becomes of each rule for a request, in the order of the file.
    pub fn explain(&self, asked: &Asked<'_>, searches: &mut Searches) -> Vec<(&Rule, Verdict)> {
        let found = self.find(asked, searches).map(|(found, _)| found);
        let mut verdict = |(index, rule)| {
            let mismatch = self.mismatch(rule, asked, searches);
            let verdict = match (found, mismatch) {
                (Some(found), mismatch) if index > found => {
                    Verdict::NotReached { would_match: mismatch.is_none() }
                }
                (_, Some(mismatch)) => Verdict::PassedOver(mismatch),
                (_, None) => Verdict::Matched,
            };
            (rule, verdict)
        };
        self.rules.iter().enumerate().map(&mut verdict).collect()
    }

    /// Why a rule does not match, if it does not.
    fn mismatch(
        &self,
        rule: &Rule,
        asked: &Asked<'_>,
        searches: &mut Searches,
    ) -> Option<Mismatch> {
        if !rule.path.matches(asked.head.path(), self.paths.regexes(), searches) {
            return Some(Mismatch::Path(rule.path.mismatch()));
        }
        self.unmet(rule, asked, searches)
    }

    /// The first of a rule's criteria beside the path that a request does not meet.
    pub fn unmet(
        &self,
        rule: &Rule,
        asked: &Asked<'_>,
        searches: &mut Searches,
    ) -> Option<Mismatch> {
        let mut criteria = rule.also.iter();
        let unmet = criteria.find(|each| !each.is_met(asked, &self.values, searches))?;
        Some(Mismatch::Criterion { asked: unmet.shown(), seen: unmet.seen(asked) })
    }
}
