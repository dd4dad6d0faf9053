//! `limits.memory_max`: how near the process is to it, and what workers do about that.
//!
//! Control compares the resident size with the bound and tells all workers the level. Each level does what those below it do:
//!
//! | level | from | what workers do |
//! |---|---|---|
//! | [`Elevated`](MemoryLevel::Elevated) | 80 % | new HTTP/2 connections have small stream windows |
//! | [`High`](MemoryLevel::High) | 90 % | new requests get 503, idle connections close |
//! | [`Critical`](MemoryLevel::Critical) | 95 % | new connections are refused; those that hold most in buffers close |
//!
//! A level ends 5 % of the bound below where it begins, so that it does not come and go.

/// How near the process is to `limits.memory_max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryLevel {
    /// Below 80 %, or there is no bound.
    #[default]
    Normal,
    /// From 80 %.
    Elevated,
    /// From 90 %.
    High,
    /// From 95 %.
    Critical,
}

/// How much lower than its beginning a level ends, in percent of the bound.
const HYSTERESIS: u64 = 5;

impl MemoryLevel {
    /// All of them, in the order in which they rise.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Elevated, Self::High, Self::Critical];

    /// From how many percent of the bound on.
    const fn begins_at(self) -> u64 {
        match self {
            Self::Normal => 0,
            Self::Elevated => 80,
            Self::High => 90,
            Self::Critical => 95,
        }
    }

    /// The level at which `resident` of `max` bytes are in use, after this one.
    #[must_use]
    pub fn next(self, resident: u64, max: u64) -> Self {
        let reaches = |level: &Self| {
            let lower = if *level <= self { HYSTERESIS } else { 0 };
            let percent = level.begins_at().saturating_sub(lower);
            u128::from(resident) * 100 >= u128::from(max) * u128::from(percent)
        };
        Self::ALL.into_iter().rev().find(reaches).unwrap_or_default()
    }
}

impl MemoryPressure {
    /// Bytes that the buffers of all workers together may hold: half of the bound.
    #[must_use]
    pub const fn buffered_bytes_max(&self) -> u64 {
        if self.max_bytes == 0 { u64::MAX } else { self.max_bytes / 2 }
    }
}

/// What control tells workers of the memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPressure {
    /// How near the bound is.
    pub level: MemoryLevel,
    /// Bytes that are resident.
    pub resident_bytes: u64,
    /// The bound, in bytes; 0 without one.
    pub max_bytes: u64,
    /// Whether workers let go of their free buffers.
    pub releases_free: bool,
    /// Bytes of buffers that all workers together have to let go of now.
    pub excess_bytes: u64,
}

/// The bound on the memory of the process, as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryMax {
    /// That of the control groups of the process, if they have one.
    OfControlGroup,
    /// None.
    Unbounded,
    /// So many bytes.
    Bytes(u64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use MemoryLevel::{Critical, Elevated, High, Normal};

    #[test]
    fn a_level_ends_below_where_it_begins() {
        for (before, percent, after) in [
            (Normal, 79, Normal),
            (Normal, 80, Elevated),
            (Normal, 97, Critical),
            (Elevated, 75, Elevated),
            (Elevated, 74, Normal),
            (Elevated, 89, Elevated),
            (Elevated, 90, High),
            (High, 85, High),
            (High, 84, Elevated),
            (High, 74, Normal),
            (Critical, 90, Critical),
            (Critical, 89, High),
            (Critical, 10, Normal),
            (Critical, 300, Critical),
        ] {
            assert_eq!(before.next(percent * 10, 1_000), after, "{before:?} at {percent} %");
        }
        assert_eq!(Normal.next(u64::MAX, u64::MAX), Critical, "nothing overflows");
    }
}
