//! The control thread's end of the counters: holds the blocks of all workers and adds them up when
//! they are read.
//!
//! Reading takes nothing that a worker could wait for. Blocks are kept while their label has a
//! name: what a new configuration no longer names is forgotten with what it had counted, so that
//! memory follows the configuration and not its history.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::block::Announced;
use crate::counters::endpoint::EndpointTotals;
use crate::emitter::CounterSource;
use crate::events::{
    AccessLogWriteFailed, BreakersOfCluster, CertificateInUse, CheckCounted, ConfigAccepted,
    ConfigRejected, ConfigResources, ConfigTakenUp, ConnectionMoved, ControlTurned, DemandsEnded,
    EjectionCounted, HandoverEnded, HandoverFailed, HealthOfCluster, LabelId, MemoryBounded,
    SourceAnswered, SourceHeard, SourceResources, StateWrites,
};
use crate::former::FormerTotals;
use crate::loops::{LoopTotals, WorkerLoop};
use crate::metrics::config::ControlCounters;
use crate::metrics::exchange::{ROUTE_EXCHANGES, WEIGHTED_EXCHANGES};
use crate::names::{Counted, EndpointName, NameSets, Names};
use crate::readings::{Blocks, Readings, add_at};
use crate::totals::{ClusterTotals, ListenerTotals, SourceTotals};

/// Adds up what the workers count.
#[derive(Debug)]
pub struct Collector {
    /// Where the blocks of each worker come from.
    announced: Vec<rtrb::Consumer<Announced>>,
    readings: Readings,
    carried: CarriedTotals,
    /// What had left this process when a handover began.
    away_before: FormerTotals,
    /// How much the loops of this process had done when another one was last given its counters.
    given: Option<Arc<LoopTotals>>,
}

/// What other processes have counted, of which the readings have the sum.
#[derive(Debug, Default)]
struct CarriedTotals {
    /// The one whose place this one took, with those before it.
    before: Arc<FormerTotals>,
    /// Those to which this one had given its place, and which have ended.
    behind: FormerTotals,
    /// Those of them that gave it back and may still count, by the handover by which they did.
    returned: BTreeMap<u64, FormerTotals>,
    /// What was open, went to another process and ended with it.
    lost: FormerTotals,
    /// The one that has this one's place and does not run, for which this one stands in: it may run again.
    stopped: FormerTotals,
}

impl CarriedTotals {
    fn each(&mut self, change: impl Fn(&mut FormerTotals)) {
        let Self { before, behind, returned, lost, stopped } = self;
        let all = [Arc::make_mut(before), behind, lost, stopped].into_iter();
        all.chain(returned.values_mut()).for_each(change);
    }

    /// All of it, and what the process before this one does not know of that. Without what the one counts that is stopped, unless
    /// it `is_shown`: that one counts it.
    fn sum(&self, is_shown: bool) -> (Arc<FormerTotals>, Arc<FormerTotals>) {
        let Self { before, behind, returned, lost, stopped } = self;
        let others = [behind, lost].into_iter().chain(returned.values());
        let others = others.chain(is_shown.then_some(stopped));
        let others: Vec<_> = others.filter(|other| !other.is_empty()).collect();
        if others.is_empty() {
            // As in most processes: there is one of it.
            return (Arc::clone(before), Arc::default());
        }
        let mut sum = FormerTotals::default();
        others.into_iter().for_each(|other| sum.add(other));
        let behind = Arc::new(sum.clone());
        sum.add(before);
        (Arc::new(sum), behind)
    }
}

impl Collector {
    /// A collector without workers, for a program of this version.
    #[must_use]
    pub fn new(version: &'static str) -> Self {
        let readings = Readings {
            version,
            commit: "unknown",
            names: Arc::default(),
            replaced: Arc::default(),
            workers: Vec::new(),
            begun: Arc::default(),
            control: ControlCounters::default(),
            endpoints: Arc::default(),
            endpoints_left_out: 0,
            former: Arc::default(),
            behind: Arc::default(),
            loops: Arc::default(),
        };
        Self {
            announced: Vec::new(),
            readings,
            carried: CarriedTotals::default(),
            away_before: FormerTotals::default(),
            given: None,
        }
    }

