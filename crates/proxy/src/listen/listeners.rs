//! What a worker knows of its listeners at run time.

use std::collections::BTreeMap;

use config::snapshot::{Chain, ChainId, Listener, ListenerId};

use crate::filter::Filter;
use crate::listen::age;
use crate::share::Share;
use crate::tools::pinned::Pinned;
use crate::tools::slab::{Key, Slab};

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
    /// Bytes that its clients held in buffers at the last look.
    buffered: u64,
    /// It went with a newer snapshot: its connections end after their exchange.
    pub(crate) is_draining: bool,
}

impl ListenerState {
    const fn new(id: ListenerId, snapshot: Pinned, place: usize) -> Self {
        Self { id, snapshot, place, open: 0, buffered: 0, is_draining: false }
    }

    pub(crate) fn listener(&self) -> &Listener<Box<dyn Filter>> {
        self.snapshot.listeners.get(self.place).expect("places are of this very snapshot")
    }

    fn buffered_over(&self, share: Share) -> u64 {
        let bound = self.listener().buffered_bytes_max.map(|bound| share.of_bytes(bound));
        bound.map_or(0, |bound| self.buffered.saturating_sub(bound))
    }
}

/// What a listener had for connections that it still has.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) from: ListenerKey,
    /// The listener that drains with them.
    pub(crate) to: ListenerKey,
    chains: Vec<ChainId>,
    /// What connections without a chain met.
    default: bool,
}

impl Lost {
    /// Whether a connection met what is lost.
    pub(crate) fn concerns(&self, chain: Option<ChainId>) -> bool {
        chain.map_or(self.default, |chain| self.chains.contains(&chain))
    }
}

/// The listeners of a worker.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    states: Slab<ListenerState>,
    by_id: BTreeMap<ListenerId, ListenerKey>,
    /// Connections open on all of them.
    pub(crate) open: u32,
    /// Whether connections of any may be over their age.
    has_ages: bool,
    /// The smallest bound on what the clients of one may hold in buffers, in the process.
    buffered_least: u64,
}

impl Listeners {
    pub(crate) const fn has_ages(&self) -> bool {
        self.has_ages
    }

    pub(crate) fn find(&self, id: ListenerId) -> Option<ListenerKey> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn get(&self, key: ListenerKey) -> &ListenerState {
        self.states.get(key).expect("a listener outlives its connections")
    }

    /// What connections meet that a newer snapshot has nothing for any more, and a listener that
    /// goes on having it for them while it drains.
    pub(crate) fn split(&mut self, snapshot: &Pinned) -> Vec<Lost> {
        let mut lost = Vec::new();
        for id in &snapshot.changes.listeners_changed {
            let Some(from) = self.find(*id) else { continue };
            let Some((_, new)) = snapshot.listener(*id) else { continue };
            let state = self.get(from);
            let old = state.listener();
            let is_gone = |chain: &&Chain<_>| new.chains.iter().all(|kept| kept.id != chain.id);
            let chains: Vec<_> = old.chains.iter().filter(is_gone).map(|gone| gone.id).collect();
            let default = old.has_default && !new.has_default;
            if state.open > 0 && (default || !chains.is_empty()) {
                let (snapshot, place) = (state.snapshot.clone(), state.place);
                let mut state = ListenerState::new(*id, snapshot, place);
                state.is_draining = true;
                lost.push(Lost { from, to: self.states.insert(state), chains, default });
            }
        }
        lost
    }

    /// Connections belong to another listener from now on.
    pub(crate) fn on_moved(&mut self, from: ListenerKey, to: ListenerKey, count: usize) {
        let count = u32::try_from(count).expect("no more than are open");
        if let Some(state) = self.states.get_mut(from) {
            state.open -= count;
        }
        if let Some(state) = self.states.get_mut(to) {
            state.open += count;
        }
        self.remove_if_done(to);
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
        self.has_ages = snapshot.listeners.iter().any(|listener| age::has_ages(listener));
        let bounds = snapshot.listeners.iter().filter_map(|listener| listener.buffered_bytes_max);
        self.buffered_least = bounds.min().unwrap_or(u64::MAX);
        for (place, listener) in snapshot.listeners.iter().enumerate() {
            let snapshot = snapshot.clone();
            match self.by_id.get(&listener.id).and_then(|key| self.states.get_mut(*key)) {
                Some(state) => (state.snapshot, state.place) = (snapshot, place),
                None => {
                    let state = ListenerState::new(listener.id, snapshot, place);
                    self.by_id.insert(listener.id, self.states.insert(state));
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

    // What their clients hold in buffers.

    /// The smallest bound on it, in the process.
    pub(crate) const fn buffered_least(&self) -> u64 {
        self.buffered_least
    }

    /// Begins to add up anew.
    pub(crate) fn forget_buffered(&mut self) {
        self.states.iter_mut().for_each(|state| state.buffered = 0);
    }

    /// A client holds so many bytes.
    pub(crate) fn add_buffered(&mut self, key: ListenerKey, bytes: u64) {
        if let Some(state) = self.states.get_mut(key) {
            state.buffered += bytes;
        }
    }

    /// A client holds so many bytes no more.
    pub(crate) fn remove_buffered(&mut self, key: ListenerKey, bytes: u64) {
        if let Some(state) = self.states.get_mut(key) {
            state.buffered = state.buffered.saturating_sub(bytes);
        }
    }

    /// Bytes that the clients of a listener hold beyond its bound.
    pub(crate) fn buffered_over(&self, key: ListenerKey, share: Share) -> u64 {
        self.states.get(key).map_or(0, |state| state.buffered_over(share))
    }

    /// Bytes that the clients of each listener hold, those of one that it was before included.
    pub(crate) fn buffered(&self) -> BTreeMap<ListenerId, u64> {
        let mut held = BTreeMap::new();
        for (_, state) in self.states.iter() {
            *held.entry(state.id).or_default() += state.buffered;
        }
        held
    }

    /// Whether the clients of any hold more than its bound.
    pub(crate) fn is_over_buffered(&self, share: Share) -> bool {
        self.states.iter().any(|(_, state)| state.buffered_over(share) > 0)
    }

    fn remove_if_done(&mut self, key: ListenerKey) {
        if self.states.get(key).is_some_and(|state| state.is_draining && state.open == 0) {
            self.states.remove(key);
        }
    }
}
