//! What other sources deliver, to the next snapshot.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::batch::{Batch, BatchResult, FileParts};
use super::noted::Noted;
use super::{Loader, Prepared};
use crate::delivered::{
    self, Changed, Content, Delivered, NamesChanged, Unbound, Update, Verdict, Waits,
};
use crate::findings::Finding;
use crate::ids::TakenIds;
use crate::map::Map;
use crate::origins::{ResourceKind, ResourceName};
use crate::outside::Outside;
use crate::resource::runtime::build::Values;
use crate::sections::Parts;
use crate::snapshot::{Cluster, Listener, ListenerId};

/// What became of resources that a source has delivered.
#[derive(Debug)]
pub struct PreparedUpdates<F> {
    /// The next snapshot, if anything in it differs.
    pub prepared: Option<Prepared<F>>,
    /// What was delivered, of each resource what was said last.
    pub updates: Vec<Update>,
    /// Of each of these, in the same order.
    pub verdicts: Vec<Verdict>,
    /// Of others, with their sources: those that were accepted before and turn out to be wrong together with what came,
    /// or to be right again.
    pub late: Vec<(Arc<str>, Verdict)>,
    /// What other sources may have and something names, as far as that is not what it was.
    pub wanted: NamesChanged,
    /// What listeners and clusters wait for that are new or others, which may be nothing.
    pub waits: Vec<Waits>,
    /// What looks like a mistake in resources of which the snapshot stays as it is, such as a certificate that is to be used
    /// later.
    pub warnings: Vec<Finding>,
}

/// What changes of the resources of other sources when the file is loaded.
#[derive(Debug, Default)]
pub(super) struct Relinked {
    pub(super) changed: Changed,
    pub(super) late: Vec<(Arc<str>, Verdict)>,
}

impl<F> Loader<F> {
    /// From now on resources may come from other sources, so that rules and listeners may name clusters that are not
    /// there.
    pub fn expect_sources(&mut self) {
        self.delivered.get_or_insert_default();
    }

    /// From now on a source is asked for clusters once a request needs them.
    pub const fn expect_demands(&mut self) {
        self.store.is_on_demand = true;
    }

    /// Names the sources in the order in which they go before each other: of two that deliver a resource of the same kind
    /// and name, the one that stands before has it, whichever came first. One that is not named goes behind these.
    pub fn order_sources(&mut self, order: Vec<Arc<str>>) {
        self.delivered.get_or_insert_default().set_order(order);
    }

    /// Until a text is kept, loads texts without these versions of other sources' resources, beside those that were left
    /// out before: the system does not let this process have them.
    pub fn leave_out(&mut self, unbound: Vec<Unbound>) {
        self.left_out.extend(unbound);
    }

    /// What waits for something that it names, and for what, in the order of the names.
    pub fn waiting(&self) -> impl Iterator<Item = (&ResourceName, &[ResourceName])> {
        let delivered = self.delivered.iter();
        delivered.flat_map(|delivered| {
            delivered.waiting().iter().filter_map(|name| {
                let entry = delivered.find(name.kind, &name.name)?;
                Some((name, entry.waits_for.as_slice()))
            })
        })
    }

    /// The next snapshot after what `source` says of some resources, each of which is accepted or refused by itself:
    /// those in `unbound` are refused. Where the snapshot stays as it is, the loader has taken note of the rest;
    /// otherwise it does once that is kept. Costs as much as these resources, and those that name them.
    pub fn prepare_updates(
        &mut self,
        source: &Arc<str>,
        updates: Vec<Update>,
        unbound: &[Unbound],
        outside: &dyn Outside,
    ) -> PreparedUpdates<F> {
        let none = Delivered::default();
        let delivered = self.delivered.as_ref().unwrap_or(&none);
        let waiting = updates.len();
        let updates = delivered::last_of_each(updates);
        let room = delivered.check_room(source, &updates, waiting);
        let taken = self.store.draft().into_taken();
        let mut batch = Batch::new(self, delivered, unbound, outside, taken);
        let verdicts = batch.take(source, &updates, room);
        let done = batch.finish();
        self.prepare_done(done, updates, verdicts)
    }

    /// The next snapshot after these resources have waited long enough for the route configurations that they name.
    pub fn prepare_waited(
        &mut self,
        waited: &BTreeSet<ResourceName>,
        unbound: &[Unbound],
        outside: &dyn Outside,
    ) -> PreparedUpdates<F> {
        let none = Delivered::default();
        let delivered = self.delivered.as_ref().unwrap_or(&none);
        let taken = self.store.draft().into_taken();
        let mut batch = Batch::new(self, delivered, unbound, outside, taken);
        batch.end_waits(waited);
        let done = batch.finish();
        self.prepare_done(done, Vec::new(), Vec::new())
    }

