//! `outlier` of a cluster: endpoints whose attempts fail get no requests for a while.
//!
//! Words, meanings and defaults are those of Envoy's `outlier_detection`, with these differences. What counts has a bound,
//! and what has none does not count: there are no percentages of enforcement. `errors_local` tells whether attempts without a
//! response are counted apart (Envoy's `split_external_local_origin_errors`). One endpoint may always be ejected, however small
//! the cluster. A time of ejection varies by chance by up to a tenth. A call of gRPC counts when its status is there, which
//! may be behind its body.

mod detector;

use std::sync::atomic::{AtomicU32, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::detector::{Detector, Ejected, Event, Happened, Remembered};
use crate::decimal::Decimal;
use crate::percent::Percent;
use crate::resource::cluster::health::EndpointHealth;
use crate::units::Period;

/// When an endpoint is ejected, and for how long. Counts include all workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "base_ejection_time": "write `ejection: { base: … }`",
    "consecutive_5xx": "write `errors_5xx`",
    "consecutive_gateway_failure": "write `errors_gateway`",
    "consecutive_local_origin_failure": "write `errors_local`",
    "max_ejection_percent": "write `ejection: { share_max: … }`",
    "max_ejection_time": "write `ejection: { max: … }`",
    "split_external_local_origin_errors": "write `errors_local`",
}))]
pub struct Outlier {
    /// Number of responses in a row with a status of 500 or more. Attempts without a response count, too, unless
    /// `errors_local` counts them. 0 disables it.
    pub errors_5xx: u32,
    /// Number of responses in a row with 502, 503 or 504. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub errors_gateway: Option<u32>,
    /// Number of attempts in a row without a response: no connection, a closed connection, a timeout. Absent: each
    /// counts as the status that its client gets, 502, 503 or 504.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub errors_local: Option<u32>,
    /// How often the endpoints of the cluster are compared. With each interval without an ejection, one earlier
    /// ejection of an endpoint is forgotten.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub interval: Period,
    /// Duration and number of ejections.
    pub ejection: Ejection,
    /// At each interval, ejects endpoints whose share of responses below 500 is well below that of the others. Absent:
    /// off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<SuccessRate>,
    /// At each interval, ejects endpoints whose share of failed attempts is too high. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_percentage: Option<FailurePercentage>,
}

impl Default for Outlier {
    fn default() -> Self {
        Self {
            errors_5xx: 5,
            errors_gateway: None,
            errors_local: None,
            interval: Period::from_secs(10),
            ejection: Ejection::default(),
            success_rate: None,
            failure_percentage: None,
        }
    }
}

/// Duration and number of ejections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ejection {
    /// Duration of the first ejection; the second takes twice as long, the third three times, and so on.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub base: Period,
    /// Maximum duration of an ejection.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub max: Period,
    /// Share of the cluster's endpoints that may be ejected at a time. One endpoint may always be ejected.
    pub share_max: Percent,
}

impl Default for Ejection {
    fn default() -> Self {
        Self { base: Period::from_secs(30), max: Period::from_secs(300), share_max: Percent::TENTH }
    }
}

/// The comparison of success rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuccessRate {
    /// Ejects endpoints whose rate is below the average by more than this number of standard deviations.
    pub stdev: Decimal,
    /// Minimum number of endpoints with enough attempts for a comparison.
    #[schemars(range(min = 1))]
    pub endpoints: u32,
    /// Minimum number of attempts in an interval.
    #[schemars(range(min = 1))]
    pub requests: u32,
}

impl Default for SuccessRate {
    fn default() -> Self {
        Self { stdev: Decimal::of_thousandths(1_900), endpoints: 5, requests: 100 }
    }
}

/// The limit on the share of failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FailurePercentage {
    /// Ejects endpoints with at least this share of failed attempts.
    pub threshold: Percent,
    /// Minimum number of endpoints with enough attempts.
    #[schemars(range(min = 1))]
    pub endpoints: u32,
    /// Minimum number of attempts in an interval.
    #[schemars(range(min = 1))]
    pub requests: u32,
}

impl Default for FailurePercentage {
    fn default() -> Self {
        Self { threshold: Percent::of_points(85), endpoints: 5, requests: 50 }
    }
}

/// Why an endpoint is ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutlierKind {
    /// `errors_5xx`.
    Errors5xx,
    /// `errors_gateway`.
    ErrorsGateway,
    /// `errors_local`.
    ErrorsLocal,
    /// `success_rate`.
    SuccessRate,
    /// `failure_percentage`.
    FailurePercentage,
}

impl OutlierKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Errors5xx,
        Self::ErrorsGateway,
        Self::ErrorsLocal,
        Self::SuccessRate,
        Self::FailurePercentage,
    ];

    /// The option that it is of.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Errors5xx => "errors_5xx",
            Self::ErrorsGateway => "errors_gateway",
            Self::ErrorsLocal => "errors_local",
            Self::SuccessRate => "success_rate",
            Self::FailurePercentage => "failure_percentage",
        }
    }
}

