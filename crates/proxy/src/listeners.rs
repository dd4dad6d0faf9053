//! What a worker knows of its listeners at run time.

use std::collections::BTreeMap;

use config::snapshot::{Listener, ListenerId};

use crate::filter::Filter;
use crate::pinned::Pinned;
use crate::slab::{Key, Slab};

/// Names one listener of a worker.
pub(crate) type ListenerKey = Key<ListenerState>;

/// One listener at run time.
#[derive(Debug)]
pub(crate) struct ListenerState {
    pub(crate) id: ListenerId,
    /// The newest snapshot that has it.
    pub(crate) snapshot: Pinned,
    /// Its place there.
    pub(crate) place: usize,
    /// Connections open.
    pub(crate) open: u32,
    /// It went with a newer snapshot: its connections end after their exchange.
    pub(crate) is_draining: bool,
}

impl ListenerState {
    pub(crate) fn listener(&self) -> &Listener<Box<dyn Filter>> {
        self.snapshot.listeners.get(self.place).expect("places are of this very snapshot")
    }
}

/// The listeners of a worker.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    states: Slab<ListenerState>,
    by_id: BTreeMap<ListenerId, ListenerKey>,
    /// Connections open on all of them.
    pub(crate) open: u32,
}

impl Listeners {
    pub(crate) fn find(&self, id: ListenerId) -> Option<ListenerKey> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn get(&self, key: ListenerKey) -> &ListenerState {
        self.states.get(key).expect("a listener outlives its connections")
    }

    /// Takes up a newer snapshot: new listeners come, removed ones begin to drain. Gives the removed
    /// that still have connections.
    pub(crate) fn update(&mut self, snapshot: &Pinned) -> Vec<ListenerKey> {
        let mut draining = Vec::new();
        for id in &snapshot.changes.listeners_removed {
            if let Some(key) = self.by_id.remove(id)
                && let Some(state) = self.states.get_mut(key)
            {
                state.is_draining = true;
                self.remove_if_done(key);
                draining.push(key);
            }
        }
        for (place, listener) in snapshot.listeners.iter().enumerate() {
            let snapshot = snapshot.clone();
            match self.by_id.get(&listener.id).and_then(|key| self.states.get_mut(*key)) {
                Some(state) => (state.snapshot, state.place) = (snapshot, place),
                None => {
                    let id = listener.id;
                    let state = ListenerState { id, snapshot, place, open: 0, is_draining: false };
                    self.by_id.insert(id, self.states.insert(state));
                }
            }
        }
        draining.retain(|key| self.states.get(*key).is_some());
        draining
    }

    pub(crate) fn on_opened(&mut self, key: ListenerKey) {
        self.open += 1;
        if let Some(state) = self.states.get_mut(key) {
            state.open += 1;
        }
    }

    pub(crate) fn on_closed(&mut self, key: ListenerKey) {
        self.open -= 1;
        if let Some(state) = self.states.get_mut(key) {
            state.open -= 1;
            self.remove_if_done(key);
        }
    }

    fn remove_if_done(&mut self, key: ListenerKey) {
        if self.states.get(key).is_some_and(|state| state.is_draining && state.open == 0) {
            self.states.remove(key);
        }
    }
}
