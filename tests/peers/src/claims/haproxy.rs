//! HAProxy behind Strait and in front of it.

mod is_an_upstream;
mod is_an_upstream_of_http2;
mod reads_our_proxy_protocol;
mod stands_in_front_and_keeps_connections;
mod stands_in_front_with_http2;
mod tells_us_the_client;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] = &[
    is_an_upstream::CLAIM,
    is_an_upstream_of_http2::CLAIM,
    reads_our_proxy_protocol::CLAIM,
    tells_us_the_client::CLAIM,
    stands_in_front_and_keeps_connections::CLAIM,
    stands_in_front_with_http2::CLAIM,
];
