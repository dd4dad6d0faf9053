//! Whole exchanges from a script of bytes: what one client and its upstreams say and do, in any
//! order. Whatever they do, nothing panics, nothing is left behind, and every upstream hears
//! well-formed requests only, of which all but the last are whole.
//!
//! A script is a sequence of steps: one byte for the kind, one for a number, and for what is said
//! that many bytes. The first step's highest bit says whether what is not HTTP is relayed.

use std::time::Duration;

use wire::h1::{BodyDecoder, BodyElement, BodyLimits, HeadLimits, Scan, decode_request};
use wire::head::HeadIndex;

use crate::kit::{Peer, Setting, Talk, Variant};
use wire::path::Slashes;

const CONFIG: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: all
    http: { body_max: 4KiB, head_max: 2KiB, request_line_max: 1KiB }
routes:
  - name: all
    hosts: ['*']
    rules:
      - match: { path: /here }
        respond: { status: 200, body: here }
      - match: { path: /there }
        redirect: { path: / }
      - match: { prefix: / }
        cluster: web
        timeout: 20s
clusters:
  - name: web
    endpoints: ['127.0.0.1:9000', '127.0.0.1:9001']
    connections_max: 2
    pending_max: 1
";

/// The endpoint that hears what is no HTTP.
const RAW: &str = "127.0.0.1:9002";

fn with_relay() -> String {
    let config = CONFIG.replace("routes: all\n", "routes: all\n    cluster: raw\n");
    format!(
        "{config}  - name: raw\n    endpoints: ['{RAW}']\n    connections_max: 2\n    pending_max: 1\n"
    )
}

/// Plays a script.
pub(crate) fn check(script: &[u8]) {
    // What is in use of a cluster's bounds is shared by all that have its snapshot.
    thread_local! {
        static READING: &'static Setting = Box::leak(Box::new(Setting::of(CONFIG)));
        static RELAYING: &'static Setting = Box::leak(Box::new(Setting::of(&with_relay())));
    }
    let variant = if script.len().is_multiple_of(2) { Variant::Plain } else { Variant::Moving };
    let relays = script.first().is_some_and(|kind| kind & 0x80 != 0);
    let setting = if relays { RELAYING.with(|it| *it) } else { READING.with(|it| *it) };
    let mut talk = Talk::new(setting, variant);
    let mut clients = vec![talk.client()];
    let mut upstreams: Vec<(Peer, Vec<u8>)> = Vec::new();
    let mut rest = script;
    while let [kind, number, behind @ ..] = rest {
        let (said, next) = if kind % 16 < 6 {
            behind.split_at(usize::from(*number).min(behind.len()))
        } else {
            (&[][..], behind)
        };
        rest = next;
        let client = clients[usize::from(kind / 16) % clients.len()];
        let upstream = upstreams.last().map(|(peer, _)| *peer);
        match (kind % 16, upstream) {
            (0..4, _) => talk.says(client, said),
            (4..6, Some(upstream)) => talk.says(upstream, said),
            (6, _) => talk.ends(client),
            (7, Some(upstream)) => talk.ends(upstream),
            (8, _) => talk.breaks(client),
            (9, Some(upstream)) => talk.breaks(upstream),
            (10, _) => talk.passes(Duration::from_millis(u64::from(*number) * 100)),
            (11, _) => talk.takes(client, usize::from(*number) * 100),
            (12, _) if clients.len() < 4 => clients.extend(talk.try_client()),
            (13, _) if talk.is_connecting() => {
                let refused = talk.connecting();
                talk.refuse(refused);
            }
            (14, _) => talk.takes(client, usize::MAX),
            _ => {}
        }
        if kind % 16 != 13 && talk.is_connecting() {
            upstreams.push((talk.upstream(), Vec::new()));
        }
        for (peer, heard) in &mut upstreams {
            heard.extend(talk.heard_bytes(*peer));
        }
    }
    let raw = config::snapshot::Address::Tcp(RAW.parse().unwrap());
    for (peer, heard) in &upstreams {
        if *talk.address(*peer) != raw {
            assert_requests(heard);
        }
    }
    talk.assert_at_rest();
}

/// An upstream receives requests, one behind the other.
fn assert_requests(mut heard: &[u8]) {
    let limits = HeadLimits {
        request_line_bytes_max: 8 << 10,
        head_bytes_max: 60 << 10,
        fields_max: 200,
        slashes: Slashes::Keep,
    };
    let body_limits = BodyLimits {
        chunk_line_bytes_max: 256,
        trailers_bytes_max: 8 << 10,
        fields_max: 100,
        parsing: wire::h1::Parsing::Strict,
    };
    let mut index = HeadIndex::default();
    while !heard.is_empty() {
        let decoded = decode_request(heard, &mut Scan::default(), &limits, &mut index);
        let Some((head, n)) = decoded.expect("a well-formed request head") else { return };
        if head.upgrade().is_some() {
            return;
        }
        let mut body = BodyDecoder::new(head.framing());
        heard = &heard[n..];
        while !body.is_complete() {
            match body.decode(heard, &body_limits).expect("a well-formed body") {
                (n, BodyElement::NeedMore) if n == 0 || heard.len() == n => return,
                (n, _) => heard = &heard[n..],
            }
        }
    }
}
