//! The machine that says when which endpoint is checked, and what follows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::checks::{
    CHECKS_UNDER_WAY_MAX, CheckResult, CheckTask, Checked, Checker, FailureWeight, HealthChange,
    RememberedCheck, Unfit, Warmed,
};
use config::health::HealthStatus;
use config::outlier::{Detector, OutlierKind};
use config::snapshot::{Cluster, Snapshot};
use proptest::prelude::*;

use crate::sample::{Headers, loader};

type Loaded = Arc<Snapshot<Headers>>;

const SECOND: Duration = Duration::from_secs(1);

/// A die that falls in the middle.
const HALF: u64 = 2_500_000_000;

fn text(clusters: &[(&str, &[u16], &str)]) -> String {
    let mut text = String::from(
        "listeners: [{ name: edge, address: 127.0.0.1:80, protocol: tcp, cluster: web }]\nclusters:\n",
    );
    for (name, ports, options) in clusters {
        let endpoints = ports.iter().map(|port| format!("'127.0.0.1:{port}'"));
        let endpoints = endpoints.collect::<Vec<_>>().join(", ");
        text += &format!("  - {{ name: {name}, endpoints: [{endpoints}], {options} }}\n");
    }
    text
}

fn snapshot(clusters: &[(&str, &[u16], &str)]) -> Loaded {
    let text = text(clusters);
    loader().load("strait.yaml", &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

fn find<'s>(snapshot: &'s Loaded, name: &str) -> &'s Arc<Cluster> {
    let mut clusters = snapshot.clusters.iter();
    clusters.find(|(_, cluster)| &*cluster.name == name).expect("there is one").1
}

/// The places of endpoints that get no requests.
fn unfit(cluster: &Cluster) -> Vec<usize> {
    let places = cluster.endpoints.iter().enumerate();
    places
        .filter(|(_, endpoint)| endpoint.status() == HealthStatus::Unhealthy)
        .map(|(place, _)| place)
        .collect()
}

fn failed(reason: &str) -> CheckResult {
    CheckResult::Failed { reason: reason.into(), weight: FailureWeight::Usual }
}

/// Places of endpoints that are degraded.
fn degraded(cluster: &Cluster) -> Vec<usize> {
    let places = cluster.endpoints.iter().enumerate();
    places
        .filter(|(_, endpoint)| endpoint.status() == HealthStatus::Degraded)
        .map(|(place, _)| place)
        .collect()
}

/// Checks what is due, each with the result that is said of its port.
fn round(
    checker: &mut Checker,
    snapshot: &Loaded,
    now: &mut Duration,
    result: impl Fn(u16) -> CheckResult,
) -> Vec<Checked> {
    *now = checker.next_deadline().expect("something is due").max(*now);
    let tasks = checker.poll(*now);
    let end = |task: CheckTask| {
        let cluster = snapshot.cluster(task.cluster).expect("it is checked");
        let place = cluster.place_of(task.endpoint).expect("it is checked");
        let address = cluster.endpoints[place].address.to_string();
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        checker.on_result(snapshot, (task.number, result(port)), (*now, HALF))
    };
    tasks.into_iter().map(end).collect()
}

const CHECKS: &str = "checks: [{ tcp: {}, interval: 5s, healthy: 2, unhealthy: 3 }]";

#[test]
fn so_many_results_in_a_row_change_the_verdict_and_the_first_one_does_at_once() {
    let snapshot = snapshot(&[("web", &[9000, 9001], CHECKS)]);
    let cluster = find(&snapshot, "web");
    cluster.activity.mark();
    let (mut checker, mut now) = (Checker::default(), SECOND);
    checker.on_snapshot(&snapshot, now, || 0);
    assert_eq!(unfit(cluster), [] as [usize; 0], "those of a new cluster get requests at once");
    let result = |port| if port == 9000 { CheckResult::Passed } else { failed("refused") };
    let checked = round(&mut checker, &snapshot, &mut now, result);
    let events: Vec<_> = checked.iter().flat_map(|checked| &checked.events).collect();
    assert_eq!(events.len(), 1, "{events:?}");
    let HealthChange::Unhealthy(unfit_now) = &events[0].change else { panic!("{events:?}") };
    assert_eq!((&*unfit_now.reason, unfit_now.failures), ("refused", 1));
    assert_eq!(unfit(cluster), [1]);
    let all = |result: CheckResult| move |_| result.clone();
    let mut say = |result: CheckResult, expected: &[usize]| {
        round(&mut checker, &snapshot, &mut now, all(result));
        assert_eq!(unfit(cluster), expected);
    };
    say(CheckResult::Passed, &[1]);
    say(CheckResult::Passed, &[]);
    say(failed("x"), &[]);
    say(failed("x"), &[]);
    say(CheckResult::Passed, &[]);
    say(failed("x"), &[]);
    say(failed("x"), &[]);
    say(failed("x"), &[0, 1]);
    say(CheckResult::Passed, &[0, 1]);
    say(failed("x"), &[0, 1]);
    say(CheckResult::Passed, &[0, 1]);
    say(CheckResult::Passed, &[]);
    say(CheckResult::Failed { reason: "said so".into(), weight: FailureWeight::Final }, &[0, 1]);
}

