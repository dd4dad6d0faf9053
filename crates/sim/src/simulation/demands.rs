//! The part of control that has a source asked for a cluster once a request needs it.

use std::time::Duration;

use proxy::ExchangeKey;
use worker::Message;

use super::Simulation;
use super::errands::Errand;
use crate::configuration::ON_DEMAND;

/// A source takes so long.
const DELIVERY_MAX: Duration = Duration::from_millis(500);

/// Of a thousand times, those that a source has no such cluster when it is asked, where requests may fail.
const LACKING: u32 = 200;

/// Of a thousand deliveries, those whose cluster the source takes back soon afterwards, where requests may fail.
const TAKEN_BACK: u32 = 500;

impl Simulation {
    /// An exchange of a worker needs it.
    pub(super) fn on_demand(&mut self, worker: usize, exchange: ExchangeKey) {
        self.demands.push((worker, exchange));
        if self.demands.len() == 1 {
            let at = self.now() + self.demands_random.span(DELIVERY_MAX);
            self.errand(at, Errand::Deliver);
        }
    }

    /// The source has it or says that it has not, and all that wait hear of it.
    pub(super) fn deliver(&mut self) {
        let is_there = self.has_on_demand();
        let is_lacking = !self.scenario.is_strict && self.demands_random.chance(LACKING);
        if !is_there
            && !is_lacking
            && let Some(snapshot) = self.configurations.deliver()
        {
            self.publish(&snapshot);
            if !self.scenario.is_strict && self.demands_random.chance(TAKEN_BACK) {
                let at = self.now() + self.demands_random.span(DELIVERY_MAX);
                self.errand(at, Errand::TakeBack);
            }
        }
        let answer: &[u8] = if is_lacking && !is_there { b"there is none" } else { b"" };
        for (worker, exchange) in std::mem::take(&mut self.demands) {
            self.post(worker, Message::Answer { exchange, payload: answer.into() });
        }
    }

    /// The source has it no more. Requests that still run may see it come again.
    pub(super) fn take_cluster_back(&mut self) {
        if self.has_on_demand()
            && let Some(snapshot) = self.configurations.take_back()
        {
            self.publish(&snapshot);
        }
    }

    fn has_on_demand(&self) -> bool {
        let mut clusters = self.snapshot.iter().flat_map(|snapshot| snapshot.clusters.iter());
        clusters.any(|(_, cluster)| &*cluster.name == ON_DEMAND)
    }
}
