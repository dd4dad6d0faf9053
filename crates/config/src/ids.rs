//! Ids that stay the same for as long as the named thing exists.
//!
//! A load takes new ids from a [`Draft`], which changes nothing; only a snapshot that is kept has its
//! ids taken from the [`Allocator`]s and those of what is gone given back. So a slot whose resource went
//! is free from the *next* load on, and within one snapshot no slot is both removed and added. Which id
//! a thing has is known by the snapshot that has the thing, and by [`Named`] for what others refer to.

use std::sync::Arc;

use crate::map::Map;
use crate::resource::cluster::breakers::Breakers;
use crate::snapshot::{
    ChainId, Changes, ClusterId, EndpointId, Id, ListenerId, RouteTableId, Slots, Snapshot,
    TransportId,
};

/// The slots of one kind of resource.
#[derive(Clone, Debug, Default)]
struct Allocator {
    /// How often each slot was given away before.
    generations: Vec<u32>,
    free: Vec<u32>,
}

/// What a draft takes of an allocator.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// Of `free`, from its end.
    free: usize,
    /// Beyond `generations`.
    new: usize,
}

impl Allocator {
    fn take(&self, taken: &mut Taken) -> Id {
        let left = self.free.len().checked_sub(taken.free + 1);
        if let Some(slot) = left.and_then(|left| self.free.get(left)) {
            taken.free += 1;
            let generation = self.generations.get(*slot as usize).copied().unwrap_or_default();
            return Id { slot: *slot, generation };
        }
        // A table of 2^32 resources does not fit into memory before.
        let slot = u32::try_from(self.generations.len() + taken.new).unwrap_or(u32::MAX);
        taken.new += 1;
        Id { slot, generation: 0 }
    }

    /// Makes what was taken count, and frees the slots of what is gone.
    fn keep(&mut self, taken: Taken, gone: impl Iterator<Item = Id>) {
        self.free.truncate(self.free.len().saturating_sub(taken.free));
        self.generations.resize(self.generations.len() + taken.new, 0);
        for id in gone {
            if let Some(generation) = self.generations.get_mut(id.slot as usize) {
                *generation = generation.wrapping_add(1);
                self.free.push(id.slot);
            }
        }
    }
}

/// The ids of all kinds of resources.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    listeners: Allocator,
    chains: Allocator,
    route_tables: Allocator,
    clusters: Allocator,
    endpoints: Allocator,
    transports: Allocator,
    /// The last serial of a cluster's TLS.
    cluster_tls: u64,
    named: Named,
}

/// The ids of what is referred to by name.
#[derive(Debug, Default)]
struct Named {
    route_tables: Map<Arc<str>, RouteTableId>,
    /// With those that are held.
    clusters: Map<Arc<str>, ClusterId>,
    /// Clusters that are named by rules or listeners and are not there: they will have these ids.
    held: Slots<Arc<str>>,
    /// What is in use of the bounds of those of them that were there: requests to them may still run.
    breakers: Map<ClusterId, Breakers>,
    /// How often rules, listeners and chains name each cluster.
    uses: Map<ClusterId, u32>,
}

/// What a draft took.
#[derive(Clone, Debug, Default)]
pub(crate) struct TakenIds {
    listeners: Taken,
    chains: Taken,
    route_tables: Taken,
    clusters: Taken,
    endpoints: Taken,
    transports: Taken,
    cluster_tls: u64,
    /// Of clusters that may not be there.
    held: Map<Arc<str>, ClusterId>,
    /// The names in `held`, in their order.
    held_in_order: Vec<Arc<str>>,
}

/// What a draft had taken at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    listeners: Taken,
    chains: Taken,
    route_tables: Taken,
    clusters: Taken,
    endpoints: Taken,
    transports: Taken,
    cluster_tls: u64,
    held: usize,
}

