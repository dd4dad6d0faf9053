//! Resources of other sources that are lowered together.
//!
//! They are lowered in the order in which they need each other: secrets, assignments, clusters, route configurations, listeners. Then
//! those that name what came, changed or went are lowered again. A resource that waits was lowered to find its mistakes,
//! and has no ids.

mod around;
mod lowering;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::around::Around;
use super::Loader;
use crate::delivered::{
    self, AskingRoutes, Changed, Content, Delivered, Entry, RemovedRoutes, Text, Unbound, Update,
    Verdict,
};
use crate::findings::{Errors, Finding, Findings, Problem};
use crate::ids::{Draft, Mark, TakenIds};
use crate::map::Map;
use crate::origins::{Origins, ResourceKind, ResourceName};
use crate::outside::Outside;
use crate::percent::Percent;
use crate::resource::assignment::answers::NameReads;
use crate::resource::assignment::delivered::{Assignments, User};
use crate::resource::assignment::files::{EndpointReader, EndpointReads};
use crate::resource::runtime::build::Values;
use crate::resource::{self, RouteConfig};
use crate::sections::context::Context;
use crate::sections::files::Files;
use crate::snapshot::{EndpointsFrom, ListenerId, RootsSource, RouteTable, Slots, Snapshot};
use crate::store::Touched;

/// Kinds in the order in which others need them.
const ORDER: [ResourceKind; 5] = [
    ResourceKind::Secret,
    ResourceKind::Assignment,
    ResourceKind::Cluster,
    ResourceKind::Route,
    ResourceKind::Listener,
];

/// What the file has.
pub(super) struct FileParts<'a> {
    pub(super) origins: Option<&'a Origins>,
    /// By name; none for those of the latest snapshot.
    pub(super) tables: Option<Map<&'a str, &'a Arc<RouteTable>>>,
}

/// Resources that are lowered together.
pub(super) struct Batch<'a, F> {
    loader: &'a Loader<F>,
    outside: &'a dyn Outside,
    pub(super) former: Option<&'a Snapshot<F>>,
    delivered: &'a Delivered,
    pub(super) file: FileParts<'a>,
    unbound: &'a [Unbound],
    pub(super) values: Values<'a>,
    changed: Changed,
    /// The route configurations that a source may say something of in it, with that; none for those that are gone.
    asked: BTreeMap<ResourceName, Option<DeliveredVersion>>,
    /// The clusters of which it says something with `http2` in it.
    asked_http2: Vec<(Arc<str>, Text)>,
    /// The route configurations that go in it, or are gone and others; and the tables that go of those that stay.
    removed_routes: Vec<(Arc<str>, RouteConfig, Option<AskingRoutes>)>,
    /// The ones that were gone and in use, and are there again or the file's.
    restored_routes: BTreeSet<Arc<str>>,
    /// Secrets and route configurations that are others for those that name them.
    moved: BTreeSet<ResourceName>,
    touched: Touched<F>,
    taken: TakenIds,
    /// Before the resource that was lowered last.
    mark: Mark,
    /// Whom the system trusts, once that is known.
    roots: Option<Arc<RootsSource>>,
    late: Vec<(Arc<str>, Verdict)>,
    warnings: Vec<Finding>,
}

/// What came of a batch.
pub(super) struct BatchResult<F> {
    pub(super) changed: Changed,
    pub(super) touched: Touched<F>,
    pub(super) taken: TakenIds,
    pub(super) late: Vec<(Arc<str>, Verdict)>,
    pub(super) warnings: Vec<Finding>,
}

/// A version of a resource.
#[derive(Clone)]
struct DeliveredVersion {
    kind: ResourceKind,
    name: Arc<str>,
    source: Arc<str>,
    version: Arc<str>,
    text: Text,
    has_waited: bool,
}

impl DeliveredVersion {
    /// What a source says; none if that is that the resource is gone.
    fn new(source: &Arc<str>, update: &Update) -> Option<Self> {
        Some(Self {
            kind: update.kind,
            name: Arc::clone(&update.name),
            source: Arc::clone(source),
            version: Arc::clone(&update.version),
            text: update.content.clone()?,
            has_waited: false,
        })
    }

    fn origin(&self) -> String {
        delivered::origin(&self.source, self.kind, &self.name, &self.version)
    }

    fn error(&self, problem: Problem) -> Errors {
        delivered::error(&self.origin(), problem)
    }

