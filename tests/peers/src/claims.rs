//! Every claim, a folder a peer and a file a claim.

mod curl;
mod envoy;
mod failures;
mod go;
mod grpc;
mod h2spec;
mod haproxy;
mod interception;
mod load;
mod nghttp;
mod nginx;
mod operations;
mod package;
mod relay;
mod routing;
mod slow;
mod smuggling;
mod sofarpc;
mod tls;
mod websocket;

use crate::claim::Claim;

/// All of them.
pub(crate) fn all() -> Vec<&'static Claim> {
    alone().into_iter().chain(beside_another()).chain(if_asked()).collect()
}

/// Those that take minutes, or libraries from elsewhere: they are tried by name alone.
pub(crate) fn if_asked() -> Vec<&'static Claim> {
    [operations::ASKED, package::ASKED, sofarpc::ASKED].into_iter().flatten().collect()
}

/// Those that want the machine for themselves, as they look at how much is served and how fast.
pub(crate) fn alone() -> Vec<&'static Claim> {
    [load::CLAIMS, operations::CLAIMS, failures::CLAIMS, slow::CLAIMS]
        .into_iter()
        .flatten()
        .collect()
}

/// Those that do not mind others beside them. Many wait more than they work.
pub(crate) fn beside_another() -> Vec<&'static Claim> {
    [
        curl::CLAIMS,
        envoy::CLAIMS,
        nginx::CLAIMS,
        haproxy::CLAIMS,
        h2spec::CLAIMS,
        nghttp::CLAIMS,
        go::CLAIMS,
        grpc::CLAIMS,
        websocket::CLAIMS,
        package::CLAIMS,
        relay::CLAIMS,
        routing::CLAIMS,
        tls::CLAIMS,
        interception::CLAIMS,
        smuggling::CLAIMS,
    ]
    .into_iter()
    .flatten()
    .collect()
}
