//! Events of the data path, and the metrics and logs that are derived from them.
//!
//! The data path emits typed events; it names no counter and writes no log line but those of the debug log.
//! Counters, histograms, the access log and the list of slow requests are derived here, beside the event
//! types, so that they cannot disagree.
//!
//! ```text
//!   worker: Emitter ──counters──────────► Collector ──► /metrics, /stats      control
//!              │     ──new blocks─queue──►    ▲
//!              │                            Names
//!              │                              ▼
//!              ├─────records──byte queue─► LogReader ──► access log, /slow
//!              └─debug lines──byte queue─►    │ ──► log, if its level is debug
//! ```
//!
//! Each [`Emitter`] is owned by one worker and never waits; what does not fit into its queues is
//! dropped and counted.
#![forbid(unsafe_code)]

pub mod cause;
pub mod events;

mod access_log;
mod block;
pub mod captures;
mod cell;
mod collector;
mod counters;
mod debug_lines;
mod emitter;
mod exposition;
mod failures;
mod former;
mod histogram;
mod log_reader;
mod log_record;
mod loops;
mod metrics;
mod names;
mod process;
mod readings;
#[cfg(test)]
mod sample;
mod slow;
mod totals;

pub use access_log::style::{LogCondition, LogField, LogFormat, LogStyle};
pub use access_log::{field_names as log_field_names, reference as access_log_reference};
pub use collector::Collector;
pub use counters::endpoint::{ENDPOINTS_PER_BLOCK, EndpointError, EndpointTotals};
pub use debug_lines::DebugSource;
pub use emitter::{CounterSource, Emitter, LOG_QUEUE_BYTES, LogRecordSource, Reports};
pub use exposition::Glob;
pub use failures::{FailureOf, FailureWarning};
pub use former::FormerTotals;
pub use log_reader::{LogReader, Polled};
pub use log_record::FAILED_ATTEMPTS_BYTES_MAX;
pub use metrics::reference as metrics_reference;
pub use names::{EndpointName, Names, RouteNames, WeightedName};
pub use process::ProcessFacts;
pub use readings::Readings;
pub use totals::{ClusterTotals, ListenerTotals, SourceTotals};
