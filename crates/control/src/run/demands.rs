//! Clusters that sources are asked for once a request needs them.
//!
//! A request that needs one asks by its worker, and waits there within a bound. Here it is answered once workers have the
//! cluster, or once no source that is asked on demand has it. What was asked for is followed as long as something names it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use config::snapshot::{Slots, Snapshot};
use config::{NamesChanged, ResourceKind, ResourceName, Update, Verdict};
use telemetry::events::{DemandOutcome, DemandsEnded};

use super::Running;
use crate::clock;
use crate::workers::Workers;

/// Requests that wait for clusters, in the process. Each of more is answered at once, with 503.
const DEMANDS_WAITING_MAX: usize = 10_000;

/// What requests need, as far as it was asked for.
#[derive(Debug)]
pub(super) struct Demands<A> {
    /// The sources that are asked on demand.
    sources: BTreeSet<&'static str>,
    clusters: BTreeMap<Arc<str>, Demand>,
    /// The names of clusters that something leads to and workers do not have.
    missing: BTreeSet<Arc<str>>,
    /// Who waits for each of them.
    waiting: BTreeMap<Arc<str>, VecDeque<Waiting<A>>>,
    waiting_len: usize,
}

/// A cluster that was asked for.
#[derive(Debug, Default)]
struct Demand {
    /// Whether workers have it, once that was looked for.
    is_there: Option<bool>,
    /// The sources that do not have it, and why, as far as they said so.
    lacking: BTreeMap<&'static str, String>,
}

/// An exchange that waits.
#[derive(Debug)]
struct Waiting<A> {
    /// Monotonic time, ns.
    since: u64,
    worker: u32,
    asker: A,
}

/// An answer for an exchange: nothing once the cluster is there, and why not otherwise.
type Answer<A> = (Waiting<A>, Arc<[u8]>);

/// Why a request does not wait.
struct DemandEnd {
    outcome: DemandOutcome,
    answer: String,
}

impl DemandEnd {
    const FOUND: Self = Self { outcome: DemandOutcome::Found, answer: String::new() };
}

/// The answer of a request that goes on.
const GO_ON: &str = "";

impl<A> Demands<A> {
    /// `missing` are the clusters that the first snapshot leads to and that are not there.
    pub(super) fn new(sources: BTreeSet<&'static str>, missing: &Slots<Arc<str>>) -> Self {
        let missing = missing.iter().map(|(_, name)| Arc::clone(name)).collect();
        let (clusters, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self { sources, clusters, missing, waiting, waiting_len: 0 }
    }

    /// Of what is wanted, what sources that are asked on demand are to follow.
    pub(super) fn followed<'n>(
        &self,
        wanted: impl IntoIterator<Item = &'n ResourceName>,
    ) -> impl Iterator<Item = ResourceName> {
        let is_followed = |name: &&ResourceName| {
            name.kind != ResourceKind::Cluster || self.clusters.contains_key(&*name.name)
        };
        wanted.into_iter().filter(is_followed).cloned()
    }

