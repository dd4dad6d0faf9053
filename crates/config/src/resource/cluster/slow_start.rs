//! `slow_start` of a cluster: what an endpoint gets that came lately.
//!
//! Its share grows from `weight_min` to all of its weight over `window`, as Envoy's does: by the part of the window that
//! has passed, to the power of one by `aggression`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decimal::Decimal;
use crate::percent::Percent;
use crate::units::Period;

/// The share of a new endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowStart {
    /// How long an endpoint gets less than its weight, after a configuration, an endpoint file or DNS added it. The
    /// endpoints that a process starts with have their full weights at once.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub window: Period,
    /// How fast the share grows: evenly with 1, faster at the beginning with more.
    #[serde(default = "aggression")]
    pub aggression: Decimal,
    /// Minimum share of its weight.
    #[serde(default = "weight_min")]
    pub weight_min: Percent,
}

fn aggression() -> Decimal {
    Decimal::ONE
}

fn weight_min() -> Percent {
    Percent::TENTH
}

impl SlowStart {
    /// The chance, as a part of 2^64, with which an endpoint of this age is taken when it is drawn; none once it has all of
    /// its weight.
    #[must_use]
    pub fn chance(&self, age: Duration) -> Option<u64> {
        let window = self.window.0;
        if age >= window {
            return None;
        }
        let passed = age.as_secs_f64() / window.as_secs_f64();
        let part = passed.powf(1.0 / self.aggression.value()).max(self.weight_min.part());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a part of 1, of which the last bits do not matter"
        )]
        Some((part * u64::MAX as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_from_the_least_to_all() {
        let part = |aggression: &str, millis: u64| {
            let slow_start = SlowStart {
                window: Period::from_secs(10),
                aggression: aggression.parse().unwrap(),
                weight_min: "10".parse().unwrap(),
            };
            let chance = slow_start.chance(Duration::from_millis(millis));
            chance.map(|chance| (chance as f64 / u64::MAX as f64 * 1_000.0).round() / 1_000.0)
        };
        for (aggression, millis, expected) in [
            ("1.0", 0, Some(0.1)),
            ("1", 999, Some(0.1)),
            ("1", 5_000, Some(0.5)),
            ("1", 9_999, Some(1.0)),
            ("1", 10_000, None),
            ("2", 2_500, Some(0.5)),
            ("0.5", 5_000, Some(0.25)),
        ] {
            assert_eq!(part(aggression, millis), expected, "{aggression} after {millis} ms");
        }
    }
}
