//! What control knows of the processes before this one, which still have connections, and of the one that has its place.

/// How long connections may take to be back with their workers that another process did not take, ns.
const RETURN_TIME: u64 = 2_000_000_000;

/// The other processes of this service, and what is to be lost with them.
#[derive(Debug, Default)]
pub(super) struct OtherProcesses {
    /// When what was given in a handover that came to nothing is lost, unless it came back by then; monotonic time, ns.
    lost_at: Option<u64>,
    /// Whether what was open in the process before this one, and ended with it, still counts as open.
    is_former_lost: bool,
    /// Processes before this one that still have connections.
    formers: usize,
    /// Whether one of them has its place back, and this one is no more than what is left of it.
    is_former_successor: bool,
    /// Whether the process whose place this one took is not among them any more.
    has_former_ended: bool,
    /// Whether the process that took this one's place hears it no longer.
    is_successor_gone: bool,
}

/// What does not count as open any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    /// What was given to a process that gave it up.
    pub(super) given: bool,
    /// What ended with the processes before this one.
    pub(super) former: bool,
}

impl OtherProcesses {
    /// A handover came to nothing: what was given comes back within [`RETURN_TIME`].
    pub(super) const fn on_rolled_back(&mut self, now: u64) {
        self.lost_at = Some(now.saturating_add(RETURN_TIME));
    }

    /// Another handover begins. Whether something of the last one has not come back, which is lost from now on.
    pub(super) const fn take_unreturned(&mut self) -> bool {
        self.lost_at.take().is_some()
    }

    /// Another process has this one's place; `is_return` if it is the one whose place this one took.
    pub(super) const fn on_successor(&mut self, is_return: bool) {
        // Its end may have been heard of before.
        self.is_former_successor = is_return && !self.has_former_ended;
        self.is_successor_gone = false;
    }

    /// The process that has this one's place hears it no longer.
    pub(super) const fn on_successor_gone(&mut self) {
        self.is_successor_gone = true;
    }

    /// One before this one still has connections.
    pub(super) const fn on_former(&mut self) {
        self.formers += 1;
    }

    /// One of them has ended: the one whose place this one took, or one that gave this one its place back (`gave_back`).
    pub(super) const fn on_former_ended(&mut self, gave_back: bool) {
        if !gave_back {
            (self.is_former_successor, self.has_former_ended) = (false, true);
        }
        self.formers = self.formers.saturating_sub(1);
        self.is_former_lost = true;
    }

    /// Whether this one passes counts of one before it on to the one that has its place.
    pub(super) const fn passes_counts_on(&self) -> bool {
        let of_successor = if self.is_former_successor { 1 } else { 0 };
        self.formers > of_successor && !self.is_successor_gone
    }

    /// What is lost by now, once. To be asked while nothing is between two workers or processes.
    pub(super) fn take_lost(&mut self, now: u64) -> Lost {
        let given = self.lost_at.take_if(|at| now >= *at).is_some();
        // What is open in another one is not lost.
        let are_over = self.lost_at.is_none() && self.formers == 0;
        Lost { given, former: are_over && std::mem::take(&mut self.is_former_lost) }
    }
}
