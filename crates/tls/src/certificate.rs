//! A chain of certificates with its key.

mod error;
mod read;

use std::fmt;
use std::sync::Arc;

use rustls::sign::CertifiedKey;

use crate::facts::PeerCertificate;
use crate::signing::{KeyHandle, ProviderId};
use crate::x509;

pub use error::{CertificateError, CertificatePart};
pub(crate) use read::sha256;

/// A certificate chain with its key, checked together.
pub struct Certificate {
    /// The signing key and the chain, as rustls takes them.
    certified: Arc<CertifiedKey>,
    /// The key that a provider signs with, if the handshake waits for it.
    key_handle: Option<Arc<KeyHandle>>,
    names: Box<[Box<str>]>,
    uris: Box<[Box<str>]>,
    subject: Box<str>,
    not_before: u64,
    not_after: u64,
    key_kind: KeyKind,
    fingerprint: [u8; 32],
}

/// Where a key comes from, and what signs with it.
enum KeySource<'a> {
    /// The handshake signs.
    Pem(&'a [u8]),
    /// The key is in this process, and a provider signs with it.
    PemFor(ProviderId, &'a [u8]),
    /// Only the provider has the key.
    With(ProviderId),
}

/// Kinds of keys, the cheapest to sign with first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// Ed25519.
    Ed25519,
    /// ECDSA with P-256.
    EcdsaP256,
    /// ECDSA with P-384.
    EcdsaP384,
    /// ECDSA with P-521.
    EcdsaP521,
    /// RSA with 2,048 to 8,192 bits.
    Rsa,
}

impl Certificate {
    /// Reads a chain, leaf first, and the key of the leaf. Its dates are not looked at: see [`Certificate::check_time`].
    ///
    /// Both may stand in one file: what is of another kind is passed over.
    ///
    /// # Errors
    ///
    /// When they are not a chain and its key.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        read::read(chain, &KeySource::Pem(key))
    }

    /// As [`Certificate::from_pem`], for servers whose handshakes wait while `provider` signs.
    ///
    /// Clients that show it sign at once all the same.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn from_pem_for(
        provider: ProviderId,
        chain: &[u8],
        key: &[u8],
    ) -> Result<Self, CertificateError> {
        read::read(chain, &KeySource::PemFor(provider, key))
    }

    /// Reads a chain, leaf first, whose key only `provider` has. It is for
    /// servers: a client cannot wait for a signature, and fails when it is asked for one.
    ///
    /// # Errors
    ///
    /// When it is not a chain.
    pub fn from_chain_for(provider: ProviderId, chain: &[u8]) -> Result<Self, CertificateError> {
        read::read(chain, &KeySource::With(provider))
    }

    /// Looks whether the leaf is within its dates at `now`, in Unix seconds.
    ///
    /// # Errors
    ///
    /// It has expired, or is not valid yet.
    pub const fn check_time(&self, now: u64) -> Result<(), CertificateError> {
        let Self { not_before, not_after, .. } = *self;
        if now < not_before {
            return Err(CertificateError::NotValidYet { not_before });
        }
        if now > not_after {
            return Err(CertificateError::Expired { not_after });
        }
        Ok(())
    }

    /// The key, if a provider signs with it instead of the handshake.
    #[must_use]
    pub fn key_handle(&self) -> Option<&Arc<KeyHandle>> {
        self.key_handle.as_ref()
    }

    /// Adds an OCSP response (RFC 6960, in DER), which is stapled for clients that ask for one.
    ///
    /// # Errors
    ///
    /// When `der` is not a successful OCSP response. Clients check whether it is about this
    /// certificate and recent enough.
    pub fn with_ocsp_response(mut self, der: &[u8]) -> Result<Self, CertificateError> {
        if !x509::is_ocsp_success(der) {
            return Err(CertificateError::OcspUnreadable);
        }
        let mut certified = CertifiedKey::clone(&self.certified);
        certified.ocsp = Some(der.to_vec());
        self.certified = Arc::new(certified);
        Ok(self)
    }

    /// When a newer OCSP response than the stapled one is due (RFC 6960, section 4.2.2.1), in Unix seconds; none if
    /// there is none, or it does not say.
    #[must_use]
    pub fn ocsp_ends(&self) -> Option<u64> {
        x509::ocsp_end(self.certified.ocsp.as_deref()?)
    }

    /// Names of the leaf: DNS names in lower case, wildcards as `*.example.com`, addresses as text.
    #[must_use]
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// URIs of the leaf, as they stand there.
    #[must_use]
    pub fn uris(&self) -> &[Box<str>] {
        &self.uris
    }

    /// From when on the leaf is valid, in Unix seconds.
    #[must_use]
    pub fn not_before(&self) -> u64 {
        self.not_before
    }

    /// Until when the leaf is valid, in Unix seconds.
    #[must_use]
    pub fn not_after(&self) -> u64 {
        self.not_after
    }

    /// The kind of the leaf's key.
    #[must_use]
    pub fn key_kind(&self) -> KeyKind {
        self.key_kind
    }

    /// SHA-256 of the leaf.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// The subject of the leaf (RFC 4514).
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// What a peer learns from this certificate.
    #[must_use]
    pub fn as_peer(&self) -> Option<PeerCertificate> {
        PeerCertificate::read(&self.certified.cert)
    }

    pub(crate) fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

impl fmt::Debug for Certificate {
    /// Names only: never the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("subject", &self.subject)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ed25519 => "Ed25519",
            Self::EcdsaP256 => "ECDSA P-256",
            Self::EcdsaP384 => "ECDSA P-384",
            Self::EcdsaP521 => "ECDSA P-521",
            Self::Rsa => "RSA",
        })
    }
}
