//! Figures about this process from `/proc`, read by the control thread.

use std::fs;
use std::path::Path;

/// Clock ticks of `/proc/*/stat` in a second: `USER_HZ`, which is 100 on every Linux that Rust's
/// std runs on, whatever the kernel's own tick.
const TICKS_PER_SECOND: f64 = 100.0;

/// Figures about the process at one moment. A figure that could not be read is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessFacts {
    /// When it started, seconds since the Unix epoch.
    pub start_time_seconds: f64,
    /// The time of reading, seconds since the Unix epoch.
    pub now_seconds: f64,
    /// User and system CPU time spent, seconds.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Virtual memory.
    pub virtual_bytes: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// Bound on them.
    pub descriptors_max: u64,
    /// Threads.
    pub threads: u64,
}

impl ProcessFacts {
    /// Reads the facts of this process. `now` is wall-clock time, ns since the Unix epoch.
    #[must_use]
    pub fn read(now: u64) -> Self {
        Self::read_from(Path::new("/proc"), now)
    }

    fn read_from(proc: &Path, now: u64) -> Self {
        let text = |path: &str| fs::read_to_string(proc.join(path)).unwrap_or_default();
        let status = text("self/status");
        let stat = text("self/stat");
        // The second field is the program's name in parentheses and may hold anything.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
        // Numbered from 1 in proc_pid_stat(5); the first one here is the third there.
        let ticks = |number: usize| -> f64 {
            fields.get(number - 3).and_then(|field| field.parse().ok()).unwrap_or(0.0)
        };
        let booted: f64 = text("stat")
            .lines()
            .find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
            .unwrap_or(0.0);
        let started = ticks(22) / TICKS_PER_SECOND;
        Self {
            start_time_seconds: if started > 0.0 { booted + started } else { 0.0 },
            now_seconds: crate::metrics::seconds(now),
            cpu_seconds: (ticks(14) + ticks(15)) / TICKS_PER_SECOND,
            resident_bytes: kibibytes(&status, "VmRSS:"),
            virtual_bytes: kibibytes(&status, "VmSize:"),
            descriptors: descriptors(&proc.join("self/fd")),
            descriptors_max: text("self/limits")
                .lines()
                .find_map(|line| line.strip_prefix("Max open files"))
                .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
                .unwrap_or(0),
            threads: field(&status, "Threads:"),
        }
    }

    /// Seconds since the start.
    pub(crate) fn uptime_seconds(&self) -> f64 {
        if self.start_time_seconds > 0.0 {
            (self.now_seconds - self.start_time_seconds).max(0.0)
        } else {
            0.0
        }
    }
}

/// A line of `/proc/self/status` that is a number.
fn field(status: &str, name: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn kibibytes(status: &str, name: &str) -> u64 {
    field(status, name).saturating_mul(1024)
}

/// How many entries there are, which is the size of the folder since Linux 6.2.
fn descriptors(folder: &Path) -> u64 {
    match fs::metadata(folder).map(|folder| folder.len()) {
        Ok(0) | Err(_) => {
            let entries = fs::read_dir(folder).map_or(0, Iterator::count);
            u64::try_from(entries).unwrap_or(0)
        }
        Ok(size) => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_this_process_are_plausible() {
        let facts = ProcessFacts::read(u64::MAX);
        assert!(facts.start_time_seconds > 1e9, "{facts:?}");
        assert!(facts.uptime_seconds() > 0.0);
        assert!(facts.resident_bytes > 100_000 && facts.virtual_bytes >= facts.resident_bytes);
        assert!(facts.descriptors > 2 && facts.descriptors_max >= facts.descriptors);
        assert!(facts.threads >= 1);
    }

    #[test]
    fn what_cannot_be_read_is_zero() {
        let facts = ProcessFacts::read_from(Path::new("/nonexistent"), 5_000_000_000);
        assert_eq!(facts, ProcessFacts { now_seconds: 5.0, ..ProcessFacts::default() });
        assert_eq!(facts.uptime_seconds().to_bits(), 0f64.to_bits());
    }
}
