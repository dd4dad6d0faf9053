//! What the service manager keeps for the next process (`handover.fd_store`): listening sockets, while this process runs, and
//! connections, once it is asked to end.
//!
//! ```text
//!   SIGTERM ──► Storing ──stored──► Draining, for what stays ──► counted again, at the very end
//!                  └────not kept───► Leaving, Draining, as without a service manager
//! ```

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
use crate::handover::OwnState;
use crate::storing::{StoredCounts, Storer};
use crate::workers::Workers;

/// How long storing may take: the service manager, workers and handshakes that are about to end.
const STORING_MAX: Duration = Duration::from_secs(20);

/// What the service manager keeps.
#[derive(Debug)]
pub(super) struct Stored {
    /// The names of sockets of a former process that it may keep, and that this process does not have.
    stale: Vec<String>,
    /// Listeners of which it keeps sockets, with the names of these.
    listeners: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// Whether it may keep connections of a former process, which this one has seen.
    had_connections: bool,
    /// None while it stores connections.
    storer: Option<Box<dyn Storer>>,
    /// Whether they were.
    is_stored: bool,
}

impl Stored {
    pub(super) fn new(stale: Vec<String>, had_connections: bool, storer: Box<dyn Storer>) -> Self {
        Self {
            stale,
            listeners: BTreeMap::new(),
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
        for name in mem::take(&mut self.stored.stale) {
            self.service_manager.forget(&name);
        }
        if !is_on || self.handing != Handing::None {
            return;
        }
        let all: Vec<_> = self.config.snapshot.listeners.iter().map(|it| it.id).collect();
        self.store_those_of(&all);
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
        self.service_manager.stopping(STORING_MAX, "storing connections");
        self.after_moves(AfterMoves::Store);
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
