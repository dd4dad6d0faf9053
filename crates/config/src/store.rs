//! The accepted configuration, and the step from changed resources to the next snapshot.
//!
//! *Linking* gives ids, shares with the former snapshot whatever did not change, and lists what did. It
//! changes nothing in the store: a snapshot counts once it is kept, and until then the store is as if it had
//! not been asked. There are three ways in: all sections of the file ([`Store::link`]), resources that other sources
//! deliver ([`Store::link_changed`]), and the endpoints of some clusters ([`Store::link_assignments`]); the cost of the
//! latter two follows what changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::{Draft, Ids, TakenIds};
use crate::origins::{Origins, ResourceKind};
use crate::resource::Assignment;
use crate::resource::cluster::assigned::{Assigned, Choosing};
use crate::resource::cluster::drained::Drained;
use crate::resource::runtime::Runtime;
use crate::sections::Parts;
use crate::sections::names::Declared;
use crate::snapshot::{
    Changes, Cluster, ClusterId, EndpointId, Id, Listener, ListenerBounds, ListenerChain,
    ListenerId, Listeners, RouteTable, RouteTableId, Slots, Snapshot, TransportId,
};
use crate::text::shape::Shape;
use crate::text::unchanged::Former;

/// The latest snapshot, and the ids in it.
#[derive(Debug)]
pub(crate) struct Store<F> {
    ids: Ids,
    latest: Option<Arc<Snapshot<F>>>,
    /// The version before the first, if another process had one.
    version_before: u64,
    /// Whether a source is asked for clusters once a request needs them.
    pub(crate) is_on_demand: bool,
    /// The endpoints that operators drain.
    pub(crate) drained: Drained,
    /// What may stand in a file.
    shape: Arc<Shape>,
}

/// Clusters with the endpoints that they have now, and the names of those of which operators drain others.
#[derive(Debug, Default)]
pub(crate) struct EndpointChanges {
    pub(crate) assigned: Vec<(ClusterId, Arc<Assignment>)>,
    pub(crate) drained: Vec<Arc<str>>,
}

/// What changes of the resources of other sources, each made with the ids of a draft.
#[derive(Debug)]
pub(crate) struct Touched<F> {
    pub(crate) clusters: Vec<Arc<Cluster>>,
    pub(crate) clusters_gone: Vec<ClusterId>,
    /// Clusters whose endpoints are others, and nothing else of them.
    pub(crate) assigned: Vec<(ClusterId, Arc<Assignment>)>,
    /// What counts for clusters that are not among these.
    pub(crate) noted: EndpointChanges,
    pub(crate) tables: Vec<Arc<RouteTable>>,
    pub(crate) tables_gone: Vec<RouteTableId>,
    pub(crate) listeners: Vec<Arc<Listener<F>>>,
    pub(crate) listeners_gone: Vec<ListenerId>,
}

impl<F> Default for Touched<F> {
    fn default() -> Self {
        Self {
            clusters: Vec::new(),
            clusters_gone: Vec::new(),
            assigned: Vec::new(),
            noted: EndpointChanges::default(),
            tables: Vec::new(),
            tables_gone: Vec::new(),
            listeners: Vec::new(),
            listeners_gone: Vec::new(),
        }
    }
}

/// A snapshot that does not count yet: the successor of the store's latest one.
#[derive(Debug)]
pub(crate) struct Linked<F> {
    pub(crate) snapshot: Arc<Snapshot<F>>,
    taken: TakenIds,
    transports_gone: Vec<TransportId>,
}

impl<F> Linked<F> {
    /// Counts it as the successor of this version, unless something has seen it.
    pub(crate) fn continue_versions(&mut self, version: u64) {
        let Some(snapshot) = Arc::get_mut(&mut self.snapshot) else { return };
        let before = snapshot.version;
        snapshot.version = version.saturating_add(1);
        if let Some(origins) = Arc::get_mut(&mut snapshot.origins) {
            origins.renumber(before, snapshot.version);
        }
    }
}

impl<F> Store<F> {
    /// The first snapshot is the successor of this version.
    pub(crate) const fn continue_versions(&mut self, version: u64) {
        self.version_before = version;
    }

    /// A store before the first snapshot. `shape`: what may stand in a file.
    pub(crate) fn new(shape: Arc<Shape>) -> Self {
        let (ids, drained) = (Ids::default(), Drained::default());
        Self { ids, latest: None, version_before: 0, is_on_demand: false, drained, shape }
    }