    /// Names the commit that the program was built from.
    #[must_use]
    pub fn built_from(mut self, commit: &'static str) -> Self {
        self.readings.commit = commit;
        self
    }

    /// Adds a worker; its `worker` label is its place, from 0.
    pub fn add_worker(&mut self, source: CounterSource) {
        let CounterSource { worker, announced } = source;
        self.announced.push(announced);
        self.readings.workers.push(Arc::new(Blocks {
            worker,
            listeners: BTreeMap::new(),
            rules: BTreeMap::new(),
            clusters: BTreeMap::new(),
            endpoints: BTreeMap::new(),
        }));
    }

    /// Takes the names of a new snapshot, before the workers get it, and forgets what these no
    /// longer name.
    ///
    /// A rule, and a weighted cluster, keeps its count for as long as it keeps its slot. In a slot that was another's before, it
    /// begins at zero: no exchange names the slot for the other one any more.
    pub fn set_names(&mut self, names: Arc<Names>) {
        self.poll();
        let readings = &mut self.readings;
        let former = std::mem::replace(&mut readings.names, names);
        Arc::make_mut(&mut readings.replaced).update(&former, &readings.names);
        let changed: Vec<_> = readings.names.changed_routes(&former).collect();
        for (id, before, now) in &changed {
            let begun = readings.begin(*id, before, now);
            if begun.is_empty() && !readings.begun.contains_key(id) {
                continue;
            }
            Arc::make_mut(&mut readings.begun).insert(*id, begun);
        }
        if !readings.former.is_empty() {
            let gone = NameSets::gone(&former, &readings.names);
            if !(gone.is_empty() && changed.is_empty()) {
                // Shared no more: it is changed in its place.
                (readings.former, readings.behind) = Default::default();
                self.carried.each(|carried| {
                    carried.forget(&gone);
                    changed.iter().for_each(|(_, before, now)| carried.rename_rules(before, now));
                });
                self.add_up_carried();
            }
        }
        let readings = &mut self.readings;
        let (names, replaced) = (&readings.names, &readings.replaced);
        for blocks in readings.workers.iter_mut().map(Arc::make_mut) {
            let is_named = |id| names.listener(id).is_some() || replaced.name(id).is_some();
            blocks.listeners.retain(|id, _| is_named(*id));
            blocks.rules.retain(|(id, _), _| names.route(*id).is_some());
            blocks.clusters.retain(|id, _| names.cluster(*id).is_some());
        }
        if readings.begun.keys().any(|id| names.route(*id).is_none()) {
            Arc::make_mut(&mut readings.begun).retain(|id, _| names.route(*id).is_some());
        }
    }

    /// Fetches blocks that workers made. Every reading does that too; call it now and then if
    /// metrics are not read, so that the queue does not fill.
    pub fn poll(&mut self) {
        for (announced, blocks) in self.announced.iter_mut().zip(&mut self.readings.workers) {
            while let Ok(announced) = announced.pop() {
                Arc::make_mut(blocks).insert(announced);
            }
        }
    }

    /// What was counted until now.
    pub fn readings(&mut self) -> Readings {
        self.poll();
        let of_worker = |blocks: &Arc<Blocks>| WorkerLoop::of(&blocks.worker);
        let now = || {
            Arc::new(LoopTotals {
                workers: self.readings.workers.iter().map(of_worker).collect(),
                control_turns: self.readings.control.turns(),
            })
        };
        let loops = self.given.clone().unwrap_or_else(now);
        Readings { loops, ..self.readings.clone() }
    }

