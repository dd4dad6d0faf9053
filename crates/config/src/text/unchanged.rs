//! Entries of the text that read as they did when they were lowered: they are neither checked nor lowered again.
//!
//! An entry is known again by a digest of what stands in it, wherever it stands now. What was lowered of it is
//! taken over if the clusters that it names are still there, so that they have their ids. What else decides about a cluster, such as
//! the files and hosts that it names, is compared where clusters are built (`cluster::unchanged`).
//!
//! A cluster that is taken over brings what its entry was warned of again, where the entry stands now. Warnings of a route table
//! may name the lines of other rules, so that a table with any is lowered again. Warnings of what entries are to each other are
//! found with each text (`sections::parts`).

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Arc, LazyLock};

use foldhash::quality::RandomState;

use crate::file;
use crate::findings::{EntryWarning, KeptWarning};
use crate::ids::Ids;
use crate::map::Map;
use crate::resource::route::targets::Target;
use crate::sections::names::Declared;
use crate::snapshot::{Action, Cluster, Forward, RouteTable, Snapshot};
use crate::text::tree::{self, Mismatch, Node, Value};

/// The sections whose entries are known again.
const SECTIONS: [&str; 2] = [CLUSTERS, ROUTES];
const CLUSTERS: &str = "clusters";
const ROUTES: &str = "routes";

/// What tables may ask for beside what stands in them.
const RUNTIME: &str = "runtime";

/// Seeded anew by each process: no text can be made to have the digest of another.
static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// The entries of the latest text that can be taken over, by section and name.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    sections: [Map<Box<str>, Known>; SECTIONS.len()],
    runtime: Option<u64>,
}

/// An entry as it was lowered.
#[derive(Debug)]
struct Known {
    digest: u64,
    /// Of a cluster, by itself.
    warnings: Vec<KeptWarning>,
}

/// The digests of one text: of each section, by place in it.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    sections: [Vec<Option<Entry>>; SECTIONS.len()],
    runtime: Option<u64>,
}

/// The name of an entry, and its digest.
type Entry = (Box<str>, u64);

/// The latest snapshot, and what a load knows before anything is lowered.
pub(crate) struct Former<'a, F> {
    pub(crate) snapshot: Option<&'a Snapshot<F>>,
    pub(crate) ids: &'a Ids,
    /// The names of the clusters in the text.
    pub(crate) clusters: &'a Declared,
}

impl Entries {
    /// Marks the entries that are unchanged. Returns the digests of all.
    pub(crate) fn mark<F>(&self, root: &mut Node, former: &Former<'_, F>) -> Digests {
        let declared = former.clusters.set();
        let runtime = root.find(RUNTIME).map(digest);
        let is_same_runtime = runtime == self.runtime;
        let mut digests = Digests { runtime, ..Digests::default() };
        let sections = SECTIONS.iter().zip(&self.sections);
        for ((section, known), digests) in sections.zip(&mut digests.sections) {
            for item in items_mut(root, section) {
                let name = item.find("name").and_then(Node::text);
                let entry = name.map(|name| (Box::from(name), digest(item)));
                item.is_known = entry.as_ref().is_some_and(|(name, digest)| {
                    known.get(name).is_some_and(|known| known.digest == *digest)
                        && match *section {
                            CLUSTERS => former.cluster(name).is_some(),
                            _ => former.route_table(name).is_some_and(|table| {
                                (table.runtime.is_empty() || is_same_runtime)
                                    && former.has_clusters_of(table, &declared)
                            }),
                        }
                });
                digests.push(entry);
            }
        }
        digests
    }

    /// What the entry of a cluster was warned of when it was lowered.
    pub(crate) fn warnings_of_cluster(&self, name: &str) -> &[KeptWarning] {
        let [clusters, _] = &self.sections;
        clusters.get(name).map_or(&[], |known| &known.warnings)
    }
}

