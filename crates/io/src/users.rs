//! Users as the kernel reports them to this process: all that have no number in its user namespace, as that of a container, are reported
//! as one and the same number, which may also be a user of the namespace.
//!
//! Reads files below `/proc`: for the control path only.

use std::fs;

/// The number for users without one, unless the machine has another.
const OVERFLOW_USER: u32 = 65_534;

/// Whether this number, as the kernel reports it of another process or a file, may stand for users that have none here.
#[must_use]
pub fn may_be_unmapped(user: u32) -> bool {
    let map = || fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    user == overflow_user() && !has_all_users(&map())
}

fn overflow_user() -> u32 {
    let number = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    number.and_then(|number| number.trim_end().parse().ok()).unwrap_or(OVERFLOW_USER)
}

/// Whether a namespace with this `uid_map` has a number for each user: only users of its parent have one there, and all of these if
/// that has them all.
fn has_all_users(map: &str) -> bool {
    // The ranges do not overlap. The highest number is no user.
    let counts = map.lines().map(|line| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<Option<u64>>() == Some(u32::MAX.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_all_users_if_its_ranges_have_all_numbers() {
        for (map, has_all) in [
            ("         0          0 4294967295\n", true),
            ("0 0 65536\n65536 65536 4294901759\n", true),
            ("0 1 4294967294\n", false),
            ("0 100000 65536\n", false),
            ("65534 1000 1\n", false),
            ("", false),
            ("0 0\n", false),
            ("0 0 -1\n", false),
        ] {
            assert_eq!(has_all_users(map), has_all, "{map:?}");
        }
    }
}
