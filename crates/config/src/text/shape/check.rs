//! A tree checked against a shape: every mistake is reported and taken out.
//!
//! What is taken out counts as absent afterwards. Where something has to stand, as the address of a
//! listener does, a stand-in of its type takes the place: it fits the type and nothing more, and
//! what is wrong with its meaning is not reported. So what is left can be read into types and checked
//! for its meaning, entry by entry, and one run reports mistakes of both kinds.

use super::{Field, Format, Integer, Object, Shape, ShapeKind, Special};
use crate::findings::{Findings, Path, Position, Problem};
use crate::nearest;
use crate::text::tree::{Entry, Node, Scalar, Value};
use crate::{units, variables, wildcard};

/// Checks `node` against `shape` and cuts out what is wrong. Whether `node` itself is still there.
pub(crate) fn check(
    node: &mut Node,
    shape: &Shape,
    path: Path<'_>,
    findings: &mut Findings<'_>,
) -> bool {
    if node.is_known {
        return true;
    }
    // It was reported before.
    if node.is_stand_in {
        *node = stand_in(shape, node.at);
        return true;
    }
    let found = match &shape.kind {
        ShapeKind::Either(shapes) => match choose(shapes, node) {
            Err(problem) => Err(problem),
            // The word is one of several things that may stand here, and none of them is like this.
            Ok(Some(Shape { kind: ShapeKind::Word(words), meant, .. }))
                if is_no_word(words, meant, node) =>
            {
                Err(expected(shape, node))
            }
            Ok(Some(shape)) => return check(node, shape, path, findings),
            Ok(None) => Err(expected(shape, node)),
        },
        ShapeKind::Object(object) => {
            let at = node.at;
            match &mut node.value {
                Value::Map(entries) => {
                    check_object(entries, at, (object, &shape.meant), path, findings);
                    Ok(())
                }
                _ => Err(expected(shape, node)),
            }
        }
        ShapeKind::Map(values) => match &mut node.value {
            Value::Map(entries) => {
                for Entry { key, value, .. } in entries {
                    let path = Path::Key(&path, key);
                    // Its key may be wrong, too.
                    if !check(value, values, path, findings) {
                        *value = stand_in(values, value.at);
                    } else if let Some(literal) = shape.literal {
                        variables::warn(value, path, literal, findings);
                    }
                }
                Ok(())
            }
            _ => Err(expected(shape, node)),
        },
        ShapeKind::List { items, items_min } => match &mut node.value {
            Value::List(list) => {
                for (index, item) in list.iter_mut().enumerate() {
                    check(item, items, Path::Index(&path, index), findings);
                }
                if list.len() < *items_min { Err(too_few(*items_min)) } else { Ok(()) }
            }
            _ => Err(expected(shape, node)),
        },
        ShapeKind::Text => {
            let found = check_scalar(node, shape);
            if let (Ok(()), Some(literal)) = (&found, shape.literal) {
                variables::warn(node, path, literal, findings);
            }
            found
        }
        ShapeKind::Word(_) | ShapeKind::Boolean | ShapeKind::Integer(_) | ShapeKind::Special(_) => {
            check_scalar(node, shape)
        }
    };
    if let Err(problem) = found {
        findings.error(node.at, path, &node.shown(), problem);
        node.value = Value::Cut;
        return false;
    }
    true
}

