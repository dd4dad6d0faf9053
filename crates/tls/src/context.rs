//! Parts that a server's and a client's context share.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use thiserror::Error;

use crate::parameters::{CipherSuite, Group, Version};

/// Bytes of an application protocol's name (RFC 7301, section 3.1).
const ALPN_LEN_MAX: usize = 255;

/// Why options cannot make a context.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContextError {
    /// An application protocol that is empty, or longer than 255 bytes.
    #[error("an application protocol has 1 to 255 bytes")]
    AlpnInvalid,
    /// A suite of a version that is not allowed.
    #[error("{0} is a suite of a version that is not allowed")]
    CipherSuiteOfOtherVersion(CipherSuite),
    /// A name that is neither DNS name, address nor URI.
    #[error("{0:?} is neither a DNS name, an address nor a URI")]
    NameInvalid(Box<str>),
    /// A server without any certificate.
    #[error("a server needs a certificate")]
    NoCertificate,
    /// No group that this version has, and no newer one is allowed.
    #[error("no group that {0} has")]
    NoGroup(Version),
    /// No newer version than 1.2 is allowed, whose suites name kinds of keys, and no certificate
    /// has a key of such a kind.
    #[error("no cipher suite goes with the key of any certificate")]
    NoSuiteForKeys,
    /// The library refuses, for a reason that was not foreseen.
    #[error("{0}")]
    Refused(Box<str>),
    /// The newest version is older than the oldest.
    #[error("no version is allowed")]
    VersionsEmpty,
}

/// The cryptographic provider, and the versions, newest first.
pub(crate) struct Parts {
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
}

impl Parts {
    pub(crate) fn new(
        versions: &RangeInclusive<Version>,
        cipher_suites: &[CipherSuite],
        groups: &[Group],
    ) -> Result<Self, ContextError> {
        if versions.is_empty() {
            return Err(ContextError::VersionsEmpty);
        }
        let suites = suites(versions, cipher_suites)?;
        let groups = if groups.is_empty() { &Group::DEFAULT } else { groups };
        if *versions.end() == Version::Tls12 && !groups.iter().any(|group| group.is_in_tls12()) {
            return Err(ContextError::NoGroup(Version::Tls12));
        }
        let allowed = Version::ALL.into_iter().rev().filter(|version| versions.contains(version));
        Ok(Self {
            provider: provider(suites, groups.to_vec()),
            versions: allowed.map(Version::supported).collect(),
        })
    }
}

/// Providers by what they allow.
type Providers = BTreeMap<(Vec<CipherSuite>, Vec<Group>), Weak<CryptoProvider>>;

/// The providers that contexts have: thousands of clusters have the same.
static PROVIDERS: Mutex<Providers> = Mutex::new(Providers::new());

/// The provider of these, which all contexts share that allow the same.
fn provider(suites: Vec<CipherSuite>, groups: Vec<Group>) -> Arc<CryptoProvider> {
    let mut providers = PROVIDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (suites, groups);
    if let Some(known) = providers.get(&key).and_then(Weak::upgrade) {
        return known;
    }
    let (suites, groups) = &key;
    let made = Arc::new(CryptoProvider {
        cipher_suites: suites.iter().map(|suite| suite.supported()).collect(),
        kx_groups: groups.iter().map(|group| group.supported()).collect(),
        ..default_provider()
    });
    providers.retain(|_, known| known.strong_count() > 0);
    providers.insert(key, Arc::downgrade(&made));
    made
}

/// Suites for all of `versions`, those asked for first.
fn suites(
    versions: &RangeInclusive<Version>,
    asked: &[CipherSuite],
) -> Result<Vec<CipherSuite>, ContextError> {
    let is_allowed = |suite: &CipherSuite| versions.contains(&suite.version());
    if let Some(other) = asked.iter().find(|suite| !is_allowed(suite)) {
        return Err(ContextError::CipherSuiteOfOtherVersion(*other));
    }
    let is_asked_for = |version| asked.iter().any(|suite| suite.version() == version);
    let defaults = CipherSuite::ALL.into_iter().filter(is_allowed);
    let missing = defaults.filter(|suite| !is_asked_for(suite.version()));
    Ok(asked.iter().copied().chain(missing).collect())
}

/// Application protocols in the form that rustls wants.
pub(crate) fn alpn(protocols: Vec<Box<[u8]>>) -> Result<Vec<Vec<u8>>, ContextError> {
    if protocols.iter().any(|name| name.is_empty() || name.len() > ALPN_LEN_MAX) {
        return Err(ContextError::AlpnInvalid);
    }
    Ok(protocols.into_iter().map(Vec::from).collect())
}

impl From<rustls::Error> for ContextError {
    fn from(error: rustls::Error) -> Self {
        Self::Refused(error.to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_that_allow_the_same_share_their_provider() {
        let versions = Version::Tls12..=Version::Tls13;
        let provider = |groups: &[Group]| Parts::new(&versions, &[], groups).unwrap().provider;
        let (one, other) = (provider(&[]), provider(&[Group::X25519]));
        assert!(Arc::ptr_eq(&one, &provider(&[])));
        assert!(!Arc::ptr_eq(&one, &other));
    }
}
