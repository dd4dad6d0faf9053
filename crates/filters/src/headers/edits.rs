//! Edits of one kind of head, with names and values that are known to be right.

use std::collections::BTreeMap;

use ::config::filters::FilterError;
use ::config::findings::Problem;
use wire::head::lookalike::{are_twins, has_underscore};
use wire::head::{Head, Known};
use wire::host::Authority;

use super::EditsConfig;

/// Which heads are edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Response,
}

/// How a field is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Remove,
    Set,
    Append,
}

/// What is done to each head, in the order of the fields here. Names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Edits {
    remove: Box<[Box<[u8]>]>,
    set: Box<[Field]>,
    append: Box<[Field]>,
}

/// A field to write.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: Box<[u8]>,
    value: Box<[u8]>,
}

impl Edits {
    /// The edits that `config` asks for. What is wrong goes to `errors`.
    pub(super) fn new(config: &EditsConfig, side: Side, errors: &mut Vec<FilterError>) -> Self {
        let mut removed: Vec<Box<[u8]>> = Vec::new();
        for (index, name) in config.remove.iter().enumerate() {
            let lower = lower_case(name);
            let problem = check_name(name, side, Verb::Remove)
                .or_else(|| removed.contains(&lower).then(|| repeated(name)));
            match problem {
                Some(problem) => {
                    let error = FilterError::new(problem).key(side.key()).key(Verb::Remove.key());
                    errors.push(error.index(index));
                }
                None => removed.push(lower),
            }
        }
        Self {
            remove: removed.into(),
            set: fields(&config.set, side, Verb::Set, errors),
            append: fields(&config.append, side, Verb::Append, errors),
        }
    }

    /// Edits a head. Allocates nothing once the head's index has had room for as much before.
    pub(super) fn apply<K>(&self, head: &mut Head<'_, K>) {
        if head.has_unusual_names() {
            // A client must not send a field that is set or removed here in another spelling.
            let edited = || self.remove.iter().chain(self.set.iter().map(|field| &field.name));
            head.remove_others(|name| {
                has_underscore(name) && edited().any(|edited| are_twins(edited, name))
            });
        }
        for name in &self.remove {
            head.remove(name);
        }
        for field in &self.set {
            head.set(&field.name, &field.value);
        }
        for field in &self.append {
            head.append(&field.name, &field.value);
        }
    }
}

fn fields(
    config: &BTreeMap<String, String>,
    side: Side,
    verb: Verb,
    errors: &mut Vec<FilterError>,
) -> Box<[Field]> {
    let mut fields: Vec<Field> = Vec::new();
    for (name, value) in config {
        let lower = lower_case(name);
        let problem = check_name(name, side, verb)
            .or_else(|| fields.iter().any(|field| field.name == lower).then(|| repeated(name)))
            .or_else(|| check_value(&lower, value));
        match problem {
            Some(problem) => {
                let error = FilterError::new(problem).key(side.key()).key(verb.key());
                errors.push(error.key(name));
            }
            None => fields.push(Field { name: lower, value: value.as_bytes().into() }),
        }
    }
    fields.into()
}

impl Side {
    const fn key(self) -> &'static str {
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
            Self::Append => "append",
        }
    }
}

fn lower_case(name: &str) -> Box<[u8]> {
    name.to_ascii_lowercase().into_bytes().into()
}

fn repeated(name: &str) -> Problem {
    Problem::new(
        format!("`{name}` stands here twice; field names are the same in any case"),
        "keep one of the two",
    )
}

/// Why a field of this name cannot be edited so.
fn check_name(name: &str, side: Side, verb: Verb) -> Option<Problem> {
    // RFC 9110, section 5.6.2.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_token) {
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
    match (known, side, verb) {
        (Known::ContentLength, _, _) => Some(Problem::new(
            "the length of a body is Strait's to say, or requests could be smuggled",
            "leave it out: the length goes through as it came",
        )),
        (Known::Expect, Side::Request, _) => Some(Problem::new(
            "`expect` is between the client and the upstream, which must agree on it",
            "leave it out: it goes through as it came",
        )),
        (Known::Host, Side::Request, Verb::Append) => {
            Some(Problem::new("a request has one host", "use `set`"))
        }
        (Known::Host, Side::Request, Verb::Remove) => Some(Problem::new(
            "a request has one host",
            "use `set` to give it another, or leave it as it is",
        )),
        _ => None,
    }
}

