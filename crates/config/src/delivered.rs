//! Resources that sources other than the file deliver, each accepted or refused by itself.
//!
//! A delivered cluster or listener has the form of an entry of `clusters` or `listeners`, and is checked and lowered as
//! one; the others have forms of their own. A refused one leaves the version before
//! it. A name belongs to the source that had it first, and to the file before all others. What a rule names and no source has
//! delivered (yet) is answered with 503 and `no_cluster`; a listener whose route configurations or secrets are not there
//! waits for them, and so does a cluster for its secrets and its assignment, while the version before serves.

mod armor;
mod keys;
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::findings::{Errors, Findings, Problem, START};
use crate::map::Map;
use crate::origins::{ResourceKind, ResourceName};
use crate::printable::{Printable, beginning};
use crate::resource::{Assignment, RouteConfig, Secret};
use crate::sections::{self, names::NAME_BYTES_MAX};
use crate::snapshot::ListenerId;

pub use self::read::holds_key;
pub(crate) use self::read::{
    Shapes, assignment, cluster, listener, paths_of_cluster, paths_of_listener, routes, secret,
    secrets_of_cluster, secrets_of_listener,
};

/// Resources of a kind that a source delivers.
pub const RESOURCES_MAX: usize = 100_000;

/// Bytes of the texts that a source delivers, with its words for their versions.
pub const RESOURCE_BYTES_MAX: usize = 256 << 20;

/// Updates that a source has waiting: all that it may deliver, and as many that are gone.
pub const UPDATES_WAITING_MAX: usize = 2 * RESOURCES_MAX * KINDS;

/// Bytes of a source's word for a version of a resource: it is kept with that, logged and shown.
pub const VERSION_BYTES_MAX: usize = 1024;

/// Kinds of resources.
const KINDS: usize = ResourceKind::ALL.len();

/// A resource as a source has it. It may be a secret: it is not shown, and wiped when it is let go.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(Arc<Zeroizing<String>>);

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Arc::new(Zeroizing::new(text)))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// What a source says of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// What it is.
    pub kind: ResourceKind,
    /// Its name among those of its kind.
    pub name: Arc<str>,
    /// The source's own word for this version of it, of at most [`VERSION_BYTES_MAX`] bytes without control characters; with any
    /// other, the update is refused.
    pub version: Arc<str>,
    /// What it says, in YAML or JSON; none if it is gone.
    pub content: Option<Text>,
}

/// What became of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The resource.
    pub name: ResourceName,
    /// Which version of it.
    pub version: Arc<str>,
    /// What it waits for before it serves.
    pub waits_for: Vec<ResourceName>,
    /// What did not arrive within `resolvers.initial_fetch_timeout`: it serves without these, or is refused if it cannot.
    pub missing: Vec<ResourceName>,
    /// Why it is refused, so that the version before stays; none if it is accepted.
    pub refused: Option<Errors>,
}

/// What a listener or a cluster waits for now, and what it has waited for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The listener or cluster.
    pub name: ResourceName,
    /// What it waits for before it serves.
    pub waits_for: Vec<ResourceName>,
    /// What did not arrive in time.
    pub missing: Vec<ResourceName>,
}

/// A listener, or a cluster, that the system does not let this process have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unbound {
    /// The resource.
    pub name: ResourceName,
    /// Which address, and why.
    pub reason: String,
}

/// A resource that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) source: Arc<str>,
    pub(crate) version: Arc<str>,
    /// Of its text and its version.
    pub(crate) bytes: usize,
    pub(crate) content: Content,
    /// What it names.
    pub(crate) names: Arc<[ResourceName]>,
    /// Of these, what is not there and has to be before it serves.
    pub(crate) waits_for: Vec<ResourceName>,
    /// Of these, what it serves without, or is refused for, since it has waited for too long.
    pub(crate) missing: Vec<ResourceName>,
    /// Whether it waits no longer for route configurations and endpoints.
    pub(crate) has_waited: bool,
    /// Whether its source heard after its acceptance that it does not go with what it names, and not otherwise since.
    pub(crate) is_refused: bool,
}

