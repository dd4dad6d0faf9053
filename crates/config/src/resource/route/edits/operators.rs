//! Operators in values: `%REQ(x-user)%`, `%START_TIME%`. Names and meanings are those of Envoy's command operators.
//!
//! A value is text and operators. What an operator does not know is empty, and a value that comes out empty is no field.
//! An operator whose text is too long, or has an octet that no field value may have, counts as one that knows nothing:
//! text that was cut or changed could be another peer's name.

use wire::head::{RequestHead, ResponseHead};

use super::Side;
use super::check::{VALUE_BYTES_MAX, is_name};
use super::time::TimeFormat;
use crate::findings::Problem;
use crate::nearest;

/// Operators of one value.
const OPERATORS_MAX: usize = 32;

/// Bytes that are kept of one request for the edits of its response.
pub const KEPT_BYTES_MAX: usize = 64 << 10;

/// What an operator may ask for beside fields, of an exchange and its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The client's address and port; the port is 0 where a trusted hop named the client.
    RemoteAddress,
    /// The client's address.
    RemoteIp,
    /// The client's port.
    RemotePort,
    /// Address and port of who connected.
    DirectAddress,
    /// The address of who connected.
    DirectIp,
    /// The port of who connected.
    DirectPort,
    /// Address and port that the client connected to.
    LocalAddress,
    /// The address that the client connected to.
    LocalIp,
    /// The port that the client connected to.
    LocalPort,
    /// URIs of the client's certificate.
    PeerUris,
    /// Host names of the client's certificate.
    PeerHosts,
    /// Addresses of the client's certificate.
    PeerIps,
    /// The subject of the client's certificate.
    PeerSubject,
    /// The issuer of the client's certificate.
    PeerIssuer,
    /// The serial number of the client's certificate.
    PeerSerial,
    /// SHA-256 of the client's certificate.
    PeerFingerprint,
    /// The URI of the certificate that the client was shown.
    LocalUri,
    /// The version of TLS.
    TlsVersion,
    /// The cipher suite.
    TlsCipher,
    /// The server name that the client asked for.
    ServerName,
    /// The version of HTTP.
    Protocol,
    /// `http` or `https`.
    Scheme,
    /// The name of the rule.
    RouteName,
    /// The name of the cluster.
    UpstreamCluster,
    /// Address and port of the endpoint.
    UpstreamAddress,
    /// The address of the endpoint.
    UpstreamIp,
    /// The port of the endpoint.
    UpstreamPort,
    /// Attempts that were made.
    Attempts,
    /// The status.
    Status,
    /// The cause of a reply of Strait's own.
    Cause,
    /// Milliseconds from the request's first byte to the response's.
    ResponseTime,
    /// Milliseconds from the request's first byte to now.
    Duration,
}

/// What operators ask for, of one exchange.
pub trait OperatorFacts {
    /// Appends the text of a fact; nothing where it is not known.
    fn push(&self, fact: Fact, out: &mut Vec<u8>);

    /// When the request began, ns since 1970.
    fn start_nanos(&self) -> u64;
}

/// Where operators may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// In edits of both heads.
    Always,
    /// In those of responses.
    Responses,
}

/// The operators without arguments.
const FACTS: [(&str, Fact, Known); 31] = {
    use Known::{Always, Responses};
    [
        ("DOWNSTREAM_REMOTE_ADDRESS", Fact::RemoteAddress, Always),
        ("DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", Fact::RemoteIp, Always),
        ("DOWNSTREAM_REMOTE_PORT", Fact::RemotePort, Always),
        ("DOWNSTREAM_DIRECT_REMOTE_ADDRESS", Fact::DirectAddress, Always),
        ("DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT", Fact::DirectIp, Always),
        ("DOWNSTREAM_DIRECT_REMOTE_PORT", Fact::DirectPort, Always),
        ("DOWNSTREAM_LOCAL_ADDRESS", Fact::LocalAddress, Always),
        ("DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT", Fact::LocalIp, Always),
        ("DOWNSTREAM_LOCAL_PORT", Fact::LocalPort, Always),
        ("DOWNSTREAM_PEER_URI_SAN", Fact::PeerUris, Always),
        ("DOWNSTREAM_PEER_DNS_SAN", Fact::PeerHosts, Always),
        ("DOWNSTREAM_PEER_IP_SAN", Fact::PeerIps, Always),
        ("DOWNSTREAM_PEER_SUBJECT", Fact::PeerSubject, Always),
        ("DOWNSTREAM_PEER_ISSUER", Fact::PeerIssuer, Always),
        ("DOWNSTREAM_PEER_SERIAL", Fact::PeerSerial, Always),
        ("DOWNSTREAM_PEER_FINGERPRINT_256", Fact::PeerFingerprint, Always),
        ("DOWNSTREAM_LOCAL_URI_SAN", Fact::LocalUri, Always),
        ("DOWNSTREAM_TLS_VERSION", Fact::TlsVersion, Always),
        ("DOWNSTREAM_TLS_CIPHER", Fact::TlsCipher, Always),
        ("REQUESTED_SERVER_NAME", Fact::ServerName, Always),
        ("PROTOCOL", Fact::Protocol, Always),
        ("ROUTE_NAME", Fact::RouteName, Always),
        ("UPSTREAM_CLUSTER", Fact::UpstreamCluster, Always),
        ("UPSTREAM_HOST", Fact::UpstreamAddress, Responses),
        ("UPSTREAM_REMOTE_ADDRESS", Fact::UpstreamAddress, Responses),
        ("UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", Fact::UpstreamIp, Responses),
        ("UPSTREAM_REMOTE_PORT", Fact::UpstreamPort, Responses),
        ("UPSTREAM_REQUEST_ATTEMPT_COUNT", Fact::Attempts, Responses),
        ("RESPONSE_CODE", Fact::Status, Responses),
        ("RESPONSE_CODE_DETAILS", Fact::Cause, Responses),
        ("RESPONSE_DURATION", Fact::ResponseTime, Responses),
    ]
};

