//! What the service manager keeps for the next process (`handover.fd_store`): listening sockets, while this process runs, and
//! connections, once it is asked to end.
//!
//! ```text
//!   SIGTERM ──► Storing ──stored──► Draining, for what stays ──► counted again, at the very end
//!                  └────not kept───► Leaving, Draining, as without a service manager
//! ```
//!
//! The service manager keeps nothing of a process that it does not know as the main one of the service. One that has taken another's place
//! is that once the other has said so: until then, storing waits.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use config::file::FdStore;
use config::snapshot::{ListenerId, Snapshot};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::handing::Handing;
use super::moves::{AfterMoves, Ended};
use super::{Running, State, breakers};
use crate::clock;
use crate::handover::OwnState;
use crate::storing::{StoredCounts, Storer};
use crate::workers::Workers;

/// How long storing may take: the service manager, workers and handshakes that are about to end.
const STORING_MAX: Duration = Duration::from_secs(20);

/// How long the process before this one may take to say that the service manager hears this one.
const MAIN_PROCESS_MAX: Duration = Duration::from_secs(5);

/// What the service manager keeps.
#[derive(Debug)]
pub(super) struct Stored {
    /// Whether it hears this process: it started it, or the process before has said so, or has ended.
    is_heard: bool,
    /// Until when connections wait for that to be stored; monotonic time, ns.
    waits_until: Option<u64>,
    /// The names of sockets of a former process that it may keep, and that this process does not have.
    stale: Vec<String>,
    /// Listeners of which it keeps sockets, with the names of these.
    listeners: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// Whether what it keeps is to follow once a handover that is under way has come to nothing.
    is_due: bool,
    /// Whether it may keep connections of a former process, which this one has seen.
    had_connections: bool,
    /// None while it stores connections.
    storer: Option<Box<dyn Storer>>,
    /// Whether they were.
    is_stored: bool,
}

impl Stored {
    /// Of a process that takes another's place, or that the service manager has started.
    pub(super) fn new(
        is_taking_over: bool,
        stale: Vec<String>,
        had_connections: bool,
        storer: Box<dyn Storer>,
    ) -> Self {
        Self {
            is_heard: !is_taking_over,
            waits_until: None,
            stale,
            listeners: BTreeMap::new(),
            is_due: false,
            had_connections,
            storer: Some(storer),
            is_stored: false,
        }
    }
}

impl<W: Workers> Running<W> {
    /// Has all sockets kept, and those closed that no listener has.
    pub(super) fn store_listeners(&mut self) {
        let is_on = self.config.snapshot.startup.handover.fd_store.keeps_listeners();
        if mem::take(&mut self.stored.had_connections) {
            self.service_manager.forget_connections();
        }
        // Names may go that listeners still use, with all that has them: these are stored anew at once, and by one process.
        if self.handing != Handing::None {
            self.stored.is_due = true;
            return;
        }
        for name in mem::take(&mut self.stored.stale) {
            self.service_manager.forget(&name);
        }
        if !is_on {
            return;
        }
        let all: Vec<_> = self.config.snapshot.listeners.iter().map(|it| it.id).collect();
        self.store_those_of(&all);
    }

    /// The same where a handover kept it back, which is over.
    pub(super) fn store_if_due(&mut self) {
        if mem::take(&mut self.stored.is_due) {
            self.store_listeners();
        }
    }

    /// Follows listeners that came, went, or have other sockets.
    pub(super) fn follow_listeners(&mut self, former: &Snapshot<W::Filter>) {
        let snapshot = Arc::clone(&self.config.snapshot);
        if !snapshot.startup.handover.fd_store.keeps_listeners() {
            return;
        }
        let name_in = |snapshot: &Snapshot<W::Filter>, id: ListenerId| {
            snapshot.listener(id).map(|(_, listener)| Arc::clone(&listener.name))
        };
        for id in &snapshot.changes.listeners_removed {
            let Some(name) = name_in(former, *id) else { continue };
            for name in self.stored.listeners.remove(&name).unwrap_or_default() {
                self.service_manager.forget(&name);
            }
        }
        let added = &snapshot.changes.listeners_added;
        if !added.is_empty() {
            self.store_those_of(added);
        }
    }

    /// Has the service manager keep the new sockets of listeners in the place of those that it has.
    pub(super) fn store_again(&mut self, listeners: &[ListenerId]) {
        let snapshot = Arc::clone(&self.config.snapshot);
        if !snapshot.startup.handover.fd_store.keeps_listeners() {
            return;
        }
        for (_, listener) in listeners.iter().filter_map(|id| snapshot.listener(*id)) {
            for name in self.stored.listeners.remove(&listener.name).unwrap_or_default() {
                self.service_manager.forget(&name);
            }
        }
        self.store_those_of(listeners);
    }

    /// One that fails is no reason to keep none.
    fn store_those_of(&mut self, listeners: &[ListenerId]) {
        for id in listeners {
            match self.workers.handles(Some(&[*id])) {
                Ok(handles) => {
                    for (name, sockets) in handles {
                        let names = self.service_manager.store_listener(&name, sockets);
                        self.stored.listeners.insert(name, names);
                    }
                }
                Err(error) => tracing::warn!("a listening socket is not kept: {error}"),
            }
        }
    }

