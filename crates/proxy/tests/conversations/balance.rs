//! Which endpoint a request goes to, by what is under way at each.

use std::collections::BTreeMap;
use std::time::Duration;

use config::snapshot::Address;
use proxy::save::{ClusterBalancing, LearnedOfEndpoint};

use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Setting, Talk, Variant, hold};

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

/// The same, and the upstream answers and goes away.
fn is_answered(talk: &mut Talk<'_>) -> u16 {
    let (client, upstream, port) = asks(talk);
    talk.heard(upstream);
    talk.says(upstream, OK);
    talk.hears(client, OK);
    talk.breaks(upstream);
    port
}

#[test]
fn endpoints_take_turns_also_where_everything_moves() {
    hold(&config("round_robin"), |talk| {
        let ports: Vec<_> = (0..6).map(|_| is_answered(talk)).collect();
        assert!(ports.windows(2).all(|two| two[0] != two[1]), "{ports:?}");
    });
}

#[test]
fn what_another_process_says_that_it_has_learned_may_be_anything() {
    let nothing = LearnedOfEndpoint::default;
    let all = |latency| LearnedOfEndpoint {
        latency: (latency, u64::MAX),
        age: u64::MAX,
        refusals: (u8::MAX, u64::MAX),
        streams: (u32::MAX, u32::MAX, u8::MAX),
    };
    for balance in ["round_robin", "peak_ewma"] {
        hold(&config(balance), |talk| {
            for latency in [f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, -1.0, 0.0] {
                let cluster = |name: &str| ClusterBalancing {
                    cluster: name.to_owned(),
                    turns: vec![(u64::MAX, u64::MAX); 1_000],
                    turns_high: vec![(0, 0)],
                    endpoints: vec![
                        ("127.0.0.1:9000".to_owned(), all(latency)),
                        ("127.0.0.1:9001".to_owned(), nothing()),
                        ("127.0.0.1:9002".to_owned(), all(latency)),
                        (String::new(), nothing()),
                    ],
                };
                talk.learns(&[cluster("web"), cluster("other"), ClusterBalancing::default()]);
                // No pause is longer than the longest.
                talk.passes(Duration::from_secs(1));
                for _ in 0..4 {
                    is_answered(talk);
                }
            }
        });
    }
}

#[test]
fn an_endpoint_that_does_not_answer_gets_no_further_requests() {
    hold(&config("least_request"), |talk| {
        if talk.variant() == Variant::Moving {
            // Each worker counts its own.
            return talk.leave_out();
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
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
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
        if talk.variant() == Variant::Moving {
            // What moves is counted as its next worker is configured.
            return talk.leave_out();
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

/// Ten endpoints, of which one has taken a second for its response lately.
#[test]
fn a_slow_endpoint_is_left_alone_for_a_while() {
    leaves_the_slow_one_alone(&[GET]);
}

#[test]
fn a_slow_endpoint_is_left_alone_where_requests_have_bodies_that_come_later() {
    leaves_the_slow_one_alone(&[
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n",
        "bo",
        "dy",
    ]);
}

/// Requests come in these pieces, with as much time between two as the slow endpoint takes: that is the client's.
fn leaves_the_slow_one_alone(pieces: &[&str]) {
    let endpoints: Vec<String> = (9000..9010).map(|port| format!("'127.0.0.1:{port}'")).collect();
    let config = CONFIG.replace("'127.0.0.1:9000'", &endpoints.join(", "))
        + "    balance: { peak_ewma: { decay: 10s } }\n";
    let other = Setting::of(&config);
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // Attempts that move are not measured.
            return talk.leave_out();
        }
        let mut upstreams: BTreeMap<u16, Peer> = BTreeMap::new();
        let mut asked: BTreeMap<u16, u32> = BTreeMap::new();
        for _ in 0..400 {
            let client = talk.client();
            talk.says(client, pieces[0]);
            if talk.is_connecting() {
                let upstream = talk.upstream();
                upstreams.insert(port(talk, upstream), upstream);
            }
            let found = upstreams.iter().find(|(_, peer)| !talk.heard(**peer).is_empty());
            let (port, upstream) = found.map(|(port, peer)| (*port, *peer)).expect("one is asked");
            *asked.entry(port).or_insert(0) += 1;
            for piece in &pieces[1..] {
                talk.passes(Duration::from_secs(1));
                talk.says(client, piece);
                talk.hears(upstream, piece);
            }
            talk.passes(Duration::from_millis(if port == 9003 { 1_000 } else { 10 }));
            talk.says(upstream, OK);
            talk.hears(client, OK);
            talk.breaks(client);
        }
        let slow = asked.get(&9003).copied().unwrap_or(0);
        let others = (400 - slow) / 9;
        assert!(slow >= 1 && slow * 3 <= others, "{asked:?}");
        assert_eq!(asked.len(), 10, "{asked:?}");
        // Another process knows it, too.
        let learned = talk.learned();
        let mut other = Talk::new(&other, Variant::Plain);
        learned.iter().for_each(|part| other.learns(part));
        assert_eq!(other.learned().concat()[0].endpoints.len(), 10);
        let latency = |place: usize| learned[0][0].endpoints[place].1.latency.0;
        assert!((0..10).all(|place| place == 3 || latency(place) < latency(3)), "{learned:?}");
    });
}

#[test]
fn an_endpoint_that_fails_at_once_is_not_the_fastest() {
    hold(&config("peak_ewma"), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        // Both are known: one answers slowly, the other goes away without a response.
        let mut failing = None;
        for _ in 0..2 {
            let (client, upstream, port) = asks(talk);
            talk.heard(upstream);
            if failing.is_none() {
                failing = Some(port);
                talk.breaks(upstream);
                talk.heard(client);
                talk.breaks(client);
                continue;
            }
            talk.passes(Duration::from_millis(500));
            talk.says(upstream, OK);
            talk.hears(client, OK);
            talk.breaks(client);
        }
        let (client, upstream) = (talk.client(), failing);
        talk.says(client, GET);
        assert!(!talk.is_connecting(), "the one that answered is asked again, not {upstream:?}");
    });
}

#[test]
fn an_endpoint_that_came_lately_gets_its_share_by_and_by() {
    for balance in ["round_robin", "random", "least_request"] {
        let slow = "    slow_start: { window: 100s, weight_min: 10% }\n";
        let config = config(balance) + slow;
        let one = CONFIG.to_owned() + &format!("    balance: {balance}\n{slow}");
        hold(&one, |talk| {
            if talk.variant() != Variant::Plain {
                return talk.leave_out();
            }
            talk.reconfigures(&config);
            let mut upstreams: BTreeMap<u16, Peer> = BTreeMap::new();
            let mut share = |talk: &mut Talk<'_>| {
                let mut of_new = 0;
                for _ in 0..200 {
                    let client = talk.client();
                    talk.says(client, GET);
                    if talk.is_connecting() {
                        let upstream = talk.upstream();
                        upstreams.insert(port(talk, upstream), upstream);
                    }
                    let found = upstreams.iter().find(|(_, peer)| !talk.heard(**peer).is_empty());
                    let (port, upstream) = found.map(|(port, peer)| (*port, *peer)).unwrap();
                    of_new += u32::from(port == 9001);
                    talk.says(upstream, OK);
                    talk.hears(client, OK);
                    talk.breaks(client);
                }
                of_new
            };
            // Of 200, one in eleven, a third, and half: six deviations of a draw are 24, 40 and 42.
            let mut shares = Vec::new();
            for _ in 0..3 {
                shares.push(share(talk));
                // Idle connections last so long.
                talk.passes(Duration::from_secs(50));
            }
            let [first, second, third] = shares[..] else { panic!("three") };
            assert!(first <= 18 + 24, "{balance}: {shares:?}");
            assert!((27..=107).contains(&second), "{balance}: {shares:?}");
            assert!((58..=142).contains(&third), "{balance}: {shares:?}");
        });
    }
}

