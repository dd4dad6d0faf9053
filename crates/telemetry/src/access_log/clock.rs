//! Moments as dates, UTC. The date is worked out once a second and copied for every line in it.

use std::fmt::Write as _;

use time::OffsetDateTime;

use super::number::fill_digits;

const NS: u64 = 1_000_000_000;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Writes dates and remembers the last second that it wrote.
#[derive(Debug)]
pub(crate) struct Clock {
    second: u64,
    iso: String,
    common: String,
}

impl Default for Clock {
    fn default() -> Self {
        let mut clock = Self { second: 0, iso: String::new(), common: String::new() };
        clock.set(0);
        clock
    }
}

impl Clock {
    /// Appends `2026-11-21T04:14:27.123456Z`.
    pub(crate) fn push_iso(&mut self, at: u64, out: &mut Vec<u8>) {
        self.advance(at / NS);
        let mut fraction = *b".000000Z";
        let [_, digits @ .., _] = &mut fraction;
        fill_digits(digits, at % NS / 1_000);
        out.extend_from_slice(self.iso.as_bytes());
        out.extend_from_slice(&fraction);
    }

    /// Appends `21/Nov/2026:04:14:27 +0000`.
    pub(super) fn push_common(&mut self, at: u64, out: &mut Vec<u8>) {
        self.advance(at / NS);
        out.extend_from_slice(self.common.as_bytes());
    }

    fn advance(&mut self, second: u64) {
        if self.second != second {
            self.set(second);
        }
    }

    #[cold]
    fn set(&mut self, second: u64) {
        self.second = second;
        let date =
            i64::try_from(second).ok().and_then(|it| OffsetDateTime::from_unix_timestamp(it).ok());
        let date = date.unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        let (h, m, s) = date.to_hms();
        self.iso.clear();
        let _ = write!(self.iso, "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}");
        let name = MONTHS.get(usize::from(month - 1));
        let name = name.copied().unwrap_or_default();
        self.common.clear();
        let _ = write!(self.common, "{day:02}/{name}/{year:04}:{h:02}:{m:02}:{s:02} +0000");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dates(at: u64) -> (String, String) {
        let mut clock = Clock::default();
        let (mut iso, mut common) = (Vec::new(), Vec::new());
        clock.push_iso(at, &mut iso);
        clock.push_common(at, &mut common);
        (String::from_utf8(iso).unwrap(), String::from_utf8(common).unwrap())
    }

    #[test]
    fn moments_are_written_as_the_date_command_does() {
        for (at, iso, common) in [
            (0, "1970-01-01T00:00:00.000000Z", "01/Jan/1970:00:00:00 +0000"),
            (999, "1970-01-01T00:00:00.000000Z", "01/Jan/1970:00:00:00 +0000"),
            (
                951_782_399 * NS + 999_999_999,
                "2000-02-28T23:59:59.999999Z",
                "28/Feb/2000:23:59:59 +0000",
            ),
            (951_782_400 * NS, "2000-02-29T00:00:00.000000Z", "29/Feb/2000:00:00:00 +0000"),
            (
                1_795_234_467 * NS + 123_456_789,
                "2026-11-21T04:14:27.123456Z",
                "21/Nov/2026:04:14:27 +0000",
            ),
            (4_107_542_399 * NS, "2100-02-28T23:59:59.000000Z", "28/Feb/2100:23:59:59 +0000"),
            (4_107_542_400 * NS, "2100-03-01T00:00:00.000000Z", "01/Mar/2100:00:00:00 +0000"),
            (u64::MAX, "2554-07-21T23:34:33.709551Z", "21/Jul/2554:23:34:33 +0000"),
        ] {
            assert_eq!(dates(at), (iso.to_owned(), common.to_owned()), "{at}");
        }
    }

    #[test]
    fn a_clock_that_steps_back_writes_the_earlier_date() {
        let mut clock = Clock::default();
        for (at, iso) in [
            (2_000 * NS, "1970-01-01T00:33:20.000000Z"),
            (1_000 * NS + 5_000, "1970-01-01T00:16:40.000005Z"),
        ] {
            let mut out = Vec::new();
            clock.push_iso(at, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), iso);
        }
    }
}
