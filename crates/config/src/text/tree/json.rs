//! JSON text to a tree, as sources deliver it.
//!
//! JSON is YAML, but a reader of JSON alone needs a tenth of the time. It reads what it is sure of, printable ASCII without a
//! key that stands twice, and leaves all else to the reader of YAML, which also reports what is wrong. Either makes the same
//! tree of a text.

use jsonc_parser::ast::{ObjectPropName, Value as Json};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};

use super::yaml::{DEPTH_MAX, FILE_BYTES_MAX};
use super::{Entry, Node, Value};
use crate::findings::Position;

/// Keys of a map that are compared one by one to find one that stands twice; larger maps are left to the reader of YAML.
const KEYS_MAX: usize = 64;

/// Nothing but RFC 8259.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Reads `text`; none if it is for the reader of YAML.
pub(super) fn read(text: &str) -> Option<Node> {
    let is_read = |byte: u8| matches!(byte, b'\n' | b' '..=b'~');
    let is_json = text.trim_ascii_start().starts_with(['{', '[']) && text.bytes().all(is_read);
    if !is_json || text.len() > FILE_BYTES_MAX {
        return None;
    }
    let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: false };
    let root = parse_to_ast(text, &collect, &OPTIONS).ok()?.value?;
    Places { text, line: 1, line_begins: 0, read: 0 }.node(root, DEPTH_MAX)
}

/// Positions of values, which are asked for in the order of the text.
struct Places<'a> {
    text: &'a str,
    line: u32,
    line_begins: usize,
    read: usize,
}

