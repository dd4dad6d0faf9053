//! The JSON Schema of a configuration file, for editors.

use serde_json::{Value as Json, json};

use crate::file::File;
use crate::protocols::Protocols;
use crate::resource::filter::FilterKinds;
use crate::text::shape::schema_of;

/// The JSON Schema (draft 2020-12) of a file with these filters.
///
/// It comes from the types in [`crate::file`]; files are checked against what it is made of.
#[must_use]
pub fn schema<F>(kinds: &FilterKinds<F>) -> Json {
    let mut schema = compiled(kinds);
    with_numbers(&mut schema);
    schema
}

/// A word such as `1.3` may stand without quotes, and is a number for an editor then.
fn with_numbers(schema: &mut Json) {
    match schema {
        Json::Array(items) => items.iter_mut().for_each(with_numbers),
        Json::Object(object) => {
            object.values_mut().for_each(with_numbers);
            if let Some(Json::Array(words)) = object.get_mut("oneOf") {
                let number = |word: &Json| {
                    let number: serde_json::Number = word.get("const")?.as_str()?.parse().ok()?;
                    let mut other = word.as_object()?.clone();
                    other.insert("const".to_owned(), number.into());
                    other.insert("type".to_owned(), "number".into());
                    Some(Json::Object(other))
                };
                let numbers: Vec<Json> = words.iter().filter_map(number).collect();
                words.extend(numbers);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// The schema that files are checked against.
pub(crate) fn compiled<F>(kinds: &FilterKinds<F>) -> Json {
    let mut schema = schema_of::<File>();
    const LISTENER: &str = "/properties/listeners/items/properties";
    for holder in [LISTENER, &format!("{LISTENER}/chains/items/properties")] {
        if let Some(items) = schema.pointer_mut(&format!("{holder}/filters/items")) {
            *items = kinds.filters.schema();
        }
        add_handlers(schema.pointer_mut(holder), kinds);
        let listener = holder.trim_end_matches("/properties");
        mean_handlers(schema.pointer_mut(listener), kinds);
        add_protocols(schema.pointer_mut(&format!("{holder}/protocol")), kinds.protocols());
    }
    let of_matches = format!("{LISTENER}/chains/items/properties/match/properties/protocols/items");
    add_protocols(schema.pointer_mut(&of_matches), kinds.protocols());
    let of_clusters = "/properties/clusters/items/properties/protocol";
    add_protocols(schema.pointer_mut(of_clusters), kinds.protocols());
    if let Some(schema) = schema.as_object_mut() {
        let title = json!("Strait configuration");
        schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        schema.insert("title".to_owned(), title);
    }
    schema
}

/// Says what `handlers` may be, if the program knows any.
fn add_handlers<F>(schema: Option<&mut Json>, kinds: &FilterKinds<F>) {
    let Some(properties) = schema.and_then(Json::as_object_mut) else { return };
    if kinds.handlers.is_empty() {
        properties.shift_remove("handlers");
    } else if let Some(items) = properties.get_mut("handlers").and_then(|it| it.get_mut("items")) {
        *items = kinds.handlers.schema();
    }
}

/// Says for whom `handlers` are, where the program knows none.
fn mean_handlers<F>(schema: Option<&mut Json>, kinds: &FilterKinds<F>) {
    let Some(object) = schema.and_then(Json::as_object_mut).filter(|_| kinds.handlers.is_empty())
    else {
        return;
    };
    let hint = "this program has no route handlers; run the one that registers them";
    if let Some(meant) = object.entry("x-meant").or_insert_with(|| json!({})).as_object_mut() {
        meant.insert("handlers".to_owned(), json!(hint));
    }
}

/// Adds the RPC protocols to the words of `protocol`.
fn add_protocols(schema: Option<&mut Json>, protocols: &Protocols) {
    let Some(schema) = schema.and_then(Json::as_object_mut) else { return };
    // The words of the enum, among which its open end is not.
    let words = schema.shift_remove("anyOf").unwrap_or_default();
    let words = schema.entry("oneOf").or_insert(words);
    if let Some(words) = words.as_array_mut() {
        words.extend(protocols.iter().map(|protocol| {
            let name = protocol.name();
            let description = format!("The RPC protocol {name}: calls share connections.");
            json!({ "type": "string", "const": name, "description": description })
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path as FilePath;

    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::findings::{Findings, Path};
    use crate::text::shape::{self, Format, Shape, ShapeKind};
    use crate::text::tree::{self, Node, Value};

    /// The keys of all maps, and the hints for keys of other programs with the keys that stand beside them.
    fn collect<'s>(
        schema: &'s Json,
        keys: &mut Vec<&'s str>,
        hints: &mut Vec<(Vec<&'s str>, &'s str, &'s str)>,
    ) {
        let object = schema.as_object();
        let own = schema.get("properties").and_then(Json::as_object);
        let own: Vec<&str> = own.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        let meant = schema.get("x-meant").and_then(Json::as_object).into_iter().flatten();
        let of_keys = meant.filter(|_| !own.is_empty());
        hints.extend(of_keys.filter_map(|(key, hint)| Some((own.clone(), &**key, hint.as_str()?))));
        keys.extend(own);
        let parts = object.into_iter().flatten().map(|(_, part)| part);
        let items = schema.as_array().into_iter().flatten();
        parts.chain(items).for_each(|part| collect(part, keys, hints));
    }

    #[test]
    fn hints_for_keys_of_other_programs_name_keys_that_there_are() {
        let schema = compiled(&FilterKinds::<()>::default());
        let (mut keys, mut hints) = (Vec::new(), Vec::new());
        collect(&schema, &mut keys, &mut hints);
        assert!(hints.len() > 50, "{}", hints.len());
        for (beside, key, hint) in hints {
            assert!(!beside.contains(&key), "{key} is known");
            let mut quoted = hint.split('`').skip(1).step_by(2);
            let name = |text: &str| -> String {
                text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
            };
            // What stands elsewhere is named with its place.
            if let Some(first) = hint.strip_prefix("write `").map(name)
                && !hint.contains(" in ")
                && !hint.contains("beside")
            {
                assert!(beside.contains(&&*first), "{key}: {hint}");
            }
            assert!(quoted.all(|text| keys.contains(&&*name(text))), "{key}: {hint}");
        }
    }

    /// Scalars of every kind, right in some place each.
    const SCALARS: [&str; 26] = [
        "1.3",
        "'1.3'",
        "1.5",
        "'4'",
        "4",
        "0",
        "-1",
        "70000",
        "true",
        "'true'",
        "auto",
        "none",
        "10s",
        "1m30s",
        "2d",
        "0s",
        "1x",
        "64KiB",
        "64KB",
        "x",
        "''",
        "null",
        "[]",
        "{}",
        "127.0.0.1:80",
        "unix:/run/a.sock",
    ];

    /// The texts of the fuzz corpus and of the examples.
    fn texts() -> Vec<String> {
        let root = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folders = ["fuzz/corpus/config", "examples"].map(|folder| root.join(folder));
        let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
        files.filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok()).collect()
    }

    fn read(text: &str) -> Option<Node> {
        tree::read(text, "", &mut Findings::new("f", text))
    }

    /// The scalar at this place, counted through the tree.
    fn scalar<'a>(node: &'a mut Node, place: &mut usize) -> Option<&'a mut Node> {
        if let Value::Scalar { .. } = node.value {
            let is_it = *place == 0;
            *place = place.wrapping_sub(1);
            return is_it.then_some(node);
        }
        match &mut node.value {
            Value::List(items) => items.iter_mut().find_map(|item| scalar(item, place)),
            Value::Map(entries) => entries.iter_mut().find_map(|it| scalar(&mut it.value, place)),
            Value::Scalar { .. } | Value::Cut => None,
        }
    }

    fn scalars(node: &Node) -> usize {
        let inner = node.items().iter().map(scalars).sum::<usize>()
            + node.entries().iter().map(|entry| scalars(&entry.value)).sum::<usize>();
        inner + usize::from(matches!(node.value, Value::Scalar { .. }))
    }

    /// The same without what JSON Schema has no words for: bounds of durations and sizes, and which
    /// texts are addresses.
    fn loosened(shape: &mut Shape) {
        match &mut shape.kind {
            ShapeKind::Special(special)
                if matches!(special.format, Format::Address | Format::Range) =>
            {
                shape.kind = ShapeKind::Text;
            }
            ShapeKind::Special(special) => (special.min, special.max) = (None, None),
            ShapeKind::Object(object) => {
                object.fields.iter_mut().for_each(|field| loosened(&mut field.shape));
            }
            ShapeKind::Map(inner) | ShapeKind::List { items: inner, .. } => loosened(inner),
            ShapeKind::Either(shapes) => shapes.iter_mut().for_each(loosened),
            ShapeKind::Text | ShapeKind::Word(_) | ShapeKind::Boolean | ShapeKind::Integer(_) => {}
        }
    }

    /// Whether `value` is valid by `schema`, as JSON Schema (draft 2020-12, validation) says, for the words that ours
    /// has; any other is a failure of the test.
    fn is_valid(schema: &Json, value: &Json) -> bool {
        let Json::Object(words) = schema else { panic!("{schema} is no schema") };
        words.iter().all(|(word, rule)| obeys(word, rule, value, schema))
    }

    fn obeys(word: &str, rule: &Json, value: &Json, schema: &Json) -> bool {
        let list = || rule.as_array().unwrap();
        let valid = || list().iter().filter(|rule| is_valid(rule, value)).count();
        let float = |json: &Json| json.as_f64().unwrap();
        match word {
            "type" => match rule {
                Json::Array(kinds) => kinds.iter().any(|kind| is_kind(kind, value)),
                kind => is_kind(kind, value),
            },
            "enum" => list().iter().any(|it| is_same(it, value)),
            "const" => is_same(rule, value),
            "anyOf" => valid() >= 1,
            "oneOf" => valid() == 1,
            "not" => !is_valid(rule, value),
            "required" => value.as_object().is_none_or(|object| {
                list().iter().all(|key| object.contains_key(key.as_str().unwrap()))
            }),
            "properties" => value.as_object().is_none_or(|object| {
                let known = object.iter().filter_map(|(key, it)| Some((rule.get(key)?, it)));
                known.into_iter().all(|(rule, it)| is_valid(rule, it))
            }),
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let known = |key: &String| schema.get("properties").and_then(|it| it.get(key));
                let mut others = object.iter().filter(|(key, _)| known(key).is_none());
                others.all(|(_, it)| *rule != false && is_valid(rule, it))
            }),
            "items" => {
                value.as_array().is_none_or(|items| items.iter().all(|it| is_valid(rule, it)))
            }
            "minItems" => {
                value.as_array().is_none_or(|it| it.len() as u64 >= rule.as_u64().unwrap())
            }
            "minimum" => value.as_f64().is_none_or(|it| it >= float(rule)),
            "maximum" => value.as_f64().is_none_or(|it| it <= float(rule)),
            "pattern" => value.as_str().is_none_or(|text| {
                regex_lite::Regex::new(rule.as_str().unwrap()).unwrap().is_match(text)
            }),
            "description" | "default" | "title" | "format" | "$schema" => true,
            word if word.starts_with("x-") => true,
            word => panic!("`{word}` is not known to this test"),
        }
    }

    fn is_kind(kind: &Json, value: &Json) -> bool {
        match kind.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "number" => value.is_number(),
            // Draft 2020-12 takes any number without a fraction; a text with `10.0` is not tried here.
            "integer" => value.is_i64() || value.is_u64(),
            kind => panic!("type {kind}"),
        }
    }

    /// Numbers are equal by value.
    fn is_same(one: &Json, other: &Json) -> bool {
        one == other || one.as_f64().is_some_and(|one| Some(one) == other.as_f64())
    }

    struct Both {
        published: Json,
        strict: Shape,
        loose: Shape,
    }

    impl Both {
        fn new() -> Self {
            let kinds = FilterKinds::<()>::new();
            let strict = Shape::new(&compiled(&kinds), "").unwrap();
            let mut loose = strict.clone();
            loosened(&mut loose);
            Self { published: schema(&kinds), strict, loose }
        }

        /// Whatever the check takes, an editor takes; what an editor takes, the check takes, but for
        /// bounds. Returns whether both take it.
        fn agree(&self, node: &Node) -> bool {
            let errors = |shape: &Shape| {
                let mut findings = Findings::new("f", "");
                shape::check(&mut node.clone(), shape, Path::Root, &mut findings);
                findings.into_result().err()
            };
            let json = node.to_json();
            if !is_valid(&self.published, &json) {
                assert!(errors(&self.strict).is_some(), "the schema alone refuses {json}");
                return false;
            }
            if let Some(errors) = errors(&self.loose) {
                panic!("the schema takes it: {errors}");
            }
            true
        }
    }

    #[test]
    fn the_schema_and_the_check_agree_on_the_corpus() {
        let both = Both::new();
        let texts = texts();
        let agreed = texts.iter().filter_map(|text| read(text)).filter(|it| both.agree(it));
        assert!(agreed.count() >= 10);
        let text = "listeners: [{ name: a, address: 'unix:/a', routes: r, tls: \
                    { certificates: [{ chain: a, key: b }], min_version: 1.3 } }]";
        assert!(both.agree(&read(text).unwrap()));
    }

    proptest! {
        #[test]
        fn the_schema_and_the_check_agree_on_changes_of_the_corpus(
            text in any::<Index>(),
            changes in proptest::collection::vec((any::<Index>(), select(&SCALARS[..])), 1..4),
        ) {
            thread_local! {
                static KEPT: (Both, Vec<Node>) =
                    (Both::new(), texts().iter().filter_map(|text| read(text)).collect());
            }
            KEPT.with(|(both, nodes)| {
                let mut node = text.get(nodes).clone();
                for (place, with) in changes {
                    let mut place = place.index(scalars(&node).max(1));
                    if let Some(old) = scalar(&mut node, &mut place) {
                        // A document of its own cannot be empty, a value can.
                        let with = read(&format!("a: {with}")).unwrap();
                        *old = with.find("a").unwrap().clone();
                    }
                }
                both.agree(&node);
            });
        }
    }
}
