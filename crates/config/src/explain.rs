//! Why a route table sends a path where it does, rule by rule.
//!
//! The verdicts come from [`PathTable::find`](crate::paths::PathTable::find) and
//! [`PathMatch::matches`], the code that routes traffic.

use crate::snapshot::{PathMatch, RouteTable, Rule};

/// What became of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Why a rule does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The path is not this one.
    OtherPath,
    /// The path does not begin like this.
    OtherPrefix,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OtherPath => "the path is another one",
            Self::OtherPrefix => "the path begins otherwise",
        })
    }
}

impl RouteTable {
    /// What becomes of each rule for `path`, which is normalised and has no query, in the order of
    /// the file.
    pub fn explain<'a>(&'a self, path: &'a [u8]) -> impl Iterator<Item = (&'a Rule, Verdict)> {
        let found = self.paths.find(path);
        self.rules.iter().enumerate().map(move |(index, rule)| {
            let verdict = match found {
                Some(found) if index == found => Verdict::Matched,
                Some(found) if index > found => {
                    Verdict::NotReached { would_match: rule.path.matches(path) }
                }
                Some(_) | None => Verdict::PassedOver(match rule.path {
                    PathMatch::Exact(_) => Mismatch::OtherPath,
                    PathMatch::Prefix(_) => Mismatch::OtherPrefix,
                }),
            };
            (rule, verdict)
        })
    }
}
