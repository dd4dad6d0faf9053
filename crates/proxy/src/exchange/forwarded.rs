//! What the upstream learns about the client, and the downstream about the proxy: the
//! `x-forwarded-*` fields, `forwarded` (RFC 7239), `via` (RFC 9110, section 7.6.3), `x-request-id`.
//!
//! What an untrusted peer says about itself is not passed on: of a list, only as many elements are
//! kept as there are trusted hops in front of this proxy, counted from its end, where they added
//! theirs. The first of these is the client.

use std::net::{IpAddr, SocketAddr};

use config::snapshot::{ForwardedFields, HttpOptions};
use wire::head::{Known, RequestHead, ResponseHead, Version};

use crate::connection::transport::ClientCert;
use crate::exchange::client_cert;
use crate::tools::peer_address::PeerAddress;
use crate::tools::random::Random;
use crate::tools::text::Text;

/// What is known about a request's connection.
#[derive(Debug)]
pub(crate) struct ForwardedFacts<'a> {
    pub(crate) peer: &'a PeerAddress,
    pub(crate) local: &'a PeerAddress,
    pub(crate) options: &'a HttpOptions,
    /// Whether it came over TLS that ends here.
    pub(crate) is_secure: bool,
    /// Whether it came before the end of its handshake.
    pub(crate) is_early: bool,
    /// What the client showed there.
    pub(crate) client_cert: Option<ClientCert<'a>>,
}

impl ForwardedFacts<'_> {
    const fn scheme(&self) -> &'static [u8] {
        if self.is_secure { b"https" } else { b"http" }
    }
}

/// Sets the fields of a request, and says who the client is if a trusted hop knows better than the
/// connection. `scratch` is room to put values together in.
pub(crate) fn rewrite(
    head: &mut RequestHead<'_>,
    facts: &ForwardedFacts<'_>,
    random: &mut Random,
    scratch: &mut Vec<u8>,
) -> Option<IpAddr> {
    let hops = facts.options.trusted_hops;
    let is_trusted = hops > 0;
    let (sends_x, sends_standard) = match facts.options.forwarded {
        ForwardedFields::Off => (false, false),
        ForwardedFields::XForwarded => (true, false),
        ForwardedFields::Forwarded => (false, true),
        ForwardedFields::Both => (true, true),
    };
    if !is_trusted {
        for known in [
            Known::XForwardedFor,
            Known::XForwardedProto,
            Known::XForwardedHost,
            Known::XForwardedPort,
            Known::Forwarded,
            Known::XRealIp,
        ] {
            head.remove_known(known);
        }
    }
    if facts.is_early {
        // RFC 8470, section 5.1.
        head.set(b"early-data", b"1");
    }
    client_cert::rewrite(head, facts.options, facts.client_cert, scratch);
    let client = if is_trusted { client(head, hops, scratch) } else { None };
    if sends_x {
        append_x_forwarded(head, facts, scratch);
    }
    if sends_standard {
        let ip = Text::of_ip(facts.peer);
        append_to_list(head, Known::Forwarded, hops, scratch, |head, element| {
            element.extend_from_slice(b"for=");
            match facts.peer {
                PeerAddress::V6(_) => {
                    element.extend_from_slice(b"\"[");
                    element.extend_from_slice(ip.as_bytes());
                    element.extend_from_slice(b"]\"");
                }
                PeerAddress::V4(..) => element.extend_from_slice(ip.as_bytes()),
                // RFC 7239, section 6.2: an identifier for what has no address.
                PeerAddress::Unix => element.extend_from_slice(b"_unix"),
            }
            if !head.authority().is_empty() {
                element.extend_from_slice(b";host=\"");
                element.extend_from_slice(head.authority());
                element.push(b'"');
            }
            element.extend_from_slice(b";proto=");
            element.extend_from_slice(facts.scheme());
        });
    }
    if let Some(pseudonym) = &facts.options.via {
        // It earns no peer any trust, so all of it is kept.
        append_to_list(head, Known::Via, u8::MAX, scratch, |head, element| {
            push_via(element, head.version(), pseudonym);
        });
    }
    if facts.options.request_id && (!is_trusted || head.field(Known::XRequestId).is_none()) {
        head.remove_known(Known::XRequestId);
        head.append_known(Known::XRequestId, &random.uuid());
    }
    client
}

/// The client as the outermost trusted hop saw it.
fn client(head: &RequestHead<'_>, hops: u8, scratch: &mut Vec<u8>) -> Option<IpAddr> {
    scratch.clear();
    join(scratch, head.fields_named(Known::XForwardedFor));
    if !scratch.is_empty() {
        let (element, _) = last_elements(scratch, hops);
        return address(element);
    }
    join(scratch, head.fields_named(Known::Forwarded));
    let (element, _) = last_elements(scratch, hops);
    let pairs = element.split(|octet| *octet == b';').map(<[u8]>::trim_ascii);
    let mut names = pairs.filter_map(|pair| {
        let (name, value) = pair.split_at_checked(4)?;
        name.eq_ignore_ascii_case(b"for=").then_some(value)
    });
    address(names.next()?)
}

