//! Text after text to snapshot after snapshot.
//!
//! A load either gives a whole snapshot or all of the text's errors; after errors the loader is as
//! if it had not been asked. Parts of a snapshot that did not change are the former ones, shared,
//! so that a load costs memory for its changes only, and workers learn of the difference only.

mod batch;
mod deliveries;
mod noted;

use std::collections::BTreeSet;
use std::sync::Arc;

use tls::ProcessSessions;

pub use deliveries::PreparedUpdates;

use self::deliveries::Relinked;
use self::noted::Noted;
use crate::delivered::{Delivered, Shapes, Unbound, Verdict, Waits};
use crate::file::File;
use crate::findings::{Errors, Finding, Findings, Path, Problem};
use crate::ids::TakenIds;
use crate::origins::{ResourceKind, ResourceName};
use crate::outside::{Memory, Outside};
use crate::resource::assignment::answers::{Answers, NameReads, NameUsers};
use crate::resource::assignment::delivered::{Assignments, User};
use crate::resource::assignment::dns::DnsName;
use crate::resource::assignment::files::{
    Accepted, EndpointFiles, EndpointReader, EndpointReads, EndpointsOutcome, ListShape,
};
use crate::resource::cluster::subsets::Metadata;
use crate::resource::filter::FilterKinds;
use crate::resource::route::tunnels;
use crate::sections::context::Context;
use crate::sections::files::Files;
use crate::sections::names::Declared;
use crate::sections::{self, Parts};
use crate::snapshot::{Changes, ClusterId, ClusterProtocol, EndpointsFrom, Snapshot};
use crate::store::{Linked, Store};
use crate::text::include;
use crate::text::schema::compiled;
use crate::text::shape::{self, SchemaError, Shape};
use crate::text::tree::{self, Site};
use crate::text::unchanged::Entries;

/// What stands in a file without anything.
const EMPTY_HINT: &str =
    "begin with `listeners:`, `routes:` and `clusters:`; examples/ has files to start from";

/// Makes snapshots from texts, one after the other.
#[derive(Debug)]
pub struct Loader<F> {
    kinds: FilterKinds<F>,
    shape: Arc<Shape>,
    list_shape: ListShape,
    store: Store<F>,
    /// What is linked with the next snapshot, whatever that is made for.
    noted: Noted,
    endpoint_files: EndpointFiles,
    /// Of host names, whether the latest text has them or not.
    answers: Answers,
    /// The host names of the latest text.
    name_users: NameUsers,
    /// Those of the latest text.
    entries: Entries,
    shapes: Shapes,
    /// What other sources have delivered; none if there are no other sources.
    delivered: Option<Delivered>,
    /// The clusters that the latest text names and has not, and the assignments of those that it has.
    named_by_file: BTreeSet<ResourceName>,
    /// The clusters that rules of the latest text open tunnels to.
    tunnelled_by_file: BTreeSet<Box<str>>,
    /// What the next text is loaded without.
    left_out: Vec<Unbound>,
    warnings: Vec<Finding>,
    /// The process's own keys of session tickets.
    sessions: ProcessSessions,
}

/// A snapshot that does not count yet. It is the successor of the loader's latest one, so nothing
/// else may be kept in between.
#[derive(Debug)]
pub struct Prepared<F> {
    linked: Linked<F>,
    warnings: Vec<Finding>,
    /// Of the files of endpoints, if all of the text was read.
    endpoints_read: Vec<EndpointsOutcome>,
    files: FilesRead,
    /// The host names among endpoints, and who has them, if all of the text was read.
    names: Option<NameUsers>,
    unanswered: Vec<Arc<DnsName>>,
    /// The entries of the text, if it was read.
    entries: Option<Entries>,
    /// What changes of the resources of other sources.
    relinked: Relinked,
    /// The clusters that the text names and has not, if it was read.
    named_by_file: Option<BTreeSet<ResourceName>>,
    /// The clusters that its rules open tunnels to.
    tunnelled_by_file: BTreeSet<Box<str>>,
    wanted: BTreeSet<ResourceName>,
    clusters_lowered: usize,
}

