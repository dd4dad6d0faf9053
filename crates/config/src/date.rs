//! Seconds since the Unix epoch as people write them.

use time::OffsetDateTime;

/// A second since the Unix epoch as RFC 3339 writes it, in UTC.
#[must_use]
pub fn rfc3339(seconds: u64) -> String {
    let date = utc(seconds);
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    let (hour, minute, second) = date.to_hms();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A second since the Unix epoch as a date; the epoch itself where the year would have more than four digits.
pub(crate) fn utc(seconds: u64) -> OffsetDateTime {
    let seconds = i64::try_from(seconds).ok();
    let date = seconds.and_then(|it| OffsetDateTime::from_unix_timestamp(it).ok());
    date.unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
