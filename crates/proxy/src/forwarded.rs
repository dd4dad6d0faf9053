//! What the upstream is told about the client, and the downstream about the proxy: the
//! `x-forwarded-*` fields, `forwarded` (RFC 7239), `via` (RFC 9110, section 7.6.3), `x-request-id`.
//!
//! What an untrusted peer says about itself is not passed on: without trusted hops these fields
//! are replaced.

use config::snapshot::{ForwardedFields, HttpOptions};
use wire::head::{Known, RequestHead, ResponseHead};

use crate::connection::PeerAddress;
use crate::random::Random;
use crate::text::Text;

/// What is known about a request's connection.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) peer: &'a PeerAddress,
    pub(crate) local: &'a PeerAddress,
    pub(crate) options: &'a HttpOptions,
}

/// Sets the fields of a request.
pub(crate) fn rewrite(head: &mut RequestHead<'_>, facts: &Facts<'_>, random: &mut Random) {
    let is_trusted = facts.options.trusted_hops > 0;
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
        ] {
            head.remove_known(known);
        }
    }
    let ip = Text::of_ip(facts.peer);
    if sends_x {
        append_list(head, Known::XForwardedFor, ip.as_bytes());
        set_missing(head, Known::XForwardedProto, b"http");
        if let Some(port) = facts.local.port() {
            let mut text = Text::EMPTY;
            text.push_number(port);
            set_missing(head, Known::XForwardedPort, text.as_bytes());
        }
        if head.field(Known::XForwardedHost).is_none() && !head.authority().is_empty() {
            let host = head.authority().to_vec();
            head.append_known(Known::XForwardedHost, &host);
        }
    }
    if sends_standard {
        let mut element = Vec::with_capacity(64);
        element.extend_from_slice(b"for=");
        match facts.peer {
            PeerAddress::V6(_) => element.extend([b"\"[", ip.as_bytes(), b"]\""].concat()),
            PeerAddress::V4(..) => element.extend_from_slice(ip.as_bytes()),
            // RFC 7239, section 6.2: an identifier for what has no address.
            PeerAddress::Unix => element.extend_from_slice(b"_unix"),
        }
        if !head.authority().is_empty() {
            element.extend([b";host=\"", head.authority(), b"\""].concat());
        }
        element.extend_from_slice(b";proto=http");
        append_list(head, Known::Forwarded, &element);
    }
    if let Some(pseudonym) = &facts.options.via {
        let element = [b"1.1 ", pseudonym.as_bytes()].concat();
        append_list(head, Known::Via, &element);
    }
    if facts.options.request_id && (!is_trusted || head.field(Known::XRequestId).is_none()) {
        head.remove_known(Known::XRequestId);
        head.append_known(Known::XRequestId, &random.uuid());
    }
}

/// Adds this proxy to a response's `via`.
pub(crate) fn append_via(head: &mut ResponseHead<'_>, pseudonym: &str) {
    head.append_known(Known::Via, &[b"1.1 ", pseudonym.as_bytes()].concat());
}

/// Adds an element to a list field: behind the one there is, else as a new field.
fn append_list(head: &mut RequestHead<'_>, known: Known, element: &[u8]) {
    let joined = match head.fields_named(known).collect::<Vec<_>>().as_slice() {
        [] => return head.append_known(known, element),
        values => [&values.join(&b", "[..]), element].join(&b", "[..]),
    };
    head.set_known(known, &joined);
}

fn set_missing(head: &mut RequestHead<'_>, known: Known, value: &[u8]) {
    if head.field(known).is_none() {
        head.append_known(known, value);
    }
}
