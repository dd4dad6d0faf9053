//! Endpoints that are degraded, or said to be unhealthy: what of the requests each gets.

use std::sync::Arc;

use config::health::HealthStatus;
use config::snapshot::{Cluster, Snapshot};
use config::view::{self, Eligible};

use crate::sample::{Headers, loader};

/// A cluster with endpoints of these priorities, each with what is said of its health.
fn cluster(endpoints: &[(u8, &str)], options: &str) -> Arc<Cluster> {
    let endpoint = |(place, (priority, health)): (usize, &(u8, &str))| {
        let port = 9000 + place;
        format!("{{ address: '127.0.0.1:{port}', priority: {priority}, health: {health} }}")
    };
    let endpoints = endpoints.iter().enumerate().map(endpoint).collect::<Vec<_>>().join(", ");
    let text = format!(
        "listeners: [{{ name: edge, address: 127.0.0.1:80, protocol: tcp, cluster: web }}]\n\
         clusters: [{{ name: web, endpoints: [{endpoints}], {options} }}]\n"
    );
    let loaded = loader().load("strait.yaml", &text);
    let snapshot: Arc<Snapshot<Headers>> = loaded.unwrap_or_else(|errors| panic!("{errors}"));
    Arc::clone(snapshot.clusters.iter().next().expect("there is one").1)
}

/// Percent of the requests for the healthy and the degraded endpoints of each priority, and of all of them in panic.
fn percent(cluster: &Cluster) -> Vec<(f64, f64, bool)> {
    let percent = |part: f64| (part * 1_000.0).round() / 10.0;
    let parts = view::parts(cluster.view.levels(None), cluster.panic);
    let parts = parts.iter();
    parts.map(|it| (percent(it.healthy), percent(it.degraded), it.is_panicking)).collect()
}

/// The numbers are those that Envoy documents for its priority levels, with its overprovisioning factor of 1.4.
#[test]
fn degraded_endpoints_get_what_healthy_ones_are_too_few_for() {
    const H: &str = "healthy";
    const D: &str = "degraded";
    const U: &str = "unhealthy";
    for (first, second, expected) in [
        (vec![H, H], vec![], vec![(100.0, 0.0, false)]),
        (vec![H, "unknown"], vec![D], vec![(100.0, 0.0, false), (0.0, 0.0, false)]),
        (vec![H, D], vec![], vec![(70.0, 30.0, false)]),
        (vec![D, D], vec![], vec![(0.0, 100.0, false)]),
        // Healthy ones of the next priority come before degraded ones of the first.
        (vec![D, D], vec![H, H], vec![(0.0, 0.0, false), (100.0, 0.0, false)]),
        (vec![H, D, D, D], vec![H, D], vec![(35.0, 0.0, false), (65.0, 0.0, false)]),
        (vec![D, U], vec![D, D], vec![(0.0, 70.0, false), (0.0, 30.0, false)]),
        // What is left is shared out: half are available, which is no panic yet.
        (vec![H, D, U, U], vec![], vec![(50.0, 50.0, false)]),
        (vec![H, U, U, "timeout"], vec![], vec![(100.0, 0.0, true)]),
        (vec![U, U], vec![H], vec![(0.0, 0.0, true), (100.0, 0.0, false)]),
        // What drains counts no more.
        (vec![H, "draining"], vec![D], vec![(100.0, 0.0, false), (0.0, 0.0, false)]),
        (vec![U, U], vec![], vec![(100.0, 0.0, true)]),
        // Where each priority panics, requests go by the number of endpoints.
        (vec![U, D, U], vec![U], vec![(75.0, 0.0, true), (25.0, 0.0, true)]),
        (vec![U], vec![U, U, H], vec![(25.0, 0.0, true), (75.0, 0.0, true)]),
    ] {
        let endpoints = first.iter().map(|health| (0, *health));
        let endpoints: Vec<_> = endpoints.chain(second.iter().map(|health| (1, *health))).collect();
        let cluster = cluster(&endpoints, "panic: 50%");
        let is_panicking = cluster.is_panicking();
        let mut found = percent(&cluster);
        // Where another priority takes all requests, none panics.
        for (healthy, degraded, is_panicking) in &mut found {
            *is_panicking &= *healthy + *degraded > 0.0;
        }
        let mut expected = expected;
        for (healthy, degraded, is_panicking) in &mut expected {
            *is_panicking &= *healthy + *degraded > 0.0;
        }
        assert_eq!(found, expected, "{endpoints:?}");
        assert_eq!(is_panicking, expected.iter().any(|(.., it)| *it), "{endpoints:?}");
    }
}

#[test]
fn each_request_is_for_endpoints_of_one_status() {
    let cluster = cluster(&[(0, "healthy"), (0, "degraded"), (0, "unhealthy")], "panic: 0");
    let mut counts = [0_u32; 2];
    for die in 0..100_000 {
        let level = view::level(cluster.view.levels(None), cluster.panic, || die * 7_919);
        match level.expect("some are available").eligible {
            Eligible::Only(HealthStatus::Healthy) => counts[0] += 1,
            Eligible::Only(HealthStatus::Degraded) => counts[1] += 1,
            other => panic!("{other:?}"),
        }
    }
    // A third of each, times 1.4: what is left is shared out by that.
    assert!(counts[0].abs_diff(50_000) < 1_000, "{counts:?}");
}
