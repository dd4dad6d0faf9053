//! Shares of requests: `10`, `0.5`, `10%`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::decimal::written;
use crate::findings::Problem;

/// A share in millionths, up to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u32);

/// Millionths of a percent point.
const POINT: u32 = 10_000;

/// All of them.
const WHOLE: u32 = 100 * POINT;

/// How a share is written, for JSON Schema.
const PERCENT_PATTERN: &str = "^[0-9]+(\\.[0-9]{1,4})?%?$";

impl Percent {
    /// One of ten.
    pub(crate) const TENTH: Self = Self::of_points(10);

    /// One of five.
    pub(crate) const FIFTH: Self = Self::of_points(20);

    /// Half.
    pub(crate) const HALF: Self = Self::of_points(50);

    /// So many percent, at most 100.
    pub(crate) const fn of_points(points: u32) -> Self {
        debug_assert!(points <= 100, "at most all");
        Self(points * POINT)
    }

    /// So many millionths; none if that is more than all of them.
    pub(crate) const fn of_millionths(millionths: u32) -> Option<Self> {
        if millionths <= WHOLE { Some(Self(millionths)) } else { None }
    }

    /// In millionths.
    pub(crate) const fn millionths(self) -> u32 {
        self.0
    }

    /// As a part of 1.
    pub(crate) fn part(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// Whether a request with this die is within the share. One with a larger share holds for all dice for which
    /// one with a smaller share holds.
    #[must_use]
    pub const fn holds(self, die: u64) -> bool {
        die % (WHOLE as u64) < self.0 as u64
    }

    /// The share that a die stands at: larger shares hold.
    #[must_use]
    pub fn of_die(die: u64) -> Self {
        Self(u32::try_from(die % u64::from(WHOLE)).unwrap_or(WHOLE))
    }

    /// Whether it is none of them.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether it is all of them.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.0 == WHOLE
    }
}

impl FromStr for Percent {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let rule = "a share is a number of percent, with up to four digits behind the point";
        let hint = "write 10, 0.5 or 10%";
        let number = text.strip_suffix('%').unwrap_or(text);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) || part.len() > 4 {
            return Err(Problem::new(rule, hint));
        }
        let part = format!("{part:0<4}").parse::<u32>().ok();
        let whole = whole.parse::<u32>().ok().and_then(|whole| whole.checked_mul(POINT));
        let sum = whole.zip(part).and_then(|(whole, part)| whole.checked_add(part));
        match sum.filter(|sum| *sum <= WHOLE) {
            Some(sum) => Ok(Self(sum)),
            None => Err(Problem::new("a share is at most 100 %", "write 100 for all of them")),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / POINT, self.0 % POINT);
        if part == 0 {
            return write!(f, "{whole}%");
        }
        let part = format!("{part:04}");
        write!(f, "{whole}.{}%", part.trim_end_matches('0'))
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Percent {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "pattern": PERCENT_PATTERN,
            "minimum": 0,
            "maximum": 100,
            "x-format": "percent",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_written_in_percent() {
        for (text, millionths, shown) in [
            ("0", 0, "0%"),
            ("10", 100_000, "10%"),
            ("10%", 100_000, "10%"),
            ("0.5", 5_000, "0.5%"),
            ("0.0001%", 1, "0.0001%"),
            ("99.9999", 999_999, "99.9999%"),
            ("100.0000", 1_000_000, "100%"),
        ] {
            let percent: Percent = text.parse().unwrap();
            assert_eq!(percent, Percent(millionths), "{text}");
            assert_eq!(percent.to_string(), shown);
            assert_eq!(shown.parse(), Ok(percent));
        }
        for text in
            ["", "%", ".5", "5.", "1e1", "-1", "0.00001", "100.0001", "101", "99999999999", "٣"]
        {
            assert!(text.parse::<Percent>().is_err(), "{text}");
        }
    }

    #[test]
    fn as_many_dice_hold_as_the_share_says() {
        for (percent, expected) in [("0", 0), ("0.01", 100), ("25", 250_000), ("100", 1_000_000)] {
            let percent: Percent = percent.parse().unwrap();
            assert_eq!((0..1_000_000).filter(|die| percent.holds(*die)).count(), expected);
            assert!(!percent.holds(u64::MAX) || percent.0 > Percent::of_die(u64::MAX).0);
        }
    }
}
