//! A request ⇒ the first rule that it meets, at a cost that does not depend on the number of rules.
//!
//! A radix tree over the bytes of all paths, exact ones, prefixes and segments alike, is walked once along
//! the request's path; the least index met on the way is the first rule of the file that matches. It is
//! *not* the longest prefix that wins, but the order of the file, as in Envoy. A rule that asks for
//! more than a path is asked where it is met, unless one before it matches already: one walk finds
//! the first rule, however many are passed over. Those that one value tells apart are looked up by it. Regular
//! expressions and templates are searched together, and not at all where a rule before all of them matches.

mod lookup;
mod tree;

use std::sync::Arc;

use crate::map::Map;
use crate::resource::route::matching::{Asked, Case, PathKind, PathMatch, Regexes, Searches};
use crate::resource::route::rule::Rule;

use lookup::Lookup;
use tree::{Entry, EntryKind, Tree};

/// Index over the rules of a route table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTable {
    sensitive: Tree,
    /// None if case counts for all rules.
    insensitive: Option<Tree>,
    /// The rules for `*`, the target of a server-wide OPTIONS.
    asterisk: Vec<Indexed>,
    lookups: Vec<Lookup>,
    /// The regular expressions of paths.
    regexes: Arc<Regexes>,
    /// The rules of each expression, in order.
    of_regexes: Vec<Vec<Indexed>>,
    /// The place of the first rule of them all.
    first_of_regexes: u32,
}

/// A rule's place or a look-up's, and in the top bits which: whether the rule asks for more than a path, since the index
/// alone decides about the other ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Indexed(u32);

impl Indexed {
    const ASKS_MORE: u32 = 1 << 31;
    const LOOKUP: u32 = 1 << 30;

    fn new(place: u32, rule: &Rule) -> Self {
        Self(if rule.also.is_empty() { place } else { place | Self::ASKS_MORE })
    }

    /// The look-up at this place among those of the table.
    const fn lookup(place: u32) -> Self {
        Self(place | Self::ASKS_MORE | Self::LOOKUP)
    }

    const fn place(self) -> u32 {
        self.0 & !(Self::ASKS_MORE | Self::LOOKUP)
    }

    const fn asks_more(self) -> bool {
        self.0 & Self::ASKS_MORE != 0
    }

    const fn is_lookup(self) -> bool {
        self.0 & Self::LOOKUP != 0
    }

    fn rule(self, rules: &[Rule]) -> Option<&Rule> {
        if self.is_lookup() { None } else { rules.get(index(self.place())) }
    }

    /// No rule that it stands for is before this place.
    fn lower_bound(self, lookups: &[Lookup]) -> u32 {
        if !self.is_lookup() {
            return self.place();
        }
        lookups.get(index(self.place())).map_or(u32::MAX, |lookup| lookup.first)
    }
}

impl PathTable {
    /// Builds the index over `rules`, whose regular expressions for paths are `regexes`. Rules beyond the 30th bit of
    /// a count are not indexed; the bound on a file's size is far below that.
    #[must_use]
    pub fn new(rules: &[Rule], regexes: Arc<Regexes>) -> Self {
        let mut groups: Map<GroupKey, Vec<Indexed>> = Map::default();
        let mut of_regexes: Vec<Vec<Indexed>> = vec![Vec::new(); regexes.len()];
        let mut asterisk = Vec::new();
        for (rule, place) in rules.iter().zip(0..Indexed::LOOKUP) {
            let indexed = Indexed::new(place, rule);
            if is_for_asterisk(&rule.path) {
                asterisk.push(indexed);
            }
            match (&rule.path.how, EntryKind::of(&rule.path)) {
                (_, Some(kind)) => {
                    let key = (rule.path.case, kind, text_of(&rule.path));
                    groups.entry(key).or_default().push(indexed);
                }
                (PathKind::Regex(at) | PathKind::Template(at, _), _) => {
                    of_regexes.get_mut(index(*at)).into_iter().for_each(|list| list.push(indexed));
                }
                (_, None) => {}
            }
        }
        let first_of_regexes = of_regexes.iter().flatten().map(|it| it.place()).min();
        let mut lookups = Vec::new();
        // In a fixed order, so that one file gives one index.
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|(a, _), (b, _)| a.cmp(b));
        let lists = groups.iter_mut().map(|(_, list)| list);
        for list in lists.chain(&mut of_regexes).chain([&mut asterisk]) {
            lookup::gather(list, rules, &mut lookups);
        }
        let mut of_case = |case: Case| -> Vec<Entry> {
            let of_case = groups.extract_if(.., |((of, ..), _)| *of == case);
            of_case.map(|((_, kind, text), rules)| Entry { text, kind, rules }).collect()
        };
        let insensitive = of_case(Case::Insensitive);
        Self {
            sensitive: Tree::new(of_case(Case::Sensitive), Case::Sensitive),
            insensitive: (!insensitive.is_empty())
                .then(|| Tree::new(insensitive, Case::Insensitive)),
            asterisk,
            lookups,
            regexes,
            of_regexes,
            first_of_regexes: first_of_regexes.unwrap_or(u32::MAX),
        }
    }

    /// The regular expressions of paths.
    #[must_use]
    pub const fn regexes(&self) -> &Arc<Regexes> {
        &self.regexes
    }

    /// The index of the first of `rules`, of which this is the index, that a request meets. `values` are the regular
    /// expressions for its values, `searches` the worker's.
    pub fn find(
        &self,
        rules: &[Rule],
        asked: &Asked<'_>,
        values: &Arc<Regexes>,
        searches: &mut Searches,
    ) -> Option<usize> {
        let asking = Some(Asking { rules, asked, values });
        self.first(asked.head.path(), First { place: u32::MAX, asking, table: self, searches })
    }

    /// The index of the first rule that matches `path`, of those that ask for nothing more.
    #[must_use]
    pub fn find_plain(&self, path: &[u8]) -> Option<usize> {
        self.first(path, First::plain(self, &mut Searches::default()))
    }

    /// The index of the first rule that matches all that `path` matches, of those that ask for nothing more; as far
    /// as that can be decided.
    #[must_use]
    pub(crate) fn find_covering(&self, path: &PathMatch) -> Option<usize> {
        let mut searches = Searches::default();
        let mut first = First::plain(self, &mut searches);
        let trees =
            [(path.case == Case::Sensitive).then_some(&self.sensitive), self.insensitive.as_ref()];
        for tree in trees.into_iter().flatten() {
            match path.how {
                PathKind::Exact if path.case == Case::Sensitive => {
                    return self.find_plain(path.text.as_bytes());
                }
                PathKind::Exact => tree.walk(path.text.as_bytes(), |rules| first.see(rules)),
                PathKind::Prefix => {
                    tree.walk_prefix(path.text.as_bytes(), |rules| first.see(rules));
                }
                PathKind::Segments => {
                    tree.walk_segments(path.text.as_bytes(), |rules| first.see(rules));
                }
                // What they match begins with a slash at least.
                PathKind::Regex(_) | PathKind::Template(..) => {
                    tree.walk_prefix(b"/", |rules| first.see(rules));
                }
            }
        }
        first.found()
    }

    /// The index of the first rule for which case does not count that matches all that `path` matches, of those that
    /// ask for nothing more.
    pub(crate) fn find_in_any_case(&self, path: &PathMatch) -> Option<usize> {
        let any_case = PathMatch { case: Case::Insensitive, ..path.clone() };
        self.insensitive.as_ref().and_then(|_| self.find_covering(&any_case))
    }

    fn first(&self, path: &[u8], mut first: First<'_>) -> Option<usize> {
        if path == b"*" {
            first.see(&self.asterisk);
        } else {
            self.sensitive.walk(path, |rules| first.see(rules));
            if let Some(tree) = &self.insensitive {
                tree.walk(path, |rules| first.see(rules));
            }
        }
        if self.first_of_regexes < first.place {
            self.search(path, &mut first);
        }
        first.found()
    }

    fn search(&self, path: &[u8], first: &mut First<'_>) {
        let Some(found) = first.searches.search(&self.regexes, path) else { return };
        for pattern in found.iter() {
            first.see(self.of_regexes.get(pattern.as_usize()).map_or(&[][..], |rules| rules));
        }
        first.searches.give_back(&self.regexes, found);
    }
}