    /// The latest snapshot, if there is one.
    pub(crate) const fn latest(&self) -> Option<&Arc<Snapshot<F>>> {
        self.latest.as_ref()
    }

    /// The ids in it.
    pub(crate) const fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Ids for the next snapshot.
    pub(crate) fn draft(&self) -> Draft<'_> {
        self.ids.draft()
    }

    /// What a load finds as it was.
    pub(crate) fn former<'a>(&'a self, clusters: &'a Declared) -> Former<'a, F> {
        Former { snapshot: self.latest.as_deref(), ids: &self.ids, clusters }
    }

    /// The next snapshot, of all sections of the file, which were made with the ids of a draft.
    pub(crate) fn link(
        &self,
        parts: Parts<F>,
        taken: TakenIds,
        noted: &EndpointChanges,
    ) -> Linked<F> {
        let former = self.latest.as_deref();
        let empty = (Slots::default(), Slots::default());
        let (mut route_tables, mut clusters) =
            former.map_or(empty, |it| (it.route_tables.clone(), it.clusters.clone()));
        let mut changes = Changes::default();
        let mut transports_gone = Vec::new();
        link_listeners(&parts.listeners, former, &mut changes);
        link_route_tables(&parts.route_tables, &mut route_tables, &mut changes);
        link_clusters(&parts.clusters, &mut clusters, &mut changes, &mut transports_gone);
        let mut draft = Draft::resume(&self.ids, taken);
        self.change_others(noted, &mut draft, &mut clusters, &mut changes);
        let taken = draft.into_taken();
        let version = self.version_next();
        let origins = dated(
            parts.origins,
            version,
            &changes,
            (&parts.listeners, former),
            (&route_tables, &clusters),
        );
        let snapshot = Snapshot {
            version,
            clusters_on_demand: self.on_demand_after(&taken, &changes),
            startup: parts.startup,
            runtime: Arc::new(parts.runtime),
            origins: Arc::new(origins),
            listener_bounds: ListenerBounds::of(&parts.listeners, &parts.route_tables),
            listeners: parts.listeners.into_iter().collect(),
            route_tables,
            clusters,
            resolvers: parts.resolvers,
            limits: parts.limits,
            access_log: parts.access_log,
            protocols: parts.protocols,
            metrics: parts.metrics,
            rebalance: parts.rebalance,
            locality: parts.locality,
            source: parts.source,
            shape: Arc::clone(&self.shape),
            changes,
        };
        Linked { snapshot: Arc::new(snapshot), taken, transports_gone }
    }

    /// The next snapshot, in which these clusters have other endpoints, and other ones of those are drained; none if nothing
    /// differs. Clusters that the latest snapshot does not have are passed over.
    pub(crate) fn link_assignments(&self, changed: &EndpointChanges) -> Option<Linked<F>> {
        let former = self.latest.as_deref()?;
        let mut draft = self.draft();
        let mut clusters = former.clusters.clone();
        let mut changes = Changes::default();
        self.change_others(changed, &mut draft, &mut clusters, &mut changes);
        if changes == Changes::default() {
            return None;
        }
        let (taken, transports_gone) = (draft.into_taken(), Vec::new());
        let next = self.next(clusters, changes, &taken)?;
        Some(Linked { snapshot: Arc::new(next), taken, transports_gone })
    }

    /// Gives clusters other endpoints, and drains others of their endpoints, as far as they are those of the latest snapshot: what was
    /// lowered since knows of both.
    fn change_others(
        &self,
        changed: &EndpointChanges,
        draft: &mut Draft<'_>,
        clusters: &mut Slots<Arc<Cluster>>,
        changes: &mut Changes,
    ) {
        let latest = self.latest.as_deref();
        let is_latest = |cluster: &Arc<Cluster>| {
            let latest = latest.and_then(|latest| latest.cluster(cluster.id));
            latest.is_some_and(|latest| Arc::ptr_eq(latest, cluster))
        };
        // Of both, in one cluster, the second finds what the first has made.
        let mut changed_here = BTreeSet::new();
        for (id, assignment) in &changed.assigned {
            if clusters.find(id.0).is_some_and(is_latest) {
                changed_here.insert(*id);
                assign(*id, assignment, (&self.drained, &mut *draft), clusters, changes);
            }
        }
        for name in &changed.drained {
            let id = self.ids.cluster(name);
            let Some(before) = id.and_then(|id| clusters.find(id.0).cloned()) else { continue };
            if !is_latest(&before) && !changed_here.contains(&before.id) {
                continue;
            }
            if let Some(assigned) = Assigned::drained(&before, self.drained.of(name)) {
                changes.clusters_changed.push(before.id);
                let cluster = Arc::new(assigned.put_into(Cluster::clone(&before)));
                clusters.insert(before.id.0, cluster);
            }
        }
    }

    /// The next snapshot, with what is new, changed or gone of resources of other sources, or none if nothing differs.
    /// Costs as much as these.
    pub(crate) fn link_changed(&self, touched: Touched<F>, taken: TakenIds) -> Option<Linked<F>> {
        let former = self.latest.as_deref()?;
        let mut changes = Changes::default();
        let mut transports_gone = Vec::new();
        let mut clusters = former.clusters.clone();
        for cluster in &touched.clusters {
            put_cluster(cluster, &mut clusters, &mut changes, &mut transports_gone);
        }
        for cluster in touched.clusters_gone.iter().filter_map(|id| former.cluster(*id)) {
            remove_cluster(cluster, &mut clusters, &mut changes, &mut transports_gone);
        }
        let mut draft = Draft::resume(&self.ids, taken);
        for (id, assignment) in &touched.assigned {
            assign(*id, assignment, (&self.drained, &mut draft), &mut clusters, &mut changes);
        }
        self.change_others(&touched.noted, &mut draft, &mut clusters, &mut changes);
        let taken = draft.into_taken();
        let mut tables = former.route_tables.clone();
        for table in &touched.tables {
            put_table(table, &mut tables, &mut changes);
        }
        for table in touched.tables_gone.iter().filter_map(|id| former.route_table(*id)) {
            remove_table(table, &mut tables, &mut changes);
        }
        let listeners = put_listeners(&touched, former, &mut changes);
        if changes == Changes::default() {
            return None;
        }
        let mut next = self.next(clusters, changes, &taken)?;
        next.listener_bounds.widen(ListenerBounds::of(&touched.listeners, &touched.tables));
        next.listeners = listeners;
        let asks = |table: &Arc<RouteTable>| !table.runtime.is_empty();
        let now = touched.tables.iter();
        let ids = now.clone().map(|table| &table.id).chain(&touched.tables_gone);
        if ids.filter_map(|id| former.route_table(*id)).chain(now).any(asks) {
            let used = tables.iter().flat_map(|(_, table)| &*table.runtime);
            next.runtime = Arc::new(Runtime::new(used));
        }
        next.route_tables = tables;
        Some(Linked { snapshot: Arc::new(next), taken, transports_gone })
    }

    /// The latest snapshot with other clusters.
    fn next(
        &self,
        clusters: Slots<Arc<Cluster>>,
        changes: Changes,
        taken: &TakenIds,
    ) -> Option<Snapshot<F>> {
        let former = self.latest.as_deref()?;
        Some(Snapshot {
            version: self.version_next(),
            clusters_on_demand: self.on_demand_after(taken, &changes),
            startup: former.startup.clone(),
            runtime: Arc::clone(&former.runtime),
            listener_bounds: former.listener_bounds,
            listeners: former.listeners.clone(),
            route_tables: former.route_tables.clone(),
            clusters,
            resolvers: former.resolvers.clone(),
            limits: former.limits,
            access_log: former.access_log.clone(),
            protocols: former.protocols.clone(),
            metrics: former.metrics,
            rebalance: former.rebalance,
            locality: former.locality,
            source: Arc::clone(&former.source),
            shape: Arc::clone(&former.shape),
            origins: Arc::clone(&former.origins),
            changes,
        })
    }

    /// The clusters that the next snapshot leads to, and that a source is asked for on demand.
    fn on_demand_after(&self, taken: &TakenIds, changes: &Changes) -> Slots<Arc<str>> {
        if !self.is_on_demand {
            return Slots::default();
        }
        self.ids.missing_after(taken, changes, self.latest.as_deref())
    }

    /// Makes what was linked last the latest snapshot.
    pub(crate) fn keep(&mut self, linked: Linked<F>) -> Arc<Snapshot<F>> {
        let Linked { snapshot, taken, transports_gone } = linked;
        self.ids.keep(taken, &snapshot, self.latest.as_deref(), &transports_gone);
        self.latest = Some(Arc::clone(&snapshot));
        snapshot
    }

    fn version_next(&self) -> u64 {
        let latest = self.latest.as_ref().map_or(self.version_before, |latest| latest.version);
        latest.saturating_add(1)
    }
}

