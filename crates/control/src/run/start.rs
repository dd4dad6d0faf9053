//! What control begins with: the first configuration, what is watched, and where its events come from.
//!
//! The first snapshot is built and bound before this; nothing here can refuse it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use config::snapshot::{Snapshot, StartupOptions};
use config::{EndpointsOutcome, ResourceKind, ResourceName};
use telemetry::Collector;
use telemetry::events::{ConfigAccepted, SourceAnswered, SourceHeard, SourceKind};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::admin_handles::AdminHandles;
use super::deliveries::Deliveries;
use super::demands::Demands;
use super::drains::Drains;
use super::file_lines::FileLines;
use super::file_trouble::FileTrouble;
use super::handing::Handing;
use super::kept::KeptState;
use super::moves::Moves;
use super::old_process::OldListing;
use super::other_processes::OtherProcesses;
use super::stored::Stored;
use super::taking_up::{LONG_BUILD, warn};
use super::versions::Versions;
use super::{InEffect, Parts, Query, Running, Sources, State, UPKEEP_INTERVAL};
use crate::AdminSocket;
use crate::admin::{Hosts, Scope, Server, UnreadPages};
use crate::builder::Builder;
use crate::clock;
use crate::dns::{Dns, DnsReport, Known, Status};
use crate::expiry::Expiry;
use crate::handover_report::HandoverReport;
use crate::health::Health;
use crate::last_good::{Resumed, ResumedPart};
use crate::memory::{MemoryRelease, MemoryWatch};
use crate::overflows::Overflows;
use crate::reload::{Accepted, ConfigFile};
use crate::signals::Signals;
use crate::source::{Delivery, Restores, Source};
use crate::tick::Tick;
use crate::warming::Warming;
use crate::watch::{FileWatch, WatchList};
use crate::workers::Workers;

/// Queries of the admin interface that wait.
const QUERIES_MAX: usize = 64;

impl<W: Workers> Running<W> {
    pub(super) async fn start(parts: Parts<W>) -> io::Result<(Self, Sources<W>)> {
        let began = clock::monotonic_ns();
        let Parts { mut config, first, addresses, workers, reports, log, mut collector, .. } =
            parts;
        if !parts.sources.is_empty() {
            config.order_sources(parts.sources.iter().map(|it| it.name().into()).collect());
        }
        let (query_sender, queries) = mpsc::channel(QUERIES_MAX);
        let signals = Signals::new::<W>()?;
        let (watch, watch_list) = watch(&config).unzip();
        let count = workers.count();
        let sockets = (parts.admin, parts.metrics);
        let startup = &first.snapshot.startup;
        let mut admin_handles = AdminHandles::new(query_sender.clone());
        let answering = (!parts.is_taking_over).then_some(count);
        let servers = serve_admin(sockets, startup, &mut admin_handles, (query_sender, answering))?;
        let loaded_at = clock::wall_ns();
        let (last_good, resumed) = (config.take_last_good(), config.take_resumed());
        let (builder, built) = Builder::start(config)?;
        let Accepted { snapshot, warnings, known, wanted, endpoints_read, duration, .. } = first;
        let (demands, (deliveries, delivered, restores)) =
            start_sources(parts.sources, &snapshot, wanted, &mut collector);
        let (hands_over, is_held) = (parts.hands_over.is_some(), parts.is_taking_over);
        let mut kept = KeptState::start(&snapshot.startup, &known, restores, hands_over, is_held);
        kept.resume(&resumed, deliveries.wanted());
        // One that takes another's place reads what that one leaves when it has done so.
        if !parts.is_taking_over {
            kept.restore(last_good);
        }
        let host_names = known.keys().cloned().collect();
        let (dns, resolved, warming) = start_dns(&snapshot, known, &mut collector);
        collector.config_accepted(&ConfigAccepted {
            version: snapshot.version,
            at: loaded_at,
            duration,
        });
        let versions = Versions::new(count, snapshot.version, began);
        warn(&warnings);
        let expiry = Expiry::new(&snapshot);
        collector.certificates_in_use(expiry.in_use());
        let mut memory = MemoryRelease::default();
        if duration >= LONG_BUILD {
            memory.note_freed();
        }
        let health = Health::start(&snapshot, parts.is_taking_over);
        let mut running = Self {
            workers,
            state: State::Starting,
            drain_at: 0,
            started: 0,
            stopped: BTreeSet::new(),
            is_init: parts.is_init,
            stored: Stored::new(
                parts.is_taking_over,
                parts.stale_sockets,
                parts.had_connections,
                parts.storer,
            ),
            outcome: None,
            config: InEffect {
                builder,
                watch_list,
                expiry,
                snapshot,
                addresses: addresses.into_iter().collect(),
                warnings,
                loaded_at,
                file_accepted_at: loaded_at,
                trouble: FileTrouble::default(),
                refused: None,
                named_refused: None,
                endpoints_refused: BTreeMap::new(),
                file_lines: FileLines::default(),
                endpoint_files: BTreeMap::new(),
                resolved_since: BTreeMap::new(),
                dns,
                host_names,
                answers: BTreeMap::new(),
                warming,
                deliveries,
                drains: Drains::default(),
            },
            log,
            collector,
            admin: servers,
            admin_released: Vec::new(),
            admin_handles,
            handing: if parts.is_taking_over { Handing::TAKING } else { Handing::None },
            hands_over: parts.hands_over,
            begin_waits: None,
            answerers: parts.answerers,
            answering: JoinSet::new(),
            describing: BTreeMap::new(),
            unread_pages: UnreadPages::default(),
            describe_next: 0,
            listing: OldListing::default(),
            demands,
            descriptors_warned_at: None,
            overflows: Overflows::default(),
            health,
            kept,
            versions,
            moves: Moves::default(),
            handover_report: HandoverReport::default(),
            others: OtherProcesses::default(),
            is_asked_to_end: false,
            memory,
            memory_watch: MemoryWatch::default(),
            memory_of_groups: W::memory_bytes_max(),
            service_manager: parts.service_manager,
            is_reloading: false,
            version: parts.version,
        };
        running.note_first(endpoints_read, parts.is_taking_over);
        running.resume(resumed);
        let (handover, tick) = (parts.handover, Tick::new(UPKEEP_INTERVAL)?);
        Ok((
            running,
            Sources {
                signals,
                watch,
                reports,
                queries,
                built,
                resolved,
                delivered,
                handover,
                tick,
            },
        ))
    }

