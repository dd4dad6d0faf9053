//! Tunnels, as WebSocket uses them.

mod bytes_sent_with_the_handshake_are_kept;
mod half_a_close_is_half_a_close;
mod http2_carries_many_at_once;
mod other_upgrades_do_not_pass;
mod silence_ends_a_tunnel;
mod the_autobahn_suite_cannot_tell;
mod the_handshake_passes_with_its_fields;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] = &[
    the_autobahn_suite_cannot_tell::CLAIM,
    the_handshake_passes_with_its_fields::CLAIM,
    bytes_sent_with_the_handshake_are_kept::CLAIM,
    half_a_close_is_half_a_close::CLAIM,
    silence_ends_a_tunnel::CLAIM,
    other_upgrades_do_not_pass::CLAIM,
    http2_carries_many_at_once::CLAIM,
];

/// A client's handshake.
const UPGRADE: &str = "GET /chat HTTP/1.1\r\n\
host: here\r\n\
connection: Upgrade\r\n\
upgrade: websocket\r\n\
sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
sec-websocket-version: 13\r\n\r\n";
