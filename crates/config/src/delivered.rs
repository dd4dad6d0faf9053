//! Clusters that sources other than the file deliver, each accepted or refused by itself.
//!
//! A delivered cluster has the form of an entry of `clusters`, and is checked and lowered as one. A refused one leaves
//! the version before it. A name belongs to whoever had it first, and to the file before all others. What a rule of
//! the file names and no source has delivered (yet) is answered with 503 and `no_cluster`.

use std::sync::Arc;

use crate::build;
use crate::file;
use crate::file::cluster::Endpoints;
use crate::findings::{Errors, Finding, Findings, Path, Problem, START};
use crate::map::Map;
use crate::shape::{self, SchemaError, Shape, schema_of};
use crate::snapshot::Cluster;
use crate::tree::{self, Site};

/// Clusters that sources have delivered and that were accepted.
pub const RESOURCES_MAX: usize = 100_000;

/// Bytes of their texts.
pub const RESOURCE_BYTES_MAX: usize = 256 << 20;

/// What stands in a cluster without anything.
const EMPTY_HINT: &str = "write `{ name: web, endpoints: [\"10.0.0.1:80\"] }`, for instance";

/// What a source says of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The cluster.
    pub name: Arc<str>,
    /// The source's own word for this version of it.
    pub version: Arc<str>,
    /// What it is, as an entry of `clusters`, in YAML or JSON; none if it is gone.
    pub content: Option<Box<str>>,
}

/// What became of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The cluster.
    pub name: Arc<str>,
    /// Which version of it.
    pub version: Arc<str>,
    /// Why it is refused, so that the version before stays; none if it is accepted.
    pub refused: Option<Errors>,
}

/// A cluster that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) source: Arc<str>,
    version: Arc<str>,
    /// Of its text.
    bytes: usize,
}

/// The clusters that were accepted, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delivered {
    by_name: Map<Arc<str>, Accepted>,
    bytes: usize,
}

/// What accepted updates change: clusters with what was lowered of them, or none for those that are gone.
#[derive(Debug, Default)]
pub(crate) struct Changed(pub(crate) Vec<(Arc<str>, Option<Accepted>)>);

/// What may stand in a delivered cluster.
#[derive(Debug)]
pub(crate) struct ClusterShape(Shape);

impl ClusterShape {
    pub(crate) fn new() -> Result<Self, SchemaError> {
        Shape::new(&schema_of::<file::Cluster>(), "").map(Self)
    }
}

impl Delivered {
    pub(crate) fn find(&self, name: &str) -> Option<&Accepted> {
        self.by_name.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.keys()
    }

    /// Takes accepted updates up.
    pub(crate) fn apply(&mut self, changed: Changed) {
        for (name, accepted) in changed.0 {
            self.bytes += accepted.as_ref().map_or(0, |accepted| accepted.bytes);
            let former = match accepted {
                Some(accepted) => self.by_name.insert(name, accepted),
                None => self.by_name.remove(&name),
            };
            self.bytes -= former.map_or(0, |former| former.bytes);
        }
    }

    /// Whether there is room for all of these.
    fn check_room(&self, updates: &[Update]) -> Result<(), Problem> {
        let sizes = updates.iter().filter_map(|update| update.content.as_deref().map(str::len));
        let bytes = sizes.fold(self.bytes, usize::saturating_add);
        let is_new =
            |update: &&Update| update.content.is_some() && !self.by_name.contains_key(&update.name);
        let count = self.by_name.len() + updates.iter().filter(is_new).count();
        if count > RESOURCES_MAX {
            let rule = format!("sources deliver at most {RESOURCES_MAX} clusters (resources_max)");
            return Err(Problem::new(rule, "let the source deliver those that are used"));
        }
        if bytes > RESOURCE_BYTES_MAX {
            let mib = RESOURCE_BYTES_MAX >> 20;
            let rule = format!("sources deliver at most {mib} MiB (resource_bytes_max)");
            return Err(Problem::new(rule, "let the source deliver less, or smaller clusters"));
        }
        Ok(())
    }
}

/// What came of updates.
pub(crate) struct Outcome {
    pub(crate) changed: Changed,
    /// What was lowered.
    pub(crate) clusters: Vec<Arc<Cluster>>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) warnings: Vec<Finding>,
}

/// Lowers updates of one source, of each cluster the last one.
pub(crate) struct Lowering<'a> {
    pub(crate) source: &'a Arc<str>,
    pub(crate) shape: &'a ClusterShape,
    pub(crate) delivered: &'a Delivered,
    /// Where the file has a cluster of this name, if it has.
    pub(crate) in_file: &'a dyn Fn(&str) -> Option<String>,
}

