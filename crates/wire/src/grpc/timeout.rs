//! `grpc-timeout`: how long a call may still take, as at most eight digits and a unit.
//!
//! A timeout is relative: a proxy that forwards a request after a while sends the time that is
//! left. A request without one may take for ever, so a value that cannot be read is not a short
//! timeout.

use std::fmt;
use std::time::Duration;

use crate::h1::Decimal;

/// Reads a timeout, or `None` when `value` is not one.
///
/// Zero is read, as a deadline that is over, though the grammar wants a positive number: grpc-java
/// wrote it for years, and taking it for no timeout would mean the opposite.
#[must_use]
pub fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=DIGITS_MAX).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0'));
    // Eight digits of hours are less than 2^39 seconds.
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Writes a timeout, in the finest unit that it fits.
///
/// Rounded up, by less than one part in 100,000: what is sent may outlast `timeout` and never falls
/// short of it. The other way round, an upstream would give up a call that its client still waits
/// for; a little too late costs nothing, because the proxy itself ends the call on time. Zero is
/// written as one nanosecond, since servers refuse a zero, and what is longer than 99999999 hours
/// as that.
#[must_use]
pub fn encode_timeout(timeout: Duration) -> TimeoutText {
    let nanos = timeout.as_nanos().max(1);
    let fitting = UNITS.iter().find_map(|&(unit, unit_nanos)| {
        let count = u32::try_from(nanos.div_ceil(unit_nanos)).ok()?;
        (count <= COUNT_MAX).then_some((count, unit))
    });
    let (count, unit) = fitting.unwrap_or((COUNT_MAX, b'H'));
    TimeoutText::new(count, unit)
}

/// The text of a timeout.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TimeoutText {
    text: [u8; DIGITS_MAX + 1],
    len: u8,
}

impl TimeoutText {
    /// `count` has at most [`DIGITS_MAX`] digits.
    fn new(count: u32, unit: u8) -> Self {
        let mut this = Self { text: [0; DIGITS_MAX + 1], len: 0 };
        let digits = Decimal::new(u64::from(count));
        for (place, octet) in this.text.iter_mut().zip(digits.digits().iter().chain([&unit])) {
            *place = *octet;
            this.len += 1;
        }
        this
    }

    /// The value of the field.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Debug for TimeoutText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

const DIGITS_MAX: usize = 8;

/// The largest number of [`DIGITS_MAX`] digits.
const COUNT_MAX: u32 = 99_999_999;

/// Units and their nanoseconds, the finest first.
const UNITS: [(u8, u128); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', 1_000_000_000),
    (b'M', 60_000_000_000),
    (b'H', 3_600_000_000_000),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_digits_and_a_unit() {
        for (value, expected) in [
            (&b"1H"[..], Some(Duration::from_secs(3600))),
            (b"2M", Some(Duration::from_secs(120))),
            (b"3S", Some(Duration::from_secs(3))),
            (b"4m", Some(Duration::from_millis(4))),
            (b"5u", Some(Duration::from_micros(5))),
            (b"6n", Some(Duration::from_nanos(6))),
            (b"0n", Some(Duration::ZERO)),
            (b"00000001S", Some(Duration::from_secs(1))),
            (b"99999999n", Some(Duration::from_nanos(99_999_999))),
            (b"99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            (b"", None),
            (b"S", None),
            (b"1", None),
            (b"000000001S", None),
            (b"100000000n", None),
            (b"1s", None),
            (b"1h", None),
            (b"1U", None),
            (b"-1S", None),
            (b"+1S", None),
            (b"1.5S", None),
            (b"1 S", None),
            (b" 1S", None),
            (b"1S ", None),
            (b"1SS", None),
            (b"1mS", None),
            (b"\xd9\xa1S", None),
        ] {
            assert_eq!(parse_timeout(value), expected, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn a_timeout_is_written_in_the_finest_unit_and_rounded_up() {
        for (timeout, expected) in [
            (Duration::ZERO, &b"1n"[..]),
            (Duration::from_nanos(1), b"1n"),
            (Duration::from_nanos(10), b"10n"),
            (Duration::from_nanos(99_999_999), b"99999999n"),
            (Duration::from_nanos(100_000_000), b"100000u"),
            (Duration::from_nanos(100_000_001), b"100001u"),
            (Duration::from_secs(1), b"1000000u"),
            (Duration::from_micros(99_999_999), b"99999999u"),
            // Rounded up, it needs the next unit.
            (Duration::from_nanos(99_999_999_001), b"100000m"),
            (Duration::from_secs(100), b"100000m"),
            (Duration::from_secs(99_999), b"99999000m"),
            (Duration::from_secs(100_000), b"100000S"),
            (Duration::from_secs(99_999_999), b"99999999S"),
            (Duration::from_secs(100_000_000), b"1666667M"),
            (Duration::from_secs(99_999_999 * 60 + 1), b"1666667H"),
            (Duration::from_secs(99_999_999 * 3600), b"99999999H"),
            (Duration::from_secs(99_999_999 * 3600 + 1), b"99999999H"),
            (Duration::MAX, b"99999999H"),
        ] {
            let text = encode_timeout(timeout);
            assert_eq!(text.as_bytes(), expected, "{timeout:?}");
            assert_eq!(format!("{text:?}").as_bytes(), expected);
        }
    }
}
