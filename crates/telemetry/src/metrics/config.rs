//! Counted from what the control thread reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::health::Health;
use super::{BOUNDS_COARSE, Family, MetricType};
use crate::events::{
    AccessLogWriteFailed, BreakersOfCluster, CertificateInUse, ConfigAccepted, ConfigRejected,
    ConfigResources, ConfigTakenUp, ConnectionMoved, ControlTurned, DemandOutcome, DemandsEnded,
    HANDOVER_FAILURES, HANDOVER_RESULTS, HandoverEnded, HandoverFailed, MemoryBounded,
    SourceAnswered, SourceHeard, SourceKind, SourceResources, StateWrites,
};
use crate::histogram::{Histogram, HistogramTotals};
use crate::totals::SourceTotals;

/// Counts of the control thread; no other thread reads them, so they are plain numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlCounters {
    version: u64,
    accepted: u64,
    rejected: u64,
    accepted_at: u64,
    accepted_duration: u64,
    build_times: Arc<Histogram>,
    take_up_times: Arc<Histogram>,
    turn_times: Arc<Histogram>,
    resources: Vec<ConfigResources>,
    rejected_at: u64,
    rejected_errors: u32,
    lines_lost: u64,
    /// Sorted, without one that stands twice.
    certificates: Vec<CertificateInUse>,
    /// How often each source answered, by the kind of resource, and when it did last.
    source_answers: BTreeMap<(SourceKind, &'static str), (u64, u64)>,
    /// By the kind of resource, and by reason.
    source_failures: BTreeMap<(SourceKind, &'static str, &'static str), u64>,
    source_heard: BTreeMap<SourceKind, u64>,
    source_resources: Vec<SourceResources>,
    state_writes: StateWrites,
    /// Requests that needed clusters on demand, by outcome.
    demands: [u64; DemandOutcome::ALL.len()],
    pub(crate) demands_waiting: u64,
    pub(crate) health: Health,
    /// By cluster: what is left of its bounds.
    pub(crate) breakers: Vec<BreakersOfCluster>,
    /// Moves that were asked for and those that `rebalance` chose: done, and refused.
    moves: [[u64; 2]; 2],
    memory: MemoryBounded,
    generation: u64,
    handovers: [u64; HANDOVER_RESULTS.len()],
    handover_failures: [u64; HANDOVER_FAILURES.len()],
    handover_groups: u64,
}

impl ControlCounters {
    pub(crate) fn config_accepted(&mut self, event: &ConfigAccepted) {
        self.accepted = self.accepted.saturating_add(1);
        self.version = event.version;
        self.accepted_at = event.at;
        self.accepted_duration = event.duration;
        self.build_times.record(event.duration);
    }

    pub(crate) fn config_taken_up(&self, event: ConfigTakenUp) {
        self.take_up_times.record(event.taking_up);
    }

    pub(crate) fn control_turned(&self, event: ControlTurned) {
        self.turn_times.record(event.taken);
    }

    /// How long control's turns took.
    pub(crate) fn turns(&self) -> HistogramTotals {
        let mut times = HistogramTotals::default();
        times.add(&self.turn_times);
        times
    }

    pub(crate) const fn memory_bounded(&mut self, event: MemoryBounded) {
        self.memory = event;
    }

    pub(crate) fn set_generation(&mut self, generation: u64) {
        self.generation = generation;
    }

    pub(crate) fn handover_ended(&mut self, event: &HandoverEnded) {
        for (result, count) in HANDOVER_RESULTS.iter().zip(&mut self.handovers) {
            *count = count.saturating_add(u64::from(*result == event.result));
        }
        if event.result == "completed" {
            self.handover_groups = self.handover_groups.saturating_add(event.groups);
        }
    }

    pub(crate) fn handover_failed(&mut self, event: HandoverFailed) {
        for (cause, count) in HANDOVER_FAILURES.iter().zip(&mut self.handover_failures) {
            *count = count.saturating_add(u64::from(*cause == event.cause));
        }
    }

