//! The events of workers: a model of epoll, as the crate's documentation describes.

use std::ops::Range;

use config::snapshot::Address;
use proxy::ConnKey;
use worker::{Event, Ready};

use super::{End, EndId, Epoll, Listener, ListenerSocket, Network, Owner, Phase, Wake};

impl Network {
    /// Reports what becomes possible on an end, and what is possible already.
    pub fn watch(&mut self, id: EndId, worker: usize, key: ConnKey) {
        self.begin_watching(id, worker, key, false);
    }

    /// The same, but not whether it can be written to.
    pub fn watch_reads(&mut self, id: EndId, worker: usize, key: ConnKey) {
        self.begin_watching(id, worker, key, true);
    }

    /// Reports whether it can be written to, too.
    pub fn watch_writes(&mut self, id: EndId) {
        if let Some(end) = self.get_mut(id) {
            end.reads_only = false;
            self.edge(id);
        }
    }

    fn begin_watching(&mut self, id: EndId, worker: usize, key: ConnKey, reads_only: bool) {
        // A process that has ended may have watched it.
        self.unwatch(id);
        if let Some(end) = self.get_mut(id) {
            end.reads_only = reads_only;
            end.is_handed_over = false;
            end.owner = Owner::Worker(worker);
            end.key = Some(key);
            self.note_begun(id, worker, key);
            self.edge(id);
        }
    }

    /// Stops reporting. The end may be watched again, by another worker.
    pub fn unwatch(&mut self, id: EndId) {
        let Some(end) = self.get_mut(id) else { return };
        end.key = None;
        end.is_listed = false;
        if let Owner::Worker(worker) = end.owner
            && let Some(epoll) = self.epolls.get_mut(worker)
        {
            epoll.ready.retain(|listed| *listed != id);
        }
    }

    /// Reports connections in a listener's queue.
    pub fn watch_listener(&mut self, listener: ListenerSocket, worker: usize, token: u32) {
        if let Some(state) = self.listeners.get_mut(listener.0) {
            state.watchers.insert(worker, token);
        }
    }

    /// Whether this socket listens at `address`.
    pub fn listens_at(&self, listener: ListenerSocket, address: &Address) -> bool {
        self.listeners.get(listener.0).is_some_and(|state| state.address == *address)
    }

    /// Stops reporting.
    pub fn unwatch_listener(&mut self, listener: ListenerSocket, worker: usize) {
        if let Some(state) = self.listeners.get_mut(listener.0) {
            state.watchers.remove(&worker);
        }
    }

    /// Makes room for another process's workers; returns the number of the first.
    pub fn add_workers(&mut self, workers: usize) -> usize {
        let first = self.epolls.len();
        self.epolls.resize_with(first + workers, Epoll::default);
        self.add_secure_workers(workers);
        first
    }

    /// A process has ended: nothing is reported to its workers any more.
    pub fn forget_worker(&mut self, worker: usize) {
        for listener in &mut self.listeners {
            listener.watchers.remove(&worker);
        }
        if let Some(epoll) = self.epolls.get_mut(worker) {
            *epoll = Epoll::default();
        }
    }

    /// What was moved over a connection by its owner; an end counts as one. So does that of the other, which the owner may have
    /// met, as in the kernel's counts (`io::Traffic`).
    #[must_use]
    pub fn traffic(&self, id: EndId) -> Option<(u64, u64)> {
        let end = self.get(id).filter(|end| end.phase != Phase::Broken)?;
        let read = end.read_total + u64::from(end.has_fin);
        Some((read, end.written_total + u64::from(end.is_shut)))
    }

    /// A worker gets an end of another process, which watches it still.
    pub fn hand_over(&mut self, id: EndId) {
        if let Some(end) = self.get_mut(id) {
            end.is_handed_over = true;
        }
    }

    /// A worker uses an end: which has to be its own.
    pub fn note_use(&mut self, id: EndId, worker: usize) {
        let owner = self.get(id).filter(|end| end.key.is_some() && !end.is_handed_over);
        let owner = owner.map(|end| end.owner);
        if let Some(Owner::Worker(owner)) = owner
            && owner != worker
        {
            self.complain(format!("worker {worker} uses a connection of worker {owner}"));
        }
    }

    /// Reports to a worker that its mailbox has a message.
    pub fn notify(&mut self, worker: usize) {
        if let Some(epoll) = self.epolls.get_mut(worker) {
            epoll.has_mail = true;
        }
    }

    /// Wakes the workers of a process whose places among `process_workers`, all of its workers, are in this set, but not this one.
    pub fn wake_others(&mut self, worker: usize, process_workers: Range<usize>, workers: u64) {
        let others = (0..64).cycle().zip(process_workers).filter(|(_, other)| *other != worker);
        for (_, other) in others.filter(|(place, _)| workers >> place & 1 == 1) {
            if let Some(epoll) = self.epolls.get_mut(other) {
                epoll.has_mail = true;
            }
        }
    }

