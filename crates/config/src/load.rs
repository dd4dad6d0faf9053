//! Text after text to snapshot after snapshot.
//!
//! A load either gives a whole snapshot or all of the text's errors; after errors the loader is as
//! if it had not been asked. Parts of a snapshot that did not change are the former ones, shared,
//! so that a load costs memory for its changes only, and workers are told the difference.

use std::sync::Arc;

use crate::build::{self, Context, Declared, Files, Parts};
use crate::file;
use crate::filters::FilterKinds;
use crate::findings::{Errors, Finding, Findings, Path, Problem};
use crate::ids::Ids;
use crate::outside::{Memory, Outside};
use crate::schema::schema;
use crate::shape::{self, SchemaError, Shape};
use crate::snapshot::{
    ChainId, Changes, Cluster, ClusterId, EndpointId, Id, ListenerBounds, ListenerId, RouteTableId,
    Slots, Snapshot,
};
use crate::tree::{self, Site};

/// Makes snapshots from texts, one after the other.
#[derive(Debug)]
pub struct Loader<F> {
    kinds: FilterKinds<F>,
    shape: Shape,
    ids: Ids,
    former: Option<Arc<Snapshot<F>>>,
    warnings: Vec<Finding>,
}

/// A snapshot that does not count yet. It is the successor of the loader's latest one, so nothing
/// else may be kept in between.
#[derive(Debug)]
pub struct Prepared<F> {
    snapshot: Arc<Snapshot<F>>,
    warnings: Vec<Finding>,
    ids: Ids,
}

impl<F> Prepared<F> {
    /// It.
    #[must_use]
    pub const fn snapshot(&self) -> &Arc<Snapshot<F>> {
        &self.snapshot
    }

    /// What looks like a mistake in its text.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }
}

impl<F> Loader<F> {
    /// A loader that knows these filters.
    ///
    /// # Errors
    ///
    /// If the schema of a configuration is not one that this crate understands, which depends on
    /// nothing but the types in it.
    pub fn new(kinds: FilterKinds<F>) -> Result<Self, SchemaError> {
        let shape = Shape::new(&schema(&kinds), "")?;
        Ok(Self { kinds, shape, ids: Ids::default(), former: None, warnings: Vec::new() })
    }

    /// The next snapshot, from the text of a file that names no other files. `file` is only a name
    /// for reports.
    ///
    /// # Errors
    ///
    /// All mistakes of the text. The loader stays as it was.
    pub fn load(&mut self, file: &str, text: &str) -> Result<Arc<Snapshot<F>>, Errors> {
        self.load_with(file, text, &Memory::default())
    }

    /// The next snapshot, from the text of a file and those that it names.
    ///
    /// # Errors
    ///
    /// All mistakes of the text and in the files. The loader stays as it was.
    pub fn load_with(
        &mut self,
        file: &str,
        text: &str,
        outside: &dyn Outside,
    ) -> Result<Arc<Snapshot<F>>, Errors> {
        let prepared = self.prepare(file, text, outside)?;
        Ok(self.keep(prepared))
    }

    /// What [`Self::load_with`] would give, while the loader stays as it was: for who has to find out
    /// whether a snapshot can be taken up (whether its addresses can be bound) before it counts.
    ///
    /// # Errors
    ///
    /// All mistakes of the text and in the files that it names.
    pub fn prepare(
        &self,
        file: &str,
        text: &str,
        outside: &dyn Outside,
    ) -> Result<Prepared<F>, Errors> {
        let mut findings = Findings::new(file, text);
        let mut ids = self.ids.clone();
        let parts = self.parts(text, outside, &mut ids, &mut findings);
        let warnings = findings.into_result()?;
        let parts = parts.expect("what stops the reading is reported as an error");
        let changes = changes(&parts, self.former.as_deref(), &mut ids);
        let snapshot = Arc::new(self.snapshot(parts, changes));
        Ok(Prepared { snapshot, warnings, ids })
    }

    /// Makes what was prepared last the latest snapshot.
    pub fn keep(&mut self, prepared: Prepared<F>) -> Arc<Snapshot<F>> {
        let Prepared { snapshot, warnings, ids } = prepared;
        self.ids = ids;
        self.warnings = warnings;
        self.former = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// The latest snapshot, if there is one.
    #[must_use]
    pub const fn snapshot_latest(&self) -> Option<&Arc<Snapshot<F>>> {
        self.former.as_ref()
    }

    /// What the latest snapshot was made from in spite of looking like a mistake.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    fn parts(
        &self,
        text: &str,
        outside: &dyn Outside,
        ids: &mut Ids,
        findings: &mut Findings<'_>,
    ) -> Option<Parts<F>> {
        let mut root = tree::read(text, findings)?;
        let declared = (Declared::read(&root, "clusters"), Declared::read(&root, "routes"));
        if !shape::check(&mut root, &self.shape, Path::Root, findings) {
            return None;
        }
        let file: file::File = match tree::deserialize(&root) {
            Ok(file) => file,
            Err(mismatch) => {
                let at = mismatch.at.unwrap_or(root.at);
                let problem = Problem::new(mismatch.message, "see docs/configuration/reference.md");
                findings.error(at, Path::Root, "", problem);
                return None;
            }
        };
        let former = self.former.as_deref();
        let files = Files::new(outside, former);
        let mut context = Context { kinds: &self.kinds, former, files, ids, findings };
        let declared = (&declared.0, &declared.1);
        Some(build::parts(&file, &Site::root(&root), declared, &mut context))
    }

