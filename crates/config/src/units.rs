//! Durations and sizes as they stand in a file: `250ms`, `64KiB`.
//!
//! A duration always has its unit, since a bare number has been taken for seconds by one reader
//! and for milliseconds by the next. Several parts add up, as in Go: `1m30s`. A size may be a bare
//! number of bytes.

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
const PERIOD_UNITS: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// Spellings of units that other programs take.
const PERIOD_ALIASES: [(&str, &str); 22] = [
    ("usec", "us"),
    ("µs", "us"),
    ("μs", "us"),
    ("msec", "ms"),
    ("millisecond", "ms"),
    ("milliseconds", "ms"),
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("min", "m"),
    ("mins", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("hr", "h"),
    ("hour", "h"),
    ("hours", "h"),
    ("day", "d"),
    ("days", "d"),
    ("w", "w"),
    ("week", "w"),
    ("weeks", "w"),
];

/// How a duration is written, for JSON Schema.
pub(crate) const PERIOD_PATTERN: &str = "^([0-9]+(us|ms|s|m|h|d))+$";

impl FromStr for Period {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            let hint = if text.bytes().all(|b| b == b'0') {
                "write 0s".to_owned()
            } else {
                format!("write \"{text}s\" for seconds or \"{text}ms\" for milliseconds")
            };
            return Err(Problem::new("a duration needs a unit", hint));
        }
        let Some(parts) = parts(text) else {
            let rule = "a duration is a whole number with a unit, or several of them";
            let hint = match meant_period(text) {
                Some(period) => format!("write \"{period}\""),
                None => "write 250ms, 2s, 1m30s, 1h or 2d (units: us, ms, s, m, h, d)".to_owned(),
            };
            return Err(Problem::new(rule, hint));
        };
        let micros = parts.into_iter().try_fold(0_u64, |sum, (number, factor)| {
            sum.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)
        });
        micros
            .map(|micros| Self(Duration::from_micros(micros)))
            .ok_or_else(|| too_large("duration"))
    }
}

/// The numbers of a duration, each with its unit in microseconds; none if it is not written as one.
fn parts(mut text: &str) -> Option<Vec<(&str, u64)>> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (number, rest) = split(text);
        let unit = rest.bytes().take_while(|b| !b.is_ascii_digit()).count();
        let (unit, rest) = rest.split_at_checked(unit)?;
        let (_, factor) = PERIOD_UNITS.iter().find(|(name, _)| *name == unit)?;
        if number.is_empty() {
            return None;
        }
        parts.push((number, *factor));
        text = rest;
    }
    (!parts.is_empty()).then_some(parts)
}

/// The duration that was meant by something like `1.5s`, `30 sec` or `1min 30s`.
fn meant_period(text: &str) -> Option<Period> {
    let text: String = text.to_lowercase().split_whitespace().collect();
    let mut rest = text.as_str();
    let mut secs = 0.0;
    while !rest.is_empty() {
        let number = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, after) = rest.split_at_checked(number)?;
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit)?;
        secs += number.parse::<f64>().ok()? * meant_unit(unit)?.as_secs_f64();
        rest = after;
    }
    // Beyond this, and below a microsecond, a float does not say what was meant.
    let is_sound = (1e-6..MEANT_SECS_MAX).contains(&secs);
    is_sound.then(|| {
        Period(Duration::from_micros(
            Duration::from_secs_f64(secs).as_micros().try_into().unwrap_or(0),
        ))
    })
}

/// The length of a unit in any of its spellings.
fn meant_unit(unit: &str) -> Option<Duration> {
    let unit = PERIOD_ALIASES.iter().find(|(alias, _)| *alias == unit).map_or(unit, |(_, it)| it);
    if unit == "w" {
        return Some(Duration::from_hours(7 * 24));
    }
    let (_, micros) = PERIOD_UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_micros(*micros))
}

/// Ten years: what was meant beyond it is not guessed.
const MEANT_SECS_MAX: f64 = 3_650.0 * 86_400.0;

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parsed values fit 64 bits of microseconds; constants are far smaller.
        let micros = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        // Without days: `36h` and `24h` are easier to compare.
        let fits = |(unit, factor): &&(&str, u64)| {
            micros != 0 && *unit != "d" && micros.is_multiple_of(*factor)
        };
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
            let hint = if let Some(bytes) = whole_number(text) {
                format!("write {bytes}")
            } else if meant.is_empty() || number.is_empty() || !unit.bytes().all(is_letter) {
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

const fn is_letter(b: u8) -> bool {
    b.is_ascii_alphabetic()
}

/// The whole number that is written as a float, such as `1e6` or `10.0`, up to what a float holds exactly.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    let is_float_byte = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+');
    if !text.starts_with(|c: char| c.is_ascii_digit()) || !text.bytes().all(is_float_byte) {
        return None;
    }
    let float: f64 = text.parse().ok()?;
    let is_exact = float.fract() == 0.0 && float < 9e15;
    // Written out, since no conversion of floats is checked.
    if is_exact { format!("{float:.0}").parse().ok() } else { None }
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
            ("1m30s", 90_000_000, "90s"),
            ("1h30m", 5_400_000_000, "90m"),
            ("1s500ms", 1_500_000, "1500ms"),
            ("2d", 172_800_000_000, "48h"),
            ("1d12h", 129_600_000_000, "36h"),
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
        for text in ["", "s", "-1s", "1x", "٣s", "+1s", "1m30", "never", "1..5s", "m30s", "0.1us"]
        {
            let problem = text.parse::<Period>().unwrap_err();
            assert!(problem.hint.contains("250ms"), "{text}");
        }
        for (text, meant) in [
            ("1.5s", "1500ms"),
            ("0.25h", "15m"),
            ("1 s", "1s"),
            ("1S", "1s"),
            ("30sec", "30s"),
            ("1min 30s", "90s"),
            ("5 minutes", "5m"),
            ("1w", "168h"),
            ("20µs", "20us"),
        ] {
            let problem = text.parse::<Period>().unwrap_err();
            assert_eq!(problem.hint, format!("write \"{meant}\""), "{text}");
            assert!(meant.parse::<Period>().is_ok());
        }
        assert_eq!("00".parse::<Period>().unwrap_err().hint, "write 0s");
        for text in ["18446744073709551616us", "5124095577h", "18446744073709551615us1us"] {
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
            ("1e6", "write 1000000"),
            ("10.0", "write 10"),
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
