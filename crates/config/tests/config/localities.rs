//! Which locality a request goes to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::file::assignment::Locality;
use config::health::HealthStatus;
use config::locality::LocalityKey;
use config::outlier::{Detector, OutlierKind};
use config::snapshot::{Cluster, Snapshot};

use crate::sample::{Headers, loader};

/// Six endpoints: three in eu/a, two in eu/b, one in eu/c.
const ENDPOINTS: &str = "
      - { address: '127.0.0.1:9000', locality: eu/a }
      - { address: '127.0.0.1:9001', locality: eu/a }
      - { address: '127.0.0.1:9002', locality: eu/a }
      - { address: '127.0.0.1:9003', locality: eu/b }
      - { address: '127.0.0.1:9004', locality: eu/b }
      - { address: '127.0.0.1:9005', locality: eu/c }
";

fn key(text: &str) -> LocalityKey {
    text.parse::<Locality>().unwrap().key()
}

fn load(localities: &str, own: &str) -> Arc<Snapshot<Headers>> {
    load_with(localities, own, ENDPOINTS)
}

fn load_with(localities: &str, own: &str, endpoints: &str) -> Arc<Snapshot<Headers>> {
    let text = format!(
        "locality: {own}\n\
         listeners: [{{ name: l, address: '127.0.0.1:1', protocol: tcp, cluster: c }}]\n\
         clusters:\n  - name: c\n    outlier: {{ ejection: {{ share_max: 100 }} }}\n    localities: {localities}\n    endpoints:{endpoints}"
    );
    let mut loader = loader();
    let snapshot = loader.load("strait.yaml", &text).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loader.warnings(), []);
    snapshot
}

fn only(snapshot: &Snapshot<Headers>) -> &Arc<Cluster> {
    snapshot.clusters.iter().next().expect("one cluster").1
}

