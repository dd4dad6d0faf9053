//! HAProxy behind Strait and in front of it.

mod is_an_upstream;
mod reads_our_proxy_protocol;
mod stands_in_front_and_keeps_connections;
mod tells_us_the_client;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] = &[
    is_an_upstream::CLAIM,
    reads_our_proxy_protocol::CLAIM,
    tells_us_the_client::CLAIM,
    stands_in_front_and_keeps_connections::CLAIM,
];
