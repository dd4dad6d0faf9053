//! Connections that are said to have been written down by another process: the bytes may be anything. What
//! cannot be taken up is refused; what is taken up may be wrong, but nothing panics, no loop goes on for ever,
//! and nothing is left behind when its peers are gone.
//!
//! A script is one byte, which chooses the configuration and what the peers do, and the bytes.

use std::time::Duration;

use crate::kit::{Setting, Talk, Variant};

/// What the kept forms are of: services that speak HTTP/1, HTTP/2, or an RPC protocol.
const CONFIGS: [&str; 3] = [
    "
listeners: [{ name: edge, address: '127.0.0.1:8080', routes: all, http: { request_buffer: 4KiB } }]
routes:
  - name: all
    hosts: ['*']
    rules: [{ match: { prefix: / }, cluster: web, upgrades: [websocket], timeout: 20s }]
clusters: [{ name: web, endpoints: ['127.0.0.1:9000', '127.0.0.1:9001'], connections_max: 2 }]
",
    "
listeners: [{ name: web, address: '127.0.0.1:8080', routes: site, http2: { streams_max: 4 } }]
routes:
  - { name: site, hosts: ['*'], rules: [{ match: { prefix: / }, cluster: app, timeout: 20s }] }
clusters: [{ name: app, protocol: http2, endpoints: ['127.0.0.1:9000'], connections_max: 2 }]
",
    "
listeners: [{ name: calls, address: '127.0.0.1:8080', protocol: pico, routes: all, rpc: { requests_max: 4 } }]
routes: [{ name: all, rules: [{ match: { prefix: / }, cluster: orders, timeout: 20s }] }]
clusters: [{ name: orders, protocol: pico, endpoints: ['127.0.0.1:9000'], connections_max: 2 }]
",
];

/// What a peer may say to a connection that it finds open: a response, a request, and octets of neither.
const WORDS: [&[u8]; 5] = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"8\r\n12345678\r\n0\r\n\r\n",
    b"\0\0\0\x04\0\0\0\0\0\0\0\x04\x08\0\0\0\0\0\0\0\x01\0",
    b"\x03\0\0\0\0\0\0\x01\0\0\0\x02ok\x04\0\0\0\0\0\0\x07\0\0\0\0",
];

/// Plays a script.
pub(crate) fn check(script: &[u8]) {
    // What is in use of a cluster's bounds is shared by all that have its snapshot.
    thread_local! {
        static SETTINGS: &'static [Setting; 3] = Box::leak(Box::new(CONFIGS.map(Setting::of)));
    }
    let settings = SETTINGS.with(|it| *it);
    let Some((choice, bytes)) = script.split_first() else { return };
    let place = if choice & 0x40 != 0 { 2 } else { usize::from(choice & 1) };
    let setting = &settings[place];
    let mut talk = Talk::new(setting, Variant::Plain);
    let Ok(peers) = talk.takes_up(bytes) else { return talk.assert_at_rest() };
    let words = WORDS[usize::from(choice >> 1) % WORDS.len()];
    for peer in &peers {
        talk.says(*peer, words);
    }
    if choice & 0x08 != 0 {
        for peer in &peers {
            talk.says(*peer, WORDS[1]);
        }
    }
    if choice & 0x10 != 0 {
        for peer in &peers {
            talk.ends(*peer);
        }
    }
    if choice & 0x20 != 0 {
        talk.passes(Duration::from_secs(3600));
    }
    talk.assert_at_rest();
}
