//! What the workers of a process have learned of clusters and endpoints, for those of another: the worker of the same number goes on
//! with it. In JSON, since it is no part of a connection's form, and what one version does not know another may say.

use std::sync::mpsc::channel;
use std::time::Duration;

use proxy::save::{BalancingPlace, ClusterBalancing};
use worker::{Message as Mail, SaveBalancing};

use super::line::{nanos, now};
use super::timeouts::BALANCING_TIMEOUT;
use crate::data_path::Contacts;

/// Clusters and endpoints that are written down, of all workers. What exceeds them begins anew.
const ENTRIES_MAX: usize = 200_000;

/// Of a worker, in parts that are taken up one by one.
type OfWorker = Vec<Vec<ClusterBalancing>>;

/// What the workers have learned.
pub(super) fn save(contacts: &Contacts) -> Vec<u8> {
    let mut room = ENTRIES_MAX;
    let workers = 0..contacts.count();
    let until = now().saturating_add(nanos(BALANCING_TIMEOUT));
    let all: Vec<_> =
        workers.map(|worker| save_worker(worker, contacts, until, &mut room)).collect();
    // It consists of names and numbers.
    serde_json::to_vec(&all).unwrap_or_default()
}

fn save_worker(worker: usize, contacts: &Contacts, until: u64, room: &mut usize) -> OfWorker {
    let (mut parts, mut next) = (Vec::new(), Some(BalancingPlace::default()));
    while let Some(from) = next {
        let (reply, answer) = channel();
        let ask = Mail::SaveBalancing(SaveBalancing { from, reply });
        let part = contacts.post(worker, ask).ok();
        let left = Duration::from_nanos(until.saturating_sub(now()));
        let Some(part) = part.and_then(|()| answer.recv_timeout(left).ok()) else {
            tracing::warn!(
                worker,
                "handover: a worker did not return its load-balancing state in time: its endpoints start without it"
            );
            return parts;
        };
        let (clusters, from) = part;
        let entries: usize = clusters.iter().map(|learned| 1 + learned.endpoints.len()).sum();
        let Some(left) = room.checked_sub(entries) else { return parts };
        (*room, next) = (left, from);
        if entries > 0 {
            parts.push(clusters);
        }
    }
    parts
}

/// Has the workers go on with that.
pub(super) fn restore(saved: &[u8], contacts: &Contacts) {
    let all: Vec<OfWorker> = match serde_json::from_slice(saved) {
        Ok(all) => all,
        // The old process does not say it.
        Err(_) if saved.is_empty() => return,
        Err(error) => {
            return tracing::warn!(
                "handover: the load-balancing state of the old process cannot be read, and is ignored: {error}"
            );
        }
    };
    for (worker, parts) in all.into_iter().enumerate().take(contacts.count()) {
        for part in parts {
            contacts.deliver(worker, Mail::RestoreBalancing(part));
        }
    }
}