    fn snapshot(&self, parts: Parts<F>, changes: Changes) -> Snapshot<F> {
        let mut route_tables = Slots::default();
        for table in parts.route_tables {
            route_tables.insert(table.id.0, table);
        }
        let mut clusters = Slots::default();
        for cluster in parts.clusters {
            clusters.insert(cluster.id.0, cluster);
        }
        let mut listener_places = Slots::default();
        for (listener, place) in parts.listeners.iter().zip(0u32..) {
            listener_places.insert(listener.id.0, place);
        }
        Snapshot {
            version: self.former.as_ref().map_or(1, |former| former.version.saturating_add(1)),
            startup: parts.startup,
            listener_bounds: ListenerBounds::of(&parts.listeners),
            listeners: parts.listeners,
            listener_places,
            route_tables,
            clusters,
            limits: parts.limits,
            access_log: parts.access_log,
            changes,
        }
    }
}

/// What is new, what is other and what is gone. The latter is what nobody asked an id for.
fn changes<F>(parts: &Parts<F>, former: Option<&Snapshot<F>>, ids: &mut Ids) -> Changes {
    let mut changes = Changes::default();
    for listener in &parts.listeners {
        let before = former.and_then(|former| former.listener(listener.id));
        let before = before.map(|(_, before)| before);
        let (added, changed) = (&mut changes.listeners_added, &mut changes.listeners_changed);
        note(listener.id, listener, before, added, changed);
    }
    for table in &parts.route_tables {
        let before = former.and_then(|former| former.route_table(table.id));
        let (added, changed) = (&mut changes.route_tables_added, &mut changes.route_tables_changed);
        note(table.id, table, before, added, changed);
    }
    for cluster in &parts.clusters {
        let before = former.and_then(|former| former.cluster(cluster.id));
        note(
            cluster.id,
            cluster,
            before,
            &mut changes.clusters_added,
            &mut changes.clusters_changed,
        );
        if before.is_some_and(|before| before.transport != cluster.transport) {
            changes.transports_changed.push(cluster.id);
        }
        if !before.is_some_and(|before| Arc::ptr_eq(before, cluster)) {
            changes.endpoints_added.extend(endpoints_added(cluster, before));
        }
    }
    changes.listeners_removed =
        ids.listeners.sweep().into_iter().map(gone_id).map(ListenerId).collect();
    changes.chains_removed =
        ids.chains.sweep().into_iter().map(|((listener, _), id)| (listener, ChainId(id))).collect();
    changes.route_tables_removed =
        ids.route_tables.sweep().into_iter().map(gone_id).map(RouteTableId).collect();
    changes.clusters_removed =
        ids.clusters.sweep().into_iter().map(gone_id).map(ClusterId).collect();
    // Each stands in its cluster.
    ids.transports.sweep();
    changes.endpoints_removed = ids
        .endpoints
        .sweep()
        .into_iter()
        .map(|((cluster, ..), id)| (cluster, EndpointId(id)))
        .collect();
    changes
}

fn gone_id<K>((_, id): (K, Id)) -> Id {
    id
}

fn note<I, T>(
    id: I,
    now: &Arc<T>,
    before: Option<&Arc<T>>,
    added: &mut Vec<I>,
    changed: &mut Vec<I>,
) {
    match before {
        None => added.push(id),
        Some(before) if Arc::ptr_eq(before, now) => {}
        Some(_) => changed.push(id),
    }
}

/// The endpoints of `cluster` that were not in `before`.
fn endpoints_added(
    cluster: &Cluster,
    before: Option<&Arc<Cluster>>,
) -> Vec<(ClusterId, EndpointId)> {
    let mut known: Vec<EndpointId> =
        before.iter().flat_map(|before| before.endpoint_ids()).collect();
    known.sort_unstable();
    let is_new = |id: &EndpointId| known.binary_search(id).is_err();
    cluster.endpoint_ids().filter(is_new).map(|id| (cluster.id, id)).collect()
}
