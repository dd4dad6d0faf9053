//! Path ⇒ the first rule that matches, at a cost that does not depend on the number of rules.
//!
//! A radix tree over the bytes of all paths, exact ones and prefixes alike, is walked once along
//! the request's path. Each node knows the rules whose prefix ends there and those whose exact path
//! ends there; the least index met on the way is the first rule of the file that matches. It is
//! *not* the longest prefix that wins, but the order of the file, as in Envoy. A rule that asks for
//! more than a path is passed over by walking again, for the first behind it.

use crate::snapshot::{PathMatch, Rule};

/// Index over the paths of a route table's rules.
///
/// ```text
/// prefix /            (rule 2)      ""  ─ "/" ─┬─ "api" ─┬─ "/"      prefixes: 0
/// prefix /api/        (rule 0)                 │ (no rule)└─ "x"     exacts: 1
/// exact  /apix        (rule 1)                 └ prefixes: 2
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathTable {
    /// The root is the first; a node's children stand next to each other.
    nodes: Vec<Node>,
    /// The labels of all nodes, one after the other.
    labels: Vec<u8>,
    /// The rules of all nodes, one after the other: a node's prefixes, then its exact paths, each
    /// in the order of the file.
    rules: Vec<u32>,
    /// The rules for `*`, the target of a server-wide OPTIONS.
    asterisk: Vec<u32>,
}

/// One node of the radix tree. Offsets are 32 bits wide: a cache line holds two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    label_start: u32,
    label_end: u32,
    children_start: u32,
    children_end: u32,
    prefixes_start: u32,
    exacts_start: u32,
    exacts_end: u32,
}

impl PathTable {
    /// Builds the index over `rules`. Rules and bytes beyond the 32nd bit of a count are not
    /// indexed; the bound on a file's size is far below that.
    #[must_use]
    pub fn new(rules: &[Rule]) -> Self {
        Self::of(rules.iter().zip(0..))
    }

