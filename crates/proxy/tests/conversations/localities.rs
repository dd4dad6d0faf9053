//! Which locality a request goes to, and what is counted of it.

use std::collections::BTreeMap;

use config::snapshot::Address;

use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// Four endpoints: 9000 and 9001 in eu/a, where the process is, 9002 in eu/b, and 9003 of the second priority.
fn config(localities: &str, more: &str) -> String {
    let endpoints = "[{ address: '127.0.0.1:9000', locality: eu/a }, { address: '127.0.0.1:9001', locality: eu/a }, \
         { address: '127.0.0.1:9002', locality: eu/b }, { address: '127.0.0.1:9003', locality: eu/b, priority: 1 }]";
    format!("locality: eu/a\n{}", CONFIG.replace("['127.0.0.1:9000']", endpoints))
        + &format!("    localities: {localities}\n{more}")
}

/// The port of a connection to an endpoint.
fn port(talk: &Talk<'_>, upstream: Peer) -> u16 {
    let Address::Tcp(address) = talk.address(upstream) else { panic!("an IP address") };
    address.port()
}

/// How often each endpoint was asked, of so many requests.
fn asked(talk: &mut Talk<'_>, requests: usize) -> BTreeMap<u16, usize> {
    let client = talk.client();
    let mut known: BTreeMap<u16, Peer> = BTreeMap::new();
    let mut asked = BTreeMap::new();
    for _ in 0..requests {
        talk.says(client, GET);
        if talk.is_connecting() {
            let upstream = talk.upstream();
            known.insert(port(talk, upstream), upstream);
        }
        known.retain(|_, upstream| !talk.is_closed(*upstream));
        let found = known.iter().find(|(_, upstream)| !talk.heard(**upstream).is_empty());
        let (port, upstream) = found.expect("one of them is asked");
        *asked.entry(*port).or_insert(0) += 1;
        talk.says(*upstream, OK);
        talk.hears(client, OK);
    }
    asked
}

#[test]
fn requests_stay_where_the_process_is_and_take_turns_there() {
    hold(&config("{ zone_aware: { size_min: 1 } }", ""), |talk| {
        if talk.variant() == Variant::Moving {
            // Each worker has turns and connections of its own.
            return talk.leave_out();
        }
        talk.keeps_counts();
        assert_eq!(asked(talk, 10), BTreeMap::from([(9000, 5), (9001, 5)]));
        let counted = talk.counted("strait_upstream_choices_total");
        assert_eq!(counted, BTreeMap::from([("web own_locality".to_owned(), 10)]));
    });
}

#[test]
fn a_locality_with_a_weight_of_zero_gets_nothing_and_no_idle_connection_is_taken_to_it() {
    let config = config("{ weights: { eu/a: 0, eu/b: 1 } }", "    connections_max: 1\n");
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        assert_eq!(asked(talk, 4), BTreeMap::from([(9002, 4)]));
        // The weights turn round: the idle connection makes room for one to where requests go now.
        talk.reconfigures(&config.replace("eu/a: 0, eu/b: 1", "eu/a: 1, eu/b: 0"));
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        assert!([9000, 9001].contains(&port(talk, upstream)));
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn degraded_endpoints_are_chosen_by_locality_too() {
    let config = config("{ weights: { eu/a: 0, eu/b: 1 } }", "");
    hold(&config.replace(", locality: eu", ", health: degraded, locality: eu"), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        talk.keeps_counts();
        assert_eq!(asked(talk, 6), BTreeMap::from([(9002, 6)]));
        let counted = talk.counted("strait_upstream_choices_total");
        assert_eq!(counted, BTreeMap::from([("web degraded".to_owned(), 6)]));
    });
}

#[test]
fn where_the_only_endpoint_of_a_locality_fails_another_locality_is_tried() {
    hold(&config("{ weights: { eu/a: 0, eu/b: 1 } }", ""), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let refused = talk.connecting();
        assert_eq!(port(talk, refused), 9002);
        talk.refuse(refused);
        let upstream = talk.upstream();
        assert!([9000, 9001].contains(&port(talk, upstream)), "{}", port(talk, upstream));
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_priority_behind_the_first_is_counted_as_a_failover() {
    let endpoints = "['127.0.0.1:9000', { address: '127.0.0.1:9001', priority: 1 }]";
    hold(&CONFIG.replace("['127.0.0.1:9000']", endpoints), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, GET);
        let refused = talk.connecting();
        talk.refuse(refused);
        let upstream = talk.upstream();
        assert_eq!(port(talk, upstream), 9001);
        talk.says(upstream, OK);
        talk.hears(client, OK);
        let counted = talk.counted("strait_upstream_choices_total");
        assert_eq!(counted, BTreeMap::from([("web failover".to_owned(), 1)]));
    });
}
