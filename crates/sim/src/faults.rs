//! Which faults a simulation injects, and how often.
//!
//! Every seed has some kinds and not others: a run with all of them at once would hardly ever reach
//! states that need a long time without faults. Chances are in thousandths.

use std::time::Duration;

use crate::random::Random;

/// How the network and the clock behave.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Longest way of a segment.
    pub latency_max: Duration,
    /// A segment is late by up to [`Faults::stall_max`].
    pub stall: u32,
    /// How long a stalled segment is late, at most.
    pub stall_max: Duration,
    /// A segment brings only a part of what is on its way.
    pub short_segment: u32,
    /// Bytes arrive just behind a read, which gets only those before them.
    pub short_read: u32,
    /// A socket takes fewer bytes than it has room for.
    pub partial_write: u32,
    /// An event comes that says nothing new.
    pub spurious_event: u32,
    /// A wait ends without an event and before its time.
    pub interrupted_wait: u32,
    /// Fewer events are handed out at once than there are.
    pub few_events: u32,
    /// The thread gets no processor for a while when it has something to do.
    pub slow_thread: u32,
    /// Tiny socket buffers, of a few bytes up to some hundred.
    pub tiny_buffers: u32,
    /// A connection breaks with a segment.
    pub reset: u32,
    /// A connection falls silent for ever.
    pub silence: u32,
    /// A connection attempt is refused.
    pub connect_refused: u32,
    /// A connection attempt is never answered.
    pub connect_lost: u32,
    /// A connection is gone when it is accepted.
    pub accept_aborted: u32,
    /// Every so often there is no file descriptor for a while.
    pub descriptors: u32,
    /// The clock jumps forward, at every look at it by the simulation, in millionths.
    pub clock_jump_per_million: u32,
    /// The longest jump of the clock.
    pub clock_jump_max: Duration,
    /// A record of a peer's is lost, cut short, changed or sent twice.
    pub spoiled_record: u32,
}

impl Faults {
    /// A network without any: everything arrives at once and whole.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Disturbances that are no peer's fault: short reads, delays, full buffers.
    #[must_use]
    pub fn harmless(random: &mut Random) -> Self {
        let mut some = |max: u64| {
            let is_on = random.chance(600);
            let rate = u32::try_from(random.between(1, max)).expect("a small number");
            if is_on { rate } else { 0 }
        };
        let mut faults = Self {
            stall: some(50),
            short_segment: some(400),
            short_read: some(300),
            partial_write: some(300),
            spurious_event: some(200),
            interrupted_wait: some(200),
            few_events: some(500),
            slow_thread: some(50),
            tiny_buffers: some(300),
            ..Self::default()
        };
        faults.latency_max = random.span(Duration::from_millis(20));
        faults.stall_max = random.span(Duration::from_millis(300));
        faults
    }

    /// All faults, in a random mixture.
    #[must_use]
    pub fn chaos(random: &mut Random) -> Self {
        let mut faults = Self::harmless(random);
        let mut some = |max: u64| {
            let is_on = random.chance(350);
            let rate = u32::try_from(random.between(1, max)).expect("a small number");
            if is_on { rate } else { 0 }
        };
        faults.reset = some(20);
        faults.silence = some(5);
        faults.connect_refused = some(200);
        faults.connect_lost = some(100);
        faults.accept_aborted = some(100);
        faults.descriptors = some(20);
        faults.clock_jump_per_million = some(1_000);
        if random.chance(300) {
            faults.stall_max = random.span(Duration::from_secs(8));
        }
        faults.clock_jump_max = random.span(Duration::from_secs(100));
        let mut tls = random.split("tls", 0);
        faults.spoiled_record = if tls.chance(350) { 1 + tls.below(20) as u32 } else { 0 };
        faults
    }

    /// Whether a response may be missing, or be an error, for a reason that lies in the network.
    #[must_use]
    pub const fn is_harmful(&self) -> bool {
        self.reset > 0
            || self.silence > 0
            || self.connect_refused > 0
            || self.connect_lost > 0
            || self.accept_aborted > 0
            || self.descriptors > 0
            || self.clock_jump_per_million > 0
            || self.spoiled_record > 0
            || self.stall_max.as_millis() > 500
    }
}

/// How the services behind the proxy behave.
#[derive(Clone, Debug, Default)]
pub struct ServiceFaults {
    /// The connection closes on a request, without an answer.
    pub close_on_request: u32,
    /// The connection closes while it is idle.
    pub close_idle: u32,
    /// The response breaks off.
    pub truncate: u32,
    /// The response is not valid HTTP.
    pub garbage: u32,
    /// Bytes without a request follow the response.
    pub unsolicited: u32,
    /// The response never comes, or stops coming.
    pub hang: u32,
    /// The request is not read to its end.
    pub stop_reading: u32,
    /// A stream is refused.
    pub refuse: u32,
    /// The connection takes no more streams, from one moment to the next.
    pub go_away: u32,
}

impl ServiceFaults {
    /// All faults, in a random mixture.
    #[must_use]
    pub fn chaos(random: &mut Random) -> Self {
        let mut some = |max: u64| {
            let is_on = random.chance(400);
            let rate = u32::try_from(random.between(1, max)).expect("a small number");
            if is_on { rate } else { 0 }
        };
        Self {
            close_on_request: some(150),
            close_idle: some(300),
            truncate: some(150),
            garbage: some(100),
            unsolicited: some(100),
            hang: some(50),
            stop_reading: some(50),
            refuse: some(150),
            go_away: some(100),
        }
    }

    /// Whether a response may be missing, or be an error, for a reason that lies in a service.
    #[must_use]
    pub const fn is_harmful(&self) -> bool {
        self.close_on_request > 0
            || self.close_idle > 0
            || self.truncate > 0
            || self.garbage > 0
            || self.unsolicited > 0
            || self.hang > 0
            || self.stop_reading > 0
            || self.refuse > 0
            || self.go_away > 0
    }
}