/// The files of endpoints that a snapshot was made from.
#[derive(Debug)]
enum FilesRead {
    /// All that there are.
    All(EndpointFiles),
    /// Those that changed; the others are as they were.
    Changed(Vec<(Arc<str>, Accepted)>),
}

/// What became of files of endpoints that were read by themselves.
#[derive(Debug)]
pub struct PreparedEndpoints<F> {
    /// The next snapshot, if any cluster has other endpoints now.
    pub prepared: Option<Prepared<F>>,
    /// Of each file that was asked for and that the configuration names, in that order.
    pub outcomes: Vec<EndpointsOutcome>,
}

impl<F> Prepared<F> {
    /// Counts it as the successor of this version of another process. Only for one that nothing else has seen.
    pub fn continue_versions(&mut self, version: u64) {
        self.linked.continue_versions(version);
    }

    /// The snapshot, which does not count before it is kept.
    #[must_use]
    pub const fn snapshot(&self) -> &Arc<Snapshot<F>> {
        &self.linked.snapshot
    }

    /// What came of each file of endpoints that the text names, if the text was read.
    #[must_use]
    pub fn endpoints_read(&self) -> &[EndpointsOutcome] {
        &self.endpoints_read
    }

    /// The host names that have no answer yet, so that they stand for no endpoints.
    #[must_use]
    pub fn unanswered(&self) -> &[Arc<DnsName>] {
        &self.unanswered
    }

    /// The host names in it, if they may be others than before.
    pub fn names(&self) -> Option<impl Iterator<Item = &Arc<DnsName>>> {
        self.names.as_ref().map(|names| names.keys())
    }

    /// Says of all that is in the snapshot that it is new: for a process that begins with it, although the loader had others
    /// before. To be called before anything else has the snapshot.
    pub fn begin(&mut self) {
        let Some(snapshot) = Arc::get_mut(&mut self.linked.snapshot) else {
            debug_assert!(false, "something else has the snapshot");
            return;
        };
        let clusters = snapshot.clusters.iter();
        let endpoints = clusters.flat_map(|(_, cluster)| {
            cluster.endpoints.iter().map(|endpoint| (cluster.id, endpoint.id))
        });
        snapshot.changes = Changes {
            listeners_added: snapshot.listeners.iter().map(|it| it.id).collect(),
            clusters_added: snapshot.clusters.iter().map(|(_, it)| it.id).collect(),
            endpoints_added: endpoints.collect(),
            route_tables_added: snapshot.route_tables.iter().map(|(_, it)| it.id).collect(),
            ..Changes::default()
        };
    }

    /// How many clusters of the text were lowered. The others are those of the snapshot before: neither their entries nor what
    /// else decides about them changed.
    #[must_use]
    pub const fn clusters_lowered(&self) -> usize {
        self.clusters_lowered
    }

    /// What rules, listeners and clusters name and the text has not: other sources may have it.
    #[must_use]
    pub const fn wanted(&self) -> &BTreeSet<ResourceName> {
        &self.wanted
    }

    /// Resources of other sources that are refused together with what the text says now, with their sources.
    #[must_use]
    pub fn late(&self) -> &[(Arc<str>, Verdict)] {
        &self.relinked.late
    }

    /// What listeners and clusters of other sources wait for that are new or others, which may be nothing.
    #[must_use]
    pub fn waits(&self) -> Vec<Waits> {
        self.relinked.changed.waits()
    }

    /// Of the latest snapshot with some changes.
    fn of(linked: Linked<F>) -> Self {
        Self {
            linked,
            warnings: Vec::new(),
            endpoints_read: Vec::new(),
            files: FilesRead::Changed(Vec::new()),
            names: None,
            unanswered: Vec::new(),
            entries: None,
            relinked: Relinked::default(),
            named_by_file: None,
            tunnelled_by_file: BTreeSet::new(),
            wanted: BTreeSet::new(),
            clusters_lowered: 0,
        }
    }