#[test]
fn an_endpoint_is_degraded_from_the_answer_that_says_so_to_one_that_does_not() {
    let snapshot = snapshot(&[("web", &[9000, 9001], CHECKS)]);
    let cluster = find(&snapshot, "web");
    cluster.activity.mark();
    let (mut checker, mut now) = (Checker::default(), SECOND);
    checker.on_snapshot(&snapshot, now, || 0);
    let mut detector = Detector::default();
    detector.on_snapshot(&snapshot, now);
    // By their ports: what each answers, and what the second one is then.
    let mut say = |result: CheckResult, expected: Option<HealthChange>| {
        let other = |port| if port == 9001 { result.clone() } else { CheckResult::Passed };
        let checked = round(&mut checker, &snapshot, &mut now, other);
        if checked.iter().any(|it| !it.changed.is_empty()) {
            detector.recount(cluster);
        }
        let events: Vec<_> = checked.into_iter().flat_map(|checked| checked.events).collect();
        assert_eq!(events.first().map(|event| &event.change), expected.as_ref(), "{events:?}");
        assert_eq!(events.len(), usize::from(expected.is_some()));
        let second = checker.word(cluster.id, cluster.endpoints[1].id).unwrap().word;
        (degraded(cluster), unfit(cluster), cluster.view.degraded(), second)
    };
    let unfit_now = || HealthChange::Unhealthy(Unfit { reason: "x".into(), failures: 3 });
    let healthy = (vec![], vec![], 0, "healthy");
    let said = (vec![1], vec![], 1, "degraded");
    assert_eq!(say(CheckResult::Passed, None), healthy);
    assert_eq!(say(CheckResult::Degraded, Some(HealthChange::Degraded)), said);
    assert_eq!(say(CheckResult::Degraded, None), said);
    assert_eq!(say(failed("x"), None), said);
    assert_eq!(say(failed("x"), None), said);
    assert_eq!(say(failed("x"), Some(unfit_now())), (vec![], vec![1], 0, "unhealthy"));
    // One that fails no more may be degraded still.
    assert_eq!(say(CheckResult::Degraded, None).3, "unhealthy");
    assert_eq!(say(CheckResult::Degraded, Some(HealthChange::Degraded)), said);
    assert_eq!(say(CheckResult::Passed, Some(HealthChange::Healthy)), healthy);
}

#[test]
fn an_endpoint_is_unhealthy_since_its_checks_failed_whatever_it_answers_until_they_pass() {
    let snapshot = snapshot(&[("web", &[9000], CHECKS)]);
    find(&snapshot, "web").activity.mark();
    let (mut checker, mut now) = (Checker::default(), SECOND);
    checker.on_snapshot(&snapshot, now, || 0);
    let mut say = |result: CheckResult| {
        round(&mut checker, &snapshot, &mut now, |_| result.clone());
        let cluster = find(&snapshot, "web");
        let word = checker.word(cluster.id, cluster.endpoints[0].id).unwrap();
        (word.word, word.since)
    };
    say(CheckResult::Passed);
    say(failed("x"));
    say(failed("x"));
    let unhealthy = say(failed("x"));
    assert_eq!(unhealthy.0, "unhealthy");
    assert_eq!(say(CheckResult::Degraded), unhealthy);
    assert_eq!(say(failed("x")), unhealthy);
    assert_eq!(say(CheckResult::Passed), unhealthy);
}

