//! The end of the process: leaving, draining, stopping.
//!
//! A process that has given its connections to another ends by `handover`, and one that takes them does not drain.

use std::time::Duration;

use super::handing::{EndAsked, Handing};
use super::moves::AfterMoves;
use super::{Outcome, Running, State};
use crate::clock;
use crate::workers::Workers;

/// What the end of the process takes beyond the drain, at most: the last pages and lines.
const END_MAX: Duration = Duration::from_secs(10);

impl<W: Workers> Running<W> {
    /// A first time drains, at the end of a delay if there is one, which a second time ends; another
    /// time stops. In a handover the first two wait for its end, and a third one stops; in one that takes, the first alone waits.
    pub(super) fn end(&mut self) {
        self.is_asked_to_end = true;
        match self.postpones_end() {
            Some(1) => {
                return tracing::info!("a handover is in progress: the process ends after it");
            }
            Some(_) => {
                return tracing::warn!(
                    "a handover is still in progress: a third signal stops this process at once"
                );
            }
            None => {}
        }
        match self.handing {
            Handing::Taking { .. } => return self.stop_taking(),
            Handing::Given { .. } if self.state == State::Ready => return self.finish_giving(),
            Handing::Giving { .. } => {
                self.leave_to_taker();
                return self.stop_at_once();
            }
            Handing::TakingBack { .. } => return self.stop_at_once(),
            Handing::None | Handing::Given { .. } => {}
        }
        match self.state {
            State::Starting | State::Ready => self.leave(),
            State::Storing => {
                tracing::info!("connections are being stored: the process ends after that");
            }
            State::Leaving => self.drain(),
            State::Draining => self.stop_at_once(),
            State::Stopping => {}
        }
    }

    fn stop_at_once(&mut self) {
        if self.state != State::Stopping {
            tracing::warn!("stopping at once: remaining connections are closed");
            self.stop_now();
        }
    }

    pub(super) fn stop_now(&mut self) {
        self.hands_over = None;
        self.state = State::Stopping;
        self.service_manager.status("stopping at once");
        self.workers.end_now();
        self.workers.stop();
    }

    /// Begins the end: says that the process is not ready, and drains after `limits.drain_delay`.
    pub(super) fn leave(&mut self) {
        // A process that starts from now on begins as the first one does.
        self.hands_over = None;
        let limits = &self.config.snapshot.limits;
        let (delay, timeout) = (limits.drain_delay, limits.drain_timeout);
        if delay.is_zero() {
            return self.drain();
        }
        tracing::info!(?delay, "leaving: not ready, still accepting connections");
        self.state = State::Leaving;
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.drain_at = clock::monotonic_ns().saturating_add(delay_ns);
        let at_most = delay.saturating_add(timeout).saturating_add(END_MAX);
        self.service_manager.stopping(at_most, "not ready, still accepting");
    }

    pub(super) fn drain_after_delay(&mut self) {
        if self.state == State::Leaving && clock::monotonic_ns() >= self.drain_at {
            self.drain();
        }
    }

    pub(super) fn drain(&mut self) {
        self.hands_over = None;
        let timeout = self.config.snapshot.limits.drain_timeout;
        tracing::info!(
            ?timeout,
            "draining: accepting no new connections, finishing active exchanges"
        );
        self.state = State::Draining;
        self.health.on_drain(&self.config.snapshot);
        self.config.dns.stop();
        self.service_manager.forget_workers();
        self.service_manager.stopping(timeout.saturating_add(END_MAX), "draining");
        self.after_moves(AfterMoves::Drain);
    }

    /// Whether the end of this process waits for that of one before it, whose counts it passes on to the one that has its place: not
    /// if it was asked to end, nor as the first of a container, which stays without all that it has.
    pub(super) const fn waits_for_former(&self) -> bool {
        matches!(self.handing, Handing::Given { end: EndAsked::No, .. })
            && matches!(self.state, State::Draining)
            && self.others.passes_counts_on()
            && !(self.is_init || self.is_asked_to_end)
    }

    /// Whether no worker runs any more.
    pub(super) fn is_over(&self) -> bool {
        self.stopped.len() == self.workers.count() as usize
    }

    /// How the process ends, once it is to.
    pub(super) fn end_when_over(&mut self) {
        if self.outcome.is_some() || !self.is_over() || self.waits_for_former() {
            return;
        }
        self.outcome = Some(match (self.handing, self.state) {
            (Handing::Given { successor, .. }, _) => {
                Outcome::Replaced { successor, was_to_end: false }
            }
            (_, State::Stopping) => Outcome::Stopped,
            (
                _,
                State::Starting | State::Ready | State::Storing | State::Leaving | State::Draining,
            ) => Outcome::Drained,
        });
    }

    pub(super) const fn is_ending(&self) -> bool {
        matches!(self.state, State::Draining | State::Stopping)
    }
}