/// What is kept of a resource beside what snapshots have.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// With its text, if something else decides about it.
    Cluster(Option<Text>),
    /// With its id in the latest snapshot, if some version serves.
    Listener(Text, Option<ListenerId>),
    /// With its text, if something else decides about it.
    Routes(RouteConfig, Option<Text>),
    Assignment(Arc<Assignment>),
    Secret(Arc<Secret>),
}

impl Content {
    pub(crate) const fn assignment(&self) -> Option<&Arc<Assignment>> {
        match self {
            Self::Assignment(assignment) => Some(assignment),
            _ => None,
        }
    }
}

/// What a source has delivered.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    counts: [usize; KINDS],
    bytes: usize,
}

/// The resources that were accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delivered {
    kinds: [Map<Arc<str>, Entry>; KINDS],
    totals: Map<Arc<str>, Totals>,
    /// Who names what.
    users: Map<ResourceName, BTreeSet<ResourceName>>,
    waiting: BTreeSet<ResourceName>,
    /// The sources, those first that go before others.
    order: Vec<Arc<str>>,
    removed_routes: Removed,
}

/// Route configurations that are gone and that some listener goes on with, by name.
pub(crate) type Removed = BTreeMap<Arc<str>, RemovedRoutes>;

/// A route configuration that is gone, or tables of one that is there without them.
#[derive(Clone, Debug)]
pub(crate) struct RemovedRoutes {
    pub(crate) config: RouteConfig,
    /// What it was, if values of `runtime` decide about it.
    pub(crate) asks: Option<AskingRoutes>,
    /// The listeners that have its tables until they are others.
    pub(crate) listeners: BTreeSet<ListenerId>,
}

/// A version of a route configuration whose rules ask for values of `runtime`.
#[derive(Clone, Debug)]
pub(crate) struct AskingRoutes {
    pub(crate) source: Arc<str>,
    pub(crate) version: Arc<str>,
    pub(crate) text: Text,
}

/// What changes of them; none for those that are gone.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    kinds: [Map<Arc<str>, Option<Entry>>; KINDS],
    /// All of these, if they are others.
    removed_routes: Option<Removed>,
}

#[expect(clippy::indexing_slicing, reason = "there is one for each kind")]
impl Delivered {
    pub(crate) fn find(&self, kind: ResourceKind, name: &str) -> Option<&Entry> {
        self.kinds[kind as usize].get(name)
    }

    pub(crate) fn iter(&self, kind: ResourceKind) -> impl Iterator<Item = (&Arc<str>, &Entry)> {
        self.kinds[kind as usize].iter()
    }

    /// What a source has assigned to a cluster.
    pub(crate) fn assignment(&self, cluster: &str) -> Option<Arc<Assignment>> {
        self.find(ResourceKind::Assignment, cluster)?.content.assignment().cloned()
    }

    /// The resources that name this one.
    pub(crate) fn users(&self, name: &ResourceName) -> impl Iterator<Item = &ResourceName> {
        self.users.get(name).into_iter().flatten()
    }

    /// What a route configuration is called in reports whose rules open tunnels to a cluster, if there is one, but for
    /// those in `passed_over`.
    pub(crate) fn tunnels_to(
        &self,
        cluster: &str,
        passed_over: &dyn Fn(&ResourceName) -> bool,
    ) -> Option<String> {
        let named = ResourceName::new(ResourceKind::Cluster, cluster);
        let users = self.users(&named).filter(|user| user.kind == ResourceKind::Route);
        let mut users = users.filter(|user| !passed_over(user));
        let there = users.find(|user| self.opens_tunnels(user, cluster)).and_then(|user| {
            let entry = self.find(user.kind, &user.name)?;
            Some(origin(&entry.source, user.kind, &user.name, &entry.version))
        });
        there.or_else(|| {
            let mut removed = self.removed_routes.iter();
            let (name, _) = removed.find(|(_, it)| it.config.tunnelled.contains(cluster))?;
            Some(format!("route/{name}, which was removed and is still in use,"))
        })
    }

