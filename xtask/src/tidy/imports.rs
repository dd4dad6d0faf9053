//! Files of a crate that import each other in a circle.
//!
//! Files in a circle cannot be read, moved or tested one without the others. A circle of a few is one
//! idea in several files; a large one is a crate without an order. A file imports another if it names
//! a path below `crate` or `super` that leads into it, in a `use` or elsewhere, outside its tests. A
//! module and those that it declares are files like others.

use std::collections::{BTreeMap, BTreeSet};

use super::circles::words;
use super::{Finding, Tree};

/// Files that may form a circle.
const CIRCLE_FILES_MAX: usize = 3;

/// A module's path below the crate's root, which is empty for the root itself.
pub(super) type Path<'t> = Vec<&'t str>;

/// Finds circles that are larger than they may be.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let sources: BTreeSet<&str> = tree
        .ending(".rs")
        .filter_map(|(name, _)| name.find("/src/").map(|place| &name[..place + "/src/".len()]))
        .collect();
    sources.into_iter().filter_map(|folder| find(tree, folder, CIRCLE_FILES_MAX)).collect()
}

fn find(tree: &Tree, folder: &str, files_max: usize) -> Option<Finding> {
    let circle = Imports::read(tree, folder).largest_circle();
    if circle.len() <= files_max {
        return None;
    }
    let names: Vec<String> = circle.iter().map(|path| path.join("/")).collect();
    let (count, names) = (circle.len(), names.join(", "));
    Some(Finding::new(
        folder,
        format!("{count} files import each other, and {files_max} may: {names}"),
    ))
}

/// The files of a crate, and which of them each imports.
#[derive(Debug, Default)]
struct Imports<'t>(BTreeMap<Path<'t>, BTreeSet<Path<'t>>>);

impl<'t> Imports<'t> {
    fn read(tree: &'t Tree, folder: &str) -> Self {
        let files: BTreeMap<Path<'t>, &'t str> = tree
            .ending(".rs")
            .filter_map(|(name, source)| {
                let name = name.strip_prefix(folder)?.strip_suffix(".rs")?;
                let is_root = matches!(name, "lib" | "main");
                Some((if is_root { Vec::new() } else { name.split('/').collect() }, source))
            })
            .collect();
        let module_of = |path: &[&'t str]| {
            let prefixes = (0..=path.len()).rev().filter_map(|len| path.get(..len));
            prefixes.map(<[_]>::to_vec).find(|path| files.contains_key(path))
        };
        let imports = files.iter().map(|(file, source)| {
            let named = named_paths(&words(without_tests(source)), file);
            let modules = named.iter().filter_map(|path| module_of(path));
            // A crate's exports are not a separate file.
            (file.clone(), modules.filter(|path| path != file && !path.is_empty()).collect())
        });
        Self(imports.collect())
    }

    /// The largest set of files in which each imports all others, itself or through others.
    fn largest_circle(&self) -> BTreeSet<Path<'t>> {
        let reached: BTreeMap<&Path<'t>, BTreeSet<Path<'t>>> =
            self.0.keys().map(|file| (file, self.reached_from(file))).collect();
        let circles = reached.iter().map(|(file, from)| {
            let comes_back =
                |other: &&Path<'t>| reached.get(other).is_some_and(|it| it.contains(*file));
            from.iter().filter(comes_back).cloned().collect::<BTreeSet<_>>()
        });
        circles.max_by_key(BTreeSet::len).unwrap_or_default()
    }

    fn reached_from(&self, file: &Path<'t>) -> BTreeSet<Path<'t>> {
        let mut reached = BTreeSet::new();
        let mut left: Vec<&Path<'t>> = self.0.get(file).into_iter().flatten().collect();
        while let Some(next) = left.pop() {
            if reached.insert(next.clone()) {
                left.extend(self.0.get(next).into_iter().flatten());
            }
        }
        reached
    }
}

/// A source up to its tests, which stand at its end.
pub(super) fn without_tests(source: &str) -> &str {
    source.find("#[cfg(test)]\nmod ").map_or(source, |end| &source[..end])
}