#[test]
fn a_first_check_that_takes_too_long_decides_nothing_alone() {
    let snapshot = snapshot(&[("web", &[9000], CHECKS)]);
    let cluster = find(&snapshot, "web");
    cluster.activity.mark();
    let (mut checker, mut now) = (Checker::default(), SECOND);
    checker.on_snapshot(&snapshot, now, || 0);
    let late = |_| CheckResult::Failed { reason: "late".into(), weight: FailureWeight::Late };
    for expected in [&[][..], &[], &[0]] {
        round(&mut checker, &snapshot, &mut now, late);
        assert_eq!(unfit(cluster), expected);
    }
}

#[test]
fn an_endpoint_that_joins_others_waits_for_its_first_check() {
    let mut loader = loader();
    let mut load = |ports: &[u16]| {
        loader.load("strait.yaml", &text(&[("web", ports, CHECKS)])).expect("it is right")
    };
    let (mut checker, mut now) = (Checker::default(), SECOND);
    let first = load(&[9000]);
    checker.on_snapshot(&first, now, || 0);
    round(&mut checker, &first, &mut now, |_| CheckResult::Passed);
    let second = load(&[9000, 9001]);
    let checked = checker.on_snapshot(&second, now, || 0);
    assert_eq!(checked.changed.len(), 1);
    assert_eq!(unfit(find(&second, "web")), [1]);
    let before = now;
    let tasks = checker.poll(now);
    assert_eq!((tasks.len(), before), (1, now), "it is checked at once");
    checker.on_result(&second, (tasks[0].number, CheckResult::Passed), (now, HALF));
    assert_eq!(unfit(find(&second, "web")), [] as [usize; 0]);
    // None of these was there before: they serve.
    let third = load(&[9002, 9003]);
    checker.on_snapshot(&third, now, || 0);
    assert_eq!(unfit(find(&third, "web")), [] as [usize; 0]);
}

#[test]
fn what_failed_a_check_that_is_another_now_waits_for_that() {
    let mut loader = loader();
    let mut load = |checks: &str| {
        loader.load("strait.yaml", &text(&[("web", &[9000, 9001], checks)])).expect("it is right")
    };
    let (mut checker, mut now) = (Checker::default(), SECOND);
    let first = load(CHECKS);
    checker.on_snapshot(&first, now, || 0);
    let result = |port| if port == 9000 { CheckResult::Passed } else { failed("refused") };
    round(&mut checker, &first, &mut now, result);
    let second = load("checks: [{ tcp: {}, timeout: 2s }]");
    checker.on_snapshot(&second, now, || 0);
    assert_eq!(unfit(find(&second, "web")), [1]);
    round(&mut checker, &second, &mut now, |_| CheckResult::Passed);
    assert_eq!(unfit(find(&second, "web")), [] as [usize; 0]);
    checker.on_snapshot(&load("panic: 40%"), now, || 0);
    assert_eq!(checker.next_deadline(), None, "nothing is checked any more");
}

#[test]
fn clusters_that_ask_the_same_of_an_address_share_its_checks() {
    let other = "protocol: http2, checks: [{ tcp: {}, interval: 5s, healthy: 2, unhealthy: 3 }]";
    let snapshot = snapshot(&[
        ("web", &[9000], CHECKS),
        ("api", &[9000, 9001], CHECKS),
        ("other", &[9000], other),
    ]);
    let (mut checker, now) = (Checker::default(), SECOND);
    checker.on_snapshot(&snapshot, now, || 0);
    let tasks = checker.poll(now);
    assert_eq!(tasks.len(), 3, "9000, 9001, and 9000 over another transport");
    for task in tasks {
        checker.on_result(&snapshot, (task.number, failed("refused")), (now, HALF));
    }
    assert_eq!(unfit(find(&snapshot, "web")), [0]);
    assert_eq!(unfit(find(&snapshot, "api")), [0, 1]);
    assert_eq!(checker.unhealthy(find(&snapshot, "api").id), 2);
}