/// The operators with arguments, and those that are short for one.
const OTHERS: [&str; 5] = ["REQ", "RESP", "START_TIME", "STREAM_ID", "DURATION"];

/// A piece of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// As it stands.
    Text(Box<[u8]>),
    /// What an operator says, up to so many bytes.
    Operator(Operator, Option<usize>),
}

/// What is to stand in a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    /// The first of these that the request has.
    Request(Box<[Box<[u8]>]>),
    /// The first of these that the response has.
    Response(Box<[Box<[u8]>]>),
    /// When the request began.
    StartTime(TimeFormat),
    Fact(Fact),
}

impl Part {
    pub(super) const fn operator(&self) -> Option<&Operator> {
        match self {
            Self::Text(_) => None,
            Self::Operator(operator, _) => Some(operator),
        }
    }
}

impl Operator {
    /// The fields of the request that it asks for.
    pub(super) fn request_fields(&self) -> &[Box<[u8]>] {
        match self {
            Self::Request(names) => names,
            Self::Response(_) | Self::StartTime(_) | Self::Fact(_) => &[],
        }
    }

    pub(super) fn push_of_request(
        &self,
        head: &RequestHead<'_>,
        facts: &dyn OperatorFacts,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Request(names) => {
                let is_pushed = |name: &[u8], out: &mut Vec<u8>| push_field(name, head, out);
                let _ = names.iter().any(|name| is_pushed(name, out));
            }
            // There is no response yet; where that is asked for is an error.
            Self::Response(_) => {}
            _ => self.push_fact(facts, out),
        }
    }

    pub(super) fn push_of_response(
        &self,
        head: &ResponseHead<'_>,
        kept: &[u8],
        facts: &dyn OperatorFacts,
        out: &mut Vec<u8>,
    ) {
        let found = match self {
            Self::Request(names) => names.iter().find_map(|name| find_kept(kept, name)),
            Self::Response(names) => names.iter().find_map(|name| head.find(name)),
            _ => return self.push_fact(facts, out),
        };
        push_bounded(found.unwrap_or_default(), out);
    }

    fn push_fact(&self, facts: &dyn OperatorFacts, out: &mut Vec<u8>) {
        match self {
            Self::StartTime(format) => format.push(facts.start_nanos(), out),
            Self::Fact(fact) => facts.push(*fact, out),
            Self::Request(_) | Self::Response(_) => {}
        }
    }
}

/// Bytes in front of a value that say how long it is.
const LENGTH_BYTES: usize = 4;

/// Appends a value that is put together, for [`next_formed`]: nothing comes out if it would be empty, or too long.
pub(super) fn form(parts: &[Part], values: &mut Vec<u8>, push: impl Fn(&Operator, &mut Vec<u8>)) {
    let length_at = values.len();
    values.extend_from_slice(&[0; LENGTH_BYTES]);
    let value_at = values.len();
    for part in parts {
        match part {
            Part::Text(text) => values.extend_from_slice(text),
            Part::Operator(operator, bytes_max) => {
                let start = values.len();
                push(operator, values);
                let pushed = values.get(start..).unwrap_or_default();
                if pushed.len() > VALUE_BYTES_MAX || !pushed.iter().all(|it| is_value_octet(*it)) {
                    values.truncate(start);
                }
                values.truncate(start.saturating_add(bytes_max.unwrap_or(VALUE_BYTES_MAX)));
            }
        }
        if values.len() - value_at > VALUE_BYTES_MAX {
            return values.truncate(value_at);
        }
    }
    let length = u32::try_from(values.len() - value_at).unwrap_or(0);
    if let Some(place) = values.get_mut(length_at..value_at) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

/// The value at the front of what [`form`] wrote, which is taken off. None if it is empty.
pub(super) fn next_formed<'v>(values: &mut &'v [u8]) -> Option<&'v [u8]> {
    let (length, rest) = values.split_first_chunk::<LENGTH_BYTES>()?;
    let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *values = rest;
    // What stands at the ends of a value does not count, and receivers drop it.
    let value = trimmed(value);
    (!value.is_empty()).then_some(value)
}

