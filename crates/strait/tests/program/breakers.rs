//! Bounds of clusters, which are one for all workers.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::kit::{Client, Strait, get, read_head, until};

/// How many requests a service has under way, and the most that it had.
#[derive(Default)]
struct UnderWay {
    now: AtomicU32,
    most: AtomicU32,
}

fn start_service() -> (SocketAddr, Arc<UnderWay>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let under_way = Arc::new(UnderWay::default());
    let counts = Arc::clone(&under_way);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counts = Arc::clone(&counts);
            thread::spawn(move || serve(stream, &counts));
        }
    });
    (address, under_way)
}

fn serve(stream: TcpStream, under_way: &UnderWay) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while read_head(&mut reader).is_some() {
        let now = under_way.now.fetch_add(1, Ordering::SeqCst) + 1;
        under_way.most.fetch_max(now, Ordering::SeqCst);
        // Others would come now, if they could.
        (0..20).for_each(|_| thread::yield_now());
        under_way.now.fetch_sub(1, Ordering::SeqCst);
        if writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

fn config(service: SocketAddr, bound: &str) -> String {
    format!(
        "workers: 4
listeners: [{{ name: edge, address: 127.0.0.1:0, routes: all }}]
routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, cluster: web }}] }}]
clusters:
  - name: web
    endpoints: ['{service}']
    timeouts: {{ pending: 60s }}
    {bound}
"
    )
}

/// The statuses that this many clients get for so many requests each, with whether each said that there are too many.
/// The kernel spreads their connections among the workers.
fn statuses(listener: SocketAddr, clients: usize, requests: usize) -> Vec<(u16, bool)> {
    let statuses = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = Client::connect(listener);
                for _ in 0..requests {
                    let response = client.get("/");
                    let is_overloaded = response.field("x-envoy-overloaded").is_some();
                    statuses.lock().unwrap().push((response.status, is_overloaded));
                }
            });
        }
    });
    statuses.into_inner().unwrap()
}

#[test]
fn one_request_at_a_time_is_one_with_four_workers() {
    let (service, under_way) = start_service();
    let process = Strait::run(&config(service, "requests_max: 1"));
    let statuses = statuses(process.listener, 64, 157);
    assert_eq!(under_way.most.load(Ordering::SeqCst), 1);
    assert_eq!(statuses.len(), 64 * 157);
    assert!(statuses.iter().all(|it| [(200, false), (503, true)].contains(it)), "{statuses:?}");
    assert!(statuses.contains(&(200, false)));
    // Nothing goes on to count.
    until("the end of the last request", || {
        let web = &process.admin_json("/clusters")["clusters"][0];
        (web["exchanges"]["under_way"] == 0).then_some(())
    });
    let name = "strait_upstream_breaker_remaining";
    let stats = get(process.admin, &format!("/stats?filter={name}")).text();
    let requests = format!("{name}{{cluster=\"web\",priority=\"default\",breaker=\"requests\"}} 1");
    assert!(stats.contains(&requests), "{stats}");
    assert_eq!(get(process.listener, "/").status, 200);
    let web = &process.admin_json("/clusters")["clusters"][0];
    assert_eq!(web["exchanges"]["requests_max"], 1, "{web}");
    assert_eq!(web["exchanges"]["under_way"], 0, "{web}");
}

#[test]
fn a_flood_takes_no_connection_from_requests_of_high_priority() {
    let (service, under_way) = start_service();
    let bounds =
        "connections_max: 1\n    pending_max: 8\n    high_priority: { connections_max: 1 }";
    let rule = "{ match: { path: /urgent }, cluster: web, priority: high }, ";
    let config = config(service, bounds).replacen("rules: [", &format!("rules: [{rule}"), 1);
    let process = Strait::run(&config);
    let statuses = thread::scope(|scope| {
        let flood = scope.spawn(|| statuses(process.listener, 48, 100));
        let urgent = (0..4).map(|_| {
            scope.spawn(|| {
                let mut client = Client::connect(process.listener);
                (0..100).map(|_| client.get("/urgent").status).collect::<Vec<_>>()
            })
        });
        let urgent: Vec<_> = urgent.collect();
        for client in urgent {
            assert_eq!(client.join().unwrap(), [200; 100]);
        }
        flood.join().unwrap()
    });
    assert!(statuses.contains(&(200, false)) && statuses.contains(&(503, true)));
    assert!(under_way.most.load(Ordering::SeqCst) <= 2);
    let name = "strait_upstream_breaker_remaining";
    let stats = get(process.admin, &format!("/stats?filter={name}")).text();
    let left = format!("{name}{{cluster=\"web\",priority=\"high\",breaker=\"pending\"}} 1024");
    assert!(stats.contains(&left), "{stats}");
    let web = &process.admin_json("/clusters")["clusters"][0];
    assert_eq!(web["high_priority"]["connections"]["max"], 1, "{web}");
    assert_eq!(web["high_priority"]["exchanges"]["pending"], 0, "{web}");
}

