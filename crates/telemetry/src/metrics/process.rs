//! Figures from the kernel about the process, under the names that all Prometheus clients use.

use super::{Family, MetricType};

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "strait_build_info",
        kind: MetricType::Gauge,
        help: "Always 1; the labels have the version of the program and the commit that it was built from.",
        labels: &["version", "commit"],
        samples: |view, out| out.number(&[view.version, view.commit], 1),
    },
    Family {
        name: "strait_uptime_seconds",
        kind: MetricType::Gauge,
        help: "Time since the process started.",
        labels: &[],
        samples: |view, out| out.decimal(&[], view.process.uptime_seconds()),
    },
    Family {
        name: "process_start_time_seconds",
        kind: MetricType::Gauge,
        help: "When the process started, seconds since the Unix epoch.",
        labels: &[],
        samples: |view, out| out.decimal(&[], view.process.start_time_seconds),
    },
    Family {
        name: "process_cpu_seconds_total",
        kind: MetricType::Counter,
        help: "User and system CPU time spent.",
        labels: &[],
        samples: |view, out| out.decimal(&[], view.process.cpu_seconds),
    },
    Family {
        name: "process_resident_memory_bytes",
        kind: MetricType::Gauge,
        help: "Resident memory.",
        labels: &[],
        samples: |view, out| out.number(&[], view.process.resident_bytes),
    },
    Family {
        name: "process_virtual_memory_bytes",
        kind: MetricType::Gauge,
        help: "Virtual memory.",
        labels: &[],
        samples: |view, out| out.number(&[], view.process.virtual_bytes),
    },
    Family {
        name: "process_open_fds",
        kind: MetricType::Gauge,
        help: "Open file descriptors.",
        labels: &[],
        samples: |view, out| out.number(&[], view.process.descriptors),
    },
    Family {
        name: "process_max_fds",
        kind: MetricType::Gauge,
        help: "Bound on open file descriptors.",
        labels: &[],
        samples: |view, out| out.number(&[], view.process.descriptors_max),
    },
    Family {
        name: "process_threads",
        kind: MetricType::Gauge,
        help: "Threads of the process.",
        labels: &[],
        samples: |view, out| out.number(&[], view.process.threads),
    },
];