    pub(crate) fn connection_moved(&mut self, event: ConnectionMoved) {
        let by_result = self.moves.get_mut(usize::from(event.is_rebalanced));
        let count = by_result.and_then(|it| it.get_mut(usize::from(!event.is_moved)));
        if let Some(count) = count {
            *count = count.saturating_add(1);
        }
    }

    pub(crate) fn config_resources(&mut self, resources: Vec<ConfigResources>) {
        self.resources = resources;
    }

    pub(crate) fn config_rejected(&mut self, event: &ConfigRejected) {
        self.rejected = self.rejected.saturating_add(1);
        self.rejected_at = event.at;
        self.rejected_errors = event.errors;
    }

    pub(crate) fn certificates_in_use(&mut self, mut certificates: Vec<CertificateInUse>) {
        certificates.sort();
        certificates.dedup();
        self.certificates = certificates;
    }

    pub(crate) fn source_heard(&mut self, event: &SourceHeard) {
        let last = self.source_heard.entry(event.source).or_default();
        *last = event.at.max(*last);
    }

    pub(crate) fn source_answered(&mut self, event: &SourceAnswered) {
        let SourceAnswered { source, kind, count: more, failure, at } = *event;
        if let Some(reason) = failure {
            let count = self.source_failures.entry((source, kind, reason)).or_default();
            *count = count.saturating_add(more);
        } else {
            let (count, last) = self.source_answers.entry((source, kind)).or_default();
            (*count, *last) = (count.saturating_add(more), at.max(*last));
        }
        if !failure.is_some_and(|reason| SILENCES.contains(&reason)) {
            self.source_heard(&SourceHeard { source, at });
        }
    }

    /// When each source last said anything: those that are always there, and others once they did.
    fn heard(&self) -> BTreeMap<SourceKind, u64> {
        let mut heard: BTreeMap<_, _> =
            [SourceKind::File, SourceKind::Dns].map(|it| (it, 0)).into();
        heard.extend(&self.source_heard);
        heard
    }

    pub(crate) fn demands_ended(&mut self, event: &DemandsEnded) {
        for (outcome, count) in DemandOutcome::ALL.iter().zip(&mut self.demands) {
            if *outcome == event.outcome {
                *count = count.saturating_add(event.count);
            }
        }
    }

    /// How often each source answered, by the kind of resource, and when it did last: those that are always there, and
    /// others once they did.
    fn answers_by_kind(&self) -> BTreeMap<(SourceKind, &'static str), (u64, u64)> {
        let always = [SourceKind::File, SourceKind::Dns];
        let mut answers: BTreeMap<_, _> =
            always.map(|source| ((source, ENDPOINTS_KIND), (0, 0))).into();
        answers.extend(&self.source_answers);
        answers
    }

    /// The same for each source.
    fn answers(&self) -> BTreeMap<SourceKind, (u64, u64)> {
        let mut answers: BTreeMap<_, (u64, u64)> = BTreeMap::new();
        for ((source, _), (count, at)) in self.answers_by_kind() {
            let (all, last) = answers.entry(source).or_default();
            (*all, *last) = (all.saturating_add(count), at.max(*last));
        }
        answers
    }

    pub(crate) fn source_totals(&self) -> Vec<SourceTotals> {
        let mut sources: Vec<_> = self.answers().into_iter().collect();
        for source in self.source_heard.keys() {
            // One of which all was refused, or that had nothing to say.
            if !sources.iter().any(|(known, _)| known == source) {
                sources.push((*source, (0, 0)));
            }
        }
        let totals = sources.into_iter().map(|(source, (answers_total, answered_at))| {
            let mut failures: BTreeMap<_, u64> = BTreeMap::new();
            for ((it, _, reason), count) in &self.source_failures {
                if *it == source {
                    *failures.entry(*reason).or_default() += count;
                }
            }
            let states = self.source_resources.iter().filter(|it| it.source == source);
            SourceTotals {
                source: source.as_str(),
                answers_total,
                failures: failures.into_iter().collect(),
                answered_at,
                heard_at: self.source_heard.get(&source).copied().unwrap_or_default(),
                states: states.map(|it| (it.state, it.count)).collect(),
            }
        });
        totals.collect()
    }

