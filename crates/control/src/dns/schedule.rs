//! When a name is asked for again.

use std::time::Duration;

use config::snapshot::DnsName;

/// How long an answer without a time to live of its own is used, such as what `/etc/hosts` says; and one without endpoints
/// at most, so that a name that comes back is found soon. Envoy's `dns_refresh_rate`.
const TTL: Duration = Duration::from_secs(5);

/// The first wait after a failure; each further one is twice as long.
const BACK_OFF_MIN: Duration = Duration::from_millis(250);

/// The longest wait after a failure.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// How long an answer with this time to live (seconds) is used; `is_empty` if there are no endpoints in it. Up to a tenth less, by `random`, so that names
/// that were asked for together are not asked for together ever after.
pub(super) fn until_next(
    name: &DnsName,
    ttl: Option<u32>,
    is_empty: bool,
    random: u64,
) -> Duration {
    let ttl = ttl.map_or(TTL, |seconds| Duration::from_secs(seconds.into()));
    let ttl = if is_empty { ttl.min(TTL) } else { ttl };
    let ttl = ttl.min(name.ttl_max).max(name.ttl_min);
    less_up_to(ttl, 10, random).max(name.ttl_min)
}

/// How long to wait after so many failures in a row, the last one among them. Up to a half less, by `random`.
pub(super) fn back_off(failures: u32, random: u64) -> Duration {
    let doubled = BACK_OFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
    less_up_to(doubled.min(BACK_OFF_MAX), 2, random)
}

/// `duration`, less up to one part of it.
fn less_up_to(duration: Duration, part: u32, random: u64) -> Duration {
    let most = duration / part;
    // A number from 0 to 1, of the 32 bits that are most random.
    let share = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    duration - most.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use config::snapshot::{DnsFamily, DnsMode};

    use super::*;

    #[test]
    fn a_time_to_live_is_bounded_and_spread() {
        let name = DnsName {
            host: "a".into(),
            port: None,
            mode: DnsMode::Srv,
            family: DnsFamily::All,
            ttl_min: Duration::from_secs(2),
            ttl_max: Duration::from_secs(300),
        };
        for (ttl, shortest, longest) in [
            (Some(0), 2, 2),
            (Some(1), 2, 2),
            (Some(2), 2, 2),
            (Some(100), 90, 100),
            (Some(300), 270, 300),
            (Some(301), 270, 300),
            // 68 years, and what would be 136.
            (Some(i32::MAX.cast_unsigned()), 270, 300),
            (Some(u32::MAX), 270, 300),
        ] {
            let waits = [0, u64::MAX].map(|random| until_next(&name, ttl, false, random));
            let expected = [longest, shortest].map(Duration::from_secs);
            assert_eq!(waits, expected, "{ttl:?}");
        }
        assert_eq!(until_next(&name, None, false, 0), TTL);
        // That a name does not exist holds for less than its zone says.
        assert_eq!(until_next(&name, Some(3600), true, 0), TTL);
        assert_eq!(until_next(&name, Some(1), true, 0), name.ttl_min);
        let halfway = until_next(&name, Some(100), false, 1 << 63);
        assert!((94..96).contains(&halfway.as_secs()), "{halfway:?}");
    }

    #[test]
    fn waits_after_failures_double_up_to_a_bound() {
        let waits = [1, 2, 3, 8, 9, u32::MAX].map(|failures| back_off(failures, 0));
        let expected = [250, 500, 1000, 30_000, 30_000, 30_000].map(Duration::from_millis);
        assert_eq!(waits, expected);
        assert_eq!(back_off(1, u64::MAX), Duration::from_millis(125));
    }
}
