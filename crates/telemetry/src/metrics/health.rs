//! Counted from the health of endpoints: their checks and ejections, of which control knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CLUSTERS_MAX, Family, MetricType};
use crate::events::{CheckCounted, EJECTION_REASONS, EjectionCounted, HealthOfCluster};

/// By cluster. Only the control thread has them, so they are plain numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    clusters: BTreeMap<Arc<str>, OfCluster>,
}

#[derive(Clone, Debug, Default)]
struct OfCluster {
    /// By how they ended.
    checks: [u64; CHECK_RESULTS.len()],
    unhealthy: u64,
    degraded: u64,
    ejected: u64,
    is_panicking: bool,
    is_warming: bool,
    /// By reason.
    counts: [u64; EJECTION_REASONS.len()],
    denied: [u64; EJECTION_REASONS.len()],
}

/// How a check ends, in the order in which they are counted.
pub(super) const CHECK_RESULTS: [&str; 3] = ["passed", "failed", "undecided"];

impl Health {
    pub(crate) fn check_counted(&mut self, event: CheckCounted) {
        let [passed, failed, undecided] =
            &mut self.clusters.entry(event.cluster).or_default().checks;
        let count = match event.has_passed {
            Some(true) => passed,
            Some(false) => failed,
            None => undecided,
        };
        *count = count.saturating_add(1);
    }

    pub(crate) fn counted(&mut self, event: EjectionCounted) {
        let EjectionCounted { cluster, kind, is_denied } = event;
        let cluster = self.clusters.entry(cluster).or_default();
        let counts = if is_denied { &mut cluster.denied } else { &mut cluster.counts };
        let counts = EJECTION_REASONS.iter().zip(counts);
        for (_, count) in counts.filter(|(reason, _)| **reason == kind) {
            *count = count.saturating_add(1);
        }
    }

    pub(crate) fn set_clusters(&mut self, clusters: Vec<HealthOfCluster>) {
        let mut former = std::mem::take(&mut self.clusters);
        let clusters = clusters.into_iter().map(
            |HealthOfCluster {
                 cluster,
                 unhealthy,
                 degraded,
                 ejected,
                 is_panicking,
                 is_warming,
             }| {
                let before = former.remove(&cluster).unwrap_or_default();
                (
                    cluster,
                    OfCluster { unhealthy, degraded, ejected, is_panicking, is_warming, ..before },
                )
            },
        );
        self.clusters = clusters.collect();
    }

    /// Counts with their clusters and reasons; those that are 0 too, unless there are many clusters.
    fn by_reason(
        &self,
        counts: impl Fn(&OfCluster) -> &[u64; EJECTION_REASONS.len()],
    ) -> impl Iterator<Item = (&str, &'static str, u64)> {
        let has_zeros = self.clusters.len() <= CLUSTERS_MAX;
        let all = self.clusters.iter().flat_map(move |(cluster, it)| {
            let counts = EJECTION_REASONS.into_iter().zip(*counts(it));
            counts.map(move |(reason, count)| (&**cluster, reason, count))
        });
        all.filter(move |(.., count)| has_zeros || *count > 0)
    }
}

