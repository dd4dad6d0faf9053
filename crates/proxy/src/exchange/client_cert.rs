//! `x-forwarded-client-cert`: what services learn about the certificates of clients.
//!
//! Modes, keys and their order are those of Envoy's HTTP connection manager ("x-forwarded-client-cert"),
//! which services of meshes read.

use std::io::Write as _;

use config::snapshot::{ClientCertDetails, ForwardClientCert, HttpOptions};
use tls::PeerCertificate;
use wire::head::{Known, RequestHead};

use crate::connection::transport::ClientCert;

/// Does with the field what the listener says. `scratch` is room to put its value together in.
pub(crate) fn rewrite(
    head: &mut RequestHead<'_>,
    options: &HttpOptions,
    client: Option<ClientCert<'_>>,
    scratch: &mut Vec<u8>,
) {
    const FIELD: Known = Known::XForwardedClientCert;
    match (options.forward_client_cert, client) {
        (ForwardClientCert::AlwaysForwardOnly, _) | (ForwardClientCert::ForwardOnly, Some(_)) => {}
        (ForwardClientCert::Sanitize, _) | (_, None) => {
            head.remove_known(FIELD);
        }
        (ForwardClientCert::SanitizeSet, Some(client)) => {
            scratch.clear();
            push_element(scratch, options.client_cert_details, client);
            head.set_known(FIELD, scratch);
        }
        (ForwardClientCert::AppendForward, Some(client)) => {
            scratch.clear();
            for value in head.fields_named(FIELD) {
                scratch.extend_from_slice(value);
                scratch.push(b',');
            }
            push_element(scratch, options.client_cert_details, client);
            head.set_known(FIELD, scratch);
        }
    }
}

fn push_element(out: &mut Vec<u8>, details: ClientCertDetails, client: ClientCert<'_>) {
    let ClientCertDetails { cert, chain, subject, uri, dns } = details;
    let peer = client.peer;
    if let Some(shown) = client.shown_uri {
        push_pair(out, "By=", shown);
        out.push(b';');
    }
    out.extend_from_slice(b"Hash=");
    for octet in peer.fingerprint {
        // Writing to a vector cannot fail.
        let _ = write!(out, "{octet:02x}");
    }
    for (is_said, key, pem) in [
        (cert, "Cert", PeerCertificate::leaf_pem as fn(&PeerCertificate) -> String),
        (chain, "Chain", PeerCertificate::chain_pem),
    ] {
        if is_said {
            let _ = write!(out, ";{key}=\"");
            push_percent_encoded(out, &pem(peer));
            out.push(b'"');
        }
    }
    if subject {
        out.extend_from_slice(b";Subject=\"");
        push_subject(out, &peer.subject);
        out.push(b'"');
    }
    if uri {
        // Readers expect the key even where there is none.
        let none = peer.uris.is_empty().then_some("");
        for uri in peer.uris.iter().map(|uri| &**uri).chain(none) {
            push_pair(out, ";URI=", uri);
        }
    }
    if dns {
        for name in &peer.dns_names {
            push_pair(out, ";DNS=", name);
        }
    }
}

/// A key and its value, which is quoted if it has to be.
fn push_pair(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend_from_slice(key.as_bytes());
    let is_quoted = value.contains([',', ';', '=', '"', '\\']);
    let quote = if is_quoted { &b"\""[..] } else { b"" };
    out.extend_from_slice(quote);
    for octet in value.bytes() {
        match octet {
            // No name has these. Some readers of the field take `\\` for a backslash, and some take `\"` for a quote alone: neither
            // may end the value elsewhere than the other.
            b'"' | b'\\' => push_octet(out, octet),
            _ => push_text_octet(out, octet),
        }
    }
    out.extend_from_slice(quote);
}

/// A subject as RFC 4514 has it, in which quotes and backslashes are escaped by their numbers (section 2.4), so that none of
/// either stands before a quote.
fn push_subject(out: &mut Vec<u8>, subject: &str) {
    let mut octets = subject.bytes().peekable();
    while let Some(octet) = octets.next() {
        match octet {
            b'\\' => match octets.next_if(|next| matches!(next, b'"' | b'\\')) {
                Some(b'"') => out.extend_from_slice(b"\\22"),
                Some(_) => out.extend_from_slice(b"\\5C"),
                None if octets.peek().is_none() => out.extend_from_slice(b"\\5C"),
                None => out.push(octet),
            },
            b'"' => out.extend_from_slice(b"\\22"),
            _ => push_text_octet(out, octet),
        }
    }
}