/// Leaves entries that can be read into the map's type.
fn check_object(
    entries: &mut Vec<Entry>,
    at: Position,
    (object, meant): (&Object, &[(String, String)]),
    path: Path<'_>,
    findings: &mut Findings<'_>,
) {
    let mut unknown = Vec::new();
    for entry in entries.iter_mut() {
        let path = Path::Key(&path, &entry.key);
        let Some(field) = object.fields.iter().find(|field| *field.name == *entry.key) else {
            let problem = unknown_key(&entry.key, object, meant);
            unknown.push(problem.hint.clone());
            findings.key_error(entry.key_at, path, problem);
            entry.value.value = Value::Cut;
            continue;
        };
        let is_needed = field.is_required || object.exactly_one.contains(&field.name);
        if !check(&mut entry.value, &field.shape, path, findings) && is_needed {
            entry.value = stand_in(&field.shape, entry.value.at);
        }
    }
    let stands = |name: &str| entries.iter().any(|entry| entry.key.as_ref() == name);
    let one = chosen(&object.exactly_one, &stands);
    // An unknown key was probably meant to be one of them.
    let is_one_unknown = one.is_empty() && !unknown.is_empty();
    if !object.exactly_one.is_empty() && one.len() != 1 && !is_one_unknown {
        let names = object.exactly_one.join("`, `");
        let hint = match one.as_slice() {
            [] => "add one of them".to_owned(),
            several => format!("keep one of `{}`", several.join("`, `")),
        };
        let problem = Problem::new(format!("exactly one of `{names}` must be present"), hint);
        findings.error(at, path, "", problem);
    }
    let most = chosen(&object.at_most_one, &stands);
    if most.len() > 1 {
        let problem = Problem::new(
            format!("only one of `{}` may be present", most.join("`, `")),
            "remove all but one of them",
        );
        findings.error(at, path, "", problem);
    }
    for field in object.fields.iter().filter(|field| field.is_required) {
        if entries.iter().any(|entry| entry.key.as_ref() == field.name) {
            continue;
        }
        // Where an unknown key was meant to be this one, its hint says so.
        let quoted = format!("`{}`", field.name);
        if !unknown.iter().any(|hint| hint.contains(&quoted)) {
            let hint = match field.shape.meant.iter().find(|(word, _)| word.is_empty()) {
                Some((_, hint)) => hint.clone(),
                None => format!("add `{}: {}`", field.name, example(&field.shape)),
            };
            let problem = Problem::new("this key is missing", hint);
            findings.error(at, Path::Key(&path, &field.name), "", problem);
        }
        let value = stand_in(&field.shape, at);
        entries.push(Entry { key: field.name.as_str().into(), key_at: at, value });
    }
}

/// Something that fits `shape`, in the place of what does not. It is as empty as can be, so that
/// little can be said about it.
fn stand_in(shape: &Shape, at: Position) -> Node {
    let plain = |text: &str| Value::Scalar { text: text.into(), is_plain: true };
    let value = match &shape.kind {
        ShapeKind::Object(object) => {
            let required = object.fields.iter().filter(|field| field.is_required);
            let entry = |field: &Field| Entry {
                key: field.name.as_str().into(),
                key_at: at,
                value: stand_in(&field.shape, at),
            };
            Value::Map(required.map(entry).collect())
        }
        ShapeKind::Map(_) => Value::Map(Vec::new()),
        ShapeKind::List { .. } => Value::List(Vec::new()),
        ShapeKind::Text => Value::Scalar { text: "".into(), is_plain: false },
        ShapeKind::Word(_) | ShapeKind::Boolean | ShapeKind::Integer(_) => plain(&example(shape)),
        // Port 0 belongs to no service.
        ShapeKind::Special(Special { format: Format::Address | Format::Endpoint, .. }) => {
            plain("0.0.0.0:0")
        }
        ShapeKind::Special(Special { min, max, .. }) => {
            let bound = min.as_ref().or(max.as_ref());
            bound.map_or_else(|| plain(&example(shape)), |bound| plain(bound))
        }
        ShapeKind::Either(shapes) => {
            let first = shapes.first().map(|shape| stand_in(shape, at));
            return first.unwrap_or_else(|| Node::new(at, Value::Cut));
        }
    };
    Node { at, value, is_stand_in: true, is_known: false }
}

fn chosen<'a>(names: &'a [String], stands: &impl Fn(&str) -> bool) -> Vec<&'a str> {
    names.iter().map(String::as_str).filter(|name| stands(name)).collect()
}

fn unknown_key(key: &str, object: &Object, meant: &[(String, String)]) -> Problem {
    let known = object.fields.iter().map(|field| field.name.as_str());
    let hint = if key == "<<" {
        "merge keys are not part of YAML 1.2; use an alias for a whole value".to_owned()
    } else if let Some((_, hint)) = meant.iter().find(|(known, _)| known == key) {
        hint.clone()
    } else {
        nearest::hint(key, known, "no key is allowed here")
    };
    Problem::new(format!("this {} is unknown", object.noun()), hint)
}

/// The alternative that `node` was meant to be, by what it looks like.
///
/// # Errors
///
/// It could be several kinds of maps, or none of them.
fn choose<'a>(shapes: &'a [Shape], node: &Node) -> Result<Option<&'a Shape>, Problem> {
    match choose_map(shapes, node) {
        Some(chosen) => chosen.map(Some),
        None => Ok(choose_kind(shapes, node)),
    }
}