    /// How many clusters were asked for, and how many exchanges wait.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.clusters.len(), self.waiting_len)
    }

    fn put(&mut self, name: &Arc<str>, waiting: Waiting<A>) {
        self.waiting.entry(Arc::clone(name)).or_default().push_back(waiting);
        self.waiting_len += 1;
    }

    fn take(&mut self, name: &str, answer: &str) -> Vec<Answer<A>> {
        let answer: Arc<[u8]> = answer.as_bytes().into();
        let waiting = self.waiting.remove(name).unwrap_or_default();
        self.waiting_len -= waiting.len();
        waiting.into_iter().map(|waiting| (waiting, Arc::clone(&answer))).collect()
    }

    /// Why no source has it, if all have said so.
    fn why_not(&self, demand: &Demand) -> Option<String> {
        if demand.is_there == Some(true) || demand.lacking.len() < self.sources.len() {
            return None;
        }
        Some(demand.lacking.values().cloned().collect::<Vec<_>>().join("; "))
    }

    /// A source said something of a cluster.
    fn on_verdict(
        &mut self,
        source: &'static str,
        is_gone: bool,
        verdict: &Verdict,
    ) -> Vec<Answer<A>> {
        let name: Arc<str> = Arc::from(&*verdict.name.name);
        let demand = self.clusters.entry(Arc::clone(&name)).or_default();
        let version = &verdict.version;
        match &verdict.refused {
            Some(_) => {
                let words = format!("version {version} of it by {source} is refused");
                demand.lacking.insert(source, words);
            }
            None if is_gone => {
                demand.lacking.insert(source, format!("{source} has no cluster {name}"));
            }
            None => drop(demand.lacking.remove(source)),
        }
        let why = self.clusters.get(&*name).and_then(|demand| self.why_not(demand));
        why.map(|why| self.take(&name, &why)).unwrap_or_default()
    }

    /// Workers have another snapshot.
    fn on_published<F>(&mut self, former: &Snapshot<F>, now: &Snapshot<F>) -> Vec<Answer<A>> {
        let (missing, found) = now.clusters_on_demand.unshared(&former.clusters_on_demand);
        for name in found {
            self.missing.remove(name);
        }
        self.missing.extend(missing.cloned());
        if self.clusters.is_empty() {
            return Vec::new();
        }
        let removed = now.changes.clusters_removed.iter();
        for cluster in removed.filter_map(|id| former.cluster(*id)) {
            if let Some(demand) = self.clusters.get_mut(&*cluster.name) {
                demand.is_there = Some(false);
            }
        }
        let mut answers = Vec::new();
        let added = now.changes.clusters_added.iter();
        for cluster in added.filter_map(|id| now.cluster(*id)) {
            if let Some(demand) = self.clusters.get_mut(&*cluster.name) {
                demand.is_there = Some(true);
                answers.extend(self.take(&cluster.name, GO_ON));
            }
        }
        answers
    }

    /// Forgets these, which nothing names any more.
    fn forget(&mut self, gone: &[ResourceName]) -> Vec<Answer<A>> {
        let mut answers = Vec::new();
        for name in gone.iter().filter(|name| name.kind == ResourceKind::Cluster) {
            self.clusters.remove(&*name.name);
            // The worker looks once more: the file may have it.
            answers.extend(self.take(&name.name, GO_ON));
        }
        answers
    }

    /// Forgets exchanges that have waited for longer than they do. Returns how many.
    fn expire(&mut self, now: u64, timeout: u64) -> usize {
        let before = self.waiting_len;
        if before == 0 {
            return 0;
        }
        let is_over = |it: &Waiting<A>| now.saturating_sub(it.since) > timeout;
        self.waiting.retain(|_, waiting| {
            while waiting.front().is_some_and(is_over) {
                waiting.pop_front();
                self.waiting_len -= 1;
            }
            !waiting.is_empty()
        });
        before - self.waiting_len
    }
}

impl<W: Workers> Running<W> {
    /// Has sources follow these from now on.
    pub(super) fn want(&mut self, wanted: &BTreeSet<ResourceName>) {
        let former = self.config.deliveries.wanted();
        let (new, gone) = (wanted.difference(former), former.difference(wanted));
        self.want_others(NamesChanged {
            new: new.cloned().collect(),
            gone: gone.cloned().collect(),
        });
    }

    /// Has sources follow others.
    pub(super) fn want_others(&mut self, names: NamesChanged) {
        let (new, gone) = (self.demands.followed(&names.new), self.demands.followed(&names.gone));
        let demanded = NamesChanged { new: new.collect(), gone: gone.collect() };
        let answers = self.demands.forget(&names.gone);
        self.config.deliveries.want(names, &demanded);
        self.answer_demands(answers);
    }

    /// An exchange needs a cluster that is not there.
    pub(super) fn on_demand(&mut self, worker: u32, asker: W::Asker, name: &[u8]) {
        let waiting = Waiting { since: clock::monotonic_ns(), worker, asker };
        let answer = match self.demand(&String::from_utf8_lossy(name)) {
            Ok(name) => return self.demands.put(&name, waiting),
            Err(DemandEnd { outcome, answer }) => {
                self.count_demands(outcome, 1);
                answer
            }
        };
        self.workers.answer(waiting.worker, waiting.asker, answer.into_bytes().into());
    }