    /// What looks like a mistake in what was read for it.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }
}

impl<F> Loader<F> {
    /// Counts snapshots from this version of another process on, whose place this one takes.
    pub const fn continue_versions(&mut self, version: u64) {
        self.store.continue_versions(version);
    }

    /// A loader that knows these filters.
    ///
    /// # Errors
    ///
    /// If the schema of a configuration is not one that this crate understands, which depends on
    /// nothing but the types in it.
    pub fn new(kinds: FilterKinds<F>) -> Result<Self, SchemaError> {
        let shape = Arc::new(Shape::new(&compiled(&kinds), "")?);
        Ok(Self {
            kinds,
            shapes: Shapes::new(Arc::clone(&shape)),
            list_shape: ListShape::new()?,
            store: Store::new(Arc::clone(&shape)),
            shape,
            noted: Noted::default(),
            endpoint_files: EndpointFiles::default(),
            answers: Answers::default(),
            name_users: NameUsers::default(),
            entries: Entries::default(),
            delivered: None,
            named_by_file: BTreeSet::new(),
            tunnelled_by_file: BTreeSet::new(),
            left_out: Vec::new(),
            warnings: Vec::new(),
            sessions: ProcessSessions::default(),
        })
    }

    /// What the process knows of its clients' sessions, with which its listeners resume them.
    #[must_use]
    pub const fn sessions(&self) -> &ProcessSessions {
        &self.sessions
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
        let lowered = self.lower(text, outside, &mut findings);
        let warnings = findings.into_result()?;
        let lowered = lowered.expect("what stops the reading is reported as an error");
        let Lowered { parts, taken, files, outcomes, names, entries, relinked, tunnelled } =
            lowered;
        let unanswered = names.keys().filter(|name| !self.answers.contains_key(*name));
        let mut unanswered: Vec<_> = unanswered.cloned().collect();
        unanswered.sort_unstable();
        let assigned =
            parts.clusters.iter().filter(|it| it.endpoints_from == EndpointsFrom::Assignment);
        let assigned = assigned.filter(|it| parts.origins.has(ResourceKind::Cluster, &it.name));
        let assigned = assigned.map(|it| ResourceName::new(ResourceKind::Assignment, &it.name));
        let named = parts.wanted.iter();
        let named = named.map(|name| ResourceName::new(ResourceKind::Cluster, name));
        let named = named.chain(assigned).collect();
        Ok(Prepared {
            wanted: self.wanted_after(&parts, &relinked, &named),
            named_by_file: Some(named),
            tunnelled_by_file: tunnelled,
            clusters_lowered: parts.clusters_lowered,
            linked: self.store.link(parts, taken, &self.noted_changes()),
            entries: Some(entries),
            warnings,
            endpoints_read: outcomes,
            files: FilesRead::All(files),
            names: Some(names),
            unanswered,
            relinked,
        })
    }