/// The same where there are several kinds of maps, each with a key that it alone requires; none elsewhere.
fn choose_map<'a>(shapes: &'a [Shape], node: &Node) -> Option<Result<&'a Shape, Problem>> {
    let Value::Map(entries) = &node.value else { return None };
    let mut maps: Vec<(&str, &Object, &Shape)> = Vec::new();
    for shape in shapes {
        let ShapeKind::Object(object) = &shape.kind else { continue };
        let mut required = object.fields.iter().filter(|field| field.is_required);
        let (Some(field), None) = (required.next(), required.next()) else { return None };
        maps.push((&*field.name, object, shape));
    }
    if maps.len() < 2 {
        return None;
    }
    let stands = |name: &str| entries.iter().any(|entry| *entry.key == *name);
    let (standing, others): (Vec<_>, Vec<_>) =
        maps.iter().copied().partition(|(name, ..)| stands(name));
    let hint = match standing.as_slice() {
        [(.., shape)] => return Some(Ok(shape)),
        [] => {
            // One of its keys may be meant by one that stands.
            let is_near = |object: &Object| {
                let known = || object.fields.iter().map(|field| field.name.as_str());
                entries.iter().any(|entry| nearest::nearest(&entry.key, known()).is_some())
            };
            if let Some((.., shape)) = others.iter().find(|(_, object, _)| is_near(object)) {
                return Some(Ok(shape));
            }
            "add one of them"
        }
        _ => "keep one of them",
    };
    let names: Vec<_> = maps.iter().map(|(name, ..)| *name).collect();
    let rule = format!("exactly one of `{}` must be present", names.join("`, `"));
    Some(Err(Problem::new(rule, hint)))
}

fn choose_kind<'a>(shapes: &'a [Shape], node: &Node) -> Option<&'a Shape> {
    let fits = |shape: &&Shape| looks_like(&shape.kind, node);
    // A word is tried last where it is not spelt right, so that a mistake in it is reported as such. Of several kinds
    // of maps it is the one whose required keys stand.
    let exactly = |shape: &&Shape| match &shape.kind {
        ShapeKind::Word(words) => words.iter().any(|(word, _)| Some(word.as_str()) == node.text()),
        ShapeKind::Object(object) => {
            let mut required = object.fields.iter().filter(|field| field.is_required);
            fits(shape) && required.all(|field| node.find(&field.name).is_some())
        }
        _ => fits(shape),
    };
    // A number in quotes was meant as the number.
    let is_quoted = |shape: &&Shape| is_quoted_number(&shape.kind, node);
    let exact = shapes.iter().find(exactly);
    exact.or_else(|| shapes.iter().find(is_quoted)).or_else(|| shapes.iter().find(fits))
}

fn is_quoted_number(kind: &ShapeKind, node: &Node) -> bool {
    let is_number = |text: &str| text.parse::<i128>().is_ok();
    match kind {
        ShapeKind::Integer(_) => {
            matches!(node.scalar(), Some(Scalar::Text(text)) if is_number(text))
        }
        ShapeKind::Either(shapes) => shapes.iter().any(|shape| is_quoted_number(&shape.kind, node)),
        _ => false,
    }
}

/// Whether `node` is none of these words and near to none, and no word of others that has a hint.
fn is_no_word(words: &[(String, String)], meant: &[(String, String)], node: &Node) -> bool {
    let text = node.text().unwrap_or_default();
    if meant.iter().any(|(word, _)| word.eq_ignore_ascii_case(text)) {
        return false;
    }
    let mut known = words.iter().map(|(word, _)| word.as_str());
    known.clone().all(|word| word != text) && nearest::nearest(text, &mut known).is_none()
}

fn looks_like(kind: &ShapeKind, node: &Node) -> bool {
    match kind {
        ShapeKind::Object(_) | ShapeKind::Map(_) => matches!(node.value, Value::Map(_)),
        ShapeKind::List { .. } => matches!(node.value, Value::List(_)),
        ShapeKind::Text | ShapeKind::Word(_) => matches!(node.scalar(), Some(Scalar::Text(_))),
        ShapeKind::Boolean => matches!(node.scalar(), Some(Scalar::Bool(_))),
        ShapeKind::Integer(_) => matches!(node.scalar(), Some(Scalar::Integer(_))),
        ShapeKind::Special(_) => {
            !matches!(node.scalar(), None | Some(Scalar::Null | Scalar::Bool(_)))
        }
        ShapeKind::Either(shapes) => choose_kind(shapes, node).is_some(),
    }
}

