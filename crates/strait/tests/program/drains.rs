//! Endpoints that an operator drains and takes back.

use crate::handover::{Successors, upgraded, with_handover};
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
        names.collect::<std::collections::BTreeSet<_>>()
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
    let text = std::fs::read_to_string(&file).unwrap();
    let rule = "{ match: { prefix: /x }, respond: {} }, ";
    std::fs::write(&file, text.replace("rules: [", &format!("rules: [{rule}"))).unwrap();
    strait.wait_for_version(3);
    assert_eq!(names(&strait), only_other);
    upgraded(&strait, &mut successors);
    // The new process reads it with what else it takes over, some milliseconds after it serves.
    until("what is drained", || (names(&strait) == only_other).then_some(()));
    assert!(is_shown(&strait));

    let answer = post(&strait, &format!("{path}?health="));
    let said = format!("{} of cluster web: not drained\n", one.address);
    assert_eq!((answer.status, answer.text()), (200, said));
    assert_eq!(names(&strait).len(), 2);
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
}
