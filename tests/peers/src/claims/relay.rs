//! Connections that Strait does not read.

mod http_and_tls_share_a_port;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] = &[http_and_tls_share_a_port::CLAIM];
