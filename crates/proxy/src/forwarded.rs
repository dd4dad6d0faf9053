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

/// Sets the fields of a request. `scratch` is room to put values together in.
pub(crate) fn rewrite(
    head: &mut RequestHead<'_>,
    facts: &Facts<'_>,
    random: &mut Random,
    scratch: &mut Vec<u8>,
) {
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
    if sends_x {
        append_x_forwarded(head, facts, scratch);
    }
    if sends_standard {
        let ip = Text::of_ip(facts.peer);
        append_to_list(head, Known::Forwarded, scratch, |head, element| {
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
            element.extend_from_slice(b";proto=http");
        });
    }
    if let Some(pseudonym) = &facts.options.via {
        append_to_list(head, Known::Via, scratch, |_, element| push_via(element, pseudonym));
    }
    if facts.options.request_id && (!is_trusted || head.field(Known::XRequestId).is_none()) {
        head.remove_known(Known::XRequestId);
        head.append_known(Known::XRequestId, &random.uuid());
    }
}

fn append_x_forwarded(head: &mut RequestHead<'_>, facts: &Facts<'_>, scratch: &mut Vec<u8>) {
    append_to_list(head, Known::XForwardedFor, scratch, |_, element| {
        element.extend_from_slice(Text::of_ip(facts.peer).as_bytes());
    });
    if head.field(Known::XForwardedProto).is_none() {
        head.append_known(Known::XForwardedProto, b"http");
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
    push_via(scratch, pseudonym);
    head.append_known(Known::Via, scratch);
}

fn push_via(element: &mut Vec<u8>, pseudonym: &str) {
    element.extend_from_slice(b"1.1 ");
    element.extend_from_slice(pseudonym.as_bytes());
}

/// Adds an element to a list field: behind those there are, in one field.
fn append_to_list(
    head: &mut RequestHead<'_>,
    known: Known,
    scratch: &mut Vec<u8>,
    element: impl FnOnce(&RequestHead<'_>, &mut Vec<u8>),
) {
    scratch.clear();
    for value in head.fields_named(known) {
        scratch.extend_from_slice(value);
        scratch.extend_from_slice(b", ");
    }
    element(head, scratch);
    head.set_known(known, scratch);
}