/// How an attempt at an endpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// A response with this status; of a call of gRPC, the one that its own status stands for.
    Response(u16),
    /// No response, or none that is whole; its client gets this status.
    NoResponse(u16),
}

impl Outlier {
    /// Counts how an attempt ended. Gives what the endpoint is to be ejected for, if a bound is reached by that: to one of
    /// the workers that count at the same time, and once until the [`Detector`] has settled it.
    #[must_use]
    pub fn count(&self, health: &EndpointHealth, result: AttemptResult) -> Option<OutlierKind> {
        if health.is_ejected() {
            // Of what was under way before.
            return None;
        }
        let (AttemptResult::Response(status) | AttemptResult::NoResponse(status)) = result;
        let is_counted_apart =
            self.errors_local.is_some() && matches!(result, AttemptResult::NoResponse(_));
        let has_failed = status >= 500;
        if self.success_rate.is_some() || self.failure_percentage.is_some() {
            health.count(!has_failed);
        }
        let [all, gateway, local] = &health.streaks;
        let (of_gateway, of_local) =
            (self.errors_gateway.unwrap_or(0), self.errors_local.unwrap_or(0));
        let reached = if is_counted_apart {
            streak(local, of_local, true).then_some(OutlierKind::ErrorsLocal)
        } else {
            streak(local, of_local, false);
            let reaches_all = streak(all, self.errors_5xx, has_failed);
            let reaches_gateway = streak(gateway, of_gateway, matches!(status, 502..=504));
            match (reaches_all, reaches_gateway) {
                (true, _) => Some(OutlierKind::Errors5xx),
                (false, true) => Some(OutlierKind::ErrorsGateway),
                (false, false) => None,
            }
        };
        reached.filter(|_| health.report())
    }
}

/// Counts failures in a row: whether there are as many as may be. Then they are counted anew, so that the next time takes
/// as many again, and one of the workers that count at the same time says it.
fn streak(failures: &AtomicU32, max: u32, has_failed: bool) -> bool {
    if max == 0 || (!has_failed && failures.load(Ordering::Relaxed) == 0) {
        return false;
    }
    let is_reached = has_failed && failures.fetch_add(1, Ordering::Relaxed) + 1 >= max;
    if is_reached || !has_failed {
        failures.store(0, Ordering::Relaxed);
    }
    is_reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(policy: &Outlier, results: &[AttemptResult]) -> Vec<Option<OutlierKind>> {
        let health = EndpointHealth::default();
        results.iter().map(|result| policy.count(&health, *result)).collect()
    }

    #[test]
    fn failures_in_a_row_reach_the_bound_of_their_kind() {
        use AttemptResult::{NoResponse, Response};
        use OutlierKind::{Errors5xx, ErrorsGateway, ErrorsLocal};
        let together = Outlier { errors_5xx: 3, ..Outlier::default() };
        let gateway = Outlier { errors_5xx: 0, errors_gateway: Some(2), ..Outlier::default() };
        let apart = Outlier { errors_5xx: 3, errors_local: Some(2), ..Outlier::default() };
        for (policy, results, expected) in [
            (&together, &[Response(500), Response(503), NoResponse(503)][..], Some(Errors5xx)),
            (&together, &[Response(500), Response(500), Response(404), Response(500)], None),
            (&gateway, &[Response(502), Response(500), Response(502)], None),
            (&gateway, &[Response(502), NoResponse(504)], Some(ErrorsGateway)),
            (
                &apart,
                &[Response(500), NoResponse(503), Response(500), Response(500)],
                Some(Errors5xx),
            ),
            (&apart, &[NoResponse(503), Response(500), NoResponse(503)], None),
            (&apart, &[NoResponse(503), NoResponse(502)], Some(ErrorsLocal)),
        ] {
            let (last, before) = results.split_last().unwrap();
            let reached = reached(policy, results);
            assert!(
                reached[..before.len()].iter().all(Option::is_none),
                "{results:?}: {reached:?}"
            );
            assert_eq!(*reached.last().unwrap(), expected, "{results:?}, {last:?}");
        }
    }

    #[test]
    fn a_bound_is_reported_once_until_it_is_settled_and_not_of_an_ejected_endpoint() {
        let policy = Outlier { errors_5xx: 2, ..Outlier::default() };
        let all = reached(&policy, &[AttemptResult::Response(500); 6]);
        let once = Some(OutlierKind::Errors5xx);
        assert_eq!(all, [None, once, None, None, None, None]);
        let health = EndpointHealth::default();
        for _ in 0..3 {
            assert_eq!(policy.count(&health, AttemptResult::Response(500)), None);
            assert_eq!(policy.count(&health, AttemptResult::Response(500)), once);
            health.settle();
        }
        let health = EndpointHealth::default();
        health.set_ejected(true);
        for _ in 0..4 {
            assert_eq!(policy.count(&health, AttemptResult::Response(500)), None);
        }
    }
}
