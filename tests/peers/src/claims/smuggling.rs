//! Requests that two parsers might read differently.

mod go_sees_what_strait_saw;
mod haproxy_sees_what_strait_saw;
mod nginx_sees_what_strait_saw;
mod node_sees_what_strait_saw;
mod table;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] = &[
    nginx_sees_what_strait_saw::CLAIM,
    haproxy_sees_what_strait_saw::CLAIM,
    go_sees_what_strait_saw::CLAIM,
    node_sees_what_strait_saw::CLAIM,
];