/// Whether a value may have it (RFC 9110, section 5.5).
const fn is_value_octet(octet: u8) -> bool {
    matches!(octet, b'\t' | b' '..=b'~' | 0x80..)
}

fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Appends text of a peer, of which no more than says that it is too long.
fn push_bounded(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(text.get(..=VALUE_BYTES_MAX).unwrap_or(text));
}

/// Appends what a request has under a name, or under that of a pseudo field. Says whether it has it.
fn push_field(name: &[u8], head: &RequestHead<'_>, out: &mut Vec<u8>) -> bool {
    let found = match name {
        b":path" => {
            push_bounded(head.path(), out);
            if let Some(query) = head.query() {
                out.push(b'?');
                push_bounded(query, out);
            }
            return true;
        }
        b":method" => Some(head.method_bytes()),
        b":authority" | b"host" => Some(head.authority()).filter(|host| !host.is_empty()),
        name => head.find(name),
    };
    push_bounded(found.unwrap_or_default(), out);
    found.is_some()
}

/// Writes a field of the request behind others that are kept: lengths of name and value, name, value.
pub(super) fn keep(name: &[u8], head: &RequestHead<'_>, kept: &mut Vec<u8>) {
    if find_kept(kept, name).is_some() {
        return;
    }
    let start = kept.len();
    kept.extend_from_slice(&[0; 4]);
    kept.extend_from_slice(name);
    let value = kept.len();
    let is_there = push_field(name, head, kept);
    let lengths = (u16::try_from(name.len()), u16::try_from(kept.len() - value));
    let (Ok(name_len), Ok(value_len)) = lengths else { return kept.truncate(start) };
    if !is_there || kept.len() > KEPT_BYTES_MAX {
        return kept.truncate(start);
    }
    let lengths = name_len.to_be_bytes().into_iter().chain(value_len.to_be_bytes());
    for (place, octet) in kept.iter_mut().skip(start).zip(lengths) {
        *place = octet;
    }
}

/// The value that was kept under a name. What was kept may have been damaged since.
fn find_kept<'k>(mut kept: &'k [u8], name: &[u8]) -> Option<&'k [u8]> {
    while let Some((&[n0, n1, v0, v1], rest)) = kept.split_first_chunk() {
        let of_name = usize::from(u16::from_be_bytes([n0, n1]));
        let of_value = usize::from(u16::from_be_bytes([v0, v1]));
        let (found, rest) = rest.split_at_checked(of_name)?;
        let (value, rest) = rest.split_at_checked(of_value)?;
        if found == name {
            return Some(value);
        }
        kept = rest;
    }
    None
}

/// Reads a value.
///
/// # Errors
///
/// What is no operator, or none for this side.
pub(super) fn parse(text: &str, side: Side) -> Result<Vec<Part>, Problem> {
    let mut parts = Vec::new();
    let mut operators = 0;
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('%') {
        push_text(&mut parts, before);
        if let Some(behind) = behind.strip_prefix('%') {
            push_text(&mut parts, "%");
            rest = behind;
            continue;
        }
        let (part, behind) = operator(behind, side)?;
        parts.push(part);
        operators += 1;
        if operators > OPERATORS_MAX {
            let rule = format!("a value has at most {OPERATORS_MAX} operators");
            return Err(Problem::new(rule, "spread them over several fields"));
        }
        rest = behind;
    }
    push_text(&mut parts, rest);
    Ok(parts)
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Text(former)) => *former = [former, text.as_bytes()].concat().into(),
        _ => parts.push(Part::Text(text.as_bytes().into())),
    }
}

