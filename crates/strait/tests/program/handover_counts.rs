//! What a new process has counted that ends before it is the only one: the old one goes on with it.
#![expect(clippy::disallowed_methods, reason = "reports come at intervals")]

use std::fs;
use std::thread;
use std::time::Duration;

use ::tls::Version;
use rustix::process::{Signal, kill_process};

use crate::handover::{Successors, over_tls, process, upgrade, upgraded, with_handover};
use crate::handover_stopped::{begin_handshake, upgrade_until_remaining};
use crate::kit::{Client, Scratch, Service, Strait, claim_port, forward_to, get, until};
use crate::tls::certificates;
use crate::tls_client::{self, TlsClient};

/// Ten times as long as a process counts until it reports.
const REPORTED: Duration = Duration::from_secs(1);

const FAMILIES: [&str; 5] = [
    "strait_exchanges_finished_total",
    "strait_downstream_connections_opened_total",
    "strait_downstream_connections_closed_total",
    "strait_upstream_exchanges_total",
    "strait_exchange_stage_seconds_count",
];

fn run(service: &Service) -> Strait {
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &forward_to(service.address), "probation: 1m");
    Strait::run_in(scratch, &config)
}

/// The sum of each family, as a scraper sees it.
fn counted(strait: &Strait) -> [f64; FAMILIES.len()] {
    let page = get(strait.admin, "/metrics").text();
    FAMILIES.map(|family| {
        let of_family = |line: &&str| line.split(['{', ' ']).next() == Some(family);
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        page.lines().filter(of_family).map(value).sum()
    })
}

/// Waits until this process answers on the admin interface, as the one that serves.
fn serves_again(strait: &Strait) {
    until("the admin interface", || {
        let page = get(strait.admin, "/handover");
        (page.status == 200 && page.text().contains("stood_in")).then_some(())
    });
}

#[test]
fn counters_go_on_where_a_new_process_ends_in_its_probation() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service);
    let mut shown = [0.0; FAMILIES.len()];
    for round in 1..=3_u8 {
        let mut kept: Vec<_> = (0..10).map(|_| Client::connect(strait.listener)).collect();
        kept.iter_mut().for_each(|client| drop(client.get("/")));
        upgraded(&strait, &mut successors);
        // Those that moved, and some that the new process accepts and closes.
        kept.iter_mut().for_each(|client| drop(client.get("/")));
        for _ in 0..5 {
            assert_eq!(get(strait.listener, "/").status, 200);
        }
        thread::sleep(REPORTED);
        let before = counted(&strait);
        kill_process(process(successors.0.pop().unwrap()), Signal::KILL).unwrap();
        strait.wait_for_log("accepts connections again");
        serves_again(&strait);
        let after = counted(&strait);
        let is_more = |(after, before): (&f64, &f64)| after >= before;
        assert!(after.iter().zip(&before).all(is_more), "{before:?} {after:?}");
        assert!(after.iter().zip(&shown).all(is_more), "{shown:?} {after:?}");
        shown = after;
        assert_eq!(shown[0], f64::from(round) * 25.0, "{shown:?}");
        assert_eq!(shown[1], f64::from(round) * 15.0, "{shown:?}");
        until("the end of what was lost", || {
            (strait.metric("strait_downstream_connections_active") == 0.0).then_some(())
        });
    }
    // The next process goes on with all of it, and says all but what it has from here when everything goes back.
    upgraded(&strait, &mut successors);
    assert_eq!(get(strait.listener, "/").status, 200);
    until("all that was counted", || (counted(&strait)[0] == 76.0).then_some(()));
    let output = upgrade(&strait, &["--back"]);
    assert_eq!(output.status.code(), Some(0), "{}", strait.all_logged());
    until("all that was counted", || (counted(&strait)[0] == 76.0).then_some(()));
}

