//! A file as a tree that knows where each piece was written.
//!
//! The tree stands between the text and the typed `file::*`: it is checked against the shape of a
//! configuration, what is wrong is reported and cut out ([`Value::Cut`]) or, where something has to
//! stand, replaced by a stand-in about which nothing more is said, and the rest is read into types.
//! So one mistake hides no other, and none is reported twice.

mod deserialize;
mod environment;
mod json;
mod unreadable;
mod yaml;

pub(crate) use deserialize::{Mismatch, deserialize};
pub(crate) use environment::{expand, refuse_variables};
pub use yaml::FILE_BYTES_MAX;

use crate::findings::{Findings, KeptWarning, Path, Position, Problem, Step};

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) value: Value,
    /// Whether this is not from the file: it stands for something that was reported as wrong or missing,
    /// and what is wrong with it is not the file's mistake.
    pub(crate) is_stand_in: bool,
    /// Whether it reads as an entry that was lowered before (`unchanged`).
    pub(crate) is_known: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Text, number, boolean or nothing: [`Node::scalar`] tells.
    Scalar {
        text: Box<str>,
        /// Without quotes, so that it may be other than text.
        is_plain: bool,
    },
    List(Vec<Node>),
    /// In the order of the file; no key stands twice.
    Map(Vec<Entry>),
    /// Something that was reported as wrong; it counts as absent from then on.
    Cut,
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Box<str>,
    pub(crate) key_at: Position,
    pub(crate) value: Node,
}

/// What a scalar is by the core schema of YAML 1.2 (section 10.3.2): `yes` and `on` are text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    Integer(i128),
    /// A number that is not whole, or that no integer of ours can hold.
    Float(f64),
    Text(&'a str),
}

/// Reads `text`, YAML or JSON. What is wrong with it is reported, with `empty_hint` if it is empty; none means that
/// nothing can be read.
pub(crate) fn read(
    text: &str,
    empty_hint: &'static str,
    findings: &mut Findings<'_>,
) -> Option<Node> {
    json::read(text).or_else(|| yaml::read(text, empty_hint, findings))
}

impl Node {
    /// What was written at `at`.
    pub(crate) const fn new(at: Position, value: Value) -> Self {
        Self { at, value, is_stand_in: false, is_known: false }
    }

    /// What this scalar is; none for lists, maps and what was cut.
    pub(crate) fn scalar(&self) -> Option<Scalar<'_>> {
        match &self.value {
            Value::Scalar { text, is_plain: true } => Some(resolve(text)),
            Value::Scalar { text, is_plain: false } => Some(Scalar::Text(text)),
            Value::List(_) | Value::Map(_) | Value::Cut => None,
        }
    }

    /// The text of a scalar, as written without quotes.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            Value::List(_) | Value::Map(_) | Value::Cut => None,
        }
    }

    /// The entries of a map; none for everything else.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            Value::List(_) | Value::Scalar { .. } | Value::Cut => &[],
        }
    }

    /// The items of a list, with those that were cut; none for everything else.
    pub(crate) fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            Value::Map(_) | Value::Scalar { .. } | Value::Cut => &[],
        }
    }

    /// What stands under `key`, unless it was cut.
    pub(crate) fn find(&self, key: &str) -> Option<&Self> {
        let entry = self.entries().iter().find(|entry| entry.key.as_ref() == key)?;
        (!entry.value.is_cut()).then_some(&entry.value)
    }

    pub(crate) const fn is_cut(&self) -> bool {
        matches!(self.value, Value::Cut)
    }

    /// Whether anything here was reported as wrong, and cut or replaced.
    pub(crate) fn has_cut(&self) -> bool {
        self.is_cut()
            || self.is_stand_in
            || self.items().iter().any(Self::has_cut)
            || self.entries().iter().any(|entry| entry.value.has_cut())
    }

    /// How a report shows this value: text in quotes, other scalars as they are, nothing for
    /// what has many lines.
    pub(crate) fn shown(&self) -> String {
        match self.scalar() {
            Some(Scalar::Text(text)) => format!("{text:?}"),
            Some(Scalar::Null) => String::new(),
            Some(_) => self.text().unwrap_or_default().to_owned(),
            None => String::new(),
        }
    }

    /// The value as JSON, without what was cut.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::List(items) => {
                items.iter().filter(|item| !item.is_cut()).map(Self::to_json).collect()
            }
            Value::Map(entries) => entries
                .iter()
                .filter(|entry| !entry.value.is_cut())
                .map(|entry| (String::from(entry.key.as_ref()), entry.value.to_json()))
                .collect(),
            Value::Cut => serde_json::Value::Null,
            Value::Scalar { .. } => match self.scalar() {
                None | Some(Scalar::Null) => serde_json::Value::Null,
                Some(Scalar::Bool(value)) => value.into(),
                Some(Scalar::Float(value)) => value.into(),
                Some(Scalar::Text(text)) => text.into(),
                Some(Scalar::Integer(value)) => {
                    match (i64::try_from(value), u64::try_from(value)) {
                        (Ok(value), _) => value.into(),
                        (_, Ok(value)) => value.into(),
                        // Beyond 64 bits no key of ours goes; the shape has refused it.
                        _ => serde_json::Value::Null,
                    }
                }
            },
        }
    }
}

