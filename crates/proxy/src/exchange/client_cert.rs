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
        out.extend_from_slice(b";Subject=");
        push_quoted(out, &peer.subject);
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
    if value.contains([',', ';', '=', '"', '\\']) {
        push_quoted(out, value);
    } else {
        push_text(out, value);
    }
}

fn push_quoted(out: &mut Vec<u8>, value: &str) {
    out.push(b'"');
    for (place, piece) in value.split('"').enumerate() {
        if place > 0 {
            out.extend_from_slice(b"\\\"");
        }
        push_text(out, piece);
    }
    out.push(b'"');
}

/// Text of a certificate, in which anything may stand that no field may have.
fn push_text(out: &mut Vec<u8>, text: &str) {
    for octet in text.bytes() {
        match octet {
            b' '..=b'~' | 0x80.. => out.push(octet),
            _ => {
                let _ = write!(out, "%{octet:02X}");
            }
        }
    }
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
            "Subject=\"CN=\\\"a%0D%0Ab\\\"\";URI=\"spiffe://a/b,By=x\";DNS=\"a;Hash=0\";DNS=\"a\\\"b\";\
             DNS=a%00b"
        );
    }
}