fn check_scalar(node: &Node, shape: &Shape) -> Result<(), Problem> {
    let Some(scalar) = node.scalar() else { return Err(expected(shape, node)) };
    let written = node.text().unwrap_or_default();
    match (&shape.kind, scalar) {
        (_, Scalar::Null) => Err(expected(shape, node)),
        (ShapeKind::Text, Scalar::Text(_)) | (ShapeKind::Boolean, Scalar::Bool(_)) => Ok(()),
        (ShapeKind::Text, _) => {
            let hint = format!("put it in quotes: {written:?}");
            Err(Problem::new("text is needed here", hint))
        }
        (ShapeKind::Word(words), _) => check_word(written, words, &shape.meant),
        (ShapeKind::Integer(bounds), Scalar::Integer(value)) => check_integer(value, bounds),
        (ShapeKind::Integer(_), Scalar::Text(text)) if text.parse::<i128>().is_ok() => {
            Err(Problem::new("a whole number is needed here", format!("remove the quotes: {text}")))
        }
        (ShapeKind::Integer(bounds), Scalar::Text(text)) => match meant_number(text) {
            Some(number) if (bounds.min..=bounds.max).contains(&number) => {
                let rule = "a whole number is written with nothing but digits";
                Err(Problem::new(rule, format!("write {number}")))
            }
            _ => Err(expected(shape, node)),
        },
        (ShapeKind::Integer(bounds), Scalar::Float(_)) => match units::whole_number(written) {
            Some(number) if (bounds.min..=bounds.max).contains(&i128::from(number)) => {
                let rule = "a whole number is written with nothing but digits";
                Err(Problem::new(rule, format!("write {number}")))
            }
            _ => Err(expected(shape, node)),
        },
        (ShapeKind::Boolean, Scalar::Text(text)) => {
            let hint = match text.to_ascii_lowercase().as_str() {
                "yes" | "on" | "y" | "true" => "write true",
                "no" | "off" | "n" | "false" => "write false",
                _ => "write true or false",
            };
            Err(Problem::new("true or false is needed here", hint))
        }
        (ShapeKind::Special(special), Scalar::Text(_) | Scalar::Integer(_) | Scalar::Float(_)) => {
            check_special(written, special)
        }
        _ => Err(expected(shape, node)),
    }
}

/// The number that was meant by something like `10_000` or `10k`.
fn meant_number(text: &str) -> Option<i128> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    digits.replace(['_', ',', '\''], "").parse::<i128>().ok()?.checked_mul(factor)
}

fn check_word(
    written: &str,
    words: &[(String, String)],
    meant: &[(String, String)],
) -> Result<(), Problem> {
    if words.iter().any(|(word, _)| word == written) {
        return Ok(());
    }
    let known = words.iter().map(|(word, _)| word.as_str());
    let all: Vec<&str> = known.clone().collect();
    let hint = match hint_for(meant, written) {
        Some(hint) => hint.to_owned(),
        None => match (nearest::nearest(written, known), all.as_slice()) {
            (Some(name), _) => format!("did you mean `{name}`?"),
            (None, [only]) => format!("write {only}"),
            (None, _) => "write one of them".to_owned(),
        },
    };
    Err(Problem::new(format!("one of these words is needed here: {}", all.join(", ")), hint))
}

/// The hint for a word that other programs have.
fn hint_for<'m>(meant: &'m [(String, String)], written: &str) -> Option<&'m str> {
    let written = written.to_ascii_lowercase();
    let is_meant = |word: &str| wildcard::fits(&word.to_ascii_lowercase(), &written);
    meant.iter().find(|(word, _)| is_meant(word)).map(|(_, hint)| hint.as_str())
}

fn check_integer(value: i128, bounds: &Integer) -> Result<(), Problem> {
    if !bounds.only.is_empty() {
        if bounds.only.contains(&value) {
            return Ok(());
        }
        let all: Vec<String> = bounds.only.iter().map(i128::to_string).collect();
        let rule = format!("one of these numbers is needed here: {}", all.join(", "));
        return Err(Problem::new(rule, "write one of them"));
    }
    if (bounds.min..=bounds.max).contains(&value) {
        return Ok(());
    }
    let nearest = value.clamp(bounds.min, bounds.max);
    let rule = format!("a number from {} to {} is needed here", bounds.min, bounds.max);
    Err(Problem::new(rule, format!("the nearest is {nearest}")))
}