/// An address with or without a port, brackets and quotes.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim_matches('"');
    let plain = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().map(|address| address.ip());
    plain.parse::<IpAddr>().or_else(|_| with_port()).ok().map(|ip| ip.to_canonical())
}

/// The first of the last `count` elements of a list, and all of them with what stands between.
/// Commas in quotes are none.
fn last_elements(list: &[u8], count: u8) -> (&[u8], &[u8]) {
    let (mut is_quoted, mut seen, mut end) = (false, 0, list.len());
    for (place, octet) in list.iter().enumerate().rev() {
        match octet {
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => {
                seen += 1;
                if seen == count {
                    let rest = list.get(place + 1..).unwrap_or_default().trim_ascii();
                    let first = list.get(place + 1..end).unwrap_or_default().trim_ascii();
                    return (first, rest);
                }
                end = place;
            }
            _ => {}
        }
    }
    (list.get(..end).unwrap_or_default().trim_ascii(), list)
}

/// The values of a list's fields, as one list.
fn join<'v>(list: &mut Vec<u8>, values: impl Iterator<Item = &'v [u8]>) {
    for value in values {
        if !list.is_empty() {
            list.extend_from_slice(b", ");
        }
        list.extend_from_slice(value);
    }
}

fn append_x_forwarded(
    head: &mut RequestHead<'_>,
    facts: &ForwardedFacts<'_>,
    scratch: &mut Vec<u8>,
) {
    let hops = facts.options.trusted_hops;
    append_to_list(head, Known::XForwardedFor, hops, scratch, |_, element| {
        element.extend_from_slice(Text::of_ip(facts.peer).as_bytes());
    });
    if head.field(Known::XForwardedProto).is_none() {
        head.append_known(Known::XForwardedProto, facts.scheme());
    }
    if let Some(port) = facts.local.port()
        && head.field(Known::XForwardedPort).is_none()
    {
        let mut text = Text::EMPTY;
        text.push_number(port);
        head.append_known(Known::XForwardedPort, text.as_bytes());
    }
    if head.field(Known::XForwardedHost).is_none() && !head.authority().is_empty() {
        scratch.clear();
        scratch.extend_from_slice(head.authority());
        head.append_known(Known::XForwardedHost, scratch);
    }
}

/// Adds this proxy to a response's `via`.
pub(crate) fn append_via(head: &mut ResponseHead<'_>, pseudonym: &str, scratch: &mut Vec<u8>) {
    scratch.clear();
    push_via(scratch, head.version(), pseudonym);
    head.append_known(Known::Via, scratch);
}

/// The version that the message was received in, and who received it.
fn push_via(element: &mut Vec<u8>, received: Version, pseudonym: &str) {
    element.extend_from_slice(match received {
        Version::Http10 => &b"1.0 "[..],
        Version::Http11 => b"1.1 ",
        Version::Http2 => b"2 ",
    });
    element.extend_from_slice(pseudonym.as_bytes());
}

/// Adds an element to a list field: behind the last `kept` there are, in one field.
fn append_to_list(
    head: &mut RequestHead<'_>,
    known: Known,
    kept: u8,
    scratch: &mut Vec<u8>,
    element: impl FnOnce(&RequestHead<'_>, &mut Vec<u8>),
) {
    scratch.clear();
    join(scratch, head.fields_named(known));
    let (_, last) = last_elements(scratch, kept);
    let dropped = scratch.len() - last.len();
    scratch.drain(..dropped);
    if !scratch.is_empty() {
        scratch.extend_from_slice(b", ");
    }
    element(head, scratch);
    head.set_known(known, scratch);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_from_the_end() {
        for (list, count, first, all) in [
            ("", 1, "", ""),
            ("a", 1, "a", "a"),
            ("a, b", 1, "b", "b"),
            ("a, b , c", 2, "b", "b , c"),
            ("a,b,c", 3, "a", "a,b,c"),
            ("a,b,c", 9, "a", "a,b,c"),
            (
                "x, for=\"a,b\";proto=http, c",
                2,
                "for=\"a,b\";proto=http",
                "for=\"a,b\";proto=http, c",
            ),
        ] {
            let found = last_elements(list.as_bytes(), count);
            assert_eq!(found, (first.as_bytes(), all.as_bytes()), "{list} {count}");
        }
    }

    #[test]
    fn addresses_are_read_in_every_spelling() {
        for (text, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:80", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("\"[2001:db8::1]:80\"", Some("2001:db8::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("unknown", None),
            ("_hidden", None),
            ("", None),
        ] {
            let expected = expected.map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(address(text.as_bytes()), expected, "{text}");
        }
    }
}
