//! Which endpoint a request goes to, by what is under way at each.

use std::collections::BTreeMap;

use config::snapshot::Address;

use crate::keep_alive::CONFIG;
use crate::kit::{Manner, Peer, Talk, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// Two endpoints with a balancer, in place of the one of the usual configuration.
fn config(balance: &str) -> String {
    let endpoints = "['127.0.0.1:9000', '127.0.0.1:9001']";
    CONFIG.replace("['127.0.0.1:9000']", endpoints) + &format!("    balance: {balance}\n")
}

fn port(talk: &Talk<'_>, upstream: Peer) -> u16 {
    let Address::Tcp(address) = talk.address(upstream) else { panic!("an IP address") };
    address.port()
}

/// A client asks, and gets a connection of its own: which port it goes to.
fn asks(talk: &mut Talk<'_>) -> (Peer, Peer, u16) {
    let client = talk.client();
    talk.says(client, GET);
    let upstream = talk.upstream();
    (client, upstream, port(talk, upstream))
}

#[test]
fn an_endpoint_that_does_not_answer_gets_no_further_requests() {
    hold(&config("least_request"), |talk| {
        if talk.manner() == Manner::Moving {
            // Each worker counts its own.
            return;
        }
        let (_, _, silent) = asks(talk);
        let mut asked = BTreeMap::new();
        let mut connections: Vec<Peer> = Vec::new();
        for _ in 0..20 {
            let client = talk.client();
            talk.says(client, GET);
            if talk.is_connecting() {
                connections.push(talk.upstream());
            }
            let found = connections.iter().find(|it| !talk.heard(**it).is_empty());
            let upstream = *found.expect("one of them is asked");
            *asked.entry(port(talk, upstream)).or_insert(0) += 1;
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
        assert_eq!(asked, BTreeMap::from([(if silent == 9000 { 9001 } else { 9000 }, 20)]));
    });
}

#[test]
fn what_is_under_way_is_counted_down_however_it_ends() {
    hold(&config("{ least_request: { choices: 2 } }"), |talk| {
        if talk.manner() == Manner::Moving {
            return;
        }
        // Answered, cut off by the upstream, given up by the client, refused and tried elsewhere.
        let (answered, upstream, _) = asks(talk);
        talk.says(upstream, OK);
        talk.hears(answered, OK);
        talk.breaks(upstream);
        let (_, upstream, _) = asks(talk);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok");
        talk.breaks(upstream);
        let (gone, _, _) = asks(talk);
        talk.breaks(gone);
        let retried = talk.client();
        talk.says(retried, GET);
        let connecting = talk.connecting();
        talk.refuse(connecting);
        let upstream = talk.upstream();
        assert_eq!(talk.proxy().load().counted, 1);
        talk.says(upstream, OK);
        talk.hears(retried, OK);
        assert_eq!(talk.proxy().load().counted, 0, "nothing is under way");
        // Requests that stay are shared evenly, whichever comes first.
        let mut ports = BTreeMap::new();
        for _ in 0..10 {
            let client = talk.client();
            talk.says(client, GET);
            let upstream = if talk.is_connecting() { talk.upstream() } else { upstream };
            *ports.entry(port(talk, upstream)).or_insert(0) += 1;
        }
        assert_eq!(ports, BTreeMap::from([(9000, 5), (9001, 5)]));
    });
}

#[test]
fn a_connection_that_moves_to_another_worker_is_counted_there() {
    hold(&config("least_request"), |talk| {
        let (client, upstream, _) = asks(talk);
        assert_eq!(talk.proxy().load().counted, 1);
        talk.says(upstream, OK);
        talk.hears(client, OK);
        assert_eq!(talk.proxy().load().counted, 0);
    });
}

#[test]
fn a_balancer_that_changes_counts_what_begins_after_it() {
    hold(&config("round_robin"), |talk| {
        if talk.manner() == Manner::Moving {
            // What moves is counted as its next worker is configured.
            return;
        }
        let (client, upstream, _) = asks(talk);
        assert_eq!(talk.proxy().load().counted, 0);
        talk.reconfigures(&config("least_request"));
        let (other, other_upstream, _) = asks(talk);
        assert_eq!(talk.proxy().load().counted, 1);
        talk.reconfigures(&config("random"));
        for (client, upstream) in [(client, upstream), (other, other_upstream)] {
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
        assert_eq!(talk.proxy().load().counted, 0);
    });
}
