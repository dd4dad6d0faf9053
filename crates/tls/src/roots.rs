//! Trusted CAs and their lists of revoked certificates.

use std::fmt;

use std::sync::Arc;

use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use thiserror::Error;
use webpki::{CertRevocationList, OwnedCertRevocationList};

use crate::pem::{CERTIFICATE, only};
use crate::x509::{self, X509};

/// CAs that are trusted, and what they have revoked.
pub struct Roots {
    store: Arc<RootCertStore>,
    revocations: Revocations,
    /// The certificate of a file that ends first: its position, from 1, and when, in Unix seconds.
    authority_ends: Option<(usize, u64)>,
}

/// Lists of revoked certificates (CRLs).
#[derive(Default)]
pub(crate) struct Revocations {
    /// The lists as they were read, in DER.
    pub(crate) lists: Vec<CertificateRevocationListDer<'static>>,
    /// The lists, parsed.
    pub(crate) parsed: Vec<CertRevocationList<'static>>,
}

impl Revocations {
    fn from_pem(pem: &[u8]) -> Result<Self, RootsError> {
        let mut revocations = Self::default();
        for (list, position) in CertificateRevocationListDer::pem_slice_iter(pem).zip(1..) {
            let list = list.map_err(|_| RootsError::ListUnreadable(position))?;
            let parsed = OwnedCertRevocationList::from_der(&list).map_err(|_| {
                match x509::is_first_list_version(&list) {
                    true => RootsError::ListVersion(position),
                    false => RootsError::ListUnreadable(position),
                }
            })?;
            revocations.lists.push(list);
            revocations.parsed.push(parsed.into());
        }
        if revocations.lists.is_empty() {
            return Err(RootsError::ListMissing);
        }
        Ok(revocations)
    }
}

/// Why no set of trusted CAs can be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RootsError {
    /// The file has no CA certificate, or the system trusts none.
    #[error("there is no CA certificate")]
    Empty,
    /// There is no list of revoked certificates.
    #[error("there is no certificate revocation list")]
    ListMissing,
    /// A list of revoked certificates, counted from 1, that cannot be decoded, or its PEM.
    #[error("certificate revocation list {0} cannot be read")]
    ListUnreadable(usize),
    /// A list of revoked certificates, counted from 1, without a version and extensions, which RFC 5280 asks for.
    #[error("certificate revocation list {0} has version 1 of the format, and version 2 is needed")]
    ListVersion(usize),
    /// A certificate, counted from 1, that cannot be decoded, or its PEM.
    #[error("certificate {0} cannot be read")]
    Unreadable(usize),
}

impl Roots {
    /// The CAs that the system trusts.
    ///
    /// Single ones that cannot be read are left out, as every program does that uses them.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn system() -> Result<Self, RootsError> {
        let found = rustls_native_certs::load_native_certs();
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(found.certs);
        Self::new(store)
    }

    /// All CAs in `pem`.
    ///
    /// # Errors
    ///
    /// When there is none, or one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, RootsError> {
        let mut store = RootCertStore::empty();
        let mut authority_ends: Option<(usize, u64)> = None;
        let pem = only(CERTIFICATE, pem);
        for (certificate, position) in CertificateDer::pem_slice_iter(&pem).zip(1..) {
            let certificate = certificate.map_err(|_| RootsError::Unreadable(position))?;
            let end = X509::read(&certificate).map(|it| (position, it.not_after()));
            authority_ends = authority_ends.into_iter().chain(end).min_by_key(|(_, end)| *end);
            store.add(certificate).map_err(|_| RootsError::Unreadable(position))?;
        }
        Ok(Self { authority_ends, ..Self::new(store)? })
    }

    fn new(store: RootCertStore) -> Result<Self, RootsError> {
        if store.is_empty() {
            return Err(RootsError::Empty);
        }
        let revocations = Revocations::default();
        Ok(Self { store: Arc::new(store), revocations, authority_ends: None })
    }

    /// The CAs, without certificates that the lists (CRLs, RFC 5280) in `pem` revoke.
    ///
    /// With any list there has to be a current one of each authority in a peer's chain: a certificate
    /// that none speaks of is refused, and so are all of an authority whose list has expired.
    ///
    /// # Errors
    ///
    /// When there is no list, or one cannot be read.
    pub fn with_revocations(self, pem: &[u8]) -> Result<Self, RootsError> {
        Ok(Self { revocations: Revocations::from_pem(pem)?, ..self })
    }

    /// Whether `pem` would do for [`Self::with_revocations`].
    ///
    /// # Errors
    ///
    /// When there is no list, or one cannot be read.
    pub fn check_revocations(pem: &[u8]) -> Result<(), RootsError> {
        Revocations::from_pem(pem).map(drop)
    }

    /// Of the certificates of a file, the one that ends first: its position, from 1, and until when it is valid,
    /// in Unix seconds. None for those that the system trusts.
    #[must_use]
    pub const fn authority_ends(&self) -> Option<(usize, u64)> {
        self.authority_ends
    }

    /// The list of revoked certificates that ends first: its position, from 1, and when the next one is due (RFC
    /// 5280, section 5.1.2.5), in Unix seconds.
    #[must_use]
    pub fn list_ends(&self) -> Option<(usize, u64)> {
        let lists = (1..).zip(&self.revocations.lists);
        lists.filter_map(|(at, der)| Some((at, x509::list_end(der)?))).min_by_key(|(_, end)| *end)
    }

    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    pub(crate) const fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    pub(crate) fn store(&self) -> &Arc<RootCertStore> {
        &self.store
    }
}

impl fmt::Debug for Roots {
    /// Shows how many there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roots").field("len", &self.len()).finish()
    }
}