#[test]
fn a_cluster_without_requests_is_checked_less_often() {
    let checks = "checks: [{ tcp: {}, interval: 5s, interval_quiet: 60s }]";
    let snapshot = snapshot(&[("web", &[9000], checks)]);
    let (mut checker, mut now) = (Checker::default(), SECOND);
    let half = || HALF;
    checker.on_snapshot(&snapshot, now, half);
    round(&mut checker, &snapshot, &mut now, |_| CheckResult::Passed);
    round(&mut checker, &snapshot, &mut now, |_| CheckResult::Passed);
    let due = checker.next_deadline().expect("it goes on") - now;
    assert!(due >= 54 * SECOND, "{due:?}");
    checker.look_at_activity(&snapshot, now, half);
    assert!(checker.next_deadline().expect("it goes on") - now >= 54 * SECOND, "still quiet");
    find(&snapshot, "web").activity.mark();
    checker.look_at_activity(&snapshot, now, half);
    assert!(checker.next_deadline().expect("it goes on") - now <= 5 * SECOND);
    round(&mut checker, &snapshot, &mut now, |_| CheckResult::Passed);
    assert!(checker.next_deadline().expect("it goes on") - now <= 6 * SECOND);
}

#[test]
fn no_more_checks_are_under_way_than_may_be_and_lost_ones_are_made_again() {
    let ports: Vec<u16> = (1..=5_000).collect();
    let snapshot = snapshot(&[("web", &ports, CHECKS)]);
    let (mut checker, now) = (Checker::default(), SECOND);
    checker.on_snapshot(&snapshot, now, || 0);
    let tasks = checker.poll(now);
    assert_eq!(tasks.len(), CHECKS_UNDER_WAY_MAX);
    assert_eq!(checker.poll(now).len(), 0);
    let lost = checker.next_deadline().expect("they are not waited for without end");
    assert_eq!(lost, now + 6 * SECOND, "the timeout and five seconds");
    checker.on_result(&snapshot, (tasks[0].number, CheckResult::Passed), (now, HALF));
    assert_eq!(checker.poll(now).len(), 1, "there is room for one");
    // The one that passed is among them, for the second time.
    assert_eq!(checker.poll(lost).len(), 5_000 - CHECKS_UNDER_WAY_MAX, "the others begin");
    // A result that comes late says nothing, and is counted for none.
    let late = checker.on_result(&snapshot, (tasks[1].number, failed("x")), (lost, HALF));
    assert!(late.events.is_empty() && late.counted.is_empty());
    assert_eq!(checker.unhealthy(find(&snapshot, "web").id), 0);
}

#[test]
fn an_endpoint_that_is_ejected_is_taken_back_by_a_check_that_passes_and_by_no_other() {
    let both = format!("outlier: {{ errors_5xx: 1 }}, {CHECKS}");
    let mut loader = loader();
    let mut load = |options: &str| {
        loader.load("strait.yaml", &text(&[("web", &[9000, 9001], options)])).expect("it is right")
    };
    let first = load(&both);
    let (mut checker, mut detector) = (Checker::default(), Detector::default());
    let mut now = SECOND;
    checker.on_snapshot(&first, now, || 0);
    detector.on_snapshot(&first, now);
    round(&mut checker, &first, &mut now, |_| CheckResult::Passed);
    let cluster = find(&first, "web");
    let eject = |detector: &mut Detector, cluster: &Arc<Cluster>| {
        let kind = OutlierKind::Errors5xx;
        detector.on_reached(cluster, cluster.endpoints[0].id, kind, (now, 0));
        assert_eq!(unfit(cluster), [0]);
    };
    eject(&mut detector, cluster);
    let mut take_back = |checked: Vec<Checked>| {
        for (_, endpoint) in checked.iter().flat_map(|checked| &checked.passed) {
            detector.on_check_passed(cluster, *endpoint, now);
        }
        unfit(cluster)
    };
    let mut later = now;
    let failing = round(&mut checker, &first, &mut later, |_| failed("x"));
    assert_eq!(take_back(failing), [0], "it is healthy yet, and its check failed");
    let passing = round(&mut checker, &first, &mut later, |_| CheckResult::Passed);
    assert_eq!(take_back(passing), [] as [usize; 0]);
    // Without `outlier` nothing is ejected any more, though the cells stay.
    eject(&mut detector, cluster);
    let second = load(CHECKS);
    checker.on_snapshot(&second, now, || 0);
    detector.on_snapshot(&second, now);
    assert_eq!(unfit(find(&second, "web")), [] as [usize; 0]);
}