/// The core schema of YAML 1.2 for a plain scalar.
fn resolve(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Bool(true),
        "false" | "False" | "FALSE" => return Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
        return Scalar::Float(f64::INFINITY * sign);
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Scalar::Text(text);
    }
    let based = |prefix: &str, radix| {
        let digits = text.strip_prefix(prefix)?;
        let is_digits = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        is_digits.then(|| i128::from_str_radix(digits, radix).ok()).flatten()
    };
    if let Some(value) = based("0x", 16).or_else(|| based("0o", 8)) {
        return Scalar::Integer(value);
    }
    if unsigned.bytes().all(|b| b.is_ascii_digit())
        && let Ok(value) = text.parse()
    {
        return Scalar::Integer(value);
    }
    let is_float_byte = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    match text.parse() {
        Ok(value) if text.bytes().all(is_float_byte) => Scalar::Float(value),
        _ => Scalar::Text(text),
    }
}

/// A node and the way to it, for what a section's construction has to report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    node: &'a Node,
    path: Path<'a>,
    /// Whether `node` is what stands at `path`, or only the nearest that was written.
    is_written: bool,
}

impl<'a> Site<'a> {
    pub(crate) const fn root(node: &'a Node) -> Self {
        Self { node, path: Path::Root, is_written: true }
    }

