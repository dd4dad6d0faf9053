//! How near the process is to its bound on memory, and when memory that is no longer used goes back to the system.
//!
//! [`MemoryWatch`] compares the resident size with the bound, ten times a second. While the bound is near, workers let go of their free
//! buffers once a second, then the allocator is asked to give back what is free, and only what is still in use after that has workers
//! close connections.
//!
//! Without a bound: the allocator keeps what was freed. After load has fallen it is asked to give that back, on a
//! thread of its own, since it takes milliseconds. What the workers hold (buffers, connections) says
//! when: the resident size does not fall by itself.

use config::memory::{MemoryLevel, MemoryPressure};

/// Between two times at least, ns: each takes the allocator's locks, for which workers may wait.
const RELEASE_INTERVAL: u64 = 30_000_000_000;

/// Less than this is not worth it.
const RELEASE_BYTES_MIN: u64 = 2 << 20;

/// Decides when to ask the allocator.
#[derive(Debug, Default)]
pub(crate) struct MemoryRelease {
    /// The most that was held since the last time.
    peak: u64,
    released_at: Option<u64>,
    /// Whether something large was freed that the workers do not count.
    is_due: bool,
}

impl MemoryRelease {
    /// Notes that a large configuration was freed.
    pub(crate) fn note_freed(&mut self) {
        self.is_due = true;
    }

    /// Whether to release now, when workers hold `held` bytes and it is `now` (monotonic, ns): they
    /// held a quarter more at some time since the last release.
    pub(crate) fn is_due(&mut self, held: u64, now: u64) -> bool {
        self.peak = self.peak.max(held);
        let fallen = self.peak - held;
        let has_fallen = fallen >= RELEASE_BYTES_MIN && fallen >= held / 4;
        let is_early = self.released_at.is_some_and(|at| now.saturating_sub(at) < RELEASE_INTERVAL);
        if is_early || !(has_fallen || self.is_due) {
            return false;
        }
        *self = Self { peak: held, released_at: Some(now), is_due: false };
        true
    }
}

/// While the bound is near, ns: so often workers let go of free buffers, and so much later the allocator is asked, ...
const ROUND: u64 = 1_000_000_000;
const RELEASE_AFTER: u64 = 100_000_000;

/// ... and so long after the beginning of a round the resident size says what is in use.
const CLOSE_AFTER: u64 = 400_000_000;

/// Rounds go on for so long, ns, once the bound is not near any more: what load has left is not needed then.
const ROUNDS_GO_ON: u64 = 10_000_000_000;

/// Of the bound, in percent: what is left after connections were closed for what they hold.
const KEPT: u64 = 90;

/// Compares the memory of the process with its bound.
#[derive(Debug, Default)]
pub(crate) struct MemoryWatch {
    level: MemoryLevel,
    max: Option<u64>,
    /// When the last round began.
    began: Option<u64>,
    /// When the bound was near last.
    near_at: Option<u64>,
    step: Step,
}

/// What comes next in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    Release,
    Close,
    #[default]
    Nothing,
}

/// What follows from the memory that is in use.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryLook {
    /// What workers are to know.
    pub(crate) pressure: Option<MemoryPressure>,
    /// Whether that is worth a message in the log.
    pub(crate) is_news: bool,
    /// Whether the allocator is to give back what is free.
    pub(crate) releases: bool,
}

impl MemoryWatch {
    pub(crate) const fn level(&self) -> MemoryLevel {
        self.level
    }

    /// So many bytes are resident of those that may be, if these are bounded, at `now` (monotonic, ns).
    pub(crate) fn look(&mut self, resident: u64, max: Option<u64>, now: u64) -> MemoryLook {
        let (former, former_max) = (self.level, std::mem::replace(&mut self.max, max));
        self.level = max.map_or(MemoryLevel::Normal, |max| former.next(resident, max));
        let is_news = self.level != former;
        let since = self.began.map_or(u64::MAX, |began| now.saturating_sub(began));
        let (mut begins, mut releases, mut closes) = (false, false, false);
        if self.level > MemoryLevel::Normal {
            self.near_at = Some(now);
        }
        let is_near = self.near_at.is_some_and(|at| now.saturating_sub(at) < ROUNDS_GO_ON);
        if !is_near {
            (self.began, self.step) = (None, Step::Nothing);
        } else if since >= ROUND {
            (self.began, self.step) = (Some(now), Step::Release);
            begins = true;
        } else if self.step == Step::Release && since >= RELEASE_AFTER {
            self.step = Step::Close;
            releases = true;
        } else if self.step == Step::Close && since >= CLOSE_AFTER {
            self.step = Step::Nothing;
            closes = self.level == MemoryLevel::Critical;
        }
        let max_bytes = max.unwrap_or_default();
        let kept = max_bytes / 100 * KEPT;
        let excess_bytes = if closes { resident.saturating_sub(kept) } else { 0 };
        let is_sent = is_news || begins || excess_bytes > 0 || max != former_max;
        let pressure = MemoryPressure {
            level: self.level,
            resident_bytes: resident,
            max_bytes,
            releases_free: begins,
            excess_bytes,
        };
        MemoryLook {
            pressure: is_sent.then_some(pressure),
            is_news: is_news || excess_bytes > 0,
            releases,
        }
    }
}

