//! How long a request may take, as it says itself by the fields of Envoy.
//!
//! A client that may choose its timeout may also hold connections for as long as it likes, so it is believed where the
//! listener says so (`trust_timeouts`) and nowhere else.

use std::time::Duration;

use wire::head::RequestHead;
use wire::head::lookalike::are_twins;

/// The bound on the whole request, in milliseconds.
const WHOLE: &[u8] = b"x-envoy-upstream-rq-timeout-ms";

/// The same of one attempt.
pub(crate) const TRY: &[u8] = b"x-envoy-upstream-rq-per-try-timeout-ms";

/// Whether a second attempt begins once that is over.
pub(crate) const HEDGE: &[u8] = b"x-envoy-hedge-on-per-try-timeout";

/// What the upstream learns of that.
const EXPECTED: &[u8] = b"x-envoy-expected-rq-timeout-ms";

/// Digits that are read of a bound: more than a year.
const DIGITS_MAX: usize = 11;

/// By which clients ask for retries.
pub(crate) const RETRIES: [&[u8]; 5] = [
    b"x-envoy-retry-on",
    b"x-envoy-retry-grpc-on",
    b"x-envoy-max-retries",
    b"x-envoy-retriable-status-codes",
    b"x-envoy-retriable-header-names",
];

/// Removes the fields by which clients ask for timeouts and retries. Returns the bound that the request asks for, if it is
/// trusted and asks for one: none for no bound.
#[inline]
pub(crate) fn take(head: &mut RequestHead<'_>, is_trusted: bool) -> Option<Option<Duration>> {
    if !head.has_unusual_names() {
        return None;
    }
    let asked = if is_trusted { head.find(WHOLE).and_then(millis) } else { None };
    // A service may read a name with `_` as one of these.
    head.remove_others(|name| {
        let mut all = [WHOLE, TRY, HEDGE, EXPECTED].iter().chain(&RETRIES);
        all.any(|field| are_twins(name, field))
    });
    let asked = asked?;
    if asked > 0 {
        head.set(EXPECTED, asked.to_string().as_bytes());
    }
    Some((asked > 0).then(|| Duration::from_millis(asked)))
}

fn millis(value: &[u8]) -> Option<u64> {
    let is_number = value.iter().all(u8::is_ascii_digit) && value.len() <= DIGITS_MAX;
    std::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_milliseconds_is_read_and_nothing_else() {
        for (value, expected) in [
            ("0", Some(0)),
            ("250", Some(250)),
            ("99999999999", Some(99_999_999_999)),
            ("999999999999", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("1s", None),
            (" 1", None),
        ] {
            assert_eq!(millis(value.as_bytes()), expected, "{value:?}");
        }
    }
}