/// What rules of one group have in common: the text of their path, and how it is compared.
type GroupKey = (Case, EntryKind, Box<[u8]>);

/// Whether a rule is for `*`, which is no path that a tree holds.
fn is_for_asterisk(path: &PathMatch) -> bool {
    match path.how {
        PathKind::Exact => *path.text == *"*",
        // `OPTIONS *` asks the server as a whole, which is what `/` stands for.
        PathKind::Prefix => *path.text == *"/",
        PathKind::Segments | PathKind::Regex(_) | PathKind::Template(..) => false,
    }
}

fn text_of(path: &PathMatch) -> Box<[u8]> {
    let mut text: Box<[u8]> = path.text.as_bytes().into();
    if path.case == Case::Insensitive {
        text.make_ascii_lowercase();
    }
    text
}

/// The first rule that was found so far.
struct First<'f> {
    /// Its place; beyond all places if there is none.
    place: u32,
    /// None if only rules count that ask for nothing but a path.
    asking: Option<Asking<'f>>,
    table: &'f PathTable,
    searches: &'f mut Searches,
}

/// What rules that ask for more are judged by.
#[derive(Clone, Copy)]
struct Asking<'f> {
    rules: &'f [Rule],
    asked: &'f Asked<'f>,
    values: &'f Arc<Regexes>,
}

impl<'f> First<'f> {
    fn plain(table: &'f PathTable, searches: &'f mut Searches) -> Self {
        Self { place: u32::MAX, asking: None, table, searches }
    }

    /// Takes the first of `list`, which stands in order, if it is before the one that was found.
    fn see(&mut self, list: &[Indexed]) {
        for entry in list {
            if !entry.asks_more() {
                self.place = self.place.min(entry.place());
                return;
            }
            if entry.lower_bound(&self.table.lookups) >= self.place {
                return;
            }
            let Some(asking) = self.asking else { continue };
            if entry.is_lookup() {
                self.look_up(index(entry.place()), asking);
            } else if entry.rule(asking.rules).is_some_and(|rule| self.is_met(rule, asking)) {
                self.place = entry.place();
                return;
            }
        }
    }

    fn look_up(&mut self, place: usize, asking: Asking<'f>) {
        let Some(lookup) = self.table.lookups.get(place) else { return };
        let mut found = self.place;
        lookup.see(asking.asked, self.searches, |list, searches| {
            let before = list.iter().take_while(|entry| entry.place() < found);
            let mut before = before.filter_map(|entry| Some((entry, entry.rule(asking.rules)?)));
            let met = before.find(|(_, rule)| rule.meets(asking.asked, asking.values, searches));
            found = met.map_or(found, |(entry, _)| entry.place());
        });
        self.place = found;
    }

    fn is_met(&mut self, rule: &Rule, asking: Asking<'f>) -> bool {
        rule.meets(asking.asked, asking.values, self.searches)
    }

    fn found(&self) -> Option<usize> {
        (self.place != u32::MAX).then(|| index(self.place))
    }
}

const fn index(offset: u32) -> usize {
    offset as usize
}

#[cfg(test)]
mod tests;