    /// Whether a wait would bring something.
    #[must_use]
    pub fn has_events(&self, worker: usize) -> bool {
        let epoll = self.epolls.get(worker);
        epoll.is_some_and(|epoll| epoll.has_mail || !epoll.ready.is_empty())
            || self.listeners.iter().any(|listener| listener.is_reported(worker))
    }

    /// Appends what a worker's wait brings.
    pub fn events(&mut self, worker: usize, events: &mut Vec<Event>) {
        let is_few = self.chance(self.faults.few_events);
        let events_max = if is_few { self.random.length_between(1, 4) } else { 256 };
        if self.chance(self.faults.spurious_event) {
            self.list_anybody(worker);
        }
        for listener in &self.listeners {
            if listener.is_reported(worker)
                && events.len() < events_max
                && let Some(token) = listener.watchers.get(&worker)
            {
                events.push(Event::Accept(*token));
            }
        }
        let Some(epoll) = self.epolls.get_mut(worker) else { return };
        if std::mem::take(&mut epoll.has_mail) {
            events.push(Event::Mail);
        }
        while events.len() < events_max {
            let Some(epoll) = self.epolls.get_mut(worker) else { return };
            let Some(id) = epoll.ready.pop_front() else { return };
            let Some(end) = self.get_mut(id) else { continue };
            end.is_listed = false;
            let Some(key) = end.key else { continue };
            // The kernel looks at the socket when it hands the event out, and reports its whole
            // state.
            if let Some(ready) = end.ready() {
                events.push(Event::Socket { key, ready });
                let flags =
                    [ready.is_readable, ready.is_writable, ready.is_ending, ready.is_closed];
                let flags = flags.map(|flag| if flag { b'1' } else { b'0' });
                self.trace.note(self.now, "event", id.number(), &flags);
            }
        }
    }

    fn list_anybody(&mut self, worker: usize) {
        let slot = self.random.length_below(self.ends.len().max(1));
        if let Some((generation, Some(end))) = self.ends.get(slot)
            && end.owner == Owner::Worker(worker)
        {
            let id = EndId { slot: slot as u32, generation: *generation };
            self.edge(id);
        }
    }

    /// Something became possible on an end: queues an event for its owner.
    pub(super) fn edge(&mut self, id: EndId) {
        let Some(end) = self.get_mut(id) else { return };
        match end.owner {
            Owner::Worker(worker) => {
                if end.key.is_some() && !end.is_listed {
                    end.is_listed = true;
                    if let Some(epoll) = self.epolls.get_mut(worker) {
                        epoll.ready.push_back(id);
                    }
                }
            }
            Owner::Peer(peer) if !end.is_closed => self.wakes.push_back((peer, Wake::End(id))),
            Owner::Peer(_) => {}
        }
    }
}

impl End {
    /// As the kernel sees it: a third of the buffer is free.
    pub(super) fn is_writable(&self) -> bool {
        self.outbox_max.saturating_sub(self.outbox.len()) * 3 >= self.outbox_max
    }

    /// What epoll reports about an end, if anything.
    fn ready(&mut self) -> Option<Ready> {
        if matches!(self.phase, Phase::Connecting { .. }) {
            return None;
        }
        let is_broken = self.phase == Phase::Broken;
        let is_over = is_broken || (self.has_fin && self.is_shut);
        let is_closed = is_over || self.error.is_some();
        let has_room = self.is_writable() || self.is_shut;
        if !has_room {
            self.wants_space = true;
        }
        let ready = Ready {
            is_readable: !self.inbox.is_empty() || self.has_fin || is_closed,
            is_writable: has_room && !self.reads_only || is_closed,
            is_ending: self.has_fin || is_closed,
            is_closed,
        };
        (ready != Ready::default()).then_some(ready)
    }
}

impl Listener {
    fn is_reported(&self, worker: usize) -> bool {
        self.is_open && self.watchers.contains_key(&worker) && !self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Network;
    use crate::faults::Faults;
    use crate::random::Random;

    #[test]
    fn a_worker_wakes_those_of_its_own_process() {
        let mut network = Network::new(Random::new(1), Faults::none(), 3);
        network.add_workers(3);
        let woken = |network: &Network| {
            (0..6).filter(|worker| network.has_events(*worker)).collect::<Vec<_>>()
        };
        network.wake_others(3, 3..6, 0b001);
        assert!(woken(&network).is_empty(), "it is the one itself");
        network.wake_others(3, 3..6, 0b100);
        assert_eq!(woken(&network), [5]);
        network.wake_others(3, 3..6, !1);
        assert_eq!(woken(&network), [4, 5]);
    }
}
