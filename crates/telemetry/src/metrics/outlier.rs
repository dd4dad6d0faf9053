//! Counted from the ejections of endpoints, which control decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CLUSTERS_MAX, Family, MetricType};
use crate::events::{EJECTION_REASONS, EjectionCounted, OutlierCluster};

/// Ejections by cluster. Only the control thread has them, so they are plain numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outliers {
    clusters: BTreeMap<Arc<str>, Ejections>,
}

#[derive(Clone, Debug, Default)]
struct Ejections {
    ejected: u64,
    is_panicking: bool,
    /// By reason.
    counts: [u64; EJECTION_REASONS.len()],
    denied: [u64; EJECTION_REASONS.len()],
}

impl Outliers {
    pub(crate) fn counted(&mut self, event: EjectionCounted) {
        let EjectionCounted { cluster, kind, is_denied } = event;
        let cluster = self.clusters.entry(cluster).or_default();
        let counts = if is_denied { &mut cluster.denied } else { &mut cluster.counts };
        let counts = EJECTION_REASONS.iter().zip(counts);
        for (_, count) in counts.filter(|(reason, _)| **reason == kind) {
            *count = count.saturating_add(1);
        }
    }

    pub(crate) fn set_clusters(&mut self, clusters: Vec<OutlierCluster>) {
        let mut former = std::mem::take(&mut self.clusters);
        let clusters =
            clusters.into_iter().map(|OutlierCluster { cluster, ejected, is_panicking }| {
                let before = former.remove(&cluster).unwrap_or_default();
                (cluster, Ejections { ejected, is_panicking, ..before })
            });
        self.clusters = clusters.collect();
    }

    /// Counts with their clusters and reasons; those that are 0 too, unless there are many clusters.
    fn by_reason(
        &self,
        counts: impl Fn(&Ejections) -> &[u64; EJECTION_REASONS.len()],
    ) -> impl Iterator<Item = (&str, &'static str, u64)> {
        let has_zeros = self.clusters.len() <= CLUSTERS_MAX;
        let all = self.clusters.iter().flat_map(move |(cluster, ejections)| {
            let counts = EJECTION_REASONS.into_iter().zip(*counts(ejections));
            counts.map(move |(reason, count)| (&**cluster, reason, count))
        });
        all.filter(move |(.., count)| has_zeros || *count > 0)
    }
}

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "strait_upstream_endpoints_ejected",
        kind: MetricType::Gauge,
        help: "Endpoints that get no requests since their attempts failed, of clusters with `outlier`.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, ejections) in &view.control.outliers.clusters {
                out.number(&[cluster], ejections.ejected);
            }
        },
    },
    Family {
        name: "strait_upstream_ejections_total",
        kind: MetricType::Counter,
        help: "Ejections of endpoints, by the option of `outlier` that they are for.",
        labels: &["cluster", "reason"],
        samples: |view, out| {
            for (cluster, reason, count) in view.control.outliers.by_reason(|it| &it.counts) {
                out.number(&[cluster, reason], count);
            }
        },
    },
    Family {
        name: "strait_upstream_ejections_denied_total",
        kind: MetricType::Counter,
        help: "Endpoints that would have been ejected, were not as many as `share_max` allows.",
        labels: &["cluster", "reason"],
        samples: |view, out| {
            for (cluster, reason, count) in view.control.outliers.by_reason(|it| &it.denied) {
                out.number(&[cluster, reason], count);
            }
        },
    },
    Family {
        name: "strait_upstream_panic",
        kind: MetricType::Gauge,
        help: "1 while so few endpoints of a cluster with `outlier` are left (`panic`) that those that are ejected get \
               requests too, else 0.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, ejections) in &view.control.outliers.clusters {
                out.number(&[cluster], u64::from(ejections.is_panicking));
            }
        },
    },
];
