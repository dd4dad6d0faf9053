//! Detects the protocol of a connection from its first bytes.
//!
//! Nothing is consumed: the caller asks again with more bytes until there is a verdict. Where
//! clients wait for the server to speak first, no bytes come; the caller decides how long to wait
//! for them.
//!
//! HTTP and TLS have a line each in the table of probes. RPC protocols say themselves what they begin
//! with ([`RpcProtocol::begins`]), and are looked for only where the caller names them, behind the others.

use serde::{Deserialize, Serialize};

use crate::h1::SCHEMES;
use crate::h2::PREFACE;
use crate::octets;
use crate::rpc::{RpcName, RpcProtocol};
use crate::tls::client_hello;

/// A detected protocol, and its name in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detected {
    /// A request line of HTTP/1.
    Http1,
    /// The preface of HTTP/2.
    Http2,
    /// The first record of a TLS handshake, which [`crate::tls::client_hello`] reads.
    Tls,
    /// None of those that were looked for.
    Other,
    /// A frame of this RPC protocol.
    #[serde(untagged)]
    Rpc(RpcName),
}

/// Bytes in which a verdict is reached at the latest.
pub const DETECT_BYTES_MAX: usize = 8 << 10;

/// One protocol, and the function that looks for it.
struct Probe {
    protocol: Detected,
    tell: fn(&[u8]) -> Verdict,
}

/// All of them, in the order in which they are asked. The first that does not say no decides.
const PROBES: &[Probe] = &[
    Probe { protocol: Detected::Tls, tell: tls },
    Probe { protocol: Detected::Http2, tell: http2 },
    Probe { protocol: Detected::Http1, tell: http1 },
];

/// A probe's verdict on the first bytes of a connection. With more bytes it may change from `More`;
/// `Match` and `No` are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The bytes are of its protocol.
    Match,
    /// The bytes are not of its protocol.
    No,
    /// More bytes are needed. If none come in time, these are a match if that is likely.
    More { is_likely: bool },
}

