//! Load generators that count.

mod h2load_counts_match;
mod h2load_counts_match_over_http2;
mod many_connections_are_served_at_once;
mod wrk_sees_no_error;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] = &[
    wrk_sees_no_error::CLAIM,
    h2load_counts_match::CLAIM,
    h2load_counts_match_over_http2::CLAIM,
    many_connections_are_served_at_once::CLAIM,
];

/// What a server of nginx needs to answer with a few bytes.
const SMALL: &str = "  server { listen LISTEN; location / { return 200 ok; } }";
