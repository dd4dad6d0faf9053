//! Why a route table sends a request where it does, rule by rule.
//!
//! The verdicts come from [`RouteTable::find`], [`PathMatch::matches`](crate::matching::PathMatch::matches)
//! and [`Criterion::is_met`](crate::matching::Criterion::is_met), the code that routes traffic.

use std::fmt;

use crate::matching::{Asked, Searches};
use crate::snapshot::{RouteTable, Rule};

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
            Self::Criterion { asked, seen } => write!(f, "{asked} is not met: {seen}"),
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
        Some(Mismatch::Criterion { asked: unmet.to_string(), seen: unmet.seen(asked) })
    }
}