    /// The same for another process that takes this one's place. Until [`Self::keep_place`], what the loops of this process
    /// do from now on is not shown.
    pub fn readings_to_give(&mut self) -> Readings {
        self.given = None;
        let mut readings = self.readings();
        self.given = Some(Arc::clone(&readings.loops));
        if !self.carried.stopped.is_empty() {
            (readings.former, readings.behind) = self.carried.sum(false);
        }
        readings
    }

    /// No other process takes this one's place.
    pub fn keep_place(&mut self) {
        self.given = None;
    }

    /// See [`ConfigAccepted`].
    pub fn config_accepted(&mut self, event: &ConfigAccepted) {
        self.readings.control.config_accepted(event);
    }

    /// See [`ConfigTakenUp`].
    pub fn config_taken_up(&self, event: &ConfigTakenUp) {
        self.readings.control.config_taken_up(*event);
    }

    /// See [`MemoryBounded`].
    pub fn memory_bounded(&mut self, event: &MemoryBounded) {
        self.readings.control.memory_bounded(*event);
    }

    /// See [`ControlTurned`].
    pub fn control_turned(&self, event: &ControlTurned) {
        self.readings.control.control_turned(*event);
    }

    /// See [`ConfigRejected`].
    pub fn config_rejected(&mut self, event: &ConfigRejected) {
        self.readings.control.config_rejected(event);
    }

    /// Takes all certificates that are in use, in the place of those before.
    pub fn certificates_in_use(&mut self, certificates: Vec<CertificateInUse>) {
        self.readings.control.certificates_in_use(certificates);
    }

    /// See [`SourceHeard`].
    pub fn source_heard(&mut self, event: &SourceHeard) {
        self.readings.control.source_heard(event);
    }

    /// See [`SourceAnswered`].
    pub fn source_answered(&mut self, event: &SourceAnswered) {
        self.readings.control.source_answered(event);
    }

    /// See [`DemandsEnded`].
    pub fn demands_ended(&mut self, event: &DemandsEnded) {
        self.readings.control.demands_ended(event);
    }

    /// Takes how many requests wait for clusters on demand, in the place of that before.
    pub fn demands_waiting(&mut self, count: u64) {
        self.readings.control.demands_waiting = count;
    }

    /// Takes the states of all files and names of sources, in the place of those before.
    pub fn source_resources(&mut self, resources: Vec<SourceResources>) {
        self.readings.control.source_resources(resources);
    }

    /// What each source has said.
    #[must_use]
    pub fn source_totals(&self) -> Vec<SourceTotals> {
        self.readings.control.source_totals()
    }

    /// Takes how many resources are in each state, in the place of those before.
    pub fn config_resources(&mut self, resources: Vec<ConfigResources>) {
        self.readings.control.config_resources(resources);
    }

    /// See [`EjectionCounted`].
    pub fn ejection_counted(&mut self, event: EjectionCounted) {
        self.readings.control.health.counted(event);
    }

    /// See [`CheckCounted`].
    pub fn check_counted(&mut self, event: CheckCounted) {
        self.readings.control.health.check_counted(event);
    }

    /// Takes the states of all clusters that check or eject endpoints, in the place of those before. What was counted for
    /// others is forgotten.
    pub fn health_of_clusters(&mut self, clusters: Vec<HealthOfCluster>) {
        self.readings.control.health.set_clusters(clusters);
    }

    /// Takes what is left of the bounds of all clusters, in the place of what was before.
    pub fn breakers_of_clusters(&mut self, clusters: Vec<BreakersOfCluster>) {
        self.readings.control.breakers = clusters;
    }

    /// See [`ConnectionMoved`].
    pub fn connection_moved(&mut self, event: ConnectionMoved) {
        self.readings.control.connection_moved(event);
    }

    /// Takes how many handovers led to this process.
    pub fn set_generation(&mut self, generation: u64) {
        self.readings.control.set_generation(generation);
    }

    /// See [`HandoverEnded`].
    pub fn handover_ended(&mut self, event: &HandoverEnded) {
        self.readings.control.handover_ended(event);
    }