fn check_special(written: &str, special: &Special) -> Result<(), Problem> {
    if special.allows_none && written == "none" {
        return Ok(());
    }
    let none = if special.allows_none { ", or none for no bound" } else { "" };
    let value = match special.format.read(written) {
        // Advice to add a unit alone would be refused next.
        Err(problem) if is_zero(written) => match &special.min {
            Some(min) => {
                let rule = format!("at least {min} is needed here, with its unit");
                return Err(Problem::new(rule, format!("write {min} or more{none}")));
            }
            None => return Err(problem),
        },
        value => value?,
    };
    match (special.bound(&special.min), special.bound(&special.max)) {
        (Some((min, text)), _) if value < min => Err(Problem::new(
            format!("at least {text} is needed here"),
            format!("write {text} or more{none}"),
        )),
        (_, Some((max, text))) if value > max => Err(Problem::new(
            format!("at most {text} is allowed here"),
            format!("write {text} or less{none}"),
        )),
        _ => Ok(()),
    }
}

fn is_zero(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b == b'0')
}

fn too_few(items_min: usize) -> Problem {
    let what = if items_min == 1 { "one item" } else { "more items" };
    Problem::new(
        format!("the list needs at least {what}"),
        "add one, or remove what holds the list",
    )
}

/// The problem of a value of the wrong kind.
fn expected(shape: &Shape, node: &Node) -> Problem {
    let found = match (&node.value, node.scalar()) {
        (Value::List(_), _) => "a list",
        (Value::Map(_), _) => "a map",
        (_, Some(Scalar::Null)) => "nothing",
        (_, Some(Scalar::Bool(_))) => "true or false",
        (_, Some(Scalar::Integer(_))) => "a whole number",
        (_, Some(Scalar::Float(_))) => "a number",
        (_, Some(Scalar::Text(_)) | None) if has_words(&shape.kind) => "this word",
        (_, Some(Scalar::Text(_)) | None) => "text",
    };
    if is_of_variable(node) && is_structure(&shape.kind) {
        return of_variable(shape);
    }
    let rule = format!("{} is needed here, not {found}", describe(shape));
    if let Some(hint) = node.text().and_then(|text| hint_for(&shape.meant, text)) {
        return Problem::new(rule, hint.to_owned());
    }
    let hint = match (&shape.kind, found) {
        (_, "nothing") => format!("write {}, or remove the key", example(shape)),
        (ShapeKind::List { .. }, _) => {
            "begin each item with `- `, or write [item, item]".to_owned()
        }
        (ShapeKind::Object(_) | ShapeKind::Map(_), _) => format!("write {}", example(shape)),
        (kind, "true or false" | "a whole number" | "a number") if may_be_text(kind) => {
            format!("put it in quotes: {:?}", node.text().unwrap_or_default())
        }
        (kind, "text") if names_file(node) && may_name_file(kind) => {
            format!("write {{ file: {} }}", node.text().unwrap_or_default())
        }
        _ => format!("write {}, for instance", example(shape)),
    };
    Problem::new(rule, hint)
}

/// Whether any text may stand here.
fn may_be_text(kind: &ShapeKind) -> bool {
    match kind {
        ShapeKind::Text => true,
        ShapeKind::Either(shapes) => shapes.iter().any(|shape| may_be_text(&shape.kind)),
        _ => false,
    }
}

/// Whether a map that names a file may stand here.
fn may_name_file(kind: &ShapeKind) -> bool {
    match kind {
        ShapeKind::Object(object) => object.fields.iter().any(|field| field.name == "file"),
        ShapeKind::Either(shapes) => shapes.iter().any(|shape| may_name_file(&shape.kind)),
        _ => false,
    }
}

/// Whether a text is the name of a file with a list or a map.
fn names_file(node: &Node) -> bool {
    let text = node.text().unwrap_or_default();
    [".yaml", ".yml", ".json"].iter().any(|end| text.ends_with(*end))
}

/// Whether this is the value or the default of a variable that looks like a map or a list. Text that is written so without quotes begins
/// one.
fn is_of_variable(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar { text, is_plain: true } if text.starts_with(['{', '[']))
}

/// Whether nothing but maps and lists may stand here.
fn is_structure(kind: &ShapeKind) -> bool {
    match kind {
        ShapeKind::Object(_) | ShapeKind::Map(_) | ShapeKind::List { .. } => true,
        ShapeKind::Either(shapes) => shapes.iter().all(|shape| is_structure(&shape.kind)),
        _ => false,
    }
}