/// Text of a certificate, in which anything may stand that no field may have.
fn push_text_octet(out: &mut Vec<u8>, octet: u8) {
    match octet {
        b' '..=b'~' | 0x80.. => out.push(octet),
        _ => push_octet(out, octet),
    }
}

fn push_octet(out: &mut Vec<u8>, octet: u8) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "%{octet:02X}");
}

/// PEM, in which these are all that have a meaning in a field or a URL.
fn push_percent_encoded(out: &mut Vec<u8>, pem: &str) {
    for octet in pem.bytes() {
        match octet {
            b'\n' | b' ' | b'+' | b'/' | b'=' => {
                let _ = write!(out, "%{octet:02X}");
            }
            _ => out.push(octet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(subject: &str, uris: &[&str], dns_names: &[&str]) -> PeerCertificate {
        let boxed = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
        PeerCertificate {
            fingerprint: [0xab; 32],
            subject: subject.into(),
            issuer: "CN=ca".into(),
            serial: "01".into(),
            dns_names: boxed(dns_names),
            uris: boxed(uris),
            addresses: Vec::new(),
            not_before: 0,
            not_after: 0,
            chain: vec![Box::from(&b"leaf"[..]), Box::from(&b"issuer"[..])],
        }
    }

    const ALL: ClientCertDetails =
        ClientCertDetails { cert: true, chain: true, subject: true, uri: true, dns: true };

    fn said(details: ClientCertDetails, peer: &PeerCertificate, shown: Option<&str>) -> String {
        let mut out = Vec::new();
        push_element(&mut out, details, ClientCert { peer, shown_uri: shown });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_asked_for_is_said_in_the_order_of_envoy() {
        let hash = "ab".repeat(32);
        let certificate = |der: &str| {
            format!("-----BEGIN%20CERTIFICATE-----%0A{der}-----END%20CERTIFICATE-----%0A")
        };
        let (leaf, issuer) = (certificate("bGVhZg%3D%3D%0A"), certificate("aXNzdWVy%0A"));
        let client = peer("CN=client,O=Example", &["spiffe://a/b", "spiffe://a/c"], &["c.example"]);
        assert_eq!(
            said(ALL, &client, Some("spiffe://a/edge")),
            format!(
                "By=spiffe://a/edge;Hash={hash};Cert=\"{leaf}\";Chain=\"{leaf}{issuer}\";\
                 Subject=\"CN=client,O=Example\";URI=spiffe://a/b;URI=spiffe://a/c;DNS=c.example"
            )
        );
        assert_eq!(said(ClientCertDetails::default(), &client, None), format!("Hash={hash}"));
        let nameless = peer("", &[], &[]);
        let details = ClientCertDetails { uri: true, dns: true, ..ClientCertDetails::default() };
        assert_eq!(said(details, &nameless, None), format!("Hash={hash};URI="));
    }

    #[test]
    fn no_name_of_a_certificate_can_say_more_than_itself() {
        let client = peer("CN=\"a\r\nb\"", &["spiffe://a/b,By=x"], &["a;Hash=0", "a\"b", "a\0b"]);
        let details = ClientCertDetails { cert: false, chain: false, ..ALL };
        assert_eq!(
            said(details, &client, None).split_once(';').unwrap().1,
            "Subject=\"CN=\\22a%0D%0Ab\\22\";URI=\"spiffe://a/b,By=x\";DNS=\"a;Hash=0\";DNS=\"a%22b\";\
             DNS=a%00b"
        );
    }

    /// One reader takes a backslash before any octet for an escape, another only one before a quote.
    #[test]
    fn every_reader_finds_the_end_of_a_value_at_the_same_place() {
        for name in ["a\\", "a\\\";URI=b", "a\"b", "\\\\", "a\\\\\"", "a\\,b", "\\", "\""] {
            let client = peer(name, &[name], &[name]);
            let details = ClientCertDetails { cert: false, chain: false, ..ALL };
            let said = said(details, &client, None);
            let bytes = said.as_bytes();
            for (place, octet) in bytes.iter().enumerate() {
                let before = place.checked_sub(1).and_then(|place| bytes.get(place));
                assert!(*octet != b'"' || before != Some(&b'\\'), "{name}: {said}");
            }
            assert_eq!(said.matches(";URI=").count(), 1 + name.matches(";URI=").count() * 3);
        }
    }
}
