//! When memory that is no longer used goes back to the system.
//!
//! The allocator keeps what was freed. After load has fallen it is asked to give that back, on a
//! thread of its own, since it takes milliseconds. What the workers hold (buffers, connections) says
//! when: the resident size does not fall by itself.

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

#[cfg(test)]
mod tests {
    use super::*;

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
