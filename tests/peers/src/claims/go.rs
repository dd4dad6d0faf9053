//! Go's `net/http` on both sides, in every pair of versions.

mod a_client_that_leaves_stops_its_upstream;
mod a_head_may_fill_frames;
mod an_early_answer_arrives;
mod bodies_arrive_as_sent;
mod both_sides_may_take_turns;
mod cookies_become_one_field;
mod hundreds_of_requests_share_a_connection;
mod informational_responses_come_first;
mod statuses_without_bodies_have_none;
mod trailers_pass;
mod what_is_cut_short_is_not_whole;

use anyhow::{Context as _, Result};

use crate::claim::Claim;
use crate::go::GoHttp2;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIMS: &[Claim] = &[
    bodies_arrive_as_sent::CLAIM,
    cookies_become_one_field::CLAIM,
    a_head_may_fill_frames::CLAIM,
    hundreds_of_requests_share_a_connection::CLAIM,
    informational_responses_come_first::CLAIM,
    statuses_without_bodies_have_none::CLAIM,
    trailers_pass::CLAIM,
    what_is_cut_short_is_not_whole::CLAIM,
    both_sides_may_take_turns::CLAIM,
    an_early_answer_arrives::CLAIM,
    a_client_that_leaves_stops_its_upstream::CLAIM,
];

const NEEDS: &[Peer] = &[Peer::GoClient, Peer::GoServer];

/// A client's version and its upstream's.
type Pair = (&'static str, &'static str);

const ALL: &[Pair] = &[("1", "http1"), ("1", "http2"), ("2", "http1"), ("2", "http2")];
const TO_HTTP2: &[Pair] = &[("1", "http2"), ("2", "http2")];
const FROM_HTTP2: &[Pair] = &[("2", "http1"), ("2", "http2")];

/// Runs a check of the client's through Strait; every exchange and connection of it must end.
fn holds_for(lab: &Lab, check: &str, pairs: &[Pair]) -> Result<()> {
    let client = Peer::GoClient.program().context("h2client")?.to_string_lossy().into_owned();
    for (version, protocol) in pairs {
        let server = GoHttp2::start(lab)?;
        let cluster = format!("protocol: {protocol}");
        let options = Options { cluster: &cluster, ..Options::default() };
        let strait = Strait::forwarding_to(lab, server.address(), options)?;
        let printed = lab.run(&client, &[version, &strait.url(""), check])?;
        printed.ok().with_context(|| format!("from {version} to {protocol}"))?;
        wait::until("all to end", wait::SOON, || {
            let started = strait.metric("strait_exchanges_started_total").unwrap_or(-1.0);
            let active = strait.metric("strait_downstream_connections_active");
            strait.metric("strait_exchanges_finished_total").is_ok_and(|ended| ended == started)
                && active.is_ok_and(|active| active == 0.0)
        })?;
    }
    Ok(())
}
