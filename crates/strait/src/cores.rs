//! The number of workers for `auto`: one for each core that the process may use, but no more than
//! the CPU quota of its control groups allows. A worker beyond the quota makes all of them wait
//! when the kernel takes the processor away for the rest of a period.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::control_groups::{self, ControlGroups, Folder, Version};

/// How many workers there are, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerCount {
    pub(crate) count: u32,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    Configured,
    /// The processors on which the scheduler may run this process.
    Affinity,
    Quota(Quota),
}

/// CPU time that a control group may use in each period, µs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Quota {
    quota: u64,
    period: u64,
    group: PathBuf,
}

impl fmt::Display for WorkerCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Configured => f.write_str("configured"),
            Reason::Affinity => f.write_str("cores that this process may run on"),
            Reason::Quota(Quota { quota, period, group }) => {
                let hundredths = quota.saturating_mul(100) / period;
                let (whole, rest) = (hundredths / 100, hundredths % 100);
                write!(f, "CPU quota of {whole}.{rest:02} cores in {}", group.display())
            }
        }
    }
}

impl WorkerCount {
    /// As many as the configuration says.
    pub(crate) fn configured(count: u16) -> Self {
        Self { count: u32::from(count), reason: Reason::Configured }
    }

    /// As many as this process can use.
    ///
    /// # Errors
    ///
    /// The system does not say on which cores the process may run.
    pub(crate) fn automatic() -> std::io::Result<Self> {
        let cores = u32::try_from(io::affinity::cpus()?.len()).unwrap_or(u32::MAX).max(1);
        Ok(Self::of(cores, quota(&ControlGroups::own(), control_groups::read)))
    }

    fn of(cores: u32, quota: Option<Quota>) -> Self {
        match quota {
            Some(quota) if quota.cores() < cores => {
                Self { count: quota.cores(), reason: Reason::Quota(quota) }
            }
            _ => Self { count: cores, reason: Reason::Affinity },
        }
    }
}

impl Quota {
    /// Rounded up, so that a quota of one and a half cores can be used up.
    fn cores(&self) -> u32 {
        u32::try_from(self.quota.div_ceil(self.period)).unwrap_or(u32::MAX).max(1)
    }

    /// Whether it allows less than `other`.
    fn is_below(&self, other: &Self) -> bool {
        let scaled = |one: &Self, by: &Self| u128::from(one.quota) * u128::from(by.period);
        scaled(self, other) < scaled(other, self)
    }

    /// Reads `cpu.max`: a quota or `max`, and a period.
    fn from_v2(text: &str, group: &Path) -> Option<Self> {
        let mut fields = text.split_whitespace();
        Self::new(fields.next()?.parse().ok()?, fields.next()?.parse().ok()?, group)
    }

    /// Reads `cpu.cfs_quota_us`, which is -1 if there is none, and `cpu.cfs_period_us`.
    fn from_v1(quota: &str, period: &str, group: &Path) -> Option<Self> {
        Self::new(quota.trim().parse().ok()?, period.trim().parse().ok()?, group)
    }

    fn new(quota: u64, period: u64, group: &Path) -> Option<Self> {
        (period > 0).then(|| Self { quota, period, group: group.to_owned() })
    }
}