#[test]
fn an_endpoint_gets_requests_again_when_it_passes_all_its_checks() {
    let checks = "checks: [{ tcp: {}, interval: 5s }, { http: { path: / }, interval: 5s }]";
    let snapshot = snapshot(&[("web", &[9000], checks)]);
    let cluster = find(&snapshot, "web");
    cluster.activity.mark();
    let (mut checker, mut now) = (Checker::default(), SECOND);
    checker.on_snapshot(&snapshot, now, || 0);
    let mut events = Vec::new();
    let mut say = |results: [CheckResult; 2]| {
        now = checker.next_deadline().expect("both are due").max(now);
        for task in checker.poll(now) {
            let result = results[usize::from(task.check)].clone();
            let checked = checker.on_result(&snapshot, (task.number, result), (now, HALF));
            events.extend(
                checked.events.into_iter().map(|event| event.change == HealthChange::Healthy),
            );
        }
        (unfit(cluster), std::mem::take(&mut events))
    };
    assert_eq!(say([failed("x"), failed("y")]), (vec![0], vec![false]), "one event");
    say([CheckResult::Passed, failed("y")]);
    assert_eq!(say([CheckResult::Passed, failed("y")]), (vec![0], vec![]), "the other one fails");
    say([CheckResult::Passed, CheckResult::Passed]);
    assert_eq!(say([CheckResult::Passed, CheckResult::Passed]), (vec![], vec![true]));
}

#[test]
fn what_stays_undecided_is_asked_less_and_less_often() {
    let snapshot = snapshot(&[("web", &[9000], CHECKS)]);
    let (mut checker, mut now) = (Checker::default(), SECOND);
    checker.on_snapshot(&snapshot, now, || 0);
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let before = now;
        round(&mut checker, &snapshot, &mut now, |_| CheckResult::Undecided);
        pauses.push((now - before).as_millis());
    }
    assert_eq!(pauses, [0, 500, 1_000, 2_000, 4_000, 5_000]);
}

#[test]
fn new_endpoints_are_checked_one_after_the_other() {
    let ports: Vec<u16> = (1..=1_000).collect();
    let snapshot = snapshot(&[("web", &ports, CHECKS)]);
    let mut checker = Checker::default();
    checker.on_snapshot(&snapshot, SECOND, || 4_999_999_999);
    assert!(checker.poll(SECOND).len() <= 21, "of the first ten milliseconds");
    assert_eq!(checker.poll(2 * SECOND).len() + 1, 1_000);
}

#[test]
fn another_process_goes_on_with_what_is_unhealthy_or_degraded() {
    let clusters = [("web", &[9000, 9001, 9002][..], CHECKS)];
    let (giving, taking) = (snapshot(&clusters), snapshot(&clusters));
    let (mut giver, mut taker, mut now) = (Checker::default(), Checker::default(), SECOND);
    giver.on_snapshot(&giving, now, || 0);
    let result = |port| match port {
        9000 => CheckResult::Passed,
        9001 => failed("refused"),
        _ => CheckResult::Degraded,
    };
    round(&mut giver, &giving, &mut now, result);
    let remembered = giver.remembered(now + SECOND, 10);
    assert_eq!(remembered.len(), 2);
    let of_other = RememberedCheck { fingerprint: 1, ..remembered[0].clone() };
    taker.on_snapshot(&taking, 100 * SECOND, || 0);
    taker.adopt(&taking, (&[of_other], &[]), false, 100 * SECOND);
    assert_eq!(unfit(find(&taking, "web")), [] as [usize; 0], "another check");
    let checked = taker.adopt(&taking, (&remembered, &[]), false, 100 * SECOND);
    assert_eq!((unfit(find(&taking, "web")), checked.changed.len()), (vec![1], 1));
    assert_eq!(degraded(find(&taking, "web")), [2]);
    let web = find(&taking, "web");
    let word = taker.word(web.id, web.endpoints[1].id).unwrap();
    assert_eq!((word.word, word.reason.as_deref()), ("unhealthy", Some("refused")));
    assert_eq!(word.since, 99 * SECOND);
    assert_eq!(giver.remembered(now, 0), []);
    // What is known here counts for more, unless the other one is newer; then what it does not name is healthy.
    let now_unhealthy = RememberedCheck { reason: Some("later".into()), ..remembered[1].clone() };
    let one = std::slice::from_ref(&now_unhealthy);
    let checked = taker.adopt(&taking, (one, &[]), false, 101 * SECOND);
    assert_eq!((unfit(find(&taking, "web")), checked.changed.len()), (vec![1], 0));
    let checked = taker.adopt(&taking, (one, &[]), true, 101 * SECOND);
    assert_eq!((unfit(find(&taking, "web")), checked.changed.len()), (vec![2], 1));
    assert_eq!(degraded(find(&taking, "web")), [] as [usize; 0]);
    taker.adopt(&taking, (&[], &[]), true, 102 * SECOND);
    assert_eq!(unfit(find(&taking, "web")), [] as [usize; 0]);
}

