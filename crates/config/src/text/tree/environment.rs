//! Variables of the environment in scalars: `${NAME}` and `${NAME:-default}`.
//!
//! They are put in after the text was parsed, so that a value can hold whatever it likes and adds no structure. What
//! comes out of a scalar without quotes is read as if it had been written there: `${PORT}` may be a number. `$${` is a
//! `${` that is no variable.

use std::borrow::Cow;

use super::{Node, Value};
use crate::findings::{Findings, Path, Problem};
use crate::outside::Outside;

/// Bytes of a scalar that variables may make.
const EXPANDED_BYTES_MAX: usize = 1 << 20;

/// Puts the values of variables into all scalars below `node`. What cannot be is reported, and stays.
pub(crate) fn expand(
    node: &mut Node,
    outside: &dyn Outside,
    path: Path<'_>,
    findings: &mut Findings<'_>,
) {
    match &mut node.value {
        Value::Scalar { text, .. } => match expanded(text, outside) {
            Ok(Cow::Borrowed(_)) => {}
            Ok(Cow::Owned(expanded)) => *text = expanded.into(),
            Err(problem) => {
                findings.error(node.at, path, &node.shown(), problem);
                node.is_stand_in = true;
            }
        },
        Value::List(items) => {
            for (place, item) in items.iter_mut().enumerate() {
                expand(item, outside, Path::Index(&path, place), findings);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                expand(&mut entry.value, outside, Path::Key(&path, &entry.key), findings);
            }
        }
        Value::Cut => {}
    }
}

/// Reports what asks for variables below `node`, in a text whose writer gets none. Says whether something does.
pub(crate) fn refuse_variables(node: &Node, path: Path<'_>, findings: &mut Findings<'_>) -> bool {
    match &node.value {
        Value::Scalar { text, .. } if text.contains("${") => {
            let rule = "environment variables are replaced in the configuration file only";
            let problem = Problem::new(rule, "write the value itself");
            findings.error(node.at, path, &node.shown(), problem);
            true
        }
        Value::List(items) => {
            let found = items.iter().enumerate().filter(|(place, item)| {
                refuse_variables(item, Path::Index(&path, *place), findings)
            });
            found.count() > 0
        }
        Value::Map(entries) => {
            let found = entries.iter().filter(|entry| {
                refuse_variables(&entry.value, Path::Key(&path, &entry.key), findings)
            });
            found.count() > 0
        }
        Value::Scalar { .. } | Value::Cut => false,
    }
}

/// What stands for the braces of variables while YAML is read, where a brace without quotes within `{ }` or `[ ]` would
/// begin a map. These are characters of private use, and each is one character like the brace: columns stay as they are.
const STANDING_FOR_BRACES: [char; 2] = ['\u{e000}', '\u{e001}'];

/// `text` with other characters in the place of its variables' braces; none if it has no variables, or these characters itself.
///
/// Variables within quotes and comments are among them, which makes no difference; a default with quotes or brackets could end outside of
/// the quotes that it begins in, so that those stay as they are.
pub(super) fn without_braces(text: &str) -> Option<String> {
    let [opening, closing] = STANDING_FOR_BRACES;
    if !text.contains("${") || text.contains(STANDING_FOR_BRACES) {
        return None;
    }
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at_checked(at + 2)?;
        let length = from.bytes().position(|byte| matches!(byte, b'}' | b'\n' | b'\r'));
        let found = length.and_then(|length| from.split_at_checked(length));
        let found = found.filter(|(inner, behind)| behind.starts_with('}') && is_variable(inner));
        let Some((inner, behind)) = found else {
            out.push_str(before);
            rest = from;
            continue;
        };
        out.push_str(before.strip_suffix('{')?);
        out.push(opening);
        out.push_str(inner);
        out.push(closing);
        rest = behind.get(1..)?;
    }
    out.push_str(rest);
    Some(out)
}

/// The text as it was before [`without_braces`].
pub(super) fn with_braces(text: &str) -> Cow<'_, str> {
    let [opening, closing] = STANDING_FOR_BRACES;
    if !text.contains(STANDING_FOR_BRACES) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(opening, "{").replace(closing, "}"))
}