    /// What stands under `key`. A report about what is absent points to where it would be.
    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        let found = self.node.find(key);
        let path = Path::Key(&self.path, key);
        Self { node: found.unwrap_or(self.node), path, is_written: found.is_some() }
    }

    /// The items of a list without those that were cut, under their places in the file. They
    /// stand as the items of the list that was read into types stand.
    pub(crate) fn items(&'a self) -> impl Iterator<Item = Self> {
        let items = self.node.items().iter().enumerate();
        items.filter(|(_, item)| !item.is_cut()).map(|(index, node)| Self {
            node,
            path: Path::Index(&self.path, index),
            is_written: true,
        })
    }

    /// What stands in a list at `place`, unless it was cut.
    fn item(&'a self, place: usize) -> Option<Self> {
        let node = self.node.items().get(place).filter(|item| !item.is_cut())?;
        Some(Self { node, path: Path::Index(&self.path, place), is_written: true })
    }

    /// The entries of a map without those that were cut.
    pub(crate) fn entries(&'a self) -> impl Iterator<Item = (&'a str, Self)> {
        let entries = self.node.entries().iter().filter(|entry| !entry.value.is_cut());
        entries.map(|entry| (entry.key.as_ref(), self.key(&entry.key)))
    }

    /// Whether `key` stands in this map, be its value sound or not.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.node.entries().iter().any(|entry| entry.key.as_ref() == key)
    }

    /// Whether what stood under `key` was reported and cut, so that its meaning is not known.
    pub(crate) fn is_cut(&self, key: &str) -> bool {
        self.has_key(key) && self.node.find(key).is_none()
    }

    /// Whether this was written at all.
    pub(crate) const fn is_written(&self) -> bool {
        self.is_written
    }

    pub(crate) const fn node(&self) -> &'a Node {
        self.node
    }

    pub(crate) const fn path(&self) -> Path<'a> {
        self.path
    }

    pub(crate) const fn at(&self) -> Position {
        self.node.at
    }

    /// Reports that the value here is wrong, unless it is a stand-in.
    pub(crate) fn error(&self, findings: &mut Findings<'_>, problem: Problem) {
        if self.node.is_stand_in {
            return;
        }
        findings.error(self.node.at, self.path, &self.shown(), problem);
    }

    /// Reports that the key here is wrong, rather than its value.
    pub(crate) fn key_error(&self, findings: &mut Findings<'_>, key: &str, problem: Problem) {
        let entry = self.node.entries().iter().find(|entry| entry.key.as_ref() == key);
        let at = entry.map_or(self.node.at, |entry| entry.key_at);
        findings.key_error(at, Path::Key(&self.path, key), problem);
    }

    /// Reports that the value here is allowed, but looks like a mistake.
    pub(crate) fn warning(&self, findings: &mut Findings<'_>, problem: Problem) {
        if self.node.is_stand_in {
            return;
        }
        findings.warning(self.node.at, self.path, &self.shown(), problem);
    }

    /// As [`Self::warning`], of what may be in order later although the text stays as it is.
    pub(crate) fn passing_warning(&self, findings: &mut Findings<'_>, problem: Problem) {
        if self.node.is_stand_in {
            return;
        }
        findings.passing_warning(self.node.at, self.path, &self.shown(), problem);
    }

    /// Reports a warning of the entry here again, as if the entry were lowered.
    pub(crate) fn warn_again(&self, warning: &KeptWarning, findings: &mut Findings<'_>) {
        self.warn_at(&warning.way, &warning.problem, findings);
    }

    fn warn_at(&self, way: &[Step], problem: &Problem, findings: &mut Findings<'_>) {
        match way.split_first() {
            None => self.warning(findings, problem.clone()),
            Some((Step::Key(key), rest)) => self.key(key).warn_at(rest, problem, findings),
            Some((Step::Index(place), rest)) => {
                if let Some(item) = self.item(*place) {
                    item.warn_at(rest, problem, findings);
                }
            }
        }
    }

    fn shown(&self) -> String {
        if self.is_written { self.node.shown() } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_are_what_yaml_1_2_says() {
        for (text, scalar) in [
            ("", Scalar::Null),
            ("~", Scalar::Null),
            ("null", Scalar::Null),
            ("true", Scalar::Bool(true)),
            ("FALSE", Scalar::Bool(false)),
            ("yes", Scalar::Text("yes")),
            ("on", Scalar::Text("on")),
            ("0", Scalar::Integer(0)),
            ("-12", Scalar::Integer(-12)),
            ("+12", Scalar::Integer(12)),
            ("012", Scalar::Integer(12)),
            ("0x1F", Scalar::Integer(31)),
            ("0o17", Scalar::Integer(15)),
            ("0x", Scalar::Text("0x")),
            ("0x+1", Scalar::Text("0x+1")),
            ("1_000", Scalar::Text("1_000")),
            ("1.5", Scalar::Float(1.5)),
            (".5", Scalar::Float(0.5)),
            ("1e3", Scalar::Float(1000.0)),
            ("-.inf", Scalar::Float(f64::NEG_INFINITY)),
            ("infinity", Scalar::Text("infinity")),
            ("nan", Scalar::Text("nan")),
            ("1s", Scalar::Text("1s")),
            ("127.0.0.1", Scalar::Text("127.0.0.1")),
            ("-", Scalar::Text("-")),
            (".", Scalar::Text(".")),
            ("/", Scalar::Text("/")),
        ] {
            assert_eq!(resolve(text), scalar, "{text:?}");
        }
    }
}
