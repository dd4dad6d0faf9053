//! Endpoints that are chosen by a hash of the request.

use std::collections::BTreeMap;

use config::snapshot::Address;

use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Three endpoints with a balancer, and a rule with a hash.
fn config(balance: &str, hash: &str) -> String {
    let endpoints = "['127.0.0.1:9000', '127.0.0.1:9001', '127.0.0.1:9002']";
    CONFIG
        .replace("['127.0.0.1:9000']", endpoints)
        .replace("cluster: web }", &format!("cluster: web, hash: [{hash}] }}"))
        + &format!("    balance: {balance}\n")
}

fn get(user: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: x\r\nX-User: {user}\r\n\r\n")
}

fn port(talk: &Talk<'_>, upstream: Peer) -> u16 {
    let Address::Tcp(address) = talk.address(upstream) else { panic!("an IP address") };
    address.port()
}

/// The upstream connections of a conversation, by the ports of their endpoints.
#[derive(Default)]
struct Upstreams(BTreeMap<u16, Peer>);

impl Upstreams {
    /// A client asks, and is answered by the endpoint with this port.
    fn ask(&mut self, talk: &mut Talk<'_>, request: &str) -> (u16, String) {
        let client = talk.client();
        talk.says(client, request);
        if talk.is_connecting() {
            let upstream = talk.upstream();
            self.0.insert(port(talk, upstream), upstream);
        }
        let asked = self.0.iter().find(|(_, peer)| !talk.heard(**peer).is_empty());
        let (port, upstream) = asked.map(|(port, peer)| (*port, *peer)).expect("one is asked");
        talk.says(upstream, OK);
        let answer = talk.heard(client);
        talk.breaks(client);
        (port, answer)
    }
}

#[test]
fn requests_with_one_value_go_to_one_endpoint() {
    for balance in ["maglev", "ring_hash", "{ maglev: { table: 251, load_max: 200 } }"] {
        hold(&config(balance, "{ header: x-user }"), |talk| {
            let mut upstreams = Upstreams::default();
            let users: Vec<String> = (0..12).map(|user| format!("user-{user}")).collect();
            let mut ports = |talk: &mut Talk<'_>| -> Vec<u16> {
                users.iter().map(|user| upstreams.ask(talk, &get(user)).0).collect()
            };
            let first = ports(talk);
            assert_eq!(first, ports(talk), "{balance}");
            for port in 9000..=9002 {
                assert!(first.contains(&port), "{balance}: {first:?}");
            }
        });
    }
}

#[test]
fn a_client_without_a_cookie_gets_one_and_comes_back_with_it() {
    let hash = "{ cookie: { name: at, ttl: 1h, path: / } }";
    hold(&config("maglev", hash), |talk| {
        let mut upstreams = Upstreams::default();
        for _ in 0..4 {
            let (port, answer) =
                upstreams.ask(talk, "GET / HTTP/1.1\r\nHost: x\r\nCookie: b=c\r\n\r\n");
            let cookies: Vec<_> = answer
                .lines()
                .filter_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("set-cookie: ").map(str::to_owned)
                })
                .collect();
            let [cookie] = &cookies[..] else { panic!("one cookie is expected: {answer}") };
            let (pair, attributes) = cookie.split_once("; ").unwrap();
            assert_eq!(attributes, "max-age=3600; path=/; httponly");
            let again = format!("GET / HTTP/1.1\r\nHost: x\r\nCookie: {pair}\r\n\r\n");
            for _ in 0..3 {
                let (same, answer) = upstreams.ask(talk, &again);
                assert_eq!(same, port);
                assert_eq!(answer, OK, "it has its cookie");
            }
        }
    });
}

#[test]
fn where_no_more_connections_may_be_opened_an_idle_one_gives_way() {
    let config = config("maglev", "{ header: x-user }") + "    connections_max: 1\n";
    hold(&config, |talk| {
        let mut upstreams = Upstreams::default();
        let first = upstreams.ask(talk, &get("user-0"));
        // Another user's endpoint gets a connection in place of the first one's, which is idle.
        let others = (1..20).map(|user| get(&format!("user-{user}")));
        for other in others {
            let known = upstreams.0.clone();
            let (port, _) = upstreams.ask(talk, &other);
            if port != first.0 {
                assert!(talk.is_closed(known[&first.0]));
                assert_eq!(upstreams.ask(talk, &get("user-0")).0, first.0);
                return;
            }
        }
        panic!("all users go to one endpoint");
    });
}

