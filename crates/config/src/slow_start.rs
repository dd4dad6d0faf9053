//! `slow_start` of a cluster: what an endpoint gets that came lately.
//!
//! Its share grows from `weight_min` to all of its weight over `window`, as Envoy's does: by the part of the window that
//! has passed, to the power of one by `aggression`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::findings::Problem;
use crate::matching::Percent;
use crate::units::Period;

/// The share of an endpoint that came lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowStart {
    /// How long an endpoint gets less than its weight says, from when a configuration, a file of endpoints or DNS brought
    /// it. Those of the configuration that a process starts with get all at once.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub window: Period,
    /// How fast the share grows: evenly with 1, faster at the beginning with more.
    #[serde(default)]
    pub aggression: Aggression,
    /// The share of its weight that it gets at least.
    #[serde(default = "weight_min")]
    pub weight_min: Percent,
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
        let part = passed.powf(self.aggression.exponent()).max(self.weight_min.part());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a part of 1, of which the last bits do not matter"
        )]
        Some((part * u64::MAX as f64) as u64)
    }
}

/// A number above 0, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggression(u32);

/// How it is written, for JSON Schema: from 0.001 to 100.
const AGGRESSION_PATTERN: &str =
    "^(0\\.(00[1-9]|0[1-9][0-9]?|[1-9][0-9]{0,2})|[1-9][0-9]?(\\.[0-9]{1,3})?|100(\\.0{1,3})?)$";

impl Default for Aggression {
    fn default() -> Self {
        Self(1_000)
    }
}

impl Aggression {
    /// The largest.
    const MAX: u32 = 100_000;

    /// One by it.
    fn exponent(self) -> f64 {
        1_000.0 / f64::from(self.0)
    }
}

impl FromStr for Aggression {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = (is_digits(whole) && is_digits(part) && part.len() <= 3)
            .then(|| format!("{whole}{part:0<3}").parse::<u32>().ok())
            .flatten();
        match number {
            Some(number @ 1..=Self::MAX) => Ok(Self(number)),
            _ => {
                let rule = "a number from 0.001 to 100, with up to three digits behind the point";
                Err(Problem::new(rule, "write 1.0, for instance"))
            }
        }
    }
}

impl fmt::Display for Aggression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = format!("{:03}", self.0 % 1_000);
        let part = part.trim_end_matches('0');
        write!(f, "{}.{}", self.0 / 1_000, if part.is_empty() { "0" } else { part })
    }
}

impl Serialize for Aggression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Aggression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Whole(u64),
            Number(f64),
            Text(String),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Whole(number) => number.to_string(),
            // As short as it was written: its digits come back.
            Written::Number(number) => number.to_string(),
            Written::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Aggression {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Aggression".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "pattern": AGGRESSION_PATTERN,
            "minimum": 0.001,
            "maximum": 100,
            "x-format": "aggression",
        })
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

    #[test]
    fn aggression_is_a_number_above_zero() {
        for (text, shown) in
            [("1", "1.0"), ("1.0", "1.0"), ("0.001", "0.001"), ("100", "100.0"), ("2.50", "2.5")]
        {
            assert_eq!(text.parse::<Aggression>().unwrap().to_string(), shown);
        }
        for text in ["", "0", "0.0", "-1", "100.001", "1.0001", "1e1", ".5", "5.", "٣"] {
            assert!(text.parse::<Aggression>().is_err(), "{text}");
        }
    }
}
