//! `docs/configuration/reference.md`, out of the shape of a file.

use serde_json::Value as Json;

use crate::resource::filter::FilterKinds;
use crate::text::schema::compiled;
use crate::text::shape::{Format, SchemaError, Shape, ShapeKind};

/// The reference of a file with these filters, as Markdown.
///
/// # Errors
///
/// If the schema is not one that this crate understands; see [`crate::load::Loader::new`].
pub fn reference<F>(kinds: &FilterKinds<F>) -> Result<String, SchemaError> {
    let shape = Shape::new(&compiled(kinds), "")?;
    let mut page = Page { text: String::from(HEAD), pending: Vec::new() };
    page.section("The file", "", &shape);
    Ok(page.text)
}

const HEAD: &str = "\
# Configuration reference

Every key of the configuration file. This page is generated from the types that parse the file: to change it, edit the doc
comments of the types in `crates/config/src/file` and `crates/config/src/resource`, or of a filter in `crates/filters`, and run `BLESS=1 cargo test -p strait --lib`.

- A **duration** is a whole number with a unit, or several of them: `250ms`, `2s`, `1m30s`, `1h`, `2d` (also `us`).
- A **size** is a number of bytes, or a whole number with a unit: `64KiB`, `1MiB` (also `B`, `GiB`).
- An **address** is `127.0.0.1:80`, `[::1]:80` or `unix:/run/app.sock`. Host names are allowed only for endpoints.
- A **required** key has no default and must be present.
- **Absent** describes the behaviour without the key; **Beyond it** describes what happens at a limit.
";

/// The page so far, and what has a section of its own that is still to be written.
struct Page {
    text: String,
    pending: Vec<(String, Shape)>,
}

impl Page {
    /// A section and all sections below it, in the order of the file.
    fn section(&mut self, title: &str, path: &str, shape: &Shape) {
        let Some(fields) = fields(shape) else { return };
        self.text.push_str(&format!("\n## {title}\n\n{}\n\n", paragraph(&shape.doc)));
        if fields.is_empty() {
            self.text
                .push_str("`strait schema` lists the keys; [README.md](README.md) has examples.\n");
            return;
        }
        self.text.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
        for field in &fields {
            let inner =
                if path.is_empty() { field.0.clone() } else { format!("{path}.{}", field.0) };
            let default = default(field.2, field.1);
            let kind = kind(field.1);
            let doc = paragraph(&field.1.doc);
            self.text.push_str(&format!("| `{}` | {kind} | {default} | {doc} |\n", field.0));
            self.below(&inner, field.1);
        }
        self.choices(shape);
        let pending = std::mem::take(&mut self.pending);
        for (path, shape) in pending {
            self.section(&format!("`{path}`"), &path, &shape);
        }
    }

    /// Says which keys exclude each other.
    fn choices(&mut self, shape: &Shape) {
        let ShapeKind::Object(object) = &shape.kind else { return };
        let names = |names: &[String]| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        if !object.exactly_one.is_empty() {
            let names = names(&object.exactly_one);
            self.text.push_str(&format!("\nExactly one of these keys must be present: {names}.\n"));
        }
        if !object.at_most_one.is_empty() {
            let names = names(&object.at_most_one);
            self.text.push_str(&format!("\nAt most one of these keys may be present: {names}.\n"));
        }
    }

    /// Notes what `shape` holds that needs a section.
    fn below(&mut self, path: &str, shape: &Shape) {
        match &shape.kind {
            ShapeKind::Object(_) => self.pending.push((path.to_owned(), shape.clone())),
            ShapeKind::List { items, .. } => self.below(&format!("{path}[]"), items),
            ShapeKind::Map(values) => self.below(&format!("{path}.*"), values),
            ShapeKind::Either(shapes) => {
                for shape in shapes {
                    self.below(path, shape);
                }
            }
            ShapeKind::Text
            | ShapeKind::Word(_)
            | ShapeKind::Boolean
            | ShapeKind::Integer(_)
            | ShapeKind::Special(_) => {}
        }
    }
}

/// Name, shape and whether it must be written.
fn fields(shape: &Shape) -> Option<Vec<(String, &Shape, bool)>> {
    let ShapeKind::Object(object) = &shape.kind else { return None };
    let fields = object.fields.iter();
    Some(fields.map(|field| (field.name.clone(), &field.shape, field.is_required)).collect())
}

fn default(is_required: bool, shape: &Shape) -> String {
    if is_required {
        return "**required**".to_owned();
    }
    match &shape.default {
        None => "none".to_owned(),
        // The section of its own says more.
        Some(Json::Object(_)) => "see below".to_owned(),
        Some(Json::String(text)) if text.is_empty() => "empty".to_owned(),
        Some(Json::String(text)) => format!("`{}`", escape(text)),
        Some(value) => format!("`{}`", escape(&value.to_string())),
    }
}

fn kind(shape: &Shape) -> String {
    match &shape.kind {
        ShapeKind::Object(_) => "map".to_owned(),
        ShapeKind::Map(values) => format!("map of names to {}", kind(values)),
        ShapeKind::List { items, items_min } => {
            let least =
                if *items_min > 0 { format!(", at least {items_min}") } else { String::new() };
            format!("list of {}{least}", plural(&kind(items)))
        }
        ShapeKind::Text => "text".to_owned(),
        ShapeKind::Boolean => "`true` or `false`".to_owned(),
        ShapeKind::Word(words) => words.iter().map(word).collect::<Vec<_>>().join("; "),
        ShapeKind::Integer(bounds) if !bounds.only.is_empty() => {
            let all: Vec<String> = bounds.only.iter().map(|n| format!("`{n}`")).collect();
            all.join(", ")
        }
        ShapeKind::Integer(bounds) => format!("number, {} to {}", bounds.min, bounds.max),
        ShapeKind::Special(special) => {
            let mut kind = match special.format {
                Format::Duration => "duration",
                Format::Size => "size",
                Format::Address => "address",
                Format::Endpoint => "address, or host with a port",
                Format::Range => "address range",
                Format::Percent => "share in percent",
                Format::Decimal => "number",
                Format::Mode => "permissions",
                Format::Hex => "hexadecimal",
            }
            .to_owned();
            match (&special.min, &special.max) {
                (Some(min), Some(max)) => kind.push_str(&format!(", {min} to {max}")),
                (Some(min), None) => kind.push_str(&format!(", at least {min}")),
                (None, Some(max)) => kind.push_str(&format!(", at most {max}")),
                (None, None) => {}
            }
            if special.allows_none {
                kind.push_str(", or `none`");
            }
            kind
        }
        ShapeKind::Either(shapes) => shapes.iter().map(kind).collect::<Vec<_>>().join(" or "),
    }
}

fn word((word, doc): &(String, String)) -> String {
    if doc.is_empty() {
        format!("`{word}`")
    } else {
        let doc = paragraph(doc);
        format!("`{word}`: {}", doc.strip_suffix('.').unwrap_or(&doc))
    }
}

fn plural(kind: &str) -> String {
    match kind {
        "map" => "maps".to_owned(),
        "text" => "texts".to_owned(),
        "address range" => "address ranges".to_owned(),
        kind if kind.starts_with("address") => kind.replacen("address", "addresses", 1),
        kind => kind.to_owned(),
    }
}

/// Doc comments have line ends where the source has; Markdown tables have none.
fn paragraph(doc: &str) -> String {
    escape(&doc.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}
