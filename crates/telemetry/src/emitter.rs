//! The worker's end: takes events, counts, and hands records on.
//!
//! An emitter is owned by one worker thread and is the only writer of its blocks. Nothing here
//! takes a lock, waits, or allocates, but for the first event that names a listener, a rule or a
//! cluster. The ends that control reads are made together with it, see [`Reports`].

use std::fmt;
use std::sync::Arc;

use crate::block::{Announced, Announcer, Blocks, ListenerBlock, WorkerBlock};
use crate::cause::Cause;
use crate::cell::Counter;
use crate::counters::endpoint::{ENDPOINTS_PER_BLOCK, EndpointBlock, EndpointsBlock};
use crate::counters::exchange::{RULES_PER_BLOCK, RuleBlock};
use crate::counters::upstream::ClusterBlock;
use crate::debug_lines::{DebugLines, DebugSource};
use crate::events::{
    ChoiceKind, ClusterGauges, ConnectionClosed, ConnectionDetected, ConnectionFailed,
    ConnectionOpened, ConnectionRefused, CopyFinished, ExchangeFinished, ExchangeStarted,
    HeadersDropped, LabelId, ListenerGauges, MirrorDrop, Relocated, SignaturesMade,
    TlsHandshakeFinished, TunnelStarted, UpstreamClosed, UpstreamConnectFailed, UpstreamConnected,
    UpstreamPaused, UpstreamRetried, UpstreamRetryDenied, WorkerGauges,
};
use crate::failures::FailureCounts;
use crate::log_record::{self, Audience, LOG_RECORD_BYTES_MAX};

/// Bytes of records that wait for the log reader, a worker, by default: some 3,000
/// records, which a worker at full speed makes in 40 ms.
pub const LOG_QUEUE_BYTES: usize = 1024 * 1024;

/// Lines of the access log in a second for connections that come to nothing, a worker. A client that opens
/// them by the thousand does not push out the lines of requests.
const FAILED_CONNECTIONS_PER_SECOND_MAX: u32 = 20;

/// Takes the events of one worker.
#[derive(Debug)]
pub struct Emitter {
    worker: Arc<WorkerBlock>,
    listeners: Blocks<ListenerBlock>,
    /// By the route table's slot; within, a block for each few slots of its rules.
    rules: Vec<Blocks<RuleBlock>>,
    clusters: Blocks<ClusterBlock>,
    endpoints: Blocks<EndpointsBlock>,
    announcer: Announcer,
    records: rtrb::Producer<u8>,
    scratch: Box<[u8; LOG_RECORD_BYTES_MAX]>,
    is_access_log: bool,
    /// Whether finished exchanges are handed to [`Emitter::exchange_finished`], also fast ones.
    is_recording: bool,
    debug: Option<Box<DebugLines>>,
    failures: FailureCounts,
    failed_connections: SecondBudget,
}

/// The ends of one emitter that control reads.
#[derive(Debug)]
pub struct Reports {
    /// For [`crate::Collector::add_worker`].
    pub counters: CounterSource,
    /// For [`crate::LogReader::add_worker`].
    pub records: LogRecordSource,
}

/// The counters of one worker.
#[derive(Debug)]
pub struct CounterSource {
    pub(crate) worker: Arc<WorkerBlock>,
    pub(crate) announced: rtrb::Consumer<Announced>,
}

/// The records of one worker.
#[derive(Debug)]
pub struct LogRecordSource {
    pub(crate) worker: Arc<WorkerBlock>,
    pub(crate) records: rtrb::Consumer<u8>,
}

