//! How processes fail at a handover: one is killed, or it is stopped, for a while or until the other one ends it. Some may not end
//! the other one, which runs again then.
//!
//! Of a stopped process no worker has a turn, and its control reads no frame, no clock and no answer. What is sent to it waits. So
//! it finds all of that at once when it continues, and how late it is.

use std::ops::Range;
use std::time::Duration;

use ::handover::Phase;
use proxy::time::Time;

use super::later;
use crate::random::Random;
use crate::simulation::Simulation;

/// How long the former process needs to notice that the new one stands still, and some more.
const NOTICED_WITHIN: Duration = Duration::from_millis(4500);

/// Shorter than any deadline of the conversation, what else may be slow included.
const SHORT_STOP_MAX: Duration = Duration::from_secs(1);

/// Longer than the deadline for a batch, and than a silence may be.
const STOP_MAX: Duration = Duration::from_secs(6);

/// Longer than a taker waits for a giver.
const LONG_STOP_MIN: Duration = Duration::from_secs(16);
const LONG_STOP_MAX: Duration = Duration::from_secs(25);

/// Within this time the control of a process that continues reads what came while it was stopped.
const READ_WITHIN: Duration = Duration::from_millis(20);

/// One of the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The one that has the sockets.
    Giver,
    /// The new one.
    Taker,
}

/// How a process fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandoverFault {
    /// It is killed.
    Ends(Side),
    /// It is stopped for so long; without a time, until the other one ends it.
    Stops(Side, Option<Duration>),
}

impl HandoverFault {
    /// What fails, and behind how many frames, if anything does.
    pub(super) fn of(random: &mut Random, is_strict: bool) -> Option<(Self, u32)> {
        if !random.chance(600) {
            return None;
        }
        // Frames of a handover, and some more.
        let at = random.length_below(40) as u32;
        let side = *random.pick(&[Side::Giver, Side::Taker]);
        let span = match if is_strict { 0 } else { random.below(3) } {
            0 => random.span(SHORT_STOP_MAX),
            1 => SHORT_STOP_MAX + random.span(STOP_MAX - SHORT_STOP_MAX),
            _ => LONG_STOP_MIN + random.span(LONG_STOP_MAX - LONG_STOP_MIN),
        };
        let stops = Self::Stops(side, Some(span));
        let faults = [
            Self::Ends(Side::Giver),
            Self::Ends(Side::Taker),
            Self::Stops(Side::Taker, None),
            stops,
            stops,
        ];
        Some((if is_strict { stops } else { *random.pick(&faults) }, at))
    }

    /// The same where the other process may not end this one: it runs again.
    pub(super) const fn without_end(self) -> Self {
        match self {
            Self::Stops(side, None) => Self::Stops(side, Some(LONG_STOP_MIN)),
            other => other,
        }
    }

    /// How much longer a probation has to be in which the former process may notice it.
    pub(super) const fn noticed_within(self) -> Duration {
        match self {
            Self::Stops(Side::Taker, None) => NOTICED_WITHIN,
            Self::Stops(Side::Taker, Some(span))
                if span.as_millis() > SHORT_STOP_MAX.as_millis() =>
            {
                NOTICED_WITHIN
            }
            _ => Duration::ZERO,
        }
    }
}

/// A process that is stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopped {
    side: Side,
    /// When it continues, if it does.
    until: Option<Time>,
}

impl Stopped {
    /// The same process in a conversation that goes in the other direction.
    pub(super) const fn with_sides_exchanged(self) -> Self {
        let side = match self.side {
            Side::Giver => Side::Taker,
            Side::Taker => Side::Giver,
        };
        Self { side, ..self }
    }
}

impl super::Handover {
    pub(super) fn is_stopped(&self, side: Side) -> bool {
        self.stopped.is_some_and(|stopped| stopped.side == side)
    }

    fn workers_of(&self, side: Side) -> Range<usize> {
        match side {
            Side::Giver => self.from.clone(),
            Side::Taker => self.to.clone(),
        }
    }
}