/// Requests at each of ten endpoints, of which the first takes 400 ms for what takes the others 10: three new ones each 10 ms.
fn with_one_slow_of_ten(talk: &mut Talk<'_>) -> BTreeMap<u16, u32> {
    let mut free: Vec<Peer> = Vec::new();
    let mut known: Vec<(u16, Peer)> = Vec::new();
    let mut under_way: Vec<(u32, Peer, Peer)> = Vec::new();
    let mut asked = BTreeMap::new();
    for step in 0..400 {
        for _ in 0..3 {
            let client = free.pop().unwrap_or_else(|| talk.client());
            talk.says(client, GET);
            if talk.is_connecting() {
                let upstream = talk.upstream();
                known.push((port(talk, upstream), upstream));
            }
            let found = known.iter().find(|(_, upstream)| !talk.heard(*upstream).is_empty());
            let (port, upstream) = *found.expect("one of them is asked");
            let steps = if port == 9000 { 40 } else { 1 };
            under_way.push((step + steps, client, upstream));
            // The first second is for the balancer to learn.
            if step >= 100 {
                *asked.entry(port).or_insert(0) += 1;
            }
        }
        talk.passes(Duration::from_millis(10));
        under_way.retain(|(until, client, upstream)| {
            let is_over = *until <= step + 1;
            if is_over {
                talk.says(*upstream, OK);
                talk.hears(*client, OK);
                free.push(*client);
            }
            !is_over
        });
    }
    asked
}

#[test]
fn a_slow_endpoint_of_ten_gets_at_most_a_third_of_what_the_others_get() {
    let endpoints = (9000..9010).map(|port| format!("'127.0.0.1:{port}'"));
    let endpoints = format!("[{}]", endpoints.collect::<Vec<_>>().join(", "));
    for balance in ["least_request", "{ least_request: { choices: 3 } }", "peak_ewma"] {
        let config =
            CONFIG.replace("['127.0.0.1:9000']", &endpoints) + &format!("    balance: {balance}\n");
        hold(&config, |talk| {
            if talk.variant() != Variant::Plain {
                return talk.leave_out();
            }
            let asked = with_one_slow_of_ten(talk);
            let slow = asked.get(&9000).copied().unwrap_or_default();
            let others: u32 = asked.iter().filter(|it| *it.0 != 9000).map(|it| it.1).sum();
            assert_eq!(slow + others, 900);
            assert!(slow * 3 <= others / 9, "{balance}: {asked:?}");
        });
    }
}