/// Whether this may stand between the braces of a variable, without quotes and brackets in its default.
fn is_variable(inner: &str) -> bool {
    let (name, default) = inner.split_once(":-").unwrap_or((inner, ""));
    is_name(name) && !default.contains(['"', '\'', '{', '[', ']', ','])
}

/// Whether `${…}` has the name of a variable.
pub(super) fn is_named(variable: &str) -> bool {
    let inner = variable.strip_prefix("${").and_then(|it| it.strip_suffix('}'));
    inner.is_some_and(|inner| is_name(inner.split_once(":-").unwrap_or((inner, "")).0))
}

pub(super) fn no_name() -> Problem {
    let rule = "the name of an environment variable consists of letters, digits and `_`";
    let hint =
        "write ${NAME} or ${NAME:-default}, or \"$${\" in quotes for the characters themselves";
    Problem::new(rule, hint)
}

pub(super) fn no_end() -> Problem {
    let rule = "the `}` of this variable is missing";
    Problem::new(rule, "write ${NAME}, or $${ for the characters themselves")
}

/// What is wrong with a map as a default.
pub(super) fn nested() -> Problem {
    let rule = "the default of a variable ends at the first `}`, so that it cannot contain a map";
    Problem::new(rule, "write the map itself, with a variable for each value in it")
}

