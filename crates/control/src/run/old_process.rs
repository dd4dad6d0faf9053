//! The connections that another process still has beside this one, from either side: what is asked of the process whose place this one
//! took, and what that process, or this one once it is the old one, says of them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Running;
use crate::admin::{OldProcess, OldRows, Query};
use crate::handover::ListedRows;
use crate::moves::{ConnectionId, NotMoved};
use crate::workers::Workers;

/// Questions that the old process was asked and has not answered.
const ASKED_MAX: usize = 64;

/// How long a worker may take to describe connections.
const WORKER_TIMEOUT: Duration = Duration::from_secs(1);

/// What the old process is asked.
#[derive(Debug, Default)]
pub(super) struct OldListing {
    process: Option<OldProcess>,
    asked: BTreeMap<u32, oneshot::Sender<OldRows>>,
    next: u32,
}

impl OldListing {
    pub(super) const fn process(&self) -> Option<OldProcess> {
        self.process
    }

    pub(super) const fn begin(&mut self, process: OldProcess) {
        self.process = Some(process);
    }

    /// The process with this id has ended, and has no connections.
    pub(super) fn end(&mut self, pid: u32) {
        if self.process.is_some_and(|process| process.pid == pid) {
            self.process = None;
            for (_, reply) in std::mem::take(&mut self.asked) {
                // The client may be gone.
                let _ = reply.send(OldRows::default());
            }
        }
    }

    /// Drops what no client waits for any more.
    pub(super) fn forget_unwanted(&mut self) {
        self.asked.retain(|_, reply| !reply.is_closed());
    }

    /// Notes a question: its number, unless too many wait.
    fn note(&mut self, reply: oneshot::Sender<OldRows>) -> Option<u32> {
        self.forget_unwanted();
        if self.asked.len() >= ASKED_MAX {
            return None;
        }
        let request = self.next;
        self.next = self.next.wrapping_add(1);
        self.asked.insert(request, reply);
        Some(request)
    }

    /// The answer to a question, or to none.
    pub(super) fn on_listed(&mut self, request: u32, rows: &[String], next: Option<(u32, u32)>) {
        let Some(OldProcess { pid, .. }) = self.process else { return };
        if let Some(reply) = self.asked.remove(&request) {
            // The client may be gone.
            let _ = reply.send(OldRows::read(pid, rows, next));
        }
    }

    /// Why a connection of the process with this id does not move between workers.
    pub(super) fn why_it_stays(&self, pid: u32, connection: ConnectionId) -> NotMoved {
        match self.process {
            Some(process) if process.pid == pid => NotMoved::OfOldProcess { pid, connection },
            _ => NotMoved::UnknownProcess(pid),
        }
    }
}

impl<W: Workers> Running<W> {
    /// Asks the process whose place this one took for its connections.
    pub(super) fn list_former(&mut self, worker: u32, slot: u32, reply: oneshot::Sender<OldRows>) {
        match self.listing.process() {
            Some(OldProcess { lists_connections: true, .. }) => {
                if let Some(request) = self.listing.note(reply) {
                    self.workers.list_former(request, worker, slot);
                }
            }
            // It has ended since, or says nothing.
            _ => drop(reply.send(OldRows::default())),
        }
    }

    /// Lists connections of this process for the one that took its place.
    pub(super) fn list(&mut self, worker: u32, slot: u32, reply: oneshot::Sender<ListedRows>) {
        if worker >= self.workers.count() {
            // It may be gone; the same below.
            let _ = reply.send(ListedRows::default());
            return;
        }
        let (described, rows) = oneshot::channel();
        self.on_query(Query::Connections { worker, first: slot, reply: described });
        tokio::spawn(async move {
            let Ok(Ok(rows)) = tokio::time::timeout(WORKER_TIMEOUT, rows).await else { return };
            let _ = reply.send(rows.write(worker));
        });
    }
}
