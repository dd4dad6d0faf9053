//! Which crate may use which: the table of ARCHITECTURE.md against the manifests.
//!
//! What only tests and benches use is free, because it is not in the product; what the product
//! uses is not. A package outside `crates/` (tools, tests) is not in the table.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Package, Tree};

const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "| crate | may use these crates |";

/// Compares the table with the manifests, both ways.
pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let Some(table) = tree.find(PAGE).and_then(read_table) else {
        return vec![Finding::new(PAGE, format!("has no table that begins with `{HEADING}`"))];
    };
    let mut findings = Vec::new();
    let crates: Vec<&Package> =
        packages.iter().filter(|package| package.manifest.starts_with("crates/")).collect();
    for package in &crates {
        let Some(allowed) = table.get(package.name.as_str()) else {
            let text = format!("the table of crates has no line for `{}`", package.name);
            findings.push(Finding::new(PAGE, text));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|used| used.is_ours && !used.is_dev) {
            if !allowed.contains(dependency.name.as_str()) {
                let text = format!("uses `{}`, which {PAGE} does not let it", dependency.name);
                findings.push(Finding::new(&package.manifest, text));
            }
        }
    }
    for name in table.keys() {
        if !crates.iter().any(|package| package.name == *name) {
            let text = format!("the table of crates has `{name}`, which is not under crates/");
            findings.push(Finding::new(PAGE, text));
        }
    }
    findings
}

/// Crate ⇒ what it may use. Names stand in backquotes; all else in a cell is prose.
fn read_table(page: &str) -> Option<BTreeMap<&str, BTreeSet<&str>>> {
    let mut lines = page.lines().skip_while(|line| !line.starts_with(HEADING));
    lines.next()?;
    let rows = lines.take_while(|line| line.starts_with('|')).filter_map(|line| {
        let mut cells = line.trim_matches('|').split('|');
        let name = quoted(cells.next()?).next()?;
        Some((name, quoted(cells.next()?).collect()))
    });
    Some(rows.collect())
}

/// The texts in backquotes.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# Shape

| crate | may use these crates | never |
|---|---|---|
| `wire` | nothing | `proxy` |
| `proxy` | `wire`, and `config` for types | |

| `not` | `a row` |
";

    fn findings(packages: &[Package]) -> Vec<String> {
        let findings = check(&Tree::of(&[(PAGE, TABLE)]), packages);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn manifests_within_the_table_are_tidy() {
        let proxy = Package::of("proxy", &["wire", "config"], &["serde"]);
        assert!(findings(&[Package::of("wire", &[], &["memchr"]), proxy]).is_empty());
    }

    #[test]
    fn a_use_outside_the_table_is_found_at_its_manifest() {
        let proxy = Package::of("proxy", &[], &[]);
        assert_eq!(
            findings(&[Package::of("wire", &["proxy"], &[]), proxy]),
            ["crates/wire/Cargo.toml: uses `proxy`, which ARCHITECTURE.md does not let it"]
        );
    }

    #[test]
    fn what_only_tests_use_is_free() {
        let mut wire = Package::of("wire", &["proxy"], &[]);
        wire.dependencies[0].is_dev = true;
        assert!(findings(&[wire, Package::of("proxy", &[], &[])]).is_empty());
    }

    #[test]
    fn crates_without_a_row_and_rows_without_a_crate_are_found() {
        let found = findings(&[Package::of("wire", &[], &[]), Package::of("io", &[], &[])]);
        assert_eq!(
            found,
            [
                "ARCHITECTURE.md: the table of crates has no line for `io`",
                "ARCHITECTURE.md: the table of crates has `proxy`, which is not under crates/",
            ]
        );
    }

    #[test]
    fn a_page_without_the_table_is_found() {
        let found = check(&Tree::of(&[(PAGE, "# Shape\n")]), &[]);
        assert_eq!(found.len(), 1);
    }
}
