//! Strait with curl.

mod a_slow_reader_stops_its_writer;
mod a_slow_upstream_stops_its_uploader;
mod a_unix_socket_is_a_listener;
mod absolute_form_names_the_host;
mod connections_are_kept;
mod expect_continue_is_answered;
mod get_says_what_curl_asked;
mod head_has_the_length_and_no_body;
mod http2_asks_and_is_answered;
mod http2_bodies_are_exact_both_ways;
mod http2_is_reached_by_an_upgrade;
mod http_1_0_is_served;
mod large_bodies_are_exact_both_ways;
mod many_fields_pass_and_too_many_do_not;
mod options_asterisk_is_forwarded;
mod redirects_lead_there;
mod uploads_arrive_whole;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] = &[
    get_says_what_curl_asked::CLAIM,
    head_has_the_length_and_no_body::CLAIM,
    uploads_arrive_whole::CLAIM,
    expect_continue_is_answered::CLAIM,
    large_bodies_are_exact_both_ways::CLAIM,
    http_1_0_is_served::CLAIM,
    connections_are_kept::CLAIM,
    options_asterisk_is_forwarded::CLAIM,
    absolute_form_names_the_host::CLAIM,
    a_unix_socket_is_a_listener::CLAIM,
    redirects_lead_there::CLAIM,
    many_fields_pass_and_too_many_do_not::CLAIM,
    a_slow_reader_stops_its_writer::CLAIM,
    a_slow_upstream_stops_its_uploader::CLAIM,
    http2_asks_and_is_answered::CLAIM,
    http2_bodies_are_exact_both_ways::CLAIM,
    http2_is_reached_by_an_upgrade::CLAIM,
];

/// How curl speaks HTTP/2 without asking first. It cannot send a second request on such a
/// connection.
const HTTP2: &str = "--http2-prior-knowledge";