impl TakenIds {
    /// What is taken now.
    pub(crate) const fn mark(&self) -> Mark {
        Mark {
            listeners: self.listeners,
            chains: self.chains,
            route_tables: self.route_tables,
            clusters: self.clusters,
            endpoints: self.endpoints,
            transports: self.transports,
            cluster_tls: self.cluster_tls,
            held: self.held_in_order.len(),
        }
    }

    /// Gives back what was taken since: nothing has these ids.
    pub(crate) fn roll_back(&mut self, mark: Mark) {
        for name in self.held_in_order.drain(mark.held..) {
            self.held.remove(&name);
        }
        self.listeners = mark.listeners;
        self.chains = mark.chains;
        self.route_tables = mark.route_tables;
        self.clusters = mark.clusters;
        self.endpoints = mark.endpoints;
        self.transports = mark.transports;
        self.cluster_tls = mark.cluster_tls;
    }
}

/// Ids for a snapshot that does not count yet.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    ids: &'a Ids,
    taken: TakenIds,
}

impl Ids {
    /// Ids for the next snapshot. Drafts of the same ids take the same.
    pub(crate) fn draft(&self) -> Draft<'_> {
        let taken = TakenIds { cluster_tls: self.cluster_tls, ..TakenIds::default() };
        Draft { ids: self, taken }
    }

    /// The id of the cluster of this name, if the latest snapshot has it.
    pub(crate) fn cluster(&self, name: &str) -> Option<ClusterId> {
        self.named.clusters.get(name).copied()
    }

    /// The id of the route table of this name, if the latest snapshot has it.
    pub(crate) fn route_table(&self, name: &str) -> Option<RouteTableId> {
        self.named.route_tables.get(name).copied()
    }

    /// The names of clusters that are not there once these ids are taken and `changes` were made to `former`: those that rules
    /// and listeners lead to, and until the next snapshot those that were taken away.
    pub(crate) fn missing_after<F>(
        &self,
        taken: &TakenIds,
        changes: &Changes,
        former: Option<&Snapshot<F>>,
    ) -> Slots<Arc<str>> {
        let mut missing = self.named.held.clone();
        for (name, id) in &taken.held {
            missing.insert(id.0, Arc::clone(name));
        }
        let removed = changes.clusters_removed.iter();
        for cluster in removed.filter_map(|id| former?.cluster(*id)) {
            missing.insert(cluster.id.0, Arc::clone(&cluster.name));
        }
        changes.clusters_added.iter().for_each(|id| missing.remove(id.0));
        missing
    }

    /// Makes `now` the latest snapshot, which was made with these ids. `transports_gone` are those that
    /// `former` had and `now` has not.
    pub(crate) fn keep<F>(
        &mut self,
        taken: TakenIds,
        now: &Snapshot<F>,
        former: Option<&Snapshot<F>>,
        transports_gone: &[TransportId],
    ) {
        let Changes {
            listeners_removed,
            chains_removed,
            endpoints_removed,
            route_tables_removed,
            route_tables_added,
            clusters_added,
            ..
        } = &now.changes;
        self.listeners.keep(taken.listeners, listeners_removed.iter().map(|id| id.0));
        self.chains.keep(taken.chains, chains_removed.iter().map(|(_, id)| id.0));
        self.route_tables.keep(taken.route_tables, route_tables_removed.iter().map(|id| id.0));
        let unused = self.named.count_uses(now, former);
        let gone = self.named.hold(taken.held, unused, now, former);
        self.clusters.keep(taken.clusters, gone.into_iter().map(|id| id.0));
        self.endpoints.keep(taken.endpoints, endpoints_removed.iter().map(|(_, id)| id.0));
        self.transports.keep(taken.transports, transports_gone.iter().map(|id| id.0));
        self.cluster_tls = taken.cluster_tls;
        for table in route_tables_removed.iter().filter_map(|id| former?.route_table(*id)) {
            self.named.route_tables.remove(&table.name);
        }
        for cluster in clusters_added.iter().filter_map(|id| now.cluster(*id)) {
            self.named.clusters.insert(Arc::clone(&cluster.name), cluster.id);
        }
        for table in route_tables_added.iter().filter_map(|id| now.route_table(*id)) {
            self.named.route_tables.insert(Arc::clone(&table.name), table.id);
        }
    }
}

