//! Durations and sizes as they stand in a file: `250ms`, `64KiB`.
//!
//! A duration always has its unit, since a bare number has been taken for seconds by one reader
//! and for milliseconds by the next. A size may be a bare number of bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::findings::Problem;

/// A duration in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(pub Duration);

impl Period {
    /// This many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// This many seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }
}

/// Units of a duration with their length in microseconds, smallest first.
const PERIOD_UNITS: [(&str, u64); 5] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000)];

/// How a duration is written, for JSON Schema.
pub(crate) const PERIOD_PATTERN: &str = "^[0-9]+(us|ms|s|m|h)$";

impl FromStr for Period {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let (number, unit) = split(text);
        if unit.is_empty() && !number.is_empty() {
            let hint =
                format!("write \"{number}s\" for seconds or \"{number}ms\" for milliseconds");
            return Err(Problem::new("a duration needs a unit", hint));
        }
        let factor = PERIOD_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, micros)| *micros);
        let (Some(factor), false) = (factor, number.is_empty()) else {
            return Err(Problem::new(
                "a duration is a whole number with one unit",
                "write 250ms, 2s, 1m or 1h (units: us, ms, s, m, h)",
            ));
        };
        let micros = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        micros
            .map(|micros| Self(Duration::from_micros(micros)))
            .ok_or_else(|| too_large("duration"))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parsed values fit 64 bits of microseconds; constants are far smaller.
        let micros = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        let fits = |(_, factor): &&(&str, u64)| micros != 0 && micros.is_multiple_of(*factor);
        match PERIOD_UNITS.iter().rfind(fits) {
            Some((unit, factor)) => write!(f, "{}{unit}", micros / factor),
            None => f.write_str("0s"),
        }
    }
}

/// A number of bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "SizeText", into = "String")]
pub struct Size(pub u64);

impl Size {
    /// This many KiB.
    #[must_use]
    pub const fn from_kib(kib: u32) -> Self {
        // Widening; `u64::from` is not usable in constants yet.
        Self((kib as u64) << 10)
    }
}

/// Units of a size with their bytes, smallest first.
const SIZE_UNITS: [(&str, u64); 4] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// How a size with a unit is written, for JSON Schema.
pub(crate) const SIZE_PATTERN: &str = "^[0-9]+(B|KiB|MiB|GiB)?$";

impl FromStr for Size {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let (number, unit) = split(text);
        let unit = if unit.is_empty() { "B" } else { unit };
        let factor = SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes);
        let (Some(factor), false) = (factor, number.is_empty()) else {
            let meant = match unit.bytes().next().map(|b| b.to_ascii_lowercase()) {
                Some(b'k') => "KiB",
                Some(b'm') => "MiB",
                Some(b'g') => "GiB",
                _ => "",
            };
            let hint = if meant.is_empty() || number.is_empty() {
                "write 64KiB, 1MiB or a number of bytes (units: B, KiB, MiB, GiB)".to_owned()
            } else {
                format!("write \"{number}{meant}\"")
            };
            return Err(Problem::new("a size is a whole number with a binary unit", hint));
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        bytes.map(Self).ok_or_else(|| too_large("size"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, factor): &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(*factor);
        match SIZE_UNITS.iter().rfind(fits) {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => f.write_str("0B"),
        }
    }
}

/// A size before it is understood: both forms a file may have.
#[derive(Deserialize)]
#[serde(untagged)]
enum SizeText {
    Bytes(u64),
    Text(String),
}

impl TryFrom<SizeText> for Size {
    type Error = Problem;

    fn try_from(text: SizeText) -> Result<Self, Problem> {
        match text {
            SizeText::Bytes(bytes) => Ok(Self(bytes)),
            SizeText::Text(text) => text.parse(),
        }
    }
}

impl TryFrom<String> for Period {
    type Error = Problem;

    fn try_from(text: String) -> Result<Self, Problem> {
        text.parse()
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        period.to_string()
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}

/// The digits that `text` begins with, and the rest.
fn split(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at_checked(digits).unwrap_or((text, ""))
}

fn too_large(what: &str) -> Problem {
    Problem::new(format!("the {what} is too large to be counted"), "write a smaller one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_in_their_largest_whole_unit() {
        for (text, micros, shown) in [
            ("0s", 0, "0s"),
            ("7us", 7, "7us"),
            ("250ms", 250_000, "250ms"),
            ("2000ms", 2_000_000, "2s"),
            ("90s", 90_000_000, "90s"),
            ("1m", 60_000_000, "1m"),
            ("60m", 3_600_000_000, "1h"),
        ] {
            let period: Period = text.parse().unwrap();
            assert_eq!(period.0, Duration::from_micros(micros), "{text}");
            assert_eq!(period.to_string(), shown);
            assert_eq!(shown.parse(), Ok(period));
        }
    }

    #[test]
    fn a_bare_number_is_not_a_duration() {
        let problem = "5".parse::<Period>().unwrap_err();
        assert_eq!(problem.rule, "a duration needs a unit");
        assert_eq!(problem.hint, "write \"5s\" for seconds or \"5ms\" for milliseconds");
    }

    #[test]
    fn bad_durations_are_refused_with_an_example() {
        for text in ["", "s", "1.5s", "-1s", "1 s", "1S", "1sec", "1d", "1h30m", "٣s", "+1s"] {
            let problem = text.parse::<Period>().unwrap_err();
            assert!(problem.hint.contains("250ms"), "{text}");
        }
        for text in ["18446744073709551616us", "5124095577h"] {
            assert!(text.parse::<Period>().unwrap_err().rule.contains("too large"), "{text}");
        }
        assert!("18446744073709551615us".parse::<Period>().is_ok());
    }

    #[test]
    fn sizes_are_read_and_written_in_their_largest_whole_unit() {
        for (text, bytes, shown) in [
            ("0", 0, "0B"),
            ("100", 100, "100B"),
            ("7B", 7, "7B"),
            ("64KiB", 65_536, "64KiB"),
            ("1024KiB", 1 << 20, "1MiB"),
            ("3GiB", 3 << 30, "3GiB"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.0, bytes, "{text}");
            assert_eq!(size.to_string(), shown);
            assert_eq!(shown.parse(), Ok(size));
        }
    }

    #[test]
    fn decimal_and_misspelt_units_of_size_are_refused_with_the_binary_one() {
        for (text, hint) in [
            ("64KB", "write \"64KiB\""),
            ("64k", "write \"64KiB\""),
            ("1M", "write \"1MiB\""),
            ("1gb", "write \"1GiB\""),
            ("1TB", "units: B, KiB, MiB, GiB"),
            ("KiB", "units: B, KiB, MiB, GiB"),
            ("", "units: B, KiB, MiB, GiB"),
            ("-1", "units: B, KiB, MiB, GiB"),
            ("1.5MiB", "units: B, KiB, MiB, GiB"),
        ] {
            let problem = text.parse::<Size>().unwrap_err();
            assert!(problem.hint.contains(hint), "{text}: {problem}");
        }
        assert!("18446744073709551616".parse::<Size>().unwrap_err().rule.contains("too large"));
        assert!("17179869184GiB".parse::<Size>().unwrap_err().rule.contains("too large"));
    }
}