#[test]
fn an_exchange_waits_for_its_own_endpoint() {
    let config = config("maglev", "{ header: x-user }") + "    connections_max: 1\n";
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // Each worker has a queue of its own.
            return talk.leave_out();
        }
        let mut upstreams = Upstreams::default();
        let ports: Vec<u16> =
            (0..20).map(|user| upstreams.ask(talk, &get(&format!("user-{user}"))).0).collect();
        let other = ports.iter().position(|port| *port != ports[0]).expect("another endpoint");
        let (client, waiting) = (talk.client(), talk.client());
        talk.says(client, get("user-0"));
        if talk.is_connecting() {
            let upstream = talk.upstream();
            upstreams.0.insert(ports[0], upstream);
        }
        talk.says(waiting, get(&format!("user-{other}")));
        assert!(!talk.is_connecting(), "the one connection is in use");
        let busy = upstreams.0[&ports[0]];
        talk.heard(busy);
        talk.says(busy, OK);
        talk.hears(client, OK);
        let upstream = talk.upstream();
        assert_eq!(port(talk, upstream), ports[other]);
        talk.heard(upstream);
        talk.says(upstream, OK);
        talk.hears(waiting, OK);
    });
}

#[test]
fn a_retry_goes_to_the_next_endpoint_that_the_hash_leads_to() {
    hold(&config("ring_hash", "{ header: x-user }"), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let mut tried = Vec::new();
        for _ in 0..3 {
            let client = talk.client();
            talk.says(client, get("ann"));
            let refused = talk.connecting();
            let first = port(talk, refused);
            talk.refuse(refused);
            let upstream = talk.upstream();
            let second = port(talk, upstream);
            assert_ne!(first, second);
            tried.push((first, second));
            talk.heard(upstream);
            talk.breaks(client);
            talk.breaks(upstream);
        }
        assert!(tried.iter().all(|each| *each == tried[0]), "{tried:?}");
    });
}

#[test]
fn an_endpoint_with_its_share_of_requests_gets_no_more() {
    let balance = "{ maglev: { table: 251, load_max: 100 } }";
    hold(&config(balance, "{ constant: all }"), |talk| {
        if talk.variant() == Variant::Moving {
            // Each worker counts its own.
            return talk.leave_out();
        }
        let mut ports = BTreeMap::new();
        for _ in 0..9 {
            let client = talk.client();
            talk.says(client, get("ann"));
            let upstream = talk.upstream();
            *ports.entry(port(talk, upstream)).or_insert(0) += 1;
        }
        assert_eq!(ports, BTreeMap::from([(9000, 3), (9001, 3), (9002, 3)]));
    });
}

#[test]
fn relayed_connections_of_one_client_go_to_one_endpoint() {
    let endpoints = (9000..9008).map(|port| format!("'127.0.0.1:{port}'"));
    let config = format!(
        "\nlisteners: [{{ name: edge, address: 127.0.0.1:8080, protocol: tcp, cluster: web }}]\n\
         clusters: [{{ name: web, balance: maglev, endpoints: [{}] }}]\n",
        endpoints.collect::<Vec<_>>().join(", ")
    );
    hold(&config, |talk| {
        let mut ports = Vec::new();
        for client in 1..9 {
            talk.comes_from(&format!("192.0.2.{client}"));
            let of_client: Vec<u16> = (0..3)
                .map(|_| {
                    talk.client();
                    let upstream = talk.upstream();
                    port(talk, upstream)
                })
                .collect();
            assert!(of_client.iter().all(|port| *port == of_client[0]), "{of_client:?}");
            ports.push(of_client[0]);
        }
        ports.sort_unstable();
        ports.dedup();
        assert!(ports.len() > 2, "{ports:?}");
    });
}