impl Emitter {
    /// An emitter whose queue of records holds `log_queue_bytes_max`, and what control reads of
    /// it. The access log is off.
    #[must_use]
    pub fn new(log_queue_bytes_max: usize) -> (Self, Reports) {
        let worker = Arc::new(WorkerBlock::default());
        let (announcer, announced) = Announcer::new();
        let (producer, records) = rtrb::RingBuffer::new(log_queue_bytes_max);
        let reports = Reports {
            counters: CounterSource { worker: Arc::clone(&worker), announced },
            records: LogRecordSource { worker: Arc::clone(&worker), records },
        };
        let emitter = Self {
            worker,
            listeners: Blocks::default(),
            rules: Vec::new(),
            clusters: Blocks::default(),
            endpoints: Blocks::default(),
            announcer,
            records: producer,
            scratch: Box::new([0; LOG_RECORD_BYTES_MAX]),
            is_access_log: false,
            is_recording: false,
            debug: None,
            failures: FailureCounts::default(),
            failed_connections: SecondBudget::default(),
        };
        (emitter, reports)
    }

    /// Whether finished exchanges go to the access log from now on. Slow ones go to the list of
    /// slow requests either way.
    pub fn set_access_log(&mut self, is_on: bool) {
        self.is_access_log = is_on;
        self.is_recording = is_on || self.is_debug();
    }

    /// Writes lines of the debug log from now on, which control takes from what is returned.
    #[must_use]
    pub fn set_debug(&mut self) -> DebugSource {
        let (lines, source) = DebugLines::new();
        self.debug = Some(Box::new(lines));
        self.is_recording = true;
        source
    }

    /// Whether lines of the debug log are written.
    #[must_use]
    #[inline]
    pub const fn is_debug(&self) -> bool {
        self.debug.is_some()
    }

    /// Writes a line of the debug log, if that is on, at a bounded rate. `at` is ns of any clock.
    #[cold]
    pub fn debug(&mut self, at: u64, words: fmt::Arguments<'_>) {
        if let Some(debug) = &mut self.debug {
            debug.write(at, words);
        }
    }

    /// See [`ConnectionOpened`].
    pub fn connection_opened(&mut self, event: &ConnectionOpened) {
        if let Some(block) = self.listener(event.listener) {
            block.connections.opened.increment();
        }
    }

    /// Something leaves for another worker or process: see [`Relocated`].
    pub fn left(&mut self, what: Relocated) {
        self.relocated(what, Counter::increment);
    }

    /// Something came from another worker or process: see [`Relocated`].
    pub fn came(&mut self, what: Relocated) {
        self.relocated(what, Counter::decrement);
    }

    fn relocated(&mut self, what: Relocated, count: fn(&Counter)) {
        match what {
            Relocated::Downstream { listener } => {
                if let Some(block) = self.listener(listener) {
                    count(&block.connections.away);
                }
            }
            Relocated::Exchange { listener, is_tunnel } => {
                if let Some(block) = self.listener(listener) {
                    count(&block.exchanges.away);
                    if is_tunnel {
                        count(&block.exchanges.tunnels_away);
                    }
                }
            }
            Relocated::Upstream { cluster } => {
                if let Some(block) = self.cluster(cluster) {
                    count(&block.away);
                }
            }
        }
    }

    /// See [`ConnectionRefused`].
    pub fn connection_refused(&mut self, event: &ConnectionRefused) {
        if let Some(block) = self.listener(event.listener) {
            block.connections.refused(event);
        }
    }

    /// See [`ConnectionDetected`].
    pub fn connection_detected(&mut self, event: &ConnectionDetected) {
        if let Some(block) = self.listener(event.listener) {
            block.connections.detected(event);
        }
    }

    /// See [`TlsHandshakeFinished`].
    pub fn tls_handshake_finished(&mut self, event: &TlsHandshakeFinished) {
        self.worker.tls.handshake_finished(event);
        if let Some(block) = self.listener(event.listener) {
            block.tls.handshake_finished(event);
        }
    }

    /// See [`SignaturesMade`].
    pub fn signatures_made(&mut self, event: &SignaturesMade) {
        self.worker.tls.signatures_made(event);
    }

    /// See [`ConnectionClosed`].
    pub fn connection_closed(&mut self, event: &ConnectionClosed) {
        self.worker.connections.closed(event);
        if let Some(block) = self.listener(event.listener) {
            block.connections.closed.increment();
        }
    }