    /// SIGTERM: leaves connections for the next process if they are to be kept, and ends.
    pub(super) fn terminate(&mut self) {
        let is_wanted = self.config.snapshot.startup.handover.fd_store == FdStore::Connections;
        if !is_wanted || self.state != State::Ready || self.handing != Handing::None {
            return self.end();
        }
        self.hands_over = None;
        self.state = State::Storing;
        self.service_manager.forget_workers();
        if self.stored.is_heard || !self.service_manager.is_there() {
            return self.begin_storing();
        }
        tracing::info!(
            "the service manager does not know this process yet: connections are stored once it does"
        );
        self.workers.leave_former();
        let within = u64::try_from(MAIN_PROCESS_MAX.as_nanos()).unwrap_or(u64::MAX);
        self.stored.waits_until = Some(clock::monotonic_ns().saturating_add(within));
    }

    /// The service manager hears this process from here on, or nothing says any more when it will.
    pub(super) fn on_heard(&mut self) {
        self.stored.is_heard = true;
        self.store_listeners();
        if self.stored.waits_until.take().is_some() {
            self.begin_storing();
        }
    }

    /// Waits no longer once the time is over: a service manager may hear every process of the service.
    pub(super) fn end_wait_to_be_heard(&mut self) {
        let now = clock::monotonic_ns();
        if self.stored.waits_until.take_if(|until| *until <= now).is_some() {
            tracing::warn!(
                "the old process does not say that the service manager knows this one: it may keep nothing"
            );
            self.begin_storing();
        }
    }

    /// As soon as no connection is between two workers.
    fn begin_storing(&mut self) {
        if self.state == State::Storing {
            self.service_manager.stopping(STORING_MAX, "storing connections");
            self.after_moves(AfterMoves::Store);
        }
    }

    /// Begins to store connections, none of which is on its way between workers.
    pub(super) fn store(&mut self) {
        let Some(mut storer) = self.stored.storer.take() else { return };
        let is_sent = match storer.open() {
            Ok((queue, barrier)) => self.service_manager.store_connections(queue, barrier),
            Err(error) => return self.on_stored(storer, Err(error.to_string())),
        };
        if !is_sent {
            let reason = "no service manager started this process (NOTIFY_SOCKET)".to_owned();
            return self.on_stored(storer, Err(reason));
        }
        let (snapshot, state) = (Arc::clone(&self.config.snapshot), self.own_state());
        let generation = self.handover_report.generation;
        let (reply, slow) = oneshot::channel();
        self.save_slow(reply);
        self.moves.under_way.spawn_blocking(move || {
            let agreed = config::agreed(&snapshot);
            let state = OwnState { slow: slow.blocking_recv().unwrap_or_default(), ..state };
            let result = storer.store(agreed, state, generation);
            Ended::Stored(storer, result)
        });
    }

    /// Connections were stored, or the workers have them again: what is there drains.
    pub(super) fn on_stored(
        &mut self,
        storer: Box<dyn Storer>,
        result: Result<StoredCounts, String>,
    ) {
        self.stored.storer = Some(storer);
        match result {
            Ok(StoredCounts { groups, staying, handshakes }) => {
                tracing::info!(
                    groups,
                    staying,
                    handshakes,
                    "connections are stored for the next process"
                );
                self.stored.is_stored = true;
                self.drain();
                // Those that are stored are silent until this process has ended, which a client with an endless
                // handshake must not delay.
                if staying == 0 {
                    self.workers.stop();
                }
            }
            Err(reason) => {
                tracing::error!(
                    "connections are not stored for the next process, and drain: {reason}"
                );
                self.service_manager.forget_connections();
                self.leave();
            }
        }
    }

    /// Adds what the rest has counted to what is stored.
    pub(super) async fn finish_storing(&mut self) {
        if mem::take(&mut self.stored.is_stored) {
            let (reply, slow) = oneshot::channel();
            self.save_slow(reply);
            let slow = slow.await.unwrap_or_default();
            let state = OwnState { slow, ..self.own_state() };
            if let Some(storer) = &mut self.stored.storer {
                storer.finish(state);
            }
        }
    }

    /// What this process has counted and knows, without slow requests.
    fn own_state(&mut self) -> OwnState {
        OwnState {
            readings: self.collector.readings(),
            health: self.write_health(),
            slow: Vec::new(),
        }
    }

    /// What this process knows of endpoints, and what operators said of them and of `runtime` values.
    pub(super) fn write_health(&self) -> Vec<u8> {
        let snapshot = &self.config.snapshot;
        let over = snapshot.runtime.iter().filter_map(|it| Some((it.cell.name(), it.cell.get()?)));
        let over = over.map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let mut health = self.health.write(snapshot);
        health.insert("drained".to_owned(), self.config.drains.write());
        health.insert("runtime".to_owned(), Value::Object(over));
        health.insert("concurrency".to_owned(), breakers::write_measured(snapshot));
        Value::Object(health).to_string().into_bytes()
    }
}
