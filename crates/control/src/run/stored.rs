//! Listening sockets that the service manager keeps for the next process (`handover.fd_store`).

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use config::file::FdStore;
use config::snapshot::{ListenerId, Snapshot};

use super::Running;
use super::handover::Handing;
use crate::workers::Workers;

/// What the service manager keeps.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Listeners of a former process that this one does not have, of which it may keep sockets.
    stale: Vec<String>,
    /// Listeners of which it keeps sockets.
    listeners: BTreeSet<Arc<str>>,
}

impl Stored {
    pub(super) fn new(stale: Vec<String>) -> Self {
        Self { stale, listeners: BTreeSet::new() }
    }
}

impl<W: Workers> Running<W> {
    /// Has all sockets kept, and those closed that no listener has.
    pub(super) fn store_listeners(&mut self) {
        let is_on = self.config.snapshot.startup.handover.fd_store == FdStore::Listeners;
        for name in mem::take(&mut self.stored.stale) {
            self.service_manager.forget_listener(&name);
        }
        if !is_on || self.handing != Handing::None {
            return;
        }
        match self.workers.handles() {
            Ok(handles) => {
                for (name, sockets) in handles {
                    self.service_manager.store_listener(&name, sockets);
                    self.stored.listeners.insert(name);
                }
            }
            Err(error) => tracing::warn!("listening sockets are not kept: {error}"),
        }
    }

    /// Follows listeners that came, went, or have other sockets.
    pub(super) fn follow_listeners(&mut self, former: &Snapshot<W::Filter>) {
        let snapshot = Arc::clone(&self.config.snapshot);
        if snapshot.startup.handover.fd_store != FdStore::Listeners {
            return;
        }
        let name_in = |snapshot: &Snapshot<W::Filter>, id: ListenerId| {
            snapshot.listener(id).map(|(_, listener)| Arc::clone(&listener.name))
        };
        for id in &snapshot.changes.listeners_removed {
            let Some(name) = name_in(former, *id) else { continue };
            if self.stored.listeners.remove(&name) {
                self.service_manager.forget_listener(&name);
            }
        }
        let added: BTreeSet<_> = snapshot
            .changes
            .listeners_added
            .iter()
            .filter_map(|id| name_in(&snapshot, *id))
            .collect();
        if added.is_empty() {
            return;
        }
        for (name, sockets) in self.workers.handles().into_iter().flatten() {
            if added.contains(&name) {
                self.service_manager.store_listener(&name, sockets);
                self.stored.listeners.insert(name);
            }
        }
    }
}