impl Lowering<'_> {
    /// `lower` makes a cluster of what was read.
    pub(crate) fn run(
        &self,
        updates: Vec<Update>,
        mut lower: impl FnMut(&file::Cluster, &Site<'_>, &mut Findings<'_>) -> Option<Arc<Cluster>>,
    ) -> Outcome {
        let updates = last_of_each(updates);
        let room = self.delivered.check_room(&updates);
        let mut outcome = Outcome {
            changed: Changed::default(),
            clusters: Vec::new(),
            verdicts: Vec::with_capacity(updates.len()),
            warnings: Vec::new(),
        };
        for update in updates {
            let lowered = match &room {
                Err(problem) => Err(self.error(&update, problem.clone())),
                Ok(()) => self.lower(&update, &mut lower),
            };
            let refused = match lowered {
                Err(errors) => Some(errors),
                Ok((cluster, warnings)) => {
                    outcome.clusters.extend(cluster);
                    outcome.warnings.extend(warnings);
                    let name = Arc::clone(&update.name);
                    let accepted = update.content.as_deref().map(|content| Accepted {
                        source: Arc::clone(self.source),
                        version: Arc::clone(&update.version),
                        bytes: content.len(),
                    });
                    outcome.changed.0.push((name, accepted));
                    None
                }
            };
            let Update { name, version, .. } = update;
            outcome.verdicts.push(Verdict { name, version, refused });
        }
        outcome
    }

    fn lower(
        &self,
        update: &Update,
        lower: &mut impl FnMut(&file::Cluster, &Site<'_>, &mut Findings<'_>) -> Option<Arc<Cluster>>,
    ) -> Result<(Option<Arc<Cluster>>, Vec<Finding>), Errors> {
        self.check_owner(update).map_err(|problem| self.error(update, problem))?;
        let Some(content) = &update.content else { return Ok((None, Vec::new())) };
        let mut findings = Findings::new(&self.origin(update), content);
        let cluster = self.read(update, content, &mut findings, lower);
        let warnings = findings.into_result()?;
        Ok((cluster, warnings))
    }

    fn read(
        &self,
        update: &Update,
        content: &str,
        findings: &mut Findings<'_>,
        lower: &mut impl FnMut(&file::Cluster, &Site<'_>, &mut Findings<'_>) -> Option<Arc<Cluster>>,
    ) -> Option<Arc<Cluster>> {
        // Variables are of this process, and not for others to read.
        let mut root = tree::read(content, EMPTY_HINT, findings)?;
        if !shape::check(&mut root, &self.shape.0, Path::Root, findings) {
            return None;
        }
        let site = Site::root(&root);
        let file: file::Cluster = match tree::deserialize(&root) {
            Ok(file) => file,
            Err(mismatch) => {
                let at = mismatch.at.unwrap_or(root.at);
                let problem = Problem::new(mismatch.message, "see docs/configuration/reference.md");
                findings.error(at, Path::Root, "", problem);
                return None;
            }
        };
        if file.name != *update.name {
            let hint = format!("write {}", update.name);
            let problem = Problem::new("the source delivers it under another name", hint);
            site.key("name").error(findings, problem);
        }
        check_alone(&file, &site, findings);
        lower(&file, &site, findings)
    }

    /// Whether this source may say something of the name.
    fn check_owner(&self, update: &Update) -> Result<(), Problem> {
        build::check_name(&update.name)?;
        if let Some(place) = (self.in_file)(&update.name) {
            let rule = format!("the file has a cluster of this name, at {place}, and goes first");
            return Err(Problem::new(rule, "rename one of the two"));
        }
        match self.delivered.find(&update.name) {
            Some(other) if *other.source != **self.source => {
                let (source, version) = (&other.source, &other.version);
                let rule =
                    format!("{source} has delivered a cluster of this name, version {version}");
                Err(Problem::new(rule, "rename one of the two"))
            }
            _ => Ok(()),
        }
    }

    fn origin(&self, update: &Update) -> String {
        format!("{} cluster/{} version {}", self.source, update.name, update.version)
    }

    fn error(&self, update: &Update, problem: Problem) -> Errors {
        Findings::new(&self.origin(update), "").into_error(START, problem)
    }
}

/// What a delivered cluster may not name: files and hosts are those of this machine.
fn check_alone(file: &file::Cluster, site: &Site<'_>, findings: &mut Findings<'_>) {
    let hint = "let the source deliver addresses";
    match &file.endpoints {
        Some(Endpoints::File(_) | Endpoints::Dns(_)) => {
            let problem = Problem::new("a delivered cluster has a list of endpoints", hint);
            site.key("endpoints").error(findings, problem);
        }
        Some(Endpoints::List(endpoints)) => {
            let sites = site.key("endpoints");
            for (endpoint, site) in endpoints.iter().zip(sites.items()) {
                if endpoint.address().address().is_none() {
                    let rule = "a delivered cluster has addresses, and no names to resolve";
                    site.error(findings, Problem::new(rule, hint));
                }
            }
        }
        None => {}
    }
    let Some(tls) = &file.tls else { return };
    let site = site.key("tls");
    for (key, is_written) in [
        ("ca", tls.ca.is_some()),
        ("crl", tls.crl.is_some()),
        ("certificate", tls.certificate.is_some()),
    ] {
        if is_written {
            let rule = "a delivered cluster names no files of this machine";
            let hint = "write the cluster into the file, with `endpoints: { file: … }`";
            site.key(key).error(findings, Problem::new(rule, hint));
        }
    }
}

/// The last update of each cluster, in the order in which clusters came first.
fn last_of_each(updates: Vec<Update>) -> Vec<Update> {
    let mut places: Map<Arc<str>, usize> = Map::default();
    let mut last: Vec<Update> = Vec::with_capacity(updates.len());
    for update in updates {
        match places.get(&update.name).and_then(|place| last.get_mut(*place)) {
            Some(known) => *known = update,
            None => {
                places.insert(Arc::clone(&update.name), last.len());
                last.push(update);
            }
        }
    }
    last
}
