//! Reads a chain and its key from PEM, and checks that they belong together.

use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use super::{Certificate, CertificateError, KeyKind, KeySource};
use crate::pem::{CERTIFICATE, KeyPemError, only, private_key};
use crate::signing::{Deferred, Here, KeyHandle, ProviderId};
use crate::x509::X509;

/// Marks of an encrypted key in PEM, now and formerly.
const ENCRYPTED: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];

pub(super) fn read(chain: &[u8], key: &KeySource<'_>) -> Result<Certificate, CertificateError> {
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
    let (key, key_handle) = match key {
        KeySource::Pem(pem) => (key_here(pem, &chain)?.0, None),
        KeySource::PemFor(provider, pem) => {
            let (signing, der) = key_here(pem, &chain)?;
            let handle = handle(*provider, leaf, key_kind, Some(Here::new(signing, &der)))?;
            (Deferred::signing(&handle), Some(handle))
        }
        KeySource::With(provider) => {
            let handle = handle(*provider, leaf, key_kind, None)?;
            (Deferred::signing(&handle), Some(handle))
        }
    };
    check_order(&parsed)?;
    Ok(Certificate {
        names: all.into(),
        uris: names.uris.into(),
        subject: leaf.subject(),
        not_before: leaf.not_before(),
        not_after: leaf.not_after(),
        key_kind,
        fingerprint,
        key_handle,
        certified: Arc::new(CertifiedKey::new(chain, key)),
    })
}

pub(crate) fn sha256(octets: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, octets);
    digest.as_ref().try_into().expect("SHA-256 has 32 octets")
}

fn read_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let mut chain = Vec::new();
    let pem = only(CERTIFICATE, pem);
    for (certificate, position) in CertificateDer::pem_slice_iter(&pem).zip(1..) {
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

fn handle(
    provider: ProviderId,
    leaf: &X509,
    kind: KeyKind,
    here: Option<Here>,
) -> Result<Arc<KeyHandle>, CertificateError> {
    let (public_key, info) = leaf.public_key().ok_or(CertificateError::ChainUnreadable(1))?;
    Ok(Arc::new(KeyHandle::new(provider, kind, public_key.into(), sha256(&info), here)))
}

/// The key of the chain's leaf, to sign with and as it stands in the file.
fn key_here(
    pem: &[u8],
    chain: &[CertificateDer<'static>],
) -> Result<(Arc<dyn SigningKey>, Zeroizing<PrivateKeyDer<'static>>), CertificateError> {
    let der = read_key(pem)?;
    let key = any_supported_type(&der).map_err(|_| CertificateError::KeyUnreadable)?;
    check_key(chain, &key)?;
    Ok((key, der))
}

fn read_key(pem: &[u8]) -> Result<Zeroizing<PrivateKeyDer<'static>>, CertificateError> {
    if ENCRYPTED.iter().any(|mark| pem.windows(mark.len()).any(|part| part == *mark)) {
        return Err(CertificateError::KeyEncrypted);
    }
    private_key(pem).map_err(|error| match error {
        KeyPemError::Missing => CertificateError::KeyMissing,
        KeyPemError::Several => CertificateError::KeysSeveral,
        KeyPemError::Unreadable => CertificateError::KeyUnreadable,
    })
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
