//! Levels of workers, and counts of their access log records.

use super::{Family, MetricType};

/// Where buffers come from.
pub(super) const LEASE_SOURCES: [&str; 2] = ["reused", "allocated"];

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "strait_worker_turns_total",
        kind: MetricType::Counter,
        help: "Turns of the worker's loop.",
        labels: &["worker"],
        samples: |view, out| {
            view.worker_loops().for_each(|(it, done)| out.number(&[it], done.turns));
        },
    },
    Family {
        name: "strait_worker_events_total",
        kind: MetricType::Counter,
        help: "Socket events and operations that the worker's loop handled.",
        labels: &["worker"],
        samples: |view, out| {
            view.worker_loops().for_each(|(it, done)| out.number(&[it], done.events));
        },
    },
    Family {
        name: "strait_worker_busy_seconds_total",
        kind: MetricType::Counter,
        help: "Time in which the worker's loop was not waiting for events. Its rate is the share of time in \
               which the worker is busy, 0 to 1.",
        labels: &["worker"],
        samples: |view, out| {
            for (worker, done) in view.worker_loops() {
                out.decimal(&[worker], super::seconds(done.busy));
            }
        },
    },
    Family {
        name: "strait_worker_connections_downstream",
        kind: MetricType::Gauge,
        help: "Downstream connections that the worker owns.",
        labels: &["worker"],
        samples: |view, out| view.each_worker(out, |block| &block.levels.connections_downstream),
    },
    Family {
        name: "strait_worker_connections_upstream",
        kind: MetricType::Gauge,
        help: "Upstream connections that the worker owns or is establishing.",
        labels: &["worker"],
        samples: |view, out| view.each_worker(out, |block| &block.levels.connections_upstream),
    },
    Family {
        name: "strait_worker_connections_upstream_idle",
        kind: MetricType::Gauge,
        help: "Upstream connections idle in the worker's pools.",
        labels: &["worker"],
        samples: |view, out| view.each_worker(out, |block| &block.levels.idle_upstream),
    },
    Family {
        name: "strait_worker_pending",
        kind: MetricType::Gauge,
        help: "Exchanges of the worker that wait for an upstream connection.",
        labels: &["worker"],
        samples: |view, out| view.each_worker(out, |block| &block.levels.pending),
    },
    Family {
        name: "strait_buffers_leased",
        kind: MetricType::Gauge,
        help: "Buffers in use.",
        labels: &[],
        samples: |view, out| {
            out.number(&[], view.worker_total(|block| &block.levels.buffers_leased));
        },
    },
    Family {
        name: "strait_buffer_leases_total",
        kind: MetricType::Counter,
        help: "Buffers taken into use, by source: `reused` or newly `allocated`.",
        labels: &["source"],
        samples: |view, out| {
            let [reused, allocated] = LEASE_SOURCES;
            out.number(&[reused], view.worker_total(|block| &block.levels.buffers_reused));
            out.number(&[allocated], view.worker_total(|block| &block.levels.buffers_allocated));
        },
    },
    Family {
        name: "strait_buffer_reuse_ratio",
        kind: MetricType::Gauge,
        help: "Share of all buffers taken into use so far that needed no new memory, 0 to 1.",
        labels: &[],
        samples: |view, out| {
            let reused = view.worker_total(|block| &block.levels.buffers_reused);
            let allocated = view.worker_total(|block| &block.levels.buffers_allocated);
            out.decimal(&[], super::ratio(reused, reused.saturating_add(allocated)));
        },
    },
    Family {
        name: "strait_buffer_memory_bytes",
        kind: MetricType::Gauge,
        help: "Memory of the workers' buffers, in use or not.",
        labels: &[],
        samples: |view, out| {
            out.number(&[], view.worker_total(|block| &block.levels.buffer_bytes));
        },
    },
    Family {
        name: "strait_access_log_records_total",
        kind: MetricType::Counter,
        help: "Access log entries that workers passed to the log writer.",
        labels: &[],
        samples: |view, out| out.number(&[], view.worker_total(|block| &block.records.logged)),
    },
    Family {
        name: "strait_access_log_dropped_total",
        kind: MetricType::Counter,
        help: "Access log entries that workers dropped because the queue to the log writer was full.",
        labels: &[],
        samples: |view, out| {
            out.number(&[], view.worker_total(|block| &block.records.log_dropped));
        },
    },
    Family {
        name: "strait_access_log_connections_left_out_total",
        kind: MetricType::Counter,
        help: "Connections that failed before their first request, and have no line in the access log: each \
               worker writes at most 20 of these a second.",
        labels: &[],
        samples: |view, out| {
            out.number(&[], view.worker_total(|block| &block.records.connections_unlogged));
        },
    },
    Family {
        name: "strait_slow_dropped_total",
        kind: MetricType::Counter,
        help: "Candidates for the list of slow requests that workers dropped because the queue was full.",
        labels: &[],
        samples: |view, out| {
            out.number(&[], view.worker_total(|block| &block.records.slow_dropped));
        },
    },
];
