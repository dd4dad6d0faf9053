//! Properties of the PEM readers, for any bytes.
//!
//! Shared by the fuzz target of the same name and by the replay of its corpus: no input panics, how
//! lines end and what stands around the sections changes nothing, and a key is the one that another
//! reader of PEM finds.

use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use tls::pem::{CERTIFICATE, KeyPemError, only, private_key};
use tls::{Certificate, Roots};

/// A day on which the certificates of the corpus are valid, in Unix seconds.
const NOW: u64 = 1_800_000_000;

/// Checks everything on `data`.
pub(crate) fn check(data: &[u8]) {
    let key = key(data);
    check_spellings(data, &key);
    if let Ok(key) = &key {
        let another = PrivateKeyDer::from_pem_slice(data);
        if let Ok(another) = another {
            assert_eq!(*key, another, "{}", data.escape_ascii());
        }
    }
    check_sections(data);
    // Sections of both kinds may stand in one file.
    if let Ok(certificate) = Certificate::from_pem(data, data) {
        assert!(key.is_ok() && Roots::from_pem(data).is_ok());
        let is_now = certificate.not_before() <= NOW && NOW <= certificate.not_after();
        assert_eq!(certificate.check_time(NOW).is_ok(), is_now);
        if let Ok(certificate) = certificate.with_ocsp_response(data) {
            _ = certificate.ocsp_ends();
        }
    }
    if let Ok(roots) = Roots::from_pem(data) {
        assert!(roots.len() > 0 && !only(CERTIFICATE, data).is_empty());
        if let Ok(roots) = roots.with_revocations(data) {
            _ = roots.list_ends();
        }
    }
}

fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, KeyPemError> {
    private_key(pem).map(|key| key.clone_key())
}

/// Lines that end otherwise, and lines before and behind, are the same to a key.
fn check_spellings(data: &[u8], key: &Result<PrivateKeyDer<'static>, KeyPemError>) {
    let replaced = |by: &[u8]| data.split(|octet| *octet == b'\n').collect::<Vec<_>>().join(by);
    for other in [replaced(b"\r\n"), replaced(b"\r"), replaced(b" \t\n\n"), replaced(b"\n ")] {
        assert_eq!(self::key(&other), *key, "{}", data.escape_ascii());
    }
    let before = [b"a note\n", data].concat();
    assert_eq!(self::key(&before), *key, "{}", data.escape_ascii());
    let behind = [data, b"\n\n"].concat();
    assert_eq!(self::key(&behind), *key, "{}", data.escape_ascii());
}

/// What is left of a file holds sections of one label alone, all of them, in order.
fn check_sections(data: &[u8]) {
    for label in [CERTIFICATE, "X509 CRL"] {
        let sections = only(label, data);
        assert_eq!(only(label, &sections), sections, "{}", data.escape_ascii());
        let begin = format!("-----BEGIN {label}-----");
        assert!(sections.is_empty() || sections.trim_ascii_start().starts_with(begin.as_bytes()));
        let mut lines = data.split_inclusive(|octet| *octet == b'\n');
        let is_in_order = |line| lines.any(|of_data| of_data == line);
        assert!(sections.split_inclusive(|octet| *octet == b'\n').all(is_in_order));
    }
}
