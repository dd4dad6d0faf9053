//! Words that sources and documents do not use: those in backquotes on a line of docs/STYLE.md.
//!
//! A sentence with such a word hides who acts, and a plainer one says the same. Comments, messages
//! and names are compared alike, as whole words in any case.

use super::layers::quoted;
use super::{Finding, Tree};

/// The page that lists the words, and how the line begins.
const PAGE: &str = "docs/STYLE.md";
const LINE: &str = "Not used: ";

/// Endings of files that are compared.
const ENDINGS: [&str; 6] = [".rs", ".md", ".yaml", ".toml", ".py", ".go"];

/// Files with lines that have such a word for a reason, and how many.
const EXCEPTED: [(&str, usize); 1] = [
    // An input that others gave a digest for.
    ("crates/config/src/xxhash.rs", 1),
];

/// Folders of files that programs write.
const NOT_OURS: [&str; 2] = ["bench/results/", "fuzz/corpus/"];

/// Finds lines with such words.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    find(tree, &EXCEPTED)
}

fn find(tree: &Tree, excepted: &[(&str, usize)]) -> Vec<Finding> {
    let line = tree.find(PAGE).and_then(|page| page.lines().find(|line| line.starts_with(LINE)));
    let Some(line) = line else {
        return vec![Finding::new(PAGE, format!("has no line `{LINE}` with words"))];
    };
    let words: Vec<&str> = quoted(line).collect();
    let mut counts = vec![0; excepted.len()];
    let mut findings = Vec::new();
    for (name, text) in ENDINGS.iter().flat_map(|ending| tree.ending(ending)) {
        if NOT_OURS.iter().any(|place| name.starts_with(place)) {
            continue;
        }
        for found in text.lines().filter(|text| *text != line) {
            let Some(word) = words.iter().find(|word| has_word(found, word)) else { continue };
            let place = excepted.iter().position(|(place, _)| name.starts_with(place));
            match place.and_then(|place| counts.get_mut(place)) {
                Some(count) => *count += 1,
                None => {
                    let text = format!("`{word}` in `{}`: name the one who acts", found.trim());
                    findings.push(Finding::new(name, text));
                }
            }
        }
    }
    for (&(place, lines_max), count) in excepted.iter().zip(counts) {
        if count > lines_max {
            let text = format!("{count} lines have a word of {PAGE}'s list, and {lines_max} may");
            findings.push(Finding::new(place, text));
        }
    }
    findings
}

/// Whether `text` has `word` as a whole word, in any case.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .any(|part| part.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: &str = "# Style\n\nNot used: `whosoever`, `anon`.\n";

    fn found(name: &str, text: &str, excepted: &[(&str, usize)]) -> Vec<String> {
        let tree = Tree::of(&[("docs/STYLE.md", STYLE), (name, text)]);
        find(&tree, excepted).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_word_of_the_list_is_found_in_any_text_and_case() {
        for (name, text) in [
            ("crates/a/src/b.rs", "fn f() {}\n/// Whosoever asks.\n"),
            ("docs/a.md", "as (whosoever) asks"),
            ("examples/a.yaml", "# whosoever"),
        ] {
            assert_eq!(found(name, text, &[]).len(), 1, "{name}");
        }
        let finding = "a.md: `anon` in `it comes anon.`: name the one who acts";
        assert_eq!(found("a.md", "  it comes anon.", &[]), [finding]);
    }

    #[test]
    fn parts_of_words_and_what_others_wrote_are_not_compared() {
        assert!(found("a.rs", "let anonymous = is_anon;", &[]).is_empty());
        assert!(found("bench/results/a.md", "whosoever", &[]).is_empty());
        assert!(found("fuzz/corpus/h1/a.yaml", "whosoever", &[]).is_empty());
        assert!(found("a.svg", "whosoever", &[]).is_empty());
    }

    #[test]
    fn lines_with_a_reason_have_a_bound() {
        let text = "whosoever\nwhosoever and anon\n";
        assert!(found("crates/a/b.rs", text, &[("crates/a/", 2)]).is_empty());
        assert_eq!(found("crates/a/b.rs", text, &[("crates/a/", 1)]).len(), 1);
    }

    #[test]
    fn a_page_without_the_list_is_found() {
        let findings = find(&Tree::of(&[("docs/STYLE.md", "# Style")]), &[]);
        assert_eq!(findings.len(), 1);
    }
}
