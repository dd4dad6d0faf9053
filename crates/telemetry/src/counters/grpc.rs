//! Calls of gRPC by their status, of a listener or a cluster.

use crate::cell::Counter;
use crate::events::GrpcCall;

/// A counter for each status; the last is for calls without one.
#[derive(Debug, Default)]
pub(crate) struct GrpcCalls([Counter; GrpcCall::STATUSES.len() + 1]);

impl GrpcCalls {
    pub(crate) fn increment(&self, call: GrpcCall) {
        let none = GrpcCall::STATUSES.len();
        let place = call.status.map_or(none, usize::from).min(none);
        if let Some(calls) = self.0.get(place) {
            calls.increment();
        }
    }

    /// `OK`, and each other status that occurred, with how often in all of these.
    pub(crate) fn each<'c, I: Iterator<Item = &'c Self>>(
        all: impl Fn() -> I,
        mut report: impl FnMut(&'static str, u64),
    ) {
        for (place, name) in GrpcCall::STATUSES.iter().chain(&["none"]).enumerate() {
            let count = all().filter_map(|calls| calls.0.get(place)).map(Counter::value).sum();
            if count > 0 || place == 0 {
                report(name, count);
            }
        }
    }
}
