//! nginx behind Strait and in front of it.

mod is_an_upstream;
mod is_an_upstream_of_http2;
mod may_close_kept_connections;
mod may_send_connections_away;
mod reads_our_proxy_protocol;
mod stands_in_front_and_keeps_connections;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] = &[
    is_an_upstream::CLAIM,
    is_an_upstream_of_http2::CLAIM,
    may_close_kept_connections::CLAIM,
    may_send_connections_away::CLAIM,
    stands_in_front_and_keeps_connections::CLAIM,
    reads_our_proxy_protocol::CLAIM,
];