impl Digests {
    /// The entries that count once the text does, with the warnings of each.
    pub(crate) fn with(self, warnings: Vec<EntryWarning>) -> Entries {
        let sections = self.sections.map(|digests| {
            let known = |(name, digest)| (name, Known { digest, warnings: Vec::new() });
            digests.into_iter().map(|entry| entry.map(known)).collect::<Vec<_>>()
        });
        let [mut clusters, mut tables] = sections;
        for EntryWarning { section, place, kept } in warnings {
            match &*section {
                CLUSTERS => {
                    if let Some(Some((_, known))) = clusters.get_mut(place) {
                        known.warnings.push(kept);
                    }
                }
                ROUTES => drop(tables.get_mut(place).and_then(Option::take)),
                _ => {}
            }
        }
        let known = |entries: Vec<Option<_>>| entries.into_iter().flatten().collect();
        Entries { sections: [clusters, tables].map(known), runtime: self.runtime }
    }
}

impl<'a, F> Former<'a, F> {
    fn cluster(&self, name: &str) -> Option<&'a Arc<Cluster>> {
        self.snapshot?.cluster(self.ids.cluster(name)?)
    }

    fn route_table(&self, name: &str) -> Option<&'a Arc<RouteTable>> {
        self.snapshot?.route_table(self.ids.route_table(name)?)
    }

    /// Whether a table says all by itself, and the clusters that it forwards to are there.
    fn has_clusters_of(&self, table: &RouteTable, declared: &Map<&str, ()>) -> bool {
        let Some(snapshot) = self.snapshot else { return false };
        let is_there = |forward: &Forward| match &forward.target {
            // Which clusters there are decides.
            Target::Named(_) => false,
            Target::Cluster(_) | Target::Shares(_) => forward.clusters().all(|id| {
                snapshot.cluster(id).is_some_and(|cluster| declared.contains_key(&*cluster.name))
            }),
        };
        table.error_pages.is_empty()
            && table.rules.iter().all(|rule| match &rule.action {
                Action::Forward(forward) => is_there(forward),
                Action::Respond(_) | Action::Redirect(_) => true,
            })
    }

    /// The file, of which the unchanged entries are the former ones.
    ///
    /// # Errors
    ///
    /// What a type does not accept, and where.
    pub(crate) fn read_file(&self, root: &mut Node) -> Result<file::File, Mismatch> {
        let clusters = take_items(root, CLUSTERS);
        let routes = take_items(root, ROUTES);
        let file = tree::deserialize::<file::File>(root);
        let read = file.and_then(|file| {
            let cluster = |name: &str| self.cluster(name).map(|it| Arc::clone(&it.source));
            let table = |name: &str| self.route_table(name).map(|it| Arc::clone(&it.source));
            Ok(file::File {
                clusters: read_entries(&clusters, cluster)?,
                routes: read_entries(&routes, table)?,
                ..file
            })
        });
        put_items(root, CLUSTERS, clusters);
        put_items(root, ROUTES, routes);
        read
    }
}

fn read_entries<T: serde::de::DeserializeOwned>(
    items: &[Node],
    former: impl Fn(&str) -> Option<Arc<T>>,
) -> Result<Vec<Arc<T>>, Mismatch> {
    let items = items.iter().filter(|item| !item.is_cut());
    let read = items.map(|item| {
        let known = item.find("name").and_then(Node::text).filter(|_| item.is_known);
        match known.and_then(&former) {
            Some(former) => Ok(former),
            None => tree::deserialize(item)
                .map(Arc::new)
                .map_err(|mismatch| Mismatch { at: mismatch.at.or(Some(item.at)), ..mismatch }),
        }
    });
    read.collect()
}

/// The entries of a section, if it is a list.
fn items_mut<'n>(root: &'n mut Node, section: &str) -> &'n mut [Node] {
    list_mut(root, section).map_or(&mut [], Vec::as_mut_slice)
}

fn list_mut<'n>(root: &'n mut Node, section: &str) -> Option<&'n mut Vec<Node>> {
    let Value::Map(entries) = &mut root.value else { return None };
    let entry = entries.iter_mut().find(|entry| &*entry.key == section)?;
    match &mut entry.value.value {
        Value::List(items) => Some(items),
        Value::Map(_) | Value::Scalar { .. } | Value::Cut => None,
    }
}

