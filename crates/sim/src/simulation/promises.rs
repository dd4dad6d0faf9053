//! The promises that are checked in every run.

use telemetry::ProcessFacts;

use super::{Asker, Peer, Simulation};
use crate::ledger::Outcome;

/// Bytes that one connection may hold back in its two queues: one read more than the 64 KiB at
/// which its source is held back, a head, and the same for what it has read itself.
const CONNECTION_BYTES_MAX: usize = 4 * (64 << 10);

/// The same for a stream of a connection of HTTP/2: what one read more than the 64 KiB brought, and
/// what its window let in.
const STREAM_BYTES_MAX: usize = 3 * (64 << 10);

/// A call or its answer goes on whole: the longest one here, and what its head has.
const CALL_BYTES_MAX: usize = 401 << 10;

impl Simulation {
    pub(super) fn clients(&self) -> impl Iterator<Item = &dyn Asker> {
        self.peers.iter().filter_map(|peer| match peer {
            Peer::Client(client) => Some(client.as_ref()),
            Peer::Service(_) => None,
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.clients().all(Asker::is_over)
    }

    pub(super) fn is_owed(&self) -> bool {
        self.clients().any(Asker::is_owed)
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.ledger.violations().is_empty()
    }

    /// No connection and no stream buffers more than its bound.
    pub(super) fn check_queues(&mut self, number: usize) {
        let now = self.now();
        let Some(Some(thread)) = self.threads.get_mut(number) else { return };
        let connections = thread.worker.proxy().describe(0, u32::MAX, now).connections;
        for connection in connections {
            let streams = connection.streams.unwrap_or(0);
            let bytes_max = CONNECTION_BYTES_MAX
                + streams * STREAM_BYTES_MAX
                + (1 + streams) * self.configurations.gathered_bytes_max
                + if self.scenario.has_calls { (1 + streams) * CALL_BYTES_MAX } else { 0 };
            if connection.inbox_bytes + connection.outbox_bytes > bytes_max {
                self.ledger.violate(format!("too much is buffered: {connection:?}"));
            }
        }
    }

    pub(super) fn check_that_all_are_over(&mut self) {
        if self.has_failed() {
            return;
        }
        let network = &mut self.network.borrow_mut();
        for peer in &mut self.peers {
            if let Peer::Client(client) = peer
                && !client.is_over()
            {
                if client.is_owed() {
                    self.ledger.violate(format!("waits for ever: {}", client.describe()));
                }
                client.quit(network, &mut self.ledger);
            }
        }
    }

    /// Whatever process it is, it has heard all that the source said.
    pub(super) fn check_that_all_was_heard(&mut self) {
        if self.handover.is_none() && self.configurations.has_missed() {
            self.ledger.violate("the process has missed what the source said".to_owned());
        }
    }

    pub(super) fn check_that_all_is_given_back(&mut self) {
        if self.has_failed() {
            return;
        }
        for number in 0..self.threads.len() {
            self.check_leases(number);
        }
        // A process that was killed says nothing more.
        let counts = self.counts.all().filter(|_| self.killed == 0);
        for collector in counts {
            let mut stats = String::new();
            let process = ProcessFacts::default();
            collector.readings().write_stats(&process, "buffers_leased", &mut stats);
            if stats != "strait_buffers_leased 0\n" {
                self.ledger.violate(format!("buffers are still leased: {stats:?}"));
            }
        }
        let open = self.network.borrow().worker_ends();
        if open > 0 {
            self.ledger.violate(format!("{open} sockets are still open"));
        }
        self.check_pairs();
        let running = self.threads.iter().flatten().count();
        if running == self.threads.len() && self.snapshots_retired != self.snapshots_posted {
            self.ledger.violate(format!(
                "{} snapshots were given to workers and {} given back",
                self.snapshots_posted, self.snapshots_retired
            ));
        }
    }

    /// Everything that began has ended, by the counters.
    pub(super) fn check_pairs(&mut self) {
        self.look_at_counts();
        let mut stats = String::new();
        self.counted().readings().write_stats(&ProcessFacts::default(), "_total", &mut stats);
        let count = |name: &str| -> u64 {
            let numbers = stats.lines().filter(|line| line.starts_with(name));
            numbers.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        for (began, ended) in [
            (
                "strait_downstream_connections_opened_total",
                "strait_downstream_connections_closed_total",
            ),
            ("strait_exchanges_started_total", "strait_exchanges_finished_total"),
            ("strait_tunnels_started_total", "strait_tunnels_finished_total"),
        ] {
            let (began, ended) = ((began, count(began)), (ended, count(ended)));
            // A connection that moved is counted again, and a removed listener took its counters
            // with it.
            let has_changes = self.scenario.swaps > 0 || self.scenario.deliveries.is_some();
            let is_recounted = self.taken_out > 0 && has_changes;
            if began.1 != ended.1 && !is_recounted && !self.counts.is_incomplete {
                self.ledger.violate(format!("{began:?} and {ended:?} are no pairs"));
            }
        }
        let counted = count("strait_downstream_connections_ended_total{cause=\"tls_invalid\"}");
        let (least, most) = self.network.borrow().spoiled_clients();
        // What a process had not reported that was killed is lost.
        if counted < least as u64 && !self.counts.is_incomplete || counted > most as u64 {
            self.ledger.violate(format!(
                "{counted} clients' records were refused, and {least} to {most} were spoiled"
            ));
        }
        self.read_log();
        let finished = count("strait_exchanges_finished_total");
        let lines = self.log_text.iter().filter(|byte| **byte == b'\n').count() as u64;
        // Listeners that went took their counters with them, but not their lines.
        if lines < finished {
            self.ledger.violate(format!("{finished} exchanges and {lines} lines in the log"));
        }
    }

    /// A worker without connections reports no leased buffers.
    pub(super) fn check_leases(&mut self, number: usize) {
        let now = self.now();
        let Some(Some(thread)) = self.threads.get_mut(number) else { return };
        let proxy = thread.worker.proxy();
        let connections = proxy.describe(0, u32::MAX, now).connections;
        proxy.tell_gauges(0, 0);
        // A worker that ends does not close its pools one by one.
        if connections.iter().any(|connection| connection.state != "idle") {
            self.ledger.violate(format!("connections are left: {connections:?}"));
        }
    }

    pub(super) fn check_outcomes(&mut self) {
        if !self.scenario.is_strict || self.has_failed() {
            return;
        }
        let is_bad = |outcome| {
            let is_good = matches!(outcome, Outcome::Answered | Outcome::Declined);
            !is_good && !matches!(outcome, Outcome::Unsent | Outcome::Cancelled)
        };
        self.ledger.refuse_outcomes(is_bad);
    }
}
