//! What a worker knows of its listeners at run time.
//!
//! A listener is seen as the newest snapshot has it, or, once it drains, as the last one that had it. Which
//! that is stands here once for all that do not drain, so that a newer snapshot costs work only for the
//! listeners that it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use config::chains::{ConnectionFacts, Criterion};
use config::snapshot::{ChainId, Detected, Listener, ListenerId};

use crate::filter::Filter;
use crate::share::Share;
use crate::tools::pinned::Pinned;
use crate::tools::slab::{Key, Slab};

/// Names one listener of a worker.
pub(crate) type ListenerKey = Key<ListenerState>;

/// One listener at run time.
#[derive(Debug)]
pub(crate) struct ListenerState {
    pub(crate) id: ListenerId,
    /// Connections open.
    pub(crate) open: u32,
    /// Bytes that its clients held in buffers at the last look.
    buffered: u64,
    /// The last snapshot that has it, if it went with a newer one: its connections end after their
    /// exchange.
    drains_on: Option<Pinned>,
}

impl ListenerState {
    const fn new(id: ListenerId) -> Self {
        Self { id, open: 0, buffered: 0, drains_on: None }
    }

    pub(crate) const fn is_draining(&self) -> bool {
        self.drains_on.is_some()
    }
}

/// A listener at run time, with the snapshot that its connections meet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenerRef<'l> {
    state: &'l ListenerState,
    snapshot: &'l Pinned,
}

impl Deref for ListenerRef<'_> {
    type Target = ListenerState;

    fn deref(&self) -> &ListenerState {
        self.state
    }
}

impl<'l> ListenerRef<'l> {
    pub(crate) fn listener(self) -> &'l Listener<Box<dyn Filter>> {
        self.find().1
    }

    /// The snapshot that an exchange begins on, and the listener's place there.
    pub(crate) fn pin(self) -> (Pinned, usize) {
        (self.snapshot.clone(), self.find().0)
    }

    fn find(self) -> (usize, &'l Listener<Box<dyn Filter>>) {
        let found = self.snapshot.listener(self.state.id);
        let (place, listener) = found.expect("this snapshot is one that has the listener");
        (place, listener)
    }

    fn buffered_over(self, share: Share) -> u64 {
        let bound = self.listener().buffered_bytes_max.map(|bound| share.of_bytes(bound));
        bound.map_or(0, |bound| self.buffered.saturating_sub(bound))
    }
}

/// New chains that are looked at one by one.
const FITS_MAX: usize = 16;

/// What a listener had for connections that it still has.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) from: ListenerKey,
    /// The listener that drains with them.
    pub(crate) to: ListenerKey,
    /// In the order of their ids.
    chains: Vec<ChainId>,
    /// What connections without a chain met.
    default: bool,
    /// The listener's chains that are new, or match other connections, in the order of their ids.
    added: Vec<ChainId>,
    /// Whether one of these asks what clients offer.
    asks_alpn: bool,
}

impl Lost {
    /// Whether a connection met what is lost.
    pub(crate) fn concerns(&self, chain: Option<ChainId>) -> bool {
        chain.map_or(self.default, |chain| self.chains.binary_search(&chain).is_ok())
    }

    /// Whether a connection that met this chain, or none, would meet a new one as the listener is now.
    pub(crate) fn has_new_for<F>(
        &self,
        listener: &Listener<F>,
        chain: Option<ChainId>,
        facts: &ConnectionFacts<'_>,
    ) -> bool {
        let matches = |id: ChainId| listener.chains.find(id).map(|(_, chain)| &chain.matches);
        let met = chain.and_then(matches);
        let may_be_offered = |id: &ChainId| {
            let asked = matches(*id).filter(|_| Some(*id) != chain);
            asked.is_some_and(|asked| Criterion::may_be_offered(asked, met, facts))
        };
        // A look-up costs as much as some of these.
        if self.added.len() <= FITS_MAX {
            if self.added.iter().any(may_be_offered) {
                return true;
            }
            let fits = |id: &ChainId| {
                let asked = matches(*id);
                asked.is_some_and(|asked| {
                    Criterion::ALL.iter().all(|it| it.fit(asked, facts).is_some())
                })
            };
            if !self.added.iter().any(fits) {
                return false;
            }
        } else if self.asks_alpn && facts.protocol == Some(Detected::Tls) {
            return true;
        }
        let chosen = listener.chains.choose(facts).map(|chosen| chosen.id);
        chosen != chain && chosen.is_some_and(|chosen| self.added.binary_search(&chosen).is_ok())
    }