/// What is wrong with a variable in the place of a map or a list.
fn of_variable(shape: &Shape) -> Problem {
    let rule = format!(
        "{} is needed here, and a variable and its default are text, whatever brackets they have",
        describe(shape)
    );
    let hint = match &shape.kind {
        ShapeKind::Object(_) | ShapeKind::Map(_) => format!(
            "write {} itself, with a variable for each value in it, such as ${{NAME:-default}}",
            example(shape)
        ),
        _ => "write it itself, with a variable for each value in it, such as [\"${NAME}\"]"
            .to_owned(),
    };
    Problem::new(rule, hint)
}

/// Whether some words may stand here, so that it is not text that is wrong.
fn has_words(kind: &ShapeKind) -> bool {
    match kind {
        ShapeKind::Word(_) => true,
        ShapeKind::Either(shapes) => shapes.iter().any(|shape| has_words(&shape.kind)),
        _ => false,
    }
}

/// What a shape is, in words.
pub(crate) fn describe(shape: &Shape) -> String {
    match &shape.kind {
        ShapeKind::Object(_) | ShapeKind::Map(_) => "a map".to_owned(),
        ShapeKind::List { .. } => "a list".to_owned(),
        ShapeKind::Text => "text".to_owned(),
        ShapeKind::Word(words) => {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            words.join(" or ")
        }
        ShapeKind::Boolean => "true or false".to_owned(),
        ShapeKind::Integer(_) => "a whole number".to_owned(),
        ShapeKind::Special(special) => {
            let none = if special.allows_none { " or `none`" } else { "" };
            let what = match special.format {
                Format::Duration => "a duration",
                Format::Size => "a size",
                Format::Address | Format::Endpoint => "an address",
                Format::Range => "an address range",
                Format::Percent => "a share in percent, such as 10 or 0.5%",
                Format::Decimal => "a number such as 1.0",
                Format::Mode => "permissions, such as 0660",
                Format::Hex => "bytes in hexadecimal, such as \"50494e47\"",
            };
            format!("{what}{none}")
        }
        ShapeKind::Either(shapes) => {
            let mut kinds: Vec<String> = shapes.iter().map(describe).collect();
            kinds.dedup();
            kinds.join(" or ")
        }
    }
}

