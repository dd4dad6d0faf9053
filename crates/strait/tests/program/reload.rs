//! Another configuration while the process runs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;

use rustix::process::Signal;

use crate::handover::{Successors, upgraded, with_handover};
use crate::kit::{
    Client, Scratch, Service, Strait, claim_port, forward_to, get, get_from_either, read, until,
};
use crate::moves::{id, listed, post};

#[test]
fn a_changed_file_swaps_routes_and_keeps_connections() {
    let (one, two) = (Service::start("one"), Service::start("two"));
    let strait = Strait::run(&forward_to(one.address));
    let mut client = Client::connect(strait.listener);
    assert!(client.get("/").text().starts_with("one\n"));
    strait.rewrite(&forward_to(two.address));
    strait.wait_for_version(2);
    assert!(client.get("/").text().starts_with("two\n"));
}

#[test]
fn a_request_is_counted_and_logged_for_its_rule_whatever_a_reload_puts_in_front() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let file = scratch.path("access.log");
    let with_rules = |rules: &[&str]| {
        let rule = "{ match: { prefix: / }, cluster: service }";
        let config = forward_to(service.address).replace(rule, &rules.join(", "));
        format!("{config}access_log: {{ output: '{}', fields: [target, rule] }}\n", file.display())
    };
    let gated = "{ match: { path: /gate }, clusters: [{ cluster: service }] }";
    let named = "{ name: mine, match: { prefix: /mine }, cluster: service }";
    let (front, other) = (
        "{ match: { path: /front }, respond: { status: 204 } }",
        "{ match: { prefix: /gate }, respond: { status: 404 } }",
    );
    let strait = Strait::run_in(scratch, &with_rules(&[gated, named]));
    let counted = || {
        let stats = get(strait.admin, "/stats?filter=strait_route_").text();
        let series = stats.lines().filter_map(|line| line.split_once(",rule="));
        series.map(|(_, rest)| rest.replace(['"', '}'], "")).collect::<Vec<_>>()
    };
    assert_eq!(get(strait.listener, "/mine").status, 200);
    let mut client = Client::connect(strait.listener);
    client.send("GET /gate HTTP/1.1\r\nhost: a\r\n\r\n");
    service.wait_at_gate();
    strait.rewrite(&with_rules(&[front, other, gated, named]));
    strait.wait_for_version(2);
    assert_eq!(get(strait.listener, "/front").status, 204);
    let expected = ["/front 1", "/gate* 0", "/gate 0", "mine 1", "/gate,cluster=service 0"];
    until("the count of the first rule", || (counted() == expected).then_some(()));
    service.open_gate();
    assert_eq!(client.receive().status, 200);

    let expected = ["/front 1", "/gate* 0", "/gate 1", "mine 1", "/gate,cluster=service 1"];
    until("the count of the request's own rule", || (counted() == expected).then_some(()));
    let lines = until("three lines", || {
        let text = read(&file);
        (text.lines().count() == 3 && text.ends_with('\n')).then_some(text)
    });
    let mut lines: Vec<_> = lines.lines().collect();
    lines.sort_unstable();
    let expected = [
        r#"{"target":"/front","rule":"/front"}"#,
        r#"{"target":"/gate","rule":"/gate"}"#,
        r#"{"target":"/mine","rule":"mine"}"#,
    ];
    assert_eq!(lines, expected);
    // The page in the file's order has the same counts.
    let page = strait.admin_json("/routes");
    let totals = page["rules"].as_array().unwrap().iter();
    let totals = totals.map(|rule| rule["exchanges_total"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(totals, [1, 0, 1, 1]);
    assert_eq!(page["rules"][2]["clusters"][0]["exchanges_total"], 1);
}

#[test]
fn sighup_reads_the_file_again_even_if_nothing_changed() {
    let service = Service::start("one");
    let strait = Strait::run(&forward_to(service.address));
    strait.signal(Signal::HUP);
    strait.wait_for_version(2);
}

#[test]
fn a_wrong_file_leaves_the_former_serving_and_says_why() {
    let service = Service::start("one");
    let mut strait = Strait::run(&forward_to(service.address));
    strait.rewrite(&forward_to(service.address).replace("cluster: service", "cluster: servicf"));
    let error = strait.wait_for_error();
    assert!(error.contains("did you mean `service`?"), "{error}");
    assert!(error.contains("routes[0].rules[0].cluster"), "{error}");
    assert_eq!(strait.config()["version"], 1);
    assert!((strait.metric("strait_config_rejected_total") - 1.0).abs() < f64::EPSILON);
    let logged = strait.wait_for_log("configuration refused");
    assert!(logged.contains("version 1 stays in use"), "{logged}");
    assert_eq!(get(strait.listener, "/").status, 200);

    strait.rewrite(&forward_to(service.address));
    strait.wait_for_version(2);
    assert!(strait.config()["last_error"].is_null());
}

#[test]
fn what_the_file_does_not_have_any_more_is_not_shown() {
    let service = Service::start("one");
    let with_another = forward_to(service.address)
        .replace("clusters:", "clusters:\n  - { name: another, endpoints: { file: e.yaml } }");
    let scratch = Scratch::new();
    scratch.write("e.yaml", "[]");
    let strait = Strait::run_in(scratch, &with_another);
    let asked = |kind: &str| {
        let answer = get(strait.admin, &format!("/config?resource={kind}/another"));
        (answer.status, answer.text())
    };
    for kind in ["cluster", "assignment"] {
        assert_eq!(asked(kind).0, 200);
    }
    strait.rewrite(&forward_to(service.address));
    strait.wait_for_version(2);
    for kind in ["cluster", "assignment"] {
        let (status, said) = asked(kind);
        assert_eq!(status, 404, "{said}");
        let expected = format!("no {kind} has this name in version 2 of the configuration");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn a_file_that_went_away_is_not_missed_until_it_is_back() {
    let service = Service::start("one");
    let strait = Strait::run(&forward_to(service.address));
    fs::remove_file(strait.path("strait.yaml")).unwrap();
    strait.signal(Signal::HUP);
    let error = strait.wait_for_error();
    assert!(error.contains("cannot be read"), "{error}");
    assert_eq!(get(strait.listener, "/").status, 200);
    strait.rewrite(
        &forward_to(service.address)
            .replace("name: service", "name: other")
            .replace("cluster: service", "cluster: other"),
    );
    strait.wait_for_version(2);
}

#[test]
fn a_listener_that_cannot_be_bound_refuses_the_whole_configuration() {
    let (one, two) = (Service::start("one"), Service::start("two"));
    let strait = Strait::run(&forward_to(one.address));
    let mut client = Client::connect(strait.listener);
    client.get("/");
    let taken = TcpListener::bind(("127.0.0.1", claim_port())).unwrap();
    let address = taken.local_addr().unwrap();
    let second = format!("listeners:\n  - {{ name: second, address: '{address}', routes: all }}\n");
    let wanted = forward_to(two.address).replace("listeners:\n", &second);

    strait.rewrite(&wanted);
    let error = strait.wait_for_error();
    assert!(error.contains(&format!("listener second: cannot listen on {address}")), "{error}");
    assert!(client.get("/").text().starts_with("one\n"), "nothing of it was taken up");

    drop(taken);
    strait.signal(Signal::HUP);
    strait.wait_for_version(2);
    assert!(client.get("/").text().starts_with("two\n"));
    assert!(get(address, "/").text().starts_with("two\n"));
}

#[test]
fn a_listener_with_other_socket_options_or_another_name_takes_over_its_address() {
    let service = Service::start("one");
    let port = SocketAddr::from(([127, 0, 0, 1], claim_port()));
    let config = forward_to(service.address).replace("127.0.0.1:0", &port.to_string());
    let strait = Strait::run(&config);
    let mut client = Client::connect(port);
    client.get("/");

    strait.rewrite(&config.replace("routes: all }", "routes: all, backlog: 99 }"));
    strait.wait_for_version(2);
    assert_eq!(get_from_either(port, "/").status, 200);
    let changed = config.replace("routes: all }", "routes: all, backlog: 99 }");
    let sockets = listening_at(port);
    strait.rewrite(&changed.replace("name: edge", "name: rim"));
    strait.wait_for_version(3);
    assert_eq!(listening_at(port), sockets, "the name is not the sockets'");
    assert_eq!(get_from_either(port, "/").status, 200);
    assert_eq!(strait.admin_json("/listeners")["listeners"][0]["name"], "rim");
    // Its listener went, so the old connection ends with the next response.
    let last = client.get("/");
    assert_eq!((last.status, last.field("connection")), (200, Some("close")));
}

#[test]
fn a_unix_listener_gets_another_name_and_keeps_its_socket() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let path = scratch.path("edge.sock");
    let config = forward_to(service.address).replace(
        "address: 127.0.0.1:0",
        &format!("address: ['127.0.0.1:0', 'unix:{}']", path.display()),
    );
    let strait = Strait::run_in(scratch, &config);
    let inode = fs::metadata(&path).unwrap().ino();
    let ask = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.0 200 "), "{response}");
    };
    ask();
    strait.rewrite(&config.replace("name: edge", "name: rim"));
    strait.wait_for_version(2);
    ask();
    assert_eq!(strait.admin_json("/listeners")["listeners"][0]["name"], "rim");
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    // Other options would need another socket, of which the path has no room.
    strait.rewrite(&config.replace("routes: all }", "routes: all, backlog: 99 }"));
    let error = strait.wait_for_error();
    assert!(error.contains("socket options of a unix listener"), "{error}");
    ask();
}

/// The old socket and the new one share the port until the old one is closed.
#[test]
fn a_listener_moves_to_all_addresses_of_its_port_and_back() {
    let service = Service::start("one");
    let port = SocketAddr::from(([127, 0, 0, 1], claim_port()));
    let config = forward_to(service.address).replace("127.0.0.1:0", &port.to_string());
    let mut strait = Strait::run(&config);
    let all = format!("0.0.0.0:{}", port.port());
    let other_loopback = SocketAddr::from(([127, 0, 0, 2], port.port()));

    strait.rewrite(&config.replace(&port.to_string(), &all));
    strait.wait_for_version(2);
    assert_eq!(strait.admin_json("/listeners")["listeners"][0]["bound"][0], all);
    assert_eq!(get(other_loopback, "/").status, 200);
    assert_eq!(get_from_either(port, "/").status, 200);

    strait.rewrite(&config);
    strait.wait_for_version(3);
    until("the end of the socket on all addresses", || {
        std::net::TcpStream::connect(other_loopback).err().map(drop)
    });
    assert_eq!(get(port, "/").status, 200);

    // Both in one file is a mistake with a place.
    let edge = format!("  - {{ name: edge, address: {port}, routes: all }}\n");
    let rim = edge.replace("edge", "rim").replace(&port.to_string(), &all);
    strait.rewrite(&config.replace(&edge, &format!("{edge}{rim}")));
    let error = strait.wait_for_error();
    assert!(error.contains("listeners[1].address") && !error.contains("process"), "{error}");
    strait.wait_for_log("strait.yaml:5:27: listeners[1].address");
}

/// Which port it got is not in the file, so the file cannot be wrong, and yet it cannot be.
#[test]
fn a_port_that_another_listener_got_is_refused_with_the_name_of_that_listener() {
    let service = Service::start("one");
    let config = forward_to(service.address);
    let strait = Strait::run(&config);
    let edge = "  - { name: edge, address: 127.0.0.1:0, routes: all }\n";
    let rim = edge.replace("edge", "rim").replace("127.0.0.1:0", &strait.listener.to_string());
    strait.rewrite(&config.replace(edge, &format!("{edge}{rim}")));
    let error = strait.wait_for_error();
    let logged = format!("listener edge of this process has {}", strait.listener);
    assert!(error.contains(&logged), "{error}");
    // Once it goes, its port is free for the other.
    strait.rewrite(&config.replace(edge, &rim));
    strait.wait_for_version(2);
    assert_eq!(get_from_either(strait.listener, "/").status, 200);
}

#[test]
fn listeners_come_and_go() {
    let service = Service::start("one");
    let config = forward_to(service.address);
    let strait = Strait::run(&config);
    let edge = "  - { name: edge, address: 127.0.0.1:0, routes: all }\n";
    let second = edge.replace("edge", "second").replace("127.0.0.1", "127.0.0.2");
    strait.rewrite(&config.replace(edge, &format!("{edge}{second}")));
    strait.wait_for_version(2);
    let bound = strait.admin_json("/listeners")["listeners"][1]["bound"][0].clone();
    let second_at = bound.as_str().unwrap().parse().unwrap();
    assert_eq!(get(second_at, "/").status, 200);
    assert_eq!(get(strait.listener, "/").status, 200);

    strait.rewrite(&config.replace(edge, &second));
    strait.wait_for_version(3);
    until("the end of the first listener", || {
        std::net::TcpStream::connect(strait.listener).err().map(drop)
    });
    assert_eq!(get(second_at, "/").status, 200);
}

#[test]
fn what_changes_during_a_drain_is_not_taken_up_and_that_is_said_once_for_each() {
    let service = Service::start("one");
    let config = forward_to(service.address);
    let mut strait = Strait::run(&config);
    let mut client = Client::connect(strait.listener);
    client.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    service.wait_at_gate();
    strait.signal(Signal::TERM);
    strait.wait_for_log("draining: accepting no new connections");

    strait.signal(Signal::HUP);
    let logged = strait.wait_for_log("is not read again");
    assert!(logged.ends_with("strait.yaml is not read again: the process is draining"), "{logged}");
    strait.rewrite(&format!("{config}limits: {{ drain_timeout: 1s }}\n"));
    until("a second line", || (strait.times_logged("is not read again") == 2).then_some(()));
    // Another file of the directory is no change of this one.
    fs::write(strait.path("other"), "x").unwrap();
    assert_eq!(strait.config()["version"], 1);

    service.open_gate();
    assert_eq!(client.receive().status, 200);
    assert!(strait.wait_for_end().success());
    assert_eq!(strait.times_logged("is not read again"), 2);
}

#[test]
fn a_directory_of_links_is_followed_as_kubernetes_swaps_it() {
    use std::os::unix::fs::symlink;
    let (one, two) = (Service::start("one"), Service::start("two"));
    let scratch = Scratch::new();
    for (version, service) in [("1", &one), ("2", &two)] {
        fs::create_dir(scratch.path(version)).unwrap();
        let admin = "admin: { address: 127.0.0.1:0 }\n";
        let config = format!("{admin}{}", forward_to(service.address));
        scratch.write(&format!("{version}/strait.yaml"), &config);
    }
    symlink("1", scratch.path("..data")).unwrap();
    symlink("..data/strait.yaml", scratch.path("strait.yaml")).unwrap();
    let file = scratch.path("strait.yaml").to_str().unwrap().to_owned();
    let strait = Strait::start(scratch, &["run", "-c", &file]);
    assert!(get(strait.listener, "/").text().starts_with("one\n"));
    symlink("2", strait.path("..new")).unwrap();
    fs::rename(strait.path("..new"), strait.path("..data")).unwrap();
    strait.wait_for_version(2);
    assert!(get(strait.listener, "/").text().starts_with("two\n"));
}

#[test]
fn files_that_are_included_are_watched_and_so_are_the_folders_of_patterns() {
    let scratch = Scratch::new();
    let folder = scratch.path("conf.d");
    fs::create_dir(&folder).unwrap();
    let table = |name: &str, body: &str| {
        format!(
            "routes:\n  - name: {name}\n    hosts: [{name}]\n    rules: [{{ match: {{ prefix: / }}, respond: {{ status: 200, body: {body} }} }}]\n"
        )
    };
    fs::write(folder.join("a.yaml"), table("a", "one")).unwrap();
    let config = "include: ['conf.d/*.yaml']
workers: 1
listeners:
  - { name: edge, address: 127.0.0.1:0, routes: [a] }
";
    let strait = Strait::run_in(scratch, config);
    let ask = |strait: &Strait, host: &str| {
        let mut client = Client::connect(strait.listener);
        client.send(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.receive().text()
    };
    assert_eq!(ask(&strait, "a"), "one");
    fs::write(folder.join("a.yaml"), table("a", "two")).unwrap();
    until("the change of an included file", || (ask(&strait, "a") == "two").then_some(()));
    // A new file that fits, and a listener that names what is in it.
    fs::write(folder.join("b.yaml"), table("b", "three")).unwrap();
    strait.wait_for_version(3);
    strait.rewrite(&config.replace("[a]", "[a, b]"));
    until("the new file", || (ask(&strait, "b") == "three").then_some(()));
    // A mistake is reported with its file, and the last good configuration stays.
    fs::write(folder.join("b.yaml"), table("b", "x").replace("status: 200", "status: 2")).unwrap();
    let error = strait.wait_for_error();
    assert!(error.contains("conf.d/b.yaml"), "{error}");
    assert_eq!(ask(&strait, "b"), "three");
    fs::remove_file(folder.join("b.yaml")).unwrap();
    until("another mistake", || {
        let error = strait.config()["last_error"].to_string();
        error.contains("no route table has this name").then_some(())
    });
    assert_eq!(ask(&strait, "b"), "three");
}

/// A client that holds a connection open does not get round a rule that comes meanwhile.
#[test]
fn connections_of_before_do_not_reach_what_new_ones_may_not() {
    let edge = claim_port();
    let address = SocketAddr::from(([127, 0, 0, 1], edge));
    let config = |listener: &str| {
        format!(
            "listeners:\n  - {{ name: edge, address: '{address}', {listener} }}\n\
             routes:\n\
             \x20 - {{ name: pub, rules: [{{ match: {{ prefix: / }}, respond: {{ body: public }} }}] }}\n\
             \x20 - {{ name: priv, rules: [{{ match: {{ prefix: / }}, respond: {{ body: private }} }}] }}\n\
             clusters: [{{ name: db, endpoints: ['127.0.0.1:1'] }}]\n"
        )
    };
    let chain = |matches: &str, routes: &str| {
        format!("chains: [{{ name: some, match: {{ {matches} }}, routes: {routes} }}]")
    };
    let here = chain("sources: [127.0.0.0/8]", "pub");
    for (before, after) in [
        ("routes: pub".to_owned(), "routes: priv, proxy_protocol: true".to_owned()),
        ("routes: pub".to_owned(), "protocol: tcp, cluster: db".to_owned()),
        // Another chain is for them by now, or theirs is for others.
        ("routes: pub".to_owned(), format!("routes: priv, {here}")),
        (
            format!("routes: pub, {}", chain("sources: [127.0.0.0/8]", "pub")),
            format!("routes: pub, {}", chain("sources: [10.0.0.0/8]", "priv")),
        ),
        (
            format!("routes: priv, {here}"),
            format!("routes: priv, {}", chain("destination_ports: [1], sources: [127.0.0.0/8]", "priv")),
        ),
        (
            format!("routes: priv, {here}"),
            "routes: priv, chains: [{ name: some, match: { sources: [127.0.0.0/8] }, protocol: http2, routes: priv }]".to_owned(),
        ),
    ] {
        let (scratch, mut successors) = (Scratch::new(), Successors::default());
        let replaced = |config: &str| with_handover(&scratch, config, "probation: 0s");
        let strait = Strait::run(&replaced(&config(&before)));
        let mut clients = [Client::connect(address), Client::connect(address)];
        for client in &mut clients {
            assert_eq!(client.get("/").text(), "public", "{before}");
        }
        strait.rewrite(&replaced(&config(&after)));
        strait.wait_for_version(2);
        let is_still_public = |client: &mut Client| {
            let response = client.get("/");
            let seen = (response.status, response.text(), response.field("connection"));
            assert_eq!(seen, (200, "public".to_owned(), Some("close")), "{before} -> {after}");
        };
        let [mut first, mut second] = clients;
        // Nor by way of another worker, or of another process.
        let row = listed(&strait, first.address());
        let to = 1 - row["worker"].as_u64().unwrap();
        let answer = post(&strait, &format!("/connections/move?connection={}&to={to}", id(&row)));
        assert!(answer.status == 409 && answer.text().contains("it drains"), "{}", answer.text());
        is_still_public(&mut first);
        let printed = upgraded(&strait, &mut successors);
        assert!(printed.contains(" stay: a reload has removed"), "{printed}");
        is_still_public(&mut second);
    }
    // What changes nothing of that leaves them open.
    let strait = Strait::run(&config(&format!("routes: priv, {here}")));
    let mut client = Client::connect(address);
    assert_eq!(client.get("/").text(), "public");
    let other = "{ name: other, match: { sources: [10.0.0.0/8] }, routes: priv }";
    let more = here.replacen("chains: [", &format!("chains: [{other}, "), 1);
    strait.rewrite(&config(&format!("routes: priv, {more}, timeouts: {{ idle: 1m }}")));
    strait.wait_for_version(2);
    let response = client.get("/");
    assert_eq!((response.text().as_str(), response.field("connection")), ("public", None));
}

/// The kernel's numbers of the sockets that listen at an address of IPv4 (proc_pid_net(5)).
fn listening_at(address: SocketAddr) -> BTreeSet<String> {
    let port = format!(":{:04X}", address.port());
    let all = fs::read_to_string("/proc/net/tcp").unwrap();
    let words = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = words.filter(|it| it.len() > 9 && it[1].ends_with(&port) && it[3] == "0A");
    listening.map(|it| it[9].to_owned()).collect()
}

/// Each address is a socket of its own; what is counted and bounded is the listener's.
#[test]
fn a_listener_may_have_several_addresses() {
    let service = Service::start("one");
    let config = forward_to(service.address);
    let several = "address: ['127.0.0.1:0', '127.0.0.2:0', '[::1]:0'], routes";
    let strait = Strait::run(&config.replace("address: 127.0.0.1:0, routes", several));
    let bound = |strait: &Strait| -> Vec<SocketAddr> {
        let listener = strait.admin_json("/listeners")["listeners"][0].clone();
        let bound = listener["bound"].as_array().unwrap();
        bound.iter().map(|it| it.as_str().unwrap().parse().unwrap()).collect()
    };
    let addresses = bound(&strait);
    assert_eq!(addresses.len(), 3);
    for address in &addresses {
        assert_eq!(get(*address, "/").status, 200, "{address}");
    }
    let listeners = strait.admin_json("/listeners")["listeners"].clone();
    assert_eq!(listeners.as_array().unwrap().len(), 1);
    assert_eq!(listeners[0]["connections"]["total"], 3);
    assert_eq!(listeners[0]["addresses"][1], "127.0.0.2:0");

    // The two that stay are bound before the listener of before lets go of them.
    let fixed = |addresses: &[SocketAddr]| {
        let each: Vec<String> = addresses.iter().map(|it| format!("'{it}'")).collect();
        config.replace(
            "address: 127.0.0.1:0, routes",
            &format!("address: [{}], routes", each.join(", ")),
        )
    };
    strait.rewrite(&fixed(&addresses));
    strait.wait_for_version(2);
    // Clients in the queues of sockets that were closed would be reset.
    let sockets = [0, 1].map(|place| listening_at(addresses[place]));
    assert!(sockets.iter().all(|of_workers| of_workers.len() == 2), "{sockets:?}");
    strait.rewrite(&fixed(&addresses[..2]));
    strait.wait_for_version(3);
    assert_eq!([0, 1].map(|place| listening_at(addresses[place])), sockets);
    assert_eq!(bound(&strait), addresses[..2]);
    until("the end of the socket of the third", || {
        std::net::TcpStream::connect(addresses[2]).err().map(drop)
    });
    assert_eq!(get_from_either(addresses[0], "/").status, 200);
    assert_eq!(get_from_either(addresses[1], "/").status, 200);

    // One that cannot be had refuses all, and names it.
    let other = Service::start("other");
    strait.rewrite(&fixed(&[addresses[0], other.address]));
    let error = strait.wait_for_error();
    assert!(
        error.contains(&format!("listener edge: cannot listen on {}", other.address)),
        "{error}"
    );
    assert_eq!(get_from_either(addresses[1], "/").status, 200);
}
