//! Why a text is no YAML, where the parser's own words name the symptom and not the mistake.

use saphyr_parser::ScanError;

use super::environment;
use super::yaml::{Stop, marker};
use crate::findings::{Position, Problem};

/// The mistake behind an error of the parser.
pub(super) fn explain(text: &str, error: &ScanError) -> Stop {
    let at = marker(*error.marker());
    if let Some(stop) = tab(text, at).or_else(|| brackets(text, at)) {
        return stop;
    }
    if let Some(stop) = open_variable(text, at).or_else(|| variable(text, at)) {
        return stop;
    }
    let hint = if error.info().contains("anchor") {
        "put quotes around a text that begins with `*` or `&`, such as \"*.example.com\""
    } else if error.info().contains("escape character") {
        "write single quotes around a text with backslashes, such as '/v2/\\1'"
    } else {
        "check the indentation, the quotes and the brackets here and on the line before"
    };
    let what = if text.trim_start().starts_with(['{', '[']) {
        "neither JSON nor YAML"
    } else {
        "not YAML"
    };
    (at, Problem::new(format!("this is {what}: {}", error.info()), hint))
}

/// The lines that an error may be about, with their numbers: its own, and the next one, which the parser may
/// have looked at.
fn lines_at(text: &str, at: Position) -> impl Iterator<Item = (u32, &str)> {
    (1..).zip(text.lines()).filter(move |(number, _)| (at.line..=at.line + 1).contains(number))
}

/// A tab in the indentation, or before a value of the error's own line (YAML 1.2, section 6.1).
fn tab(text: &str, at: Position) -> Option<Stop> {
    let stop = |line, characters: usize| {
        let column = u32::try_from(characters).unwrap_or(u32::MAX).saturating_add(1);
        let rule = "this is a tab, and YAML is indented with spaces";
        (Position { line, column }, Problem::new(rule, "write spaces in its place"))
    };
    let indented = lines_at(text, at).find_map(|(number, line)| {
        let blank = line.chars().take_while(|c| matches!(c, ' ' | '\t'));
        blank.clone().position(|c| c == '\t').map(|place| stop(number, place))
    });
    indented.or_else(|| {
        let (number, line) = lines_at(text, at).find(|(number, _)| *number == at.line)?;
        let place = line.chars().take(at.column as usize).position(|c| c == '\t')?;
        Some(stop(number, place))
    })
}

/// An IPv6 address in brackets without quotes, which begins a list.
fn brackets(text: &str, at: Position) -> Option<Stop> {
    let (number, line) = lines_at(text, at).find(|(_, line)| address(line).is_some())?;
    let (place, address) = address(line)?;
    let column = line.get(..place)?.chars().count();
    let column = u32::try_from(column).unwrap_or(u32::MAX).saturating_add(1);
    let rule = "an IPv6 address without quotes is the beginning of a list";
    let problem = Problem::new(rule, format!("write {address:?}"));
    Some((Position { line: number, column }, problem))
}

/// A variable without its brace, on the line of the error or the one before: what ends it is the brace of the map around it, which
/// has a space before it.
fn open_variable(text: &str, at: Position) -> Option<Stop> {
    let first = at.line.saturating_sub(1);
    let mut lines = (1..).zip(text.lines()).filter(|(line, _)| (first..=at.line).contains(line));
    lines.find_map(|(line, shown)| {
        let place = shown.match_indices("${").find_map(|(place, _)| {
            let found = shown.get(place..)?.split_inclusive('}').next()?;
            let inner = found.get(2..)?;
            let begins = inner.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            let is_open = begins && inner.ends_with(" }") && !inner.contains('{');
            let is_escaped = shown.get(..place)?.ends_with('$');
            (is_open && !is_escaped).then_some(place)
        })?;
        let column = u32::try_from(shown.get(..place)?.chars().count()).ok()?.saturating_add(1);
        Some((Position { line, column }, environment::no_end()))
    })
}

/// A variable of the environment within `{ }` or `[ ]` that needs quotes (`environment::without_braces`), or that is none.
fn variable(text: &str, at: Position) -> Option<Stop> {
    let (_, line) = lines_at(text, at).find(|(number, _)| *number == at.line)?;
    let before: String = line.chars().take(at.column as usize).collect();
    let place = before.rfind("${")?;
    let is_escaped = before.get(..place)?.ends_with('$');
    let place = place - usize::from(is_escaped);
    let column = u32::try_from(before.get(..place)?.chars().count()).ok()?.saturating_add(1);
    let found = line.get(place..)?.split_inclusive('}').next()?;
    let quoted = format!("write {found:?}");
    let problem = if !found.ends_with('}') {
        return (!is_escaped).then(|| (Position { column, ..at }, environment::no_end()));
    } else if found.get(2..)?.contains('{') && environment::is_named(found) {
        environment::nested()
    } else if is_escaped {
        Problem::new("these characters must be quoted within `{ }` or `[ ]`", quoted)
    } else if environment::is_named(found) {
        let rule = "within `{ }` or `[ ]`, a variable must be quoted if its default contains quotes, brackets or commas";
        Problem::new(rule, quoted)
    } else {
        environment::no_name()
    };
    Some((Position { column, ..at }, problem))
}

/// Octets that an IPv6 address in brackets may have, with both of these.
const BRACKETED_MAX: usize = 64;

/// The first `[…]:port` of a line that stands without quotes, and where it begins.
fn address(line: &str) -> Option<(usize, &str)> {
    line.match_indices('[').find_map(|(place, _)| {
        let found = line.get(place..)?;
        // No farther than it may be: a line may have millions of brackets.
        let end = found.bytes().take(BRACKETED_MAX).position(|byte| byte == b']')?;
        let port = found.get(end..)?.strip_prefix("]:")?;
        let digits = port.bytes().take_while(u8::is_ascii_digit).count();
        let found = found.get(..end + 2 + digits)?;
        let is_address = found.parse::<std::net::SocketAddrV6>().is_ok();
        let is_quoted = line.get(..place)?.ends_with(['"', '\'']);
        (is_address && !is_quoted).then_some((place, found))
    })
}