impl Simulation {
    /// A process continues that was stopped until now.
    pub(super) fn continue_stopped(&mut self, now: Time) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        let is_over = |stopped: &mut Stopped| stopped.until.is_some_and(|until| until <= now);
        if let Some(Stopped { side, .. }) = it.stopped.take_if(is_over) {
            let workers = it.workers_of(side);
            // Its workers may go on before its control has read what came meanwhile.
            let read_at = now + it.random.span(READ_WITHIN);
            let frames = match side {
                Side::Giver => &mut it.to_giver,
                Side::Taker => &mut it.to_taker,
            };
            frames.iter_mut().for_each(|frame| frame.due = frame.due.max(read_at));
            self.stopped.retain(|number| !workers.contains(number));
        }
    }

    /// What waits for probation comes at some moment of it.
    pub(super) fn fail_in_probation(&mut self) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        let is_probation = it.giver.as_ref().is_some_and(|it| it.phase() == Phase::Probation);
        if !is_probation {
            return;
        }
        let random = &mut it.random;
        let fault = it.fault.take_if(|(fault, _)| match fault {
            HandoverFault::Ends(Side::Giver) => false,
            // The other one has to have the time to notice.
            HandoverFault::Stops(Side::Taker, None) => true,
            HandoverFault::Ends(Side::Taker) | HandoverFault::Stops(..) => random.chance(100),
        });
        if let Some((fault, _)) = fault {
            self.fail(fault);
        }
    }

    pub(super) fn fail(&mut self, fault: HandoverFault) {
        let now = self.now();
        let Some(it) = self.handover.as_deref_mut() else { return };
        let serves = !it.to.is_empty()
            && it.taker.as_ref().is_some_and(|it| it.phase() >= Phase::Connections);
        match fault {
            // The other one has left: nothing would serve any more.
            HandoverFault::Ends(Side::Taker) | HandoverFault::Stops(Side::Taker, None)
                if it.giver.is_none() => {}
            // The former process stands by, or has ended by itself.
            HandoverFault::Ends(Side::Giver) if it.is_return() => {
                if it.taker.as_ref().is_some_and(|it| !it.is_over()) {
                    self.end_giver();
                }
            }
            // Without either there would be none.
            HandoverFault::Ends(Side::Giver) if !serves => it.fault = Some((fault, it.arrived + 1)),
            HandoverFault::Ends(Side::Giver) => self.end_giver(),
            HandoverFault::Ends(Side::Taker) => self.end_taker(),
            // The other process would be gone before it noticed.
            HandoverFault::Stops(Side::Taker, None)
                if self.process == it.to
                    && it.probation_until < later(now.as_nanos(), NOTICED_WITHIN) => {}
            HandoverFault::Stops(side, span) => {
                it.stopped = Some(Stopped { side, until: span.map(|span| now + span) });
                let workers = it.workers_of(side);
                self.stopped.extend(workers);
                self.stops += 1;
            }
        }
    }

    /// The taker has waited for long enough.
    pub(super) fn on_silent_giver(&mut self) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        self.givers_ended += 1;
        if it.may_end_giver {
            self.end_giver();
        } else if let Some(taker) = &mut it.taker {
            taker.stop_for_silence();
        }
    }

    fn end_giver(&mut self) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        it.giver = None;
        it.to_giver.clear();
        self.network.borrow_mut().is_killing = true;
        it.collecting = None;
        it.given.clear();
        let workers = it.from.clone();
        self.end_process(workers);
    }

    pub(super) fn end_taker(&mut self) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        it.taker = None;
        it.to_taker.clear();
        it.descriptors.clear();
        it.taking.clear();
        let workers = it.to.clone();
        self.end_process(workers);
    }

    /// A process is killed.
    pub(super) fn end_process(&mut self, workers: Range<usize>) {
        self.network.borrow_mut().is_killing = true;
        for number in workers {
            if let Some(thread) = self.threads.get_mut(number) {
                self.killed += usize::from(thread.is_some());
                *thread = None;
                self.note_end_of(number, true);
            }
            self.network.borrow_mut().forget_worker(number);
        }
        self.network.borrow_mut().is_killing = false;
    }
}