    fn entry(&self, content: Content, mut names: Vec<ResourceName>) -> Entry {
        names.sort_unstable();
        names.dedup();
        Entry {
            source: Arc::clone(&self.source),
            version: Arc::clone(&self.version),
            bytes: self.text.len() + self.version.len(),
            content,
            names: names.into(),
            waits_for: Vec::new(),
            missing: Vec::new(),
            has_waited: self.has_waited,
            is_refused: false,
        }
    }
}

/// Why a version is refused.
struct Refusal {
    errors: Errors,
    /// What it cannot serve without, and has waited for too long.
    missing: Vec<ResourceName>,
}

impl From<Errors> for Refusal {
    fn from(errors: Errors) -> Self {
        Self { errors, missing: Vec::new() }
    }
}

static NO_VALUES: BTreeMap<String, Percent> = BTreeMap::new();

impl<'a, F> Batch<'a, F> {
    pub(super) fn new(
        loader: &'a Loader<F>,
        delivered: &'a Delivered,
        unbound: &'a [Unbound],
        outside: &'a dyn Outside,
        taken: TakenIds,
    ) -> Self {
        let former = loader.store.latest().map(AsRef::as_ref);
        let values = former.map_or(&NO_VALUES, |former| &former.source.runtime);
        Self {
            loader,
            outside,
            former,
            delivered,
            file: FileParts { origins: former.map(|former| &*former.origins), tables: None },
            unbound,
            values: Values::new(values, former.map(|former| &*former.runtime)),
            changed: Changed::default(),
            asked: BTreeMap::new(),
            asked_http2: Vec::new(),
            removed_routes: Vec::new(),
            restored_routes: BTreeSet::new(),
            moved: BTreeSet::new(),
            touched: Touched::default(),
            mark: taken.mark(),
            taken,
            roots: None,
            late: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Takes what a source says, of each resource once, if there is room for it.
    pub(super) fn take(
        &mut self,
        source: &Arc<str>,
        updates: &[Update],
        room: Result<(), Problem>,
    ) -> Vec<Verdict> {
        let mut refused: Vec<Option<Errors>> = Vec::new();
        refused.resize_with(updates.len(), || None);
        if room.is_ok() {
            let routes = updates.iter().filter(|update| update.kind == ResourceKind::Route);
            let asked = routes.filter(|update| self.check_owner(source, update).is_ok());
            let asked = asked.map(|update| {
                let name = ResourceName::new(update.kind, &update.name);
                (name, DeliveredVersion::new(source, update))
            });
            self.asked = asked.collect();
            let clusters = updates.iter().filter(|update| update.kind == ResourceKind::Cluster);
            let http2 = clusters.filter_map(|update| {
                let text = update.content.clone().filter(|text| text.contains("http2"))?;
                Some((Arc::clone(&update.name), text))
            });
            self.asked_http2 = http2.collect();
        }
        for kind in ORDER {
            for (update, refused) in updates.iter().zip(&mut refused) {
                if update.kind == kind {
                    let taken = match &room {
                        Ok(()) => self.update(source, update).map_err(|it| it.errors),
                        Err(problem) => Err(update_error(source, update, problem.clone())),
                    };
                    *refused = taken.err();
                }
            }
            self.follow(kind);
        }
        let verdict = |(update, refused): (&Update, Option<Errors>)| {
            let found = self.changed.find(self.delivered, update.kind, &update.name);
            let waits_for =
                found.filter(|_| refused.is_none()).map(|entry| entry.waits_for.clone());
            Verdict {
                name: ResourceName::new(update.kind, &update.name),
                version: Arc::clone(&update.version),
                waits_for: waits_for.unwrap_or_default(),
                missing: Vec::new(),
                refused,
            }
        };
        updates.iter().zip(refused).map(verdict).collect()
    }

    /// Resources of these names wait no longer: they serve without route configurations and endpoints that are not there, and are
    /// refused without secrets.
    pub(super) fn end_waits(&mut self, waited: &BTreeSet<ResourceName>) {
        for name in waited {
            let Some(entry) = self.delivered.find(name.kind, &name.name) else { continue };
            if let Some(item) = item_of(name, entry) {
                self.lower_again(&DeliveredVersion { has_waited: true, ..item });
            }
        }
    }

    /// Lowers what depends on the file again, after what the file has now was put in its place.
    pub(super) fn follow_file(&mut self, values: &BTreeMap<String, Percent>) {
        let Some(origins) = self.file.origins else { return };
        for kind in ResourceKind::ALL {
            for (name, entry) in self.delivered.iter(kind) {
                let tables = match &entry.content {
                    Content::Routes(config, _) => &*config.virtual_hosts,
                    _ => &[],
                };
                let mut places =
                    tables.iter().filter_map(|it| origins.place(ResourceKind::Route, &it.name));
                if let Some(place) = origins.place(kind, name).or_else(|| places.next()) {
                    self.remove(kind, name);
                    let problem = delivered::file_goes_first(kind, &place);
                    self.displace(kind, name, entry, problem);
                }
            }
        }
        for (removed_name, removed) in self.delivered.removed_routes() {
            let mut tables = removed.config.virtual_hosts.iter().map(|table| &*table.name);
            let is_in_file = |name: &str| origins.has(ResourceKind::Route, name);
            if is_in_file(removed_name) || tables.any(is_in_file) {
                self.restored_routes.insert(Arc::clone(removed_name));
            }
        }
        let is_same = self.former.is_some_and(|former| former.source.runtime == *values);
        for (name, entry) in self.delivered.iter(ResourceKind::Route) {
            let name = ResourceName::new(ResourceKind::Route, name);
            if !is_same
                && !self.changed.has(name.kind, &name.name)
                && let Some(item) = item_of(&name, entry)
            {
                self.lower_again(&item);
            }
        }
        if !is_same {
            self.lower_removed_routes();
        }
        let tables = self.delivered.named().filter(|it| it.kind == ResourceKind::Route);
        let of_file = tables.filter(|it| self.delivered.find(it.kind, &it.name).is_none());
        let others =
            of_file.filter(|it| !self.leads_the_same(&it.name)).cloned().collect::<Vec<_>>();
        self.moved.extend(others);
        self.follow(ResourceKind::Listener);
    }

    /// Whether listeners find the same table of the file under this name as before, or none.
    fn leads_the_same(&self, name: &str) -> bool {
        let former = self.former.filter(|it| it.origins.has(ResourceKind::Route, name));
        let former =
            former.and_then(|it| it.route_table(self.loader.store.ids().route_table(name)?));
        let now = self.file.tables.as_ref().and_then(|tables| tables.get(name).copied());
        match (former, now) {
            (Some(former), Some(now)) => resource::leads_the_same(former, now),
            (None, None) => true,
            _ => false,
        }
    }

    /// Lowers route configurations again that are gone and in use: their rules ask for values that may be others.
    fn lower_removed_routes(&mut self) {
        for (name, removed) in self.delivered.removed_routes() {
            let Some(asks) = removed.asks.clone() else { continue };
            if self.restored_routes.contains(name) {
                continue;
            }
            let AskingRoutes { source, version, text } = asks.clone();
            let (kind, name) = (ResourceKind::Route, Arc::clone(name));
            let item = DeliveredVersion { kind, name, source, version, text, has_waited: false };
            let mut findings = Findings::new(&item.origin(), &item.text);
            let lowered = self.routes(&item, &mut findings);
            let is_wrong = findings.into_result().is_err();
            // It is as gone as it was.
            self.restored_routes.remove(&item.name);
            self.moved.remove(&ResourceName::new(item.kind, &item.name));
            if let Ok(Some(entry)) = lowered
                && let Content::Routes(config, _) = entry.content
                && !is_wrong
            {
                self.restored_routes.insert(Arc::clone(&item.name));
                self.removed_routes.push((item.name, config, Some(asks)));
            }
        }
    }

    /// Lowers resources of a kind again that name what is another now.
    fn follow(&mut self, kind: ResourceKind) {
        let users = self.moved.iter().flat_map(|moved| self.delivered.users(moved));
        let users: BTreeSet<ResourceName> = users.filter(|it| it.kind == kind).cloned().collect();
        for user in users {
            if self.changed.has(kind, &user.name) {
                continue;
            }
            let entry = self.delivered.find(kind, &user.name);
            if entry.is_some_and(|entry| self.is_assigned_to(&user, entry)) {
                continue;
            }
            if let Some(item) = entry.and_then(|entry| item_of(&user, entry)) {
                self.lower_again(&item);
            }
        }
    }

    /// Whether nothing that a cluster names is another but its endpoints: it serves, and is given these.
    fn is_assigned_to(&self, user: &ResourceName, entry: &Entry) -> bool {
        let mut moved = entry.names.iter().filter(|name| self.moved.contains(name));
        let is_there = |name: &ResourceName| {
            self.changed.find(self.delivered, name.kind, &name.name).is_some()
        };
        user.kind == ResourceKind::Cluster
            && entry.waits_for.is_empty()
            && entry.missing.is_empty()
            && moved.all(|name| name.kind == ResourceKind::Assignment && is_there(name))
    }

    /// Lowers a version that was accepted, since something is another that decides about it. Its source hears of a
    /// refusal, and of the end of one.
    fn lower_again(&mut self, item: &DeliveredVersion) {
        let refusal = self.lower(item).err();
        let Some(former) = self.delivered.find(item.kind, &item.name) else { return };
        if let Some(refusal) = &refusal {
            // The version that serves stays, and waits for nothing.
            let entry = Entry {
                waits_for: Vec::new(),
                missing: refusal.missing.clone(),
                is_refused: true,
                has_waited: item.has_waited,
                ..former.clone()
            };
            self.changed.insert(item.kind, &item.name, Some(entry));
        }
        let entry = self.changed.find(self.delivered, item.kind, &item.name);
        let (waits_for, missing) =
            entry.map(|it| (it.waits_for.clone(), it.missing.clone())).unwrap_or_default();
        // What is missing no longer, beside others that still are, is no news.
        let has_all_now = missing.is_empty() && !former.missing.is_empty();
        let lacks_more = missing.iter().any(|name| !former.missing.contains(name));
        if refusal.is_none() && !(former.is_refused || has_all_now || lacks_more) {
            return;
        }
        let (missing, refused) = match refusal {
            Some(Refusal { errors, missing }) => (missing, Some(errors)),
            None => (missing, None),
        };
        let (name, version) = (ResourceName::new(item.kind, &item.name), Arc::clone(&item.version));
        let verdict = Verdict { name, version, waits_for, missing, refused };
        self.late.push((Arc::clone(&item.source), verdict));
    }

    fn update(&mut self, source: &Arc<str>, update: &Update) -> Result<(), Refusal> {
        let found = self.delivered.find(update.kind, &update.name);
        if update.content.is_none() && found.is_none_or(|entry| *entry.source != **source) {
            // It says that it does not have it: what another source or the file has stays.
            return delivered::check_words(update)
                .map_err(|problem| update_error(source, update, problem).into());
        }
        let owner = self.check_owner(source, update);
        let displaced = owner.map_err(|problem| update_error(source, update, problem))?;
        let Some(item) = DeliveredVersion::new(source, update) else {
            let entry = self.delivered.find(update.kind, &update.name);
            match entry.map(|entry| (entry, &entry.content)) {
                Some((entry, Content::Routes(config, text))) => {
                    let name = ResourceName::new(update.kind, &update.name);
                    self.changed.insert(update.kind, &update.name, None);
                    let asks = text.clone().map(|text| AskingRoutes {
                        source: Arc::clone(&entry.source),
                        version: Arc::clone(&entry.version),
                        text,
                    });
                    self.removed_routes.push((Arc::clone(&update.name), config.clone(), asks));
                    self.moved.insert(name);
                }
                _ => self.remove(update.kind, &update.name),
            }
            return Ok(());
        };
        self.lower(&item)?;
        if let Some(displaced) = displaced {
            let problem = delivered::source_goes_first(update.kind, source, &update.version);
            self.displace(update.kind, &update.name, displaced, problem);
        }
        Ok(())
    }

    /// Whether a source may say something of a resource. Returns what another source has delivered under its name, if this one
    /// goes before it.
    fn check_owner(&self, source: &str, update: &Update) -> Result<Option<&'a Entry>, Problem> {
        let place = self.file.origins.and_then(|it| it.place(update.kind, &update.name));
        self.delivered.check_owner(source, update, place)
    }

    /// A resource is another's from now on: its source hears that.
    fn displace(&mut self, kind: ResourceKind, name: &str, entry: &Entry, problem: Problem) {
        let origin = delivered::origin(&entry.source, kind, name, &entry.version);
        let verdict = Verdict {
            name: ResourceName::new(kind, name),
            version: Arc::clone(&entry.version),
            waits_for: Vec::new(),
            missing: Vec::new(),
            refused: Some(delivered::error(&origin, problem)),
        };
        self.late.push((Arc::clone(&entry.source), verdict));
    }

    fn remove(&mut self, kind: ResourceKind, name: &Arc<str>) {
        let Some(former) = self.delivered.find(kind, name) else { return };
        match &former.content {
            Content::Cluster(_) => {
                self.touched.clusters_gone.extend(self.loader.store.ids().cluster(name));
            }
            Content::Listener(_, id) => self.touched.listeners_gone.extend(*id),
            Content::Routes(config, _) => {
                let ids = config.virtual_hosts.iter().map(|table| table.id);
                self.touched.tables_gone.extend(ids);
                self.moved.insert(ResourceName::new(kind, name));
            }
            Content::Assignment(_) | Content::Secret(_) => {
                self.moved.insert(ResourceName::new(kind, name));
            }
        }
        self.changed.insert(kind, name, None);
    }

    fn lower(&mut self, item: &DeliveredVersion) -> Result<(), Refusal> {
        let text = item.text.clone();
        let mut findings = Findings::new(&item.origin(), &text);
        let entry = match item.kind {
            ResourceKind::Secret => self.secret(item, &mut findings),
            ResourceKind::Assignment => self.assignment(item, &mut findings),
            ResourceKind::Cluster => self.cluster(item, &mut findings),
            ResourceKind::Route => self.routes(item, &mut findings),
            ResourceKind::Listener => self.listener(item, &mut findings),
        };
        self.warnings.extend(findings.into_result()?);
        let Some(entry) = entry? else { return Ok(()) };
        self.changed.insert(item.kind, &item.name, Some(entry));
        Ok(())
    }

    /// Whether the system lets this process have it, as far as that was tried.
    fn check_bound(&mut self, item: &DeliveredVersion, hint: &'static str) -> Result<(), Errors> {
        let is_it = |it: &&Unbound| it.name.kind == item.kind && *it.name.name == *item.name;
        let Some(unbound) = self.unbound.iter().find(is_it) else { return Ok(()) };
        self.taken.roll_back(self.mark);
        Err(item.error(Problem::new(unbound.reason.clone(), hint)))
    }

    /// Lowers with what there is around a resource; none if something is wrong, and then no id is taken.
    fn with_context<T>(
        &mut self,
        findings: &mut Findings<'_>,
        lower: impl FnOnce(&mut Context<'_, '_, F>, &mut Values<'_>, &Around<'_, F>) -> T,
    ) -> Option<T> {
        self.mark = self.taken.mark();
        let around = Around {
            former: self.former,
            ids: self.loader.store.ids(),
            delivered: self.delivered,
            changed: &self.changed,
            touched: &self.touched,
            file: &self.file,
        };
        let find_secret = |name: &str| around.secret(name);
        let find_assignment = |name: &str| around.assignment(name);
        let reader = EndpointReader { outside: self.outside, shape: &self.loader.list_shape };
        let mut context = Context {
            kinds: &self.loader.kinds,
            former: self.former,
            entries: &self.loader.entries,
            files: Files::of_secrets(self.outside, self.roots.as_ref(), &find_secret),
            endpoint_files: EndpointReads::new(reader, &self.loader.endpoint_files),
            names: NameReads::new(&self.loader.answers),
            assignments: Assignments::new(&find_assignment, User::Source),
            has_sources: true,
            sessions: &self.loader.sessions,
            drained: &self.loader.store.drained,
            ids: Draft::resume(self.loader.store.ids(), std::mem::take(&mut self.taken)),
            findings,
        };
        let lowered = lower(&mut context, &mut self.values, &around);
        let has_errors = context.findings.errors_len() > 0;
        self.taken = context.ids.into_taken();
        if has_errors {
            self.taken.roll_back(self.mark);
            return None;
        }
        Some(lowered)
    }

    /// Gives clusters that serve the endpoints that were assigned to them, unless they were lowered with these.
    fn assign(&mut self) {
        let (mut lowered, mut gone) = (Slots::default(), Slots::default());
        self.touched.clusters.iter().for_each(|cluster| lowered.insert(cluster.id.0, ()));
        self.touched.clusters_gone.iter().for_each(|id| gone.insert(id.0, ()));
        let assigned = self.moved.iter().filter(|it| it.kind == ResourceKind::Assignment);
        for name in assigned {
            let entry = self.changed.find(self.delivered, name.kind, &name.name);
            let assignment = entry.and_then(|entry| entry.content.assignment());
            let id = self.loader.store.ids().cluster(&name.name);
            let (Some(assignment), Some(id)) = (assignment, id) else { continue };
            let former = self.former.and_then(|former| former.cluster(id));
            if former.is_some_and(|it| it.endpoints_from == EndpointsFrom::Assignment)
                && lowered.find(id.0).is_none()
                && gone.find(id.0).is_none()
            {
                self.touched.assigned.push((id, Arc::clone(assignment)));
            }
        }
    }

    /// Takes note of which route configurations are gone and in use: listeners that name them wait for others, and serve as they
    /// did until they are others themselves.
    fn settle_removed_routes(&mut self) {
        let known = self.delivered.removed_routes();
        let has_others =
            !self.touched.listeners.is_empty() || !self.touched.listeners_gone.is_empty();
        let concerns_known = !known.is_empty() && (has_others || !self.restored_routes.is_empty());
        if self.removed_routes.is_empty() && !concerns_known {
            return;
        }
        let others: BTreeSet<ListenerId> = self.touched.listeners.iter().map(|it| it.id).collect();
        let gone: BTreeSet<ListenerId> = self.touched.listeners_gone.iter().copied().collect();
        let stays = |id: &ListenerId| !others.contains(id) && !gone.contains(id);
        let mut all = known.clone();
        all.retain(|name, _| !self.restored_routes.contains(name));
        for removed in all.values_mut() {
            removed.listeners.retain(stays);
        }
        let delivered = self.delivered;
        let listeners = delivered.iter(ResourceKind::Listener).map(|(_, entry)| entry);
        let refused: Vec<&Entry> = listeners.filter(|entry| entry.is_refused).collect();
        for (name, mut config, asks) in std::mem::take(&mut self.removed_routes) {
            let mut tables: BTreeSet<_> = config.virtual_hosts.iter().map(|it| it.id).collect();
            // Of versions before that one.
            let before = all.remove(&name).map(|it| it.config.virtual_hosts).unwrap_or_default();
            config.virtual_hosts.extend(before.into_iter().filter(|it| tables.insert(it.id)));
            let named = ResourceName::new(ResourceKind::Route, &name);
            // One that waits, or is refused, may serve a version that names other route configurations.
            let users = delivered.users(&named).chain(delivered.waiting());
            let users = users.filter(|user| user.kind == ResourceKind::Listener);
            let users = users.filter_map(|user| delivered.find(user.kind, &user.name));
            let ids =
                users.chain(refused.iter().copied()).filter_map(|entry| match entry.content {
                    Content::Listener(_, id) => id.filter(stays),
                    _ => None,
                });
            let uses_it = |id: &ListenerId| {
                let listener = self.former.and_then(|former| former.listener(*id));
                listener.is_some_and(|(_, it)| it.all_route_tables().any(|id| tables.contains(&id)))
            };
            let listeners = ids.filter(uses_it).collect();
            all.insert(name, RemovedRoutes { config, asks, listeners });
        }
        for (_, unused) in all.extract_if(.., |_, removed| removed.listeners.is_empty()) {
            let ids = unused.config.virtual_hosts.iter().map(|table| table.id);
            self.touched.tables_gone.extend(ids);
        }
        self.changed.set_removed_routes(all);
    }

    pub(super) fn finish(mut self) -> BatchResult<F> {
        self.settle_removed_routes();
        self.assign();
        let Self { changed, touched, taken, late, warnings, .. } = self;
        BatchResult { changed, touched, taken, late, warnings }
    }
}

/// What was accepted, if its text is kept.
fn item_of(name: &ResourceName, entry: &Entry) -> Option<DeliveredVersion> {
    let text = match &entry.content {
        Content::Cluster(text) | Content::Routes(_, text) => text.clone()?,
        Content::Listener(text, _) => text.clone(),
        Content::Assignment(_) | Content::Secret(_) => return None,
    };
    Some(DeliveredVersion {
        kind: name.kind,
        name: Arc::from(&*name.name),
        source: Arc::clone(&entry.source),
        version: Arc::clone(&entry.version),
        text,
        has_waited: entry.has_waited,
    })
}

fn update_error(source: &str, update: &Update, problem: Problem) -> Errors {
    delivered::error(
        &delivered::origin(source, update.kind, &update.name, &update.version),
        problem,
    )
}
