//! What happened, and what is counted from it.
//!
//! The data path emits typed events; it names no counter and writes no log line. Counters,
//! histograms, the access log and the list of slow requests are derived here, beside the event
//! types, so that they cannot disagree.
#![forbid(unsafe_code)]

pub mod cause;
pub mod events;
