//! A line as a JSON object.
//!
//! UTF-8 is written as such, but for characters that a terminal or a viewer acts on, which become `\\uXXXX`. A byte that
//! is no part of UTF-8 becomes `\\\\xXX`, as in the text form. So every string is valid JSON whatever a peer sent.

use super::number::{push_micros, push_number};
use super::{Clock, Line, LogStyle, Selected, Value, are_plain, hex, is_plain, is_shown};

/// Appends the object and a line feed.
pub(crate) fn write_line(line: &Line<'_>, style: &LogStyle, clock: &mut Clock, out: &mut Vec<u8>) {
    out.push(b'{');
    write_members(line, &style.fields, clock, out);
    out.extend_from_slice(b"}\n");
}

/// Appends the object's members, without its braces.
pub(crate) fn write_members(
    line: &Line<'_>,
    fields: &[Selected],
    clock: &mut Clock,
    out: &mut Vec<u8>,
) {
    let mut separator: &[u8] = b"";
    for field in fields {
        let value = field.value(line);
        if matches!(value, Value::Absent) {
            continue;
        }
        out.extend_from_slice(separator);
        separator = b",";
        out.extend_from_slice(field.json_key().as_bytes());
        match value {
            Value::Absent => {}
            Value::Bytes(bytes) => push_string(out, bytes),
            Value::Text(text) => push_string(out, text.as_bytes()),
            Value::Number(number) => push_number(out, number),
            Value::Length(ns) => push_micros(out, ns),
            Value::Time(at) => {
                out.push(b'"');
                clock.push_iso(at, out);
                out.push(b'"');
            }
            Value::IsTrue => out.extend_from_slice(b"true"),
        }
    }
}

fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    if are_plain(bytes) {
        out.extend_from_slice(bytes);
    } else {
        for chunk in bytes.utf8_chunks() {
            chunk.valid().chars().for_each(|c| push_char(out, c));
            for byte in chunk.invalid() {
                out.extend_from_slice(b"\\\\x");
                out.extend_from_slice(&hex(*byte));
            }
        }
    }
    out.push(b'"');
}

fn push_char(out: &mut Vec<u8>, c: char) {
    match u8::try_from(c) {
        Ok(byte) if is_plain(byte) => out.push(byte),
        Ok(byte) if byte < 0x80 || !is_shown(c) => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&hex(byte));
        }
        _ if is_shown(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        _ => {
            // None of these is beyond 16 bits.
            let [.., high, low] = u32::from(c).to_be_bytes();
            out.extend_from_slice(b"\\u");
            out.extend_from_slice(&hex(high));
            out.extend_from_slice(&hex(low));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_valid_json_for_any_bytes_and_utf8_stays() {
        for (bytes, written) in [
            (&b"plain"[..], r#""plain""#),
            ("gérance ü 日本 🦀".as_bytes(), "\"gérance ü 日本 🦀\""),
            (b"a\"b\\c", r#""a\u0022b\u005cc""#),
            (b"\x1b[31m\n", r#""\u001b[31m\u000a""#),
            (b"\xff\xc3", r#""\\xff\\xc3""#),
            ("\u{85}\u{202e}\u{2028}".as_bytes(), r#""\u0085\u202e\u2028""#),
            (b"\xc3\xa9\xe9", "\"é\\\\xe9\""),
        ] {
            let mut out = Vec::new();
            push_string(&mut out, bytes);
            let out = String::from_utf8(out).unwrap();
            assert_eq!(out, written);
            serde_json::from_str::<String>(&out).unwrap();
        }
        for byte in 0..=u8::MAX {
            let mut out = Vec::new();
            push_string(&mut out, &[b'a', byte, 0xe2, 0x80]);
            serde_json::from_slice::<String>(&out).unwrap();
        }
    }
}
