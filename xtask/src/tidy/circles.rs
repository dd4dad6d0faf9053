//! Methods of a type that call each other in a circle.
//!
//! Where methods form a circle, each may be entered again while it is at work, and none can be
//! read, or given less than the whole value, by itself. The types in [`CIRCLES_MAX`] have none, or no
//! larger ones than it says: `Proxy` and its parts have none, because what would close a circle is
//! noted on the agenda (ARCHITECTURE.md).
//!
//! The check compares words, not types. A method calls another if its body has `self.name(` or
//! `Self::name`, or the same with the type's name: in full (`Proxy::name`), or in small letters for a
//! value that a closure is handed (`proxy.name(`). A call through a trait, through a free function, or
//! through a value of another name is not seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Finding, Tree};

/// Sources, a type with methods there, and how many of these may be in one circle. A method that calls
/// itself is a circle of one.
const CIRCLES_MAX: [(&str, &str, usize); 6] = [
    (PROXY, "Connections", 0),
    (PROXY, "Cx", 0),
    (PROXY, "Exchanges", 0),
    (PROXY, "Listen", 0),
    (PROXY, "Proxy", 0),
    (PROXY, "Upstreams", 0),
];

const PROXY: &str = "crates/proxy/src/";

/// Finds circles that are larger than they may be.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let bounds = CIRCLES_MAX.into_iter();
    bounds
        .filter_map(|(folder, of, members_max)| find_circle(tree, folder, of, members_max))
        .collect()
}

/// The largest circle of methods of the type `of`, if it has more than so many members.
fn find_circle(tree: &Tree, folder: &str, of: &str, members_max: usize) -> Option<Finding> {
    let calls = Calls::read(tree, folder, of);
    let members = calls.largest_circle();
    if members.len() <= members_max {
        return None;
    }
    let names = members.iter().copied().collect::<Vec<_>>().join(", ");
    let shortest = calls.shortest_circle(&members).join(" → ");
    let text = format!(
        "methods of `{of}` in a circle: {}, and {members_max} may be: {names}; \
         the shortest way around: {shortest}",
        members.len()
    );
    Some(Finding::new(folder, text))
}

/// The methods of a type, and which of them each calls.
#[derive(Debug, Default)]
struct Calls<'t>(BTreeMap<&'t str, BTreeSet<&'t str>>);

impl<'t> Calls<'t> {
    /// Reads the inherent `impl` blocks of the type `of` in all sources below `folder`.
    fn read(tree: &'t Tree, folder: &str, of: &str) -> Self {
        let mut bodies: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (_, source) in tree.ending(".rs").filter(|(name, _)| name.starts_with(folder)) {
            for block in impl_blocks(&words(source), of) {
                for (name, body) in methods(block) {
                    bodies.entry(name).or_default().extend(body);
                }
            }
        }
        let calls = |body: &[&'t str]| -> BTreeSet<&'t str> {
            called(body, of).into_iter().filter(|name| bodies.contains_key(name)).collect()
        };
        Self(bodies.iter().map(|(name, body)| (*name, calls(body))).collect())
    }

    fn called_by(&self, name: &str) -> impl Iterator<Item = &'t str> {
        self.0.get(name).into_iter().flatten().copied()
    }

