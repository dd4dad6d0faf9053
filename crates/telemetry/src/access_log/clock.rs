//! Moments as dates, UTC. The date is worked out once a second and copied for every line in it.

use std::fmt::Write as _;

use super::number::fill_digits;

const NS: u64 = 1_000_000_000;
const DAY: u64 = 24 * 60 * 60;
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
        let (year, month, day) = civil(second / DAY);
        let (h, m, s) = (second % DAY / 3600, second % 3600 / 60, second % 60);
        self.iso.clear();
        let _ = write!(self.iso, "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}");
        let name = usize::try_from(month - 1).ok().and_then(|month| MONTHS.get(month));
        let name = name.copied().unwrap_or_default();
        self.common.clear();
        let _ = write!(self.common, "{day:02}/{name}/{year:04}:{h:02}:{m:02}:{s:02} +0000");
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years are
/// counted from March, so that the leap day is the last of its year.
fn civil(day: u64) -> (u64, u64, u64) {
    // Days from 0000-03-01 to 1970-01-01; an era is 400 years of 146,097 days.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, day_of_month)
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
