//! Sources that no `mod` line reaches: the compiler never sees them, so they only look alive.

use super::{Finding, Tree};

/// Checks every source below a `src` folder, and modules of test programs.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.names()
        .filter(|name| name.ends_with(".rs") && name.contains("/src/") && !is_root(name))
        .filter(|name| !is_declared(tree, name))
        .map(|name| Finding::new(name, "no `mod` line reaches it"))
        .collect()
}

fn is_root(name: &str) -> bool {
    name.ends_with("/src/lib.rs")
        || name.ends_with("/src/main.rs")
        || name.contains("/src/bin/")
        || name.ends_with("build.rs")
}

/// Whether a possible parent of `name` declares it: `a/b.rs` is declared in `a.rs` or, at the top,
/// in `lib.rs` or `main.rs`; a `#[path]` attribute names it anywhere.
fn is_declared(tree: &Tree, name: &str) -> bool {
    let Some((folder, file)) = name.rsplit_once('/') else { return false };
    let module = file.trim_end_matches(".rs");
    let parents = [format!("{folder}.rs"), format!("{folder}/lib.rs"), format!("{folder}/main.rs")];
    let declares = |text: &str| {
        text.lines().any(|line| {
            let declared = line.trim().strip_suffix(';').and_then(|line| line.rsplit_once("mod "));
            declared.is_some_and(|(_, declared)| declared == module)
        })
    };
    parents.iter().filter_map(|parent| tree.find(parent)).any(declares)
        || tree.ending(".rs").any(|(_, text)| text.contains("#[path") && text.contains(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_no_module_declares_are_found() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "pub mod b;\nmod c {}\n"),
            ("crates/a/src/b.rs", "    pub(crate) mod d;"),
            ("crates/a/src/b/d.rs", ""),
            ("crates/a/src/b/e.rs", ""),
            ("crates/a/src/c.rs", ""),
            ("crates/a/tests/free.rs", ""),
        ]);
        let found: Vec<String> = check(&tree).into_iter().map(|finding| finding.file).collect();
        assert_eq!(found, ["crates/a/src/b/e.rs", "crates/a/src/c.rs"]);
    }
}
