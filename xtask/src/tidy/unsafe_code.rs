//! Every crate root forbids unsafe code, but for `io` and `tls`, where all of it lives.

use super::{Finding, Tree};

/// Files that may hold unsafe code: the crate of system calls; and in that of TLS, with the root
/// that must not forbid it, the one step into code for a processor that has the instructions, and
/// the one out of a handshake that waits.
const EXEMPT: [&str; 4] = [
    "crates/io/",
    "crates/tls/src/lib.rs",
    "crates/tls/src/batch/processor.rs",
    "crates/tls/src/handshake/coroutine.rs",
];

/// A test program that counts allocations implements an unsafe trait; it is not in the product.
const COUNTING_ALLOCATOR: &str = "unsafe impl GlobalAlloc for";

/// Looks at each root of a library or program, and for the word anywhere else.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, text) in tree.ending(".rs").filter(|(name, _)| !is_exempt(name)) {
        let is_root = name.ends_with("src/lib.rs")
            || name.ends_with("src/main.rs")
            || name.contains("src/bin/");
        if is_root && !text.contains("#![forbid(unsafe_code)]") {
            findings.push(Finding::new(name, "lacks `#![forbid(unsafe_code)]`"));
        }
        let has_allow = ["allow(unsafe_code", "expect(unsafe_code"];
        if has_allow.iter().any(|allow| text.contains(allow)) && !text.contains(COUNTING_ALLOCATOR)
        {
            findings.push(Finding::new(name, format!("unsafe code belongs in one of {EXEMPT:?}")));
        }
    }
    findings
}

fn is_exempt(name: &str) -> bool {
    EXEMPT.iter().any(|exempt| name.starts_with(exempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_without_the_line_is_found_and_those_with_unsafe_code_are_not_asked() {
        let tree = Tree::of(&[
            ("crates/wire/src/lib.rs", "#![forbid(unsafe_code)]"),
            ("crates/proxy/src/lib.rs", "//! No line."),
            ("crates/proxy/src/route.rs", "//! No root."),
            ("crates/io/src/lib.rs", "#![deny(unsafe_code)]"),
            ("crates/tls/src/lib.rs", "#![deny(unsafe_code)]"),
        ]);
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["crates/proxy/src/lib.rs: lacks `#![forbid(unsafe_code)]`"]);
    }
}
