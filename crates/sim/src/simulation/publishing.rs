//! The part of control that hands workers configurations and other messages.

use std::sync::Arc;

use proxy::Snapshot;
use worker::Message;

use super::Simulation;
use crate::configuration::names;
use crate::world::{SimListener, SimSocket};

impl Simulation {
    pub(super) fn swap(&mut self) {
        let snapshot = self.configurations.another();
        self.publish(&snapshot);
        self.note_reload_in_probation();
    }

    pub(super) fn note_reload_in_probation(&mut self) {
        if let Some(handover) = self.handover.as_deref_mut() {
            handover.has_reloaded = true;
            self.reloaded_in_probation += 1;
        }
    }

    /// Hands workers another configuration.
    pub(super) fn publish(&mut self, snapshot: &Arc<Snapshot>) {
        self.note_bounds(snapshot);
        self.note_served(self.process.start, snapshot);
        self.detect_in(snapshot);
        self.check_in(snapshot);
        self.read_log();
        self.name(snapshot);
        let is_there = |name: &Arc<str>| snapshot.listeners.iter().any(|it| it.name == *name);
        self.listeners_of.retain(|(name, _)| is_there(name));
        for number in self.process.clone() {
            if self.threads.get(number).is_some_and(Option::is_some) {
                let added = &snapshot.changes.listeners_added;
                let listeners = self.listeners(snapshot, number, |id| added.contains(&id));
                let snapshot = Arc::clone(snapshot);
                self.snapshots_posted += 1;
                let inherited = Arc::default();
                self.post(number, Message::Snapshot { snapshot, listeners, inherited });
            }
        }
    }

    pub(super) fn name(&mut self, snapshot: &Snapshot) {
        let names = names(snapshot);
        self.log.set_names(Arc::clone(&names));
        self.counted().set_names(names);
    }

    pub(super) fn post_all(&self, message: impl Fn(usize) -> Message<SimListener, SimSocket>) {
        for number in self.process.clone() {
            self.post(number, message(number));
        }
    }

    pub(super) fn post(&self, worker: usize, message: Message<SimListener, SimSocket>) {
        // A worker that has drained is gone, and its mail with it.
        drop(self.try_post(worker, message));
    }

    pub(super) fn try_post(
        &self,
        worker: usize,
        message: Message<SimListener, SimSocket>,
    ) -> Result<(), Message<SimListener, SimSocket>> {
        let postbox = self.postboxes.get(worker).expect("one for each worker");
        postbox.post(message)?;
        self.network.borrow_mut().notify(worker);
        Ok(())
    }
}