impl Named {
    /// Counts who names which cluster, after tables and listeners changed. Returns those that nothing names any more.
    fn count_uses<F>(&mut self, now: &Snapshot<F>, former: Option<&Snapshot<F>>) -> Vec<ClusterId> {
        let Changes {
            listeners_added,
            listeners_changed,
            listeners_removed,
            route_tables_added,
            route_tables_changed,
            route_tables_removed,
            ..
        } = &now.changes;
        let new: Vec<ClusterId> = uses_of(
            Some(now),
            [listeners_added, listeners_changed],
            [route_tables_added, route_tables_changed],
        )
        .collect();
        let gone: Vec<ClusterId> = uses_of(
            former,
            [listeners_changed, listeners_removed],
            [route_tables_changed, route_tables_removed],
        )
        .collect();
        // A changed table mostly names what it named before, in the same order: that counts as it did.
        let differing = |these: &[ClusterId], others: &[ClusterId]| {
            let others = others.iter().map(Some).chain(std::iter::repeat(None));
            let these = these.iter().zip(others).filter(|(id, other)| Some(*id) != *other);
            these.map(|(id, _)| *id).collect::<Vec<_>>()
        };
        for id in differing(&new, &gone) {
            *self.uses.entry(id).or_default() += 1;
        }
        let mut unused = Vec::new();
        for id in differing(&gone, &new) {
            let Some(count) = self.uses.get_mut(&id) else { continue };
            *count -= 1;
            if *count == 0 {
                self.uses.remove(&id);
                unused.push(id);
            }
        }
        unused
    }

    /// Holds the ids of clusters that are not there (any more) for as long as something names them. Returns those that
    /// nothing does. Looks at what was taken, came, went, or is `unused` now, and at nothing else.
    fn hold<F>(
        &mut self,
        taken: Map<Arc<str>, ClusterId>,
        unused: Vec<ClusterId>,
        now: &Snapshot<F>,
        former: Option<&Snapshot<F>>,
    ) -> Vec<ClusterId> {
        let Self { clusters, held, breakers, uses, .. } = self;
        let mut touched = unused;
        touched.extend(&now.changes.clusters_added);
        for (name, id) in taken {
            held.insert(id.0, name);
            touched.push(id);
        }
        let removed = now.changes.clusters_removed.iter();
        for cluster in removed.filter_map(|id| former?.cluster(*id)) {
            clusters.remove(&cluster.name);
            held.insert(cluster.id.0, Arc::clone(&cluster.name));
            breakers.insert(cluster.id, cluster.breakers.clone());
            touched.push(cluster.id);
        }
        let mut gone = Vec::new();
        for id in touched {
            let Some(name) = held.find(id.0) else { continue };
            if now.cluster(id).is_none() {
                if uses.contains_key(&id) {
                    clusters.insert(Arc::clone(name), id);
                    continue;
                }
                clusters.remove(name);
                gone.push(id);
            }
            held.remove(id.0);
            breakers.remove(&id);
        }
        gone
    }
}

/// The clusters that these listeners and tables name, as often as they do.
fn uses_of<'s, F>(
    snapshot: Option<&'s Snapshot<F>>,
    listeners: [&'s Vec<ListenerId>; 2],
    tables: [&'s Vec<RouteTableId>; 2],
) -> impl Iterator<Item = ClusterId> + 's {
    let tables = tables.into_iter().flatten();
    let tables = tables.filter_map(move |id| snapshot?.route_table(*id));
    let listeners = listeners.into_iter().flatten();
    let listeners = listeners.filter_map(move |id| Some(snapshot?.listener(*id)?.1));
    let of_tables = tables.flat_map(|table| table.clusters());
    of_tables.chain(listeners.flat_map(|listener| listener.clusters()))
}

