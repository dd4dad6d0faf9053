//! Whom a rule is for, by the certificates of clients.

use std::fmt;
use std::sync::Arc;

use tls::PeerCertificate;

/// A rule's condition on the certificate that a client has shown, and that was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientMatch {
    /// Met by every client.
    #[default]
    Anyone,
    /// Met by every client that has a certificate with one of these names.
    Named(Arc<[ClientName]>),
}

/// A name that a certificate may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientName {
    /// Whatever it has.
    Any,
    /// A host name, in lower case.
    Host(Box<str>),
    /// An address, as certificates of clients show it.
    Address(Box<str>),
    /// A URI, to the letter.
    Uri(Box<str>),
    /// What a URI begins with.
    UriPrefix(Box<str>),
}

impl ClientMatch {
    /// Whether a client with this certificate, or with none, meets it.
    #[must_use]
    pub fn is_met_by(&self, client: Option<&PeerCertificate>) -> bool {
        match (self, client) {
            (Self::Anyone, _) => true,
            (Self::Named(_), None) => false,
            (Self::Named(names), Some(client)) => names.iter().any(|name| name.is_in(client)),
        }
    }
}

impl ClientName {
    fn is_in(&self, client: &PeerCertificate) -> bool {
        let PeerCertificate { dns_names, uris, addresses, .. } = client;
        match self {
            Self::Any => true,
            Self::Host(asked) => dns_names.iter().any(|name| name.eq_ignore_ascii_case(asked)),
            Self::Address(asked) => addresses.contains(asked),
            Self::Uri(asked) => uris.contains(asked),
            Self::UriPrefix(asked) => uris.iter().any(|uri| uri.starts_with(&**asked)),
        }
    }
}

impl fmt::Display for ClientName {
    /// As it stands in the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Host(name) | Self::Address(name) | Self::Uri(name) => f.write_str(name),
            Self::UriPrefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> PeerCertificate {
        PeerCertificate {
            fingerprint: [0; 32],
            subject: "CN=web.example".into(),
            issuer: "CN=ca".into(),
            serial: "01".into(),
            dns_names: vec!["Web.example".into(), "*.shop.example".into()],
            uris: vec!["spiffe://mesh/ns/shop/sa/web".into()],
            addresses: vec!["192.0.2.7".into()],
            not_before: 0,
            not_after: 0,
            chain: Vec::new(),
        }
    }

    #[test]
    fn a_client_is_whom_its_certificate_names() {
        for (name, is_met) in [
            (ClientName::Any, true),
            (ClientName::Host("web.example".into()), true),
            (ClientName::Host("a.web.example".into()), false),
            // What the certificate of a server may stand for is no name of a client.
            (ClientName::Host("a.shop.example".into()), false),
            (ClientName::Address("192.0.2.7".into()), true),
            (ClientName::Address("192.0.2.70".into()), false),
            (ClientName::Host("192.0.2.7".into()), false),
            (ClientName::Uri("spiffe://mesh/ns/shop/sa/web".into()), true),
            (ClientName::Uri("spiffe://mesh/ns/shop/sa/we".into()), false),
            (ClientName::Uri("SPIFFE://mesh/ns/shop/sa/web".into()), false),
            (ClientName::UriPrefix("spiffe://mesh/ns/shop/".into()), true),
            (ClientName::UriPrefix("spiffe://mesh/ns/store/".into()), false),
        ] {
            let asked = ClientMatch::Named(Arc::new([name]));
            assert_eq!(asked.is_met_by(Some(&client())), is_met, "{asked:?}");
            assert!(!asked.is_met_by(None), "{asked:?}");
        }
        assert!(ClientMatch::Anyone.is_met_by(None));
        assert!(ClientMatch::Anyone.is_met_by(Some(&client())));
        let either = [ClientName::Host("other.example".into()), ClientName::Any];
        assert!(ClientMatch::Named(Arc::new(either)).is_met_by(Some(&client())));
    }
}
