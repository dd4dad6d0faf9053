//! Envoy beside Strait, with the same configuration.

mod routes_the_same_requests_alike;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] = &[routes_the_same_requests_alike::CLAIM];
