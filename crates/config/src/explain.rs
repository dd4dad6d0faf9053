//! Why a route table sends a path where it does, rule by rule.
//!
//! The verdicts come from [`RouteTable::find`], [`PathMatch::matches`] and
//! [`ClientMatch::is_met_by`](crate::clients::ClientMatch::is_met_by), the code that routes traffic.

use tls::PeerCertificate;

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
    /// It is for clients with certificates, and this one has none.
    NoClientCertificate,
    /// It is for clients with other names.
    OtherClient,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OtherPath => "the path is another one",
            Self::OtherPrefix => "the path begins otherwise",
            Self::NoClientCertificate => "the client has no certificate",
            Self::OtherClient => "the client's certificate has other names",
        })
    }
}

impl RouteTable {
    /// What becomes of each rule for `path`, which is normalised and has no query, and a client with
    /// this certificate, in the order of the file.
    pub fn explain<'a>(
        &'a self,
        path: &'a [u8],
        client: Option<&'a PeerCertificate>,
    ) -> impl Iterator<Item = (&'a Rule, Verdict)> {
        let found = self.find(path, client).map(|(found, _)| found);
        self.rules.iter().enumerate().map(move |(index, rule)| {
            let mismatch = rule.mismatch(path, client);
            let verdict = match (found, mismatch) {
                (Some(found), _) if index > found => {
                    Verdict::NotReached { would_match: mismatch.is_none() }
                }
                (_, Some(mismatch)) => Verdict::PassedOver(mismatch),
                (_, None) => Verdict::Matched,
            };
            (rule, verdict)
        })
    }
}

impl Rule {
    /// Why it does not match, if it does not.
    fn mismatch(&self, path: &[u8], client: Option<&PeerCertificate>) -> Option<Mismatch> {
        match &self.path {
            matched if matched.matches(path) => {}
            PathMatch::Exact(_) => return Some(Mismatch::OtherPath),
            PathMatch::Prefix(_) => return Some(Mismatch::OtherPrefix),
        }
        match client {
            _ if self.client.is_met_by(client) => None,
            Some(_) => Some(Mismatch::OtherClient),
            None => Some(Mismatch::NoClientCertificate),
        }
    }
}
