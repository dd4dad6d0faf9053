//! Groups that leave in parts: what happens meanwhile, to them and to others.

use std::time::Duration;

use proxy::save::{GroupMax, Unmovable};
use wire::h2::Limits;

use crate::frames::Speaker;
use crate::kit::{Peer, Talk, Variant, hold};

/// Clients of one cluster share connections, and those of the other have theirs alone.
const CONFIG: &str = "
listeners: [{ name: web, address: 127.0.0.1:8080, routes: site, http: { forwarded: off, request_id: false } }]
routes:
  - name: site
    hosts: ['*']
    rules: [{ match: { prefix: /own }, cluster: own }, { match: { prefix: / }, cluster: shared }]
clusters:
  - { name: shared, protocol: http2, endpoints: ['127.0.0.1:9000'], connections_max: 2 }
  - { name: own, endpoints: ['127.0.0.1:9001'] }
";

const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// As `rebalance` moves clients.
const ALONE: GroupMax = GroupMax { connections: 10, clients: 1 };

/// A client whose requests concern no other.
struct Bystander {
    client: Peer,
    service: Peer,
}

impl Bystander {
    fn new(talk: &mut Talk<'_>) -> Self {
        let client = talk.client();
        talk.says(client, "GET /own HTTP/1.1\r\nHost: x\r\n\r\n");
        let service = talk.upstream();
        let bystander = Self { client, service };
        bystander.is_answered(talk);
        bystander
    }

    fn is_answered(&self, talk: &mut Talk<'_>) {
        talk.hears_about(self.service, "GET /own HTTP/1.1\r\n", &[]);
        talk.says(self.service, NO_CONTENT);
        talk.hears(self.client, NO_CONTENT);
    }

    fn asks(&self, talk: &mut Talk<'_>) {
        talk.says(self.client, "GET /own HTTP/1.1\r\nHost: x\r\n\r\n");
        self.is_answered(talk);
    }
}

/// Clients of HTTP/1 with a request each, all on one connection of their service.
fn sharing(talk: &mut Talk<'_>, count: usize) -> (Vec<Peer>, Speaker) {
    let clients: Vec<_> = (0..count).map(|_| talk.client()).collect();
    talk.says(clients[0], "GET /0 HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut service = Speaker::upstream(talk);
    for (place, client) in clients.iter().enumerate().skip(1) {
        talk.says(*client, format!("GET /{place} HTTP/1.1\r\nHost: x\r\n\r\n"));
    }
    assert_eq!(service.hears(talk).matches("GET /").count(), count);
    (clients, service)
}

#[test]
fn others_are_served_while_a_group_leaves_and_nothing_happens_to_it() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let bystander = Bystander::new(talk);
        let (clients, mut service) = sharing(talk, 4);
        let mut saving = talk.begins_to_leave(clients[2], GroupMax::ANY);
        // Connections are found one by one: of some, nothing is known yet.
        let mut steps = 1;
        while !talk.goes_on_leaving(&mut saving).unwrap() {
            if steps == 3 {
                service.answers(talk, 1, NO_CONTENT, true);
            }
            bystander.asks(talk);
            steps += 1;
        }
        assert!(steps > 15, "five connections and four exchanges: {steps} steps");
        clients.iter().for_each(|client| talk.hears(*client, ""));
        talk.leaves_and_comes_back(saving);
        talk.hears(clients[0], NO_CONTENT);
        for stream in [5, 3, 7] {
            service.answers(talk, stream, NO_CONTENT, true);
        }
        clients[1..].iter().for_each(|client| talk.hears(*client, NO_CONTENT));
        bystander.asks(talk);
    });
}