/// The paths below the crate's root that `words` of `file` name.
pub(super) fn named_paths<'t>(words: &[&'t str], file: &Path<'t>) -> Vec<Path<'t>> {
    let mut paths = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let base = match *word {
            "crate" => Some(Vec::new()),
            "super" => Some(file.split_last().map(|(_, above)| above.to_vec()).unwrap_or_default()),
            _ => None,
        };
        at += 1;
        if let Some(base) = base {
            let before = words.get(..at - 1).unwrap_or_default();
            at = read_tree(words, at, base, &mut paths);
            // It says who may see a thing.
            if before.ends_with(&["pub", "("]) || before.ends_with(&["pub", "(", "in"]) {
                paths.pop();
            }
        }
    }
    paths
}

/// Reads what follows a path's first part, with all branches between braces; returns where it ends.
pub(super) fn read_tree<'t>(
    words: &[&'t str],
    mut at: usize,
    mut path: Path<'t>,
    paths: &mut Vec<Path<'t>>,
) -> usize {
    while words.get(at) == Some(&"::") {
        match words.get(at + 1).copied() {
            Some("{") => {
                at += 2;
                while let Some(word) = words.get(at).copied().filter(|word| *word != "}") {
                    let is_name = word != ",";
                    at += 1;
                    if is_name {
                        let branch = path.iter().copied().chain([word]).collect();
                        at = read_tree(words, at, branch, paths);
                    }
                }
                return at + 1;
            }
            Some("super") => {
                path.pop();
            }
            Some(name) => path.push(name),
            None => break,
        }
        at += 2;
    }
    paths.push(path);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        let circle = Imports::read(&tree, "src/").largest_circle();
        circle.iter().map(|path| path.join("/")).collect()
    }

    #[test]
    fn files_that_come_back_to_themselves_are_a_circle() {
        let none: [&str; 0] = [];
        let b = ("src/b.rs", "use crate::a::A;");
        assert_eq!(largest(&[("src/a.rs", "use crate::b::{self, B};"), b]), ["a", "b"]);
        assert_eq!(largest(&[("src/a.rs", "fn f() { crate::b::g() }"), b]), ["a", "b"]);
        assert_eq!(largest(&[("src/a.rs", "use super::b;"), b]), ["a", "b"]);
        assert_eq!(largest(&[("src/a.rs", "use crate::{c::C, b::{x::X, y}};"), b]), ["a", "b"]);
        assert_eq!(largest(&[("src/a.rs", "use crate::c::C;"), b]), none);
        assert_eq!(largest(&[("src/a.rs", "// use crate::b;"), b]), none);
        let tests = "struct A;\n#[cfg(test)]\nmod tests { use crate::b; }";
        assert_eq!(largest(&[("src/a.rs", tests), b]), none);
    }

    #[test]
    fn a_module_and_its_parts_are_files_like_others() {
        let part = ("src/a/part.rs", "use super::A;");
        assert_eq!(largest(&[("src/a.rs", "use crate::a::part::B;"), part]), ["a", "a/part"]);
        let sibling = ("src/a/part.rs", "use super::super::b::B;");
        let b = ("src/b.rs", "use crate::a::part;");
        assert_eq!(largest(&[("src/a.rs", ""), sibling, b]), ["a/part", "b"]);
    }

    #[test]
    fn who_may_see_a_thing_is_no_import() {
        let part = ("src/a/part.rs", "pub(super) fn f() {}\npub(in crate::a) fn g() {}");
        let a = ("src/a.rs", "use crate::a::part::f;");
        assert!(largest(&[a, part]).len() < 2);
    }

    #[test]
    fn a_bound_follows_what_there_is() {
        let files = ["a", "b", "c", "d"];
        let source = |next: &str| format!("use crate::{next};");
        let ring: Vec<(String, String)> =
            (0..4).map(|n| (format!("src/{}.rs", files[n]), source(files[(n + 1) % 4]))).collect();
        let ring: Vec<(&str, &str)> =
            ring.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let tree = Tree::of(&ring);
        assert!(find(&tree, "src/", 3).is_some_and(|it| it.text.starts_with("4 files import")));
        assert!(find(&tree, "src/", 4).is_none());
    }
}
