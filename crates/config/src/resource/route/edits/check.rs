//! Which fields may be edited, and what may stand in them.

use wire::head::Known;
use wire::host::Authority;

use super::{Editor, Side, Verb};
use crate::findings::Problem;

/// No name in use is longer.
const NAME_BYTES_MAX: usize = 128;

/// A head of 64 KiB must hold it with all else.
pub(super) const VALUE_BYTES_MAX: usize = 8 << 10;

/// A name as heads are searched for it.
pub(super) fn lower_case(name: &str) -> Box<[u8]> {
    name.to_ascii_lowercase().into_bytes().into()
}

pub(super) fn repeated(name: &str) -> Problem {
    Problem::new(format!("`{name}` occurs twice; field names ignore case"), "keep one of the two")
}

/// Whether it is a name that a field may have (RFC 9110, section 5.6.2).
pub(super) fn is_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_token)
}

/// Why a field of this name cannot be edited so.
pub(super) fn check_name(name: &str, side: Side, editor: Editor, verb: Verb) -> Option<Problem> {
    if let Some(pseudo) = name.strip_prefix(':') {
        let hint = match (pseudo, side) {
            ("path" | "authority", Side::Request) => "use `rewrite` for the path and the host",
            _ => "leave it out",
        };
        return Some(Problem::new("what begins with `:` is no field, and Strait's own", hint));
    }
    if !is_name(name) {
        return Some(Problem::new(
            format!("a field name has 1 to {NAME_BYTES_MAX} letters, digits and !#$%&'*+-.^_`|~"),
            "write a name such as x-edge, without a colon",
        ));
    }
    let known = Known::from_name(name.as_bytes());
    if known.is_hop_by_hop() {
        return Some(Problem::new(
            "fields for the next hop only are Strait's own",
            "leave it out: Strait removes it from what it receives and writes its own",
        ));
    }
    match (known, side, editor, verb) {
        (Known::ContentLength, ..) => Some(Problem::new(
            "the length of a body is Strait's to say, or requests could be smuggled",
            "leave it out: the length goes through as it came",
        )),
        (Known::Expect, Side::Request, ..) => Some(Problem::new(
            "`expect` is between the client and the upstream, which must agree on it",
            "leave it out: it goes through as it came",
        )),
        (Known::Host, Side::Request, Editor::Route, _) => Some(Problem::new(
            "the host of a request is no field to edit here",
            "use `rewrite: { host: ... }` of the rule",
        )),
        (Known::Host, Side::Request, Editor::Filter, Verb::Remove) => Some(Problem::new(
            "a request has one host",
            "use `set` to give it another, or leave it as it is",
        )),
        (Known::Host, Side::Request, Editor::Filter, Verb::Set) => None,
        (Known::Host, Side::Request, Editor::Filter, _) => {
            Some(Problem::new("a request has one host", "use `set`"))
        }
        _ => None,
    }
}

/// Why a field cannot have this value.
pub(super) fn check_value(lower_name: &[u8], value: &str) -> Option<Problem> {
    let has_control = value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t');
    if has_control {
        return Some(Problem::new(
            "a field value is one line without control characters",
            "remove the line break or the control character",
        ));
    }
    if value.trim_matches([' ', '\t']).len() != value.len() {
        return Some(Problem::new(
            "a field value neither begins nor ends with a space: the receiver would drop it",
            "remove the space around it",
        ));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Some(Problem::new(
            format!("a field value has at most {VALUE_BYTES_MAX} bytes"),
            "shorten it: most servers refuse heads this long",
        ));
    }
    let is_host = lower_name == b"host";
    if is_host && (value.is_empty() || Authority::parse(value.as_bytes()).is_none()) {
        return Some(Problem::new(
            "the host of a request is a name or an IP address, perhaps with a port",
            "write shop.example.com, 10.0.0.1:8080 or [::1]:8080",
        ));
    }
    None
}
