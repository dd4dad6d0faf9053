//! Edits of header fields: those of the filter `headers`, and `headers` of route tables, rules and weighted clusters.
//!
//! Names and values are checked when the configuration is read. In `routes` a value may have operators
//! ([`operators`]), which are parsed then, too. What a peer put into a value cannot end the field's line: an operator
//! whose text has an octet that no field value may have stands for nothing.

pub(crate) mod build;

mod check;
pub mod operators;
mod time;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::head::lookalike::{are_twins, has_underscore};
use wire::head::{Head, RequestHead, ResponseHead};

use self::check::{check_name, check_value, lower_case, repeated};
use self::operators::{Operator, OperatorFacts, Part, parse};
use crate::findings::Problem;

/// Sets, appends and removes header fields. What concerns the next hop only (`connection`, `upgrade`,
/// `transfer-encoding` and the like), `content-length`, `host` and `:path` are Strait's own and cannot be edited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeadersKey {
    /// Edits of forwarded requests, before their path and host are rewritten.
    #[serde(skip_serializing_if = "EditsKey::is_empty")]
    pub request: EditsKey,
    /// Edits of responses, both of upstreams and of Strait.
    #[serde(skip_serializing_if = "EditsKey::is_empty")]
    pub response: EditsKey,
}

/// Edits of one kind of head, in the order of the keys here: first fields are removed, in the end some are appended.
/// Operators in values see the head without the removed fields, before any is set or appended.
/// Values may have operators such as `%DOWNSTREAM_REMOTE_ADDRESS%`, and `%%` is a percent sign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EditsKey {
    /// Names of fields to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// Names and values of fields that replace all fields of the same name, or are added.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-literal" = "operators"))]
    pub set: BTreeMap<String, String>,
    /// The same, only if there is such a field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-literal" = "operators"))]
    pub set_if_present: BTreeMap<String, String>,
    /// Names and values of fields that are added to existing ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-literal" = "operators"))]
    pub append: BTreeMap<String, String>,
    /// The same, only if there is no such field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-literal" = "operators"))]
    pub append_if_absent: BTreeMap<String, String>,
}

impl EditsKey {
    /// Whether nothing is edited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Which heads are edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Of requests.
    Request,
    /// Of responses.
    Response,
}

/// Who edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Editor {
    /// A filter, before the request is routed: it may set the host. Its values are texts.
    Filter,
    /// A rule and what belongs to it. Values may have operators.
    Route,
}

/// How a field is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// It is removed.
    Remove,
    /// It is replaced or added.
    Set,
    /// It is replaced if it is there.
    SetIfPresent,
    /// It is added.
    Append,
    /// It is added if it is not there.
    AppendIfAbsent,
}

/// Edits that a rule, a route table or a weighted cluster asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Of requests.
    pub request: Edits,
    /// Of responses.
    pub response: Edits,
}

/// What is done to each head. Names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    remove: Box<[Box<[u8]>]>,
    /// In the order of their verbs.
    write: Box<[Field]>,
    /// Fields of the request whose values are asked for, each once.
    reads: Box<[Box<[u8]>]>,
}

/// A field to write.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    verb: Verb,
    name: Box<[u8]>,
    value: Value,
}

/// What a field is to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(Box<[u8]>),
    /// Put together for each head; what comes out empty is no field.
    Formed(Box<[Part]>),
}

/// What is wrong with an edit, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditError {
    /// The key that it stands under.
    pub verb: &'static str,
    /// The name of its field there, or its place in the list.
    pub at: EditPlace,
    /// What is wrong.
    pub problem: Problem,
}

/// Where an edit stands below its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditPlace {
    /// Under this name.
    Name(String),
    /// In a list.
    Index(usize),
}

impl Edits {
    /// The edits that `file` asks for. What is wrong goes to `errors`.
    pub fn new(file: &EditsKey, side: Side, editor: Editor, errors: &mut Vec<EditError>) -> Self {
        let mut removed: Vec<Box<[u8]>> = Vec::new();
        for (index, name) in file.remove.iter().enumerate() {
            let lower = lower_case(name);
            let problem = check_name(name, side, editor, Verb::Remove)
                .or_else(|| removed.contains(&lower).then(|| repeated(name)));
            match problem {
                Some(problem) => {
                    let at = EditPlace::Index(index);
                    errors.push(EditError { verb: Verb::Remove.key(), at, problem });
                }
                None => removed.push(lower),
            }
        }
        let mut write = Vec::new();
        for (verb, written) in [
            (Verb::Set, &file.set),
            (Verb::SetIfPresent, &file.set_if_present),
            (Verb::Append, &file.append),
            (Verb::AppendIfAbsent, &file.append_if_absent),
        ] {
            fields(written, side, editor, verb, &mut write, errors);
        }
        let mut reads: Vec<Box<[u8]>> = Vec::new();
        for name in write.iter().flat_map(Field::operators).flat_map(Operator::request_fields) {
            if !reads.contains(name) {
                reads.push(name.clone());
            }
        }
        Self { remove: removed.into(), write: write.into(), reads: reads.into() }
    }