    fn prepare_done(
        &mut self,
        done: BatchResult<F>,
        updates: Vec<Update>,
        verdicts: Vec<Verdict>,
    ) -> PreparedUpdates<F> {
        let BatchResult { changed, mut touched, taken, late, mut warnings } = done;
        touched.noted = self.noted_changes();
        let none = Delivered::default();
        let mut wanted = changed.names_changed(self.delivered.as_ref().unwrap_or(&none));
        wanted.retain(|name| self.depends_on_deliveries(name));
        let linked = self.store.link_changed(touched, taken);
        let waits = changed.waits();
        let prepared = match linked {
            Some(linked) => {
                let relinked = Relinked { changed, late: Vec::new() };
                let warnings = std::mem::take(&mut warnings);
                Some(Prepared { warnings, relinked, ..Prepared::of(linked) })
            }
            None => {
                if let Some(delivered) = &mut self.delivered {
                    delivered.apply(changed);
                }
                self.noted = Noted::default();
                None
            }
        };
        PreparedUpdates { prepared, updates, verdicts, late, wanted, waits, warnings }
    }

    /// The same once a text is loaded.
    pub(super) fn wanted_after(
        &self,
        parts: &Parts<F>,
        relinked: &Relinked,
        named_by_file: &BTreeSet<ResourceName>,
    ) -> BTreeSet<ResourceName> {
        let Some(delivered) = &self.delivered else { return BTreeSet::new() };
        let NamesChanged { new, gone } = relinked.changed.names_changed(delivered);
        let mut named: BTreeSet<_> = delivered.named().cloned().chain(new).collect();
        for name in &gone {
            named.remove(name);
        }
        named.retain(|it| !parts.origins.has(it.kind, &it.name));
        named.extend(named_by_file.iter().cloned());
        named
    }

    /// Whether what sources have delivered decides if a resource is wanted: not if the file has it, or names it.
    fn depends_on_deliveries(&self, name: &ResourceName) -> bool {
        let latest = self.store.latest();
        let is_in_file = latest.is_some_and(|it| it.origins.has(name.kind, &name.name));
        !is_in_file && !self.named_by_file.contains(name)
    }

    /// Adds what other sources have delivered to the sections of a file: all but what the file has as well, which is
    /// no longer theirs. Listeners that name tables of the file are lowered again.
    pub(super) fn add_delivered(
        &self,
        parts: &mut Parts<F>,
        taken: TakenIds,
        outside: &dyn Outside,
    ) -> (Relinked, TakenIds) {
        let Some(delivered) = &self.delivered else { return (Relinked::default(), taken) };
        let mut batch = Batch::new(self, delivered, &self.left_out, outside, taken);
        let tables = parts.route_tables.iter();
        batch.file = FileParts {
            origins: Some(&parts.origins),
            tables: Some(tables.map(|it| (&*it.name, it)).collect()),
        };
        batch.values = Values::new(&parts.source.runtime, batch.former.map(|it| &*it.runtime));
        batch.follow_file(&parts.source.runtime);
        let BatchResult { changed, touched, taken, late, .. } = batch.finish();
        let latest = self.store.latest();
        let changed_here = &changed;
        let kept = |kind| {
            delivered.iter(kind).filter_map(move |(name, _)| {
                changed_here.find(delivered, kind, name).map(|entry| (name, entry))
            })
        };
        let new: Map<&str, &Arc<Cluster>> =
            touched.clusters.iter().map(|cluster| (&*cluster.name, cluster)).collect();
        parts.clusters.extend(kept(ResourceKind::Cluster).filter_map(|(name, _)| {
            let former = || latest?.cluster(self.store.ids().cluster(name)?);
            new.get(&**name).copied().or_else(former).cloned()
        }));
        for (_, entry) in kept(ResourceKind::Route) {
            if let Content::Routes(config, _) = &entry.content {
                parts.route_tables.extend(config.virtual_hosts.iter().cloned());
            }
        }
        for removed in changed.removed_routes(delivered).values() {
            parts.route_tables.extend(removed.config.virtual_hosts.iter().cloned());
        }
        let new: Map<ListenerId, &Arc<Listener<F>>> =
            touched.listeners.iter().map(|listener| (listener.id, listener)).collect();
        parts.listeners.extend(kept(ResourceKind::Listener).filter_map(|(_, entry)| {
            let Content::Listener(_, Some(id)) = entry.content else { return None };
            let former = || latest?.listener(id).map(|(_, listener)| listener);
            new.get(&id).copied().or_else(former).cloned()
        }));
        parts.add_runtime();
        let relinked = Relinked { changed, late };
        (relinked, taken)
    }
}