fn is_name(name: &str) -> bool {
    let is_of_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !name.is_empty()
        && name.bytes().all(is_of_name)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// `text` with the values of its variables.
fn expanded<'t>(text: &'t str, outside: &dyn Outside) -> Result<Cow<'t, str>, Problem> {
    if !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
        let inner = from.get(2..).unwrap_or_default();
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = inner;
            continue;
        }
        out.push_str(before);
        let Some((variable, behind)) = inner.split_once('}') else {
            return Err(no_end());
        };
        out.push_str(&value(variable, outside)?);
        if out.len() > EXPANDED_BYTES_MAX {
            let rule = format!(
                "a value has at most {} MiB once its variables are put in",
                EXPANDED_BYTES_MAX >> 20
            );
            return Err(Problem::new(rule, "use fewer of them"));
        }
        rest = behind;
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// The value of what stands between the braces.
fn value<'v>(variable: &'v str, outside: &dyn Outside) -> Result<Cow<'v, str>, Problem> {
    let (name, default) = match variable.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (variable, None),
    };
    if !is_name(name) {
        return Err(no_name());
    }
    // As in a shell, an empty value is none where there is a default.
    let found = outside.variable(name).map_err(|_| {
        let rule = format!("the value of the variable {name} is not UTF-8");
        Problem::new(rule, "set it to text")
    })?;
    let found = found.filter(|found| default.is_none() || !found.is_empty());
    match (found, default) {
        (Some(found), _) => Ok(Cow::Owned(found)),
        (None, Some(default)) => Ok(Cow::Borrowed(default)),
        (None, None) => {
            let rule = format!("the environment has no variable {name}");
            let hint = format!(
                "set it, give a default (${{{name}:-default}}), or write $${{ for the characters themselves"
            );
            Err(Problem::new(rule, hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::Memory;
    use crate::text::tree;

    fn memory() -> Memory {
        let mut memory = Memory::default();
        for (name, value) in [
            ("PORT", "8080"),
            ("EMPTY", ""),
            ("EVIL", "1, b: 2}\n- x: \"y"),
            ("NESTED", "${PORT}"),
            ("_A1", "ü"),
        ] {
            memory.set_variable(name, value);
        }
        memory
    }

    fn read(text: &str) -> Result<Node, Problem> {
        let mut findings = Findings::new("f", text);
        let mut node = tree::read(text, "", &mut findings).unwrap();
        expand(&mut node, &memory(), Path::Root, &mut findings);
        match findings.into_result() {
            Ok(_) => Ok(node),
            Err(errors) => {
                let error = errors.errors.into_iter().next().unwrap();
                Err(Problem::new(format!("{} {}", error.path, error.rule), error.hint))
            }
        }
    }

    #[test]
    fn variables_stand_for_their_values_in_scalars_alone() {
        for (text, json) in [
            ("a: ${PORT}", r#"{"a":8080}"#),
            ("a: '${PORT}'", r#"{"a":"8080"}"#),
            ("a: \"0.0.0.0:${PORT}\"", r#"{"a":"0.0.0.0:8080"}"#),
            ("a: [x, '${_A1}${_A1}']", r#"{"a":["x","üü"]}"#),
            ("a: ${NONE:-10s}", r#"{"a":"10s"}"#),
            ("a: ${EMPTY:-10s}", r#"{"a":"10s"}"#),
            ("a: '${EMPTY}'", r#"{"a":""}"#),
            ("a: ${NONE:-}x", r#"{"a":"x"}"#),
            ("a: ${NONE:-a:-b}", r#"{"a":"a:-b"}"#),
            ("a: $${PORT}", r#"{"a":"${PORT}"}"#),
            ("a: $$${PORT}", r#"{"a":"$${PORT}"}"#),
            ("a: $PORT $ { $}", r#"{"a":"$PORT $ { $}"}"#),
            ("a: ${NESTED}", r#"{"a":"${PORT}"}"#),
            ("${PORT}: 1", r#"{"${PORT}":1}"#),
            ("{ ${PORT}: 1 }", r#"{"${PORT}":1}"#),
            ("a: { b: ${PORT} }", r#"{"a":{"b":8080}}"#),
            ("a: {b: ${NONE:-10}}", r#"{"a":{"b":10}}"#),
            ("a: [${PORT}, ${NONE:-x}, '${PORT}']", r#"{"a":[8080,"x","8080"]}"#),
            (
                "a: { b: 127.0.0.1:${PORT}, c: ${NONE:-a b} }",
                r#"{"a":{"b":"127.0.0.1:8080","c":"a b"}}"#,
            ),
            ("a: [ $${PORT}, ${NONE:-} ]", r#"{"a":["${PORT}",null]}"#),
            ("{ a: 'x$${b', c: 'd }' }", r#"{"a":"x${b","c":"d }"}"#),
            ("{ a: '${NONE:-[::]:80, x}' } # ${", r#"{"a":"[::]:80, x"}"#),
            ("a: |\n  ${PORT}\n  x", r#"{"a":"8080\nx\n"}"#),
        ] {
            assert_eq!(read(text).unwrap().to_json().to_string(), json, "{text}");
        }
        let evil = read("a: ${EVIL}").unwrap().to_json();
        assert_eq!(evil["a"], "1, b: 2}\n- x: \"y");
    }

    #[test]
    fn what_is_no_variable_is_refused_with_its_place() {
        for (text, rule, hint) in [
            ("a: [b, '${NONE}']", "a[1] the environment has no variable NONE", "${NONE:-default}"),
            ("a: '${'", "a the `}` of this variable is missing", "$${"),
            ("a: '${PORT'", "a the `}` of this variable is missing", "$${"),
            ("a: '${}'", "a the name of an environment variable", "${NAME}"),
            ("a: '${a-b}'", "a the name of an environment variable", "${NAME}"),
            ("a: '${1}'", "a the name of an environment variable", "${NAME}"),
            ("a: '${ PORT }'", "a the name of an environment variable", "${NAME}"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(
                problem.rule.starts_with(rule) && problem.hint.contains(hint),
                "{text}: {problem}"
            );
        }
    }

    #[test]
    fn a_variable_that_yaml_splits_keeps_its_braces() {
        for text in ["- ${A:-x: y}\n", "[ ${A:-x: y} ]\n", "{ a: ${A:-x: y} }\n"] {
            let mut findings = Findings::new("f", text);
            let shown =
                format!("{:?} {:?}", tree::read(text, "", &mut findings), findings.into_result());
            assert!(!shown.contains(STANDING_FOR_BRACES) && !shown.contains("\\u{e00"), "{shown}");
        }
    }
}