/// Origins that say since when each resource is as it is: since its text, with every default, is another. Endpoints that come from
/// elsewhere, the content of files that it names, and hosts of a listener's route tables are not part of that.
fn dated<F>(
    mut origins: Origins,
    version: u64,
    changes: &Changes,
    (listeners, former): (&[Arc<Listener<F>>], Option<&Snapshot<F>>),
    (tables, clusters): (&Slots<Arc<RouteTable>>, &Slots<Arc<Cluster>>),
) -> Origins {
    let before = former.map(|former| &*former.origins);
    let ids = changes.clusters_added.iter().chain(&changes.clusters_changed);
    let names = ids.filter_map(|id| {
        let cluster = clusters.find(id.0)?;
        let former = former.and_then(|former| former.cluster(*id));
        let is_same = former.is_some_and(|former| former.source == cluster.source);
        (!is_same).then(|| (Arc::clone(&cluster.name), ()))
    });
    origins.date(ResourceKind::Cluster, version, before, &names.collect());
    let ids = changes.route_tables_added.iter().chain(&changes.route_tables_changed);
    let names = ids.filter_map(|id| {
        let table = tables.find(id.0)?;
        let former = former.and_then(|former| former.route_table(*id));
        let is_same = former.is_some_and(|former| former.source == table.source);
        (!is_same).then(|| (Arc::clone(&table.name), ()))
    });
    origins.date(ResourceKind::Route, version, before, &names.collect());
    let mut ids = Slots::default();
    let changed = changes.listeners_added.iter().chain(&changes.listeners_changed);
    changed.for_each(|id| ids.insert(id.0, ()));
    let names = listeners.iter().filter(|listener| ids.find(listener.id.0).is_some());
    let names = names.filter(|listener| {
        let former = former.and_then(|former| former.listener(listener.id));
        !former.is_some_and(|(_, former)| says_the_same(former, listener))
    });
    let names = names.map(|listener| (Arc::clone(&listener.name), ()));
    origins.date(ResourceKind::Listener, version, before, &names.collect());
    origins.date_files(version, before);
    origins
}

