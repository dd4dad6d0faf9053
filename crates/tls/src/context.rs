//! Parts that a server's and a client's context share.

use std::ops::RangeInclusive;
use std::sync::Arc;

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
        let provider = CryptoProvider {
            cipher_suites: suites.into_iter().map(CipherSuite::supported).collect(),
            kx_groups: groups.iter().map(|group| group.supported()).collect(),
            ..default_provider()
        };
        let allowed = Version::ALL.into_iter().rev().filter(|version| versions.contains(version));
        Ok(Self {
            provider: Arc::new(provider),
            versions: allowed.map(Version::supported).collect(),
        })
    }
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