/// What is bounded, as `breaker` says.
pub(super) const BREAKERS: [&str; 4] = ["connections", "pending", "retries", "requests"];

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "strait_upstream_breaker_remaining",
        kind: MetricType::Gauge,
        help: "Remaining capacity of a cluster's limits, in the process: `connections` of `connections_max`, `pending` \
               of `pending_max`, `requests` of `requests_max` or `adaptive_concurrency` if set, and `retries` that `retry_budget` still allows. \
               `priority` is `default`, or `high` once there was a request of that priority.",
        labels: &["cluster", "priority", "breaker"],
        samples: |view, out| {
            for it in &view.control.breakers {
                let (cluster, priority, requests) = (&*it.cluster, it.priority, it.requests);
                let [connections, pending, retries, of_requests] = BREAKERS;
                let others =
                    [(connections, it.connections), (pending, it.pending), (retries, it.retries)];
                let all = others.into_iter().chain(requests.map(|left| (of_requests, left)));
                all.for_each(|(breaker, left)| out.number(&[cluster, priority, breaker], left));
            }
        },
    },
    Family {
        name: "strait_upstream_concurrency_limit",
        kind: MetricType::Gauge,
        help: "Active requests that `adaptive_concurrency` of a cluster allows now, in the process.",
        labels: &["cluster"],
        samples: |view, out| {
            for it in &view.control.breakers {
                if let Some(concurrency) = it.concurrency {
                    out.number(&[&*it.cluster], concurrency.limit);
                }
            }
        },
    },
    Family {
        name: "strait_upstream_min_rtt_seconds",
        kind: MetricType::Gauge,
        help: "Minimum response time that `adaptive_concurrency` of a cluster has measured; 0 before the first measurement.",
        labels: &["cluster"],
        samples: |view, out| {
            for it in &view.control.breakers {
                if let Some(concurrency) = it.concurrency {
                    let seconds = concurrency.min_rtt.unwrap_or_default().as_secs_f64();
                    out.decimal(&[&*it.cluster], seconds);
                }
            }
        },
    },
    Family {
        name: "strait_upstream_checks_total",
        kind: MetricType::Counter,
        help: "Health checks that ended, by result (`checks` of the cluster). `undecided`: the check says \
               nothing about the endpoint, because the process had no descriptor or port left, or was being \
               replaced.",
        labels: &["cluster", "result"],
        samples: |view, out| {
            for (cluster, it) in &view.control.health.clusters {
                for (result, count) in CHECK_RESULTS.into_iter().zip(it.checks) {
                    out.number(&[cluster, result], count);
                }
            }
        },
    },
    Family {
        name: "strait_upstream_endpoints_unhealthy",
        kind: MetricType::Gauge,
        help: "Endpoints that get no requests because their checks fail, or have not passed yet.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, it) in &view.control.health.clusters {
                out.number(&[cluster], it.unhealthy);
            }
        },
    },
    Family {
        name: "strait_upstream_endpoints_degraded",
        kind: MetricType::Gauge,
        help: "Endpoints that get only requests that healthy ones are too few for: they or their source say that \
               they are degraded. Of clusters with `outlier` or `checks`.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, it) in &view.control.health.clusters {
                out.number(&[cluster], it.degraded);
            }
        },
    },
    Family {
        name: "strait_upstream_endpoints_ejected",
        kind: MetricType::Gauge,
        help: "Endpoints that get no requests because their attempts failed, of clusters with `outlier` or \
               `checks`.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, it) in &view.control.health.clusters {
                out.number(&[cluster], it.ejected);
            }
        },
    },
    Family {
        name: "strait_upstream_ejections_total",
        kind: MetricType::Counter,
        help: "Ejections of endpoints, by the option of `outlier` that caused them.",
        labels: &["cluster", "reason"],
        samples: |view, out| {
            for (cluster, reason, count) in view.control.health.by_reason(|it| &it.counts) {
                out.number(&[cluster, reason], count);
            }
        },
    },
    Family {
        name: "strait_upstream_ejections_denied_total",
        kind: MetricType::Counter,
        help: "Endpoints that were not ejected because `share_max` was reached.",
        labels: &["cluster", "reason"],
        samples: |view, out| {
            for (cluster, reason, count) in view.control.health.by_reason(|it| &it.denied) {
                out.number(&[cluster, reason], count);
            }
        },
    },
    Family {
        name: "strait_upstream_panic",
        kind: MetricType::Gauge,
        help: "1 while so few endpoints of a cluster with `outlier` or `checks` are available (`panic`) that \
               ejected and unhealthy ones get requests, too; otherwise 0.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, it) in &view.control.health.clusters {
                out.number(&[cluster], u64::from(it.is_panicking));
            }
        },
    },
    Family {
        name: "strait_upstream_warming",
        kind: MetricType::Gauge,
        help: "1 while the requests of a new cluster wait for the first checks of its endpoints \
               (`initial_check_timeout`); otherwise 0.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, it) in &view.control.health.clusters {
                out.number(&[cluster], u64::from(it.is_warming));
            }
        },
    },
];