impl Places<'_> {
    fn node(&mut self, value: Json<'_>, depth_left: usize) -> Option<Node> {
        let range = value.range();
        let at = self.position(range.start)?;
        let plain = |text: &str| Value::Scalar { text: text.into(), is_plain: true };
        let value = match value {
            Json::NullKeyword(_) => plain("null"),
            Json::BooleanLit(it) => plain(if it.value { "true" } else { "false" }),
            Json::NumberLit(it) => plain(it.value),
            Json::StringLit(it) => {
                self.check_string(range.start, range.end)?;
                Value::Scalar { text: it.value.into(), is_plain: false }
            }
            Json::Array(it) => {
                let depth_left = depth_left.checked_sub(1)?;
                let items = it.elements.into_iter().map(|item| self.node(item, depth_left));
                Value::List(items.collect::<Option<_>>()?)
            }
            Json::Object(it) => {
                let depth_left = depth_left.checked_sub(1)?;
                if it.properties.len() > KEYS_MAX {
                    return None;
                }
                let mut entries: Vec<Entry> = Vec::with_capacity(it.properties.len());
                for property in it.properties {
                    let range = property.name.range();
                    let key_at = self.position(range.start)?;
                    self.check_string(range.start, range.end)?;
                    let ObjectPropName::String(key) = property.name else { return None };
                    let key: Box<str> = key.value.into();
                    if entries.iter().any(|entry| entry.key == key) {
                        return None;
                    }
                    entries.push(Entry {
                        key,
                        key_at,
                        value: self.node(property.value, depth_left)?,
                    });
                }
                Value::Map(entries)
            }
        };
        Some(Node::new(at, value))
    }

    /// A string has no line breaks (RFC 8259, section 7); in YAML they would be spaces.
    fn check_string(&self, begins: usize, ends: usize) -> Option<()> {
        let written = self.text.as_bytes().get(begins..ends)?;
        (!written.contains(&b'\n')).then_some(())
    }

    /// The position of the octet at `offset`, which is a character, and not before the last one that was asked for.
    fn position(&mut self, offset: usize) -> Option<Position> {
        let passed = self.text.as_bytes().get(self.read..offset)?;
        for (place, _) in passed.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            self.line = self.line.saturating_add(1);
            self.line_begins = self.read + place + 1;
        }
        self.read = offset;
        let column = u32::try_from(offset - self.line_begins).unwrap_or(u32::MAX);
        Some(Position { line: self.line, column: column.saturating_add(1) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value as Any;

    use super::*;
    use crate::findings::Findings;
    use crate::text::tree::yaml;

    /// What the reader of YAML makes of a text, with all positions.
    fn by_yaml(text: &str) -> String {
        format!("{:?}", yaml::read(text, "", &mut Findings::new("f", text)))
    }

    #[track_caller]
    fn reads_as_yaml(text: &str) {
        let read = read(text);
        assert!(read.is_some(), "{text}");
        assert_eq!(format!("{read:?}"), by_yaml(text), "{text}");
    }

    #[test]
    fn json_reads_as_it_does_by_the_reader_of_yaml() {
        for text in [
            "{}",
            "[]",
            r#"{"name":"web","endpoints":["10.0.0.1:80",{"address":"10.0.0.2:80","weight":2}]}"#,
            "\n\n  {\n    \"a\": [\n      1, -2, 1.50, 1e3, true, false, null\n    ],\n    \"b\": {}\n  }\n",
            r#"{"a\"b":"tab\tline\nslash\/back\\ A\u0041\u00e9","":""}"#,
            r#"{"quoted":["1","true","null","~"],"long":123456789012345678901234567890}"#,
        ] {
            reads_as_yaml(text);
        }
    }

    #[test]
    fn what_may_be_something_else_is_left_to_the_reader_of_yaml() {
        for text in [
            "",
            "a: 1",
            "{a: 1}",
            r#"{"a": 1,}"#,
            r#"{"a": 1 "b": 2}"#,
            r#"{"a": 1} # more"#,
            "{\"a\": 1} // more",
            r#"{"a": 1, "a": 2}"#,
            "{\"a\": \"1\n2\"}",
            "{\"a\": \"1\t2\"}",
            "{\"a\":\t1}",
            "{\"a\":\r\n1}",
            r#"{"a": 'b'}"#,
            r#"{"a": +1}"#,
            r#"{"a": 0x1}"#,
            r#"{"a": .5}"#,
            r#"{"a": NaN}"#,
            r#"{"a": "\x41"}"#,
            r#"{"a": &x 1, "b": *x}"#,
            "{\"a\": \"é\"}",
            "{}{}",
            "{",
            "\u{feff}{}",
        ] {
            assert!(read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn depth_and_keys_are_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        reads_as_yaml(&nested(DEPTH_MAX));
        assert!(read(&nested(DEPTH_MAX + 1)).is_none());
        assert!(read(&"[".repeat(1_000_000)).is_none());
        let keys = |keys: usize| {
            let keys: Vec<String> = (0..keys).map(|key| format!("\"{key}\":0")).collect();
            format!("{{{}}}", keys.join(","))
        };
        reads_as_yaml(&keys(KEYS_MAX));
        assert!(read(&keys(KEYS_MAX + 1)).is_none());
    }

    fn any_value() -> impl Strategy<Value = Any> {
        let scalar = prop_oneof![
            Just(Any::Null),
            any::<bool>().prop_map(Any::from),
            any::<i64>().prop_map(Any::from),
            any::<u64>().prop_map(Any::from),
            (-1e9..1e9).prop_map(Any::from),
            "[ -~\\n\\t]{0,12}".prop_map(Any::from),
        ];
        scalar.prop_recursive(4, 40, 6, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..6).prop_map(Any::from);
            let map = prop::collection::btree_map("[ -~]{0,8}", inner, 0..6);
            prop_oneof![list, map.prop_map(|map| Any::Object(map.into_iter().collect()))]
        })
    }

    proptest! {
        #[test]
        fn any_json_reads_as_it_does_by_the_reader_of_yaml(value in any_value(), is_pretty: bool) {
            let value = Any::from(vec![value]);
            let text = if is_pretty { format!("{value:#}") } else { value.to_string() };
            let read = read(&text);
            prop_assert!(read.is_some(), "{}", text);
            prop_assert_eq!(format!("{read:?}"), by_yaml(&text), "{}", text);
        }
    }
}
