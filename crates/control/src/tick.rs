//! A tick of the kernel's.
//!
//! The runtime's own timers are kept in a wheel whose coarser slots are sorted into finer ones when they are due: one
//! that is more than 64 ms away wakes its thread twice. Control ticks all the time, and is idle otherwise.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// Ticks that were missed are one.
#[derive(Debug)]
pub(crate) struct Tick {
    timer: AsyncFd<OwnedFd>,
}

impl Tick {
    /// Ticks every `interval` from now on. To be called on the runtime.
    ///
    /// # Errors
    ///
    /// Out of descriptors.
    pub(crate) fn new(interval: Duration) -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let interval = Timespec::try_from(interval).map_err(io::Error::other)?;
        let spec = Itimerspec { it_interval: interval, it_value: interval };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)?;
        #[expect(
            deprecated,
            reason = "what it registers owns its descriptor, which the other way cannot know"
        )]
        let timer = AsyncFd::new(timer)?;
        Ok(Self { timer })
    }

    /// The next tick. Loses none when it is dropped before its end.
    pub(crate) async fn next(&self) {
        loop {
            // The runtime ends, and control with it.
            let Ok(mut ready) = self.timer.readable().await else { return };
            let mut count = [0; 8];
            match rustix::io::read(&self.timer, &mut count) {
                Ok(_) => {
                    ready.clear_ready();
                    return;
                }
                Err(_) => ready.clear_ready(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn missed_ticks_are_one() {
        let tick = Tick::new(Duration::from_millis(200)).unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        tick.next().await;
        let second = tokio::time::timeout(Duration::from_millis(1), tick.next()).await;
        assert!(second.is_err());
        tick.next().await;
    }
}
