//! The counters of a scripted run, in order, compared with the text beside this file.
//!
//! Review a difference as you would code. `BLESS=1 cargo test -p sim --test events` takes it over.

use std::fs;
use std::path::Path;
use std::time::Duration;

use sim::{
    Behaviour, Faults, Leave, RequestBody, RequestPlan, ResponseFraming, ResponsePlan, Scenario,
    ServiceFaults, Simulation,
};

const CONFIGURATION: &str = "
admin: { address: 127.0.0.1:9901 }
workers: 1
access_log: { output: stdout, format: json }
listeners:
  - { name: edge, address: 10.0.0.1:80, routes: all }
routes:
  - name: all
    rules:
      - { match: { prefix: /alpha/ }, cluster: alpha }
      - { match: { prefix: /beta/ }, cluster: beta, timeout: 2s }
clusters:
  - name: alpha
    endpoints: [10.1.0.0:9000]
    connections_max: 1
  - name: beta
    endpoints: [10.2.0.0:9000]
    connect_timeout: 500ms
";

fn request(method: &'static str, cluster: &'static str, wanted: usize) -> RequestPlan {
    let is_plain = |plan: &ResponsePlan| {
        plan.status == 200
            && plan.framing == ResponseFraming::Length
            && plan.length < 1_000
            && plan.interim == 0
            && plan.switches
            && !plan.is_early
    };
    let id = (1..)
        .filter(|id| is_plain(&ResponsePlan::of(*id)))
        .nth(wanted)
        .expect("there is no end of ids");
    RequestPlan {
        id,
        method,
        is_http11: true,
        cluster,
        body: RequestBody::None,
        expects_continue: false,
        tunnel: None,
        connection: None,
    }
}

#[test]
fn the_events_of_a_scripted_run_are_the_known_ones() {
    let scenario = Scenario {
        seed: 1,
        workers: 1,
        clients: 0,
        faults: Faults::none(),
        service_faults: ServiceFaults::default(),
        swaps: 0,
        moves: 0,
        handovers: 0,
        has_returns: false,
        group_part_max: worker::GROUP_PART_MAX,
        drains: false,
        memory_shortages: 0,
        is_strict: false,
        has_http2: false,
        has_tls: false,
        has_calls: false,
        has_mirrors: false,
        has_checks: false,
        has_demands: false,
        deliveries: None,
        resolutions: None,
    };
    let mut simulation = Simulation::with_configuration(&scenario, Some(CONFIGURATION));
    let behaviour = Behaviour {
        pipelined_max: 0,
        leave: Leave::Answered,
        slow_reading: None,
        pauses: (0, Duration::ZERO),
        thinks: Duration::ZERO,
    };
    let seconds = Duration::from_secs;
    // Two requests, one behind the other, on one connection.
    let both = vec![request("GET", "alpha", 0), request("HEAD", "alpha", 1)];
    simulation.add_client(both, behaviour.clone(), seconds(1));
    // A body, and a connection that its client wants closed.
    let body = RequestBody::Chunked(2_000, true);
    let post = RequestPlan { body, connection: Some("close"), ..request("POST", "alpha", 2) };
    simulation.add_client(vec![post], behaviour.clone(), seconds(2));
    // A service whose address refuses connections.
    simulation.add_client(vec![request("GET", "beta", 3)], behaviour.clone(), seconds(3));
    // A client that leaves in the middle of its request.
    let rude = Behaviour { leave: Leave::ResetAfter(500), ..behaviour };
    let body = RequestBody::Length(2_000);
    let put = RequestPlan { body, ..request("PUT", "alpha", 4) };
    simulation.add_client(vec![put], rude, seconds(4));
    // A tunnel.
    let tunnel = RequestPlan { tunnel: Some(100), ..request("GET", "alpha", 5) };
    simulation.add_client(vec![tunnel], behaviour, seconds(5));

    simulation.record_events();
    simulation.run_for(seconds(20));
    compare("events.txt", simulation.events());
    simulation.run().unwrap_or_else(|violations| panic!("{violations}"));
}

/// Compares `text` with the file of this name beside this one, or writes it there if asked to.
fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, text).expect("the page can be written");
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    let differs = |(known, found): &(&str, &str)| known != found;
    let first = known.lines().zip(text.lines()).position(|lines| differs(&lines));
    let first = first.unwrap_or_else(|| known.lines().count().min(text.lines().count()));
    assert!(
        known == text,
        "line {} differs: {:?} instead of {:?}; BLESS=1 takes it over",
        first + 1,
        text.lines().nth(first),
        known.lines().nth(first),
    );
}
