//! Text that the other process wrote, for a log or a terminal. Its own control characters would be obeyed there, and its line breaks begin
//! what looks like another entry of the log.

use serde::{Deserialize, Deserializer};

/// What stands before each further line of a text.
const INDENT: &str = "  ";

/// A text of one entry: control characters are escaped, and each further line begins with a space, as no entry does.
#[derive(Debug, Deserialize)]
pub(crate) struct Entry(#[serde(deserialize_with = "deserialize")] pub(crate) String);

/// The same of several lines, for who asked for an upgrade: none is another's.
#[derive(Debug)]
pub(crate) struct Lines(pub(crate) String);

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(printable(text, "")))
    }
}

/// Reads a text as [`Entry`] does.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|text| printable(text, INDENT))
}

fn printable(text: String, indent: &str) -> String {
    // Names of ten thousand clusters are among them.
    if !text.contains(char::is_control) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + text.len() / 4);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' => {
                shown.push('\n');
                if letters.peek() != Some(&' ') {
                    shown.push_str(indent);
                }
            }
            letter if letter.is_control() => shown.extend(letter.escape_default()),
            letter => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_another_process_begins_no_entry_of_the_log_and_commands_no_terminal() {
        for (text, entry, lines) in [
            ("", "", ""),
            ("shop-api/ü", "shop-api/ü", "shop-api/ü"),
            ("a\n2026 ERROR b", "a\n  2026 ERROR b", "a\n2026 ERROR b"),
            ("a\n  | b\n\nc\n", "a\n  | b\n  \n  c\n  ", "a\n  | b\n\nc\n"),
            ("a\r\n\rb", "a\\r\n  \\rb", "a\\r\n\\rb"),
            (
                "\u{1b}[2Jx\u{7}\u{85}\t",
                "\\u{1b}[2Jx\\u{7}\\u{85}\\t",
                "\\u{1b}[2Jx\\u{7}\\u{85}\\t",
            ),
        ] {
            assert_eq!(printable(text.to_owned(), INDENT), entry);
            assert_eq!(
                printable(entry.to_owned(), INDENT),
                entry,
                "it may come by a third process"
            );
            assert_eq!(printable(text.to_owned(), ""), lines);
        }
    }
}