    /// See [`ExchangeStarted`].
    pub fn exchange_started(&mut self, event: &ExchangeStarted) {
        if let Some(block) = self.listener(event.listener) {
            block.exchanges.started.increment();
        }
    }

    /// See [`TunnelStarted`].
    pub fn tunnel_started(&mut self, event: &TunnelStarted) {
        if let Some(block) = self.listener(event.listener) {
            block.exchanges.tunnels_started.increment();
        }
    }

    /// See [`HeadersDropped`].
    pub fn headers_dropped(&mut self, event: &HeadersDropped) {
        if let Some(block) = self.listener(event.listener) {
            block.exchanges.headers_dropped(event);
        }
    }

    /// Whether a connection that comes to nothing at this time, wall-clock ns, has a line in the access log:
    /// 20 a second have on each worker, and the others are counted.
    pub fn may_log_connection(&mut self, at: u64) -> bool {
        if !self.is_access_log {
            return false;
        }
        let may = self.failed_connections.take(at);
        if !may {
            self.worker.records.connections_unlogged.increment();
        }
        may
    }

    /// See [`ConnectionFailed`]. To be called if [`Emitter::may_log_connection`] allows it.
    pub fn connection_failed(&mut self, event: &ConnectionFailed<'_>) {
        self.hand_on(
            &event.as_exchange(),
            Audience { is_log: true, is_slow: false, is_failure: false },
        );
    }

    /// Counts an exchange that failed and that control is to warn of. Gives what
    /// [`ExchangeFinished::failures`] has to be, which is not 0 once a second for each kind of failure. `at`
    /// is wall-clock time, ns.
    pub fn note_failure(
        &mut self,
        cluster: Option<LabelId>,
        listener: LabelId,
        cause: Cause,
        at: u64,
    ) -> u32 {
        self.failures.note(cluster, listener, cause, at)
    }

    /// Whether an exchange of this length, ns, is recorded with its words and addresses when it is
    /// finished, and not only counted.
    #[must_use]
    pub fn is_recorded(&self, total: u64, is_tunnel: bool) -> bool {
        self.is_recording || self.is_slow(total, is_tunnel)
    }

    /// Counts an exchange that is not recorded, as [`Emitter::is_recorded`] and [`Emitter::note_failure`]
    /// say. Its words are not looked at.
    // Into the caller, so that no more of the event is made than is counted.
    #[inline]
    pub fn exchange_counted(&mut self, event: &ExchangeFinished<'_>) {
        self.worker.exchanges.finished(event.cause, event.is_tunnel, &event.stages);
        if let Some(block) = self.listener(event.listener) {
            block.exchanges.finished(event);
        }
        if let Some((table, slot)) = event.rule {
            self.rule_taken(table, slot);
            if let Some(slot) = event.weighted {
                self.rule_taken(table, slot);
            }
        }
        if let Some(block) = event.cluster.and_then(|cluster| self.cluster(cluster)) {
            block.exchange_finished(event);
        }
        if let Some(block) = event.endpoint_id.and_then(|endpoint| self.endpoint(endpoint)) {
            block.exchange_finished(event);
        }
    }

    /// See [`ExchangeFinished`].
    pub fn exchange_finished(&mut self, event: &ExchangeFinished<'_>) {
        self.exchange_counted(event);
        let is_slow = self.is_slow(event.stages.total, event.is_tunnel);
        let is_failure = event.failures > 0;
        if self.is_access_log || is_slow || is_failure {
            self.hand_on(event, Audience { is_log: self.is_access_log, is_slow, is_failure });
        }
    }

    /// See [`UpstreamConnected`].
    pub fn upstream_connected(&mut self, event: &UpstreamConnected) {
        if let Some(block) = self.cluster(event.cluster) {
            block.connected(event);
        }
    }