    /// Whether nothing is edited.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.write.is_empty()
    }

    /// Edits a head with what needs to know nothing but the edits, as those of a filter.
    pub fn apply_texts<K>(&self, head: &mut Head<'_, K>) {
        self.apply(head, &mut Vec::new(), |_, _, _| {});
    }

    /// Edits a request. `facts` has what its operators ask for, `scratch` is room to put values together in.
    pub fn apply_to_request(
        &self,
        head: &mut RequestHead<'_>,
        facts: &dyn OperatorFacts,
        scratch: &mut Vec<u8>,
    ) {
        self.apply(head, scratch, |operator, head, out| operator.push_of_request(head, facts, out));
    }

    /// Edits a response. `kept` is what [`Edits::keep`] wrote of its request.
    pub fn apply_to_response(
        &self,
        head: &mut ResponseHead<'_>,
        kept: &[u8],
        facts: &dyn OperatorFacts,
        scratch: &mut Vec<u8>,
    ) {
        self.apply(head, scratch, |operator, head, out| {
            operator.push_of_response(head, kept, facts, out);
        });
    }

    /// Writes down what these edits of a response need of its request, behind what is in `kept`.
    pub fn keep(&self, head: &RequestHead<'_>, kept: &mut Vec<u8>) {
        for name in &self.reads {
            operators::keep(name, head, kept);
        }
    }

    /// Allocates nothing once the head's index and `scratch` have had room for as much before.
    fn apply<K>(
        &self,
        head: &mut Head<'_, K>,
        scratch: &mut Vec<u8>,
        push: impl Fn(&Operator, &Head<'_, K>, &mut Vec<u8>),
    ) {
        if head.has_unusual_names() {
            // A client must not send a field that is set or removed here in another spelling.
            let set = self.write.iter().filter(|field| field.verb < Verb::Append);
            let edited = || self.remove.iter().chain(set.clone().map(|field| &field.name));
            head.remove_others(|name| {
                has_underscore(name) && edited().any(|edited| are_twins(edited, name))
            });
        }
        for name in &self.remove {
            head.remove(name);
        }
        // What values ask for is what the head has now: the order in which fields are written changes none of them.
        scratch.clear();
        for field in &self.write {
            if let Value::Formed(parts) = &field.value {
                operators::form(parts, scratch, |operator, out| push(operator, head, out));
            }
        }
        let mut formed = &**scratch;
        for field in &self.write {
            let value = match &field.value {
                Value::Text(text) => Some(&**text),
                Value::Formed(_) => operators::next_formed(&mut formed),
            };
            let is_meant = match field.verb {
                Verb::SetIfPresent => head.contains(&field.name),
                Verb::AppendIfAbsent => !head.contains(&field.name),
                Verb::Remove | Verb::Set | Verb::Append => true,
            };
            if !is_meant {
                continue;
            }
            match (field.verb, value) {
                (Verb::Remove | Verb::Set | Verb::SetIfPresent, Some(value)) => {
                    head.set(&field.name, value);
                }
                // The value of a field that Strait sets is never the one that a peer sent.
                (Verb::Remove | Verb::Set | Verb::SetIfPresent, None) => {
                    head.remove(&field.name);
                }
                (Verb::Append | Verb::AppendIfAbsent, Some(value)) => {
                    head.append(&field.name, value);
                }
                (Verb::Append | Verb::AppendIfAbsent, None) => {}
            }
        }
    }
}

impl Field {
    fn operators(&self) -> impl Iterator<Item = &Operator> {
        let parts = match &self.value {
            Value::Text(_) => &[][..],
            Value::Formed(parts) => parts,
        };
        parts.iter().filter_map(Part::operator)
    }
}

impl HeaderEdits {
    /// Whether nothing is edited.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.request.is_empty() && self.response.is_empty()
    }
}

impl Side {
    /// What its edits stand under.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

impl Verb {
    const fn key(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Set => "set",
            Self::SetIfPresent => "set_if_present",
            Self::Append => "append",
            Self::AppendIfAbsent => "append_if_absent",
        }
    }
}

fn fields(
    written: &BTreeMap<String, String>,
    side: Side,
    editor: Editor,
    verb: Verb,
    fields: &mut Vec<Field>,
    errors: &mut Vec<EditError>,
) {
    let first = fields.len();
    for (name, text) in written {
        let lower = lower_case(name);
        let is_known = fields.iter().skip(first).any(|field| field.name == lower);
        let problem = check_name(name, side, editor, verb)
            .or_else(|| is_known.then(|| repeated(name)))
            .or_else(|| check_value(&lower, text));
        let value = match (problem, editor) {
            (Some(problem), _) => Err(problem),
            (None, Editor::Filter) => Ok(Value::Text(text.as_bytes().into())),
            (None, Editor::Route) => parse(text, side).map(Value::of_parts),
        };
        match value {
            Ok(value) => fields.push(Field { verb, name: lower, value }),
            Err(problem) => {
                let at = EditPlace::Name(name.clone());
                errors.push(EditError { verb: verb.key(), at, problem });
            }
        }
    }
}

impl Value {
    fn of_parts(parts: Vec<Part>) -> Self {
        match parts.as_slice() {
            [] => Self::Text(Box::default()),
            [Part::Text(text)] => Self::Text(text.clone()),
            _ => Self::Formed(parts.into()),
        }
    }
}

#[cfg(test)]
mod tests;
