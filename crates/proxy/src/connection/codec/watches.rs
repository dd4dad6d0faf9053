//! What a connection that carries several exchanges is waited for, and until when.

use std::time::Duration;

use crate::tools::time::Time;

/// What a connection of HTTP/2 may be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Watch {
    /// Being established; of a downstream, its preface, or the rest of a head that has begun.
    Opening,
    /// A stream.
    Idle,
    /// The peer to take what waits for it.
    Write,
    /// Data from the peer, before a keep-alive PING is sent.
    PingDue,
    /// The answer to a keep-alive PING.
    PingTimeout,
    /// The answer to the PING of a graceful GOAWAY (RFC 9113, section 6.8), after which the final one follows.
    FinalGoaway,
    /// A stream again soon, before what holds them is given back.
    CoolDown,
}

impl Watch {
    const ALL: [Self; 7] = [
        Self::Opening,
        Self::Idle,
        Self::Write,
        Self::PingDue,
        Self::PingTimeout,
        Self::FinalGoaway,
        Self::CoolDown,
    ];
}

/// When each watch ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watches([Time; Watch::ALL.len()]);

impl Watches {
    pub(crate) const NONE: Self = Self([Time::NEVER; Watch::ALL.len()]);

    pub(crate) fn set(&mut self, watch: Watch, deadline: Time) {
        if let Some(place) = self.0.get_mut(watch as usize) {
            *place = deadline;
        }
    }

    pub(crate) fn clear(&mut self, watch: Watch) {
        self.set(watch, Time::NEVER);
    }

    /// When a watch ends; `NEVER` if it is not set.
    pub(crate) fn get(&self, watch: Watch) -> Time {
        self.0.get(watch as usize).copied().unwrap_or(Time::NEVER)
    }

    pub(crate) fn is_set(&self, watch: Watch) -> bool {
        self.get(watch).is_set()
    }

    /// The watch that ends first, and when.
    pub(crate) fn first(&self) -> (Watch, Time) {
        let all = Watch::ALL.into_iter().zip(self.0);
        all.min_by_key(|(_, deadline)| *deadline).expect("there are watches")
    }

    /// What is left of each at `now`, for saving.
    pub(crate) fn remaining(&self, now: Time) -> Vec<Option<Duration>> {
        self.0.iter().map(|deadline| deadline.is_set().then(|| *deadline - now)).collect()
    }

    pub(crate) fn restored(saved: &[Option<Duration>], now: Time) -> Self {
        let mut watches = Self::NONE;
        for (place, left) in watches.0.iter_mut().zip(saved) {
            *place = left.map_or(Time::NEVER, |left| now + left);
        }
        watches
    }
}
