//! What a configuration may look like: the JSON Schema of the types in `file`, compiled.
//!
//! One description serves four readers: an editor gets the JSON Schema itself, the checker
//! (`shape::check`) and the reference (`reference`) work from the compiled form, and serde reads
//! the types from which the schema came. Only the part of JSON Schema that our types produce is
//! understood; anything else is an error of ours and found when a shape is made.
//!
//! Extensions, all for editors harmless: `x-format` (a scalar with its own parser), `x-minimum`,
//! `x-maximum` (bounds of such a scalar, as text), `x-none` (the word `none` is allowed as well),
//! `x-secret` (the value is not shown), `x-public` (it is, although its name says that it is a
//! secret), `x-noun` (what the keys of an object are), `x-meant` (hints for words or keys that other
//! programs have, in which `*` and `?` are wildcards; under no word, for a key that is missing), `x-literal` (a text, or
//! each of a map, is taken as it is, so that what looks like a variable is warned of; with `operators` what stands
//! between percent signs is Strait's own; with `body` only what nginx and Envoy have).

mod check;

pub(crate) use check::check;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map as JsonMap, Value as Json};

use crate::address::Address;
use crate::cidr::Cidr;
use crate::decimal::Decimal;
use crate::file_mode::FileMode;
use crate::findings::Problem;
use crate::percent::Percent;
use crate::resource::assignment::dns::EndpointAddress;
use crate::resource::cluster::checks::Hex;
use crate::units::{Period, Size};

/// What may stand at one place.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) kind: ShapeKind,
    /// What it means.
    pub(crate) doc: String,
    /// What holds when nothing is written.
    pub(crate) default: Option<Json>,
    /// Whether the value is kept out of what is shown.
    pub(crate) is_secret: bool,
    /// Whether the value is shown although its name says that it is a secret.
    pub(crate) is_public: bool,
    /// Words, or keys, that other programs have in this place, each with what to write here.
    pub(crate) meant: Vec<(String, String)>,
    /// What is not put in the place of what looks like a variable; none if that is no matter here.
    pub(crate) literal: Option<Literal>,
}

/// What of a text is taken as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    /// All of it.
    Whole,
    /// All but operators such as `%PROTOCOL%`.
    AllButOperators,
    /// All of it, and what is no variable of nginx or Envoy may look like one.
    Body,
}

#[derive(Clone, Debug)]
pub(crate) enum ShapeKind {
    /// Known keys.
    Object(Object),
    /// Keys that the writer chooses.
    Map(Box<Shape>),
    List {
        items: Box<Shape>,
        items_min: usize,
    },
    Text,
    /// One of these words, each with its meaning.
    Word(Vec<(String, String)>),
    Boolean,
    Integer(Integer),
    /// A scalar with a parser of its own.
    Special(Special),
    /// One of these, distinguished by what they look like.
    Either(Vec<Shape>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    pub(crate) fields: Vec<Field>,
    /// Exactly one of these keys stands.
    pub(crate) exactly_one: Vec<String>,
    /// Not more than one of these keys stands.
    pub(crate) at_most_one: Vec<String>,
    /// What its keys are, if not just keys (`x-noun`).
    pub(crate) noun: Option<String>,
}

impl Object {
    /// What its keys are.
    pub(crate) fn noun(&self) -> &str {
        self.noun.as_deref().unwrap_or("key")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) is_required: bool,
    pub(crate) shape: Shape,
}

#[derive(Clone, Debug)]
pub(crate) struct Integer {
    pub(crate) min: i128,
    pub(crate) max: i128,
    /// If not empty, only these.
    pub(crate) only: Vec<i128>,
}

#[derive(Clone, Debug)]
pub(crate) struct Special {
    pub(crate) format: Format,
    pub(crate) min: Option<String>,
    pub(crate) max: Option<String>,
    /// Whether the word `none` is allowed as well.
    pub(crate) allows_none: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Duration,
    Size,
    Address,
    /// An address, or a host with a port.
    Endpoint,
    Range,
    /// A share of requests.
    Percent,
    /// A number with a few digits behind the point.
    Decimal,
    /// Permissions of a file.
    Mode,
    /// Bytes in hexadecimal.
    Hex,
}

/// A schema that says something no shape can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("schema at {path:?}: {what}")]
pub struct SchemaError {
    /// Where in the schema.
    pub path: String,
    /// What is not understood.
    pub what: String,
}

/// The JSON Schema of a type: no references, no nulls.
///
/// The generator makes references, which are replaced here: where it is to leave them out, it takes three times as long, which was a third
/// of the time of a command.
pub(crate) fn schema_of<T: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None);
    let mut schema = Json::from(settings.into_generator().into_root_schema_for::<T>());
    Definitions::of(&mut schema).inline(&mut schema);
    without_nulls(&mut schema);
    schema
}

