//! Documents that stay true: links lead somewhere, nothing names one machine's folders or a line
//! of a file that will move, and every page can be reached from another.

use std::path::{Component, Path, PathBuf};

use super::{Finding, Tree};

/// Beginnings of paths that exist on one machine only. Written in pieces, so that this file does
/// not find itself.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];

/// Checks every document, and every source for machine paths.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, text) in &tree.files {
        if name.starts_with("fuzz/corpus/") {
            continue;
        }
        findings.extend(machine_paths(name, text));
    }
    for (name, text) in tree.ending(".md") {
        findings.extend(broken_links(tree, name, text));
        findings.extend(line_numbers(name, text));
        let is_entrance = !name.contains('/');
        if !is_entrance && !is_reached(tree, name) {
            findings.push(Finding::new(name, "no other document names it"));
        }
    }
    findings
}

fn machine_paths<'t>(name: &'t str, text: &'t str) -> impl Iterator<Item = Finding> + 't {
    let named = |line: &&str| MACHINE_PATHS.iter().any(|path| line.contains(path));
    text.lines()
        .filter(named)
        .map(move |line| Finding::new(name, format!("names one machine's folder: {}", line.trim())))
}

fn broken_links<'t>(tree: &'t Tree, name: &'t str, text: &'t str) -> impl Iterator<Item = Finding> {
    let folder = Path::new(name).parent().unwrap_or_else(|| Path::new(""));
    links(text).filter_map(move |link| {
        let path = link.split('#').next().filter(|path| !path.is_empty())?;
        let target = resolve(&folder.join(path));
        let is_there = tree.names().any(|file| Path::new(file).starts_with(&target));
        (!is_there).then(|| Finding::new(name, format!("links to `{link}`, which is not there")))
    })
}

/// Targets of `[text](target)` that are paths.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next())
        .filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
}

/// `a/../b` ⇒ `b`, without asking the disk.
fn resolve(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = resolved.pop(),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => {
                resolved.push(component);
            }
        }
    }
    resolved
}

/// `route.rs:12` and `route.rs#L12` are wrong with the next edit.
fn line_numbers<'t>(name: &'t str, text: &'t str) -> impl Iterator<Item = Finding> + 't {
    let is_number = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    text.lines()
        .filter(move |line| {
            line.split(".rs:").skip(1).any(is_number) || line.split(".rs#L").skip(1).any(is_number)
        })
        .map(move |line| Finding::new(name, format!("names a line of a source: {}", line.trim())))
}

/// Whether a page or a source names the page, or the folder of pages that it lies in.
fn is_reached(tree: &Tree, name: &str) -> bool {
    let (folder, short) = name.rsplit_once('/').unwrap_or(("", name));
    // `docs` alone would be named everywhere; `docs/decisions` is named on purpose.
    let folder = (folder.contains('/') || short == "README.md").then_some(folder);
    tree.files
        .iter()
        .filter(|(other, _)| other != name && (other.ends_with(".md") || other.ends_with(".rs")))
        .any(|(_, text)| text.contains(short) || folder.is_some_and(|folder| text.contains(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_are_followed_from_the_page_that_holds_them() {
        let page = "[up](../README.md#top) [beside](b.md) [out](https://example.org/x) [in](#x)";
        let read_me = ("README.md", "docs/a.md, [folder](docs)");
        assert!(found(&[("docs/a.md", page), ("docs/b.md", ""), read_me]).is_empty());
        let missing = "[gone](c.md)";
        assert_eq!(
            found(&[("docs/a.md", missing), ("README.md", "a.md")]),
            ["docs/a.md: links to `c.md`, which is not there"]
        );
    }

    #[test]
    fn line_numbers_of_sources_are_found() {
        assert!(found(&[("a.md", "see route.rs: it decides")]).is_empty());
        assert_eq!(found(&[("a.md", "see route.rs:12")]).len(), 1);
        assert_eq!(found(&[("a.md", "see route.rs#L12")]).len(), 1);
    }

    #[test]
    fn machine_paths_are_found_in_sources_too() {
        let line = format!("let path = \"{}x\";", MACHINE_PATHS[1]);
        assert_eq!(found(&[("xtask/src/a.rs", &line)]).len(), 1);
        assert!(found(&[("fuzz/corpus/config/seed", &line)]).is_empty());
    }

    #[test]
    fn a_page_that_nothing_names_is_found() {
        assert_eq!(found(&[("docs/lost.md", "")]), ["docs/lost.md: no other document names it"]);
        assert!(found(&[("bench/README.md", ""), ("README.md", "see bench/")]).is_empty());
        assert!(found(&[("docs/why/1.md", ""), ("README.md", "see docs/why")]).is_empty());
    }
}