    /// The next snapshot after changes in these files of endpoints, which are named as the text names them, and what was noted
    /// beside. Nothing else is read, and the loader stays as it was. Costs as much as the files and the clusters that name them.
    pub fn prepare_endpoints(
        &self,
        files: &[Arc<str>],
        outside: &dyn Outside,
    ) -> PreparedEndpoints<F> {
        let reader = EndpointReader { outside, shape: &self.list_shape };
        let (mut outcomes, mut changed) = (Vec::new(), Vec::new());
        for file in files {
            let Some(former) = self.endpoint_files.get(file) else { continue };
            let allows_unix = |metadata: &Metadata| self.allow_unix(&former.users, metadata);
            let read = reader.read_again(file, former, &allows_unix);
            let (is_new, refused, refused_digest) = match read {
                Ok(accepted) => {
                    let is_new = accepted.is_some();
                    changed.extend(accepted.map(|accepted| (Arc::clone(file), accepted)));
                    (is_new, None, None)
                }
                Err((errors, digest)) => (false, Some(errors), digest),
            };
            let file = Arc::clone(file);
            outcomes.push(EndpointsOutcome { file, is_new, refused, refused_digest });
        }
        let assigned = changed.iter().flat_map(|(_, accepted)| {
            let users = accepted.users.iter();
            users.map(|user| (*user, Arc::clone(&accepted.assignment)))
        });
        let mut endpoints = self.noted_changes();
        endpoints.assigned.extend(assigned);
        let prepared = self.store.link_assignments(&endpoints).map(|linked| Prepared {
            warnings: changed.iter().flat_map(|(_, it)| it.warnings()).cloned().collect(),
            files: FilesRead::Changed(changed),
            ..Prepared::of(linked)
        });
        PreparedEndpoints { prepared, outcomes }
    }

    /// The files of endpoints that the latest text names, as it names them.
    pub fn endpoint_files(&self) -> impl Iterator<Item = &Arc<str>> {
        self.endpoint_files.keys()
    }

    /// Makes what was prepared last the latest snapshot.
    pub fn keep(&mut self, prepared: Prepared<F>) -> Arc<Snapshot<F>> {
        let Prepared { linked, warnings, files, names, entries, relinked, .. } = prepared;
        let (named_by_file, tunnelled) = (prepared.named_by_file, prepared.tunnelled_by_file);
        if let Some(entries) = entries {
            self.entries = entries;
            self.left_out.clear();
        }
        if let Some(known) = &mut self.delivered {
            known.apply(relinked.changed);
        }
        if let Some(named) = named_by_file {
            self.named_by_file = named;
            self.tunnelled_by_file = tunnelled;
        }
        if let Some(names) = names {
            self.name_users = names;
        }
        match files {
            FilesRead::All(files) => {
                self.endpoint_files = files;
                self.warnings = warnings;
            }
            FilesRead::Changed(changed) => self.endpoint_files.extend(changed),
        }
        self.noted = Noted::default();
        self.store.keep(linked)
    }

    /// The latest snapshot, if there is one.
    #[must_use]
    pub const fn snapshot_latest(&self) -> Option<&Arc<Snapshot<F>>> {
        self.store.latest()
    }

    /// What the latest snapshot was made from in spite of looking like a mistake.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    /// Whether a socket of the file system with this metadata is nothing wrong with any of these clusters.
    fn allow_unix(&self, clusters: &[ClusterId], metadata: &Metadata) -> bool {
        let mut clusters = clusters.iter().filter_map(|id| self.store.latest()?.cluster(*id));
        clusters.all(|cluster| cluster.transports.allow_unix(metadata))
    }