/// RPC protocols that are looked for beside HTTP and TLS.
pub type RpcProtocols<'p> = &'p [&'static dyn RpcProtocol];

/// The protocol of `input`, the first bytes of a connection, or `None` if more are needed.
#[must_use]
pub fn detect(input: &[u8], rpc: RpcProtocols<'_>) -> Option<Detected> {
    for (protocol, verdict) in verdicts(input, rpc) {
        match verdict {
            Verdict::Match => return Some(protocol),
            Verdict::More { .. } if input.len() < DETECT_BYTES_MAX => return None,
            Verdict::More { .. } | Verdict::No => {}
        }
    }
    Some(Detected::Other)
}

/// The protocol to assume for `input`, the first bytes of a connection, if no more came in time.
#[must_use]
pub fn detect_late(input: &[u8], rpc: RpcProtocols<'_>) -> Detected {
    let is_likely =
        |verdict: &Verdict| matches!(verdict, Verdict::Match | Verdict::More { is_likely: true });
    let mut verdicts = verdicts(input, rpc);
    verdicts.find(|(_, verdict)| is_likely(verdict)).map_or(Detected::Other, |(found, _)| found)
}

/// What each protocol says of `input`, in the order in which they are asked.
fn verdicts(input: &[u8], rpc: RpcProtocols<'_>) -> impl Iterator<Item = (Detected, Verdict)> {
    let known = PROBES.iter().map(|probe| (probe.protocol, (probe.tell)(input)));
    known.chain(rpc.iter().filter_map(|protocol| {
        let verdict = match protocol.begins(input) {
            Some(true) => Verdict::Match,
            Some(false) => Verdict::No,
            None => Verdict::More { is_likely: !input.is_empty() },
        };
        Some((Detected::Rpc(RpcName::new(protocol.name())?), verdict))
    }))
}

/// Whether connections of two RPC protocols may begin with the same octet, so that they cannot be detected
/// beside each other.
#[must_use]
pub fn is_ambiguous(one: &dyn RpcProtocol, other: &dyn RpcProtocol) -> bool {
    let may_begin = |protocol: &dyn RpcProtocol, octet| protocol.begins(&[octet]) != Some(false);
    (0..=u8::MAX).any(|octet| may_begin(one, octet) && may_begin(other, octet))
}

/// What the first bytes of a server belong to: a response of HTTP/1, a frame of HTTP/2 that concerns the whole
/// connection, or a record of TLS, which of a server that was not greeted in TLS is an alert.
#[must_use]
pub fn detect_server(input: &[u8]) -> Detected {
    match input {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', ..] => Detected::Http1,
        // SETTINGS, which has 6 octets for each, and GOAWAY (RFC 9113, sections 6.5 and 6.8).
        [0, a, b, 4, 0 | 1, 0, 0, 0, 0, ..] if u16::from_be_bytes([*a, *b]) % 6 == 0 => {
            Detected::Http2
        }
        [0, a, b, 7, _, 0, 0, 0, 0, ..] if u16::from_be_bytes([*a, *b]) >= 8 => Detected::Http2,
        [21 | 22, 3, 0..=4, ..] => Detected::Tls,
        _ => Detected::Other,
    }
}

fn tls(input: &[u8]) -> Verdict {
    match client_hello::begins(input) {
        Some(true) => Verdict::Match,
        Some(false) => Verdict::No,
        None => Verdict::More { is_likely: !input.is_empty() },
    }
}

fn http2(input: &[u8]) -> Verdict {
    let common = input.len().min(PREFACE_TOLD);
    match input.get(..common) == PREFACE.get(..common) {
        false => Verdict::No,
        true if common == PREFACE_TOLD => Verdict::Match,
        true => Verdict::More { is_likely: common >= PREFACE_METHOD },
    }
}

/// Whether `input`, which begins no message of HTTP/1, looks like HTTP/2 whose preface is broken or lost
/// its beginning: it goes on from the preface's method with what no method holds, has the preface's
/// target and version behind another method, agrees with what stands further on in it, or begins as a
/// frame does, whose length has a first octet of 0. `None` if that needs more bytes, which is so of two at
/// most; none of them are of a request.
#[must_use]
pub fn resembles_http2(input: &[u8]) -> Option<bool> {
    /// The preface behind its method.
    const LINE: &[u8] = b" * HTTP/2";
    /// Octets of the preface in which it is not taken for something else.
    const AGREEMENT: usize = 3;
    let line_ends = input.iter().take_while(|octet| matches!(octet, b'\r' | b'\n')).count();
    if input.get(line_ends) == Some(&0) {
        return Some(true);
    }
    let method_end = octets::token_end(input, 0);
    let (method, behind) = input.split_at(method_end);
    let is_method_of_preface = match (method, behind.first()) {
        (b"PRI", _) => true,
        // Other methods begin like this, and a blank ends one.
        (b"PR", Some(next)) => *next != b' ',
        _ => behind.starts_with(LINE) && !METHODS.contains(&method),
    };
    if is_method_of_preface {
        return Some(true);
    }
    let agreement = |start: usize| {
        let rest = PREFACE.get(start..).unwrap_or_default();
        let common = rest.len().min(input.len());
        (input.get(..common) == rest.get(..common)).then_some(common)
    };
    let agreed = (1..PREFACE.len()).filter_map(agreement).max().unwrap_or_default();
    match input.len() {
        _ if agreed >= AGREEMENT => Some(true),
        len if len < AGREEMENT && agreed == len && len > 0 => None,
        _ => Some(false),
    }
}

/// Bytes of HTTP/2's preface that nothing else begins with: up to its version.
const PREFACE_TOLD: usize = b"PRI * HTTP/2.0".len();

/// Bytes of the preface that are a method of their own.
const PREFACE_METHOD: usize = b"PRI".len();

/// A method, a target and a version. Empty lines before it are skipped, as the decoder does.
///
/// Behind a method of HTTP's own the decoder says what is wrong with the rest. Behind any other
/// the line has to be one that the decoder takes, because the words of many protocols begin like a
/// method.
fn http1(input: &[u8]) -> Verdict {
    let mut line = input;
    while let [b'\r', b'\n', rest @ ..] = line {
        line = rest;
    }
    if matches!(line, [] | [b'\r']) {
        return Verdict::More { is_likely: false };
    }
    let (method, rest) = line.split_at(octets::token_end(line, 0));
    let is_registered = METHODS.contains(&method);
    let rest = match rest {
        [b' ', rest @ ..] if !method.is_empty() => rest,
        [] if method.len() <= METHOD_BYTES_MAX => {
            let is_likely = METHODS.iter().any(|registered| registered.starts_with(method));
            return Verdict::More { is_likely };
        }
        _ => return Verdict::No,
    };
    let line_end = rest.iter().position(|octet| matches!(octet, b'\r' | b'\n'));
    let rest = rest.get(..line_end.unwrap_or(rest.len())).unwrap_or_default();
    let has_version = rest
        .last_chunk::<9>()
        .is_some_and(|version| version.starts_with(b" HTTP/") && version.get(7) == Some(&b'.'));
    let begins = if is_registered { after_registered(rest) } else { after_other(rest) };
    match (begins, line_end) {
        (Verdict::No, _) => Verdict::No,
        (_, Some(_)) if has_version => Verdict::Match,
        (_, Some(_)) => Verdict::No,
        // Whatever else a long line is, the decoder says what is wrong with it.
        (_, None) if input.len() >= DETECT_BYTES_MAX => Verdict::Match,
        (Verdict::Match, None) => Verdict::More { is_likely: true },
        (more, None) => more,
    }
}

/// Whether a target of some form may begin so.
fn after_registered(rest: &[u8]) -> Verdict {
    match rest.first() {
        None => Verdict::More { is_likely: true },
        Some(b'/' | b'*' | b'[' | b'-' | b'.' | b'_' | b'~') => Verdict::Match,
        Some(octet) if octet.is_ascii_alphanumeric() => Verdict::Match,
        Some(_) => Verdict::No,
    }
}

/// Whether this begins as a path, an asterisk or one of HTTP's schemes does, and goes on with a
/// version.
fn after_other(rest: &[u8]) -> Verdict {
    let mut words = rest.splitn(2, |octet| *octet == b' ');
    let target = words.next().unwrap_or_default();
    if words.next().is_some_and(|version| !agree(version, b"HTTP/")) {
        return Verdict::No;
    }
    let is_scheme = |scheme: &&[u8]| target.len() >= scheme.len() && agree(target, scheme);
    match target.first() {
        Some(b'/' | b'*') => Verdict::Match,
        _ if SCHEMES.iter().any(is_scheme) => Verdict::Match,
        _ if SCHEMES.iter().any(|scheme| agree(target, scheme)) => {
            Verdict::More { is_likely: false }
        }
        _ => Verdict::No,
    }
}

/// Whether one of the two begins with the other, whatever the case.
fn agree(one: &[u8], other: &[u8]) -> bool {
    one.iter().zip(other).all(|(one, other)| one.eq_ignore_ascii_case(other))
}

/// No registered method is longer than this.
const METHOD_BYTES_MAX: usize = 32;

/// The registered methods (RFC 9110, section 16.1.1), but for HTTP/2's `PRI`.
const METHODS: &[&[u8]] = &[
    b"ACL",
    b"BASELINE-CONTROL",
    b"BIND",
    b"CHECKIN",
    b"CHECKOUT",
    b"CONNECT",
    b"COPY",
    b"DELETE",
    b"GET",
    b"HEAD",
    b"LABEL",
    b"LINK",
    b"LOCK",
    b"MERGE",
    b"MKACTIVITY",
    b"MKCALENDAR",
    b"MKCOL",
    b"MKREDIRECTREF",
    b"MKWORKSPACE",
    b"MOVE",
    b"OPTIONS",
    b"ORDERPATCH",
    b"PATCH",
    b"POST",
    b"PROPFIND",
    b"PROPPATCH",
    b"PUT",
    b"REBIND",
    b"REPORT",
    b"SEARCH",
    b"TRACE",
    b"UNBIND",
    b"UNCHECKOUT",
    b"UNLINK",
    b"UNLOCK",
    b"UPDATE",
    b"UPDATEREDIRECTREF",
    b"VERSION-CONTROL",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::bolt::Bolt;

    #[test]
    fn protocols_are_detected_however_few_bytes_come_at_a_time() {
        for (input, expected) in [
            (&b"GET / HTTP/1.1\r"[..], Detected::Http1),
            (b"PRIX / HTTP/1.0\r", Detected::Http1),
            (b"\r\n\r\nOPTIONS * HTTP/1.1\r", Detected::Http1),
            (b"M-SEARCH http://x/ HTTP/1.1\n", Detected::Http1),
            (b"PRI * HTTP/2.0", Detected::Http2),
            (b"\x16\x03\x01\x02\x00\x01", Detected::Tls),
            (b"\x16\x03\x01\x02\x00\x02", Detected::Other),
            (b"\x16\x02", Detected::Other),
            (b"\x16\x03\x05", Detected::Other),
            (b"\x16\x03\x01\x00\x00", Detected::Other),
            (b"\x16\x03\x01\x40\x01", Detected::Other),
            (b"\x16\x03\x01\x40\x00\x01", Detected::Tls),
            (b"PING\r", Detected::Other),
            (b"GET key\r", Detected::Other),
            (b"GET /key\r", Detected::Other),
            (b"\x00", Detected::Other),
            (b"*1\r", Detected::Other),
            (b" ", Detected::Other),
            (b"PRI / HTTP/1.1\r", Detected::Http1),
            // The target behind a method of HTTP may be wrong; the decoder reports that.
            (b"GET a b HTTP/1.1\r", Detected::Http1),
            (b"DELETE [::1] HTTP/1.1\r", Detected::Http1),
            (b"CONNECT -:1 HTTP/1.1\r", Detected::Http1),
            (b"GET \"", Detected::Other),
            (b"CONNECT \x01", Detected::Other),
            // Other words are followed by what a request could have there, or are something else's.
            (b"hello wo", Detected::Other),
            (b"AUTH u", Detected::Other),
            (b"get k", Detected::Other),
            (b"X wo", Detected::Other),
            (b"X WSS://x HTTP/1.1\r", Detected::Http1),
            (b"X https:x", Detected::Other),
            (b"X /a b", Detected::Other),
            (b"X /a H ", Detected::Other),
            (b"X * HTTP/1.1\r", Detected::Http1),
            (b"X HTTPS://x HTTP/1.1\r", Detected::Http1),
        ] {
            for len in 0..input.len() {
                assert_eq!(detect(&input[..len], &[]), None, "{:?} {len}", input.escape_ascii());
            }
            assert_eq!(detect(input, &[]), Some(expected), "{:?}", input.escape_ascii());
        }
    }

    #[test]
    fn what_did_not_come_in_time_goes_by_what_there_is() {
        for (input, expected) in [
            (&b""[..], Detected::Other),
            (b"\x16", Detected::Tls),
            (b"\x16\x03\x01\x02", Detected::Tls),
            (b"\x16\x02", Detected::Other),
            (b"P", Detected::Http1),
            (b"PR", Detected::Http1),
            (b"PRI", Detected::Http2),
            (b"PRI * HT", Detected::Http2),
            (b"G", Detected::Http1),
            (b"GET", Detected::Http1),
            (b"\r\nVERSION-CON", Detected::Http1),
            (b"UPDATE", Detected::Http1),
            (b"GETS", Detected::Other),
            (b"get", Detected::Other),
            (b"hello", Detected::Other),
            (b"EHLO", Detected::Other),
            (b"\r\n", Detected::Other),
            (b"GET ", Detected::Http1),
            (b"GET / HT", Detected::Http1),
            (b"GET key", Detected::Http1),
            (b"X ", Detected::Other),
            (b"X w", Detected::Other),
            (b"X /a", Detected::Http1),
            (b"X ws://", Detected::Http1),
        ] {
            assert_eq!(detect_late(input, &[]), expected, "{:?}", input.escape_ascii());
        }
    }

    #[test]
    fn protocols_of_rpc_are_looked_for_where_they_are_named() {
        let bolt = Some(Detected::Rpc(RpcName::new("bolt").expect("a short word")));
        let request = b"\x01\x01\x00\x01\x01\0\0\0\x07\x01\0\0\x03\xe8\0\0\0\0\0\0\0\0";
        let response = b"\x01\x00\x00\x02\x01\0\0\0\x07\x01\0\0\0\0\0\0\0\0\0\0";
        let rpc: RpcProtocols<'_> = &[&Bolt];
        for len in 1..request.len() {
            assert_eq!(detect(&request[..len], rpc), None, "{len} octets");
            assert_eq!(Some(detect_late(&request[..len], rpc)), bolt, "{len} octets");
        }
        assert_eq!(detect(request, rpc), bolt);
        assert_eq!(detect(request, &[]), Some(Detected::Other));
        assert_eq!(detect_late(b"", rpc), Detected::Other);
        for (input, expected) in [
            // Only servers begin so.
            (&response[..], Detected::Other),
            (b"\x01\x03", Detected::Other),
            (b"\x03", Detected::Other),
            (b"\x16\x03\x01\x02\x00\x01", Detected::Tls),
            (b"GET / HTTP/1.1\r", Detected::Http1),
        ] {
            assert_eq!(detect(input, rpc), Some(expected), "{:?}", input.escape_ascii());
        }
    }

    #[test]
    fn a_protocol_is_ambiguous_beside_itself() {
        assert!(is_ambiguous(&Bolt, &Bolt));
    }

    #[test]
    fn a_broken_preface_is_distinguished_from_requests() {
        for start in 1..PREFACE.len() - 2 {
            let rest = &PREFACE[start..];
            assert_eq!(resembles_http2(rest), Some(true), "{}", rest.escape_ascii());
            for len in 1..3 {
                assert_ne!(resembles_http2(&rest[..len]), Some(false), "{}", rest.escape_ascii());
            }
        }
        for (input, expected) in [
            (&b""[..], Some(false)),
            (b"\0", Some(true)),
            (b"\0\0\x12\x04\0\0\0\0\0", Some(true)),
            (b"\r\n\0", Some(true)),
            (b"PRI", Some(true)),
            (b"PRI * HTTP/2.1\r\n", Some(true)),
            (b"PRI * HT\0", Some(true)),
            (b"PRI\0", Some(true)),
            (b"PRI\t* HTTP/2.0", Some(true)),
            (b"PRI\r", Some(true)),
            (b"PR\0", Some(true)),
            (b"PSI * HTTP/2", Some(true)),
            (b"SM\r\n\r\n", Some(true)),
            (b"TP/2.0\r\n\r\nSM\r\n\r\n\0", Some(true)),
            (b" ", None),
            (b" *", None),
            (b" * ", Some(true)),
            (b"M\r", None),
            (b" /", Some(false)),
            (b"/a", Some(false)),
            (b"PR ", Some(false)),
            (b"PRIX / HTTP/1.1\r\n", Some(false)),
            (b"OPTIONS * HTTP/2.0\r\n", Some(false)),
            (b"GET / HTTP/2.0\r\n", Some(false)),
            (b"GET /\0", Some(false)),
            (b"SMTP", Some(false)),
            (b"\x16\x03\x01", Some(false)),
            (b"hello", Some(false)),
        ] {
            assert_eq!(resembles_http2(input), expected, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn servers_are_told_apart() {
        for (input, expected) in [
            (&b"HTTP/1.1 200 OK\r\n"[..], Detected::Http1),
            (b"HTTP/2", Detected::Other),
            (b"\0\0\0\x04\0\0\0\0\0", Detected::Http2),
            (b"\0\0\x12\x04\0\0\0\0\0\0\x03", Detected::Http2),
            (b"\0\0\x05\x04\0\0\0\0\0", Detected::Other),
            (b"\0\0\x06\x04\0\0\0\0\x01", Detected::Other),
            (b"\0\0\x08\x07\0\0\0\0\0", Detected::Http2),
            (b"\0\0\x07\x07\0\0\0\0\0", Detected::Other),
            (b"\x15\x03\x01\0\x02\x02\x46", Detected::Tls),
            (b"\x16\x03\x05", Detected::Other),
            (b"SSH-2.0-OpenSSH_9.2\r\n", Detected::Other),
            (b"", Detected::Other),
        ] {
            assert_eq!(detect_server(input), expected, "{:?}", input.escape_ascii());
        }
    }

    #[test]
    fn methods_are_in_order_and_within_their_bound() {
        assert!(METHODS.is_sorted());
        assert!(METHODS.iter().all(|method| method.len() <= METHOD_BYTES_MAX));
    }

    #[test]
    fn a_verdict_is_reached_within_its_bound() {
        for (octet, expected) in
            [(b'\n', Detected::Other), (b'A', Detected::Other), (b'/', Detected::Other)]
        {
            assert_eq!(detect(&vec![octet; DETECT_BYTES_MAX], &[]), Some(expected));
        }
        let mut long = b"GET /".to_vec();
        long.resize(DETECT_BYTES_MAX, b'x');
        assert_eq!(detect(&long[..DETECT_BYTES_MAX - 1], &[]), None);
        assert_eq!(detect(&long, &[]), Some(Detected::Http1));
        let empty = b"\r\n".repeat(DETECT_BYTES_MAX / 2);
        assert_eq!(detect(&empty, &[]), Some(Detected::Other));
    }
}
