//! Errors in a chain and its key, with hints.

use thiserror::Error;

/// Why a chain and a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CertificateError {
    /// No certificate in the chain's PEM.
    #[error("there is no certificate")]
    ChainEmpty,
    /// A certificate, counted from 1, that cannot be decoded, or its PEM.
    #[error("certificate {0} cannot be read")]
    ChainUnreadable(usize),
    /// The leaf is not valid any more.
    #[error("the certificate has expired")]
    Expired {
        /// When it expired, in Unix seconds.
        not_after: u64,
    },
    /// A certificate, counted from 1, that is not followed by the one of its issuer.
    #[error("certificate {0} is not followed by its issuer's")]
    IssuerNotNext(usize),
    /// The key is protected with a password.
    #[error("the key is encrypted")]
    KeyEncrypted,
    /// No key in the key's PEM.
    #[error("there is no private key")]
    KeyMissing,
    /// The key is another certificate's.
    #[error("the key does not fit the certificate")]
    KeyOther,
    /// The key cannot be decoded.
    #[error("the key cannot be read")]
    KeyUnreadable,
    /// The leaf has a key of a type or size that is not supported.
    #[error("keys of type {0} are not supported")]
    KeyUnsupported(Box<str>),
    /// More than one key, so that it is not clear which is meant.
    #[error("there are several private keys")]
    KeysSeveral,
    /// The key is that of a certificate, counted from 1, further down.
    #[error("the certificate of the key is not the first but number {0}")]
    LeafNotFirst(usize),
    /// The OCSP response cannot be decoded.
    #[error("the OCSP response cannot be read")]
    OcspUnreadable,
    /// The leaf is not valid yet.
    #[error("the certificate is not valid yet")]
    NotValidYet {
        /// When it becomes valid, in Unix seconds.
        not_before: u64,
    },
}

/// The file that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificatePart {
    /// The chain of certificates.
    Chain,
    /// The private key.
    Key,
    /// The OCSP response.
    Ocsp,
}

impl CertificateError {
    /// The file that the error is about.
    #[must_use]
    pub fn part(&self) -> CertificatePart {
        match self {
            Self::ChainEmpty
            | Self::ChainUnreadable(_)
            | Self::Expired { .. }
            | Self::IssuerNotNext(_)
            | Self::KeyUnsupported(_)
            | Self::LeafNotFirst(_)
            | Self::NotValidYet { .. } => CertificatePart::Chain,
            Self::KeyEncrypted
            | Self::KeyMissing
            | Self::KeyOther
            | Self::KeyUnreadable
            | Self::KeysSeveral => CertificatePart::Key,
            Self::OcspUnreadable => CertificatePart::Ocsp,
        }
    }

    /// What the operator can do about the error.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::ChainEmpty => {
                "the file must be PEM, with `BEGIN CERTIFICATE`; convert DER with `openssl x509 -inform der`"
            }
            Self::ChainUnreadable(_) => "look at it with `openssl x509 -text -noout`",
            Self::Expired { .. } => "renew the certificate, and check this machine's clock",
            Self::IssuerNotNext(_) => {
                "put the leaf first, then each issuer behind what it has signed; leave out others"
            }
            Self::KeyEncrypted => "decrypt it with `openssl pkey`, and protect the file instead",
            Self::KeyMissing => {
                "the file must be PEM, with `BEGIN PRIVATE KEY`, `BEGIN RSA PRIVATE KEY` or `BEGIN EC PRIVATE KEY`"
            }
            Self::KeyOther => {
                "compare `openssl x509 -pubkey -noout` of the one with `openssl pkey -pubout` of the other"
            }
            Self::KeyUnreadable => "look at it with `openssl pkey -noout -text`",
            Self::KeyUnsupported(_) => {
                "use RSA with 2048 to 8192 bits, ECDSA with P-256, P-384 or P-521, or Ed25519"
            }
            Self::KeysSeveral => "leave the one that belongs to the certificate",
            Self::LeafNotFirst(_) => "put the certificate that the key belongs to first",
            Self::NotValidYet { .. } => {
                "check this machine's clock, and reload (SIGHUP) when the certificate is valid"
            }
            Self::OcspUnreadable => {
                "the file must be a successful response in DER, as `openssl ocsp -respout` writes it"
            }
        }
    }
}