    /// The same over some of them, under their places among all.
    pub(crate) fn of<'a>(rules: impl Iterator<Item = (&'a Rule, u32)> + Clone) -> Self {
        let paths = rules.map(|(rule, place)| (&rule.path, place));
        let entry = |(path, rule): (&'a PathMatch, u32)| match path {
            PathMatch::Exact(text) => Entry { text: text.as_bytes(), rule, is_prefix: false },
            PathMatch::Prefix(text) => Entry { text: text.as_bytes(), rule, is_prefix: true },
        };
        let mut sorted: Vec<Entry<'_>> = paths.clone().map(entry).collect();
        sorted.sort_by_key(|entry| (entry.text, !entry.is_prefix));
        let asterisk = paths.filter(|(path, _)| path.matches(b"*")).map(|(_, rule)| rule).collect();
        let mut table = Self { nodes: Vec::new(), labels: Vec::new(), rules: Vec::new(), asterisk };
        table.nodes.push(Node::new(&[], 0));
        table.fill(&sorted);
        table
    }

    /// The index of the first rule that matches `path`, which is normalised and has no query.
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<usize> {
        self.find_from(path, 0)
    }

    /// The index of the first that matches `path` among the rules from this index on.
    #[must_use]
    pub fn find_from(&self, path: &[u8], from: usize) -> Option<usize> {
        let from = u32::try_from(from).ok()?;
        if path == b"*" {
            return first_from(&self.asterisk, from).map(index);
        }
        let (first_prefix, last) = self.walk(path, from);
        let exacts = last.map(|node| self.rules(node.exacts_start, node.exacts_end));
        let first_exact = exacts.and_then(|exacts| first_from(exacts, from));
        least(first_prefix, first_exact).map(index)
    }

    /// The index of the first rule whose *prefix* matches `path`.
    #[must_use]
    pub(crate) fn find_prefix(&self, path: &[u8]) -> Option<usize> {
        self.walk(path, 0).0.map(index)
    }

    /// Follows `path` from the root: the least rule among the prefixes met, of those from this
    /// index on, and the node at which the whole of `path` ends, if there is one.
    fn walk(&self, path: &[u8], from: u32) -> (Option<u32>, Option<&Node>) {
        let mut first_prefix = None;
        let mut rest = path;
        let mut node = self.nodes.first();
        while let Some(here) = node {
            let prefixes = self.rules(here.prefixes_start, here.exacts_start);
            first_prefix = least(first_prefix, first_from(prefixes, from));
            let Some(byte) = rest.first() else { return (first_prefix, node) };
            node = self.child(here, *byte);
            match node.and_then(|child| rest.strip_prefix(self.label(child))) {
                Some(shorter) => rest = shorter,
                None => return (first_prefix, None),
            }
        }
        (first_prefix, None)
    }

    fn child(&self, node: &Node, byte: u8) -> Option<&Node> {
        let children = self.nodes.get(index(node.children_start)..index(node.children_end))?;
        let first = |child: &Node| self.labels.get(index(child.label_start)).copied();
        let place = children.binary_search_by_key(&Some(byte), first).ok()?;
        children.get(place)
    }

    fn label(&self, node: &Node) -> &[u8] {
        self.labels.get(index(node.label_start)..index(node.label_end)).unwrap_or_default()
    }

    fn rules(&self, start: u32, end: u32) -> &[u32] {
        self.rules.get(index(start)..index(end)).unwrap_or_default()
    }

    /// Makes the tree below the root from `sorted`. Works off a list instead of calling itself:
    /// a tree may be as deep as its longest path.
    fn fill(&mut self, sorted: &[Entry<'_>]) {
        let mut pending = vec![(0, sorted, 0)];
        while let Some((place, entries, depth)) = pending.pop() {
            // Sorted: those that end here come first.
            let ends = entries.partition_point(|entry| entry.text.len() == depth);
            let (here, below) = entries.split_at(ends);
            let prefixes_start = self.rules.len();
            self.rules.extend(here.iter().map(|entry| entry.rule));
            let prefixes = here.partition_point(|entry| entry.is_prefix);
            let children_start = self.nodes.len();
            for group in below.chunk_by(|a, b| a.text.get(depth) == b.text.get(depth)) {
                let common = common_len(group);
                let label = group.first().and_then(|entry| entry.text.get(depth..common));
                let label_start = self.labels.len();
                self.labels.extend_from_slice(label.unwrap_or_default());
                pending.push((self.nodes.len(), group, common));
                self.nodes.push(Node::new(
                    self.labels.get(label_start..).unwrap_or_default(),
                    label_start,
                ));
            }
            let children_end = self.nodes.len();
            if let Some(node) = self.nodes.get_mut(place) {
                node.children_start = offset(children_start);
                node.children_end = offset(children_end);
                node.prefixes_start = offset(prefixes_start);
                node.exacts_start = offset(prefixes_start.saturating_add(prefixes));
                node.exacts_end = offset(prefixes_start.saturating_add(ends));
            }
        }
    }
}

impl Node {
    fn new(label: &[u8], start: usize) -> Self {
        Self {
            label_start: offset(start),
            label_end: offset(start.saturating_add(label.len())),
            children_start: 0,
            children_end: 0,
            prefixes_start: 0,
            exacts_start: 0,
            exacts_end: 0,
        }
    }
}

/// One path while the tree is built.
struct Entry<'a> {
    text: &'a [u8],
    rule: u32,
    is_prefix: bool,
}

/// Bytes that all texts of `sorted` begin with. The first and the last differ most.
fn common_len(sorted: &[Entry<'_>]) -> usize {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return 0 };
    first.text.iter().zip(last.text).take_while(|(a, b)| a == b).count()
}

/// The least that is not below `from`, of a list in order.
fn first_from(rules: &[u32], from: u32) -> Option<u32> {
    let before = rules.partition_point(|rule| *rule < from);
    rules.get(before).copied()
}

fn least(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, None) => a,
        (None, b) => b,
    }
}

const fn index(offset: u32) -> usize {
    offset as usize
}

