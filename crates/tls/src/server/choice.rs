//! Which certificate a client gets.
//!
//! By the name it asks for: certificates with exactly that name, or else with a wildcard in place
//! of its first label, or else the default, which is the first one and those for the same names.
//! Among them, by the kind of key: the cheapest to sign with that the client takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificate::Certificate;

/// Certificates by name; each list has the cheapest kind of key first.
#[derive(Debug)]
pub(super) struct Choice {
    exact: BTreeMap<Box<str>, Vec<Arc<Certificate>>>,
    /// By what follows the asterisk and its dot.
    wildcards: BTreeMap<Box<str>, Vec<Arc<Certificate>>>,
    /// Never empty.
    default: Vec<Arc<Certificate>>,
}

impl Choice {
    /// Puts them in order. There has to be one.
    pub(super) fn new(certificates: Vec<Arc<Certificate>>) -> Self {
        let first = certificates.first().expect("a server has a certificate");
        let has_same_names = |other: &&Arc<Certificate>| other.names() == first.names();
        let mut choice = Self {
            exact: BTreeMap::new(),
            wildcards: BTreeMap::new(),
            default: certificates.iter().filter(has_same_names).cloned().collect(),
        };
        for certificate in &certificates {
            for name in certificate.names() {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(rest) => (&mut choice.wildcards, rest),
                    None => (&mut choice.exact, &**name),
                };
                map.entry(name.into()).or_default().push(Arc::clone(certificate));
            }
        }
        let lists = choice.exact.values_mut().chain(choice.wildcards.values_mut());
        for list in lists.chain([&mut choice.default]) {
            list.sort_by_key(|certificate| certificate.key_kind());
        }
        choice
    }

    /// The certificate for a client that accepts every kind of key.
    pub(super) fn first(&self, name: Option<&str>) -> &Arc<Certificate> {
        self.candidates(name).next().expect("there is a default")
    }

    /// Certificates that fit, the best first. Never empty.
    fn candidates(&self, name: Option<&str>) -> impl Iterator<Item = &Arc<Certificate>> {
        let name = name.map(|name| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase());
        let rest = name.as_deref().and_then(|name| name.split_once('.')).map(|(_, rest)| rest);
        let exact = name.as_deref().and_then(|name| self.exact.get(name));
        let wildcard = rest.and_then(|rest| self.wildcards.get(rest));
        let default = (exact.is_none() && wildcard.is_none()).then_some(&self.default);
        [exact, wildcard, default].into_iter().flatten().flatten()
    }
}

impl ResolvesServerCert for Choice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let is_usable = |certificate: &&Arc<Certificate>| {
            certificate.certified().key.choose_scheme(schemes).is_some()
        };
        let name = hello.server_name();
        // If there is none, what follows says what was missing.
        let found = self.candidates(name).find(is_usable).unwrap_or_else(|| self.first(name));
        Some(Arc::clone(found.certified()))
    }
}