    /// Whether the accepted version of a route configuration opens tunnels to a cluster.
    pub(crate) fn opens_tunnels(&self, name: &ResourceName, cluster: &str) -> bool {
        let entry = self.find(name.kind, &name.name).map(|entry| &entry.content);
        matches!(entry, Some(Content::Routes(config, _)) if config.tunnelled.contains(cluster))
    }

    /// The route configurations that are gone and in use.
    pub(crate) const fn removed_routes(&self) -> &Removed {
        &self.removed_routes
    }

    /// What is named.
    pub(crate) fn named(&self) -> impl Iterator<Item = &ResourceName> {
        self.users.keys()
    }

    /// What waits.
    pub(crate) const fn waiting(&self) -> &BTreeSet<ResourceName> {
        &self.waiting
    }

    /// Takes accepted updates up.
    pub(crate) fn apply(&mut self, changed: Changed) {
        if let Some(removed) = changed.removed_routes {
            self.removed_routes = removed;
        }
        for (kind, changed) in ResourceKind::ALL.into_iter().zip(changed.kinds) {
            for (name, entry) in changed {
                let user = ResourceName::new(kind, &name);
                self.waiting.remove(&user);
                let former = self.kinds[kind as usize].remove(&name);
                let names = |entry: &Option<Entry>| entry.as_ref().map(|it| Arc::clone(&it.names));
                if names(&former) != names(&entry) {
                    former.iter().for_each(|former| self.forget_names(&user, former));
                    for named in entry.iter().flat_map(|entry| &*entry.names) {
                        self.users.entry(named.clone()).or_default().insert(user.clone());
                    }
                }
                if let Some(former) = former
                    && let Some(totals) = self.totals.get_mut(&former.source)
                {
                    totals.bytes -= former.bytes;
                    totals.counts[kind as usize] -= 1;
                }
                let Some(entry) = entry else { continue };
                let totals = self.totals.entry(Arc::clone(&entry.source)).or_default();
                totals.bytes += entry.bytes;
                totals.counts[kind as usize] += 1;
                if !entry.waits_for.is_empty() {
                    self.waiting.insert(user);
                }
                self.kinds[kind as usize].insert(name, entry);
            }
        }
    }

    fn forget_names(&mut self, user: &ResourceName, entry: &Entry) {
        for named in &*entry.names {
            let Some(users) = self.users.get_mut(named) else { continue };
            users.remove(user);
            if users.is_empty() {
                self.users.remove(named);
            }
        }
    }

    /// Whether there is room for all of these, of each resource the last. `waiting` is how many they were.
    pub(crate) fn check_room(
        &self,
        source: &Arc<str>,
        updates: &[Update],
        waiting: usize,
    ) -> Result<(), Problem> {
        if waiting > UPDATES_WAITING_MAX {
            let rule = format!(
                "a source has at most {UPDATES_WAITING_MAX} updates waiting (updates_waiting_max), and had {waiting}"
            );
            return Err(Problem::new(rule, "let the source put together what changes meanwhile"));
        }
        let Totals { mut counts, mut bytes } = self.totals.get(source).copied().unwrap_or_default();
        for update in updates {
            let known = self.find(update.kind, &update.name);
            if let Some(known) = known.filter(|known| known.source == *source) {
                counts[update.kind as usize] -= 1;
                bytes -= known.bytes;
            }
            if let Some(content) = &update.content {
                counts[update.kind as usize] += 1;
                bytes = bytes.saturating_add(content.len()).saturating_add(update.version.len());
            }
        }
        for (kind, count) in ResourceKind::ALL.into_iter().zip(counts) {
            if count > RESOURCES_MAX {
                let word = kind.word();
                let rule = format!(
                    "a source delivers at most {RESOURCES_MAX} of a kind (resources_max), and has {count} of {word}"
                );
                return Err(Problem::new(rule, "let the source deliver those that are used"));
            }
        }
        if bytes > RESOURCE_BYTES_MAX {
            let mib = RESOURCE_BYTES_MAX >> 20;
            let rule = format!("a source delivers at most {mib} MiB (resource_bytes_max)");
            return Err(Problem::new(rule, "let the source deliver less, or smaller resources"));
        }
        Ok(())
    }

