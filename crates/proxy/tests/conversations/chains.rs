//! Chains of a listener: which connections meet which.

use std::time::Duration;

use crate::frames::Speaker;
use crate::kit::{Peer, Talk, Variant, hold};

pub(crate) const CONFIG: &str = "
listeners:
- name: edge
  address: 127.0.0.1:8443
  http: { forwarded: off, request_id: false }
  chains:
  - { name: shop, match: { server_names: [shop.example] }, protocol: tcp, cluster: shop }
  - { name: rest, match: { protocols: [tls] }, protocol: tcp, cluster: rest }
  - { name: web, match: { protocols: [http1, http2] }, routes: web }
  - { name: office, match: { sources: [203.0.113.0/24], protocols: [http1] }, routes: office }
routes:
- { name: web, rules: [{ match: { prefix: / }, cluster: web }] }
- { name: office, rules: [{ match: { prefix: / }, respond: { status: 202 } }] }
clusters:
- { name: shop, endpoints: ['127.0.0.1:9001'] }
- { name: rest, endpoints: ['127.0.0.1:9002'] }
- { name: web, endpoints: ['127.0.0.1:9003'] }
";

/// The ClientHello of a client that asks for this name.
pub(crate) fn client_hello(name: &str) -> Vec<u8> {
    let list = [&[0][..], &length(name.len()), name.as_bytes()].concat();
    let extension = [&length(list.len())[..], &list].concat();
    let extensions = [&[0, 0][..], &length(extension.len()), &extension].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &[0, 2, 0x13, 1],
        &[1, 0],
        &length(extensions.len()),
        &extensions,
    ]
    .concat();
    let message = [&[1, 0][..], &length(body.len()), &body].concat();
    [&[22, 3, 1][..], &length(message.len()), &message].concat()
}

fn length(n: usize) -> [u8; 2] {
    u16::try_from(n).unwrap().to_be_bytes()
}

/// The upstream that this connection was relayed to, and what it heard.
fn relayed(talk: &mut Talk<'_>) -> (String, Peer) {
    let upstream = talk.upstream();
    (talk.address(upstream).to_string(), upstream)
}

#[test]
fn tls_is_passed_on_by_the_name_it_asks_for() {
    hold(CONFIG, |talk| {
        for (name, address) in [
            ("shop.example", "127.0.0.1:9001"),
            ("Shop.Example", "127.0.0.1:9001"),
            ("other.example", "127.0.0.1:9002"),
        ] {
            let client = talk.client();
            let hello = client_hello(name);
            talk.says(client, &hello);
            let (found, upstream) = relayed(talk);
            assert_eq!(found, address, "{name}");
            assert_eq!(talk.heard_bytes(upstream), hello, "as it came");
            talk.says(upstream, "server hello");
            talk.hears(client, "server hello");
            talk.ends(client);
            talk.ends(upstream);
            assert!(talk.is_closed(client));
        }
        let log = talk.log();
        assert!(log.contains("\"protocol\":\"TLS\""), "{log}");
        assert!(log.contains("\"host\":\"shop.example\""), "{log}");
    });
}

#[test]
fn a_handshake_that_comes_slowly_is_one_all_the_same() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        let hello = client_hello("shop.example");
        talk.says(client, &hello[..20]);
        // It speaks TLS, and has the time of a handshake.
        talk.passes(Duration::from_secs(7));
        assert!(!talk.is_connecting());
        talk.says(client, &hello[20..]);
        let (found, upstream) = relayed(talk);
        assert_eq!(found, "127.0.0.1:9001");
        assert_eq!(talk.heard_bytes(upstream), hello);

        let client = talk.client();
        talk.says(client, &hello[..20]);
        talk.passes(Duration::from_secs(11));
        assert!(talk.is_closed(client) && !talk.is_connecting());
    });
}

#[test]
fn http_of_either_version_meets_its_chain() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let (address, upstream) = relayed(talk);
        assert_eq!(address, "127.0.0.1:9003");
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
        let mut client = Speaker::client(talk);
        let stream = client.gets(talk, "/");
        // The connection of the first is free.
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        let received = client.hears(talk);
        assert!(received.is_empty() || received == format!("{stream}: 204 END\n"), "{received}");
    });
}

#[test]
fn what_no_chain_is_for_is_closed() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, [0xff; 16]);
        assert!(talk.is_closed(client));
        let silent = talk.client();
        talk.passes(Duration::from_secs(1));
        assert!(talk.is_closed(silent));
    });
}

#[test]
fn addresses_decide_before_a_byte_is_read() {
    let config = CONFIG
        .replace("match: { protocols: [tls] }", "match: { destination_ports: [8080] }")
        .replace("server_names: [shop.example]", "destination_ports: [1]")
        .replace("protocols: [http1, http2]", "destination_ports: [2]")
        .replace(", protocols: [http1] }", " }");
    hold(&config, |talk| {
        // It came in at port 8080; the service speaks first.
        let client = talk.client();
        let (address, upstream) = relayed(talk);
        assert_eq!(address, "127.0.0.1:9002");
        talk.says(upstream, "220 hello");
        talk.hears(client, "220 hello");
    });
}

