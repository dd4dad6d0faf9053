//! The control thread's end of the counters: holds the blocks of all workers and adds them up when
//! they are read.
//!
//! Reading takes nothing that a worker could wait for. Blocks are kept while their label has a
//! name: what a new configuration no longer names is forgotten with what it had counted, so that
//! memory follows the configuration and not its history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::block::{Announced, ListenerBlock, WorkerBlock};
use crate::emitter::CounterSource;
use crate::events::{
    AccessLogWriteFailed, CertificateInUse, ConfigAccepted, ConfigRejected, ConfigResources,
    EjectionCounted, LabelId, OutlierCluster, SourceAnswered, SourceResources,
};
use crate::exposition::{Glob, PrometheusText, StatsText};
use crate::former::Former;
use crate::metrics::config::ControlCounters;
use crate::metrics::endpoint::{EndpointBlock, EndpointTotals};
use crate::metrics::exchange::RuleBlock;
use crate::metrics::upstream::ClusterBlock;
use crate::metrics::{RULES_MAX, View, families};
use crate::names::{EndpointName, Names, RouteNames};
use crate::process::ProcessFacts;
use crate::totals::{ClusterTotals, ListenerTotals, SourceTotals};

/// Adds up what the workers count.
#[derive(Debug)]
pub struct Collector {
    version: &'static str,
    commit: &'static str,
    names: Arc<Names>,
    workers: Vec<Worker>,
    /// The route tables whose rules have changed since they were first counted.
    moved: BTreeMap<LabelId, Moved>,
    control: ControlCounters,
    /// The endpoints that are reported.
    endpoints: Vec<EndpointName>,
    endpoints_left_out: u64,
    /// What the processes had counted whose place this one took.
    former: Former,
}

/// Workers count by the place of a rule in its table. This keeps a rule's count when its place
/// changes.
#[derive(Debug)]
struct Moved {
    /// Counts of the workers at the last change, by place.
    before: Vec<u64>,
    /// Counts at the last change of the rules that there are now, by place.
    carried: Vec<u64>,
}

#[derive(Debug)]
struct Worker {
    source: CounterSource,
    listeners: BTreeMap<LabelId, Arc<ListenerBlock>>,
    rules: BTreeMap<(LabelId, u32), Arc<RuleBlock>>,
    clusters: BTreeMap<LabelId, Arc<ClusterBlock>>,
    /// By slot, with the generation: a newer endpoint takes the place of one that is gone.
    endpoints: BTreeMap<u32, (u32, Arc<EndpointBlock>)>,
}

impl Collector {
    /// A collector without workers, for a program of this version.
    #[must_use]
    pub fn new(version: &'static str) -> Self {
        Self {
            version,
            commit: "unknown",
            names: Arc::default(),
            workers: Vec::new(),
            moved: BTreeMap::new(),
            control: ControlCounters::default(),
            endpoints: Vec::new(),
            endpoints_left_out: 0,
            former: Former::default(),
        }
    }

    /// Names the commit that the program was built from.
    #[must_use]
    pub fn built_from(self, commit: &'static str) -> Self {
        Self { commit, ..self }
    }

    /// Adds a worker; its `worker` label is its place, from 0.
    pub fn add_worker(&mut self, source: CounterSource) {
        self.workers.push(Worker {
            source,
            listeners: BTreeMap::new(),
            rules: BTreeMap::new(),
            clusters: BTreeMap::new(),
            endpoints: BTreeMap::new(),
        });
    }

    /// Takes the names of a new snapshot, before the workers get it, and forgets what these no
    /// longer name.
    ///
    /// A rule keeps its count when its place changes, identified by what it matches. An exchange
    /// that began under the former snapshot and ends later is counted for the rule that now has its
    /// rule's place.
    pub fn set_names(&mut self, names: Arc<Names>) {
        self.poll();
        let former = std::mem::replace(&mut self.names, names);
        let tables: BTreeSet<LabelId> =
            self.workers.iter().flat_map(|worker| worker.rules.keys().map(|(id, _)| *id)).collect();
        for id in tables {
            match (former.route(id), self.names.route(id)) {
                (Some(before), Some(now)) if before.rules == now.rules => {}
                (Some(before), Some(now)) => {
                    let carried = carry(before, &self.taken(id), now);
                    self.moved.insert(id, Moved { before: self.counted(id), carried });
                }
                _ => {
                    self.moved.remove(&id);
                }
            }
        }
        let names = &self.names;
        for worker in &mut self.workers {
            worker.listeners.retain(|id, _| names.listener(*id).is_some());
            worker.rules.retain(|(id, _), _| names.route(*id).is_some());
            worker.clusters.retain(|id, _| names.cluster(*id).is_some());
        }
    }

    /// Fetches blocks that workers made. Every reading does that too; call it now and then if
    /// metrics are not read, so that the queue does not fill.
    pub fn poll(&mut self) {
        for worker in &mut self.workers {
            worker.poll();
        }
    }

