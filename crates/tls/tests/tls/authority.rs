//! Certificates that a test issues, as this crate reads them.

use std::sync::Arc;

use rcgen::SignatureAlgorithm;
use tls::{Certificate, KeyKind, Roots};

pub(crate) use pki::{Authority, HOUR, Leaf, Pair, now};

pub(crate) trait AuthorityExt {
    fn roots(&self) -> Arc<Roots>;

    /// A certificate for these names, good for now.
    fn certificate(&self, kind: KeyKind, names: &[&str]) -> Arc<Certificate>;

    /// A certificate for `a.example` with this serial number.
    fn numbered(&self, serial: u64) -> Arc<Certificate>;
}

impl AuthorityExt for Authority {
    fn roots(&self) -> Arc<Roots> {
        Arc::new(Roots::from_pem(self.pem().as_bytes()).unwrap())
    }

    fn certificate(&self, kind: KeyKind, names: &[&str]) -> Arc<Certificate> {
        self.issue(&leaf_of(kind, names)).certificate()
    }

    fn numbered(&self, serial: u64) -> Arc<Certificate> {
        let leaf = leaf_of(KeyKind::EcdsaP256, &["a.example"]);
        self.issue(&Leaf { serial: Some(serial), ..leaf }).certificate()
    }
}

pub(crate) trait PairExt {
    fn certificate(&self) -> Arc<Certificate>;
}

impl PairExt for Pair {
    fn certificate(&self) -> Arc<Certificate> {
        Arc::new(Certificate::from_pem(self.chain.as_bytes(), self.key.as_bytes()).unwrap())
    }
}

/// A leaf with a key of this kind.
pub(crate) fn leaf_of(kind: KeyKind, names: &[&str]) -> Leaf {
    Leaf::new(algorithm(kind), names)
}

pub(crate) const fn algorithm(kind: KeyKind) -> &'static SignatureAlgorithm {
    match kind {
        KeyKind::Ed25519 => &rcgen::PKCS_ED25519,
        KeyKind::EcdsaP256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        KeyKind::EcdsaP384 => &rcgen::PKCS_ECDSA_P384_SHA384,
        KeyKind::EcdsaP521 => &rcgen::PKCS_ECDSA_P521_SHA512,
        KeyKind::Rsa => &rcgen::PKCS_RSA_SHA256,
    }
}
