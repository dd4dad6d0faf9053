//! A radix tree over the texts of paths: one walk along a path meets every rule that it may match.

use super::Indexed;
use crate::resource::route::matching::{Case, PathKind, PathMatch};

/// The tree of the texts of one case.
///
/// ```text
/// prefix /            (rule 2)      ""  ─ "/" ─┬─ "api" ─┬─ "/"      prefixes: 0
/// prefix /api/        (rule 0)                 │ (no rule)└─ "x"     exacts: 1
/// exact  /apix        (rule 1)                 └ prefixes: 2
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// The root is the first; a node's children stand next to each other.
    nodes: Vec<Node>,
    /// The labels of all nodes, one after the other. In lower case, if case does not count.
    labels: Vec<u8>,
    /// The rules of all nodes, one after the other: a node's prefixes, then its segments, then its exact paths,
    /// each in the order of the file.
    rules: Vec<Indexed>,
    case: Case,
}

/// One node of the radix tree. Offsets are 32 bits wide: a cache line holds two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    label_start: u32,
    label_end: u32,
    children_start: u32,
    children_end: u32,
    prefixes_start: u32,
    segments_start: u32,
    exacts_start: u32,
    exacts_end: u32,
}

/// A path and its rules, in order, while the tree is built.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) text: Box<[u8]>,
    pub(super) kind: EntryKind,
    pub(super) rules: Vec<Indexed>,
}

/// Where at a node a rule stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum EntryKind {
    Prefix,
    Segments,
    Exact,
}

impl EntryKind {
    /// None for what no tree holds.
    pub(super) const fn of(path: &PathMatch) -> Option<Self> {
        match path.how {
            PathKind::Exact => Some(Self::Exact),
            PathKind::Prefix => Some(Self::Prefix),
            PathKind::Segments => Some(Self::Segments),
            PathKind::Regex(_) | PathKind::Template(..) => None,
        }
    }
}

impl Tree {
    /// The tree of `entries`, of which no two have text and kind in common.
    pub(super) fn new(mut entries: Vec<Entry>, case: Case) -> Self {
        entries.sort_by(|a, b| (&a.text, a.kind).cmp(&(&b.text, b.kind)));
        let mut tree =
            Self { nodes: vec![Node::new(0, 0)], labels: Vec::new(), rules: Vec::new(), case };
        tree.fill(&entries);
        tree
    }

    /// Shows the rules that match `path` by their texts to `see`, list by list.
    pub(super) fn walk(&self, path: &[u8], mut see: impl FnMut(&[Indexed])) {
        if let Some(last) = self.walk_below(path, &mut see) {
            // Each list is in the order of the file; both together are not.
            see(self.rules(last.segments_start, last.exacts_start));
            see(self.rules(last.exacts_start, last.exacts_end));
        }
    }

    /// The same for the rules that match every path which begins with `prefix`.
    pub(super) fn walk_prefix(&self, prefix: &[u8], mut see: impl FnMut(&[Indexed])) {
        self.walk_below(prefix, &mut see);
    }

    /// The same for the rules that match `path` and every path below it.
    pub(super) fn walk_segments(&self, path: &[u8], mut see: impl FnMut(&[Indexed])) {
        if let Some(last) = self.walk_below(path, &mut see) {
            see(self.rules(last.segments_start, last.exacts_start));
        }
    }

    /// Follows `path` from the root; returns the node at which the whole of it ends, of which only the prefixes were
    /// shown, if there is one.
    fn walk_below(&self, path: &[u8], see: &mut impl FnMut(&[Indexed])) -> Option<&Node> {
        let mut rest = path;
        let mut node = self.nodes.first();
        while let Some(here) = node {
            see(self.rules(here.prefixes_start, here.segments_start));
            let Some(byte) = rest.first() else { return node };
            if *byte == b'/' && here.segments_start != here.exacts_start {
                see(self.rules(here.segments_start, here.exacts_start));
            }
            node = self.child(here, *byte);
            rest = node.and_then(|child| self.behind(rest, self.label(child)))?;
        }
        None
    }

    /// What stands behind `label` in `path`, if it begins so.
    fn behind<'p>(&self, path: &'p [u8], label: &[u8]) -> Option<&'p [u8]> {
        if self.case == Case::Sensitive {
            return path.strip_prefix(label);
        }
        let (start, rest) = path.split_at_checked(label.len())?;
        start.eq_ignore_ascii_case(label).then_some(rest)
    }

    fn child(&self, node: &Node, byte: u8) -> Option<&Node> {
        let byte = if self.case == Case::Sensitive { byte } else { byte.to_ascii_lowercase() };
        let children = self.nodes.get(index(node.children_start)..index(node.children_end))?;
        let first = |child: &Node| self.labels.get(index(child.label_start)).copied();
        let place = children.binary_search_by_key(&Some(byte), first).ok()?;
        children.get(place)
    }

    fn label(&self, node: &Node) -> &[u8] {
        self.labels.get(index(node.label_start)..index(node.label_end)).unwrap_or_default()
    }

    fn rules(&self, start: u32, end: u32) -> &[Indexed] {
        self.rules.get(index(start)..index(end)).unwrap_or_default()
    }

    /// Makes the tree below the root from `sorted`. Works off a list instead of calling itself:
    /// a tree may be as deep as its longest path.
    fn fill(&mut self, sorted: &[Entry]) {
        let mut pending = vec![(0, sorted, 0)];
        while let Some((place, entries, depth)) = pending.pop() {
            // Sorted: those that end here come first.
            let ends = entries.partition_point(|entry| entry.text.len() == depth);
            let (here, below) = entries.split_at(ends);
            let prefixes_start = self.rules.len();
            let [segments_start, exacts_start, exacts_end] =
                [EntryKind::Prefix, EntryKind::Segments, EntryKind::Exact].map(|kind| {
                    let of_kind = here.iter().filter(|entry| entry.kind == kind);
                    self.rules.extend(of_kind.flat_map(|entry| &entry.rules));
                    self.rules.len()
                });
            let children_start = self.nodes.len();
            for group in below.chunk_by(|a, b| a.text.get(depth) == b.text.get(depth)) {
                let common = common_len(group);
                let label = group.first().and_then(|entry| entry.text.get(depth..common));
                let label_start = self.labels.len();
                self.labels.extend_from_slice(label.unwrap_or_default());
                pending.push((self.nodes.len(), group, common));
                self.nodes.push(Node::new(label_start, self.labels.len()));
            }
            let children_end = self.nodes.len();
            if let Some(node) = self.nodes.get_mut(place) {
                node.children_start = offset(children_start);
                node.children_end = offset(children_end);
                node.prefixes_start = offset(prefixes_start);
                node.segments_start = offset(segments_start);
                node.exacts_start = offset(exacts_start);
                node.exacts_end = offset(exacts_end);
            }
        }
    }
}

impl Node {
    fn new(label_start: usize, label_end: usize) -> Self {
        Self {
            label_start: offset(label_start),
            label_end: offset(label_end),
            children_start: 0,
            children_end: 0,
            prefixes_start: 0,
            segments_start: 0,
            exacts_start: 0,
            exacts_end: 0,
        }
    }
}

/// Bytes that all texts of `sorted` begin with. The first and the last differ most.
fn common_len(sorted: &[Entry]) -> usize {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return 0 };
    first.text.iter().zip(&last.text).take_while(|(a, b)| a == b).count()
}

const fn index(offset: u32) -> usize {
    offset as usize
}

/// The bound on a file's size keeps every count far below 2^32.
fn offset(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
