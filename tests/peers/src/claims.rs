//! Every claim, a folder a peer and a file a claim.

mod curl;
mod go;
mod grpc;
mod h2spec;
mod haproxy;
mod interception;
mod load;
mod nghttp;
mod nginx;
mod operations;
mod relay;
mod slow;
mod smuggling;
mod tls;
mod websocket;

use crate::claim::Claim;

/// All of them, in the order in which they run.
pub(crate) fn all() -> Vec<&'static Claim> {
    [
        curl::CLAIMS,
        load::CLAIMS,
        nginx::CLAIMS,
        haproxy::CLAIMS,
        h2spec::CLAIMS,
        nghttp::CLAIMS,
        go::CLAIMS,
        grpc::CLAIMS,
        websocket::CLAIMS,
        slow::CLAIMS,
        relay::CLAIMS,
        tls::CLAIMS,
        interception::CLAIMS,
        operations::CLAIMS,
        smuggling::CLAIMS,
    ]
    .into_iter()
    .flatten()
    .collect()
}
