//! A line for people and for tools that read the Common Log Format.
//!
//! UTF-8 is written as such. A byte that is no part of it, or of a character that a terminal acts on, is written `\xXX`. In
//! the beginning blanks separate, so a blank within a value is written that way too.

use super::number::{push_micros, push_number};
use super::{Clock, Line, LogStyle, Value, are_plain, hex, is_plain, is_shown, protocol};
use crate::captures;

/// Appends the line.
pub(crate) fn write_line(line: &Line<'_>, style: &LogStyle, clock: &mut Clock, out: &mut Vec<u8>) {
    push_beginning(line, clock, out);
    for field in style.fields.iter().filter(|field| !field.is_in_beginning()) {
        push_pair(out, field.text_key(), field.value(line), clock);
    }
    out.push(b'\n');
}

/// Appends the line in the Combined Log Format: the beginning, `referer` and `user-agent`.
pub(crate) fn write_combined(
    line: &Line<'_>,
    style: &LogStyle,
    clock: &mut Clock,
    out: &mut Vec<u8>,
) {
    push_beginning(line, clock, out);
    let referer =
        style.referer.and_then(|place| captures::value(line.event.captures, style.digest, place));
    for value in [referer.unwrap_or_default(), line.event.user_agent] {
        out.push(b' ');
        push_quoted(out, if value.is_empty() { b"-" } else { value });
    }
    out.push(b'\n');
}

/// Appends what the Common Log Format has.
fn push_beginning(line: &Line<'_>, clock: &mut Clock, out: &mut Vec<u8>) {
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
    push_chars(out, bytes, false);
}

/// Appends the characters that are shown, and the bytes of the others as `\xXX`.
fn push_chars(out: &mut Vec<u8>, bytes: &[u8], is_token: bool) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let is_ascii = u8::try_from(c).is_ok_and(|byte| byte < 0x80);
            let is_plain = if is_ascii { u8::try_from(c).is_ok_and(is_plain) } else { is_shown(c) };
            let is_kept = is_plain && !(is_token && c.is_whitespace());
            let mut utf8 = [0; 4];
            for byte in c.encode_utf8(&mut utf8).as_bytes() {
                push_byte(out, *byte, is_kept);
            }
        }
        for byte in chunk.invalid() {
            push_byte(out, *byte, false);
        }
    }
}

/// Appends a value that blanks separate from its neighbours, or `-` for an empty one.
fn push_token(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        out.push(b'-');
    }
    push_chars(out, bytes, true);
}

fn push_byte(out: &mut Vec<u8>, byte: u8, is_kept: bool) {
    if is_kept {
        out.push(byte);
    } else {
        out.extend_from_slice(b"\\x");
        out.extend_from_slice(&hex(byte));
    }
}
