//! How `%START_TIME(...)%` writes a time, in UTC.

use std::io::Write as _;

use crate::date;
use crate::findings::Problem;

/// What a time is put together of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimeFormat(Box<[Piece]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    /// Seconds since 1970.
    Epoch,
    /// So many digits of the second's fraction.
    Fraction(u32),
}

/// As Envoy writes a time without a format.
const DEFAULT: &str = "%Y-%m-%dT%H:%M:%S.%3fZ";

impl Default for TimeFormat {
    fn default() -> Self {
        Self::parse(DEFAULT).expect("the default is a format")
    }
}

impl TimeFormat {
    /// Reads a format of strftime, as far as Envoy and logs use it.
    ///
    /// # Errors
    ///
    /// A sign behind `%` that is not known.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('%') {
            push_text(&mut pieces, before);
            let len = match behind.as_bytes() {
                [b'1'..=b'9', b'f', ..] => 2,
                [..] => behind.chars().next().map_or(0, char::len_utf8),
            };
            let (sign, behind) = behind.split_at(len);
            match sign {
                "Y" => pieces.push(Piece::Year),
                "m" => pieces.push(Piece::Month),
                "d" => pieces.push(Piece::Day),
                "H" => pieces.push(Piece::Hour),
                "M" => pieces.push(Piece::Minute),
                "S" => pieces.push(Piece::Second),
                "s" => pieces.push(Piece::Epoch),
                "f" => pieces.push(Piece::Fraction(9)),
                "F" => pieces.extend(Self::parse("%Y-%m-%d")?.0),
                "T" => pieces.extend(Self::parse("%H:%M:%S")?.0),
                "%" => push_text(&mut pieces, "%"),
                _ => match sign.strip_suffix('f').and_then(|digits| digits.parse().ok()) {
                    Some(digits) => pieces.push(Piece::Fraction(digits)),
                    None => {
                        let rule = format!("`%{sign}` is no part of a time that is known");
                        let hint =
                            "known are: %Y, %m, %d, %H, %M, %S, %s, %f, %1f to %9f, %F, %T and %%";
                        return Err(Problem::new(rule, hint));
                    }
                },
            }
            rest = behind;
        }
        push_text(&mut pieces, rest);
        Ok(Self(pieces.into()))
    }

    /// Writes a time, in nanoseconds since 1970.
    pub(super) fn push(&self, nanos: u64, out: &mut Vec<u8>) {
        let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let date = date::utc(seconds);
        for piece in &self.0 {
            // Writing to a vector cannot fail.
            let _ = match piece {
                Piece::Text(text) => out.write_all(text.as_bytes()),
                Piece::Year => write!(out, "{:04}", date.year()),
                Piece::Month => write!(out, "{:02}", u8::from(date.month())),
                Piece::Day => write!(out, "{:02}", date.day()),
                Piece::Hour => write!(out, "{:02}", date.hour()),
                Piece::Minute => write!(out, "{:02}", date.minute()),
                Piece::Second => write!(out, "{:02}", date.second()),
                Piece::Epoch => write!(out, "{seconds}"),
                Piece::Fraction(digits) => {
                    let shown = fraction / 10_u64.pow(9 - digits.min(&9));
                    let width = usize::try_from(*digits).unwrap_or(9);
                    write!(out, "{shown:0width$}")
                }
            };
        }
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_each_format() {
        for (format, text) in [
            (DEFAULT, "2024-02-29T23:59:59.012Z"),
            ("%s.%3f", "1709251199.012"),
            ("%s%6f %1f %9f %f", "1709251199012345 0 012345678 012345678"),
            ("%F %T%%", "2024-02-29 23:59:59%"),
            ("", ""),
            ("plain é", "plain é"),
        ] {
            let mut out = Vec::new();
            TimeFormat::parse(format).unwrap().push(1_709_251_199_012_345_678, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text, "{format}");
        }
    }

    #[test]
    fn signs_that_are_not_known_are_refused() {
        for format in ["%", "%Q", "%0f", "%3", "%3é", "%é", "a%"] {
            assert!(TimeFormat::parse(format).is_err(), "{format}");
        }
    }
}