/// Whether the text of a listener is the same, with every default, and that of its chains. Filters and handlers have secrets that
/// the text shows masked.
fn says_the_same<F>(one: &Listener<F>, other: &Listener<F>) -> bool {
    let has_same_parts = |one: &Listener<F>, other: &Listener<F>| {
        one.filter_sources == other.filter_sources
            && one.handlers.sources().eq(other.handlers.sources())
    };
    let is_same_chain = |(one, other): (&ListenerChain<F>, &ListenerChain<F>)| {
        one.source == other.source && has_same_parts(&one.listener, &other.listener)
    };
    one.source == other.source
        && has_same_parts(one, other)
        && one.chains.len() == other.chains.len()
        && one.chains.iter().zip(&*other.chains).all(is_same_chain)
}

fn link_listeners<F>(
    listeners: &[Arc<Listener<F>>],
    former: Option<&Snapshot<F>>,
    changes: &mut Changes,
) {
    for listener in listeners {
        let before = former.and_then(|former| former.listener(listener.id));
        note_listener(listener, before.map(|(_, before)| before), changes);
    }
    let mut kept = Slots::default();
    listeners.iter().for_each(|listener| kept.insert(listener.id.0, ()));
    let before = former.iter().flat_map(|former| former.listeners.iter());
    for gone in before.filter(|before| kept.find(before.id.0).is_none()) {
        note_listener_gone(gone, changes);
    }
}

