//! The machine that ejects endpoints and takes them back.

use std::sync::Arc;
use std::time::Duration;

use config::health::HealthStatus;
use config::outlier::{AttemptResult, Detector, Event, Happened, OutlierKind};
use config::snapshot::{Cluster, Snapshot};
use config::view;
use proptest::prelude::*;

use crate::sample::{Headers, loader};

type Loaded = Arc<Snapshot<Headers>>;

const SECOND: Duration = Duration::from_secs(1);

fn snapshot(endpoints: usize, options: &str) -> Loaded {
    let endpoints = (0..endpoints).map(|place| format!("'127.0.0.1:{}'", 9000 + place));
    let endpoints = endpoints.collect::<Vec<_>>().join(", ");
    let text = format!(
        "listeners: [{{ name: edge, address: 127.0.0.1:80, protocol: tcp, cluster: web }}]\n\
         clusters: [{{ name: web, endpoints: [{endpoints}], {options} }}]\n"
    );
    loader().load("strait.yaml", &text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn only(snapshot: &Loaded) -> &Arc<Cluster> {
    snapshot.clusters.iter().next().expect("there is one").1
}

fn ejected(cluster: &Cluster) -> Vec<usize> {
    let places = cluster.endpoints.iter().enumerate();
    places
        .filter(|(_, endpoint)| endpoint.status() == HealthStatus::Unhealthy)
        .map(|(place, _)| place)
        .collect()
}

/// So many attempts at the endpoint at this place, of which so many fail.
fn attempts(cluster: &Cluster, place: usize, count: usize, failing: usize) {
    let policy = cluster.outlier.as_ref().expect("it ejects");
    let health = cluster.endpoints[place].health.get().expect("it ejects");
    for number in 0..count {
        let status = if number < failing { 500 } else { 200 };
        assert_eq!(policy.count(health, AttemptResult::Response(status)), None);
    }
}

fn kinds(events: &[Event]) -> Vec<OutlierKind> {
    let kinds = events.iter().filter_map(|event| match event.happened {
        Happened::Ejected { kind, .. } => Some(kind),
        _ => None,
    });
    kinds.collect()
}

#[test]
fn an_endpoint_whose_success_rate_is_far_below_the_others_is_ejected() {
    let policy =
        "outlier: { errors_5xx: 0, success_rate: { stdev: 1.5, endpoints: 5, requests: 50 } }";
    for (failing, requests, expected) in [
        ([0, 0, 0, 0, 30], 100, &[4][..]),
        // All of them are as bad.
        ([30, 30, 30, 30, 30], 100, &[]),
        // Too few attempts tell nothing.
        ([0, 0, 0, 0, 30], 49, &[]),
        // No worse than others.
        ([0, 10, 20, 30, 40], 100, &[]),
    ] {
        let snapshot = snapshot(5, policy);
        let (cluster, mut detector) = (only(&snapshot), Detector::default());
        assert_eq!(detector.on_snapshot(&snapshot, SECOND), []);
        for (place, failing) in failing.into_iter().enumerate() {
            attempts(cluster, place, requests, failing);
        }
        let due = detector.next_deadline().expect("endpoints are compared");
        assert_eq!(due, 11 * SECOND);
        let events = detector.on_deadlines(&snapshot, due, || 0);
        assert_eq!(ejected(cluster), expected, "{failing:?} of {requests}");
        assert!(kinds(&events).iter().all(|kind| *kind == OutlierKind::SuccessRate));
    }
}

#[test]
fn what_is_quiet_costs_nothing() {
    let snapshot = snapshot(3, "outlier: { errors_5xx: 1 }");
    let (cluster, mut detector) = (only(&snapshot), Detector::default());
    detector.on_snapshot(&snapshot, SECOND);
    assert_eq!(detector.next_deadline(), None);
    let endpoint = cluster.endpoints[1].id;
    detector.on_reached(cluster, endpoint, OutlierKind::Errors5xx, (SECOND, 0));
    assert_eq!(ejected(cluster), [1]);
    // It is back after 30 s, and its ejection is forgotten with the next interval.
    let mut now = SECOND;
    while let Some(due) = detector.next_deadline() {
        now = due;
        detector.on_deadlines(&snapshot, now, || 0);
    }
    assert!(ejected(cluster).is_empty());
    assert!(now > 31 * SECOND && now <= 51 * SECOND, "{now:?}");
}

#[test]
fn times_of_ejection_vary_and_have_a_bound() {
    let snapshot = snapshot(1, "outlier: { ejection: { base: 10s, max: 25s } }");
    let cluster = only(&snapshot);
    for die in [0, 1 << 40, u64::MAX] {
        let mut detector = Detector::default();
        detector.on_snapshot(&snapshot, Duration::ZERO);
        let mut now = Duration::ZERO;
        for longest in [10, 20, 25, 25].map(Duration::from_secs) {
            let id = cluster.endpoints[0].id;
            let events = detector.on_reached(cluster, id, OutlierKind::Errors5xx, (now, die));
            let Happened::Ejected { length, .. } = events[0].happened else { panic!("{events:?}") };
            assert!(length <= longest && length > longest * 9 / 10, "{length:?} of {longest:?}");
            assert!(die > 0 || length == longest);
            // Just when it is over, so that no interval forgets it.
            now += length;
            detector.on_deadlines(&snapshot, now, || die);
            assert!(ejected(cluster).is_empty());
            now -= Duration::from_nanos(1);
        }
    }
}

#[test]
fn another_process_goes_on_with_ejections_of_endpoints_that_it_has() {
    let options = "outlier: { ejection: { base: 100s, max: 1000s, share_max: 50 } }";
    let (from, now) = (snapshot(6, options), SECOND * 1000);
    let mut giver = Detector::default();
    giver.on_snapshot(&from, now);
    for place in [1, 2, 5] {
        let id = only(&from).endpoints[place].id;
        giver.on_reached(only(&from), id, OutlierKind::Errors5xx, (now, 0));
    }
    let remembered = giver.remembered(&from, now + SECOND * 40);
    assert_eq!(remembered.len(), 3);

    // Another clock, five of the endpoints, and a shorter bound.
    for (endpoints, options, lasts, expected) in [
        (5, options, 60, &[1, 2][..]),
        (5, "outlier: { ejection: { base: 1s, max: 20s, share_max: 50 } }", 20, &[1, 2]),
        (5, "outlier: { ejection: { share_max: 0 } }", 60, &[1]),
        (1, options, 0, &[]),
        (5, "", 0, &[]),
    ] {
        let to = snapshot(endpoints, options);
        let mut taker = Detector::default();
        let now = SECOND * 7;
        taker.on_snapshot(&to, now);
        taker.adopt(&to, &remembered, now);
        assert_eq!(ejected(only(&to)), expected, "{options}");
        assert!(
            taker.all_ejections().all(|(_, it)| it.until == now + SECOND * lasts && it.times == 1)
        );
        let until = now + SECOND * lasts;
        taker.on_deadlines(&to, until - Duration::from_nanos(1), || 0);
        assert_eq!(ejected(only(&to)), expected, "{options}");
        taker.on_deadlines(&to, until, || 0);
        assert_eq!(ejected(only(&to)), [0; 0], "{options}");
    }
}

proptest! {
    /// Whatever is reported: no more are ejected than may be, each is back at last, and groups are counted right.
    #[test]
    fn ejections_keep_their_bounds(
        endpoints in 1_usize..12,
        share in 0_u32..=100,
        steps in prop::collection::vec((0_usize..12, 0_u64..40, any::<u64>()), 0..60),
    ) {
        let options = format!("outlier: {{ ejection: {{ share_max: {share} }} }}");
        let snapshot = snapshot(endpoints, &options);
        let (cluster, mut detector) = (only(&snapshot), Detector::default());
        detector.on_snapshot(&snapshot, Duration::ZERO);
        let mut now = Duration::ZERO;
        let max = (endpoints as f64 * f64::from(share) / 100.0).max(1.0);
        for (place, seconds, die) in steps {
            now += Duration::from_secs(seconds);
            detector.on_deadlines(&snapshot, now, || die);
            let endpoint = cluster.endpoints[place % endpoints].id;
            detector.on_reached(cluster, endpoint, OutlierKind::Errors5xx, (now, die));
            let ejected = ejected(cluster);
            prop_assert!(ejected.len() as f64 <= max, "{ejected:?} of {endpoints}");
            prop_assert_eq!(ejected.len(), detector.ejections(cluster.id).count());
            let group = &cluster.view.levels(None)[0];
            prop_assert_eq!(group.available(), u32::try_from(endpoints - ejected.len()).ok());
            // A request finds a group as long as it has an endpoint, or panic lets it.
            let level = view::level(cluster.view.levels(None), cluster.panic, || die);
            prop_assert!(level.is_some());
        }
        while let Some(due) = detector.next_deadline() {
            prop_assert!(due > now, "no deadline stays");
            now = due;
            detector.on_deadlines(&snapshot, now, || 0);
        }
        prop_assert_eq!(ejected(cluster), Vec::<usize>::new());
    }
}
