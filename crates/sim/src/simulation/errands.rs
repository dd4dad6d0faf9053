//! What control does in a run, and when: planned at its beginning, or while it goes on.

use std::sync::Arc;
use std::time::Duration;

use config::memory::{MemoryLevel, MemoryPressure};
use proxy::ExchangeKey;
use proxy::time::Time;
use worker::Message;

use super::Simulation;
use crate::random::Random;

/// A planned action of control.
#[derive(Debug)]
pub(super) enum Errand {
    Swap,
    Drain,
    Move,
    Handover,
    GoOnWithHandover,
    GiveBack,
    ReturnLate,
    Outliers,
    Checks,
    Deliver,
    TakeBack,
    DeliverOfAllKinds,
    EndWaits,
    Resolve,
    LinkNoted,
    Memory(MemoryPressure),
    Answer { worker: usize, exchange: ExchangeKey, payload: Arc<[u8]> },
}

impl Simulation {
    pub(super) fn plan_errands(&mut self) {
        let begin = self.now();
        for _ in 0..self.scenario.swaps {
            let at = begin + self.random.span(Duration::from_secs(20));
            self.errand(at, Errand::Swap);
        }
        for _ in 0..self.scenario.moves {
            // Most clients come at the beginning.
            let longest = Duration::from_secs(if self.random.chance(500) { 1 } else { 15 });
            let at = begin + longest.mul_f64(self.random.below(1_000_000) as f64 / 1e6);
            self.errand(at, Errand::Move);
        }
        for _ in 0..self.scenario.handovers {
            let at = begin + self.random.span(Duration::from_secs(10));
            self.errand(at, Errand::Handover);
        }
        self.plan_memory(begin);
        self.plan_deliveries(begin);
        self.plan_resolutions(begin);
        if self.scenario.drains {
            let at = begin + self.random.span(Duration::from_secs(30));
            self.errand(at, Errand::Drain);
        }
    }

    /// Each shortage has a level for some seconds; at the highest, connections close for what they hold.
    fn plan_memory(&mut self, begin: Time) {
        let mut random = Random::new(self.scenario.seed).split("memory", 1);
        for _ in 0..self.scenario.memory_shortages {
            let level = MemoryLevel::ALL[random.length_between(1, 3)];
            let is_critical = level == MemoryLevel::Critical;
            let excess_bytes = if is_critical { random.below(1 << 18) } else { 0 };
            let memory = MemoryPressure {
                level,
                max_bytes: 1 << random.below(24),
                releases_free: random.chance(500),
                excess_bytes,
                ..MemoryPressure::default()
            };
            let at = begin + random.span(Duration::from_secs(15));
            self.errand(at, Errand::Memory(memory));
            let end = at + random.span(Duration::from_secs(3));
            self.errand(end, Errand::Memory(MemoryPressure::default()));
        }
    }

    pub(super) fn errand(&mut self, at: Time, errand: Errand) {
        self.errands_total += 1;
        self.errands.insert((at, self.errands_total), errand);
    }

    pub(super) fn run_errand(&mut self, errand: Errand) {
        match errand {
            errand @ (Errand::Swap | Errand::Drain) if !self.may_change() => {
                let later = self.now() + Duration::from_millis(1);
                self.errand(later, errand);
            }
            errand @ (Errand::Resolve
            | Errand::LinkNoted
            | Errand::DeliverOfAllKinds
            | Errand::EndWaits)
                if !self.may_change() =>
            {
                let later = self.now() + Duration::from_millis(50);
                self.errand(later, errand);
            }
            // Requests of both processes may ask for a cluster, so that waits for the end of the probation.
            errand @ (Errand::Deliver | Errand::TakeBack)
                if !self.moves.is_empty() || self.handover.is_some() =>
            {
                let later = self.now() + Duration::from_millis(1);
                self.errand(later, errand);
            }
            Errand::Swap => self.swap(),
            Errand::Deliver => self.deliver(),
            Errand::TakeBack => self.take_cluster_back(),
            Errand::DeliverOfAllKinds => self.deliver_of_all_kinds(),
            Errand::EndWaits => self.end_waits(),
            Errand::Resolve => self.resolve(),
            Errand::LinkNoted => self.link_noted(),
            Errand::Move if self.handover.is_some() => {}
            Errand::Move => self.move_one(),
            Errand::Handover => self.begin_handover(),
            Errand::GoOnWithHandover => self.go_on_with_handover(),
            Errand::GiveBack => self.ask_to_take_back(),
            Errand::ReturnLate => self.return_late(),
            Errand::Outliers => self.on_outliers_due(),
            Errand::Checks => self.on_checks_due(),
            Errand::Drain => {
                self.is_draining = true;
                self.listeners_of.clear();
                self.post_all(|_| Message::Drain);
                self.end_warming(Duration::MAX);
                self.end_probation();
            }
            Errand::Memory(memory) => self.post_all(|_| Message::Memory(memory)),
            Errand::Answer { worker, exchange, payload } => {
                self.post(worker, Message::Answer { exchange, payload });
            }
        }
    }
}