    fn lower(
        &self,
        text: &str,
        outside: &dyn Outside,
        findings: &mut Findings<'_>,
    ) -> Option<Lowered<F>> {
        let mut root = tree::read(text, EMPTY_HINT, findings)?;
        check_root(&root, findings)?;
        include::resolve(&mut root, outside, findings);
        tree::expand(&mut root, outside, Path::Root, findings);
        let declared = (Declared::read(&root, "clusters"), Declared::read(&root, "routes"));
        let former = self.store.former(&declared.0);
        let digests = self.entries.mark(&mut root, &former);
        findings.keep_warnings();
        if !shape::check(&mut root, &self.shape, Path::Root, findings) {
            return None;
        }
        let file = match former.read_file(&mut root) {
            Ok(file) => file,
            Err(mismatch) => {
                let at = mismatch.at.unwrap_or(root.at);
                let problem = Problem::new(mismatch.message, "see docs/configuration/reference.md");
                findings.error(at, Path::Root, "", problem);
                return None;
            }
        };
        let former = self.store.latest().map(AsRef::as_ref);
        let reader = EndpointReader { outside, shape: &self.list_shape };
        let find_assignment = |name: &str| self.delivered.as_ref()?.assignment(name);
        let mut context = Context {
            kinds: &self.kinds,
            former,
            entries: &self.entries,
            files: Files::new(outside, former),
            endpoint_files: EndpointReads::new(reader, &self.endpoint_files),
            names: NameReads::new(&self.answers),
            assignments: Assignments::new(&find_assignment, User::File),
            has_sources: self.delivered.is_some(),
            sessions: &self.sessions,
            drained: &self.store.drained,
            ids: self.store.draft(),
            findings,
        };
        let declared = (&declared.0, &declared.1);
        let mut parts = sections::parts(&file, &Site::root(&root), declared, &mut context);
        let entries = digests.with(std::mem::take(&mut parts.entry_warnings));
        self.check_tunnels(&file, &Site::root(&root), context.findings);
        let (files, outcomes) = context.endpoint_files.into_files();
        let names = context.names.into_users();
        let taken = context.ids.into_taken();
        let (relinked, taken) = self.add_delivered(&mut parts, taken, outside);
        let tunnelled = tunnels::tunnelled(file.routes.iter().map(AsRef::as_ref));
        Some(Lowered { parts, taken, files, outcomes, names, entries, relinked, tunnelled })
    }

    /// Refuses tunnels to clusters of HTTP/2, whether rules, clusters or both are of the file.
    fn check_tunnels(&self, file: &File, site: &Site<'_>, findings: &mut Findings<'_>) {
        let delivered = self.delivered.as_ref();
        let multiplexes = |name: &str| {
            let is_delivered = delivered?.find(ResourceKind::Cluster, name).is_some();
            let cluster = self.store.latest()?.cluster(self.store.ids().cluster(name)?)?;
            Some(is_delivered && cluster.protocol == ClusterProtocol::Http2)
        };
        let multiplexes = |name: &str| multiplexes(name).unwrap_or_default();
        let tunnels_to = |cluster: &str| delivered?.tunnels_to(cluster, &|_| false);
        tunnels::check(file, site, &multiplexes, &tunnels_to, findings);
    }
}

/// Refuses a text without sections.
fn check_root(root: &tree::Node, findings: &mut Findings<'_>) -> Option<()> {
    let (what, hint) = match root.items() {
        [] if root.scalar().is_none() => return Some(()),
        [] => ("text", EMPTY_HINT),
        [first, ..] if first.text().is_some() => {
            ("a list", "write `endpoints: { file: PATH }` in a cluster, if these are its endpoints")
        }
        _ => ("a list", "write `listeners:`, `routes:` or `clusters:` in a line before the list"),
    };
    let rule = format!("a configuration consists of sections, and this is {what}");
    findings.error(root.at, Path::Root, "", Problem::new(rule, hint));
    None
}

#[cfg(test)]
impl<F> Loader<F> {
    /// The names of the entries of a text that are not lowered again.
    pub(crate) fn known(&self, text: &str) -> Vec<String> {
        let mut findings = Findings::new("f", text);
        let mut root = tree::read(text, EMPTY_HINT, &mut findings).unwrap();
        let declared = Declared::read(&root, "clusters");
        drop(self.entries.mark(&mut root, &self.store.former(&declared)));
        let sections = ["clusters", "routes"].map(|section| root.find(section).unwrap().items());
        let known = sections.into_iter().flatten().filter(|item| item.is_known);
        known.map(|item| item.find("name").and_then(tree::Node::text).unwrap().to_owned()).collect()
    }
}

/// What became of a text.
struct Lowered<F> {
    parts: Parts<F>,
    taken: TakenIds,
    files: EndpointFiles,
    /// What came of each of these.
    outcomes: Vec<EndpointsOutcome>,
    names: NameUsers,
    entries: Entries,
    /// The clusters that its rules open tunnels to.
    tunnelled: BTreeSet<Box<str>>,
    /// What changes of the resources of other sources.
    relinked: Relinked,
}
