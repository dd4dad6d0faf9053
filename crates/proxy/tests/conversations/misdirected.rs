//! Requests that come over a TLS connection of another host: as browsers send them, which share a
//! connection between all names of its certificate, and as attackers do.

use rustls::ClientConfig;
use wire::buffer::Buffer;
use wire::h1::{Scan, decode_request};
use wire::h2::{Element, Http2, Limits, RequestForm, Scheme, Scratch};
use wire::head::HeadIndex;

use crate::kit::{Talk, Variant};
use crate::tls::{Pki, Secure, hold, trusting_anybody};

/// A public default, a chain of which clients need certificates, and a chain like the default.
const CONFIG: &str = "
listeners:
- name: edge
  address: 127.0.0.1:8443
  tls: { certificates: [{ chain: a.pem, key: a.key }], mode: permissive }
  routes: public
  chains:
  - name: secret
    match: { server_names: [secret.example, '*.secret.example'] }
    tls: { certificates: [{ chain: b.pem, key: b.key }], client: { ca: e.pem } }
    routes: secret
  - name: open
    match: { server_names: [open.secret.example] }
    tls: { certificates: [{ chain: b.pem, key: b.key }] }
    routes: public
routes:
- { name: public, rules: [{ match: { prefix: / }, respond: { status: 201 } }] }
- { name: secret, hosts: [secret.example, '*.secret.example'], rules: [{ match: { prefix: / }, respond: { status: 202 } }] }
clusters: []
";

/// The status of the answer to a request for this host.
fn status(talk: &mut Talk<'_>, client: &mut Secure, host: &str) -> u16 {
    client.says(talk, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let heard = client.hears(talk);
    heard.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{heard:?}"))
}

/// A client that takes any certificate, and has the one that the chain wants.
fn known(pki: &Pki) -> ClientConfig {
    let mut config = trusting_anybody();
    config.client_auth_cert_resolver = pki.client_with(4).client_auth_cert_resolver;
    config
}

#[test]
fn a_host_of_another_chain_has_to_come_over_its_own_connection() {
    hold(CONFIG, |talk, _| {
        let mut client = Secure::client(talk, trusting_anybody(), "www.example");
        for (host, expected) in [
            ("www.example", 201),
            ("secret.example", 421),
            ("secret.example:8443", 421),
            ("SECRET.example", 421),
            ("x.secret.example", 421),
            ("open.secret.example", 201),
            ("other.example", 201),
            ("127.0.0.1", 201),
            ("[::1]:8443", 201),
            ("secret.example", 421),
        ] {
            assert_eq!(status(talk, &mut client, host), expected, "{host}");
        }
        assert!(!talk.is_closed(client.peer), "the connection goes on");
        let log = talk.log();
        assert!(log.contains("\"cause\":\"request_misdirected\""), "{log}");
    });
}

#[test]
fn a_final_dot_does_not_get_around_a_chain() {
    hold(CONFIG, |talk, _| {
        let mut client = Secure::client(talk, trusting_anybody(), "www.example");
        assert_eq!(status(talk, &mut client, "secret.example."), 421);
        assert_eq!(status(talk, &mut client, "secret.example.:8443"), 421);
    });
}

#[test]
fn a_connection_of_a_chain_is_for_its_own_hosts() {
    hold(CONFIG, |talk, pki| {
        let mut client = Secure::client(talk, known(pki), "secret.example");
        for (host, expected) in [
            ("secret.example", 202),
            ("x.secret.example", 202),
            ("open.secret.example", 421),
            ("www.example", 421),
            ("127.0.0.1", 421),
        ] {
            assert_eq!(status(talk, &mut client, host), expected, "{host}");
        }
    });
}

#[test]
fn a_connection_without_a_server_name_is_one_of_the_listeners_own() {
    hold(CONFIG, |talk, _| {
        // An address is not asked for by name.
        let mut client = Secure::client(talk, trusting_anybody(), "127.0.0.1");
        assert_eq!(status(talk, &mut client, "127.0.0.1:8443"), 201);
        assert_eq!(status(talk, &mut client, "secret.example"), 421);
    });
}

#[test]
fn streams_of_http2_are_answered_one_by_one() {
    hold(CONFIG, |talk, _| {
        let mut config = trusting_anybody();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let mut client = Secure::client(talk, config, "www.example");
        let (limits, mut index) = (Limits::default(), HeadIndex::default());
        let mut codec = Http2::client(&limits);
        let mut out = Buffer::new(4096);
        codec.send_control(&mut out);
        for host in ["www.example", "secret.example", "other.example"] {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let decoded =
                decode_request(request.as_bytes(), &mut Scan::default(), &limits.head, &mut index);
            let (head, _) = decoded.unwrap().unwrap();
            codec.send_request(&head, Scheme::Https, RequestForm::Same, true, &mut out).unwrap();
        }
        client.says(talk, out.filled());
        let heard = client.hears_bytes(talk);
        let (mut at, mut scratch, mut received) = (0, Scratch::default(), Vec::new());
        loop {
            let (n, element) = codec.decode(&heard[at..], &limits, &mut scratch).unwrap();
            at += n;
            match element {
                Element::NeedMore => break,
                Element::Response { stream, head, .. } => received.push((stream, head.status())),
                _ => {}
            }
        }
        assert_eq!(received, [(1, 201), (3, 421), (5, 201)]);
    });
}

#[test]
fn clear_connections_have_no_server_name_to_differ_from() {
    hold(CONFIG, |talk, _| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: secret.example\r\n\r\n");
        let heard = talk.heard(client);
        assert!(heard.starts_with("HTTP/1.1 201 "), "{heard}");
    });
}

