//! What looks like a variable of another program, in a text that is taken as it is.

use crate::findings::{Findings, Path, Problem};
use crate::text::shape::Literal;
use crate::text::tree::Node;

/// Warns if the text at `path` has what other programs replace, such as `$remote_addr` of nginx or
/// `%REQ(:path)%` of Envoy.
pub(crate) fn warn(node: &Node, path: Path<'_>, literal: Literal, findings: &mut Findings<'_>) {
    if let Some(name) = node.text().and_then(|text| find(text, literal)) {
        let rule = format!("`{name}` is not replaced by a value");
        let hint = match literal {
            Literal::Whole => {
                "write the value itself; `headers` in `routes` may have operators such as \
                 %DOWNSTREAM_REMOTE_ADDRESS%, and see `http.forwarded`"
            }
            Literal::Body => "write the text itself: bodies have no variables",
            Literal::AllButOperators => {
                "write an operator such as %DOWNSTREAM_REMOTE_ADDRESS% or %REQ(x-user)%"
            }
        };
        findings.warning(node.at, path, &node.shown(), Problem::new(rule, hint));
    }
}

/// The first piece of `text` that looks like a variable.
fn find(text: &str, literal: Literal) -> Option<&str> {
    let starts = text.match_indices(['$', '%']);
    let foreign = |text| percent(text).filter(|_| literal != Literal::AllButOperators);
    // Bodies may be scripts, or have the `$ref` of a schema.
    let dollar = |text| dollar(text).filter(|it| literal != Literal::Body || is_of_nginx(it));
    starts
        .filter_map(|(at, _)| text.get(at..))
        .find_map(|text| dollar(text).or_else(|| foreign(text)))
}

/// Whether a variable is one that nginx has.
fn is_of_nginx(variable: &str) -> bool {
    const KNOWN: [&str; 8] = [
        "host",
        "remote_addr",
        "remote_port",
        "request_id",
        "request_uri",
        "scheme",
        "server_name",
        "uri",
    ];
    let name = variable.trim_matches(['$', '{', '}']);
    KNOWN.contains(&name) || name.starts_with("http_")
}

/// `$name`, `${name}`.
fn dollar(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let (name, closing) = match name.strip_prefix('{') {
        Some(name) => (name, 1),
        None => (name, 0),
    };
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let length = name.bytes().take_while(is_name).count();
    let is_closed = closing == 0 || name.as_bytes().get(length) == Some(&b'}');
    // `$5` is a price.
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && is_closed { text.get(..1 + closing + length + closing) } else { None }
}

/// `%NAME%`, `%NAME(ARGUMENT)%`.
fn percent(text: &str) -> Option<&str> {
    let name = text.strip_prefix('%')?;
    let is_name = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_';
    let length = name.bytes().take_while(is_name).count();
    let after = name.get(length..)?;
    let argument = match after.strip_prefix('(') {
        Some(argument) => argument.find(")%")? + 2,
        None => 0,
    };
    // An octet that is percent-encoded is two digits, as in `%2F%20`.
    let is_long = length > 2 && name.starts_with(|c: char| c.is_ascii_uppercase());
    let is_whole = after.get(argument..)?.starts_with('%');
    if is_long && is_whole { text.get(..length + argument + 2) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_other_programs_are_found() {
        for (text, found) in [
            ("$remote_addr", "$remote_addr"),
            ("a $http_x; b", "$http_x"),
            ("${host}/x", "${host}"),
            ("$5 and $x", "$x"),
            ("%DOWNSTREAM_REMOTE_ADDRESS%", "%DOWNSTREAM_REMOTE_ADDRESS%"),
            ("a%REQ(:path?x)%b", "%REQ(:path?x)%"),
        ] {
            assert_eq!(find(text, Literal::Whole), Some(found), "{text}");
            let of_others = Some(found).filter(|found| found.starts_with('$'));
            assert_eq!(find(text, Literal::AllButOperators), of_others, "{text}");
        }
    }

    #[test]
    fn what_only_has_such_signs_is_no_variable() {
        for text in [
            "",
            "$",
            "%",
            "100%",
            "$5",
            "a%2Fb%20c",
            "%2F%",
            "50% of 60%",
            "${",
            "${a",
            "$-",
            "%%",
            "%REQ(a%",
            "%é%",
            "%AB%",
            "max-age=3",
        ] {
            assert_eq!(find(text, Literal::Whole), None, "{text}");
        }
    }
}