#[test]
fn the_limit_that_follows_response_times_is_one_for_all_workers() {
    let (service, under_way) = start_service();
    let bound = "adaptive_concurrency: { concurrency_max: 8, update_interval: 5ms, min_rtt: { interval: 200ms, requests: 20 } }";
    let process = Strait::run(&config(service, bound));
    let statuses = statuses(process.listener, 64, 157);
    let most = under_way.most.load(Ordering::SeqCst);
    assert!((1..=8).contains(&most), "{most}");
    assert!(statuses.iter().all(|it| [(200, false), (503, true)].contains(it)), "{statuses:?}");
    assert!(statuses.contains(&(200, false)) && statuses.contains(&(503, true)));
    until("the end of the last request", || {
        let web = &process.admin_json("/clusters")["clusters"][0];
        (web["exchanges"]["under_way"] == 0).then_some(())
    });
    let web = &process.admin_json("/clusters")["clusters"][0];
    let limit = web["exchanges"]["concurrency_limit"].as_u64().unwrap();
    assert!((3..=8).contains(&limit), "{web}");
    assert!(web["exchanges"]["min_rtt_seconds"].as_f64().unwrap() > 0.0, "{web}");
    let limit = process.metric("strait_upstream_concurrency_limit");
    assert!((3.0..=8.0).contains(&limit), "{limit}");
    assert!(process.metric("strait_upstream_min_rtt_seconds") > 0.0);
}

/// What the admin interface says of the cluster, once its workers have counted what their clients have read already.
fn until_none_waits(process: &Strait) -> Value {
    until("the end of the queue", || {
        let web = process.admin_json("/clusters")["clusters"][0].take();
        (web["exchanges"]["pending"] == 0).then_some(web)
    })
}

#[test]
fn workers_take_turns_with_the_one_connection_that_each_endpoint_may_have() {
    for bound in ["balance: round_robin", "balance: least_request", "pending_max: 5"] {
        let services = [start_service(), start_service(), start_service()];
        let [(first, _), (second, _), (third, _)] = &services;
        let bound = format!("connections_per_endpoint_max: 1\n    {bound}");
        let config = config(*first, &bound)
            .replace(&format!("'{first}'"), &format!("'{first}', '{second}', '{third}'"));
        let process = Strait::run(&config);
        let statuses = statuses(process.listener, 24, 60);
        let most = services.each_ref().map(|(_, it)| it.most.load(Ordering::SeqCst));
        assert_eq!(most, [1; 3], "{bound}");
        assert_eq!(statuses.len(), 24 * 60);
        let refused = statuses.iter().filter(|it| it.0 != 200).count();
        assert!(refused == 0 || bound.contains("pending_max"), "{bound}: {refused}");
        let web = until_none_waits(&process);
        assert_eq!(web["connections"]["per_endpoint_max"], 1, "{web}");
        let mut endpoints = web["endpoints"].as_array().unwrap().iter();
        assert!(endpoints.all(|it| it["connections"].as_u64().unwrap() <= 1), "{web}");
    }
}

#[test]
fn workers_whose_exchanges_wait_do_not_wake_each_other_in_vain() {
    for bound in ["connections_per_endpoint_max: 2", "connections_max: 4"] {
        // They accept, and do not answer.
        let services = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [first, second] = services.each_ref().map(|it| it.local_addr().unwrap());
        let config =
            config(first, bound).replace(&format!("'{first}'"), &format!("'{first}', '{second}'"));
        let process = Strait::run(&config);
        let clients: Vec<TcpStream> = (0..60)
            .map(|_| {
                let mut client = TcpStream::connect(process.listener).unwrap();
                client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
                client
            })
            .collect();
        until("all but four wait", || {
            let web = &process.admin_json("/clusters")["clusters"][0];
            (web["exchanges"]["pending"] == clients.len() - 4).then_some(())
        });
        let before = process.metric("strait_worker_turns_total");
        // Each worker has a turn for what a page asks it, and ten a second to look; in vain it would have thousands.
        let asked = 100.0;
        for _ in 0..100 {
            process.admin_json("/clusters");
        }
        let turns = process.metric("strait_worker_turns_total") - before;
        assert!(turns < 20.0 * asked, "{bound}: {turns} turns of workers");
    }
}

#[test]
fn workers_take_turns_with_the_one_connection_that_a_cluster_may_have() {
    let (service, under_way) = start_service();
    let process = Strait::run(&config(service, "connections_max: 1"));
    let statuses = statuses(process.listener, 16, 40);
    assert_eq!(under_way.most.load(Ordering::SeqCst), 1);
    assert_eq!(statuses.len(), 16 * 40);
    assert!(statuses.iter().all(|it| *it == (200, false)), "{statuses:?}");
    let web = until_none_waits(&process);
    assert!(web["connections"]["open"].as_u64().unwrap() <= 1, "{web}");
}