/// What another process knows as healthy needs as many failures as ever; what that did not know is decided by the first.
#[test]
fn another_process_goes_on_with_what_is_healthy_and_its_threshold() {
    const THRICE: &str = "checks: [{ tcp: {}, interval: 5s, unhealthy: 3 }]";
    let giving = snapshot(&[("web", &[9000, 9001], THRICE)]);
    let taking = snapshot(&[("web", &[9000, 9001, 9002], THRICE)]);
    let (mut giver, mut taker, mut now) = (Checker::default(), Checker::default(), SECOND);
    giver.on_snapshot(&giving, now, || 0);
    assert_eq!(giver.marks_of_healthy(10), [] as [u32; 0], "nothing is known yet");
    round(&mut giver, &giving, &mut now, |_| CheckResult::Passed);
    let healthy = giver.marks_of_healthy(10);
    assert_eq!((healthy.len(), giver.marks_of_healthy(1).len()), (2, 1));

    let web = find(&taking, "web");
    web.activity.mark();
    taker.on_adopted_snapshot(&taking, now, || 0);
    taker.adopt(&taking, (&[], &healthy), false, now);
    let word = |taker: &Checker, place: usize| {
        taker.word(web.id, web.endpoints[place].id).expect("it is checked").word
    };
    assert_eq!([0, 1, 2].map(|place| word(&taker, place)), ["healthy", "healthy", "unknown"]);
    round(&mut taker, &taking, &mut now, |_| failed("refused"));
    assert_eq!(unfit(web), [2], "the new one");
    let result = |port| if port == 9000 { failed("refused") } else { CheckResult::Passed };
    while unfit(web) != [0, 2] && unfit(web) != [0] {
        assert!(now < 30 * SECOND, "{:?}", unfit(web));
        round(&mut taker, &taking, &mut now, result);
    }
    assert_eq!(word(&taker, 1), "healthy");
}

#[test]
fn the_marks_of_healthy_endpoints_are_of_their_address_and_check() {
    let other = "checks: [{ http: { path: / }, interval: 5s }]";
    let of = |ports: &[u16], checks: &str| {
        let snapshot = snapshot(&[("web", ports, checks)]);
        let (mut checker, mut now) = (Checker::default(), SECOND);
        checker.on_snapshot(&snapshot, now, || 0);
        round(&mut checker, &snapshot, &mut now, |_| CheckResult::Passed);
        checker.marks_of_healthy(usize::MAX)
    };
    assert_eq!(of(&[9000], CHECKS), of(&[9000], CHECKS));
    assert_ne!(of(&[9000], CHECKS), of(&[9001], CHECKS));
    assert_ne!(of(&[9000], CHECKS), of(&[9000], other));
}

proptest! {
    /// However results come, late or not at all: each endpoint is checked once per interval, and none is forgotten.
    #[test]
    fn each_endpoint_is_checked_once_per_interval(
        results in prop::collection::vec((any::<bool>(), 0..3_000_u64, any::<u64>()), 1..200),
    ) {
        let snapshot = snapshot(&[("web", &[9000, 9001, 9002], CHECKS)]);
        find(&snapshot, "web").activity.mark();
        let (mut checker, mut now) = (Checker::default(), SECOND);
        checker.on_snapshot(&snapshot, now, || 0);
        let (mut began, mut learnt) = (BTreeMap::new(), BTreeMap::new());
        let mut waiting: Vec<CheckTask> = Vec::new();
        for (passes, millis, die) in results {
            now += Duration::from_millis(millis);
            for task in checker.poll(now) {
                if let Some(before) = began.insert(task.endpoint, now) {
                    let passed: Duration = now - before;
                    // Behind the first result, the next one may come sooner.
                    let is_known = learnt.get(&task.endpoint).is_some_and(|count| *count > 1);
                    let least = if is_known { SECOND * 45 / 10 } else { Duration::ZERO };
                    prop_assert!(passed >= least, "{passed:?}");
                    // Its timeout and the interval, each of which a poll may see three seconds late.
                    let most = Duration::from_millis(1_000 + 5_500) + 2 * 3 * SECOND;
                    prop_assert!(passed <= most, "{passed:?} without a check");
                }
                waiting.push(task);
            }
            let Some(task) = waiting.pop() else { continue };
            let result = if passes { CheckResult::Passed } else { failed("x") };
            let checked = checker.on_result(&snapshot, (task.number, result), (now, die));
            *learnt.entry(task.endpoint).or_insert(0) += checked.counted.len();
        }
        prop_assert!(checker.next_deadline().is_some());
    }
}