    /// See [`UpstreamConnectFailed`].
    pub fn upstream_connect_failed(&mut self, event: &UpstreamConnectFailed) {
        if let Some(block) = self.cluster(event.cluster) {
            block.connect_failed(event);
        }
        if let Some(block) = self.endpoint(event.endpoint) {
            block.connect_failed(event);
        }
    }

    /// See [`UpstreamClosed`].
    pub fn upstream_closed(&mut self, event: &UpstreamClosed) {
        self.worker.upstream.closed(event);
        if let Some(block) = self.cluster(event.cluster) {
            block.closed.increment();
        }
    }

    /// See [`UpstreamRetried`].
    pub fn upstream_retried(&mut self, event: &UpstreamRetried) {
        if let Some(block) = self.cluster(event.cluster) {
            block.retried(event);
        }
    }

    /// An attempt at a cluster began beside an earlier one.
    pub fn hedge_begun(&mut self, cluster: LabelId) {
        if let Some(block) = self.cluster(cluster) {
            block.hedges.increment();
        }
    }

    /// An attempt at a cluster that began beside an earlier one responded before that.
    pub fn hedge_won(&mut self, cluster: LabelId) {
        if let Some(block) = self.cluster(cluster) {
            block.hedges_won.increment();
        }
    }

    /// See [`UpstreamRetryDenied`].
    pub fn upstream_retry_denied(&mut self, event: &UpstreamRetryDenied) {
        if let Some(block) = self.cluster(event.cluster) {
            block.retry_denied(event);
        }
    }

    /// See [`CopyFinished`].
    pub fn copy_finished(&mut self, event: &CopyFinished) {
        if let Some(block) = self.cluster(event.cluster) {
            block.copy_finished(event);
        }
    }

    /// Hands on how many have failed since the last that control has heard of. To be called every few seconds.
    pub fn report_failures(&mut self) {
        let rest: Vec<_> = self.failures.take_rest().collect();
        for event in rest {
            self.hand_on(&event, Audience { is_log: false, is_slow: false, is_failure: true });
        }
    }

    /// A copy of a request failed, of which [`Emitter::note_failure`] said that control is to hear.
    pub fn copy_failed(&mut self, event: &ExchangeFinished<'_>) {
        self.hand_on(event, Audience { is_log: false, is_slow: false, is_failure: true });
    }

    /// A copy of a request for this cluster is not sent.
    pub fn mirror_dropped(&mut self, cluster: LabelId, reason: MirrorDrop) {
        if let Some(block) = self.cluster(cluster) {
            block.mirror_dropped(reason);
        }
    }

    /// An attempt at a cluster got an endpoint that was chosen in this way.
    pub fn endpoint_chosen(&mut self, cluster: LabelId, kind: ChoiceKind) {
        if let Some(block) = self.cluster(cluster) {
            block.endpoint_chosen(kind);
        }
    }

    /// See [`UpstreamPaused`].
    pub fn upstream_paused(&mut self, event: &UpstreamPaused) {
        if let Some(block) = self.cluster(event.cluster) {
            block.pauses.increment();
        }
        if let Some(block) = self.endpoint(event.endpoint) {
            block.paused(event);
        }
    }

    /// Sets the levels of a listener.
    pub fn listener_gauges(&mut self, listener: LabelId, gauges: &ListenerGauges) {
        if let Some(block) = self.listener(listener) {
            block.connections.buffered_bytes.set(gauges.buffered_bytes);
        }
    }

    /// Sets the levels of a cluster.
    pub fn cluster_gauges(&mut self, cluster: LabelId, gauges: &ClusterGauges) {
        if let Some(block) = self.cluster(cluster) {
            block.set_gauges(gauges);
        }
    }

    /// Sets how long turns were at work, ns, since the start: all but what they waited for events.
    pub fn worker_busy(&mut self, busy: u64) {
        self.worker.levels.set_busy(busy);
    }

    /// Sets the levels of the worker. To be called once a turn or so: it also announces what could
    /// not be announced before.
    pub fn worker_gauges(&mut self, gauges: &WorkerGauges) {
        self.worker.levels.set(gauges);
        if self.announcer.can_catch_up() {
            self.announce_rest();
        }
    }