/// Of 60,000 requests for endpoints with a status, how many each locality gets in thousands, and how many go to any endpoint; drawn, and computed.
fn shares(snapshot: &Snapshot<Headers>, status: HealthStatus) -> ([u64; 4], [u64; 4]) {
    let group = &only(snapshot).view.levels(None)[0];
    let places = BTreeMap::from([(key("eu/a"), 0), (key("eu/b"), 1), (key("eu/c"), 2)]);
    let mut die = 1_u64;
    // SplitMix64.
    let mut dice = || {
        die = die.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (die ^ (die >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut drawn = [0_u64; 4];
    for _ in 0..60_000 {
        let part = group.part(snapshot.locality, status, &mut dice);
        drawn[part.map_or(3, |part| places[&part.key])] += 1;
    }
    let mut computed = [0_u64; 4];
    match group.part_shares(snapshot.locality, status) {
        None => computed[3] = 60,
        Some((shares, others)) => {
            shares.iter().for_each(|(part, share)| {
                computed[places[&part.key]] = thousands(*share);
            });
            computed[3] = thousands(others);
        }
    }
    (drawn.map(|count| (count + 500) / 1_000), computed)
}

/// A part of 60,000 requests, in thousands.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of 1 is between 0 and 60 here"
)]
fn thousands(share: f64) -> u64 {
    (share * 60.0).round() as u64
}

/// Ejects endpoints.
fn eject(snapshot: &Snapshot<Headers>, places: &[usize]) {
    let mut detector = Detector::default();
    detector.on_snapshot(snapshot, Duration::ZERO);
    for place in places {
        let id = only(snapshot).endpoints[*place].id;
        detector.on_reached(only(snapshot), id, OutlierKind::Errors5xx, (Duration::ZERO, 0));
    }
}

#[test]
fn localities_share_requests_by_their_weights_and_by_what_is_left_of_them() {
    for (weights, ejected, expected) in [
        ("{ weights: { eu/a: 1, eu/b: 2, eu/c: 3 } }", &[][..], [10, 20, 30, 0]),
        // One that is not listed has a weight of 1, and 0 is none.
        ("{ weights: { eu/a: 2, eu/c: 0 } }", &[], [40, 20, 0, 0]),
        // Two of three can take 93 % of the load, one of two 70 %, and none nothing.
        ("{ weights: { eu/a: 1, eu/b: 1, eu/c: 1 } }", &[0, 3, 5], [34, 26, 0, 0]),
        ("{ weights: { eu/a: 0, eu/b: 0, eu/c: 1 } }", &[5], [0, 0, 0, 60]),
    ] {
        let snapshot = load(weights, "eu/a");
        eject(&snapshot, ejected);
        let (drawn, computed) = shares(&snapshot, HealthStatus::Healthy);
        assert_eq!((drawn, computed), (expected, expected), "{weights} without {ejected:?}");
    }
}

#[test]
fn requests_stay_in_the_locality_of_the_process_as_far_as_it_can_take_them() {
    for (options, own, ejected, expected) in [
        // Half of the endpoints are here, and a third of the processes.
        ("{}", "eu/a", &[][..], [60, 0, 0, 0]),
        ("{}", "eu/b", &[], [0, 60, 0, 0]),
        // A sixth is here for a third of the processes: half stays, and eu/a has a sixth more than it needs.
        ("{}", "eu/c", &[], [30, 0, 30, 0]),
        // A quarter of the processes is here: two thirds stay, and eu/a has an eighth more than it needs.
        ("{ share: 25% }", "eu/c", &[], [20, 0, 40, 0]),
        // Localities count for half of the requests.
        ("{ percent: 50 }", "eu/a", &[], [30, 0, 0, 30]),
        // Too few endpoints, another place, or none here that may be chosen.
        ("{ size_min: 7 }", "eu/a", &[], [0, 0, 0, 60]),
        ("{}", "us/a", &[], [0, 0, 0, 60]),
        ("{ size_min: 2 }", "eu/c", &[5], [0, 0, 0, 60]),
        ("{}", "eu/a", &[5], [0, 0, 0, 60]),
        // Two of five are here, for a third of the processes.
        ("{ size_min: 5 }", "eu/a", &[0], [60, 0, 0, 0]),
        // One of four: three quarters of a third. One of the others has what the others need.
        ("{ size_min: 4 }", "eu/a", &[0, 1], [45, 15, 0, 0]),
    ] {
        let snapshot = load(&format!("{{ zone_aware: {options} }}"), own);
        eject(&snapshot, ejected);
        let (drawn, computed) = shares(&snapshot, HealthStatus::Healthy);
        assert_eq!((drawn, computed), (expected, expected), "{options} in {own}, {ejected:?}");
    }
}

#[test]
fn degraded_endpoints_share_their_requests_by_locality_too() {
    let degraded = ["9001", "9003", "9004"];
    let endpoints = degraded.iter().fold(ENDPOINTS.to_owned(), |text, port| {
        text.replace(&format!("{port}',"), &format!("{port}', health: degraded,"))
    });
    for (localities, own, status, expected) in [
        // Two of three, none of two, and one.
        ("{ weights: {} }", "eu/a", HealthStatus::Healthy, [29, 0, 31, 0]),
        // One of three, both, and none.
        ("{ weights: {} }", "eu/a", HealthStatus::Degraded, [19, 41, 0, 0]),
        ("{ zone_aware: { size_min: 3 } }", "eu/b", HealthStatus::Degraded, [0, 60, 0, 0]),
        ("{ zone_aware: { size_min: 3 } }", "eu/c", HealthStatus::Degraded, [0, 0, 0, 60]),
        ("{ zone_aware: { size_min: 4 } }", "eu/b", HealthStatus::Degraded, [0, 0, 0, 60]),
    ] {
        let snapshot = load_with(localities, own, &endpoints);
        let (drawn, computed) = shares(&snapshot, status);
        assert_eq!((drawn, computed), (expected, expected), "{localities} in {own}: {status:?}");
    }
}

#[test]
fn weights_count_in_each_priority_and_the_own_locality_in_the_first() {
    let endpoints = ENDPOINTS.replace("eu/b", "eu/a, priority: 1");
    let endpoints = endpoints.replace("9004', locality: eu/a", "9004', locality: eu/b");
    for (localities, divided) in [("{ weights: {} }", [2, 2]), ("{ zone_aware: {} }", [2, 0])] {
        let snapshot = load_with(localities, "eu/a", &endpoints);
        let levels = only(&snapshot).view.levels(None);
        assert_eq!([0, 1].map(|place| levels[place].parts().count()), divided, "{localities}");
    }
}

#[test]
fn endpoints_of_one_locality_are_not_divided() {
    let text = "listeners: [{ name: l, address: '127.0.0.1:1', protocol: tcp, cluster: c }]\n\
         clusters: [{ name: c, localities: { weights: {} }, endpoints: ['127.0.0.1:2', '127.0.0.1:3'] }]\n";
    let snapshot = loader().load("strait.yaml", text).unwrap_or_else(|errors| panic!("{errors}"));
    let group = &only(&snapshot).view.levels(None)[0];
    assert_eq!(group.parts().count(), 0);
    assert!(group.part(None, HealthStatus::Healthy, || 0).is_none());
}

#[test]
fn what_asks_for_localities_in_vain_is_warned_about() {
    let load = |localities: &str| {
        let text = format!(
            "listeners: [{{ name: l, address: '127.0.0.1:1', protocol: tcp, cluster: c }}]\n\
             clusters:\n  - name: c\n    localities: {localities}\n    endpoints:{ENDPOINTS}"
        );
        let mut loader = loader();
        loader.load("strait.yaml", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let found = loader.warnings().iter();
        found.map(|found| format!("{}: {}", found.path, found.rule)).collect::<Vec<_>>()
    };
    for (localities, expected) in [
        ("{ weights: { eu/a: 1 } }", None),
        ("{ zone_aware: {} }", Some("zone_aware: this process has no `locality`")),
        ("{ weights: { eu/d: 1 } }", Some("weights.\"eu/d\": no endpoint is in this locality")),
        ("{ weights: { eu/a: 0, eu/b: 0, eu/c: 0 } }", Some("weights: all localities with endp")),
    ] {
        let found = load(localities);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{localities}: {found:?}");
        let path = expected.map(|it| format!("clusters[0].localities.{it}"));
        assert!(path.is_none_or(|it| found[0].starts_with(&it)), "{localities}: {found:?}");
    }
}
