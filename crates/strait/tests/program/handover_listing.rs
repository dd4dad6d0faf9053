//! What `/connections` shows while the process that was replaced still has connections.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::handover::{Successors, process, upgrade, upgraded_to, with_handover};
use crate::kit::{Client, Scratch, Service, Strait, claim_port, forward_to, get, text, until};

/// A process with another listener than `edge`, and where that is.
fn with_other(service: &Service) -> (Strait, String, SocketAddr) {
    let port = claim_port();
    let scratch = Scratch::new();
    let other = format!("  - {{ name: other, address: '127.0.0.1:{port}', routes: all }}\n");
    let config = forward_to(service.address).replace("routes:\n", &format!("{other}routes:\n"));
    let config = with_handover(&scratch, &config, "probation: 1m");
    (Strait::run_in(scratch, &config), other, SocketAddr::from(([127, 0, 0, 1], port)))
}

/// All connections, from pages of `limit`, and what is said of the old process.
fn listed(strait: &Strait, limit: u32) -> (Vec<Value>, Value) {
    let (mut rows, mut path) = (Vec::new(), format!("/connections?limit={limit}"));
    loop {
        let mut page = strait.admin_json(&path);
        let found = page["connections"].as_array().unwrap();
        assert!(found.len() <= limit as usize);
        rows.extend(found.iter().cloned());
        match page["next"].as_str() {
            Some(next) => path = next.to_owned(),
            None => return (rows, page["old_process"].take()),
        }
    }
}

fn clients_of<'r>(rows: &'r [Value], listener: &'r str) -> impl Iterator<Item = &'r Value> {
    rows.iter().filter(move |row| row["listener"] == listener)
}

#[test]
fn the_new_process_lists_what_stays_with_the_old_one() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let (strait, other, address) = with_other(&service);
    let open = |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").status, 200);
        client
    };
    // More than go in one packet.
    let _stays: Vec<_> = (0..600).map(|_| open(address)).collect();
    let mut moves: Vec<_> = (0..7).map(|_| open(strait.listener)).collect();
    let (_, old_process) = listed(&strait, 100);
    assert!(old_process.is_null());
    let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    strait.write("next.yaml", &config.replace(&other, ""));
    upgraded_to(&strait, "next.yaml", &mut successors);
    assert!(moves.iter_mut().all(|client| client.get("/").status == 200));

    let pid = strait.pid();
    until("the old process's connections", || {
        (!strait.admin_json("/connections?limit=10000")["old_process"].is_null()).then_some(())
    });
    let mut some = None;
    for limit in [1000, 97, 10_000] {
        let (rows, old_process) = listed(&strait, limit);
        assert_eq!(old_process, serde_json::json!({ "pid": pid, "error": null }));
        assert!(clients_of(&rows, "edge").all(|row| row["process"].is_null()), "{rows:?}");
        assert_eq!(clients_of(&rows, "edge").count(), 7, "limit {limit}");
        assert!(clients_of(&rows, "other").all(|row| row["process"] == pid), "{rows:?}");
        let ids: BTreeSet<_> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!((ids.len(), clients_of(&rows, "other").count()), (rows.len(), 600));
        some = ids.last().map(|id| (*id).to_owned());
    }
    let id = some.unwrap();
    let path = format!("/connections/move?connection={id}&to=1");
    let moved = Client::connect(strait.admin).request("POST", &path);
    assert_eq!(moved.status, 409, "{}", moved.text());
    assert!(moved.text().contains(&format!("belongs to process {pid}")), "{}", moved.text());

    // One that is stopped delays the page, and takes nothing else from it.
    kill_process(process(pid), Signal::STOP).unwrap();
    let (rows, old_process) = listed(&strait, 10_000);
    assert_eq!(clients_of(&rows, "edge").count(), 7);
    assert_eq!(old_process["error"], "it did not answer in time");
    kill_process(process(pid), Signal::CONT).unwrap();
    let (rows, _) = until("its answer", || {
        let (rows, old_process) = listed(&strait, 10_000);
        old_process["error"].is_null().then_some((rows, old_process))
    });
    assert_eq!(clients_of(&rows, "other").count(), 600);
    kill_process(process(pid), Signal::KILL).unwrap();
    until("the end of the old process", || listed(&strait, 100).1.is_null().then_some(()));
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn a_process_that_has_everything_back_lists_what_stays_with_the_other_one() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let (strait, other, address) = with_other(&service);
    let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    let later = claim_port();
    let more =
        other.replace("other", "later").replace(&address.port().to_string(), &later.to_string());
    strait.write("next.yaml", &config.replace(&other, &format!("{other}{more}")));
    upgraded_to(&strait, "next.yaml", &mut successors);
    let mut stays = Client::connect(SocketAddr::from(([127, 0, 0, 1], later)));
    stays.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    service.wait_at_gate();
    let output = upgrade(&strait, &["--back"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = until("the other's connection", || {
        // The other one may answer the first question, as its own.
        let (rows, _) = listed(&strait, 100);
        let is_there = clients_of(&rows, "later").any(|row| !row["process"].is_null());
        is_there.then_some(rows)
    });
    let row = clients_of(&rows, "later").next().unwrap();
    assert_eq!((&row["process"], &row["target"]), (&successors.0[0].into(), &"/gate".into()));
    service.open_gate();
    assert_eq!(stays.receive().status, 200);
    until("the end of the other", || listed(&strait, 100).1.is_null().then_some(()));
}
