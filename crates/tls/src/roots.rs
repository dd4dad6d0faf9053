//! Whom peers' certificates have to come from.

use std::fmt;

use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::sync::Arc;
use thiserror::Error;

/// Authorities that are trusted.
pub struct Roots {
    store: Arc<RootCertStore>,
}

/// Why there are no authorities to be trusted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RootsError {
    /// There is none.
    #[error("there is no certificate of an authority")]
    Empty,
    /// A certificate, counted from 1, that cannot be taken apart, or PEM that cannot.
    #[error("certificate {0} cannot be read")]
    Unreadable(usize),
}

impl Roots {
    /// Those that the system trusts.
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

    /// All those in `pem`.
    ///
    /// # Errors
    ///
    /// When there is none, or one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, RootsError> {
        let mut store = RootCertStore::empty();
        for (certificate, position) in CertificateDer::pem_slice_iter(pem).zip(1..) {
            let certificate = certificate.map_err(|_| RootsError::Unreadable(position))?;
            store.add(certificate).map_err(|_| RootsError::Unreadable(position))?;
        }
        Self::new(store)
    }

    fn new(store: RootCertStore) -> Result<Self, RootsError> {
        if store.is_empty() {
            return Err(RootsError::Empty);
        }
        Ok(Self { store: Arc::new(store) })
    }

    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    pub(crate) fn store(&self) -> &Arc<RootCertStore> {
        &self.store
    }
}

impl fmt::Debug for Roots {
    /// How many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roots").field("len", &self.len()).finish()
    }
}
