//! Envoy beside Strait, with the same configuration.

mod ends_the_same_failures_alike;
mod routes_the_same_requests_alike;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] =
    &[ends_the_same_failures_alike::CLAIM, routes_the_same_requests_alike::CLAIM];
