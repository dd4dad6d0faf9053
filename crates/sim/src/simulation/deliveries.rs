//! The part of control that takes what a source delivers of all kinds of resources, and which versions workers have.

use std::sync::Arc;
use std::time::Duration;

use proxy::Snapshot;
use proxy::time::Time;

use super::Simulation;
use super::errands::Errand;
use crate::random::Random;

impl Simulation {
    pub(super) fn plan_deliveries(&mut self, begin: Time) {
        let mut random = Random::new(self.scenario.seed).split("deliveries", 2);
        for _ in 0..self.scenario.deliveries.unwrap_or(0) {
            let at = begin + random.span(Duration::from_secs(20));
            self.errand(at, Errand::DeliverOfAllKinds);
        }
        self.plan_ends_of_waits();
    }

    pub(super) fn deliver_of_all_kinds(&mut self) {
        if let Some(handover) = self.handover.as_deref_mut() {
            handover.has_reloaded = true;
            self.delivered_in_probation += 1;
        }
        let now = self.now();
        if let Some(snapshot) = self.configurations.deliver_of_all_kinds(now) {
            self.publish(&snapshot);
        }
        self.plan_ends_of_waits();
    }

    /// A process that is the process again hears what the other one has heard meanwhile.
    pub(super) fn deliver_missed(&mut self) {
        let now = self.now();
        if let Some(snapshot) = self.configurations.deliver_missed(now) {
            self.publish(&snapshot);
        }
        self.plan_ends_of_waits();
    }

    /// What waits from now on waits no longer once it has waited for long enough.
    pub(super) fn plan_ends_of_waits(&mut self) {
        let timeout = self.configurations.initial_fetch_timeout();
        if let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) {
            self.errand(self.now() + timeout + Duration::from_millis(1), Errand::EndWaits);
        }
    }

    pub(super) fn end_waits(&mut self) {
        let now = self.now();
        if let Some(snapshot) = self.configurations.end_waits(now) {
            self.publish(&snapshot);
        }
    }

    /// Workers of a process are about to get a configuration.
    pub(super) fn note_served(&mut self, first: usize, snapshot: &Arc<Snapshot>) {
        if let Some(served) = self.configurations.served() {
            self.served.insert((first, snapshot.version), served);
        }
    }

    /// A worker has the configuration that it has.
    pub(super) fn note_versions(&mut self, number: usize) {
        if self.served.is_empty() {
            return;
        }
        let Some(configuration) = self.configuration_of(number) else { return };
        let now = self.network.borrow().now();
        if let Some(served) = self.served.get(&configuration) {
            self.ledger.versions.note(configuration, served, now);
        }
    }

    /// A worker has had these since it had that one: mail that has waited is read in one turn.
    pub(super) fn note_versions_since(&mut self, before: Option<(usize, u64)>, number: usize) {
        let (Some(before), Some(after)) = (before, self.configuration_of(number)) else { return };
        let now = self.network.borrow().now();
        for (configuration, served) in self.served.range(before..=after) {
            self.ledger.versions.note(*configuration, served, now);
        }
    }

    /// The configuration that a worker has: by the first worker of its process, and its number.
    pub(super) fn configuration_of(&mut self, number: usize) -> Option<(usize, u64)> {
        let thread = self.threads.get_mut(number)?.as_mut()?;
        let version = thread.worker.proxy().snapshot().version;
        let (first, _) = self.reports.iter().rev().find(|(first, _)| *first <= number)?;
        Some((*first, version))
    }
}
