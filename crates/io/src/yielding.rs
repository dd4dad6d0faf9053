//! Letting other threads have the processor.

use crate::clock;

/// A thread that lets others have its processor, as long as it gets as much of it itself: where others do not give it back for a while,
/// it does not ask until it has worked for as long.
#[derive(Debug, Default)]
pub struct Yielding {
    /// In nanoseconds of the thread's own time.
    rests_until: u64,
}

impl Yielding {
    /// Lets threads run that wait for this processor. The kernel takes a part of this thread's share for that, so to do so again and
    /// again beside threads that always have work would leave this one next to nothing.
    pub fn give_way(&mut self) {
        let worked = clock::thread_ns();
        if worked < self.rests_until {
            return;
        }
        let began = clock::monotonic_ns();
        std::thread::yield_now();
        self.on_back(worked, clock::monotonic_ns().saturating_sub(began));
    }

    /// Others had the processor for so long.
    const fn on_back(&mut self, worked: u64, lost: u64) {
        self.rests_until = worked.saturating_add(lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_does_not_give_way_until_it_has_worked_for_as_long_as_others_had_the_processor() {
        let mut yielding = Yielding::default();
        yielding.on_back(clock::thread_ns(), u64::MAX);
        yielding.give_way();
        assert_eq!(yielding.rests_until, u64::MAX, "it has not given way");
        yielding.on_back(0, 1);
        yielding.give_way();
        assert!(yielding.rests_until > 1, "it has");
    }
}
