//! Which part of a crate may take which.
//!
//! The parts of `proxy` stand in an order (its `lib.rs` draws it): a method takes the parts that it
//! needs, and none that stands before its own. So what a part does can be read, and tested, without
//! what stands before it. What is compared is words: a method of a part that names a type before it is
//! found, whether it takes a value of it or only calls a function of it. The methods of each part stand in
//! its own folder ([`HOMES`]).

use super::circles::{impl_blocks, words};
use super::{Finding, Tree};

/// Sources, and the types of their parts, the one that may take all others first. Those of one group
/// may take each other.
const PARTS: [(&str, &[&[&str]]); 1] =
    [(PROXY, &[&["Proxy"], &["Exchanges"], &["Upstreams"], &["Connections", "Listen"], &["Cx"]])];

/// Sources, types, and where below them their methods stand: a file's whole name, or a folder's.
const HOMES: [(&str, &[&str], &[&str]); 5] = [
    (PROXY, &["Proxy"], &["proxy.rs", "proxy/", "save.rs", "save/"]),
    (PROXY, &["Exchanges", "Exchange"], &["exchange.rs", "exchange/", "save.rs", "save/"]),
    (PROXY, &["Upstreams", "Pools"], &["upstream.rs", "upstream/", "save.rs", "save/"]),
    (PROXY, &["Connections", "Connection"], &["connection.rs", "connection/", "save.rs", "save/"]),
    (PROXY, &["Listen"], &["listen.rs", "listen/", "save.rs", "save/"]),
];

const PROXY: &str = "crates/proxy/src/";

/// Finds parts that take what stands before them, and methods away from home.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let taking = PARTS.iter().flat_map(|(folder, order)| find(tree, folder, order));
    let away = HOMES.iter().flat_map(|(folder, types, homes)| {
        types.iter().flat_map(move |of| find_away(tree, folder, of, homes))
    });
    taking.chain(away).collect()
}

fn find_away(tree: &Tree, folder: &str, of: &str, homes: &[&str]) -> Vec<Finding> {
    let is_home = |name: &str| {
        homes.iter().any(|home| name == *home || (home.ends_with('/') && name.starts_with(home)))
    };
    let files = tree
        .ending(".rs")
        .filter_map(|(name, source)| Some((name, name.strip_prefix(folder)?, source)));
    files
        .filter(|(_, below, source)| !is_home(below) && !impl_blocks(&words(source), of).is_empty())
        .map(|(name, ..)| {
            Finding::new(name, format!("methods of `{of}` stand in {}", homes.join(", ")))
        })
        .collect()
}

fn find(tree: &Tree, folder: &str, order: &[&[&str]]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, source) in tree.ending(".rs").filter(|(name, _)| name.starts_with(folder)) {
        let words = words(source);
        for (place, parts) in order.iter().enumerate() {
            let before = order.iter().take(place).copied().flatten();
            for (part, before) in
                parts.iter().flat_map(|part| before.clone().map(move |it| (part, it)))
            {
                let mut blocks = impl_blocks(&words, part).into_iter();
                if blocks.any(|block| block.contains(before)) {
                    let text =
                        format!("a method of `{part}` names `{before}`, which stands before it");
                    findings.push(Finding::new(name, text));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_stand_at_home() {
        let source = "struct Top; impl Top { fn a(&self) {} }";
        for (name, is_fine) in [
            ("src/top.rs", true),
            ("src/top/left.rs", true),
            ("src/topmost.rs", false),
            ("src/left/top.rs", false),
        ] {
            let tree = Tree::of(&[(name, source)]);
            let found = find_away(&tree, "src/", "Top", &["top.rs", "top/"]);
            assert_eq!(found.is_empty(), is_fine, "{name}");
        }
    }

    #[test]
    fn a_part_takes_what_stands_behind_it_and_beside_it() {
        let order: &[&[&str]] = &[&["Top"], &["Left", "Right"], &["Base"]];
        for (source, is_fine) in [
            ("impl Top { fn a(&self, right: &Right, base: &Base) {} }", true),
            ("impl Left { fn a(&self, right: &Right, base: &Base) {} }", true),
            ("impl Right { fn a(&self, left: &Left) {} }", true),
            ("impl Base { /* Top */ fn a(&self) {} }", true),
            ("impl Left { fn a(&self, top: &Top) {} }", false),
            ("impl Base { fn a(&self) {} } impl Base { fn b(&self) { Left::a() } }", false),
            ("impl Other { fn a(&self, top: &Top) {} }", true),
        ] {
            let tree = Tree::of(&[("src/a.rs", source)]);
            assert_eq!(find(&tree, "src/", order).is_empty(), is_fine, "{source}");
        }
    }
}
