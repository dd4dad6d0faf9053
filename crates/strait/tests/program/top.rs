//! `strait top` of a running process.

use crate::kit::{Service, Strait, claim_port, forward_to, get, strait, text};

fn once(admin: &str, arguments: &[&str]) -> Vec<Vec<String>> {
    let all = [&["top", "--once", "--interval", "100ms", "--admin", admin], arguments].concat();
    let output = strait(&all);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    table.lines().map(|row| row.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn a_table_is_printed_once_for_scripts() {
    let service = Service::start("one");
    let other = "  - { name: other, endpoints: ['127.0.0.1:1', '127.0.0.1:2'] }\n";
    let process = Strait::run(&(forward_to(service.address) + other));
    get(process.listener, "/");
    let admin = process.admin.to_string();
    let names = |rows: &[Vec<String>]| rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>();
    let rows = once(&admin, &["--sort", "name"]);
    assert_eq!(names(&rows), ["CLUSTER", "other", "service"]);
    assert_eq!(rows[1][1], "2", "endpoints");
    assert_eq!(names(&once(&admin, &["--sort", "name", "--limit", "1"])), ["CLUSTER", "other"]);
    assert_eq!(names(&once(&admin, &["--filter", "s*v"])), ["CLUSTER", "service"]);
    let listeners = once(&admin, &["--view", "listeners"]);
    assert_eq!(names(&listeners), ["LISTENER", "edge"]);
    assert_eq!(listeners[1][1], process.listener.to_string());
    let sources = once(&admin, &["--view", "sources"]);
    assert_eq!(names(&sources), ["SOURCE", "file", "dns"]);
    assert!(once(&admin, &["--view", "slow"]).len() > 1);
}

#[test]
fn weighted_clusters_get_what_their_weights_ask_for() {
    let service = Service::start("one");
    let one = service.address;
    let text = forward_to(one).replace(
        "cluster: service }",
        "clusters: [{ cluster: service, weight: 3 }, { cluster: other, weight: 1 }] }",
    ) + &format!("  - {{ name: other, endpoints: ['{one}'] }}\n");
    assert!(text.contains("weight: 3"), "{text}");
    let process = Strait::run(&text);
    for _ in 0..400 {
        get(process.listener, "/");
    }
    let rows = once(&process.admin.to_string(), &["--view", "weights"]);
    let row = |at: usize| rows[at].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(row(0)[..4], ["CLUSTER", "WEIGHT", "WANTED", "SHARE"]);
    assert_eq!(
        [row(1)[0], row(1)[2], row(2)[0], row(2)[2]],
        ["service", "75.0%", "other", "25.0%"]
    );
    let count = |at: usize| row(at)[4].parse::<u32>().unwrap();
    assert_eq!(count(1) + count(2), 400);
    // Of 400 with one of four each: for p = 10^-6, 57 to 149.
    assert!((57..=149).contains(&count(2)), "{rows:?}");
    let page = process.admin_json("/routes");
    assert_eq!(page["rules"][0]["exchanges_total"], 400);
    assert_eq!(page["rules"][0]["clusters"][1]["name"], "other");
    assert_eq!(process.admin_json("/routes?filter=none")["matched"], 0);
}

#[test]
fn who_cannot_be_shown_is_named() {
    let unused = format!("127.0.0.1:{}", claim_port());
    let service = Service::start("one");
    let process = Strait::run(&forward_to(service.address));
    for (arguments, part) in [
        (&["--admin", &unused, "--once"][..], "is the process running"),
        (&["--admin", &service.address.to_string(), "--once"], "not the admin interface of Strait"),
        // A test has no terminal.
        (&["--admin", &process.admin.to_string()], "with --once it prints a table"),
        (&["--interval", "1ms"], "at least 100ms"),
        (&["--interval", "1"], "a duration needs a unit"),
    ] {
        let output = strait(&[&["top"], arguments].concat());
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(part), "{part:?} in {}", text(&output.stderr));
    }
}