/// What references stand for, each with how many of these are to come.
#[derive(Default)]
struct Definitions(BTreeMap<String, (Json, usize)>);

impl Definitions {
    /// What the names of references begin with.
    const PLACE: &str = "#/$defs/";

    /// Takes them out of a schema.
    fn of(schema: &mut Json) -> Self {
        let all = schema.as_object_mut().and_then(|schema| schema.shift_remove("$defs"));
        let Some(Json::Object(all)) = all else { return Self::default() };
        let mut counts = BTreeMap::new();
        all.values().chain([&*schema]).for_each(|it| Self::count(it, &mut counts));
        let count = |name: &String| counts.get(name.as_str()).copied().unwrap_or_default();
        let uses: Vec<usize> = all.keys().map(count).collect();
        Self(all.into_iter().zip(uses).map(|((name, it), uses)| (name, (it, uses))).collect())
    }

    fn count<'s>(schema: &'s Json, counts: &mut BTreeMap<&'s str, usize>) {
        match schema {
            Json::Array(items) => items.iter().for_each(|item| Self::count(item, counts)),
            Json::Object(object) => {
                let reference = object.get("$ref").and_then(Json::as_str);
                if let Some(name) = reference.and_then(|it| it.strip_prefix(Self::PLACE)) {
                    *counts.entry(name).or_default() += 1;
                }
                object.values().for_each(|value| Self::count(value, counts));
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }

    /// One of them, without references. Only what is wanted again is copied.
    fn take(&mut self, reference: &str) -> Option<Json> {
        let name = reference.strip_prefix(Self::PLACE)?;
        let (mut definition, uses) = self.0.remove(name)?;
        self.inline(&mut definition);
        if uses > 1 {
            self.0.insert(name.to_owned(), (definition.clone(), uses - 1));
        }
        Some(definition)
    }

    /// Puts them in the place of references. What stands beside a reference goes first.
    fn inline(&mut self, schema: &mut Json) {
        match schema {
            Json::Array(items) => items.iter_mut().for_each(|item| self.inline(item)),
            Json::Object(object) => {
                let reference = object.shift_remove("$ref");
                object.values_mut().for_each(|value| self.inline(value));
                let reference = reference.as_ref().and_then(Json::as_str);
                let definition = reference.and_then(|reference| self.take(reference));
                if let Some(Json::Object(definition)) = definition {
                    for (key, value) in definition {
                        object.entry(key).or_insert(value);
                    }
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }
}

/// An absent key is how a file says "nothing": `Option` must not bring in a second way.
fn without_nulls(schema: &mut Json) {
    match schema {
        Json::Array(items) => items.iter_mut().for_each(without_nulls),
        Json::Object(object) => {
            object.values_mut().for_each(without_nulls);
            if object.get("default").is_some_and(Json::is_null) {
                object.shift_remove("default");
            }
            let mut only = None;
            if let Some(Json::Array(kinds)) = object.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [kind] = kinds.as_slice() {
                    only = Some(kind.clone());
                }
            }
            if let Some(kind) = only {
                object.insert("type".to_owned(), kind);
            }
            if let Some(Json::Array(words)) = object.get_mut("enum") {
                words.retain(|word| !word.is_null());
            }
            collapse(object);
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// `anyOf: [T, null]` becomes `T`, with what the outer schema says kept.
fn collapse(object: &mut JsonMap<String, Json>) {
    let Some(Json::Array(of)) = object.get_mut("anyOf") else { return };
    of.retain(|schema| schema.get("type").is_none_or(|kind| kind != "null"));
    if let [Json::Object(only)] = of.as_slice() {
        let only = only.clone();
        object.shift_remove("anyOf");
        for (key, value) in only {
            object.entry(key).or_insert(value);
        }
    }
}

impl Shape {
    /// What may stand in the list under this key.
    pub(crate) fn items(&self, key: &str) -> Option<&Self> {
        let ShapeKind::Object(object) = &self.kind else { return None };
        match &object.fields.iter().find(|field| field.name == key)?.shape.kind {
            ShapeKind::List { items, .. } => Some(items),
            _ => None,
        }
    }

    /// Compiles a schema that [`schema_of`] has made.
    pub(crate) fn new(schema: &Json, path: &str) -> Result<Self, SchemaError> {
        let text = |key: &str| schema.get(key).and_then(Json::as_str).unwrap_or_default();
        Ok(Self {
            kind: kind(schema, path)?,
            doc: text("description").to_owned(),
            default: schema.get("default").cloned(),
            is_secret: schema.get("x-secret").is_some_and(|value| value == true),
            is_public: schema.get("x-public").is_some_and(|value| value == true),
            meant: meant(schema),
            literal: schema.get("x-literal").map(|value| match value.as_str() {
                Some("operators") => Literal::AllButOperators,
                Some("body") => Literal::Body,
                _ => Literal::Whole,
            }),
        })
    }
}

fn meant(schema: &Json) -> Vec<(String, String)> {
    let meant = schema.get("x-meant").and_then(Json::as_object).into_iter().flatten();
    meant.filter_map(|(word, hint)| Some((word.clone(), hint.as_str()?.to_owned()))).collect()
}

fn kind(schema: &Json, path: &str) -> Result<ShapeKind, SchemaError> {
    if let Some(format) = schema.get("x-format") {
        return special(schema, format, path).map(ShapeKind::Special);
    }
    if let Some(of) = schema.get("anyOf").and_then(Json::as_array) {
        let shapes = of.iter().map(|schema| Shape::new(schema, path)).collect::<Result<_, _>>()?;
        return Ok(ShapeKind::Either(shapes));
    }
    if schema.get("properties").is_none()
        && let Some(of) = schema.get("oneOf").and_then(Json::as_array)
    {
        return of
            .iter()
            .map(|schema| word(schema, path))
            .collect::<Result<_, _>>()
            .map(ShapeKind::Word);
    }
    match schema.get("type").and_then(Json::as_str) {
        Some("object") => object(schema, path),
        Some("array") => {
            let items = schema.get("items").ok_or_else(|| unknown(path, "a list of anything"))?;
            let items_min = schema.get("minItems").and_then(Json::as_u64).unwrap_or(0);
            Ok(ShapeKind::List {
                items: Box::new(Shape::new(items, &format!("{path}[]"))?),
                items_min: usize::try_from(items_min).unwrap_or(usize::MAX),
            })
        }
        Some("boolean") => Ok(ShapeKind::Boolean),
        Some("integer") => {
            integer(schema).map(ShapeKind::Integer).ok_or_else(|| unknown(path, "integer bounds"))
        }
        Some("string") => match (schema.get("enum"), schema.get("const")) {
            (Some(Json::Array(words)), _) => {
                let word = |word: &Json| word.as_str().map(|word| (word.to_owned(), String::new()));
                let words = words.iter().map(word).collect::<Option<_>>();
                words.map(ShapeKind::Word).ok_or_else(|| unknown(path, "words that are no text"))
            }
            (_, Some(_)) => Ok(ShapeKind::Word(vec![word(schema, path)?])),
            _ => Ok(ShapeKind::Text),
        },
        kind => Err(unknown(path, &format!("type {kind:?}"))),
    }
}

fn object(schema: &Json, path: &str) -> Result<ShapeKind, SchemaError> {
    let Some(properties) = schema.get("properties").and_then(Json::as_object) else {
        return match schema.get("additionalProperties") {
            Some(values @ Json::Object(_)) => {
                Ok(ShapeKind::Map(Box::new(Shape::new(values, &format!("{path}.*"))?)))
            }
            Some(Json::Bool(false)) => Ok(ShapeKind::Object(Object::default())),
            _ => Err(unknown(path, "an object with any keys")),
        };
    };
    if schema.get("additionalProperties") != Some(&Json::Bool(false)) {
        return Err(unknown(
            path,
            "unknown keys are not refused: use #[serde(deny_unknown_fields)]",
        ));
    }
    let names = |key: &str| -> Vec<String> {
        let names = schema.get(key).and_then(Json::as_array).into_iter().flatten();
        names.filter_map(Json::as_str).map(str::to_owned).collect()
    };
    let required = names("required");
    let fields = properties
        .iter()
        .map(|(name, schema)| {
            let shape = Shape::new(schema, &format!("{path}.{name}"))?;
            Ok(Field { name: name.clone(), is_required: required.contains(name), shape })
        })
        .collect::<Result<_, _>>()?;
    let one_name = |schema: &Json| match schema.get("required")?.as_array()?.as_slice() {
        [name] => name.as_str().map(str::to_owned),
        _ => None,
    };
    let exactly_one = match schema.get("oneOf").and_then(Json::as_array) {
        None => Vec::new(),
        Some(of) => {
            let of: Option<_> = of.iter().map(one_name).collect();
            of.ok_or_else(|| unknown(path, "oneOf of more than one key each"))?
        }
    };
    // Two of them, or each two of more.
    let not = schema.get("not");
    let pairs = not.and_then(|not| not.get("anyOf")).and_then(Json::as_array);
    let pairs = pairs.map_or_else(|| not.into_iter().collect(), |pairs| pairs.iter().collect());
    let mut at_most_one: Vec<String> = Vec::new();
    for pair in <Vec<&Json>>::into_iter(pairs) {
        let names = pair.get("required").and_then(Json::as_array).into_iter().flatten();
        for name in names.filter_map(Json::as_str) {
            if !at_most_one.iter().any(|known| known == name) {
                at_most_one.push(name.to_owned());
            }
        }
    }
    let noun = schema.get("x-noun").and_then(Json::as_str).map(str::to_owned);
    Ok(ShapeKind::Object(Object { fields, exactly_one, at_most_one, noun }))
}

fn special(schema: &Json, format: &Json, path: &str) -> Result<Special, SchemaError> {
    let format = match format.as_str() {
        Some("duration") => Format::Duration,
        Some("size") => Format::Size,
        Some("address") => Format::Address,
        Some("endpoint") => Format::Endpoint,
        Some("range") => Format::Range,
        Some("percent") => Format::Percent,
        Some("decimal") => Format::Decimal,
        Some("mode") => Format::Mode,
        Some("hex") => Format::Hex,
        _ => return Err(unknown(path, &format!("x-format {format}"))),
    };
    let bound = |key: &str| schema.get(key).and_then(Json::as_str).map(str::to_owned);
    let special = Special {
        format,
        min: bound("x-minimum"),
        max: bound("x-maximum"),
        allows_none: schema.get("x-none").is_some_and(|value| value == true),
    };
    for bound in [&special.min, &special.max].into_iter().flatten() {
        format.read(bound).map_err(|problem| unknown(path, &problem.to_string()))?;
    }
    Ok(special)
}

fn word(schema: &Json, path: &str) -> Result<(String, String), SchemaError> {
    let word = schema.get("const").and_then(Json::as_str);
    let doc = schema.get("description").and_then(Json::as_str).unwrap_or_default();
    let word = word.ok_or_else(|| unknown(path, "oneOf of other things than words"))?;
    Ok((word.to_owned(), doc.to_owned()))
}

fn integer(schema: &Json) -> Option<Integer> {
    let number = |key: &str| schema.get(key).and_then(whole);
    let (min, max) = match schema.get("format").and_then(Json::as_str).unwrap_or_default() {
        "uint8" => (0, i128::from(u8::MAX)),
        "uint16" => (0, i128::from(u16::MAX)),
        "uint32" => (0, i128::from(u32::MAX)),
        "uint64" | "uint" => (0, i128::from(u64::MAX)),
        "int32" => (i128::from(i32::MIN), i128::from(i32::MAX)),
        "int64" | "int" => (i128::from(i64::MIN), i128::from(i64::MAX)),
        _ => return None,
    };
    let only = schema.get("enum").and_then(Json::as_array).into_iter().flatten();
    Some(Integer {
        min: number("minimum").map_or(min, |bound| bound.max(min)),
        max: number("maximum").map_or(max, |bound| bound.min(max)),
        only: only.filter_map(whole).collect(),
    })
}

/// Schemars writes some bounds as floats.
fn whole(number: &Json) -> Option<i128> {
    let float = || {
        let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
        format!("{float:.0}").parse().ok()
    };
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from)).or_else(float)
}

fn unknown(path: &str, what: &str) -> SchemaError {
    SchemaError { path: path.to_owned(), what: what.to_owned() }
}

impl Format {
    /// The value as something that can be compared with a bound, 0 where there are no bounds.
    pub(crate) fn read(self, text: &str) -> Result<u128, Problem> {
        match self {
            Self::Duration => text.parse::<Period>().map(|period| period.0.as_micros()),
            Self::Size => text.parse::<Size>().map(|size| u128::from(size.0)),
            Self::Address => text.parse::<Address>().map(|_| 0),
            Self::Endpoint => text.parse::<EndpointAddress>().map(|_| 0),
            Self::Range => text.parse::<Cidr>().map(|_| 0),
            Self::Percent => text.parse::<Percent>().map(|_| 0),
            Self::Decimal => text.parse::<Decimal>().map(|_| 0),
            Self::Mode => text.parse::<FileMode>().map(|_| 0),
            Self::Hex => text.parse::<Hex>().map(|_| 0),
        }
    }
}

impl Special {
    /// A bound as something to compare with and as text.
    pub(crate) fn bound<'a>(&self, text: &'a Option<String>) -> Option<(u128, &'a str)> {
        let text = text.as_deref()?;
        Some((self.format.read(text).ok()?, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_as_the_generator_would() {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let generator = settings.into_generator();
        let mut schema = Json::from(generator.into_root_schema_for::<crate::file::File>());
        without_nulls(&mut schema);
        assert!(schema_of::<crate::file::File>() == schema);
    }
}