#[test]
fn what_no_chain_has_is_served_by_the_connections_own() {
    let config = CONFIG
        .replace("  tls: { certificates: [{ chain: a.pem, key: a.key }], mode: permissive }\n", "")
        .replace("  routes: public\n  chains:", "  chains:")
        .replace("hosts: [secret.example, '*.secret.example']", "hosts: ['*']");
    hold(&config, |talk, pki| {
        let mut client = Secure::client(talk, known(pki), "secret.example");
        assert_eq!(status(talk, &mut client, "www.example"), 202);
        assert_eq!(status(talk, &mut client, "open.secret.example"), 421);
        let mut client = Secure::client(talk, trusting_anybody(), "open.secret.example");
        assert_eq!(status(talk, &mut client, "www.example"), 201);
        assert_eq!(status(talk, &mut client, "x.secret.example"), 421);
    });
}

#[test]
fn a_tunnel_may_lead_to_a_host_of_another_chain() {
    let config = CONFIG
        .replace("respond: { status: 201 }", "cluster: web, upgrades: [connect]")
        .replace("clusters: []", "clusters: [{ name: web, endpoints: ['127.0.0.1:9000'] }]");
    hold(&config, |talk, _| {
        let mut client = Secure::client(talk, trusting_anybody(), "www.example");
        client
            .says(talk, "CONNECT secret.example:443 HTTP/1.1\r\nHost: secret.example:443\r\n\r\n");
        let _ = talk.upstream();
        assert!(client.hears(talk).starts_with("HTTP/1.1 200 "));
    });
}

fn offering(name: &str) -> ClientConfig {
    let mut config = trusting_anybody();
    config.alpn_protocols = vec![name.into()];
    config
}

#[test]
fn a_host_whose_own_connection_would_meet_no_chain_is_not_served() {
    // It would meet the first by its protocol, and then not come from there.
    let chains = "
  - name: near
    match: { server_names: [near.example], alpn: [http/1.1], sources: [203.0.113.0/24] }
    tls: { certificates: [{ chain: b.pem, key: b.key }] }
    routes: secret
  - name: far
    match: { server_names: [near.example] }
    tls: { certificates: [{ chain: b.pem, key: b.key }] }
    routes: public
routes:";
    hold(&CONFIG.replace("\nroutes:", chains), |talk, _| {
        let mut client = Secure::client(talk, offering("http/1.1"), "www.example");
        assert_eq!(status(talk, &mut client, "near.example"), 421);
    });
}

#[test]
fn connections_drain_if_what_they_offered_may_lead_to_a_new_chain() {
    hold(CONFIG, |talk, _| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let mut client = Secure::client(talk, offering("http/1.1"), "www.example");
        assert_eq!(status(talk, &mut client, "www.example"), 201);
        let mut config = CONFIG.to_owned();
        for (name, asked, drains) in
            [("x", "server_names: [x.example], alpn: [h2]", false), ("h2", "alpn: [h2]", true)]
        {
            let chain = format!(
                "\n  - {{ name: {name}, match: {{ {asked} }}, routes: secret, \
                 tls: {{ certificates: [{{ chain: b.pem, key: b.key }}] }} }}\nroutes:"
            );
            config = config.replace("\nroutes:", &chain);
            talk.reconfigures(&config);
            client.says(talk, "GET / HTTP/1.1\r\nHost: www.example\r\n\r\n");
            let heard = client.hears(talk);
            assert_eq!(heard.contains("connection: close"), drains, "{name}: {heard}");
        }
    });
}