/// Logs a change of the level, and connections that are closed for what they hold.
pub(crate) fn report_memory(pressure: MemoryPressure) {
    let MemoryPressure { level, resident_bytes, max_bytes, excess_bytes, .. } = pressure;
    let consequence = match level {
        MemoryLevel::Normal => {
            tracing::info!(
                resident_bytes,
                "memory is below 80 % of limits.memory_max again: nothing is refused for it"
            );
            return;
        }
        MemoryLevel::Elevated => "new HTTP/2 connections get small stream windows",
        MemoryLevel::High => "new requests get 503 and idle connections close",
        MemoryLevel::Critical if excess_bytes > 0 => {
            "new connections are refused, and connections close that hold the most in buffers"
        }
        MemoryLevel::Critical => "new connections are refused",
    };
    tracing::warn!(
        resident_bytes,
        max_bytes,
        "memory is near limits.memory_max: {consequence}; raise the limit, or look at `buffered_max` of listeners"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_close_for_what_is_in_use_after_what_is_free_was_given_back() {
        let mut watch = MemoryWatch::default();
        let ms = |ms: u64| ms * 1_000_000;
        let max = Some(100 * MIB);
        use MemoryLevel::{Critical, Elevated, High, Normal};
        // At, MiB, level and MiB to close if workers get a message, whether that is logged, and whether the allocator is asked.
        for (at, resident, sent, is_news, releases) in [
            (0, 10, Some((Normal, 0)), false, false),
            (100, 10, None, false, false),
            (200, 96, Some((Critical, 0)), true, false),
            (300, 97, None, false, true),
            (400, 97, None, false, false),
            (600, 97, Some((Critical, 7)), true, false),
            (700, 97, None, false, false),
            (1_200, 96, Some((Critical, 0)), false, false),
            (1_300, 96, None, false, true),
            (1_600, 94, Some((Critical, 4)), true, false),
            (1_700, 89, Some((High, 0)), true, false),
            (2_200, 89, Some((High, 0)), false, false),
            (2_300, 84, Some((Elevated, 0)), true, true),
            (2_700, 84, None, false, false),
            (2_800, 70, Some((Normal, 0)), true, false),
            (3_300, 70, Some((Normal, 0)), false, false),
            (3_400, 70, None, false, true),
            (12_400, 20, Some((Normal, 0)), false, false),
            (12_800, 20, None, false, false),
        ] {
            let look = watch.look(resident * MIB, max, ms(at));
            let found = look.pressure.map(|it| (it.level, it.excess_bytes / MIB));
            assert_eq!((found, look.is_news, look.releases), (sent, is_news, releases), "at {at}");
        }
        let look = watch.look(99 * MIB, max, ms(12_900));
        assert_eq!(look.pressure.map(|it| it.level), Some(Critical));
        let look = watch.look(99 * MIB, None, ms(13_000));
        assert_eq!(look.pressure.map(|it| (it.level, it.max_bytes)), Some((Normal, 0)));
        assert_eq!(watch.look(99 * MIB, None, ms(25_000)), MemoryLook::default());
    }

    const SECOND: u64 = 1_000_000_000;
    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_is_released_after_load_fell_and_seldom() {
        let mut release = MemoryRelease::default();
        let rows = [
            (0, 10 * MIB, false, "the beginning"),
            (1, 100 * MIB, false, "a rise"),
            (2, 90 * MIB, false, "a tenth less"),
            (3, 60 * MIB, true, "much less"),
            (4, 20 * MIB, false, "too early"),
            (32, 20 * MIB, false, "still too early"),
            (33, 20 * MIB, true, "what fell since"),
            (100, 20 * MIB, false, "nothing fell"),
            (101, 20 * MIB - 1, false, "next to nothing"),
            (102, 18 * MIB, false, "less than a quarter"),
            (103, 15 * MIB, true, "slowly, but by more than a quarter"),
        ];
        for (second, held, is_due, row) in rows {
            assert_eq!(release.is_due(held, second * SECOND), is_due, "{row}");
        }
        release.note_freed();
        assert!(!release.is_due(15 * MIB, 104 * SECOND));
        assert!(release.is_due(15 * MIB, 134 * SECOND));
        assert!(!release.is_due(15 * MIB, 200 * SECOND));
    }
}
