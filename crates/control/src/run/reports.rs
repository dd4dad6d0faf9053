//! What workers report, and the warnings that follow from it.
//!
//! A warning that a peer can cause comes at most once in ten seconds.

use config::reports::{Question, ReportBody};
use config::snapshot::ListenerId;

use super::handing::Handing;
use super::{Outcome, Running, State};
use crate::admin::Rows;
use crate::clock;
use crate::workers::{Report, Workers};

/// Between two warnings about descriptors, ns.
const WARNING_INTERVAL: u64 = 10_000_000_000;

impl<W: Workers> Running<W> {
    pub(super) fn on_report(&mut self, report: Report<W>) {
        let (worker, body) = (report.worker, report.body);
        match body {
            ReportBody::TakenUp(version) => self.on_taken_up(worker, version),
            ReportBody::Started => self.on_started(worker),
            ReportBody::Stopped => self.on_stopped(worker),
            ReportBody::Failed(reason) => {
                self.workers.stop();
                self.outcome = Some(Outcome::Failed(format!("worker {worker}: {reason}")));
            }
            ReportBody::Question { exchange, question } if question.is_for_cluster() => {
                self.on_demand(worker, exchange, &question.payload);
            }
            ReportBody::Question { exchange, question } => {
                self.on_question(worker, exchange, &question);
            }
            ReportBody::Retired(snapshot) => self.config.builder.free(snapshot),
            ReportBody::Described { request, connections } => {
                if self.service_manager.on_answer(request) {
                    return;
                }
                if let Some((worker, reply)) = self.describing.remove(&request) {
                    // The client may be gone.
                    let _ = reply.send(Rows::new(worker, connections, &self.config.snapshot));
                }
            }
            ReportBody::ListenerBroken { listener, errno } => {
                let listener = self.config.snapshot.listener(listener);
                let name = listener.map_or("(removed)", |(_, listener)| &listener.name);
                tracing::error!(
                    worker,
                    listener = name,
                    "a listening socket failed ({errno}): restart the process to make this worker listen again"
                );
            }
            ReportBody::GroupLost { connections, reason } => tracing::error!(
                worker,
                connections,
                "connections that returned to their worker were reset, since it cannot go on with them: {reason}"
            ),
            ReportBody::BufferedOverflow { listener, closed } => {
                self.warn_of_overflow(listener, closed);
            }
            ReportBody::OutlierFound { cluster, endpoint, kind } => {
                let found = (cluster, endpoint, kind);
                self.health.on_reached(&self.config.snapshot, found, &mut self.collector);
            }
            ReportBody::Checked { number, result } => {
                let checked = (number, result);
                self.health.on_checked(&self.config.snapshot, checked, &mut self.collector);
            }
            ReportBody::FailedItself { cluster, endpoint } => {
                self.health.on_failed_itself(&self.config.snapshot, (cluster, endpoint));
            }
            ReportBody::OutOfDescriptors(errno) => self.warn_of_descriptors(worker, errno),
            ReportBody::Drained { cut_off: 0 } => tracing::debug!(worker, "drained"),
            ReportBody::Drained { cut_off } if self.state == State::Stopping => tracing::warn!(
                worker,
                cut_off,
                "exchanges were cut off: this process stops at once"
            ),
            ReportBody::Drained { cut_off } => tracing::warn!(
                worker,
                cut_off,
                "exchanges were cut off: they took longer than limits.drain_timeout"
            ),
        }
    }

    /// A worker serves.
    fn on_started(&mut self, worker: u32) {
        self.on_first_taken_up(worker);
        self.started += 1;
        if self.started == self.workers.count() && self.state == State::Starting {
            self.state = State::Ready;
            let workers = self.started;
            match self.health.warming().len() {
                0 => tracing::info!(workers, "ready"),
                warming => tracing::info!(
                    workers,
                    warming,
                    "ready, except for clusters that wait for the first checks of their endpoints"
                ),
            }
            self.is_reloading = false;
            self.service_manager.ready(&self.status());
            if !matches!(self.handing, Handing::Taking { .. }) {
                self.store_listeners();
            }
        }
    }

    /// A worker has ended.
    fn on_stopped(&mut self, worker: u32) {
        self.stopped.insert(worker);
        self.answer_for_ended(|of| of == worker);
        if self.is_over() && self.waits_for_former() {
            tracing::info!(
                "drained; this process passes on what the one before it counts, and ends once that has ended"
            );
        }
    }

    /// A filter of a worker asks.
    fn on_question(&mut self, worker: u32, asker: W::Asker, question: &Question) {
        match self.answerers.ask(question) {
            Some(answering) => {
                self.answering.spawn(async move { (worker, asker, answering.await) });
            }
            None => {
                tracing::error!(topic = %question.topic, "no handler is registered for this filter's question");
            }
        }
    }

    /// Answers what was asked of workers that have ended: they have no connections.
    pub(super) fn answer_for_ended(&mut self, has_ended: impl Fn(u32) -> bool) {
        for (_, (_, reply)) in self.describing.extract_if(.., |_, (worker, _)| has_ended(*worker)) {
            // The client may be gone.
            let _ = reply.send(Rows::default());
        }
    }

    fn warn_of_overflow(&mut self, listener: ListenerId, closed: u32) {
        let Some(closed) = self.overflows.note(listener, closed, clock::monotonic_ns()) else {
            return;
        };
        let listener = self.config.snapshot.listener(listener).map(|(_, listener)| listener);
        let name = listener.map_or("(removed)", |listener| &listener.name);
        let bytes_max = listener.and_then(|listener| listener.buffered_bytes_max);
        tracing::warn!(
            listener = name,
            closed,
            bytes_max,
            "the clients of a listener held more in buffers than its buffered_max: the connections \
             that held the most were closed (buffered_overflow); raise buffered_max if these were \
             no attack, or lower connections_per_client_max, http.head_max, http.request_buffer or rpc.body_max"
        );
    }

    fn warn_of_descriptors(&mut self, worker: u32, errno: &str) {
        if !self.is_descriptor_warning_due() {
            return;
        }
        match errno {
            "ENFILE" => tracing::warn!(
                worker,
                "the system has no file descriptor left to accept a connection (ENFILE): raise fs.file-max"
            ),
            "ENOBUFS" | "ENOMEM" => tracing::warn!(
                worker,
                "the kernel has no memory to accept a connection ({errno}): lower limits.connections_max"
            ),
            _ => tracing::warn!(
                worker,
                "no file descriptor was left to accept a connection: raise the limit on open \
                 files (ulimit -n, LimitNOFILE=) or lower limits.connections_max"
            ),
        }
    }

    /// Whether it is time for another warning about descriptors, which there is one of then.
    pub(super) fn is_descriptor_warning_due(&mut self) -> bool {
        let now = clock::monotonic_ns();
        let last = self.descriptors_warned_at;
        let is_due = last.is_none_or(|at| now.saturating_sub(at) > WARNING_INTERVAL);
        if is_due {
            self.descriptors_warned_at = Some(now);
        }
        is_due
    }
}