impl<'a> Draft<'a> {
    /// Goes on where a draft of these ids ended.
    pub(crate) const fn resume(ids: &'a Ids, taken: TakenIds) -> Self {
        Self { ids, taken }
    }

    /// The id of a cluster that may not be there, and that it has once it is.
    pub(crate) fn hold(&mut self, name: &str) -> ClusterId {
        let known = self.ids.cluster(name).or_else(|| self.taken.held.get(name).copied());
        known.unwrap_or_else(|| {
            let id = ClusterId(self.ids.clusters.take(&mut self.taken.clusters));
            let name: Arc<str> = Arc::from(name);
            self.taken.held_in_order.push(Arc::clone(&name));
            self.taken.held.insert(name, id);
            id
        })
    }
}

impl Draft<'_> {
    /// The id of the cluster of this name, or a new one.
    pub(crate) fn cluster(&mut self, name: &str) -> ClusterId {
        let new = || ClusterId(self.ids.clusters.take(&mut self.taken.clusters));
        self.ids.cluster(name).unwrap_or_else(new)
    }

    /// What is in use of the bounds of a cluster with this id that was there before.
    pub(crate) fn breakers(&self, id: ClusterId) -> Option<&Breakers> {
        self.ids.named.breakers.get(&id)
    }

    /// The id of the route table of this name, or a new one.
    pub(crate) fn route_table(&mut self, name: &str) -> RouteTableId {
        let new = || RouteTableId(self.ids.route_tables.take(&mut self.taken.route_tables));
        self.ids.route_table(name).unwrap_or_else(new)
    }

    /// The id of a new listener.
    pub(crate) fn listener(&mut self) -> ListenerId {
        ListenerId(self.ids.listeners.take(&mut self.taken.listeners))
    }

    /// The id of a new chain.
    pub(crate) fn chain(&mut self) -> ChainId {
        ChainId(self.ids.chains.take(&mut self.taken.chains))
    }

    /// The id of a new endpoint.
    pub(crate) fn endpoint(&mut self) -> EndpointId {
        EndpointId(self.ids.endpoints.take(&mut self.taken.endpoints))
    }

    /// The id of a new transport.
    pub(crate) fn transport(&mut self) -> TransportId {
        TransportId(self.ids.transports.take(&mut self.taken.transports))
    }

    /// A number for how TLS is spoken with a cluster that no other has or had.
    pub(crate) const fn cluster_tls_serial(&mut self) -> u64 {
        self.taken.cluster_tls = self.taken.cluster_tls.wrapping_add(1);
        self.taken.cluster_tls
    }

    /// What was taken.
    pub(crate) fn into_taken(self) -> TakenIds {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_with_the_next_generation_but_not_in_the_same_round() {
        let mut allocator = Allocator::default();
        let mut taken = Taken::default();
        let a = allocator.take(&mut taken);
        let b = allocator.take(&mut taken);
        assert_eq!((a.slot, b.slot), (0, 1));
        allocator.keep(taken, std::iter::empty());
        let mut taken = Taken::default();
        let c = allocator.take(&mut taken);
        assert_eq!((c.slot, c.generation), (2, 0));
        allocator.keep(taken, [a, c].into_iter());
        let mut taken = Taken::default();
        let again = [(); 3].map(|()| allocator.take(&mut taken));
        let places = again.map(|id| (id.slot, id.generation));
        assert_eq!(places, [(2, 1), (0, 1), (3, 0)]);
    }

    #[test]
    fn what_a_draft_takes_and_does_not_keep_is_taken_again() {
        let mut allocator = Allocator::default();
        let mut taken = Taken::default();
        let ids = [(); 2].map(|()| allocator.take(&mut taken));
        allocator.keep(taken, std::iter::empty());
        allocator.keep(Taken::default(), ids.into_iter());
        let take = || {
            let mut taken = Taken::default();
            [(); 3].map(|()| allocator.take(&mut taken))
        };
        assert_eq!(take(), take());
    }
}
