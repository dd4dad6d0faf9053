//! When certificates expire: for the metrics, and as a warning once a day.

use std::sync::Arc;

use config::snapshot::Snapshot;
use config::{CertificateUse, CertificateUser};
use telemetry::events::CertificateInUse;

use crate::clock;

/// Between two looks at what time certificates have left, ns.
const LOOK_INTERVAL: u64 = 86_400_000_000_000;

/// Knows the certificates in use.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    certificates: Vec<CertificateUse>,
    looked_at: u64,
}

impl Expiry {
    /// The certificates of a snapshot that was just taken up, of whose warnings those about time were
    /// a part.
    pub(crate) fn new<F>(snapshot: &Snapshot<F>) -> Self {
        Self { certificates: config::certificates(snapshot), looked_at: clock::monotonic_ns() }
    }

    /// For the metrics.
    pub(crate) fn in_use(&self) -> Vec<CertificateInUse> {
        let in_use = |used: &CertificateUse| {
            let (listener, cluster): (Arc<str>, Arc<str>) = match &used.user {
                CertificateUser::Listener(name) | CertificateUser::Chain(name, _) => {
                    (Arc::clone(name), Arc::default())
                }
                CertificateUser::Cluster(name) => (Arc::default(), Arc::clone(name)),
            };
            let file = Arc::clone(&used.source.chain);
            let expires_at = used.source.certificate.not_after();
            CertificateInUse { listener, cluster, file, expires_at }
        };
        self.certificates.iter().map(in_use).collect()
    }

    /// For the admin interface.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        self.certificates.iter().map(CertificateUse::to_json).collect()
    }

    /// Those that are not valid now: who shows them, and since when or until when that is.
    pub(crate) fn outdated(&self) -> impl Iterator<Item = String> {
        let now = clock::wall_ns() / 1_000_000_000;
        let is_outdated =
            move |used: &&CertificateUse| used.source.certificate.check_time(now).is_err();
        warnings(self.certificates.iter().filter(is_outdated), now)
    }

    /// Warns of those that expire soon, if the last time is long enough ago.
    pub(crate) fn look(&mut self) {
        let now = clock::monotonic_ns();
        if now.saturating_sub(self.looked_at) < LOOK_INTERVAL {
            return;
        }
        self.looked_at = now;
        for warning in warnings(self.certificates.iter(), clock::wall_ns() / 1_000_000_000) {
            tracing::warn!("{warning}");
        }
    }
}

fn warnings<'c>(
    certificates: impl Iterator<Item = &'c CertificateUse>,
    now: u64,
) -> impl Iterator<Item = String> {
    certificates.filter_map(move |used| {
        let warning = used.expiry_warning(now)?;
        Some(format!("{}, {}: {warning}", used.user, used.source.chain))
    })
}