fn take_items(root: &mut Node, section: &str) -> Vec<Node> {
    list_mut(root, section).map(std::mem::take).unwrap_or_default()
}

fn put_items(root: &mut Node, section: &str, items: Vec<Node>) {
    if let Some(list) = list_mut(root, section) {
        *list = items;
    }
}

/// Of what stands in a node, wherever that is.
fn digest(node: &Node) -> u64 {
    let mut hasher = STATE.build_hasher();
    write(node, &mut hasher);
    hasher.finish()
}

fn write(node: &Node, hasher: &mut impl std::hash::Hasher) {
    match &node.value {
        Value::Scalar { text, is_plain } => {
            hasher.write_u8(u8::from(*is_plain));
            write_text(text, hasher);
        }
        Value::List(items) => {
            hasher.write_u8(2);
            hasher.write_usize(items.len());
            items.iter().for_each(|item| write(item, hasher));
        }
        Value::Map(entries) => {
            hasher.write_u8(3);
            hasher.write_usize(entries.len());
            for entry in entries {
                write_text(&entry.key, hasher);
                write(&entry.value, hasher);
            }
        }
        Value::Cut => hasher.write_u8(4),
    }
    if node.is_stand_in {
        hasher.write_u8(5);
    }
}

fn write_text(text: &str, hasher: &mut impl std::hash::Hasher) {
    hasher.write_usize(text.len());
    hasher.write(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use crate::load::Loader;
    use crate::resource::filter::FilterKinds;

    const TEXT: &str = "
listeners: [{ name: edge, address: '127.0.0.1:1', routes: [shop, any, bare] }]
routes:
- { name: shop, hosts: [a.example], rules: [{ match: { prefix: / }, cluster: web }] }
- { name: any, rules: [{ match: { prefix: / }, cluster_header: x-cluster }] }
- name: bare
  hosts: [b.example]
  rules: [{ match: { prefix: / }, cluster: api, upgrades: [websocked] }]
clusters:
- { name: web, endpoints: ['10.0.0.1:80'] }
- { name: api, endpoints: ['10.0.0.1:80'] }
- { name: own, endpoints: ['db.internal:80'] }
";

    #[test]
    fn entries_are_known_again_unless_something_else_decides_about_them() {
        let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
        assert_eq!(loader.known(TEXT), [""; 0], "nothing was lowered yet");
        loader.load("f", TEXT).unwrap();
        // Of the others, one may name any cluster, and one looks like a mistake.
        assert_eq!(loader.known(TEXT), ["web", "api", "own", "shop"]);
        for (from, to, known) in [
            // Where and how it is written is nothing.
            ("listeners:", "# more\n\nlisteners:", &["web", "api", "own", "shop"][..]),
            (
                "{ name: web, endpoints: ['10.0.0.1:80'] }",
                "name: \"web\"\n  endpoints:\n  - 10.0.0.1:80",
                &["api", "own", "shop"],
            ),
            (
                "- { name: api",
                "- { name: new, endpoints: [] }\n- { name: api",
                &["web", "api", "own", "shop"],
            ),
            (
                "name: web, endpoints: ['10.0.0.1:80']",
                "name: web, endpoints: ['10.0.0.2:80']",
                &["api", "own", "shop"],
            ),
            ("name: web, endpoints", "name: wide, endpoints", &["api", "own"]),
            ("cluster: web", "cluster: api", &["web", "api", "own"]),
        ] {
            let text = TEXT.replacen(from, to, 1);
            assert_ne!(text, TEXT);
            assert_eq!(loader.known(&text), known, "{to}");
        }
        // What was not kept leaves no trace.
        let other = TEXT.replace("10.0.0.1", "10.0.0.9");
        drop(loader.prepare("f", &other, &crate::outside::Memory::default()).unwrap());
        assert_eq!(loader.known(TEXT), ["web", "api", "own", "shop"]);
    }
}
