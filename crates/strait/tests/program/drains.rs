//! Endpoints that an operator drains and takes back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::handover::{Successors, upgrade, upgraded, with_handover};
use crate::kit::{Client, Response, Scratch, Service, Strait, get, strait, text, until};

fn post(process: &Strait, path: &str) -> Response {
    Client::connect(process.admin).request("POST", path)
}

#[test]
fn a_drained_endpoint_gets_no_new_requests_through_reload_and_handover_until_it_is_taken_back() {
    let (one, other) = (Service::start("one"), Service::start("other"));
    let mut successors = Successors::default();
    let config = |rules: &str| {
        format!(
            "workers: 2
listeners: [{{ name: edge, address: 127.0.0.1:0, routes: all }}]
routes: [{{ name: all, rules: [{rules}{{ match: {{ prefix: / }}, cluster: web }}] }}]
clusters: [{{ name: web, endpoints: ['{}', '{}'] }}]
",
            one.address, other.address
        )
    };
    let scratch = Scratch::new();
    let first = with_handover(&scratch, &config(""), "probation: 1m");
    let strait = Strait::run_in(scratch, &first);
    let names = |strait: &Strait| {
        let names = (0..20).map(|_| {
            let text = get(strait.listener, "/").text();
            text.lines().next().map(str::to_owned)
        });
        names.collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&strait).len(), 2);
    let path = format!("/clusters/web/endpoints/{}", one.address);
    let answer = post(&strait, &format!("{path}?health=drain"));
    let said = format!("{} of cluster web: drained\n", one.address);
    assert_eq!((answer.status, answer.text()), (200, said));
    // It counts once that is answered, and is said where operators look.
    let only_other = names(&strait);
    assert_eq!(only_other.len(), 1);
    let is_shown = |strait: &Strait| {
        let clusters = strait.admin_json("/clusters");
        let endpoints = &clusters["clusters"][0]["endpoints"];
        (endpoints[0]["drained"] == true) && (endpoints[1]["drained"] == false)
    };
    assert!(is_shown(&strait));
    let admin = strait.admin.to_string();
    let explained = self::strait(&["explain", "--admin", &admin, "GET", "http://localhost/"]);
    let explained = text(&explained.stdout);
    let of_one = format!("{} (drained, weight 0, 0.0 % of requests)", one.address);
    assert!(explained.contains(&of_one), "{explained}");

    let file = strait.path("strait.yaml");
    let former = std::fs::read_to_string(&file).unwrap();
    let rule = "{ match: { prefix: /x }, respond: {} }, ";
    std::fs::write(&file, former.replace("rules: [", &format!("rules: [{rule}"))).unwrap();
    strait.wait_for_version(3);
    assert_eq!(names(&strait), only_other);
    // New connections never reach it, whichever process accepts them.
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut served = BTreeSet::new();
                    while !is_over.load(Ordering::Relaxed) {
                        served.extend(names(&strait));
                    }
                    served
                })
            })
            .collect();
        for _ in 0..5 {
            upgraded(&strait, &mut successors);
        }
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            assert_eq!(client.join().unwrap(), only_other);
        }
    });
    assert!(is_shown(&strait));

    let answer = post(&strait, &format!("{path}?health="));
    let said = format!("{} of cluster web: not drained\n", one.address);
    assert_eq!((answer.status, answer.text()), (200, said));
    assert_eq!(names(&strait).len(), 2);

    // The process before still knew it as drained, and learns better when it has everything back.
    let output = upgrade(&strait, &["--back"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(names(&strait).len(), 2);
    assert!(!is_shown(&strait));
}

#[test]
fn what_cannot_be_drained_says_why() {
    let service = Service::start("one");
    let strait = Strait::run(&format!(
        "listeners: [{{ name: edge, address: 127.0.0.1:0, routes: all }}]
routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, cluster: web }}] }}]
clusters: [{{ name: web, endpoints: ['{}'] }}]
",
        service.address
    ));
    let address = service.address;
    for (path, status, said) in [
        ("/clusters/wep/endpoints/127.0.0.1:9?health=drain", 404, "there is no cluster \"wep\""),
        (
            "/clusters/web/endpoints/127.0.0.1:9?health=drain",
            404,
            &*format!("cluster \"web\" has no endpoint 127.0.0.1:9, but {address}\n"),
        ),
        ("/clusters/web/endpoints/localhost?health=drain", 400, "\"localhost\": "),
        (&*format!("/clusters/web/endpoints/{address}?health=up"), 400, "health: "),
    ] {
        let answer = post(&strait, path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.text().starts_with(said), "{path}: {}", answer.text());
    }
    let path = format!("/clusters/web/endpoints/{address}?health=drain");
    assert_eq!(get(strait.admin, &path).status, 405);
    // The only endpoint: there is none for requests.
    assert_eq!(post(&strait, &path).status, 200);
    let answer = get(strait.listener, "/");
    assert_eq!(answer.status, 503, "{}", answer.text());
    until("the reason on /slow", || {
        let slow = get(strait.admin, "/slow").text();
        slow.contains("every endpoint of the cluster is drained").then_some(())
    });
}
