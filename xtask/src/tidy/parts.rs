//! Which part of a crate may take which.
//!
//! The parts of `proxy` stand in an order (its `lib.rs` draws it): a method takes the parts that it
//! needs, and none that stands before its own. So what a part does can be read, and tested, without
//! what stands before it. What is compared is words: a method of a part that names a type before it is
//! found, whether it takes a value of it or only calls a function of it.

use super::circles::{impl_blocks, words};
use super::{Finding, Tree};

/// Sources, and the types of their parts, the one that may take all others first. Those of one group
/// may take each other.
const PARTS: [(&str, &[&[&str]]); 1] = [(
    "crates/proxy/src/",
    &[&["Proxy"], &["Exchanges"], &["Upstreams"], &["Connections", "Listen"], &["Cx"]],
)];

/// Finds parts that take what stands before them.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    PARTS.iter().flat_map(|(folder, order)| find(tree, folder, order)).collect()
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