#[test]
fn a_request_that_begins_meanwhile_goes_on_another_connection() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (clients, mut service) = sharing(talk, 2);
        let late = talk.client();
        let mut saving = talk.begins_to_leave(clients[0], GroupMax::ANY);
        talk.goes_on_leaving(&mut saving).unwrap();
        talk.goes_on_leaving(&mut saving).unwrap();
        talk.says(late, "GET /late HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut other = Speaker::upstream(talk);
        while !talk.goes_on_leaving(&mut saving).unwrap() {}
        assert_eq!(saving.taken().len(), 3, "two clients and their service");
        talk.leaves_and_comes_back(saving);
        assert!(other.hears(talk).contains("1: GET /late"));
        other.answers(talk, 1, NO_CONTENT, true);
        talk.hears(late, NO_CONTENT);
        for stream in [1, 3] {
            service.answers(talk, stream, NO_CONTENT, true);
        }
        clients.iter().for_each(|client| talk.hears(*client, NO_CONTENT));
    });
}

#[test]
fn a_group_that_is_too_large_goes_on_with_what_came_meanwhile() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (clients, mut service) = sharing(talk, 5);
        // The first client and the service are found by now.
        let mut saving = talk.begins_to_leave(clients[0], GroupMax::connections(4));
        service.answers(talk, 3, NO_CONTENT, true);
        talk.hears(clients[1], "");
        assert_eq!(talk.goes_on_leaving(&mut saving), Err(Unmovable::TooLarge));
        talk.hears(clients[1], NO_CONTENT);
        // The connection of the service is for others again.
        talk.says(clients[1], "GET /again HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(service.hears(talk).contains("11: GET /again"));
        for stream in [1, 5, 7, 9, 11] {
            service.answers(talk, stream, NO_CONTENT, true);
        }
        clients.iter().for_each(|client| talk.hears(*client, NO_CONTENT));
    });
}

#[test]
fn a_request_that_waits_and_leaves_is_not_served_meanwhile() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let limits = Limits { streams_max: 1, ..Limits::default() };
        let mut client = Speaker::client(talk);
        let first = client.gets(talk, "/first");
        let mut one = Speaker::upstream_with(talk, limits);
        let other = talk.client();
        talk.says(other, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut two = Speaker::upstream_with(talk, limits);
        let waiting = client.gets(talk, "/waiting");
        assert!(one.hears(talk).contains("1: GET /first"));
        assert!(two.hears(talk).contains("1: GET /other"));
        let mut saving = talk.begins_to_leave(client.peer, GroupMax::ANY);
        // Its connection has room from here on.
        two.answers(talk, 1, NO_CONTENT, true);
        talk.hears(other, NO_CONTENT);
        while !talk.goes_on_leaving(&mut saving).unwrap() {
            assert!(!two.hears(talk).contains("GET /waiting"));
        }
        talk.leaves_and_comes_back(saving);
        assert!(two.hears(talk).contains("3: GET /waiting"));
        two.answers(talk, 3, NO_CONTENT, true);
        one.answers(talk, 1, NO_CONTENT, true);
        let heard = client.hears(talk);
        for stream in [first, waiting] {
            assert!(heard.contains(&format!("{stream}: 204")), "{heard}");
        }
    });
}

#[test]
fn a_client_that_is_set_apart_leaves_without_those_that_it_shared_with() {
    hold(&CONFIG.replace("connections_max: 2", "connections_max: 9"), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (others, mut shared) = sharing(talk, 2);
        let mut client = Speaker::client(talk);
        let early = client.gets(talk, "/early");
        assert!(shared.hears(talk).contains("5: GET /early"));
        talk.sets_apart(client.peer);
        let late = client.gets(talk, "/late");
        let mut own = Speaker::upstream(talk);
        let later = client.gets(talk, "/later");
        let heard = own.hears(talk);
        assert!(heard.contains("1: GET /late") && heard.contains("3: GET /later"), "{heard}");
        // Others do not get it.
        shared.answers(talk, 1, NO_CONTENT, true);
        talk.hears(others[0], NO_CONTENT);
        talk.says(others[0], "GET /other HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(shared.hears(talk).contains("7: GET /other"));
        assert_eq!(talk.refuses_to_leave(client.peer, ALONE), Unmovable::TooLarge);
        // Its earlier request is over.
        shared.answers(talk, 5, NO_CONTENT, true);
        let mut saving = talk.begins_to_leave(client.peer, ALONE);
        while !talk.goes_on_leaving(&mut saving).unwrap() {}
        talk.leaves_and_comes_back(saving);
        for stream in [1, 3] {
            own.answers(talk, stream, NO_CONTENT, true);
        }
        let heard = client.hears(talk);
        for stream in [early, late, later] {
            assert!(heard.contains(&format!("{stream}: 204")), "{heard}");
        }
    });
}