/// The smallest quota of the groups that this process is in, and of those above them.
fn quota(groups: &ControlGroups, read: impl Fn(&Path) -> Option<String>) -> Option<Quota> {
    let mut smallest: Option<Quota> = None;
    for Folder { version, path } in groups.folders("cpu") {
        let found = match version {
            Version::V2 => {
                read(&path.join("cpu.max")).and_then(|text| Quota::from_v2(&text, &path))
            }
            Version::V1 => read(&path.join("cpu.cfs_quota_us"))
                .zip(read(&path.join("cpu.cfs_period_us")))
                .and_then(|(quota, period)| Quota::from_v1(&quota, &period, &path)),
        };
        if let Some(found) = found
            && smallest.as_ref().is_none_or(|smallest| found.is_below(smallest))
        {
            smallest = Some(found);
        }
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "4:memory:/m\n3:cpuacct,cpu:/kube/pod\n0::/\n";
    const V1_MOUNT: &str = "30 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpuacct,cpu\n\
                            31 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
    const V2: &str = "0::/kube.slice/pod.scope\n";
    const V2_MOUNT: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";

    /// The claim, `cgroup`, `mountinfo`, files, workers, and their reason.
    type Row<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a str)], u32, &'a str);

    /// The number of workers out of 8 cores, and from which folder that comes.
    fn count(cgroup: &str, mountinfo: &str, files: &[(&str, &str)]) -> (u32, String) {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        let count = WorkerCount::of(8, quota(&ControlGroups::new(cgroup, mountinfo), read));
        (count.count, count.to_string())
    }

    #[test]
    fn the_smallest_quota_on_the_way_up_counts_rounded_up() {
        let all = "cores that this process may run on";
        let rows: [Row<'_>; 13] = [
            ("nothing is known", "", "", &[], 8, all),
            ("no files", V2, V2_MOUNT, &[], 8, all),
            (
                "no quota",
                V2,
                V2_MOUNT,
                &[("/sys/fs/cgroup/kube.slice/pod.scope/cpu.max", "max 100000\n")],
                8,
                all,
            ),
            (
                "the group's own",
                V2,
                V2_MOUNT,
                &[("/sys/fs/cgroup/kube.slice/pod.scope/cpu.max", "150000 100000\n")],
                2,
                "CPU quota of 1.50 cores in /sys/fs/cgroup/kube.slice/pod.scope",
            ),
            (
                "one above is smaller, with another period",
                V2,
                V2_MOUNT,
                &[
                    ("/sys/fs/cgroup/kube.slice/pod.scope/cpu.max", "400000 100000\n"),
                    ("/sys/fs/cgroup/kube.slice/cpu.max", "30000 10000\n"),
                    ("/sys/fs/cgroup/cpu.max", "max 100000\n"),
                ],
                3,
                "CPU quota of 3.00 cores in /sys/fs/cgroup/kube.slice",
            ),
            (
                "one core at least",
                V2,
                V2_MOUNT,
                &[("/sys/fs/cgroup/cpu.max", "1000 100000")],
                1,
                "CPU quota of 0.01 cores in /sys/fs/cgroup",
            ),
            (
                "more than there are cores",
                V2,
                V2_MOUNT,
                &[("/sys/fs/cgroup/cpu.max", "1600000 100000")],
                8,
                all,
            ),
            (
                "version 1",
                V1,
                V1_MOUNT,
                &[
                    ("/sys/fs/cgroup/cpu/kube/pod/cpu.cfs_quota_us", "250000\n"),
                    ("/sys/fs/cgroup/cpu/kube/pod/cpu.cfs_period_us", "100000\n"),
                    ("/sys/fs/cgroup/cpu/kube/cpu.cfs_quota_us", "-1\n"),
                    ("/sys/fs/cgroup/cpu/kube/cpu.cfs_period_us", "100000\n"),
                    ("/sys/fs/cgroup/cpuset/kube/pod/cpu.cfs_quota_us", "1\n"),
                ],
                3,
                "CPU quota of 2.50 cores in /sys/fs/cgroup/cpu/kube/pod",
            ),
            (
                "a container whose group is the root of what it sees",
                "0::/docker/a\n",
                "1 0 0:1 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
                &[("/sys/fs/cgroup/cpu.max", "200000 100000")],
                2,
                "CPU quota of 2.00 cores in /sys/fs/cgroup",
            ),
            (
                "a path that is not below the root",
                "0::/../b\n",
                "1 0 0:1 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
                &[("/sys/fs/cgroup/cpu.max", "200000 100000")],
                2,
                "CPU quota of 2.00 cores in /sys/fs/cgroup",
            ),
            (
                "a path that leaves the root",
                "0::/../b\n",
                V2_MOUNT,
                &[("/sys/fs/cgroup/cpu.max", "200000 100000"), ("/sys/fs/b/cpu.max", "1 1")],
                2,
                "CPU quota of 2.00 cores in /sys/fs/cgroup",
            ),
            (
                "a mount with a blank",
                "0::/\n",
                "1 0 0:1 / /a\\040b ro - cgroup2 cgroup rw\n",
                &[("/a b/cpu.max", "200000 100000")],
                2,
                "CPU quota of 2.00 cores in /a b",
            ),
            (
                "what cannot be parsed",
                V2,
                V2_MOUNT,
                &[
                    ("/sys/fs/cgroup/cpu.max", "200000 0"),
                    ("/sys/fs/cgroup/kube.slice/cpu.max", "much"),
                ],
                8,
                all,
            ),
        ];
        for (row, cgroup, mountinfo, files, workers, reason) in rows {
            let expected = (workers, reason.to_owned());
            assert_eq!(count(cgroup, mountinfo, files), expected, "{row}");
        }
    }
}