    /// Whether it belongs to the slowest. A tunnel's length says nothing about how fast the proxy or
    /// its upstream were.
    fn is_slow(&self, total: u64, is_tunnel: bool) -> bool {
        !is_tunnel && self.worker.slow_floor.is_below(total)
    }

    fn listener(&mut self, id: LabelId) -> Option<&ListenerBlock> {
        self.listeners.block(id, &mut self.announcer, Announced::Listener)
    }

    fn cluster(&mut self, id: LabelId) -> Option<&ClusterBlock> {
        self.clusters.block(id, &mut self.announcer, Announced::Cluster)
    }

    fn endpoint(&mut self, id: LabelId) -> Option<&EndpointBlock> {
        let group = LabelId { slot: id.slot / ENDPOINTS_PER_BLOCK, generation: 0 };
        self.endpoints.block(group, &mut self.announcer, Announced::Endpoints)?.count(id)
    }

    /// Counts for what has this slot of a table.
    fn rule_taken(&mut self, table: LabelId, rule: u32) {
        let Ok(slot) = usize::try_from(table.slot) else { return };
        if self.rules.len() <= slot {
            self.make_table(slot);
        }
        let Ok(rule) = usize::try_from(rule) else { return };
        let Some(blocks) = self.rules.get_mut(slot) else { return };
        let Ok(group) = u32::try_from(rule / RULES_PER_BLOCK) else { return };
        // A group has the table's generation: a newer table's rules start from zero.
        let group = LabelId { slot: group, generation: table.generation };
        let block = blocks.block(group, &mut self.announcer, |group, block| {
            Announced::Rules(LabelId { slot: table.slot, ..group }, group.slot, block)
        });
        if let Some(counter) = block.and_then(|block| block.requests.get(rule % RULES_PER_BLOCK)) {
            counter.increment();
        }
    }

    #[cold]
    fn make_table(&mut self, slot: usize) {
        if slot < crate::block::LABEL_SLOTS_MAX {
            self.rules.resize_with(slot + 1, Blocks::default);
        }
    }

    #[cold]
    fn announce_rest(&mut self) {
        self.announcer.start_catching_up();
        self.listeners.announce_rest(&mut self.announcer, Announced::Listener);
        self.clusters.announce_rest(&mut self.announcer, Announced::Cluster);
        self.endpoints.announce_rest(&mut self.announcer, Announced::Endpoints);
        for (slot, blocks) in (0u32..).zip(&mut self.rules) {
            blocks.announce_rest(&mut self.announcer, |group, block| {
                Announced::Rules(LabelId { slot, ..group }, group.slot, block)
            });
        }
    }

    /// Hands an exchange to the log reader, or counts it as dropped if there is no room.
    fn hand_on(&mut self, event: &ExchangeFinished<'_>, audience: Audience) {
        let record = log_record::encode(event, audience, &mut self.scratch);
        let is_handed_on = self.records.push_entire_slice(record).is_ok();
        let counters = &self.worker.records;
        if audience.is_log {
            let counter = if is_handed_on { &counters.logged } else { &counters.log_dropped };
            counter.increment();
        }
        if audience.is_slow && !is_handed_on {
            counters.slow_dropped.increment();
        }
        self.worker.log_bell.ring();
    }
}

/// So many a second, and no more.
#[derive(Debug, Default)]
struct SecondBudget {
    second: u64,
    taken: u32,
}

impl SecondBudget {
    /// Takes one, at this wall-clock time in ns. Says whether there was one left.
    const fn take(&mut self, at: u64) -> bool {
        let second = at / 1_000_000_000;
        if self.second != second {
            self.second = second;
            self.taken = 0;
        }
        let has_left = self.taken < FAILED_CONNECTIONS_PER_SECOND_MAX;
        self.taken += has_left as u32;
        has_left
    }
}