    pub(crate) fn source_resources(&mut self, resources: Vec<SourceResources>) {
        self.source_resources = resources;
    }

    pub(crate) const fn state_writes(&mut self, writes: StateWrites) {
        self.state_writes = writes;
    }

    pub(crate) fn access_log_write_failed(&mut self, event: &AccessLogWriteFailed) {
        self.lines_lost = self.lines_lost.saturating_add(event.lines);
    }
}

/// Failures of a source in which it said nothing.
const SILENCES: [&str; 3] = ["timeout", "unreachable", "no_server"];

/// Why DNS gives nothing; `control` has the words.
pub(super) const DNS_FAILURES: [&str; 10] = [
    "timeout",
    "servfail",
    "refused",
    "other_code",
    "not_understood",
    "no_recursion",
    "malformed",
    "alias_loop",
    "unreachable",
    "no_server",
];
/// Who asked for a move of a connection, and whether it took place.
pub(super) const MOVE_REASONS: [&str; 2] = ["request", "rebalance"];
pub(super) const MOVE_RESULTS: [&str; 2] = ["moved", "refused"];
/// What files of endpoints and DNS give.
const ENDPOINTS_KIND: &str = "assignment";
/// How resources may stand.
pub(super) const STATES: [&str; 3] = ["active", "warming", "refused"];
/// The kinds of resources.
pub(super) const KINDS: [&str; 5] = ["listener", "route", "cluster", "assignment", "secret"];
/// How what sources give may stand.
pub(super) const RESOURCE_STATES: [(SourceKind, &str); 9] = [
    (SourceKind::File, "good"),
    (SourceKind::File, "refused"),
    (SourceKind::Dns, "fresh"),
    (SourceKind::Dns, "partial"),
    (SourceKind::Dns, "empty"),
    (SourceKind::Dns, "stale"),
    (SourceKind::Dns, "restored"),
    (SourceKind::Dns, "failed"),
    (SourceKind::Dns, "waiting"),
];

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "strait_memory_max_bytes",
        kind: MetricType::Gauge,
        help: "Resident memory that the process may have: limits.memory_max, or the memory limit of its control groups. 0 without a limit.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.memory.max.unwrap_or_default()),
    },
    Family {
        name: "strait_memory_level",
        kind: MetricType::Gauge,
        help: "How near the resident memory is to its limit: 0 below 80 %, 1 from 80 % (small stream windows), 2 from 90 % (new requests get 503), 3 from 95 % (new connections are refused).",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.memory.level.into()),
    },
    Family {
        name: "strait_generation",
        kind: MetricType::Gauge,
        help: "Number of handovers that led to this process; 0 without a handover.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.generation),
    },
    Family {
        name: "strait_handovers_total",
        kind: MetricType::Counter,
        help: "Handovers by result: `completed`; `rolled_back`, if the old process continued; `stood_in`, if \
               the new process ended during its probation and the old one continued; `taken_back`, if the new \
               process gave everything back during its probation; `checked`, if configurations were only \
               compared; `restored`, if connections came from the service manager's store.",
        labels: &["result"],
        samples: |view, out| {
            for (result, count) in HANDOVER_RESULTS.iter().zip(view.control.handovers) {
                out.number(&[result], count);
            }
        },
    },
    Family {
        name: "strait_handover_failures_total",
        kind: MetricType::Counter,
        help: "Handovers that failed, and processes on the handover socket that were refused, by cause: `busy`, if \
               another process takes over already; `user`, if the user may not; `silent`, if nothing came in time; `start`, if `strait upgrade` could not start the new process, or that ended, or did not ask to take over; `timeout`, if it took longer than `handover.timeout`; \
               `garbled`, if a packet could not be read; `descriptors`, if a packet had another number of \
               descriptors than it should; `out_of_turn`, if a packet came when another was due; `over_bound`, if there was \
               more of something than any process needs; `version`, if the other process speaks no version of the protocol that this one does; `closed`, if the other process ended; `gave_up`, if it \
               cancelled; `own`, if this process could not continue.",
        labels: &["cause"],
        samples: |view, out| {
            for (cause, count) in HANDOVER_FAILURES.iter().zip(view.control.handover_failures) {
                out.number(&[cause], count);
            }
        },
    },
    Family {
        name: "strait_handover_groups_total",
        kind: MetricType::Counter,
        help: "Groups of connections that moved in handovers.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.handover_groups),
    },
    Family {
        name: "strait_connection_moves_total",
        kind: MetricType::Counter,
        help: "Connections that were to move to another worker, with their groups, by who asked for it \
               (`request`: the admin interface; `rebalance`) and whether they moved (`moved`) or stayed \
               (`refused`).",
        labels: &["reason", "result"],
        samples: |view, out| {
            for (reason, by_result) in MOVE_REASONS.iter().zip(&view.control.moves) {
                for (result, count) in MOVE_RESULTS.iter().zip(by_result) {
                    out.number(&[reason, result], *count);
                }
            }
        },
    },
    Family {
        name: "strait_config_accepted_total",
        kind: MetricType::Counter,
        help: "Configurations that were accepted, including the first one.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.accepted),
    },
    Family {
        name: "strait_config_rejected_total",
        kind: MetricType::Counter,
        help: "Configurations that were refused; the previous one stays in use.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.rejected),
    },
    Family {
        name: "strait_config_version",
        kind: MetricType::Gauge,
        help: "Version of the snapshot that was last sent to the workers.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.version),
    },
    Family {
        name: "strait_config_last_accepted_timestamp_seconds",
        kind: MetricType::Gauge,
        help: "When a configuration was last accepted, seconds since the Unix epoch; 0 for never.",
        labels: &[],
        samples: |view, out| out.decimal(&[], super::seconds(view.control.accepted_at)),
    },
    Family {
        name: "strait_config_last_accepted_duration_seconds",
        kind: MetricType::Gauge,
        help: "Time from reading the last accepted configuration to sending it to the workers.",
        labels: &[],
        samples: |view, out| out.decimal(&[], super::seconds(view.control.accepted_duration)),
    },
    Family {
        name: "strait_config_build_seconds",
        kind: MetricType::Histogram,
        help: "Time from reading a change (the file, endpoints, DNS answers, updates of sources) to the \
               snapshot that includes it, for accepted changes.",
        labels: &[],
        samples: |view, out| {
            let mut times = HistogramTotals::default();
            times.add(&view.control.build_times);
            out.histogram(&[], &BOUNDS_COARSE, &times);
        },
    },
    Family {
        name: "strait_config_take_up_seconds",
        kind: MetricType::Histogram,
        help: "Time from then until the last worker reports that it uses the snapshot; for the first snapshot, \
               until the last worker has started.",
        labels: &[],
        samples: |view, out| {
            let mut times = HistogramTotals::default();
            times.add(&view.control.take_up_times);
            out.histogram(&[], &BOUNDS_COARSE, &times);
        },
    },
    Family {
        name: "strait_control_turn_seconds",
        kind: MetricType::Histogram,
        help: "Time that the control loop takes for each event: a signal, a report of a worker, a snapshot, a \
               request to the admin interface. Other events wait meanwhile. More than 0.01 means a machine \
               without an idle core, or a defect.",
        labels: &[],
        samples: |view, out| out.histogram(&[], &BOUNDS_COARSE, view.control_turns()),
    },
    Family {
        name: "strait_config_resources",
        kind: MetricType::Gauge,
        help: "Listeners, route tables, clusters, assignments and secrets (`kind`: `listener`, `route`, `cluster`, \
               `assignment`, `secret`) by state: `active`, in use; `warming`, named by a rule and not delivered by \
               any source yet; `refused`, if the last update from a source other than the file, or the endpoint \
               file, was refused. A refused resource also counts as `active` if a previous version is in use. \
               `assignment`: clusters whose endpoints come from a source, an endpoint file or DNS. `secret`: those \
               that sources have delivered.",
        labels: &["kind", "state"],
        samples: |view, out| {
            let known = &view.control.resources;
            for kind in KINDS {
                for state in STATES {
                    let found = known.iter().find(|it| (it.kind, it.state) == (kind, state));
                    out.number(&[kind, state], found.map_or(0, |it| it.count));
                }
            }
        },
    },
    Family {
        name: "strait_config_last_rejected_timestamp_seconds",
        kind: MetricType::Gauge,
        help: "When a configuration was last refused, seconds since the Unix epoch; 0 for never.",
        labels: &[],
        samples: |view, out| out.decimal(&[], super::seconds(view.control.rejected_at)),
    },
    Family {
        name: "strait_config_last_rejected_errors",
        kind: MetricType::Gauge,
        help: "Number of errors in the configuration that was last refused.",
        labels: &[],
        samples: |view, out| out.number(&[], u64::from(view.control.rejected_errors)),
    },
    Family {
        name: "strait_source_answers_total",
        kind: MetricType::Counter,
        help: "Answers of a source that were accepted, including those without changes, by kind of resource: \
               `assignment` for the endpoints from `dns` and endpoint files (`file`). For the configuration file \
               itself, the listeners, route tables (`route`) and clusters that an accepted version adds or changes.",
        labels: &["source", "kind"],
        samples: |view, out| {
            for ((source, kind), (count, _)) in view.control.answers_by_kind() {
                out.number(&[source.as_str(), kind], count);
            }
        },
    },
    Family {
        name: "strait_source_failures_total",
        kind: MetricType::Counter,
        help: "Failures of a source, and resources that were refused, by kind of resource. The last valid \
               version stays in use. `reason` is `invalid` for files and for resources that are refused; for `dns` \
               it is `timeout`, `servfail`, `refused`, `other_code`, `not_understood`, `no_recursion`, `malformed`, \
               `alias_loop`, `unreachable` or `no_server`. `initial_fetch_timeout` counts listeners and clusters of \
               which a part did not arrive within `resolvers.initial_fetch_timeout`: they are used without route \
               configurations or endpoints, and refused without secrets. A refused version of the configuration file \
               counts once for each kind that its errors are about.",
        labels: &["source", "kind", "reason"],
        samples: |view, out| {
            let failures = &view.control.source_failures;
            let file = (SourceKind::File, ENDPOINTS_KIND, "invalid");
            let dns = DNS_FAILURES.into_iter();
            let dns = dns.map(|reason| (SourceKind::Dns, ENDPOINTS_KIND, reason));
            let known = dns.chain([file]).filter(|known| !failures.contains_key(known));
            for ((source, kind, reason), count) in
                known.map(|known| (known, 0)).chain(failures.iter().map(|(it, n)| (*it, *n)))
            {
                out.number(&[source.as_str(), kind, reason], count);
            }
        },
    },
    Family {
        name: "strait_source_resources",
        kind: MetricType::Gauge,
        help: "Endpoint files (`good`, `refused`) and host names by state: `fresh`; `partial`, if a part of the last \
               answer is missing, such as one family, and its last endpoints are used; `empty`, if the answer has \
               no usable addresses; `stale`, if the last endpoints are used after a failure; `failed` or \
               `waiting`, before the first answer. `restored` are those, and resources of other sources, that \
               come from the folder `state` or the replaced process and that the source has not replaced yet.",
        labels: &["source", "state"],
        samples: |view, out| {
            let known = &view.control.source_resources;
            for (source, state) in RESOURCE_STATES {
                if !known.iter().any(|it| (it.source, it.state) == (source, state)) {
                    out.number(&[source.as_str(), state], 0);
                }
            }
            for SourceResources { source, state, count } in known {
                out.number(&[source.as_str(), state], *count);
            }
        },
    },
    Family {
        name: "strait_on_demand_requests_total",
        kind: MetricType::Counter,
        help: "Requests that needed a cluster on demand, by outcome: `found`; `missing`, if no source has the \
               cluster or its last version is refused; `expired`, if the request waited for \
               `resolvers.on_demand_timeout` or ended meanwhile; `overflow`, if too many requests waited. All \
               but the first get 503.",
        labels: &["outcome"],
        samples: |view, out| {
            for (outcome, count) in DemandOutcome::ALL.iter().zip(view.control.demands) {
                out.number(&[outcome.as_str()], count);
            }
        },
    },
    Family {
        name: "strait_on_demand_waiting_requests",
        kind: MetricType::Gauge,
        help: "Requests that wait for a cluster on demand.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.demands_waiting),
    },
    Family {
        name: "strait_state_writes_total",
        kind: MetricType::Counter,
        help: "Number of times the last answers of sources were written to the folder `state`.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.state_writes.written),
    },
    Family {
        name: "strait_state_write_failures_total",
        kind: MetricType::Counter,
        help: "Number of times they could not be written: the previous file stays, and another attempt follows.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.state_writes.failed),
    },
    Family {
        name: "strait_state_read_failures_total",
        kind: MetricType::Counter,
        help: "Number of times the file in the folder `state` could not be used when the process read it: it started \
               without the last answers of sources. `state` of `/sources` has the reason.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.state_writes.unusable),
    },
    Family {
        name: "strait_state_bytes",
        kind: MetricType::Gauge,
        help: "Size of the file that was last written to the folder `state`.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.state_writes.bytes),
    },
    Family {
        name: "strait_state_last_write_timestamp_seconds",
        kind: MetricType::Gauge,
        help: "When the file in the folder `state` was last written, seconds since the Unix epoch; 0 for never.",
        labels: &[],
        samples: |view, out| out.decimal(&[], super::seconds(view.control.state_writes.at)),
    },
    Family {
        name: "strait_source_last_answer_timestamp_seconds",
        kind: MetricType::Gauge,
        help: "When an answer of a source was last accepted, seconds since the Unix epoch; 0 for never.",
        labels: &["source"],
        samples: |view, out| {
            for (source, (_, at)) in view.control.answers() {
                out.decimal(&[source.as_str()], super::seconds(at));
            }
        },
    },
    Family {
        name: "strait_source_last_heard_timestamp_seconds",
        kind: MetricType::Gauge,
        help: "When a source last said anything, seconds since the Unix epoch: also what was refused, or that there is \
               nothing new. 0 for never. Silence, as of DNS servers that do not answer, leaves it as it is.",
        labels: &["source"],
        samples: |view, out| {
            for (source, at) in view.control.heard() {
                out.decimal(&[source.as_str()], super::seconds(at));
            }
        },
    },
    Family {
        name: "strait_tls_certificate_expiry_timestamp_seconds",
        kind: MetricType::Gauge,
        help: "Expiry time of the certificates that listeners present to clients, or clusters to endpoints, \
               seconds since the Unix epoch. `file` is the path in the configuration; one of `listener` and \
               `cluster` is empty.",
        labels: &["listener", "cluster", "file"],
        samples: |view, out| {
            for certificate in &view.control.certificates {
                let CertificateInUse { listener, cluster, file, expires_at } = certificate;
                out.number(&[listener, cluster, file], *expires_at);
            }
        },
    },
    Family {
        name: "strait_access_log_lines_lost_total",
        kind: MetricType::Counter,
        help: "Access log lines that could not be written to their output.",
        labels: &[],
        samples: |view, out| out.number(&[], view.control.lines_lost),
    },
];