/// They are in no pool.
#[test]
fn connections_of_a_client_that_is_set_apart_end_with_their_endpoint() {
    let config = CONFIG.replace("connections_max: 2", "connections_max: 9");
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let mut client = Speaker::client(talk);
        talk.sets_apart(client.peer);
        let stream = client.gets(talk, "/");
        let mut own = Speaker::upstream(talk);
        assert!(own.hears(talk).contains("1: GET /"));
        own.answers(talk, 1, NO_CONTENT, true);
        assert!(client.hears(talk).contains(&format!("{stream}: 204")));
        let elsewhere = config.replace("127.0.0.1:9000", "127.0.0.1:9002");
        assert_ne!(elsewhere, config);
        talk.reconfigures(&elsewhere);
        assert!(talk.is_closed(own.peer));
    });
}

#[test]
fn connections_of_a_client_that_was_set_apart_are_for_all_after_a_while() {
    hold(&CONFIG.replace("connections_max: 2", "connections_max: 9"), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (clients, mut shared) = sharing(talk, 2);
        for stream in [1, 3] {
            shared.answers(talk, stream, NO_CONTENT, true);
        }
        clients.iter().for_each(|client| talk.hears(*client, NO_CONTENT));
        talk.sets_apart(clients[0]);
        talk.says(clients[0], "GET /apart HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut own = Speaker::upstream(talk);
        assert!(own.hears(talk).contains("1: GET /apart"));
        own.answers(talk, 1, NO_CONTENT, true);
        talk.hears(clients[0], NO_CONTENT);
        talk.passes(Duration::from_secs(11));
        talk.breaks(shared.peer);
        talk.says(clients[1], "GET /all HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(own.hears(talk).contains("3: GET /all"));
        own.answers(talk, 3, NO_CONTENT, true);
        talk.hears(clients[1], NO_CONTENT);
    });
}

#[test]
fn a_request_that_leaves_gives_way_to_none_where_its_queue_is_full() {
    let config = CONFIG.replace("connections_max: 2", "connections_max: 1, pending_max: 1");
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let limits = Limits { streams_max: 1, ..Limits::default() };
        let mut client = Speaker::client(talk);
        let first = client.gets(talk, "/first");
        let mut service = Speaker::upstream_with(talk, limits);
        let waiting = client.gets(talk, "/waiting");
        assert!(service.hears(talk).contains("1: GET /first"));
        talk.comes_from("192.0.2.8");
        let other = talk.client();
        let mut saving = talk.begins_to_leave(client.peer, GroupMax::ANY);
        talk.says(other, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.hears_about(other, "HTTP/1.1 503 ", &["pending_overflow"]);
        while !talk.goes_on_leaving(&mut saving).unwrap() {}
        talk.leaves_and_comes_back(saving);
        service.answers(talk, 1, NO_CONTENT, true);
        assert!(service.hears(talk).contains("3: GET /waiting"));
        service.answers(talk, 3, NO_CONTENT, true);
        let heard = client.hears(talk);
        for stream in [first, waiting] {
            assert!(heard.contains(&format!("{stream}: 204")), "{heard}");
        }
    });
}

#[test]
fn a_client_that_is_set_apart_shares_where_few_connections_are_left() {
    hold(&CONFIG.replace("connections_max: 2", "connections_max: 1"), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (clients, mut shared) = sharing(talk, 2);
        shared.answers(talk, 1, NO_CONTENT, true);
        talk.hears(clients[0], NO_CONTENT);
        talk.sets_apart(clients[0]);
        talk.says(clients[0], "GET /again HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(shared.hears(talk).contains("5: GET /again"), "it is the only one");
        for stream in [3, 5] {
            shared.answers(talk, stream, NO_CONTENT, true);
        }
        clients.iter().for_each(|client| talk.hears(*client, NO_CONTENT));
    });
}
