//! How a run goes on: the next event is of the network, of a worker or of control.

use std::time::Duration;

use proxy::SkipHandshake as _;
use proxy::time::Time;

use super::{IDLE_TURNS_MAX, Peer, Simulation};
use crate::network::PeerId;

impl Simulation {
    /// Carries out the next event, of the network or of a worker.
    pub(super) fn step(&mut self) {
        let wake = self.network.borrow_mut().take_wake();
        if let Some((PeerId(peer), wake)) = wake {
            self.idle_turns = 0;
            let network = &mut self.network.borrow_mut();
            match self.peers.get_mut(peer) {
                Some(Peer::Client(client)) => client.on_wake(wake, network, &mut self.ledger),
                Some(Peer::Service(service)) => service.on_wake(wake, network, &mut self.ledger),
                None => {}
            }
            network.take_complaints().into_iter().for_each(|what| self.ledger.violate(what));
            return;
        }
        let happening = self.network.borrow().next_time();
        let errand = self.errands.keys().next().map(|(time, _)| *time);
        let stopped = self.stopped.clone();
        let running = (0..self.threads.len()).filter(|number| !stopped.contains(number));
        let thread = running.filter_map(|number| Some((self.due(number)?, number)));
        let thread = thread.min();
        let others = happening.into_iter().chain(errand).min();
        match (thread, others) {
            (Some((at, number)), others) if others.is_none_or(|other| at < other) => {
                if at > self.now() {
                    // It slept before this turn.
                    self.idle_turns = 0;
                }
                self.network.borrow_mut().advance(at);
                self.turn(number);
            }
            (_, Some(at)) => {
                self.idle_turns = 0;
                self.network.borrow_mut().advance(at);
                if happening == Some(at) {
                    self.network.borrow_mut().step();
                } else if let Some((_, errand)) = self.errands.pop_first() {
                    self.run_errand(errand);
                }
            }
            // Nothing will ever happen again: time passes.
            (_, None) => {
                let later = self.now() + Duration::from_secs(1);
                self.network.borrow_mut().advance(later);
            }
        }
    }

    /// When a worker's thread runs next.
    fn due(&mut self, number: usize) -> Option<Time> {
        let has_events = self.network.borrow().has_events(number);
        let now = self.now();
        let thread = self.threads.get_mut(number)?.as_mut()?;
        if has_events && thread.runs_at.is_none() {
            let is_slow = self.random.chance(self.scenario.faults.slow_thread);
            let span = if is_slow { Duration::from_millis(200) } else { Duration::from_micros(20) };
            thread.runs_at = Some(now + self.random.span(span));
        }
        let deadline = thread.worker.next_deadline();
        thread.runs_at.into_iter().chain(deadline).min()
    }

    pub(super) fn turn(&mut self, number: usize) {
        let Some(Some(thread)) = self.threads.get_mut(number) else { return };
        thread.runs_at = None;
        self.note_versions(number);
        let before = self.configuration_of(number);
        let Some(Some(thread)) = self.threads.get_mut(number) else { return };
        let goes_on = thread.worker.turn().expect("the simulated world always waits");
        self.turns += 1;
        self.idle_turns += 1;
        self.note_versions_since(before, number);
        self.check_connects(number, before);
        if let Some(handover) = self.handover.as_deref_mut() {
            handover.on_turn(number);
        }
        if self.idle_turns > IDLE_TURNS_MAX {
            let what = format!("worker {number} turns and turns, and nothing happens");
            self.ledger.violate(what);
        }
        if !goes_on {
            self.check_leases(number);
            self.threads[number] = None;
            self.note_end_of(number, false);
        } else if self.turns.is_multiple_of(16) {
            self.check_queues(number);
            self.check_idle(number);
        }
        self.check_bounds();
        self.give_keys(number);
        self.go_on_with_moves();
        if self.events.is_some() {
            self.record(Some(number));
        }
        self.read_reports();
    }

    /// Gives record layers to the TLS connections that began just now.
    pub(super) fn give_keys(&mut self, number: usize) {
        let keys = self.network.borrow_mut().take_keys(number);
        let now = self.now();
        let Some(Some(thread)) = self.threads.get_mut(number) else { return };
        for (key, records) in keys {
            thread.worker.proxy().begin_records(key, records, now);
        }
    }
}
