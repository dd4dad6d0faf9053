//! A line for people and for tools that read the Common Log Format.
//!
//! A byte that is not plain is written `\xXX`. In the beginning blanks separate, so a blank
//! within a value is written that way too.

use super::number::{push_micros, push_number};
use super::{Clock, FIELDS, Line, Value, are_plain, hex, is_plain, protocol};

/// Appends the line.
pub(crate) fn write_line(line: &Line<'_>, clock: &mut Clock, out: &mut Vec<u8>) {
    let event = &line.event;
    push_token(out, event.client);
    out.extend_from_slice(b" - - [");
    clock.push_common(event.started_at, out);
    out.extend_from_slice(b"] \"");
    push_token(out, event.method);
    out.push(b' ');
    push_token(out, event.target);
    out.push(b' ');
    push_token(out, protocol(event.version).as_bytes());
    out.extend_from_slice(b"\" ");
    if event.status == 0 {
        out.push(b'-');
    } else {
        push_number(out, u64::from(event.status));
    }
    out.push(b' ');
    push_number(out, event.response_bytes);
    for field in FIELDS.iter().filter(|field| !field.is_in_beginning) {
        push_pair(out, field.text_key, (field.value)(line), clock);
    }
    out.push(b'\n');
}

fn push_pair(out: &mut Vec<u8>, key: &str, value: Value<'_>, clock: &mut Clock) {
    if matches!(value, Value::Absent) {
        return;
    }
    out.extend_from_slice(key.as_bytes());
    match value {
        Value::Absent => {}
        Value::Bytes(bytes) => push_quoted(out, bytes),
        Value::Text(text) => push_quoted(out, text.as_bytes()),
        Value::Number(number) => push_number(out, number),
        Value::Length(ns) => push_micros(out, ns),
        Value::Time(at) => clock.push_iso(at, out),
        Value::IsTrue => out.extend_from_slice(b"true"),
    }
}

fn push_quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    push_escaped(out, bytes);
    out.push(b'"');
}

/// Appends text with what is not plain escaped.
pub(crate) fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    if are_plain(bytes) {
        out.extend_from_slice(bytes);
        return;
    }
    for byte in bytes {
        push_byte(out, *byte, is_plain(*byte));
    }
}

/// Appends a value that blanks separate from its neighbours, or `-` for an empty one.
fn push_token(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        out.push(b'-');
    }
    for byte in bytes {
        push_byte(out, *byte, is_plain(*byte) && *byte != b' ');
    }
}

fn push_byte(out: &mut Vec<u8>, byte: u8, is_kept: bool) {
    if is_kept {
        out.push(byte);
    } else {
        out.extend_from_slice(b"\\x");
        out.extend_from_slice(&hex(byte));
    }
}