/// The next listeners. One may have been touched several times.
fn put_listeners<F>(
    touched: &Touched<F>,
    former: &Snapshot<F>,
    changes: &mut Changes,
) -> Listeners<F> {
    let mut listeners = former.listeners.clone();
    touched.listeners.iter().for_each(|listener| listeners.put(Arc::clone(listener)));
    touched.listeners_gone.iter().for_each(|id| listeners.remove(*id));
    let ids = touched.listeners.iter().map(|listener| listener.id);
    let ids: BTreeSet<ListenerId> = ids.chain(touched.listeners_gone.iter().copied()).collect();
    for id in ids {
        let before = former.listener(id).map(|(_, before)| before);
        match (listeners.find(id), before) {
            (Some((_, listener)), before) => note_listener(listener, before, changes),
            (None, Some(gone)) => note_listener_gone(gone, changes),
            (None, None) => {}
        }
    }
    listeners
}

/// Takes note of what a listener is for the version before, if there was one.
fn note_listener<F>(
    listener: &Arc<Listener<F>>,
    before: Option<&Arc<Listener<F>>>,
    changes: &mut Changes,
) {
    let (added, changed) = (&mut changes.listeners_added, &mut changes.listeners_changed);
    if note(listener.id, listener, before, added, changed)
        && let Some(before) = before
    {
        link_chains(listener, before, changes);
    }
}

fn note_listener_gone<F>(gone: &Listener<F>, changes: &mut Changes) {
    changes.listeners_removed.push(gone.id);
    changes.chains_removed.extend(gone.chains.iter().map(|chain| (gone.id, chain.id)));
}

/// What a newer version of a listener is for the connections of the former one.
fn link_chains<F>(listener: &Listener<F>, before: &Listener<F>, changes: &mut Changes) {
    let id = listener.id;
    for chain in before.chains.iter().filter(|chain| listener.chains.find(chain.id).is_none()) {
        changes.chains_removed.push((id, chain.id));
    }
    if !listener.admits_like(before) {
        changes.admissions_changed.push((id, None));
    }
    for chain in &listener.chains {
        let Some((_, before)) = before.chains.find(chain.id) else {
            changes.matches_added.push((id, chain.id));
            continue;
        };
        let matches_others = chain.matches != before.matches;
        if matches_others {
            changes.matches_added.push((id, chain.id));
        }
        if matches_others || !chain.listener.admits_like(&before.listener) {
            changes.admissions_changed.push((id, Some(chain.id)));
        }
    }
}

/// Puts these in the place of all tables that there are.
fn link_route_tables(
    tables: &[Arc<RouteTable>],
    slots: &mut Slots<Arc<RouteTable>>,
    changes: &mut Changes,
) {
    let gone = all_but(slots, tables.iter().map(|table| table.id.0));
    tables.iter().for_each(|table| put_table(table, slots, changes));
    gone.iter().for_each(|table| remove_table(table, slots, changes));
}

fn put_table(table: &Arc<RouteTable>, slots: &mut Slots<Arc<RouteTable>>, changes: &mut Changes) {
    let before = slots.find(table.id.0);
    let (added, changed) = (&mut changes.route_tables_added, &mut changes.route_tables_changed);
    if note(table.id, table, before, added, changed) {
        slots.insert(table.id.0, Arc::clone(table));
    }
}

fn remove_table(
    table: &Arc<RouteTable>,
    slots: &mut Slots<Arc<RouteTable>>,
    changes: &mut Changes,
) {
    slots.remove(table.id.0);
    changes.route_tables_removed.push(table.id);
}