    /// See [`HandoverFailed`].
    pub fn handover_failed(&mut self, event: HandoverFailed) {
        self.readings.control.handover_failed(event);
    }

    /// See [`StateWrites`].
    pub const fn state_writes(&mut self, writes: StateWrites) {
        self.readings.control.state_writes(writes);
    }

    /// See [`AccessLogWriteFailed`].
    pub fn access_log_write_failed(&mut self, event: &AccessLogWriteFailed) {
        self.readings.control.access_log_write_failed(event);
    }

    /// Takes the endpoints that are reported from now on, and how many others there are.
    pub fn set_endpoints(&mut self, endpoints: Vec<EndpointName>, left_out: u64) {
        self.readings.endpoints = endpoints.into();
        self.readings.endpoints_left_out = left_out;
    }

    /// Goes on with what the process had counted whose place this one takes, as [`Readings::write_totals`] wrote it.
    /// Each time takes the place of the time before.
    pub fn set_former_totals(&mut self, totals: FormerTotals) {
        self.carried.before = Arc::new(self.known(totals));
        self.add_up_carried();
    }

    /// Adds what the process has counted by itself that gave this one's place back by the handover of this number, as
    /// [`Readings::write_own_totals`] wrote it. Each time takes the place of the time before.
    pub fn set_returned_totals(&mut self, handover: u64, totals: FormerTotals) {
        let totals = self.known(totals);
        self.carried.returned.insert(handover, totals);
        self.add_up_carried();
    }

    /// That process has ended, and counts no more.
    pub fn on_returned_ended(&mut self, handover: u64) {
        if let Some(returned) = self.carried.returned.remove(&handover) {
            self.carried.behind.add(&returned);
        }
    }

    /// The process that has this one's place is stopped, and this one stands in for it: what that had counted by itself, as
    /// [`Readings::write_own_totals`] wrote it, is shown, and not given to any other process. Nothing once it runs again.
    pub fn stand_in_for(&mut self, totals: FormerTotals) {
        self.carried.stopped = self.known_by_name(totals);
        self.add_up_carried();
    }

    /// The process that took this one's place, or was about to, has ended: adds what that had counted by itself, as
    /// [`Readings::write_own_totals`] wrote it.
    pub fn go_on_from(&mut self, totals: FormerTotals) {
        self.carried.stopped = FormerTotals::default();
        let totals = self.known_by_name(totals).all_ended();
        self.carried.behind.add(&totals);
        self.add_up_carried();
    }

    /// What another process had counted, without what it had that is not here.
    fn known_by_name(&self, totals: FormerTotals) -> FormerTotals {
        let mut totals = self.known(totals);
        totals.forget_others(&NameSets::of(&self.readings.names));
        totals.forget_unknown();
        totals
    }

    /// What another process had counted, without rules that are not here.
    fn known(&self, mut totals: FormerTotals) -> FormerTotals {
        self.readings.names.routes().for_each(|(_, route)| totals.rename_rules(route, route));
        totals
    }

    /// This process begins to give what it has to another one.
    pub fn begin_giving(&mut self) {
        self.poll();
        self.away_before = self.readings.away();
    }

    /// What this process gave since [`Collector::begin_giving`] and did not get back has ended with the other process: it is not
    /// open any more.
    pub fn lose_given(&mut self) {
        self.poll();
        let away = self.readings.away();
        let lost = away.left_since(&self.away_before);
        self.away_before = away;
        self.carried.lost.add(&lost);
        self.add_up_carried();
    }

    /// The processes before this one have ended, and with them what was open there and did not come here: it is not open any more.
    /// For a process that has given nothing away that still is.
    pub fn lose_former(&mut self) {
        self.poll();
        let lost = self.readings.former.not_in(&self.readings.away());
        self.carried.lost.add(&lost);
        // What these had that this one does not have is not counted any more.
        let names = NameSets::of(&self.readings.names);
        (self.readings.former, self.readings.behind) = Default::default();
        self.carried.each(|carried| carried.forget_others(&names));
        self.add_up_carried();
    }