/// Why a field cannot have this value.
fn check_value(lower_name: &[u8], value: &str) -> Option<Problem> {
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

/// No name in use is longer.
const NAME_BYTES_MAX: usize = 128;
/// A head of 64 KiB must hold it with all else.
const VALUE_BYTES_MAX: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use wire::h1::{HeadLimits, Scan, decode_request, decode_response};
    use wire::head::{HeadIndex, Method};

    use super::*;
    use wire::path::Slashes;

    const LIMITS: HeadLimits = HeadLimits {
        request_line_bytes_max: 1024,
        head_bytes_max: 4096,
        fields_max: 64,
        slashes: Slashes::Keep,
    };

    fn edits(
        side: Side,
        set: &[(&str, &str)],
        append: &[(&str, &str)],
        remove: &[&str],
    ) -> Result<Edits, Vec<FilterError>> {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
        };
        let remove = remove.iter().map(|name| (*name).into()).collect();
        let config = EditsConfig { set: map(set), append: map(append), remove };
        let mut errors = Vec::new();
        let edits = Edits::new(&config, side, &mut errors);
        if errors.is_empty() { Ok(edits) } else { Err(errors) }
    }

    fn lines<K>(head: &Head<'_, K>) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        head.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))).collect()
    }

    fn edited_request(edits: &Edits, bytes: &[u8]) -> (Vec<String>, String) {
        let (mut index, mut scan) = (HeadIndex::default(), Scan::default());
        let decoded = decode_request(bytes, &mut scan, &LIMITS, &mut index).unwrap();
        let (mut head, _) = decoded.unwrap();
        edits.apply(&mut head);
        (lines(&head), String::from_utf8(head.host().to_vec()).unwrap())
    }

    #[test]
    fn fields_are_removed_then_set_then_appended() {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nX-B: 2\r\nX-A: 3\r\n\r\n";
        for (set, append, remove, want) in [
            (&[][..], &[][..], &[][..], &["Host: a", "X-A: 1", "X-B: 2", "X-A: 3"][..]),
            (&[("x-a", "9")], &[], &[], &["Host: a", "x-a: 9", "X-B: 2"]),
            (&[("x-c", "9")], &[], &[], &["Host: a", "X-A: 1", "X-B: 2", "X-A: 3", "x-c: 9"]),
            (&[], &[("x-b", "9")], &[], &["Host: a", "X-A: 1", "X-B: 2", "X-A: 3", "x-b: 9"]),
            (&[], &[], &["x-a"], &["Host: a", "X-B: 2"]),
            (
                &[("x-a", "s")],
                &[("X-A", "t")],
                &["X-a"],
                &["Host: a", "X-B: 2", "x-a: s", "x-a: t"],
            ),
            (&[], &[], &["x-none"], &["Host: a", "X-A: 1", "X-B: 2", "X-A: 3"]),
            (&[("x-e", "")], &[], &["x-a", "x-b"], &["Host: a", "x-e: "]),
        ] {
            let edits = edits(Side::Request, set, append, remove).unwrap();
            assert_eq!(edited_request(&edits, request).0, want, "{edits:?}");
        }
    }

    #[test]
    fn what_is_set_or_removed_has_no_other_spelling() {
        let edits = edits(Side::Request, &[("x-user", "none")], &[], &["x-role"]).unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nx_user: root\r\nX-User: root\r\n\
            X_Role: admin\r\nx-role: admin\r\na_b: 1\r\n\r\n";
        let (fields, _) = edited_request(&edits, request);
        assert_eq!(fields, ["Host: a", "x-user: none", "a_b: 1"]);
    }

    #[test]
    fn a_host_that_is_set_is_the_one_that_routes() {
        let edits = edits(Side::Request, &[("Host", "Shop.example:81")], &[], &[]).unwrap();
        let (fields, host) = edited_request(&edits, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((fields, host.as_str()), (vec!["host: Shop.example:81".into()], "shop.example"));
    }

    #[test]
    fn responses_are_edited_likewise() {
        let edits = edits(Side::Response, &[("server", "edge")], &[], &["x-powered-by"]).unwrap();
        let (mut index, mut scan) = (HeadIndex::default(), Scan::default());
        let bytes = b"HTTP/1.1 200 OK\r\nServer: a\r\nX-Powered-By: b\r\nContent-Length: 0\r\n\r\n";
        let decoded = decode_response(bytes, &mut scan, &LIMITS, &mut index, Method::Get).unwrap();
        let (mut head, _) = decoded.unwrap();
        edits.apply(&mut head);
        assert_eq!(lines(&head), ["server: edge", "Content-Length: 0"]);
    }

    #[test]
    fn names_that_are_not_a_filters_are_refused() {
        for name in [
            "connection",
            "Keep-Alive",
            "proxy-connection",
            "TE",
            "transfer-encoding",
            "Upgrade",
            "content-length",
            "http2-settings",
        ] {
            for side in [Side::Request, Side::Response] {
                assert!(edits(side, &[(name, "x")], &[], &[]).is_err(), "set {name}");
                assert!(edits(side, &[], &[(name, "x")], &[]).is_err(), "append {name}");
                assert!(edits(side, &[], &[], &[name]).is_err(), "remove {name}");
            }
        }
        assert!(edits(Side::Request, &[("expect", "x")], &[], &[]).is_err());
        assert!(edits(Side::Request, &[], &[("host", "x")], &[]).is_err());
        assert!(edits(Side::Request, &[], &[], &["host"]).is_err());
        assert!(edits(Side::Response, &[], &[], &["host", "expect"]).is_ok());
    }

    #[test]
    fn names_that_are_no_tokens_are_refused() {
        for name in ["", "a b", "a:", "a\r", "ä", "a(b)", &"n".repeat(129)] {
            assert!(edits(Side::Request, &[(name, "x")], &[], &[]).is_err(), "{name:?}");
        }
        assert!(edits(Side::Request, &[(&"n".repeat(128), "x")], &[], &[]).is_ok());
        assert!(edits(Side::Request, &[("!#$%&'*+-.^_`|~09azAZ", "x")], &[], &[]).is_ok());
    }

    #[test]
    fn values_that_would_break_a_head_are_refused() {
        for value in ["a\r\nb: c", "a\n", "a\0b", "a\x7fb", " a", "a\t", &"v".repeat(8193)] {
            assert!(edits(Side::Request, &[("x", value)], &[], &[]).is_err(), "{value:?}");
        }
        for value in ["", "a b\tc", "é", &"v".repeat(8192)] {
            assert!(edits(Side::Request, &[("x", value)], &[], &[]).is_ok(), "{value:?}");
        }
        for value in ["", "a b", "user@a", "a:99999"] {
            assert!(edits(Side::Request, &[("host", value)], &[], &[]).is_err(), "{value:?}");
        }
    }

    #[test]
    fn the_same_name_twice_is_refused_in_any_case() {
        assert!(edits(Side::Request, &[("x-a", "1"), ("X-A", "2")], &[], &[]).is_err());
        assert!(edits(Side::Request, &[], &[], &["x-a", "X-A"]).is_err());
        assert!(edits(Side::Request, &[("x-a", "1")], &[("x-a", "2")], &["x-a"]).is_ok());
    }

    #[test]
    fn all_errors_are_reported_each_with_its_place() {
        let bad = [("a b", "x"), ("te", "x"), ("ok", "x"), ("x-v", "a\n")];
        let errors = edits(Side::Response, &bad, &[], &["ok", "upgrade"]).unwrap_err();
        let at = |error: &FilterError| format!("{error:?}");
        assert_eq!(errors.len(), 4);
        for (error, parts) in errors.iter().zip([
            &["response", "remove", "Index(1)"][..],
            &["response", "set", "a b"],
            &["response", "set", "te"],
            &["response", "set", "x-v"],
        ]) {
            assert!(parts.iter().all(|part| at(error).contains(part)), "{error:?} {parts:?}");
        }
    }
}