/// Gives a cluster other endpoints, if it is there and they are others.
fn assign(
    id: ClusterId,
    assignment: &Assignment,
    (drained, draft): (&Drained, &mut Draft<'_>),
    clusters: &mut Slots<Arc<Cluster>>,
    changes: &mut Changes,
) {
    let Some(before) = clusters.find(id.0).cloned() else { return };
    let from = &before.endpoints_from;
    let choice = Choosing {
        balancer: before.balancer,
        selectors: before.selectors.as_ref(),
        localities: before.localities.as_ref(),
        transports: &before.transports,
        has_health: before.has_health(),
        bounds_connections: before.connections_per_endpoint_max.is_some(),
        drained: drained.of(&before.name),
    };
    let assigned = Assigned::new(assignment, from, choice, Some(&before), draft);
    if before.endpoints == assigned.endpoints && before.left_out == assigned.left_out {
        return;
    }
    let cluster = Arc::new(assigned.put_into(Cluster::clone(&before)));
    note_endpoints(&cluster, Some(&before), changes);
    changes.clusters_changed.push(id);
    clusters.insert(id.0, cluster);
}

/// Puts these in the place of all clusters that there are.
fn link_clusters(
    clusters: &[Arc<Cluster>],
    slots: &mut Slots<Arc<Cluster>>,
    changes: &mut Changes,
    transports_gone: &mut Vec<TransportId>,
) {
    let gone = all_but(slots, clusters.iter().map(|cluster| cluster.id.0));
    for cluster in clusters {
        put_cluster(cluster, slots, changes, transports_gone);
    }
    for cluster in gone {
        remove_cluster(&cluster, slots, changes, transports_gone);
    }
}

fn put_cluster(
    cluster: &Arc<Cluster>,
    slots: &mut Slots<Arc<Cluster>>,
    changes: &mut Changes,
    transports_gone: &mut Vec<TransportId>,
) {
    let before = slots.find(cluster.id.0).cloned();
    let before = before.as_ref();
    let (added, changed) = (&mut changes.clusters_added, &mut changes.clusters_changed);
    if !note(cluster.id, cluster, before, added, changed) {
        return;
    }
    if let Some(before) = before {
        let is_gone = |it: &TransportId| cluster.transports.all().all(|other| other.id != *it);
        transports_gone.extend(before.transports.all().map(|it| it.id).filter(is_gone));
    }
    note_endpoints(cluster, before, changes);
    slots.insert(cluster.id.0, Arc::clone(cluster));
}

fn remove_cluster(
    cluster: &Arc<Cluster>,
    slots: &mut Slots<Arc<Cluster>>,
    changes: &mut Changes,
    transports_gone: &mut Vec<TransportId>,
) {
    slots.remove(cluster.id.0);
    changes.clusters_removed.push(cluster.id);
    transports_gone.extend(cluster.transports.all().map(|transport| transport.id));
    changes.endpoints_removed.extend(cluster.endpoint_ids().map(|id| (cluster.id, id)));
}

/// What `slots` hold but for these.
fn all_but<T>(slots: &Slots<Arc<T>>, kept: impl Iterator<Item = Id>) -> Vec<Arc<T>> {
    let mut names = Slots::default();
    kept.for_each(|id| names.insert(id, ()));
    let gone = slots.iter().filter(|(id, _)| names.find(*id).is_none());
    gone.map(|(_, value)| Arc::clone(value)).collect()
}

/// Whether `now` is not what was `before`; then it is noted as new or as changed.
fn note<I, T>(
    id: I,
    now: &Arc<T>,
    before: Option<&Arc<T>>,
    added: &mut Vec<I>,
    changed: &mut Vec<I>,
) -> bool {
    match before {
        None => added.push(id),
        Some(before) if Arc::ptr_eq(before, now) => return false,
        Some(_) => changed.push(id),
    }
    true
}

/// Notes the endpoints that `cluster` has and `before` has not, the other way round, and those that both have and speak to in
/// another way.
fn note_endpoints(cluster: &Cluster, before: Option<&Arc<Cluster>>, changes: &mut Changes) {
    let sorted = |cluster: &Cluster| {
        let mut ids: Vec<EndpointId> = cluster.endpoint_ids().collect();
        ids.sort_unstable();
        ids
    };
    let former = before.map(|before| sorted(before)).unwrap_or_default();
    let now = sorted(cluster);
    let id = cluster.id;
    let added = cluster.endpoint_ids().filter(|it| former.binary_search(it).is_err());
    changes.endpoints_added.extend(added.map(|endpoint| (id, endpoint)));
    let removed = before.iter().flat_map(|before| before.endpoint_ids());
    let removed = removed.filter(|it| now.binary_search(it).is_err());
    changes.endpoints_removed.extend(removed.map(|endpoint| (id, endpoint)));
    if let Some(before) = before.filter(|before| may_speak_otherwise(before, cluster)) {
        let is_other = |it: &EndpointId| {
            let transports = before.transport_of(*it).zip(cluster.transport_of(*it));
            transports.is_some_and(|(before, now)| before.id != now.id)
        };
        let others = cluster.endpoint_ids().filter(is_other);
        changes.transports_changed.extend(others.map(|endpoint| (id, endpoint)));
    }
}

/// Whether any endpoint that stays may have another transport.
fn may_speak_otherwise(before: &Cluster, now: &Cluster) -> bool {
    let differ = before.transports.differ() || now.transports.differ();
    differ || before.transports.own().id != now.transports.own().id
}