const WARMING: &str =
    "checks: [{ tcp: {}, interval: 5s, healthy: 2, unhealthy: 3 }], initial_check_timeout: 2s";

/// All that is due by `now`, by the port of the endpoint.
fn due(checker: &mut Checker, snapshot: &Loaded, now: Duration) -> BTreeMap<String, u64> {
    let tasks = checker.poll(now).into_iter().map(|task| {
        let cluster = snapshot.cluster(task.cluster).expect("it is checked");
        let place = cluster.place_of(task.endpoint).expect("it is checked");
        (cluster.endpoints[place].address.to_string(), task.number)
    });
    tasks.collect()
}

#[test]
fn a_new_cluster_waits_until_each_endpoint_has_been_checked() {
    let snapshot = snapshot(&[("web", &[9000, 9001, 9002], WARMING), ("other", &[9000], CHECKS)]);
    let (web, other) = (find(&snapshot, "web"), find(&snapshot, "other"));
    let (mut checker, began) = (Checker::default(), SECOND);
    checker.on_snapshot(&snapshot, began, || 0);
    assert!(web.warming.waits() && !other.warming.waits());
    assert!(!web.is_panicking(), "no request meets any of its endpoints");
    assert_eq!(checker.warming().map(|name| &**name).collect::<Vec<_>>(), ["web"]);
    let now = began + SECOND / 10;
    let tasks = due(&mut checker, &snapshot, now);
    let mut say = |port: u16, result: CheckResult| {
        let number = tasks[&format!("127.0.0.1:{port}")];
        checker.on_result(&snapshot, (number, result), (now, HALF))
    };
    let checked = say(9000, CheckResult::Passed);
    assert!(web.warming.waits() && checked.warmed.is_empty());
    let checked = say(9001, failed("refused"));
    let [event] = &checked.events[..] else { panic!("{checked:?}") };
    assert!(matches!(&event.change, HealthChange::Unhealthy(unfit) if &*unfit.reason == "refused"));
    assert!(web.warming.waits(), "one is left");
    let late = CheckResult::Failed { reason: "no answer".into(), weight: FailureWeight::Late };
    let checked = say(9002, late);
    assert!(!web.warming.waits());
    let expected = Warmed {
        id: web.id,
        cluster: "web".into(),
        endpoints: 3,
        passed: 1,
        unchecked: 0,
        after: SECOND / 10,
    };
    assert_eq!(checked.warmed, [expected]);
    assert!(checked.changed.contains(&web.id), "who may be chosen is counted again");
    assert_eq!(unfit(web), [1, 2], "none gets requests that has not passed");
    assert_eq!(checker.next_late_warming(), None);
}

#[test]
fn a_new_cluster_waits_no_longer_than_it_may() {
    let snapshot = snapshot(&[("web", &[9000, 9001], WARMING)]);
    let web = find(&snapshot, "web");
    let mut checker = Checker::default();
    checker.on_snapshot(&snapshot, SECOND, || 0);
    let tasks = due(&mut checker, &snapshot, SECOND * 2);
    let passed = (tasks["127.0.0.1:9000"], CheckResult::Passed);
    checker.on_result(&snapshot, passed, (SECOND * 2, HALF));
    let until = checker.next_late_warming().expect("one waits");
    assert_eq!(until, SECOND * 3);
    assert!(checker.end_late_warming(until - Duration::from_nanos(1)).warmed.is_empty());
    let late = checker.end_late_warming(until);
    let [warmed] = &late.warmed[..] else { panic!("{late:?}") };
    assert_eq!((warmed.endpoints, warmed.passed, warmed.unchecked), (2, 1, 1));
    assert!(late.changed.contains(&web.id));
    assert!(!web.warming.waits());
    assert_eq!(unfit(web), [1]);
}