    /// From now on sources go before each other in this order, and before any that is not in it.
    pub(crate) fn set_order(&mut self, order: Vec<Arc<str>>) {
        self.order = order;
    }

    fn goes_before(&self, source: &str, other: &str) -> bool {
        let place = |source: &str| self.order.iter().position(|known| **known == *source);
        let places = (place(source), place(other));
        places.0.is_some_and(|first| places.1.is_none_or(|second| first < second))
    }

    /// Whether a source may say something of a name. `in_file` says where the file has it. Returns what another source
    /// has delivered under that name, if this one goes before it.
    pub(crate) fn check_owner(
        &self,
        source: &str,
        update: &Update,
        in_file: Option<String>,
    ) -> Result<Option<&Entry>, Problem> {
        check_words(update)?;
        if let Some(place) = in_file {
            return Err(file_goes_first(update.kind, &place));
        }
        match self.find(update.kind, &update.name) {
            Some(other) if *other.source != *source => {
                if update.content.is_some() && self.goes_before(source, &other.source) {
                    return Ok(Some(other));
                }
                Err(source_goes_first(update.kind, &other.source, &other.version))
            }
            _ => Ok(None),
        }
    }
}

#[expect(clippy::indexing_slicing, reason = "there is one for each kind")]
impl Changed {
    pub(crate) fn insert(&mut self, kind: ResourceKind, name: &Arc<str>, entry: Option<Entry>) {
        self.kinds[kind as usize].insert(Arc::clone(name), entry);
    }

    /// These route configurations are gone and in use from now on, and no others.
    pub(crate) fn set_removed_routes(&mut self, removed: Removed) {
        self.removed_routes = Some(removed);
    }

    /// The route configurations that are gone and in use once this is taken up.
    pub(crate) fn removed_routes<'a>(&'a self, delivered: &'a Delivered) -> &'a Removed {
        self.removed_routes.as_ref().unwrap_or(&delivered.removed_routes)
    }

    pub(crate) fn has(&self, kind: ResourceKind, name: &str) -> bool {
        self.kinds[kind as usize].contains_key(name)
    }

    /// What there is of a name once this is taken up.
    pub(crate) fn find<'a>(
        &'a self,
        delivered: &'a Delivered,
        kind: ResourceKind,
        name: &str,
    ) -> Option<&'a Entry> {
        match self.kinds[kind as usize].get(name) {
            Some(changed) => changed.as_ref(),
            None => delivered.find(kind, name),
        }
    }

    /// What each listener and cluster waits for, and has waited for, that is new or another.
    pub(crate) fn waits(&self) -> Vec<Waits> {
        let mut waits = Vec::new();
        for (kind, changed) in ResourceKind::ALL.into_iter().zip(&self.kinds) {
            if !matches!(kind, ResourceKind::Listener | ResourceKind::Cluster) {
                continue;
            }
            waits.extend(changed.iter().map(|(name, entry)| {
                let waits = entry.as_ref().map(|it| (it.waits_for.clone(), it.missing.clone()));
                let (waits_for, missing) = waits.unwrap_or_default();
                Waits { name: ResourceName::new(kind, name), waits_for, missing }
            }));
        }
        waits
    }

    /// What is named once this is taken up and was not before, and the other way around.
    pub(crate) fn names_changed(&self, delivered: &Delivered) -> NamesChanged {
        let mut counts: Map<&ResourceName, (usize, usize)> = Map::default();
        for (kind, changed) in ResourceKind::ALL.into_iter().zip(&self.kinds) {
            for (name, entry) in changed {
                let former = delivered.find(kind, name).map_or(&[][..], |it| &*it.names);
                let names = entry.as_ref().map_or(&[][..], |it| &*it.names);
                if former == names {
                    continue;
                }
                former.iter().for_each(|named| counts.entry(named).or_default().0 += 1);
                names.iter().for_each(|named| counts.entry(named).or_default().1 += 1);
            }
        }
        let mut names = NamesChanged::default();
        for (name, (less, more)) in counts {
            let users = delivered.users.get(name).map_or(0, BTreeSet::len);
            match (users > 0, users + more > less) {
                (false, true) => names.new.push(name.clone()),
                (true, false) => names.gone.push(name.clone()),
                _ => {}
            }
        }
        names
    }
}

