//! Numbers with a few digits behind the point, kept exactly as they were written: `1.9`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::findings::Problem;

/// A number from 0.001 to 100, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal(u32);

/// How it is written, for JSON Schema.
const DECIMAL_PATTERN: &str =
    "^(0\\.(00[1-9]|0[1-9][0-9]?|[1-9][0-9]{0,2})|[1-9][0-9]?(\\.[0-9]{1,3})?|100(\\.0{1,3})?)$";

impl Decimal {
    /// 1.
    pub(crate) const ONE: Self = Self(1_000);

    /// The largest.
    const MAX: u32 = 100_000;

    /// So many thousandths, at least one and at most 100,000.
    pub(crate) const fn of_thousandths(thousandths: u32) -> Self {
        debug_assert!(thousandths > 0 && thousandths <= Self::MAX, "within the bounds");
        Self(thousandths)
    }

    /// The number times 1,000, which is whole.
    pub(crate) const fn thousandths(self) -> u32 {
        self.0
    }

    /// As a number to calculate with.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

impl FromStr for Decimal {
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

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = format!("{:03}", self.0 % 1_000);
        let part = part.trim_end_matches('0');
        write!(f, "{}.{}", self.0 / 1_000, if part.is_empty() { "0" } else { part })
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The text of what may be written as a number or as a text.
pub(crate) fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Whole(u64),
        Number(f64),
        Text(String),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::Whole(number) => number.to_string(),
        // As short as it was written: its digits come back.
        Written::Number(number) => number.to_string(),
        Written::Text(text) => text,
    })
}

impl JsonSchema for Decimal {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Decimal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "pattern": DECIMAL_PATTERN,
            "minimum": 0.001,
            "maximum": 100,
            "x-format": "decimal",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_a_number_above_zero() {
        for (text, shown) in
            [("1", "1.0"), ("1.0", "1.0"), ("0.001", "0.001"), ("100", "100.0"), ("2.50", "2.5")]
        {
            assert_eq!(text.parse::<Decimal>().unwrap().to_string(), shown);
        }
        for text in ["", "0", "0.0", "-1", "100.001", "1.0001", "1e1", ".5", "5.", "٣"] {
            assert!(text.parse::<Decimal>().is_err(), "{text}");
        }
    }
}