/// Something that fits a shape.
fn example(shape: &Shape) -> String {
    match &shape.kind {
        ShapeKind::Object(object) => match object.fields.first() {
            Some(field) => format!("{{ {}: … }}", field.name),
            None => "{}".to_owned(),
        },
        ShapeKind::Map(_) => "{ key: value }".to_owned(),
        ShapeKind::List { items, .. } => format!("[{}]", example(items)),
        ShapeKind::Text => "text".to_owned(),
        ShapeKind::Word(words) => words.first().map(|(word, _)| word.clone()).unwrap_or_default(),
        ShapeKind::Boolean => "true".to_owned(),
        ShapeKind::Integer(bounds) => {
            bounds.only.first().copied().unwrap_or_else(|| bounds.min.max(1)).to_string()
        }
        ShapeKind::Special(Special { format, .. }) => match format {
            Format::Duration => "10s".to_owned(),
            Format::Size => "64KiB".to_owned(),
            Format::Address | Format::Endpoint => "127.0.0.1:8080".to_owned(),
            Format::Range => "10.0.0.0/8".to_owned(),
            Format::Percent => "10".to_owned(),
            Format::Decimal => "1.0".to_owned(),
            Format::Mode => "0660".to_owned(),
            Format::Hex => "50494e47".to_owned(),
        },
        ShapeKind::Either(shapes) => shapes.first().map(example).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::text::shape::schema_of;
    use crate::text::tree;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        /// The first.
        First,
        /// The second.
        Second,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[schemars(extend("oneOf" = [{"required": ["left"]}, {"required": ["right"]}]))]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Sample {
        name: String,
        #[schemars(range(min = 2))]
        count: Option<u8>,
        word: Option<Word>,
        flag: Option<bool>,
        left: Option<u16>,
        right: Option<String>,
    }

    fn findings(text: &str) -> Vec<(u32, u32, String, String, String)> {
        let mut findings = Findings::new("f", text);
        let mut root = tree::read(text, "", &mut findings).unwrap();
        let shape = Shape::new(&schema_of::<Sample>(), "").unwrap();
        check(&mut root, &shape, Path::Root, &mut findings);
        let errors = findings.into_result().map_or_else(|errors| errors.errors, |_| Vec::new());
        errors.into_iter().map(|e| (e.line, e.column, e.path, e.rule, e.hint)).collect()
    }

    #[test]
    fn what_fits_is_left_alone() {
        assert_eq!(findings("{name: x, count: 2, word: second, flag: false, left: 1}"), []);
    }

    #[test]
    fn each_mistake_has_its_rule_place_and_hint() {
        for (text, line, column, path, rule, hint) in [
            ("{name: x, left: 1, nmae: y}", 1, 20, "nmae", "unknown", "did you mean `name`?"),
            ("{name: x, left: 1, <<: y}", 1, 20, "\"<<\"", "unknown", "merge keys"),
            ("{left: 1}", 1, 1, "name", "missing", "add `name: text`"),
            ("{name: 1, left: 1}", 1, 8, "name", "text is needed", "in quotes: \"1\""),
            ("{name: [], left: 1}", 1, 8, "name", "text is needed here, not a list", "write text"),
            ("{name: , left: 1}", 1, 6, "name", "not nothing", "or remove the key"),
            ("{name: x, left: 1, count: 1}", 1, 27, "count", "from 2 to 255", "nearest is 2"),
            ("{name: x, left: 1, count: 256}", 1, 27, "count", "from 2 to 255", "nearest is 255"),
            ("{name: x, left: 1, count: \"3\"}", 1, 27, "count", "whole number", "quotes: 3"),
            ("{name: x, left: 1, count: 2.5}", 1, 27, "count", "not a number", "write 2"),
            ("{name: x, left: 1, word: frist}", 1, 26, "word", "first, second", "mean `first`?"),
            ("{name: x, left: 1, flag: yes}", 1, 26, "flag", "true or false", "write true"),
            ("{name: x, left: 1, flag: off}", 1, 26, "flag", "true or false", "write false"),
            ("{name: x}", 1, 1, "", "exactly one of `left`, `right`", "add one"),
            ("{name: x, left: 1, right: y}", 1, 1, "", "exactly one", "one of `left`, `right`"),
            ("[1]", 1, 1, "", "a map is needed here, not a list", "write { name: … }"),
        ] {
            let found = findings(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            let error = &found[0];
            assert_eq!((error.0, error.1, error.2.as_str()), (line, column, path), "{text}");
            assert!(error.3.contains(rule) && error.4.contains(hint), "{text}: {error:?}");
        }
    }

    #[test]
    fn a_variable_in_the_place_of_a_map_or_a_list_has_its_own_hint() {
        let of = |text: &str, schema: &serde_json::Value| {
            let mut node = tree::read("a: x", "", &mut Findings::new("f", "a: x")).unwrap();
            node.value = Value::Scalar { text: text.into(), is_plain: true };
            expected(&Shape::new(schema, "").unwrap(), &node)
        };
        let map = of("{}", &schema_of::<Sample>());
        assert!(map.rule.contains("a variable and its default are text"), "{map}");
        assert!(map.hint.contains("write { name: … } itself, with a variable for each"), "{map}");
        let list = of("[a, b]", &schema_of::<Vec<String>>());
        assert!(list.rule.starts_with("a list is needed here, and a variable"), "{list}");
        assert!(list.hint.contains("[\"${NAME}\"]"), "{list}");
        let other = of("x", &schema_of::<Sample>());
        assert_eq!(other.rule, "a map is needed here, not text");
    }

    #[test]
    fn a_wrong_one_of_a_choice_is_one_mistake_not_two() {
        let found = findings("{name: x, left: y}");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].2, "left");
    }

    #[test]
    fn all_mistakes_are_found_at_once() {
        let found = findings("{nothing: x, count: 0, word: third, left: 1, right: 2}");
        assert_eq!(found.len(), 6, "{found:?}");
        // A misspelt key is not missing as well.
        let found = findings("{naem: x, count: 0, word: third, left: 1, right: 2}");
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn a_type_that_lets_unknown_keys_pass_is_refused() {
        #[derive(Debug, Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Lax {
            name: String,
        }
        let error = Shape::new(&schema_of::<Lax>(), "").unwrap_err();
        assert!(error.what.contains("deny_unknown_fields"));
    }
}
