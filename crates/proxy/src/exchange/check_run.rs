//! A health check on its way: what is asked, and what is known of the answer.

use std::sync::Arc;
use std::time::Duration;

use config::checks::{ANSWER_BYTES_MAX, CheckResult, FailureWeight, HealthCheck, Probe};
use config::snapshot::EndpointId;

use crate::connection::check_target::CheckTarget;

/// A health check on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckRun {
    /// Given back with the result.
    pub(crate) number: u64,
    pub(crate) endpoint: EndpointId,
    /// The checks of the cluster as it was when this one began, and which of them it is.
    pub(crate) checks: Arc<[HealthCheck]>,
    pub(crate) place: usize,
    /// The beginning of what the endpoint sent, if that is looked at.
    pub(crate) body: Vec<u8>,
    /// Bytes that the endpoint sent.
    pub(crate) received: usize,
    /// What is known before its exchange is over.
    pub(crate) verdict: Option<CheckResult>,
    /// Whether the endpoint said that it is degraded.
    pub(crate) is_degraded: bool,
    /// Whether the endpoint said that it is not healthy.
    pub(crate) has_failed_itself: bool,
}

impl CheckRun {
    pub(crate) fn check(&self) -> Option<&HealthCheck> {
        self.checks.get(self.place)
    }

    /// Where it goes.
    pub(crate) fn target(&self) -> CheckTarget {
        let port = self.check().and_then(|check| check.port);
        CheckTarget { endpoint: self.endpoint, port }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.check().map_or(Duration::ZERO, |check| check.timeout)
    }

    /// Bytes came. Returns whether nothing more is to be waited for.
    pub(crate) fn take(&mut self, data: &[u8]) -> bool {
        let Some(check) = self.checks.get(self.place) else { return true };
        self.received = self.received.saturating_add(data.len());
        let room = check.probe.kept_bytes_max().saturating_sub(self.body.len());
        self.body.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
        if matches!(check.probe, Probe::Tcp { .. }) && self.verdict.is_none() {
            let is_full = self.received >= ANSWER_BYTES_MAX;
            self.verdict = match check.probe.has_come(&self.body) {
                true => Some(CheckResult::Passed),
                false if is_full => {
                    let reason = "what was expected did not come in the first 64 KiB".into();
                    Some(CheckResult::Failed { reason, weight: FailureWeight::Usual })
                }
                false => None,
            };
        }
        self.verdict.is_some() || self.received >= ANSWER_BYTES_MAX
    }
}
