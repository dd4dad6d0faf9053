//! Which phase of a request calls which.
//!
//! Methods of `Proxy` stand in a folder for each phase. The table in the documentation of `proxy.rs` says
//! which others each phase calls, and this check compares it with the calls. A method that is
//! `pub(in crate::proxy)` has to be called from outside its phase, so that this visibility says what a
//! phase offers. What a call is: see [`circles`](super::circles).

use std::collections::{BTreeMap, BTreeSet};

use super::circles::{called, impl_blocks, words};
use super::layers::quoted;
use super::{Finding, Tree};

/// The type whose methods stand in phases.
const OF: &str = "Proxy";
/// The file whose documentation has the table.
const PAGE: &str = "crates/proxy/src/proxy.rs";
const HEADING: &str = "//! | phase | calls |";
/// The folder that has one for each phase.
const PHASES: &str = "crates/proxy/src/proxy/";

/// A phase ⇒ others that it calls.
type Calls<'t> = BTreeMap<&'t str, BTreeSet<&'t str>>;

/// Compares the table with the calls, both ways, and finds methods that are offered in vain.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.find(PAGE) else { return Vec::new() };
    let Some(table) = read_table(page) else {
        return vec![Finding::new(PAGE, format!("has no table that begins with `{HEADING}`"))];
    };
    let files: Vec<File<'_>> = tree.ending(".rs").filter_map(File::read).collect();
    let methods: BTreeMap<&str, Method<'_>> = files.iter().flat_map(File::methods).collect();
    let (mut calls, mut offered) = (Calls::new(), BTreeSet::new());
    for file in &files {
        calls
            .extend(file.phase.filter(|it| !calls.contains_key(it)).map(|it| (it, <_>::default())));
        for name in called(&file.words, OF) {
            let Some(method) = methods.get(name).filter(|it| it.phase != file.phase) else {
                continue;
            };
            offered.insert(name);
            if let (Some(from), Some(to)) = (file.phase, method.phase) {
                calls.entry(from).or_default().insert(to);
            }
        }
    }
    let phases: BTreeSet<&str> = table.keys().chain(calls.keys()).copied().collect();
    let differing = phases.into_iter().filter(|phase| table.get(phase) != calls.get(phase));
    let differing = differing.map(|phase| {
        let called = calls.get(phase).into_iter().flatten();
        let called: Vec<String> = called.map(|other| format!("`{other}`")).collect();
        let text = format!("in the table of phases, `{phase}` has to call {}", called.join(", "));
        Finding::new(PAGE, text)
    });
    let in_vain = methods.iter().filter(|(name, method)| {
        method.phase.is_some() && method.is_offered && !offered.contains(*name)
    });
    let in_vain = in_vain.map(|(name, method)| {
        let text = format!("only its own phase calls `{name}`: `pub(super)` is enough");
        Finding::new(method.file, text)
    });
    differing.chain(in_vain).collect()
}

/// The rows of the table. Names stand in backquotes.
fn read_table(page: &str) -> Option<Calls<'_>> {
    let mut lines = page.lines().skip_while(|line| !line.starts_with(HEADING));
    lines.next()?;
    let rows = lines.map_while(|line| line.strip_prefix("//! |")).filter_map(|row| {
        let mut cells = row.split('|');
        Some((quoted(cells.next()?).next()?, quoted(cells.next()?).collect()))
    });
    Some(rows.collect())
}

/// The methods of one file.
#[derive(Debug)]
struct File<'t> {
    name: &'t str,
    /// The folder that it is in, if that is a phase's.
    phase: Option<&'t str>,
    words: Vec<&'t str>,
}

#[derive(Clone, Copy, Debug)]
struct Method<'t> {
    file: &'t str,
    phase: Option<&'t str>,
    /// Whether it is for other phases, and for nothing beside them.
    is_offered: bool,
}

impl<'t> File<'t> {
    fn read((name, source): (&'t str, &'t str)) -> Option<Self> {
        let below = name.strip_prefix(PHASES);
        if below.is_none() && name != PAGE {
            return None;
        }
        let phase = below.and_then(|below| below.split_once('/')).map(|(phase, _)| phase);
        Some(Self { name, phase, words: impl_blocks(&words(source), OF).concat() })
    }

    fn methods(&self) -> impl Iterator<Item = (&'t str, Method<'t>)> {
        let pairs = self.words.windows(2).enumerate();
        pairs.filter_map(|(place, pair)| match pair {
            ["fn", name] => {
                let before = self.words.get(..place).unwrap_or_default();
                let is_offered = before.ends_with(&["in", "crate", "::", "proxy", ")"]);
                Some((*name, Method { file: self.name, phase: self.phase, is_offered }))
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(table: &str, left: &str, right: &str) -> Vec<String> {
        let page = format!("{HEADING} where |\n//! |---|---|---|\n{table}\n\nuse a::b;\n");
        let left = format!("impl Proxy {{ pub(super) fn a(&mut self) {{ {left} }} }}");
        let right = format!("impl Proxy {{ {right} fn b(&mut self) {{}} }}");
        let tree = Tree::of(&[
            (PAGE, &page),
            ("crates/proxy/src/proxy/left/a.rs", &left),
            ("crates/proxy/src/proxy/right/b.rs", &right),
        ]);
        check(&tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn the_table_has_all_calls_and_no_others() {
        const OFFERED: &str = "pub(in crate::proxy)";
        let with_call = "//! | `left` | `right` | a `word` |\n//! | `right` | | |";
        let without_call = "//! | `left` | | |\n//! | `right` | | |";
        assert!(found(with_call, "self.b();", OFFERED).is_empty());
        assert!(found(without_call, "", "pub(super)").is_empty());
        assert_eq!(
            found(without_call, "self.b();", OFFERED),
            ["crates/proxy/src/proxy.rs: in the table of phases, `left` has to call `right`"]
        );
        assert_eq!(found(with_call, "", "").len(), 1);
        assert_eq!(found("//! | `left` | `right` | |", "self.b();", OFFERED).len(), 1);
    }

    #[test]
    fn what_a_phase_offers_is_called_by_another() {
        let table = "//! | `left` | | |\n//! | `right` | | |";
        assert_eq!(
            found(table, "", "pub(in crate::proxy)"),
            ["crates/proxy/src/proxy/right/b.rs: only its own phase calls `b`: \
              `pub(super)` is enough"]
        );
        assert!(found(table, "", "pub(crate)").is_empty());
    }
}