#[test]
fn what_a_new_process_served_that_ends_before_it_is_the_process_is_counted() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = certificates();
    let config = with_handover(&scratch, &over_tls(&scratch, &service), "probation: 1m");
    let strait = Strait::run_in(scratch, &config);
    let context = tls_client::context(Version::Tls13);
    let ask = || {
        let mut client = TlsClient::connect(strait.listener, &context);
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    };
    ask();
    let _begun = begin_handshake(&strait);
    let mut upgrade = upgrade_until_remaining(&strait, &[]);
    let pid = |stat: String| stat.split(' ').next().and_then(|pid| pid.parse::<u32>().ok());
    successors.0.extend(strait.children().into_iter().filter_map(pid));
    (0..20).for_each(|_| ask());
    thread::sleep(REPORTED);
    // Until COMMIT the old process answers for itself.
    assert_eq!(counted(&strait)[0], 1.0);
    kill_process(process(successors.0.pop().unwrap()), Signal::KILL).unwrap();
    let _ = upgrade.wait();
    until("the end of the attempt", || {
        strait.all_logged().contains("the handover is rolled back").then_some(())
    });
    until("what both have counted", || (counted(&strait)[0] == 21.0).then_some(()));
    ask();
    until("the next one", || (counted(&strait)[0] == 22.0).then_some(()));
}

/// Three processes, the first of which has a request under way, and the second nothing.
struct Three {
    first: Strait,
    of_first: Client,
    successors: Successors,
    service: Service,
}

impl Three {
    fn run() -> Self {
        let (service, mut successors) = (Service::start("one"), Successors::default());
        let scratch = Scratch::new();
        let second = format!("127.0.0.1:{}", claim_port());
        let listener = format!("  - {{ name: second, address: '{second}', routes: all }}\n");
        let config =
            forward_to(service.address).replace("routes:\n", &format!("{listener}routes:\n"));
        let config = format!("limits: {{ drain_timeout: 1m }}\n{config}");
        let config = with_handover(&scratch, &config, "probation: 0s");
        let first = Strait::run_in(scratch, &config);
        // The next process does not have this listener: its connection stays with the first.
        let mut of_first = Client::connect(second.parse().unwrap());
        of_first.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
        service.wait_at_gate();
        let without_second =
            fs::read_to_string(first.path("strait.yaml")).unwrap().replace(&listener, "");
        first.write("strait.yaml", &without_second);
        upgraded(&first, &mut successors);
        upgraded(&first, &mut successors);
        until("the end of the second process's connections", || {
            first.all_logged().contains("this process passes on what").then_some(())
        });
        Self { first, of_first, successors, service }
    }

    fn second_lives(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.successors.0[0]));
        // The first one, which started it, has not asked for its status.
        stat.is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with('Z'))
    }
}

#[test]
fn a_process_that_has_been_replaced_passes_on_what_the_one_before_it_counts() {
    let mut three = Three::run();
    assert!(three.second_lives(), "the first one may still count");
    three.service.open_gate();
    assert_eq!(three.of_first.receive().status, 200);
    until("the end of both", || (!three.second_lives()).then_some(()));
    // What it counted for its listener is forgotten with that.
    let total = "strait_exchange_stage_seconds_count{stage=\"total\"} 1\n";
    until("what the first one counted", || {
        get(three.first.admin, "/metrics").text().contains(total).then_some(())
    });
}

#[test]
fn a_process_that_passes_counts_on_ends_where_it_is_asked_to_or_has_none_to_tell() {
    let mut three = Three::run();
    kill_process(process(three.successors.0[0]), Signal::TERM).unwrap();
    until("the end of the second", || (!three.second_lives()).then_some(()));
    three.service.open_gate();
    assert_eq!(three.of_first.receive().status, 200);

    let three = Three::run();
    kill_process(process(three.successors.0[1]), Signal::KILL).unwrap();
    until("the end of the second", || (!three.second_lives()).then_some(()));
}
