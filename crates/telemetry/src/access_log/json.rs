//! A line as a JSON object.
//!
//! Text is written as ASCII: a byte that is not plain becomes `\u00XX` with its own value, also
//! where it is part of valid UTF-8. So every string is valid JSON whatever a peer sent, its bytes
//! can be read back, and no terminal or viewer interprets them.

use super::number::{push_micros, push_number};
use super::{Clock, FIELDS, Line, Value, are_plain, hex, is_plain};

/// Appends the object and a line feed.
pub(crate) fn write_line(line: &Line<'_>, clock: &mut Clock, out: &mut Vec<u8>) {
    out.push(b'{');
    write_members(line, clock, out);
    out.extend_from_slice(b"}\n");
}

/// Appends the object's members, without its braces.
pub(crate) fn write_members(line: &Line<'_>, clock: &mut Clock, out: &mut Vec<u8>) {
    let mut separator: &[u8] = b"";
    for field in FIELDS {
        let value = (field.value)(line);
        if matches!(value, Value::Absent) {
            continue;
        }
        out.extend_from_slice(separator);
        separator = b",";
        out.extend_from_slice(field.json_key.as_bytes());
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
        for byte in bytes {
            if is_plain(*byte) {
                out.push(*byte);
            } else {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&hex(*byte));
            }
        }
    }
    out.push(b'"');
}
