//! Endpoints that are ejected, as an operator sees it.

use rustix::process::{Signal, kill_process};

use crate::handover::{Successors, process, upgraded, with_handover};
use crate::kit::{Client, Scratch, Service, Strait, get, strait, text, until};

#[test]
fn an_endpoint_that_fails_is_ejected_in_all_workers_and_everything_says_so() {
    let good = Service::start("good");
    let bad = Strait::run(
        "listeners: [{ name: bad, address: 127.0.0.1:0, routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, respond: { status: 500 } }] }]
",
    );
    let config = format!(
        "workers: 4
listeners: [{{ name: edge, address: 127.0.0.1:0, routes: all }}]
routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, cluster: web }}] }}]
clusters:
  - name: web
    endpoints: ['{}', '{}']
    outlier: {{ errors_5xx: 5, ejection: {{ base: 1h, max: 1h }} }}
",
        good.address, bad.listener
    );
    let mut process = Strait::run(&config);
    let mut failed = 0;
    until("the ejection", || {
        // A connection each, so that all workers have a part.
        failed += usize::from(get(process.listener, "/").status == 500);
        let clusters = process.admin_json("/clusters");
        let ejected = &clusters["clusters"][0]["endpoints"][1]["ejected"];
        (ejected["reason"] == "errors_5xx" && ejected["times"] == 1).then_some(())
    });
    assert!((5..10).contains(&failed), "{failed} failures of all workers together");
    process.wait_for_log("endpoint ejected");
    let logged = process.all_logged();
    assert!(logged.contains("errors_5xx") && logged.contains("\"web\""), "{logged}");
    let mut client = Client::connect(process.listener);
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
        assert_eq!(get(process.listener, "/").status, 200);
    }
    let metrics = get(process.admin, "/metrics").text();
    for sample in [
        "strait_upstream_endpoints_ejected{cluster=\"web\"} 1",
        "strait_upstream_ejections_total{cluster=\"web\",reason=\"errors_5xx\"} 1",
        "strait_upstream_panic{cluster=\"web\"} 0",
    ] {
        assert!(metrics.lines().any(|line| line == sample), "{sample} in {metrics}");
    }
    // Half of them are left, which is no less than half.
    assert_eq!(process.admin_json("/clusters")["clusters"][0]["panic"], false);
    let admin = process.admin.to_string();
    let explained = strait(&["explain", "--admin", &admin, "GET", "http://localhost/"]);
    let explained = text(&explained.stdout);
    let of_bad =
        format!("{} (ejected, weight 1, 0.0 % of requests); ejected until 2", bad.listener);
    assert!(explained.contains(" because of errors_5xx, times: 1; "), "{explained}");
    let of_good = format!("{} (weight 1, 100.0 % of requests)", good.address);
    assert!(explained.contains(&of_bad) && explained.contains(&of_good), "{explained}");
}

#[test]
fn an_endpoint_stays_ejected_through_handovers() {
    let (good, mut successors) = (Service::start("good"), Successors::default());
    let bad = Strait::run(
        "listeners: [{ name: bad, address: 127.0.0.1:0, routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, respond: { status: 500 } }] }]
",
    );
    let config = format!(
        "workers: 2
listeners: [{{ name: edge, address: 127.0.0.1:0, routes: all }}]
routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, cluster: web }}] }}]
clusters:
  - name: web
    endpoints: ['{}', '{}']
    outlier: {{ errors_5xx: 5, ejection: {{ base: 1h, max: 1h }} }}
",
        good.address, bad.listener
    );
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &config, "probation: 1m");
    let strait = Strait::run_in(scratch, &config);
    let ejected = |strait: &Strait| {
        strait.admin_json("/clusters")["clusters"][0]["endpoints"][1]["ejected"].clone()
    };
    until("the ejection", || {
        get(strait.listener, "/");
        (ejected(&strait)["reason"] == "errors_5xx").then_some(())
    });
    let is_as_before = |strait: &Strait| {
        for _ in 0..20 {
            assert_eq!(get(strait.listener, "/").status, 200);
        }
        let now = ejected(strait);
        assert_eq!((&now["reason"], &now["times"]), (&"errors_5xx".into(), &1.into()), "{now}");
        assert_eq!(strait.metric("strait_upstream_endpoints_ejected"), 1.0);
        assert_eq!(strait.metric("strait_upstream_ejections_total"), 1.0);
    };
    upgraded(&strait, &mut successors);
    is_as_before(&strait);
    upgraded(&strait, &mut successors);
    is_as_before(&strait);
    // The process in the middle stands in.
    kill_process(process(successors.0[1]), Signal::KILL).unwrap();
    until("the admin interface", || (get(strait.admin, "/ready").status == 200).then_some(()));
    is_as_before(&strait);
}