    /// Whether some connections may meet other chains than they do.
    pub(crate) const fn has_new(&self) -> bool {
        !self.added.is_empty()
    }
}

/// The listeners of a worker.
#[derive(Debug)]
pub(crate) struct Listeners {
    states: Slab<ListenerState>,
    /// Those that do not drain.
    by_id: BTreeMap<ListenerId, ListenerKey>,
    /// The snapshot that has them.
    newest: Pinned,
    /// Connections open on all of them.
    pub(crate) open: u32,
}

impl Listeners {
    /// The listeners of a worker's first snapshot.
    pub(crate) fn new(snapshot: &Pinned) -> Self {
        let mut this = Self {
            states: Slab::default(),
            by_id: BTreeMap::new(),
            newest: snapshot.clone(),
            open: 0,
        };
        snapshot.listeners.iter().for_each(|listener| this.add(listener.id));
        this
    }

    fn add(&mut self, id: ListenerId) {
        let key = self.states.insert(ListenerState::new(id));
        self.by_id.insert(id, key);
    }

    pub(crate) fn find(&self, id: ListenerId) -> Option<ListenerKey> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn get(&self, key: ListenerKey) -> ListenerRef<'_> {
        self.seen(self.states.get(key).expect("a listener outlives its connections"))
    }

    fn seen<'l>(&'l self, state: &'l ListenerState) -> ListenerRef<'l> {
        ListenerRef { state, snapshot: state.drains_on.as_ref().unwrap_or(&self.newest) }
    }

    /// What connections meet that a newer snapshot has nothing for any more, and a listener that
    /// goes on having it for them while it drains.
    pub(crate) fn split(&mut self, snapshot: &Pinned) -> Vec<Lost> {
        let mut gone: BTreeMap<ListenerId, Vec<ChainId>> = BTreeMap::new();
        let changes = &snapshot.changes;
        for (listener, chain) in &changes.chains_removed {
            gone.entry(*listener).or_default().push(*chain);
        }
        let mut others = BTreeSet::new();
        for (listener, chain) in &changes.admissions_changed {
            match chain {
                Some(chain) => gone.entry(*listener).or_default().push(*chain),
                None => drop(others.insert(*listener)),
            }
        }
        let mut new: BTreeMap<ListenerId, Vec<ChainId>> = BTreeMap::new();
        for (listener, chain) in &changes.matches_added {
            new.entry(*listener).or_default().push(*chain);
        }
        let mut lost = Vec::new();
        for id in &snapshot.changes.listeners_changed {
            let Some(from) = self.find(*id) else { continue };
            let Some((_, listener)) = snapshot.listener(*id) else { continue };
            let former = self.get(from);
            let mut chains = gone.remove(id).unwrap_or_default();
            chains.sort_unstable();
            let has_default = former.listener().has_default;
            let default = has_default && (!listener.has_default || others.contains(id));
            let mut added = new.remove(id).unwrap_or_default();
            added.sort_unstable();
            if former.open > 0 && (default || !chains.is_empty() || !added.is_empty()) {
                let to = self.states.insert(ListenerState {
                    drains_on: Some(self.newest.clone()),
                    ..ListenerState::new(*id)
                });
                let chain = |id: &ChainId| listener.chains.find(*id);
                let asks_alpn = |id| chain(id).is_some_and(|(_, it)| !it.matches.alpn.is_empty());
                let asks_alpn = added.iter().any(asks_alpn);
                lost.push(Lost { from, to, chains, default, added, asks_alpn });
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
        let former = std::mem::replace(&mut self.newest, snapshot.clone());
        let mut draining = Vec::new();
        for id in &snapshot.changes.listeners_removed {
            if let Some(key) = self.by_id.remove(id)
                && let Some(state) = self.states.get_mut(key)
            {
                state.drains_on = Some(former.clone());
                self.remove_if_done(key);
                draining.push(key);
            }
        }
        snapshot.changes.listeners_added.iter().for_each(|id| self.add(*id));
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
        self.states.get(key).map_or(0, |state| self.seen(state).buffered_over(share))
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
        self.states.iter().any(|(_, state)| self.seen(state).buffered_over(share) > 0)
    }

    fn remove_if_done(&mut self, key: ListenerKey) {
        if self.states.get(key).is_some_and(|state| state.is_draining() && state.open == 0) {
            self.states.remove(key);
        }
    }
}