#[test]
fn only_a_cluster_that_does_not_serve_yet_waits() {
    let mut loader = loader();
    let mut load = |ports: &[u16], options: &str| {
        loader.load("strait.yaml", &text(&[("web", ports, options)])).expect("it is right")
    };
    let waits = |snapshot: &Loaded| find(snapshot, "web").warming.waits();
    let (mut checker, mut now) = (Checker::default(), SECOND);
    let unchecked = load(&[9000], "panic: 10");
    checker.on_snapshot(&unchecked, now, || 0);
    let serves = load(&[9000], WARMING);
    checker.on_snapshot(&serves, now, || 0);
    assert!(!waits(&serves), "it has served without checks");
    round(&mut checker, &serves, &mut now, |_| CheckResult::Passed);
    let joined = load(&[9000, 9001], WARMING);
    checker.on_snapshot(&joined, now, || 0);
    assert!(!waits(&joined));
    assert_eq!(unfit(find(&joined, "web")), [1], "the new one waits alone");
    // None of these was there before.
    let replaced = load(&[9002, 9003], WARMING);
    checker.on_snapshot(&replaced, now, || 0);
    assert!(waits(&replaced));
    // One that joins prolongs nothing, and is waited for.
    let until = checker.next_late_warming();
    let larger = load(&[9002, 9003, 9004], WARMING);
    checker.on_snapshot(&larger, now + SECOND, || 0);
    assert!(waits(&larger) && waits(&replaced), "old and new configurations have one cell");
    assert_eq!(checker.next_late_warming(), until);
    let tasks = due(&mut checker, &larger, now + SECOND);
    assert_eq!(tasks.len(), 3);
    // Without the option nothing is waited for.
    let without = load(&[9002, 9003, 9004], CHECKS);
    checker.on_snapshot(&without, now + SECOND, || 0);
    assert!(!waits(&without) && !waits(&larger));
    assert_eq!(checker.next_late_warming(), None);
}

#[test]
fn a_cluster_that_is_gone_is_not_waited_for() {
    let mut loader = loader();
    let mut load = |clusters: &[(&str, &[u16], &str)]| {
        loader.load("strait.yaml", &text(clusters)).expect("it is right")
    };
    let mut checker = Checker::default();
    let both = load(&[("web", &[9000], CHECKS), ("other", &[9001], WARMING)]);
    checker.on_snapshot(&both, SECOND, || 0);
    assert!(find(&both, "other").warming.waits());
    let one = load(&[("web", &[9000], CHECKS)]);
    checker.on_snapshot(&one, SECOND, || 0);
    assert!(!find(&both, "other").warming.waits());
    assert_eq!((checker.warming().len(), checker.next_late_warming()), (0, None));
}

#[test]
fn a_process_that_goes_on_for_another_waits_for_no_cluster() {
    let snapshot = snapshot(&[("web", &[9000], WARMING)]);
    let mut checker = Checker::default();
    checker.on_adopted_snapshot(&snapshot, SECOND, || 0);
    assert!(!find(&snapshot, "web").warming.waits());
    assert_eq!(unfit(find(&snapshot, "web")), [] as [usize; 0]);
}

#[test]
fn a_configuration_that_was_never_in_effect_leaves_no_cluster_waiting() {
    let mut loader = loader();
    let mut load = |options: &str| {
        loader.load("strait.yaml", &text(&[("web", &[9000], options)])).expect("it is right")
    };
    let mut checker = Checker::default();
    let first = load(WARMING);
    checker.on_snapshot(&first, SECOND, || 0);
    load(CHECKS);
    let third = load(&WARMING.replace("5s", "4s"));
    checker.on_snapshot(&third, SECOND, || 0);
    let waits = |snapshot: &Loaded| find(snapshot, "web").warming.waits();
    assert!(waits(&third));
    let until = checker.next_late_warming().expect("it waits");
    assert_eq!(until, SECOND * 3, "no longer than from the first on");
    assert_eq!(checker.end_late_warming(until).warmed.len(), 1);
    assert!(!waits(&third) && !waits(&first));
}
