//! Processes: their workers, and their listening sockets.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use config::snapshot::ListenerId;
use proxy::{Bells, Proxy, Share, Snapshot};
use telemetry::{Emitter, LOG_QUEUE_BYTES};
use worker::{Mailboxes, Report, Worker};

use super::{Simulation, Thread};
use crate::random::Random;
use crate::world::{SimListener, SimSocket, SimWorld};

impl Simulation {
    /// Starts a process's workers on a configuration, with these listeners; returns their numbers.
    pub(super) fn start_workers(
        &mut self,
        (mailboxes, reports): (Mailboxes<SimListener, SimSocket>, Receiver<Report>),
        snapshot: &Arc<Snapshot>,
        listeners: Vec<Vec<(ListenerId, SimListener)>>,
        accepts: bool,
    ) -> Range<usize> {
        let root = Random::new(self.scenario.seed);
        let (first, count) = (self.threads.len(), mailboxes.postboxes.len());
        self.note_served(first, snapshot);
        self.reports.push((first, reports));
        self.postboxes.extend(mailboxes.postboxes);
        let workers = u32::try_from(count).expect("few workers");
        let bells = Bells::new(workers);
        let mut sources = Vec::new();
        for ((number, mailbox), listeners) in (0u32..).zip(mailboxes.mailboxes).zip(listeners) {
            let (emitter, reports) = Emitter::new(LOG_QUEUE_BYTES);
            sources.push(reports.counters);
            self.log.add_worker(reports.records);
            let now = self.now();
            let place = self.threads.len();
            let settings = proxy::Settings {
                share: Share { worker: number, workers },
                seed: root.split("worker", place as u64).next(),
                bells: bells.clone(),
            };
            let proxy = Proxy::new(settings, Arc::clone(snapshot), emitter, now);
            let world = SimWorld::new(Rc::clone(&self.network), place, first..first + count);
            let group_part_max = self.scenario.group_part_max;
            let settings = worker::Settings { stage_times: true, group_part_max, accepts };
            let worker = Worker::new(world, proxy, listeners, mailbox, settings)
                .expect("the simulated world watches any listener");
            self.threads.push(Some(Thread { worker, runs_at: None }));
        }
        self.counts.begin(first, sources, snapshot);
        first..first + count
    }

    /// Starts another process, which has the same listening sockets.
    pub(super) fn start_process(
        &mut self,
        workers: usize,
        snapshot: &Arc<Snapshot>,
    ) -> Range<usize> {
        self.network.borrow_mut().add_workers(workers);
        let mailboxes = Mailboxes::new(u32::try_from(workers).expect("few workers"));
        let listeners = self.listeners_taken(workers, snapshot);
        self.start_workers(mailboxes, snapshot, listeners, false)
    }

    pub(super) fn listeners(
        &mut self,
        snapshot: &Snapshot,
        worker: usize,
        is_wanted: impl Fn(ListenerId) -> bool,
    ) -> Vec<(ListenerId, SimListener)> {
        let wanted = snapshot.listeners.iter().filter(|listener| is_wanted(listener.id));
        let places =
            wanted.flat_map(|listener| listener.addresses.iter().map(move |at| (listener, at)));
        places
            .map(|(listener, address)| {
                let backlog = listener.socket.backlog.get();
                let socket = SimListener::new(&self.network, worker, address, backlog);
                if !self.is_draining {
                    self.listeners_of.push((Arc::clone(&listener.name), socket.duplicate()));
                }
                (listener.id, socket)
            })
            .collect()
    }
}
