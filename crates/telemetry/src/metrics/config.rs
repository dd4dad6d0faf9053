//! Counted from what the control thread reports.

use super::{Family, MetricType};
use crate::events::{AccessLogWriteFailed, CertificateInUse, ConfigAccepted, ConfigRejected};

/// Counts of the control thread; no other thread reads them, so they are plain numbers.
#[derive(Debug, Default)]
pub(crate) struct ControlCounters {
    version: u64,
    accepted: u64,
    rejected: u64,
    accepted_at: u64,
    accepted_duration: u64,
    rejected_at: u64,
    rejected_errors: u32,
    lines_lost: u64,
    /// Sorted, without one that stands twice.
    certificates: Vec<CertificateInUse>,
}

impl ControlCounters {
    pub(crate) fn config_accepted(&mut self, event: &ConfigAccepted) {
        self.accepted = self.accepted.saturating_add(1);
        self.version = event.version;
        self.accepted_at = event.at;
        self.accepted_duration = event.duration;
    }

    pub(crate) fn config_rejected(&mut self, event: &ConfigRejected) {
        self.rejected = self.rejected.saturating_add(1);
        self.rejected_at = event.at;
        self.rejected_errors = event.errors;
    }

    pub(crate) fn certificates_in_use(&mut self, mut certificates: Vec<CertificateInUse>) {
        certificates.sort();
        certificates.dedup();
        self.certificates = certificates;
    }

    pub(crate) fn access_log_write_failed(&mut self, event: &AccessLogWriteFailed) {
        self.lines_lost = self.lines_lost.saturating_add(event.lines);
    }
}

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "strait_config_accepted_total",
        kind: MetricType::Counter,
        help: "Configurations accepted, the first one included.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.accepted),
    },
    Family {
        name: "strait_config_rejected_total",
        kind: MetricType::Counter,
        help: "Configurations refused; the one before stays in use.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.rejected),
    },
    Family {
        name: "strait_config_version",
        kind: MetricType::Gauge,
        help: "Version of the snapshot that workers were last given.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.version),
    },
    Family {
        name: "strait_config_last_accepted_timestamp_seconds",
        kind: MetricType::Gauge,
        help: "When a configuration was last accepted, seconds since the Unix epoch; 0 for never.",
        labels: &[],
        samples: |view, out| out.decimal(&[], super::seconds(view.control.accepted_at)),
    },
    Family {
        name: "strait_config_last_accepted_duration_seconds",
        kind: MetricType::Gauge,
        help: "Time from reading the configuration last accepted to handing it to the workers.",
        labels: &[],
        samples: |view, out| out.decimal(&[], super::seconds(view.control.accepted_duration)),
    },
    Family {
        name: "strait_config_last_rejected_timestamp_seconds",
        kind: MetricType::Gauge,
        help: "When a configuration was last refused, seconds since the Unix epoch; 0 for never.",
        labels: &[],
        samples: |view, out| out.decimal(&[], super::seconds(view.control.rejected_at)),
    },
    Family {
        name: "strait_config_last_rejected_errors",
        kind: MetricType::Gauge,
        help: "Errors in the configuration last refused.",
        labels: &[],
        samples: |view, out| out.number(&[], u64::from(view.control.rejected_errors)),
    },
    Family {
        name: "strait_tls_certificate_expiry_timestamp_seconds",
        kind: MetricType::Gauge,
        help: "The last second of certificates that listeners show to clients, or clusters to endpoints, since \
               the Unix epoch; `file` is the path in the configuration, and of `listener` and `cluster` one is \
               empty.",
        labels: &["listener", "cluster", "file"],
        samples: |view, out| {
            for certificate in &view.control.certificates {
                let CertificateInUse { listener, cluster, file, expires_at } = certificate;
                out.number(&[listener, cluster, file], *expires_at);
            }
        },
    },
    Family {
        name: "strait_access_log_lines_lost_total",
        kind: MetricType::Counter,
        help: "Access log lines that could not be written to their output.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.lines_lost),
    },
];