    /// The methods that `name` calls, directly or through others.
    fn reached_from(&self, name: &str) -> BTreeSet<&'t str> {
        let mut reached = BTreeSet::new();
        let mut left: Vec<&str> = self.called_by(name).collect();
        while let Some(next) = left.pop() {
            if reached.insert(next) {
                left.extend(self.called_by(next));
            }
        }
        reached
    }

    /// The members of the largest set in which each calls all others, itself or through others.
    fn largest_circle(&self) -> BTreeSet<&'t str> {
        let reached: BTreeMap<&str, BTreeSet<&'t str>> =
            self.0.keys().map(|name| (*name, self.reached_from(name))).collect();
        let circle_of = |(name, reached_from): (&&str, &BTreeSet<&'t str>)| -> BTreeSet<&'t str> {
            let comes_back =
                |other: &&&'t str| reached.get(**other).is_some_and(|it| it.contains(name));
            reached_from.iter().filter(comes_back).copied().collect()
        };
        reached.iter().map(circle_of).max_by_key(BTreeSet::len).unwrap_or_default()
    }

    /// The fewest calls that lead from one of `members` back to it, with that one at both ends.
    fn shortest_circle(&self, members: &BTreeSet<&'t str>) -> Vec<&'t str> {
        let circles = members.iter().filter_map(|name| self.way_back_to(name));
        circles.min_by_key(Vec::len).unwrap_or_default()
    }

    fn way_back_to(&self, name: &'t str) -> Option<Vec<&'t str>> {
        let mut callers: BTreeMap<&str, &str> = BTreeMap::new();
        let mut left = VecDeque::from([name]);
        while let Some(caller) = left.pop_front() {
            for called in self.called_by(caller) {
                if called == name {
                    let mut way = vec![name];
                    let before = std::iter::successors(Some(caller), |at| callers.get(at).copied());
                    way.extend(before.take_while(|at| *at != name));
                    way.push(name);
                    way.reverse();
                    return Some(way);
                }
                if !callers.contains_key(called) {
                    callers.insert(called, caller);
                    left.push_back(called);
                }
            }
        }
        None
    }
}

/// What is called of the type `of`, or of fields and other names that a call of it looks like.
pub(super) fn called<'t>(body: &[&'t str], of: &str) -> BTreeSet<&'t str> {
    let value = of.to_lowercase();
    let called = body.windows(5).filter_map(|five| match five {
        [before, receiver, ".", name, "(" | "::"] => {
            let is_value = *receiver == "self" || *receiver == value;
            (is_value && *before != ".").then_some(*name)
        }
        [_, receiver, "::", name, _] => (*receiver == "Self" || *receiver == of).then_some(*name),
        _ => None,
    });
    called.collect()
}

/// The content of each inherent `impl` block of the type `of`.
pub(super) fn impl_blocks<'w, 't>(words: &'w [&'t str], of: &str) -> Vec<&'w [&'t str]> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while let Some(begin) = find(words, at, "impl") {
        let Some(open) = find(words, begin, "{") else { break };
        let end = closing(words, open);
        let head = words.get(begin + 1..open).unwrap_or_default();
        if is_inherent(head, of) {
            blocks.extend(words.get(open + 1..end));
            at = end;
        } else {
            at = begin + 1;
        }
    }
    blocks
}

/// Whether `impl`, followed by these words, is of the type `of` itself and not of a trait for it.
fn is_inherent(head: &[&str], of: &str) -> bool {
    let generics = if head.first() == Some(&"<") { past_generics(head) } else { 0 };
    head.get(generics) == Some(&of) && !head.contains(&"for")
}

/// How many words the generics take that `head` begins with.
fn past_generics(head: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (place, word) in head.iter().enumerate() {
        match *word {
            "<" => depth += 1,
            ">" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return place + 1;
        }
    }
    head.len()
}

/// The methods of an `impl` block: name, and the words from brace to brace.
fn methods<'w, 't>(block: &'w [&'t str]) -> Vec<(&'t str, &'w [&'t str])> {
    let mut methods = Vec::new();
    let mut at = 0;
    while let Some(begin) = find(block, at, "fn") {
        let Some(open) = find(block, begin, "{") else { break };
        let end = closing(block, open);
        if let (Some(name), Some(body)) = (block.get(begin + 1), block.get(open..=end)) {
            methods.push((*name, body));
        }
        at = end;
    }
    methods
}

fn find(words: &[&str], from: usize, wanted: &str) -> Option<usize> {
    let rest = words.get(from..)?;
    rest.iter().position(|word| *word == wanted).map(|place| from + place)
}

/// Where the brace that is open at `open` closes.
fn closing(words: &[&str], open: usize) -> usize {
    let mut depth = 0_usize;
    for (place, word) in words.iter().enumerate().skip(open) {
        match *word {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return place;
        }
    }
    words.len()
}

/// The names and signs of a source, without comments; a literal is one word, as `::` and `->` are.
pub(super) fn words(source: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.find("*/").map_or(rest.len(), |end| end + 4)
        } else {
            word_len(rest, first)
        };
        let (word, behind) = rest.split_at(len);
        let is_comment = word.starts_with("//") || word.starts_with("/*");
        if !is_comment && !first.is_whitespace() {
            words.push(word);
        }
        rest = behind;
    }
    words
}