    /// See [`ConfigAccepted`].
    pub fn config_accepted(&mut self, event: &ConfigAccepted) {
        self.control.config_accepted(event);
    }

    /// See [`ConfigRejected`].
    pub fn config_rejected(&mut self, event: &ConfigRejected) {
        self.control.config_rejected(event);
    }

    /// Takes all certificates that are in use, in the place of those before.
    pub fn certificates_in_use(&mut self, certificates: Vec<CertificateInUse>) {
        self.control.certificates_in_use(certificates);
    }

    /// See [`SourceAnswered`].
    pub fn source_answered(&mut self, event: &SourceAnswered) {
        self.control.source_answered(event);
    }

    /// Takes the states of all files and names of sources, in the place of those before.
    pub fn source_resources(&mut self, resources: Vec<SourceResources>) {
        self.control.source_resources(resources);
    }

    /// What each source has said.
    #[must_use]
    pub fn source_totals(&self) -> Vec<SourceTotals> {
        self.control.source_totals()
    }

    /// Takes how many resources are in each state, in the place of those before.
    pub fn config_resources(&mut self, resources: Vec<ConfigResources>) {
        self.control.config_resources(resources);
    }

    /// See [`EjectionCounted`].
    pub fn ejection_counted(&mut self, event: EjectionCounted) {
        self.control.outliers.counted(event);
    }

    /// Takes the states of all clusters that eject endpoints, in the place of those before. What was counted for
    /// others is forgotten.
    pub fn outlier_clusters(&mut self, clusters: Vec<OutlierCluster>) {
        self.control.outliers.set_clusters(clusters);
    }

    /// See [`AccessLogWriteFailed`].
    pub fn access_log_write_failed(&mut self, event: &AccessLogWriteFailed) {
        self.control.access_log_write_failed(event);
    }

    /// Takes the endpoints that are reported from now on, and how many others there are.
    pub fn set_endpoints(&mut self, endpoints: Vec<EndpointName>, left_out: u64) {
        (self.endpoints, self.endpoints_left_out) = (endpoints, left_out);
    }

    /// Appends all metrics in the Prometheus text format 0.0.4
    /// (`text/plain; version=0.0.4; charset=utf-8`).
    pub fn write_prometheus(&mut self, process: &ProcessFacts, out: &mut String) {
        self.poll();
        let view = self.view(process);
        for (_, family) in families() {
            let mut samples = PrometheusText::begin(family, out);
            self.former.samples(family, &view, &mut samples);
        }
    }

    /// Appends the metrics as lines `name value`, those of whose name `filter` is a part; `*` in
    /// the filter stands for anything, and an empty one for all.
    pub fn write_stats(&mut self, process: &ProcessFacts, filter: &str, out: &mut String) {
        self.poll();
        let view = self.view(process);
        let filter = Glob::new(filter);
        for (_, family) in families() {
            self.former.samples(family, &view, &mut StatsText::new(family, &filter, out));
        }
    }

    /// All that this process and those before it have counted, for the one that takes its place.
    pub fn write_totals(&mut self) -> Vec<u8> {
        self.poll();
        // Figures of the process itself do not go along.
        let process = ProcessFacts::default();
        self.former.write(&self.view(&process)).into_bytes()
    }

    /// Goes on with what the process had counted whose place this one takes, as [`Self::write_totals`] wrote it.
    /// Each time takes the place of the time before.
    pub fn set_former_totals(&mut self, totals: &[u8]) {
        self.former = Former::read(totals);
    }

    /// The counts of a listener.
    pub fn listener_totals(&mut self, id: LabelId) -> ListenerTotals {
        self.poll();
        let mut totals = ListenerTotals::default();
        for block in self.workers.iter().filter_map(|worker| worker.listeners.get(&id)) {
            let closed = block.connections.closed.value();
            let finished = block.exchanges.finished.value();
            let opened = block.connections.opened.value();
            totals.connections_total += opened;
            totals.connections_active += opened.saturating_sub(closed);
            totals.exchanges_total += finished;
            totals.exchanges_active += block.exchanges.started.value().saturating_sub(finished);
        }
        totals
    }

    /// The counts of a cluster.
    pub fn cluster_totals(&mut self, id: LabelId) -> ClusterTotals {
        self.poll();
        let mut totals = ClusterTotals::default();
        for block in self.workers.iter().filter_map(|worker| worker.clusters.get(&id)) {
            block.add_to(&mut totals);
        }
        totals
    }

    /// What an endpoint has counted.
    pub fn endpoint_totals(&mut self, id: LabelId) -> EndpointTotals {
        self.poll();
        self.totals_of(id)
    }

    fn totals_of(&self, id: LabelId) -> EndpointTotals {
        let mut totals = EndpointTotals::default();
        for worker in &self.workers {
            if let Some((generation, block)) = worker.endpoints.get(&id.slot)
                && *generation == id.generation
            {
                block.add_to(&mut totals);
            }
        }
        totals
    }

