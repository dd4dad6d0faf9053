//! From PEM to a chain and a key that fit.

use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use super::{Certificate, CertificateError};
use crate::x509::X509;

/// What PEM says of a key that is protected with a password, now and formerly.
const ENCRYPTED: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];

pub(super) fn read(chain: &[u8], key: &[u8], now: u64) -> Result<Certificate, CertificateError> {
    let chain = read_chain(chain)?;
    let parsed = parse(&chain)?;
    let (Some(leaf_der), Some(leaf)) = (chain.first(), parsed.first()) else {
        return Err(CertificateError::ChainEmpty);
    };
    let key_kind = leaf.key_kind().map_err(CertificateError::KeyUnsupported)?;
    let names = leaf.names().ok_or(CertificateError::ChainUnreadable(1))?;
    let mut all: Vec<Box<str>> = names.dns;
    all.iter_mut().for_each(|name| name.make_ascii_lowercase());
    all.extend(names.addresses);
    let fingerprint = sha256(leaf_der);
    let key = read_key(key)?;
    check_key(&chain, &key)?;
    check_order(&parsed)?;
    check_time(leaf, now)?;
    Ok(Certificate {
        names: all.into(),
        uris: names.uris.into(),
        subject: leaf.subject(),
        not_before: leaf.not_before(),
        not_after: leaf.not_after(),
        key_kind,
        fingerprint,
        certified: Arc::new(CertifiedKey::new(chain, key)),
    })
}

pub(crate) fn sha256(octets: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, octets);
    digest.as_ref().try_into().expect("SHA-256 has 32 octets")
}

fn read_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let mut chain = Vec::new();
    for (certificate, position) in CertificateDer::pem_slice_iter(pem).zip(1..) {
        chain.push(certificate.map_err(|_| CertificateError::ChainUnreadable(position))?);
    }
    Ok(chain)
}

fn parse(chain: &[CertificateDer<'_>]) -> Result<Vec<X509>, CertificateError> {
    let read = |(certificate, position): (&CertificateDer<'_>, usize)| {
        X509::read(certificate).ok_or(CertificateError::ChainUnreadable(position))
    };
    chain.iter().zip(1..).map(read).collect()
}

fn read_key(pem: &[u8]) -> Result<Arc<dyn SigningKey>, CertificateError> {
    if ENCRYPTED.iter().any(|mark| pem.windows(mark.len()).any(|part| part == *mark)) {
        return Err(CertificateError::KeyEncrypted);
    }
    let mut keys = PrivateKeyDer::pem_slice_iter(pem);
    let key = match keys.next() {
        None => return Err(CertificateError::KeyMissing),
        Some(Err(_)) => return Err(CertificateError::KeyUnreadable),
        Some(Ok(key)) => Zeroizing::new(key),
    };
    if keys.next().is_some() {
        return Err(CertificateError::KeysSeveral);
    }
    any_supported_type(&key).map_err(|_| CertificateError::KeyUnreadable)
}

/// Whether the key is the leaf's, and if not, whose.
fn check_key(
    chain: &[CertificateDer<'static>],
    key: &Arc<dyn SigningKey>,
) -> Result<(), CertificateError> {
    for (certificate, position) in chain.iter().zip(1..) {
        let pair = CertifiedKey::new(vec![certificate.clone()], Arc::clone(key));
        match (pair.keys_match(), position) {
            (Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)), 1) => return Ok(()),
            (Ok(()), _) => return Err(CertificateError::LeafNotFirst(position)),
            (Err(Error::InconsistentKeys(_)), _) => {}
            (Err(_), 1) => return Err(CertificateError::ChainUnreadable(position)),
            (Err(_), _) => {}
        }
    }
    Err(CertificateError::KeyOther)
}

fn check_order(chain: &[X509]) -> Result<(), CertificateError> {
    for ((certificate, issuer), position) in chain.iter().zip(chain.iter().skip(1)).zip(1..) {
        if !certificate.is_from(issuer) {
            return Err(CertificateError::IssuerNotNext(position));
        }
    }
    Ok(())
}

fn check_time(leaf: &X509, now: u64) -> Result<(), CertificateError> {
    let (not_before, not_after) = (leaf.not_before(), leaf.not_after());
    if now < not_before {
        return Err(CertificateError::NotValidYet { not_before });
    }
    if now > not_after {
        return Err(CertificateError::Expired { not_after });
    }
    Ok(())
}
