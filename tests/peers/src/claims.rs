//! Every claim, a folder a peer and a file a claim.

mod curl;
mod haproxy;
mod load;
mod nginx;
mod operations;
mod relay;
mod slow;
mod smuggling;
mod websocket;

use crate::claim::Claim;

/// All of them, in the order in which they run.
pub(crate) fn all() -> Vec<&'static Claim> {
    [
        curl::CLAIMS,
        load::CLAIMS,
        nginx::CLAIMS,
        haproxy::CLAIMS,
        websocket::CLAIMS,
        slow::CLAIMS,
        relay::CLAIMS,
        operations::CLAIMS,
        smuggling::CLAIMS,
    ]
    .into_iter()
    .flatten()
    .collect()
}
