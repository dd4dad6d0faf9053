//! Private keys out of PEM (RFC 7468), without leaving a copy of them in memory.
//!
//! The reader for other PEM keeps lines and decoded bytes in vectors that grow and are freed
//! without being wiped. Here there is one buffer, which has its room from the beginning and is
//! wiped when it goes. No branch and no index depends on what a key's octets are.

use rustls_pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use zeroize::{Zeroize as _, Zeroizing};

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPemError {
    /// No section has the label of a private key.
    Missing,
    /// More than one section has.
    Several,
    /// A section of one is not base64, or has no end.
    Unreadable,
}

/// The label of a certificate.
pub const CERTIFICATE: &str = "CERTIFICATE";

/// The labels of private keys, and the form that each has.
const LABELS: [(&str, Form); 3] = [
    ("PRIVATE KEY", Form::Pkcs8),
    ("RSA PRIVATE KEY", Form::Pkcs1),
    ("EC PRIVATE KEY", Form::Sec1),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Pkcs1,
    Pkcs8,
    Sec1,
}

/// The one private key in `pem` (PKCS #8, PKCS #1 or SEC 1). What else stands there is passed over.
///
/// # Errors
///
/// When there is none, more than one, or one that is not PEM. Whether what its base64 says is a key is
/// for others to see.
pub fn private_key(pem: &[u8]) -> Result<Zeroizing<PrivateKeyDer<'static>>, KeyPemError> {
    let mut found = None;
    let mut section: Option<(Form, Zeroizing<Vec<u8>>)> = None;
    for line in pem.split(|octet| matches!(octet, b'\n' | b'\r')) {
        let line = line.trim_ascii();
        match &mut section {
            None => {
                let form = boundary(line, "BEGIN")
                    .and_then(|label| LABELS.iter().find(|(known, _)| known.as_bytes() == label));
                if let Some((_, form)) = form {
                    section = Some((*form, Zeroizing::new(Vec::with_capacity(pem.len()))));
                }
            }
            Some((form, text)) => match boundary(line, "END") {
                None => text.extend_from_slice(line),
                Some(_) => {
                    let der = decode(text).ok_or(KeyPemError::Unreadable)?;
                    let key = match form {
                        Form::Pkcs1 => PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(der)),
                        Form::Pkcs8 => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der)),
                        Form::Sec1 => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der)),
                    };
                    if found.replace(Zeroizing::new(key)).is_some() {
                        return Err(KeyPemError::Several);
                    }
                    section = None;
                }
            },
        }
    }
    if section.is_some() {
        return Err(KeyPemError::Unreadable);
    }
    found.ok_or(KeyPemError::Missing)
}

/// The sections of `pem` with this label, for what reads other PEM: it would decode the key that may stand
/// beside a chain, too, before it passes over it.
#[must_use]
pub fn only(label: &str, pem: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(pem.len());
    let mut is_within = false;
    for line in pem.split_inclusive(|octet| *octet == b'\n') {
        is_within |= boundary(line.trim_ascii(), "BEGIN") == Some(label.as_bytes());
        if is_within {
            found.extend_from_slice(line);
        }
        is_within &= boundary(line.trim_ascii(), "END").is_none();
    }
    found
}

/// The label in `-----BEGIN label-----`, or `END`.
fn boundary<'a>(line: &'a [u8], kind: &str) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(b"-----")?.strip_prefix(kind.as_bytes())?.strip_prefix(b" ")?;
    rest.strip_suffix(b"-----")
}

/// Decodes base64 (RFC 4648, section 4) into a vector that never grows.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|octet| **octet == b'=').count();
    let digits = text.get(..text.len() - padding)?;
    if !text.len().is_multiple_of(4) || padding > 2 || digits.is_empty() {
        return None;
    }
    let mut der = Vec::with_capacity(text.len() / 4 * 3);
    let mut invalid = 0;
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for place in 0..4 {
            let value = group.get(place).map_or(0, |octet| digit(*octet));
            invalid |= value;
            bits = bits << 6 | value.cast_unsigned() & 63;
        }
        let [_, octets @ ..] = bits.to_be_bytes();
        der.extend_from_slice(octets.get(..group.len() - 1).unwrap_or_default());
        bits.zeroize();
    }
    if invalid < 0 {
        der.zeroize();
        return None;
    }
    Some(der)
}

/// The value of a digit, or -1, by arithmetic alone: a difference is negative within a range, and its
/// sign is a mask.
fn digit(octet: u8) -> i32 {
    let octet = i32::from(octet);
    let within = |first: u8, last: u8| {
        ((i32::from(first) - 1 - octet) & (octet - i32::from(last) - 1)) >> 31
    };
    (within(b'A', b'Z') & (octet - 64))
        + (within(b'a', b'z') & (octet - 70))
        + (within(b'0', b'9') & (octet + 5))
        + (within(b'+', b'+') & 63)
        + (within(b'/', b'/') & 64)
        - 1
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::pem::PemObject as _;

    use super::*;

    #[test]
    fn every_digit_has_its_value_and_nothing_else_has_one() {
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for octet in 0..=u8::MAX {
            let place = digits.iter().position(|digit| *digit == octet);
            assert_eq!(digit(octet), place.map_or(-1, |place| i32::try_from(place).unwrap()));
        }
    }

    #[test]
    fn sections_of_other_labels_are_left_out() {
        let pem = "x\n-----BEGIN A-----\n1\n-----END A-----\n-----BEGIN B-----\n2\n-----END B-----\r\n\
                   y\n-----BEGIN A-----\r\n3\r\n-----END A-----\n-----BEGIN A-----\n4";
        let expected = "-----BEGIN A-----\n1\n-----END A-----\n\
                        -----BEGIN A-----\r\n3\r\n-----END A-----\n-----BEGIN A-----\n4";
        assert_eq!(only("A", pem.as_bytes()), expected.as_bytes());
        assert_eq!(only("C", pem.as_bytes()), b"");
    }

    #[test]
    fn texts_are_decoded_or_refused() {
        for (text, der) in [
            ("Zg==", Some("f")),
            ("Zm8=", Some("fo")),
            ("Zm9v", Some("foo")),
            ("Zm9vYg==", Some("foob")),
            ("Zm9vYmE=", Some("fooba")),
            ("", None),
            ("Zg=", None),
            ("Zg", None),
            ("Z===", None),
            ("====", None),
            ("Zm9*", None),
            ("Z=9v", None),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), der.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn keys_are_read_as_others_read_them() {
        for key in [
            rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519),
            rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        ] {
            let pem = key.unwrap().serialize_pem();
            let theirs = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
            let crlf = pem.replace("\r\n", "\n").replace('\n', "\r\n");
            let behind =
                format!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{pem}");
            for pem in [&pem, &crlf, &behind] {
                assert_eq!(*private_key(pem.as_bytes()).unwrap(), theirs);
            }
            let twice = private_key(format!("{pem}{pem}").as_bytes());
            assert_eq!(twice.err(), Some(KeyPemError::Several));
            let cut = private_key(&pem.as_bytes()[..pem.len() / 2]);
            assert_eq!(cut.err(), Some(KeyPemError::Unreadable));
        }
        assert_eq!(private_key(b"").err(), Some(KeyPemError::Missing));
        let empty = b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n";
        assert_eq!(private_key(empty).err(), Some(KeyPemError::Unreadable));
    }
}
