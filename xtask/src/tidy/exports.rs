//! Names that the root of a crate has for other crates alone.
//!
//! What `lib.rs` re-exports has a second path in its own crate: one to the place where it stands, and one past it. The crates in
//! [`CRATES`] use the first alone, so that each thing has one path within them, and so that circles of imports are seen
//! (`imports`). Tests are not looked at.

use std::collections::BTreeSet;

use super::circles::words;
use super::imports::{named_paths, read_tree, without_tests};
use super::{Finding, Tree};

const CRATES: [&str; 1] = ["crates/config/src/"];

/// Finds uses of what the root of its own crate re-exports.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    CRATES.into_iter().flat_map(|folder| find(tree, folder)).collect()
}

fn find(tree: &Tree, folder: &str) -> Vec<Finding> {
    let root = format!("{folder}lib.rs");
    let exports = tree.find(&root).map(|root| exports(&words(root))).unwrap_or_default();
    let mut findings = Vec::new();
    for (name, source) in tree.ending(".rs").filter(|(name, _)| name.starts_with(folder)) {
        let file = name.strip_prefix(folder).and_then(|name| name.strip_suffix(".rs"));
        let Some(file) = file.filter(|_| name != root) else { continue };
        let file: Vec<&str> = file.split('/').collect();
        for path in named_paths(&words(without_tests(source)), &file) {
            if let Some(first) = path.first().filter(|first| exports.contains(**first)) {
                let text = format!(
                    "names crate::{first}, which is for other crates; write the path to where it stands"
                );
                findings.push(Finding::new(name, text));
            }
        }
    }
    findings
}

/// The names that the root of a crate takes from its modules, without those that are modules there as well.
fn exports<'t>(words: &[&'t str]) -> BTreeSet<&'t str> {
    let mut names = BTreeSet::new();
    for (place, _) in words.iter().enumerate().filter(|(_, word)| **word == "use") {
        let Some(first) = words.get(place + 1) else { continue };
        let mut paths = Vec::new();
        let end = read_tree(words, place + 2, vec![first], &mut paths);
        match words.get(end..end + 2) {
            Some(["as", alias]) => names.extend([*alias]),
            _ => names.extend(paths.iter().filter_map(|path| last_name(path))),
        }
    }
    let modules = words.windows(2).filter(|pair| pair.first() == Some(&"mod"));
    let modules: BTreeSet<_> = modules.filter_map(|pair| pair.last()).collect();
    names.retain(|name| !modules.contains(name));
    names
}

/// What a path is called where it is used.
fn last_name<'t>(path: &[&'t str]) -> Option<&'t str> {
    path.iter().rev().find(|name| **name != "self").copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "mod deep;\npub mod flat;\npub use deep::{deep, well::{Water, self}};\n\
                        pub use deep::retry;\npub use deep::filter as filters;\nuse flat::Plate;";

    fn found(source: &str) -> Vec<String> {
        let tree = Tree::of(&[("src/lib.rs", ROOT), ("src/deep/user.rs", source)]);
        find(&tree, "src/").into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn names_of_the_root_are_found_wherever_they_are_used() {
        for (source, name) in [
            ("use crate::retry::Policy;", "retry"),
            ("fn f() { crate::retry::g() }", "retry"),
            ("use crate::{flat::Plate, Water};", "Water"),
            ("use crate::well::Water;", "well"),
            ("use crate::filters;", "filters"),
            ("use super::super::retry;", "retry"),
            ("use crate::Plate;", "Plate"),
        ] {
            let text = format!(
                "names crate::{name}, which is for other crates; write the path to where it stands"
            );
            assert_eq!(found(source), [text], "{source}");
        }
    }

    #[test]
    fn paths_to_where_a_thing_stands_are_tidy() {
        for source in [
            "use crate::deep::retry;",
            "use crate::deep::filter;",
            "use crate::flat::Plate;",
            "use crate::{deep::well::Water, flat};",
            "use super::retry;",
            "use other::retry;",
            "// crate::retry",
            "struct A;\n#[cfg(test)]\nmod tests { use crate::retry; }",
        ] {
            assert_eq!(found(source), [""; 0], "{source}");
        }
    }
}
