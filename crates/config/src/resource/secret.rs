//! A secret: what TLS needs beside its options. What the text names instead, as files and environment variables, is read in [`crate::sections::files`].

pub(crate) mod build;
pub mod file;

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::snapshot::{CertificateSource, RootsSource};

/// What TLS needs beside its options: a certificate with its key, authorities, or a key of tickets.
#[derive(Clone, Default)]
pub(crate) struct Secret {
    parts: [Option<Arc<Zeroizing<Vec<u8>>>>; SecretPart::ALL.len()],
    made: Made,
}

/// What was made of a secret once, when it was delivered, and shared by all who name it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    pub(crate) certificates: Vec<Arc<CertificateSource>>,
    pub(crate) roots: Vec<Arc<RootsSource>>,
}

/// What it holds, and not what was made of that.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

/// A part of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretPart {
    /// A certificate with those behind it.
    Chain,
    /// Its key.
    Key,
    /// Authorities.
    Ca,
    /// What these have revoked.
    Crl,
    /// An answer of the authority that the certificate is good, DER.
    Ocsp,
    /// A key of session tickets, as it is.
    TicketKey,
}

impl SecretPart {
    const ALL: [Self; 6] =
        [Self::Chain, Self::Key, Self::Ca, Self::Crl, Self::Ocsp, Self::TicketKey];

    /// What stands before it in a secret.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Key => "key",
            Self::Ca => "ca",
            Self::Crl => "crl",
            Self::Ocsp => "ocsp",
            Self::TicketKey => "ticket_key",
        }
    }
}

impl Secret {
    /// A secret of these parts, each PEM unless it says otherwise, by the order of [`SecretPart`].
    pub(crate) fn new(parts: [Option<Zeroizing<Vec<u8>>>; SecretPart::ALL.len()]) -> Self {
        Self { parts: parts.map(|part| part.map(Arc::new)), made: Made::default() }
    }

    /// What was made of it.
    pub(crate) const fn made(&self) -> &Made {
        &self.made
    }

    /// A part of it.
    pub(crate) fn part(&self, part: SecretPart) -> Option<&Arc<Zeroizing<Vec<u8>>>> {
        self.parts.get(part as usize)?.as_ref()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = SecretPart::ALL.into_iter().filter(|part| self.part(*part).is_some());
        f.debug_list().entries(known).finish()
    }
}