    /// Forgets what an endpoint has counted that is gone from the configuration.
    pub fn forget_endpoint(&mut self, id: LabelId) {
        for worker in &mut self.workers {
            if worker.endpoints.get(&id.slot).is_some_and(|(known, _)| *known == id.generation) {
                worker.endpoints.remove(&id.slot);
            }
        }
    }

    /// About how many bytes all workers hold for their load, from which the caller sees that load
    /// has fallen.
    #[must_use]
    pub fn bytes_held(&self) -> u64 {
        self.workers.iter().map(|worker| worker.source.worker.levels.bytes_held()).sum()
    }

    /// Counts of the workers for each place of a route table.
    fn counted(&self, table: LabelId) -> Vec<u64> {
        let mut counts = Vec::new();
        for worker in &self.workers {
            for (&(_, group), block) in worker.rules.range((table, 0)..=(table, u32::MAX)) {
                for (place, count) in block.taken(group) {
                    add_at(&mut counts, place, count);
                }
            }
        }
        counts
    }

    /// How many exchanges each rule of a route table has taken, by its place now.
    fn taken(&self, table: LabelId) -> Vec<u64> {
        let mut counts = self.counted(table);
        if let Some(moved) = self.moved.get(&table) {
            for (count, before) in counts.iter_mut().zip(&moved.before) {
                *count = count.saturating_sub(*before);
            }
            for (place, carried) in moved.carried.iter().enumerate() {
                add_at(&mut counts, place, *carried);
            }
        }
        counts
    }

    fn view<'a>(&'a self, process: &'a ProcessFacts) -> View<'a> {
        let mut view = View {
            workers: Vec::with_capacity(self.workers.len()),
            listeners: BTreeMap::new(),
            clusters: BTreeMap::new(),
            rules: Vec::new(),
            endpoints: self
                .endpoints
                .iter()
                .map(|it| (&*it.cluster, it.address.as_str(), self.totals_of(it.id)))
                .collect(),
            endpoints_left_out: self.endpoints_left_out,
            control: &self.control,
            process,
            version: self.version,
            commit: self.commit,
        };
        // Configured listeners and clusters are reported from the start, with zeros to which an
        // alert can compare.
        for name in self.names.listeners() {
            view.listeners.insert(name, Vec::new());
        }
        for name in self.names.clusters() {
            view.clusters.insert(name, Vec::new());
        }
        let rules = self.names.routes().map(|(_, route)| route.rules.len()).sum::<usize>();
        let are_few = rules <= RULES_MAX;
        let mut tables = BTreeSet::new();
        if are_few {
            tables.extend(self.names.routes().map(|(id, _)| id));
        }
        for (index, worker) in self.workers.iter().enumerate() {
            let block: &WorkerBlock = &worker.source.worker;
            view.workers.push((index.to_string(), block));
            for (id, block) in &worker.listeners {
                if let Some(name) = self.names.listener(*id) {
                    view.listeners.entry(name).or_default().push(block);
                }
            }
            for (id, block) in &worker.clusters {
                if let Some(name) = self.names.cluster(*id) {
                    view.clusters.entry(name).or_default().push(block);
                }
            }
            tables.extend(worker.rules.keys().map(|(id, _)| *id));
        }
        for id in tables {
            let Some(route) = self.names.route(id) else { continue };
            // Places behind the last are those of rules that are gone.
            let mut taken = self.taken(id);
            if are_few {
                taken.resize(route.rules.len(), 0);
            }
            for (place, (count, text)) in taken.into_iter().zip(&*route.rules).enumerate() {
                if count > 0 || are_few {
                    view.rules.push((&route.name, format!("{place} {text}"), count));
                }
            }
        }
        view.rules.sort_by_key(|(route, ..)| *route);
        view
    }
}

impl Worker {
    fn poll(&mut self) {
        while let Ok(announced) = self.source.announced.pop() {
            match announced {
                Announced::Listener(id, block) => {
                    self.listeners.insert(id, block);
                }
                Announced::Rules(id, group, block) => {
                    self.rules.insert((id, group), block);
                }
                Announced::Cluster(id, block) => {
                    self.clusters.insert(id, block);
                }
                Announced::Endpoint(id, block) => {
                    self.endpoints.insert(id.slot, (id.generation, block));
                }
            }
        }
    }
}

/// Counts of the rules of `now`, from the `counts` of the rules of `before`: those that match
/// the same have the same count. Several that match the same are identified by their order.
fn carry(before: &RouteNames, counts: &[u64], now: &RouteNames) -> Vec<u64> {
    let mut by_text = BTreeMap::<&str, VecDeque<u64>>::new();
    for (text, count) in before.rules.iter().zip(counts) {
        by_text.entry(text).or_default().push_back(*count);
    }
    let found = now.rules.iter().map(|text| by_text.get_mut(&**text).and_then(VecDeque::pop_front));
    found.map(Option::unwrap_or_default).collect()
}

fn add_at(counts: &mut Vec<u64>, place: usize, count: u64) {
    if counts.len() <= place {
        counts.resize(place + 1, 0);
    }
    if let Some(total) = counts.get_mut(place) {
        *total += count;
    }
}