#[test]
fn a_connection_keeps_its_chain_when_the_configuration_changes() {
    let own = CONFIG.replace("  chains:", "  routes: office\n  chains:");
    hold(&own, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let (_, upstream) = relayed(talk);
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
        // Another chain stands in front of it now.
        let first = "  - { name: first, match: { server_names: [x] }, protocol: tcp, cluster: shop }\n  - { name: shop";
        talk.reconfigures(&own.replace("  - { name: shop", first));
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.hears(upstream, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
    });
}

#[test]
fn connections_of_a_chain_that_is_gone_end_with_what_it_had() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (idle, busy, tls) = (talk.client(), talk.client(), talk.client());
        for client in [idle, busy] {
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let (_, upstream) = relayed(talk);
            talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
            talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
            talk.ends(upstream);
        }
        talk.says(tls, client_hello("shop.example"));
        let (_, relay) = relayed(talk);
        talk.heard_bytes(relay);
        let web = "  - { name: web, match: { protocols: [http1, http2] }, routes: web }\n";
        talk.reconfigures(&CONFIG.replace(web, ""));
        // Another request is answered as before, and the connection then ends.
        talk.says(busy, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let (_, upstream) = relayed(talk);
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.hears(busy, "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        talk.ends(busy);
        assert!(talk.is_closed(busy));
        // A silent client is waited for a little, and another chain is not concerned.
        assert!(!talk.is_closed(idle));
        talk.passes(Duration::from_secs(6));
        assert!(talk.is_closed(idle));
        talk.says(tls, "more");
        talk.hears(relay, "more");
        // For new ones there is no chain.
        let late = talk.client();
        talk.says(late, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(talk.is_closed(late));
    });
}

/// Chains by where a connection comes from, behind a proxy at 192.0.2.1.
const PROXIED: &str = "
listeners:
- name: edge
  address: 127.0.0.1:8443
  proxy_protocol: true
  chains:
  - { name: client, match: { sources: [198.51.100.7] }, routes: client }
  - { name: balancer, match: { direct_sources: [192.0.2.0/24], source_type: external, sources: [198.51.100.0/24] }, routes: balancer }
  - { name: self, match: { direct_sources: [198.51.100.0/24] }, routes: self }
  - { name: low, match: { direct_sources: [192.0.2.0/24], source_type: external, source_ports: [5] }, routes: low }
  - { name: local, match: { direct_sources: [192.0.2.0/24], source_type: local }, routes: local }
routes:
- { name: client, rules: [{ match: { prefix: / }, respond: { body: client } }] }
- { name: balancer, rules: [{ match: { prefix: / }, respond: { body: balancer } }] }
- { name: self, rules: [{ match: { prefix: / }, respond: { body: self } }] }
- { name: low, rules: [{ match: { prefix: / }, respond: { body: low } }] }
- { name: local, rules: [{ match: { prefix: / }, respond: { body: local } }] }
";

/// What a client is answered behind this PROXY header, and by which the chain is known.
fn answered(talk: &mut Talk<'_>, header: &str) -> Option<String> {
    let client = talk.client();
    // It may move in between.
    talk.says(client, header);
    talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let heard = talk.heard(client);
    talk.ends(client);
    Some(heard.split_once("\r\n\r\n")?.1.to_owned())
}

#[test]
fn the_address_that_connects_is_another_criterion_than_that_of_a_proxy_header() {
    hold(PROXIED, |talk| {
        for (header, body) in [
            // Of the client's address, `client` names more; who connected comes first.
            ("PROXY TCP4 198.51.100.7 10.0.0.1 6 80\r\n", Some("balancer")),
            ("PROXY TCP4 203.0.113.7 10.0.0.1 5 80\r\n", Some("low")),
            ("PROXY TCP4 203.0.113.7 10.0.0.1 6 80\r\n", None),
            ("PROXY TCP4 10.0.0.1 10.0.0.1 5 80\r\n", Some("local")),
            ("PROXY TCP4 127.0.0.1 10.0.0.1 5 80\r\n", Some("local")),
            // The proxy itself, from port 40000.
            ("PROXY UNKNOWN\r\n", None),
        ] {
            assert_eq!(answered(talk, header).as_deref(), body, "{header}");
        }
    });
}

#[test]
fn what_a_request_head_waits_for_does_not_lose_who_connected() {
    let config = PROXIED.replace("{ direct_sources", "{ protocols: [http1], direct_sources");
    hold(&config, |talk| {
        let header = "PROXY TCP4 198.51.100.7 10.0.0.1 6 80\r\n";
        assert_eq!(answered(talk, header).as_deref(), Some("balancer"));
    });
}
