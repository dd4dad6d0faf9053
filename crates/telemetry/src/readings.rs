//! What was counted up to a moment, to be added up and written wherever there is time for that.
//!
//! The blocks of workers are shared, so that taking it costs little and writing it needs no turn of the control loop: with
//! ten thousand clusters that takes longer than a turn may.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::block::{ListenerBlock, WorkerBlock};
use crate::counters::endpoint::{
    ENDPOINTS_PER_BLOCK, EndpointBlock, EndpointTotals, EndpointsBlock,
};
use crate::counters::exchange::RuleBlock;
use crate::counters::upstream::ClusterBlock;
use crate::events::LabelId;
use crate::exposition::{Glob, PrometheusText, StatsText};
use crate::former::FormerTotals;
use crate::loops::LoopTotals;
use crate::metrics::config::ControlCounters;
use crate::metrics::{RULES_MAX, RuleReading, View, families};
use crate::names::{Counted, EndpointName, Names, Replaced, RouteNames};
use crate::process::ProcessFacts;

/// What workers, control and former processes have counted.
#[derive(Clone, Debug)]
pub struct Readings {
    pub(crate) version: &'static str,
    pub(crate) commit: &'static str,
    pub(crate) names: Arc<Names>,
    pub(crate) replaced: Arc<Replaced>,
    pub(crate) workers: Vec<Arc<Blocks>>,
    /// What the counters of slots of route tables had when rules got these that others had before.
    pub(crate) begun: Arc<BTreeMap<LabelId, BTreeMap<u32, u64>>>,
    pub(crate) control: ControlCounters,
    /// The endpoints that are reported.
    pub(crate) endpoints: Arc<[EndpointName]>,
    pub(crate) endpoints_left_out: u64,
    /// What other processes had counted: those whose place this one took, and those that took its place.
    pub(crate) former: Arc<FormerTotals>,
    /// Of that, what the process does not know whose place this one took.
    pub(crate) behind: Arc<FormerTotals>,
    /// How much the loops of this process had done.
    pub(crate) loops: Arc<LoopTotals>,
}

/// The blocks of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    pub(crate) worker: Arc<WorkerBlock>,
    pub(crate) listeners: BTreeMap<LabelId, Arc<ListenerBlock>>,
    pub(crate) rules: BTreeMap<(LabelId, u32), Arc<RuleBlock>>,
    pub(crate) clusters: BTreeMap<LabelId, Arc<ClusterBlock>>,
    /// By the slots of their endpoints, divided by [`ENDPOINTS_PER_BLOCK`].
    pub(crate) endpoints: BTreeMap<u32, Arc<EndpointsBlock>>,
}

impl Readings {
    /// Appends all metrics in the Prometheus text format 0.0.4
    /// (`text/plain; version=0.0.4; charset=utf-8`).
    pub fn write_prometheus(&self, process: &ProcessFacts, out: &mut String) {
        let view = self.view(process);
        for (_, family) in families() {
            let mut samples = PrometheusText::begin(family, out);
            self.former.samples(family, &view, &mut samples);
        }
    }

    /// Appends the metrics as lines `name value`, those of whose name `filter` is a part; `*` in
    /// the filter stands for anything, and an empty one for all.
    pub fn write_stats(&self, process: &ProcessFacts, filter: &str, out: &mut String) {
        let view = self.view(process);
        let filter = Glob::new(filter);
        for (_, family) in families() {
            self.former.samples(family, &view, &mut StatsText::new(family, &filter, out));
        }
    }

    /// All that this process and those before it have counted, for the one that takes its place.
    pub fn write_totals(&self) -> Vec<u8> {
        // Figures of the process itself do not go along.
        let process = ProcessFacts::default();
        self.former.write(&self.view(&process)).into_bytes()
    }

    /// The name of a listener, or of one that another has taken the place of.
    pub(crate) fn listener_name(&self, id: LabelId) -> Option<&Arc<str>> {
        self.names.listener(id).or_else(|| self.replaced.name(id))
    }

    /// What left this process and did not come back.
    pub(crate) fn away(&self) -> FormerTotals {
        let process = ProcessFacts::default();
        FormerTotals::away(&self.view(&process))
    }

