//! DEPENDENCIES.md has a line for every outside package that a manifest names, and no other.

use std::collections::BTreeSet;

use super::{Finding, Package, Tree, layers};

const PAGE: &str = "DEPENDENCIES.md";

/// Compares the page with the manifests, both ways.
pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let explained = explained(tree.find(PAGE).unwrap_or_default());
    let used: BTreeSet<(&str, &str)> = packages
        .iter()
        .flat_map(|package| {
            let outside = package.dependencies.iter().filter(|dependency| !dependency.is_ours);
            outside.map(|dependency| (dependency.name.as_str(), package.manifest.as_str()))
        })
        .collect();
    let missing = used.iter().filter(|(name, _)| !explained.contains(name));
    let stale = explained.iter().filter(|name| !used.iter().any(|(used, _)| used == *name));
    missing
        .map(|(name, manifest)| {
            Finding::new(*manifest, format!("uses `{name}`, for which {PAGE} has no line"))
        })
        .chain(
            stale.map(|name| {
                Finding::new(PAGE, format!("explains `{name}`, which no manifest uses"))
            }),
        )
        .collect()
}

/// The names in the first cells of the page's tables.
fn explained(page: &str) -> BTreeSet<&str> {
    page.lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .flat_map(layers::quoted)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_compared() {
        let page = "| package | why |\n|---|---|\n| `serde` | text |\n| `rand` | `old` |\n";
        let packages = [Package::of("wire", &["io"], &["serde", "memchr"])];
        let found: Vec<String> =
            check(&Tree::of(&[(PAGE, page)]), &packages).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/wire/Cargo.toml: uses `memchr`, for which DEPENDENCIES.md has no line",
                "DEPENDENCIES.md: explains `rand`, which no manifest uses",
            ]
        );
    }
}
