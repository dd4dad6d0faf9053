//! Where each resource of a snapshot comes from, and since when it is as it is.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::findings::{Path, Places, Position};
use crate::map::Map;
use crate::printable::Printable;
use crate::text::tree::Node;

/// The kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResourceKind {
    /// An entry of `listeners`.
    Listener,
    /// An entry of `routes`, or a route configuration of another source.
    Route,
    /// An entry of `clusters`.
    Cluster,
    /// The endpoints of a cluster that come from elsewhere than the cluster: a source, a file of their own, or DNS.
    Assignment,
    /// A certificate with its key, or the authorities that are trusted. Of the file it is a file that `tls` names, by its path.
    Secret,
}

impl ResourceKind {
    /// Those that a file has a section for.
    pub(crate) const IN_FILE: [Self; 3] = [Self::Listener, Self::Route, Self::Cluster];

    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Listener, Self::Route, Self::Cluster, Self::Assignment, Self::Secret];

    /// The word for it, as in `cluster/web`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Route => "route",
            Self::Cluster => "cluster",
            Self::Assignment => "assignment",
            Self::Secret => "secret",
        }
    }

    /// The section of a file that holds it.
    pub(crate) const fn section(self) -> &'static str {
        match self {
            Self::Listener => "listeners",
            Self::Route => "routes",
            Self::Cluster => "clusters",
            Self::Assignment => "assignments",
            Self::Secret => "secrets",
        }
    }
}

/// A resource by kind and name, written as `cluster/web`, in one line whatever its name is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceName {
    /// What it is.
    pub kind: ResourceKind,
    /// Its name among those of its kind.
    pub name: Box<str>,
}

impl ResourceName {
    /// The resource of this kind and name.
    #[must_use]
    pub fn new(kind: ResourceKind, name: &str) -> Self {
        Self { kind, name: name.into() }
    }
}

impl FromStr for ResourceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = ResourceKind::ALL.map(ResourceKind::word);
        let hint = || format!("write KIND/NAME with a kind of {}", words.join(", "));
        let (word, name) = text.split_once('/').ok_or_else(hint)?;
        let kind = ResourceKind::ALL.into_iter().find(|kind| kind.word() == word);
        Ok(Self { kind: kind.ok_or_else(hint)?, name: name.into() })
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.word(), Printable(&self.name))
    }
}

/// The origins of the resources of a snapshot.
#[derive(Clone, Debug)]
pub struct Origins {
    places: Places,
    /// By [`ResourceKind`].
    kinds: [Entries; ResourceKind::ALL.len()],
    /// The files that `tls` names, by their paths there.
    files: Map<Box<str>, FileOrigin>,
}

/// By name.
type Entries = Map<Box<str>, Entry>;

/// Where an entry of a file stands.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Position,
    /// Its place in its section.
    place: usize,
    /// The version of the first snapshot in which it is as it is.
    since: u64,
}

/// Where a file is named first that `tls` needs. It is a secret of the file: one that no source delivers.
#[derive(Clone, Debug)]
pub(crate) struct FileOrigin {
    at: Position,
    /// Its place in the structure.
    path: String,
    /// Of its content, by which that is known again.
    digest: u64,
    /// The version of the first snapshot with this content.
    since: u64,
}

impl FileOrigin {
    pub(crate) fn new(at: Position, path: Path<'_>, digest: u64) -> Self {
        Self { at, path: path.to_string(), digest, since: 0 }
    }
}

impl Origins {
    /// Those of a text, and of the files that it names for `tls`. None of it is known to be old.
    pub(crate) fn read(root: &Node, places: &Places, files: Map<Box<str>, FileOrigin>) -> Self {
        let entries = |kind: ResourceKind| {
            let items = root.find(kind.section()).map(Node::items).unwrap_or_default();
            let named = items.iter().enumerate().filter_map(|(place, item)| {
                let name = item.find("name").and_then(Node::text)?;
                Some((name.into(), Entry { at: item.at, place, since: 0 }))
            });
            named.collect()
        };
        Self { places: places.clone(), kinds: ResourceKind::ALL.map(entries), files }
    }

    #[expect(clippy::indexing_slicing, reason = "there is one for each kind")]
    const fn of(&self, kind: ResourceKind) -> &Entries {
        &self.kinds[kind as usize]
    }

    /// Says since when resources are as they are: since this version if they changed, and else since when they were
    /// in the former snapshot.
    pub(crate) fn date(
        &mut self,
        kind: ResourceKind,
        version: u64,
        former: Option<&Self>,
        changed: &Map<Arc<str>, ()>,
    ) {
        #[expect(clippy::indexing_slicing, reason = "there is one for each kind")]
        let entries = &mut self.kinds[kind as usize];
        for (name, entry) in entries {
            let before = former.and_then(|former| former.of(kind).get(name));
            let before = before.filter(|_| !changed.contains_key(&**name));
            entry.since = before.map_or(version, |before| before.since);
        }
    }

    /// The same of the files that `tls` names: since when each has its content.
    pub(crate) fn date_files(&mut self, version: u64, former: Option<&Self>) {
        for (path, file) in &mut self.files {
            let before = former.and_then(|former| former.files.get(path));
            let before = before.filter(|before| before.digest == file.digest);
            file.since = before.map_or(version, |before| before.since);
        }
    }

    /// Calls a version by another number.
    pub(crate) fn renumber(&mut self, from: u64, to: u64) {
        let entries = self.kinds.iter_mut().flat_map(Map::values_mut).map(|it| &mut it.since);
        let files = self.files.values_mut().map(|it| &mut it.since);
        entries.chain(files).filter(|since| **since == from).for_each(|since| *since = to);
    }

    /// The names of the entries of a kind, and the paths of files that are secrets.
    pub(crate) fn names(&self, kind: ResourceKind) -> impl Iterator<Item = &str> + Clone {
        let files = (kind == ResourceKind::Secret).then_some(&self.files);
        let files = files.into_iter().flat_map(Map::keys);
        self.of(kind).keys().chain(files).map(AsRef::as_ref)
    }

    /// Whether the text has an entry of this name.
    pub(crate) fn has(&self, kind: ResourceKind, name: &str) -> bool {
        self.of(kind).contains_key(name)
    }

    /// Where an entry stands: its file and line.
    pub(crate) fn place(&self, kind: ResourceKind, name: &str) -> Option<String> {
        let (file, line) = self.places.locate(self.of(kind).get(name)?.at.line);
        Some(format!("{file}:{line}"))
    }

    /// Since which version an entry is as it is, and where it stands.
    pub(crate) fn find(&self, kind: ResourceKind, name: &str) -> Option<(u64, Json)> {
        let entry = self.of(kind).get(name)?;
        let (file, line) = self.places.locate(entry.at.line);
        let path = format!("{}[{}]", kind.section(), entry.place);
        let column = entry.at.column;
        Some((entry.since, json!({ "file": file, "line": line, "column": column, "path": path })))
    }

    /// Since which version a file that `tls` names has its content, and where it is named first.
    pub(crate) fn find_file(&self, name: &str) -> Option<(u64, Json)> {
        let FileOrigin { at, path, since, .. } = self.files.get(name)?;
        let (file, line) = self.places.locate(at.line);
        Some((*since, json!({ "file": file, "line": line, "column": at.column, "path": path })))
    }
}