    /// What this process has counted, and those to which it had given its place, for the process whose place it took.
    pub fn write_own_totals(&self) -> Vec<u8> {
        let process = ProcessFacts::default();
        self.behind.write(&self.view(&process)).into_bytes()
    }

    /// What an endpoint has counted.
    pub(crate) fn totals_of(&self, id: LabelId) -> EndpointTotals {
        let mut totals = EndpointTotals::default();
        self.blocks_of(id).for_each(|block| block.add_to(&mut totals));
        totals
    }

    /// Exchanges that ended with an endpoint as their last.
    pub(crate) fn exchanges_of(&self, id: LabelId) -> u64 {
        self.blocks_of(id).map(|block| block.exchanges.value()).sum()
    }

    /// What each worker counts of an endpoint.
    fn blocks_of(&self, id: LabelId) -> impl Iterator<Item = &EndpointBlock> {
        let group = id.slot / ENDPOINTS_PER_BLOCK;
        self.workers.iter().filter_map(move |worker| worker.endpoints.get(&group)?.read(id))
    }

    /// Counts of the workers for each slot of a route table.
    pub(crate) fn counted(&self, table: LabelId) -> Vec<u64> {
        let mut counts = Vec::new();
        for worker in &self.workers {
            for (&(_, group), block) in worker.rules.range((table, 0)..=(table, u32::MAX)) {
                for (slot, count) in block.taken(group) {
                    add_at(&mut counts, slot, count);
                }
            }
        }
        counts
    }

    /// What [`Readings::begun`] has to say of a table whose rules were those `before`.
    pub(crate) fn begin(
        &self,
        table: LabelId,
        before: &RouteNames,
        now: &RouteNames,
    ) -> BTreeMap<u32, u64> {
        let known: BTreeSet<u32> = before.counted().map(|it| it.slot).collect();
        let counted = self.counted(table);
        let begun = self.begun.get(&table);
        let slots = now.counted().map(|it| it.slot);
        let slots = slots.map(|slot| match known.contains(&slot) {
            true => (slot, begun.and_then(|begun| begun.get(&slot)).copied().unwrap_or_default()),
            false => (slot, at(&counted, slot)),
        });
        slots.filter(|(_, count)| *count > 0).collect()
    }

    /// How many exchanges each rule of a route table, and each of its weighted clusters, has taken, by slots.
    pub(crate) fn taken(&self, table: LabelId) -> Vec<u64> {
        let mut counts = self.counted(table);
        for (slot, begun) in self.begun.get(&table).into_iter().flatten() {
            let count = usize::try_from(*slot).ok().and_then(|slot| counts.get_mut(slot));
            if let Some(count) = count {
                *count = count.saturating_sub(*begun);
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
            loops: &self.loops,
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
        let rules = self.names.routes().map(|(_, route)| route.counters()).sum::<usize>();
        let are_few = rules <= RULES_MAX;
        let mut tables = BTreeSet::new();
        if are_few {
            tables.extend(self.names.routes().map(|(id, _)| id));
        }
        for (index, worker) in self.workers.iter().enumerate() {
            let block: &WorkerBlock = &worker.worker;
            view.workers.push((index.to_string(), block));
            for (id, block) in &worker.listeners {
                if let Some(name) = self.listener_name(*id) {
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
            let taken = self.taken(id);
            for Counted { slot, rule, cluster } in route.counted() {
                let count = at(&taken, slot);
                if count > 0 || are_few {
                    let (route, cluster) = (&*route.name, cluster.map(|name| &**name));
                    view.rules.push(RuleReading { route, rule, cluster, count });
                }
            }
        }
        view.rules.sort_by_key(|it| it.route);
        view
    }
}

/// The count of a slot.
fn at(counts: &[u64], slot: u32) -> u64 {
    let slot = usize::try_from(slot).ok();
    slot.and_then(|slot| counts.get(slot)).copied().unwrap_or_default()
}

pub(crate) fn add_at(counts: &mut Vec<u64>, slot: usize, count: u64) {
    if counts.len() <= slot {
        counts.resize(slot + 1, 0);
    }
    if let Some(total) = counts.get_mut(slot) {
        *total += count;
    }
}