    /// Has a cluster followed, and says what it is called.
    ///
    /// # Errors
    ///
    /// The answer, if there is one by now.
    fn demand(&mut self, name: &str) -> Result<Arc<str>, DemandEnd> {
        let missing = |answer| DemandEnd { outcome: DemandOutcome::Missing, answer };
        let resource = ResourceName::new(ResourceKind::Cluster, name);
        if !self.config.deliveries.wanted().contains(&resource) {
            if self.config.snapshot.is_in_file(&resource) {
                return Err(DemandEnd::FOUND);
            }
            return Err(missing(format!("nothing leads to the cluster {name} any more")));
        }
        let name: Arc<str> = name.into();
        let is_new = !self.demands.clusters.contains_key(&name);
        if is_new {
            tracing::info!("a request needs the cluster {name}: sources are asked for it");
            self.demands.clusters.insert(Arc::clone(&name), Demand::default());
            self.config.deliveries.follow(resource);
        }
        let Some(demand) = self.demands.clusters.get_mut(&name) else { return Ok(name) };
        let known_missing = &self.demands.missing;
        if *demand.is_there.get_or_insert_with(|| !known_missing.contains(&name)) {
            return Err(DemandEnd::FOUND);
        }
        let demand = self.demands.clusters.get(&name);
        if let Some(why) = demand.and_then(|demand| self.demands.why_not(demand)) {
            return Err(missing(why));
        }
        if self.demands.waiting_len >= DEMANDS_WAITING_MAX {
            let answer = format!("{DEMANDS_WAITING_MAX} requests wait for clusters");
            return Err(DemandEnd { outcome: DemandOutcome::Overflow, answer });
        }
        Ok(name)
    }

    /// A source got these verdicts about what it said.
    pub(super) fn note_demands(
        &mut self,
        source: &'static str,
        updates: &[Update],
        verdicts: &[Verdict],
    ) {
        if !self.demands.sources.contains(source) {
            return;
        }
        let is_gone = |update: Option<&Update>| update.is_some_and(|it| it.content.is_none());
        let mut updates = updates.iter();
        let mut answers = Vec::new();
        for verdict in verdicts {
            let is_gone = is_gone(updates.next());
            if verdict.name.kind != ResourceKind::Cluster {
                continue;
            }
            if !self.config.deliveries.wanted().contains(&verdict.name) {
                continue;
            }
            if !self.demands.clusters.contains_key(&*verdict.name.name) {
                self.config.deliveries.follow(verdict.name.clone());
            }
            answers.extend(self.demands.on_verdict(source, is_gone, verdict));
        }
        self.answer_demands(answers);
    }

    /// Workers have another snapshot than `former`.
    pub(super) fn meet_demands(&mut self, former: &Snapshot<W::Filter>) {
        let answers = self.demands.on_published(former, &self.config.snapshot);
        self.answer_demands(answers);
    }

    /// Forgets those that do not wait any more.
    pub(super) fn expire_demands(&mut self) {
        let timeout = self.config.snapshot.resolvers.on_demand_timeout;
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let expired = self.demands.expire(clock::monotonic_ns(), timeout);
        self.count_demands(DemandOutcome::Expired, expired);
        self.collector.demands_waiting(self.demands.waiting_len as u64);
    }

    fn answer_demands(&mut self, answers: Vec<Answer<W::Asker>>) {
        let found = answers.iter().filter(|(_, answer)| **answer == *GO_ON.as_bytes()).count();
        self.count_demands(DemandOutcome::Found, found);
        self.count_demands(DemandOutcome::Missing, answers.len() - found);
        for (Waiting { worker, asker, .. }, answer) in answers {
            self.workers.answer(worker, asker, answer);
        }
    }

    fn count_demands(&mut self, outcome: DemandOutcome, count: usize) {
        self.collector.demands_ended(&DemandsEnded { outcome, count: count as u64 });
    }
}