/// The bound on a file's size keeps every count far below 2^32.
fn offset(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl PathMatch {
    /// Whether `path`, which is normalised and has no query, is matched.
    ///
    /// This is the meaning of a rule's path; [`PathTable`] is the same for many rules at once.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(text) => text.as_bytes() == path,
            // `OPTIONS *` asks the server as a whole, which is what `/` stands for.
            Self::Prefix(text) if path == b"*" => text.as_ref() == "/",
            Self::Prefix(text) => path.starts_with(text.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clients::ClientMatch;
    use crate::snapshot::{Action, Respond};

    fn rules(paths: &[PathMatch]) -> Vec<Rule> {
        let respond = Respond { status: 200, body: [].into(), fields: Vec::new() };
        let action = Action::Respond(respond);
        let rule = |path: &PathMatch| Rule {
            path: path.clone(),
            client: ClientMatch::Anyone,
            action: action.clone(),
        };
        paths.iter().map(rule).collect()
    }

    fn exact(text: &str) -> PathMatch {
        PathMatch::Exact(text.into())
    }

    fn prefix(text: &str) -> PathMatch {
        PathMatch::Prefix(text.into())
    }

    #[test]
    fn the_first_rule_of_the_file_wins_not_the_longest() {
        let table = PathTable::new(&rules(&[
            exact("/healthz"),
            prefix("/api/"),
            prefix("/a"),
            prefix("/api/v2/"),
            exact("/a/b"),
        ]));
        for (path, rule) in [
            ("/healthz", Some(0)),
            ("/healthz/", None),
            ("/health", None),
            ("/api/", Some(1)),
            ("/api/v2/x", Some(1)),
            ("/api", Some(2)),
            ("/a/b", Some(2)),
            ("/b", None),
            ("/", None),
            ("", None),
            ("*", None),
        ] {
            assert_eq!(table.find(path.as_bytes()), rule, "{path:?}");
        }
    }

    #[test]
    fn the_asterisk_is_matched_by_itself_and_by_the_root_prefix_alone() {
        let table = PathTable::new(&rules(&[exact("/"), prefix("/a"), prefix("/"), exact("*")]));
        assert_eq!(table.find(b"*"), Some(2));
        let table = PathTable::new(&rules(&[exact("*"), prefix("/")]));
        assert_eq!(table.find(b"*"), Some(0));
        assert_eq!(table.find(b"/*"), Some(1));
    }

    #[test]
    fn an_empty_table_finds_nothing() {
        assert_eq!(PathTable::default().find(b"/"), None);
        assert_eq!(PathTable::new(&[]).find(b"/"), None);
        assert_eq!(PathTable::new(&[]).find(b"*"), None);
    }

    #[test]
    fn a_chain_of_ever_longer_prefixes_needs_no_stack() {
        let texts: Vec<String> = (1..5_000).map(|len| format!("/{}", "a".repeat(len))).collect();
        let paths: Vec<PathMatch> = texts.iter().rev().map(|text| prefix(text)).collect();
        let table = PathTable::new(&rules(&paths));
        assert_eq!(table.find(b"/a"), Some(paths.len() - 1));
        assert_eq!(table.find(format!("/{}", "a".repeat(6_000)).as_bytes()), Some(0));
    }

    fn path() -> impl Strategy<Value = String> {
        // Few letters, so that texts share beginnings.
        prop_oneof![9 => "/[ab/]{0,6}", 1 => Just(String::from("*"))]
    }

    fn path_match() -> impl Strategy<Value = PathMatch> {
        (path(), any::<bool>()).prop_map(
            |(text, is_exact)| {
                if is_exact { exact(&text) } else { prefix(&text) }
            },
        )
    }

    proptest! {
        #[test]
        fn the_index_finds_what_a_scan_of_the_rules_finds(
            paths in proptest::collection::vec(path_match(), 0..24),
            asked in proptest::collection::vec(path(), 1..16),
        ) {
            let rules = rules(&paths);
            let table = PathTable::new(&rules);
            for path in &asked {
                let matches = |place: &usize| rules[*place].path.matches(path.as_bytes());
                for from in 0..=rules.len() {
                    let scanned = (from..rules.len()).find(matches);
                    prop_assert_eq!(table.find_from(path.as_bytes(), from), scanned, "{:?}", path);
                }
            }
        }
    }
}