    fn add_up_carried(&mut self) {
        (self.readings.former, self.readings.behind) = self.carried.sum(true);
    }

    /// The counts of a listener, with those of former processes. What one worker, or process, opened may have ended in
    /// another: all that began is added up before all that ended is taken off.
    pub fn listener_totals(&mut self, id: LabelId) -> ListenerTotals {
        self.poll();
        let former = self.readings.names.listener(id).map(|name| {
            let level = |family| self.readings.former.level(family, name);
            (level("strait_downstream_connections_active"), level("strait_exchanges_active"))
        });
        let ((mut opened, mut closed), (mut started, mut finished)) = former.unwrap_or_default();
        let name = self.readings.names.listener(id);
        let ids: Vec<_> = name
            .map(|name| self.readings.replaced.ids(name).chain([id]).collect())
            .unwrap_or_default();
        let blocks = self.readings.workers.iter();
        for block in blocks.flat_map(|worker| ids.iter().filter_map(|id| worker.listeners.get(id)))
        {
            closed += block.connections.closed.value();
            finished += block.exchanges.finished.value();
            opened += block.connections.opened.value();
            started += block.exchanges.started.value();
        }
        ListenerTotals {
            connections_active: opened.saturating_sub(closed),
            connections_total: opened,
            exchanges_active: started.saturating_sub(finished),
            exchanges_total: finished,
        }
    }

    /// The counts of a cluster, with those of former processes.
    pub fn cluster_totals(&mut self, id: LabelId) -> ClusterTotals {
        self.poll();
        let (mut totals, mut closed) = match self.readings.names.cluster(id) {
            Some(name) => self.readings.former.cluster_totals(name),
            None => Default::default(),
        };
        for block in self.readings.workers.iter().filter_map(|worker| worker.clusters.get(&id)) {
            closed += block.add_to(&mut totals);
        }
        totals.connections_active = totals.connections_total.saturating_sub(closed);
        totals
    }

    /// How many exchanges the rules of a route table, and their weighted clusters, have taken, by their slots. With those of
    /// former processes.
    pub fn route_totals(&mut self, id: LabelId) -> Vec<u64> {
        self.poll();
        let Some(route) = self.readings.names.route(id) else { return Vec::new() };
        let mut totals = self.readings.taken(id);
        let former = &self.readings.former;
        for Counted { slot, rule, cluster } in route.counted() {
            let count = match cluster {
                None => former.number(ROUTE_EXCHANGES, &[&route.name, rule]),
                Some(cluster) => former.number(WEIGHTED_EXCHANGES, &[&route.name, rule, cluster]),
            };
            if let Some(slot) = usize::try_from(slot).ok().filter(|_| count > 0) {
                add_at(&mut totals, slot, count);
            }
        }
        totals
    }

    /// How long each worker has been at work, ns, up to its last turn.
    #[must_use]
    pub fn busy(&self) -> Vec<u64> {
        self.readings.workers.iter().map(|worker| worker.worker.levels.busy()).collect()
    }

    /// What an endpoint has counted.
    pub fn endpoint_totals(&mut self, id: LabelId) -> EndpointTotals {
        self.poll();
        self.readings.totals_of(id)
    }

    /// How many exchanges ended with this endpoint as their last: one of its totals, at a small part of their cost.
    pub fn endpoint_exchanges(&mut self, id: LabelId) -> u64 {
        self.poll();
        self.readings.exchanges_of(id)
    }

    /// About how many bytes all workers hold for their load, from which the caller sees that load
    /// has fallen.
    #[must_use]
    pub fn bytes_held(&self) -> u64 {
        self.readings.workers.iter().map(|worker| worker.worker.levels.bytes_held()).sum()
    }
}

impl Blocks {
    fn insert(&mut self, announced: Announced) {
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
            Announced::Endpoints(group, block) => {
                self.endpoints.insert(group.slot, block);
            }
        }
    }
}