    /// Takes note of what the first configuration was read from. A process that takes another's place goes on from what that one
    /// has counted.
    fn note_first(&mut self, endpoints_read: Vec<EndpointsOutcome>, is_taking_over: bool) {
        let first = Arc::clone(&self.config.snapshot);
        self.note_all_endpoints(endpoints_read, first.version);
        self.config.note_resolved(&first);
        self.config.dns.warn_of_left_out(&first, None);
        if !is_taking_over {
            self.count_file_taken(&first);
        }
        self.note_file_heard();
    }

    /// What was on disk of other sources' resources is in effect.
    fn resume(&mut self, resumed: Resumed) {
        let Resumed { late, waits, parts, .. } = resumed;
        for ResumedPart { source, updates, verdicts, .. } in &parts {
            self.config.deliveries.note_accepted(source, updates, verdicts);
        }
        self.on_relinked(late, waits);
        while self.config.deliveries.is_noting() {
            self.note_portion();
        }
    }
}

/// Watches the files of a configuration that has some.
fn watch<F>(config: &ConfigFile<F>) -> Option<(FileWatch, WatchList)> {
    config.path()?;
    match FileWatch::new(config.watched()) {
        Ok(watched) => Some(watched),
        Err(error) => {
            let file = config.name();
            tracing::warn!("{file} cannot be watched ({error}): send SIGHUP after a change");
            None
        }
    }
}

/// Starts the sources; those on demand are asked for what `clusters_on_demand` names.
fn start_sources<A, F>(
    sources: Vec<Box<dyn Source>>,
    snapshot: &Snapshot<F>,
    wanted: BTreeSet<ResourceName>,
    collector: &mut Collector,
) -> (Demands<A>, (Deliveries, mpsc::Receiver<Delivery>, Restores)) {
    let on_demand = sources.iter().filter(|it| it.is_on_demand());
    let on_demand = on_demand.map(|it| it.name()).collect();
    let demands = Demands::new(on_demand, &snapshot.clusters_on_demand);
    let demanded = demands.followed(&wanted).collect();
    for source in sources.iter().map(|it| SourceKind::Named(it.name())) {
        collector.source_heard(&SourceHeard { source, at: 0 });
    }
    (demands, Deliveries::start(sources, wanted, demanded))
}

/// Begins to ask for host names, of some of which it is known what they stand for; others are waited for.
fn start_dns<F>(
    snapshot: &Snapshot<F>,
    known: Known,
    collector: &mut Collector,
) -> (Dns, mpsc::Receiver<DnsReport>, Warming) {
    let (mut dns, resolved) = Dns::new(snapshot.resolvers.clone());
    let unanswered = known.iter().filter(|(_, status)| !status.is_answered());
    let warming = Warming::after(unanswered.map(|(name, _)| Arc::clone(name)).collect());
    count_first_answers(&known, collector);
    dns.resume(known);
    (dns, resolved, warming)
}

/// Counts what DNS answered before anything was counted.
fn count_first_answers(known: &Known, collector: &mut Collector) {
    for at in known.values().filter_map(Status::answered_at) {
        let (source, kind) = (SourceKind::Dns, ResourceKind::Assignment.word());
        collector.source_answered(&SourceAnswered { source, kind, count: 1, failure: None, at });
    }
}

/// Keeps the sockets of the admin interface, and answers there for so many workers, unless another process does.
fn serve_admin(
    (admin, metrics): (Option<AdminSocket>, Option<AdminSocket>),
    startup: &StartupOptions,
    handles: &mut AdminHandles,
    (queries, workers): (mpsc::Sender<Query>, Option<u32>),
) -> io::Result<Vec<Server>> {
    let hosts = Hosts::Known(Arc::clone(&startup.admin_hosts));
    let mut servers = Vec::new();
    for (socket, address, scope) in
        [(admin, &startup.admin, Scope::All(hosts)), (metrics, &startup.metrics, Scope::Metrics)]
    {
        let Some(socket) = socket else { continue };
        handles.keep(&socket, address.as_ref(), scope.clone());
        if let Some(workers) = workers {
            servers.push(Server::start(socket, scope, queries.clone(), workers)?);
        }
    }
    Ok(servers)
}
