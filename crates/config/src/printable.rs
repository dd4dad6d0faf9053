//! Text that others wrote, for a line of a log or of a report.

use std::fmt::{self, Write as _};

/// Shows a text in one line: control characters, which a terminal would obey or which would begin a line of their own, are escaped.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'t>(pub &'t str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some((before, control)) =
            rest.find(char::is_control).and_then(|place| rest.split_at_checked(place))
        {
            f.write_str(before)?;
            let mut chars = control.chars();
            for escaped in chars.next().into_iter().flat_map(char::escape_default) {
                f.write_char(escaped)?;
            }
            rest = chars.as_str();
        }
        f.write_str(rest)
    }
}

/// The beginning of a text: all of it, or as many whole characters as `bytes_max` bytes have room for.
pub(crate) fn beginning(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_nothing_else_is() {
        for (text, shown) in [
            ("", ""),
            ("shop-api/ü", "shop-api/ü"),
            ("a\n2026 ERROR b", "a\\n2026 ERROR b"),
            ("\r\u{1b}[2Jx\u{7}", "\\r\\u{1b}[2Jx\\u{7}"),
            ("\u{85}é\t", "\\u{85}é\\t"),
        ] {
            assert_eq!(Printable(text).to_string(), shown);
        }
    }

    #[test]
    fn a_beginning_has_whole_characters() {
        for (bytes_max, expected) in [(0, ""), (1, "a"), (2, "a"), (3, "aü"), (9, "aü")] {
            assert_eq!(beginning("aü", bytes_max), expected);
        }
    }
}