/// Names that came to others, and names that went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamesChanged {
    /// In no order.
    pub new: Vec<ResourceName>,
    /// In no order.
    pub gone: Vec<ResourceName>,
}

impl NamesChanged {
    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.new.is_empty() && self.gone.is_empty()
    }

    /// Leaves out those of which this is false.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&ResourceName) -> bool) {
        self.new.retain(&is_kept);
        self.gone.retain(&is_kept);
    }
}

/// Whether the name of a resource and the source's word for its version are such as may be kept and shown.
pub(crate) fn check_words(update: &Update) -> Result<(), Problem> {
    sections::names::check_name(&update.name)?;
    let rule = match &*update.version {
        version if version.contains(char::is_control) => {
            "a version has no control characters".to_owned()
        }
        version if version.len() > VERSION_BYTES_MAX => {
            format!(
                "a version has at most {VERSION_BYTES_MAX} bytes, and this one has {}",
                version.len()
            )
        }
        _ => return Ok(()),
    };
    Err(Problem::new(rule, "let the source say a number or a digest"))
}

/// The file has a resource of the same kind and name.
pub(crate) fn file_goes_first(kind: ResourceKind, place: &str) -> Problem {
    let rule =
        format!("the file has a {} of this name, at {place}, which has precedence", kind.word());
    Problem::new(rule, "rename one of the two")
}

/// Another source has a resource of the same kind and name.
pub(crate) fn source_goes_first(kind: ResourceKind, source: &str, version: &str) -> Problem {
    let word = kind.word();
    let rule = format!(
        "{source} has delivered a {word} of this name, version {version}, which has precedence"
    );
    Problem::new(rule, "rename one of the two")
}

/// What a report calls a version of a resource, in one line. Of a name and a version that are longer than they may be, it has the
/// beginning.
pub(crate) fn origin(source: &str, kind: ResourceKind, name: &str, version: &str) -> String {
    let name = Printable(beginning(name, NAME_BYTES_MAX));
    let version = Printable(beginning(version, VERSION_BYTES_MAX));
    format!("{source} {}/{name} version {version}", kind.word())
}

/// A problem of a resource as a whole.
pub(crate) fn error(origin: &str, problem: Problem) -> Errors {
    Findings::new(origin, "").into_error(START, problem)
}

/// The last update of each resource, in the order in which they came first.
pub(crate) fn last_of_each(updates: Vec<Update>) -> Vec<Update> {
    let mut places: Map<(ResourceKind, Arc<str>), usize> = Map::default();
    let mut last: Vec<Update> = Vec::with_capacity(updates.len());
    for update in updates {
        let key = (update.kind, Arc::clone(&update.name));
        match places.get(&key).and_then(|place| last.get_mut(*place)) {
            Some(known) => *known = update,
            None => {
                places.insert(key, last.len());
                last.push(update);
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_count_for_what_a_source_may_deliver() {
        // They share their text.
        let text = Text::from("#".repeat(RESOURCE_BYTES_MAX / 4));
        let update = |name: &str, version: &str| Update {
            kind: ResourceKind::Cluster,
            name: name.into(),
            version: version.into(),
            content: Some(text.clone()),
        };
        for (version, has_room) in [("", true), ("1", false)] {
            let updates = ["a", "b", "c", "d"].map(|name| update(name, version));
            let room = Delivered::default().check_room(&"folder".into(), &updates, 4);
            assert_eq!(room.is_ok(), has_room, "{room:?}");
        }
    }
}