/// Reads an operator behind its first `%`, and returns what stands behind its last.
fn operator(text: &str, side: Side) -> Result<(Part, &str), Problem> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (name, rest) = text.split_at(text.find(|c| !is_name(c)).unwrap_or(text.len()));
    let (argument, rest) = match rest.strip_prefix('(') {
        Some(behind) => {
            let (argument, rest) = behind.split_once(')').ok_or_else(unclosed)?;
            (Some(argument), rest)
        }
        None => (None, rest),
    };
    let (length, rest) = match rest.strip_prefix(':') {
        Some(behind) => {
            let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
            let (digits, rest) = behind.split_at(digits);
            (Some(length(digits)?), rest)
        }
        None => (None, rest),
    };
    let rest = rest.strip_prefix('%').filter(|_| !name.is_empty()).ok_or_else(unclosed)?;
    Ok((Part::Operator(of_name(name, argument, side)?, length), rest))
}

fn unclosed() -> Problem {
    let rule = "a `%` begins an operator such as %PROTOCOL% or %REQ(x-user)%, which ends with one";
    Problem::new(rule, "write `%%` for the sign itself")
}

fn length(digits: &str) -> Result<usize, Problem> {
    let length =
        digits.parse::<usize>().ok().filter(|length| (1..=VALUE_BYTES_MAX).contains(length));
    length.ok_or_else(|| {
        let rule =
            format!("a `:` is followed by the maximum number of bytes, up to {VALUE_BYTES_MAX}");
        Problem::new(rule, "write %REQ(x-user):32%")
    })
}

fn of_name(name: &str, argument: Option<&str>, side: Side) -> Result<Operator, Problem> {
    let refused = |rule: String, hint: &'static str| Err(Problem::new(rule, hint));
    match (name, argument) {
        ("REQ", Some(argument)) => match argument.to_ascii_lowercase().as_str() {
            ":scheme" => Ok(Operator::Fact(Fact::Scheme)),
            _ => names(argument, &[":path", ":method", ":authority"]).map(Operator::Request),
        },
        ("RESP", Some(argument)) if side == Side::Response => {
            match argument.to_ascii_lowercase().as_str() {
                ":status" => Ok(Operator::Fact(Fact::Status)),
                _ => names(argument, &[]).map(Operator::Response),
            }
        }
        ("RESP", Some(_)) => only_responses(name),
        ("REQ" | "RESP", None) => refused(
            format!("%{name}% needs the name of a field"),
            "write it in parentheses: (x-user)",
        ),
        ("START_TIME", format) => {
            let format = format.filter(|format| !format.is_empty());
            let format = format.map_or_else(|| Ok(TimeFormat::default()), TimeFormat::parse);
            Ok(Operator::StartTime(format?))
        }
        ("STREAM_ID", None) => names("x-request-id", &[]).map(Operator::Request),
        ("DURATION", None) if side == Side::Response => Ok(Operator::Fact(Fact::Duration)),
        ("DURATION", None) => only_responses(name),
        (name, argument) => match FACTS.iter().find(|(known, ..)| *known == name) {
            Some(_) if argument.is_some() => {
                refused(format!("%{name}% has no argument"), "remove the parentheses")
            }
            Some((_, _, Known::Responses)) if side == Side::Request => only_responses(name),
            Some((_, fact, _)) => Ok(Operator::Fact(*fact)),
            None if OTHERS.contains(&name) => {
                refused(format!("%{name}% has no argument"), "remove the parentheses")
            }
            None if ADDRESSES_MEANT.contains(&name) => refused(
                format!("there is no operator %{name}%"),
                "write %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% for the address of the client",
            ),
            None => {
                let all = FACTS.iter().map(|(known, ..)| *known).chain(OTHERS);
                let hint = nearest::hint(name, all, "remove it");
                Err(Problem::new(format!("there is no operator %{name}%"), hint))
            }
        },
    }
}

/// What is meant as the address of the client, and is nearer to the name of another operator or to none.
const ADDRESSES_MEANT: [&str; 6] = [
    "CLIENT_ADDRESS",
    "CLIENT_IP",
    "DOWNSTREAM_ADDRESS",
    "DOWNSTREAM_REMOTE_IP",
    "REMOTE_ADDR",
    "REMOTE_ADDRESS",
];

fn only_responses(name: &str) -> Result<Operator, Problem> {
    let rule = format!("%{name}% is known once there is a response");
    Err(Problem::new(rule, "use it under `response`"))
}

/// `x-user` or `x-user?x-client`: the first that is there.
fn names(argument: &str, pseudo: &[&str]) -> Result<Box<[Box<[u8]>]>, Problem> {
    let mut names: Vec<Box<[u8]>> = Vec::new();
    for name in argument.split('?') {
        let lower = name.to_ascii_lowercase();
        if names.len() == 2 || !(is_name(&lower) || pseudo.contains(&lower.as_str())) {
            let rule = format!("`{argument}` is no field name, nor two with a `?` between them");
            return Err(Problem::new(rule, "write %REQ(x-user)% or %REQ(x-user?x-client)%"));
        }
        names.push(lower.into_bytes().into());
    }
    Ok(names.into())
}
