//! Files whose content is what was read for the snapshot before.

use std::sync::Arc;

use super::{Content, Files, digest};
use crate::snapshot::{CertificateSource, RootsSource};

impl Files<'_> {
    /// Whether the files of a certificate have what it was made of. They are read, so that they are watched as if it were made again.
    pub(crate) fn is_same_certificate(&mut self, source: &CertificateSource) -> bool {
        let is_same_chain = self.holds(&source.chain, &source.chain_pem);
        let key = self.read_once(&source.key).as_ref();
        let is_same_key = key.is_ok_and(|pem| digest(pem) == source.key_digest);
        let is_same_ocsp = match (&source.ocsp, &source.ocsp_der) {
            (Some(path), Some(der)) => self.holds(path, der),
            (None, None) => true,
            _ => false,
        };
        is_same_chain && is_same_key && is_same_ocsp
    }

    /// The same of CAs, and of the lists of what they have revoked.
    pub(crate) fn are_same_roots(&mut self, source: &RootsSource) -> bool {
        // Those whom the system trusts are read once.
        let is_same_file = source.path.as_ref().is_none_or(|path| self.holds(path, &source.pem));
        let are_same_lists = match (&source.crl, &source.crl_pem) {
            (Some(path), Some(pem)) => self.holds(path, pem),
            (None, None) => true,
            _ => false,
        };
        is_same_file && are_same_lists
    }

    /// Whether the file at `path` holds this.
    fn holds(&mut self, path: &str, before: &Arc<Content>) -> bool {
        let Ok(content) = self.read_once(path) else { return false };
        if content != before {
            return false;
        }
        // Many name the same file: from the second on, pointers are compared.
        *content = Arc::clone(before);
        true
    }
}