/// Bytes of the word that `rest` begins with, `first` being its first character.
fn word_len(rest: &str, first: char) -> usize {
    if let Some(len) = raw_string_len(rest) {
        return len;
    }
    match first {
        '"' => quoted_len(rest, '"'),
        // A lifetime has no quote behind it.
        '\'' if rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'') => {
            quoted_len(rest, '\'')
        }
        ':' if rest.starts_with("::") => 2,
        '-' if rest.starts_with("->") => 2,
        _ if is_of_name(first) => rest.find(|c| !is_of_name(c)).unwrap_or(rest.len()),
        _ => first.len_utf8(),
    }
}

/// Bytes of a literal that ends with the next `quote` behind which no backslash stands.
fn quoted_len(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (place, character) in rest.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return place + quote.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// Bytes of a raw string, if `rest` begins with one.
fn raw_string_len(rest: &str) -> Option<usize> {
    let behind = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    let text = behind.get(hashes..)?.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let len = text.find(&end).map_or(text.len(), |place| place + end.len());
    Some(rest.len() - text.len() + len)
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(source: &str) -> Vec<String> {
        let tree = Tree::of(&[("src/a.rs", source)]);
        let calls = Calls::read(&tree, "src/", "Proxy");
        calls.largest_circle().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn methods_that_come_back_to_themselves_are_a_circle() {
        for (source, circle) in [
            ("fn a(&self) { self.b(); } fn b(&self) {}", &[][..]),
            ("fn a(&self) { self.a(); }", &["a"]),
            ("fn a(&self) { self.b(); } fn b(&self) { Self::a(self) }", &["a", "b"]),
            ("fn a(&self) { self.b() } fn b(&self) { self.c() } fn c(&self) {}", &[]),
            (
                "fn a(&self) { self.b() } fn b(&self) { self.c() } fn c(&self) { self.a() }",
                &["a", "b", "c"],
            ),
            ("fn a(&self) { run(|proxy, x| proxy.a()) }", &["a"]),
            ("fn a(&self) { xs.map(Proxy::a) }", &["a"]),
        ] {
            let source = format!("impl Proxy {{ {source} }}");
            assert_eq!(largest(&source), circle, "{source}");
        }
    }

    #[test]
    fn what_is_no_call_of_a_method_makes_no_circle() {
        for body in [
            "// self.a()",
            "/* self.a() */",
            "\"self.a()\"",
            "\"\\\"\"; /* \" */ \"self.a()\"",
            "r#\"\" self.a() \"#",
            "'\"'; \"self.a()\"; '\\''",
            "self.a.len()",
            "self.part.a()",
            "other.a()",
            "part.self.a()",
            "self.b()",
            "Other::a()",
        ] {
            let source = format!("impl<'a> Proxy {{ fn a(&'a self) {{ {body} }} }}");
            assert!(largest(&source).is_empty(), "{source}");
        }
    }

    #[test]
    fn only_inherent_blocks_of_the_type_count_and_all_of_them() {
        let circle = "{ fn a(&self) { self.a(); } }";
        for (head, is_found) in [
            ("impl Proxy", true),
            ("impl<T: Fn() -> u8> Proxy<T>", true),
            ("impl<T: Clone> Proxy", true),
            ("impl Clone for Proxy", false),
            ("impl Other", false),
        ] {
            assert_eq!(!largest(&format!("{head} {circle}")).is_empty(), is_found, "{head}");
        }
        let tree = Tree::of(&[
            ("src/a.rs", "impl Other { fn b(&self) {} } impl Proxy { fn a(&self) { self.b(); } }"),
            ("src/b/c.rs", "fn free() {} impl Proxy { fn b(&self) { self.a(); } }"),
            ("other/c.rs", "impl Proxy { fn c(&self) { self.c(); } }"),
        ]);
        let calls = Calls::read(&tree, "src/", "Proxy");
        assert_eq!(calls.largest_circle(), BTreeSet::from(["a", "b"]));
    }

    #[test]
    fn a_circle_larger_than_the_bound_is_found_with_the_shortest_way_around() {
        let source = "impl Proxy { fn a(&self) { self.b(); } fn b(&self) { self.c(); self.d(); } \
                      fn c(&self) { self.a(); } fn d(&self) { self.b(); } }";
        let tree = Tree::of(&[("src/a.rs", source)]);
        assert_eq!(find_circle(&tree, "src/", "Proxy", 4), None);
        let found = find_circle(&tree, "src/", "Proxy", 3).unwrap().to_string();
        assert_eq!(
            found,
            "src/: methods of `Proxy` in a circle: 4, and 3 may be: a, b, c, d; \
             the shortest way around: b → d → b"
        );
    }
}
