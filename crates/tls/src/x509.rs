//! Fields of a certificate, ours or a peer's.
//!
//! Nothing is verified here: rustls checks signatures, purposes and trust.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::asn1::{AnyRef, GeneralizedTime, ObjectIdentifier, UintRef};
use x509_cert::der::{
    Decode as _, Encode as _, Reader as _, SliceReader, Tag, TagNumber, Tagged as _,
};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, SubjectAltName, SubjectKeyIdentifier};
use x509_cert::time::Time;

use crate::certificate::KeyKind;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const ELLIPTIC_CURVE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");

/// Bits of RSA keys that can be signed with.
const RSA_BITS_MIN: usize = 2048;
const RSA_BITS_MAX: usize = 8192;

/// One parsed certificate. Serial numbers that the standard forbids and others use are accepted.
pub(crate) struct X509(CertificateInner<Raw>);

/// Names of a certificate, as they stand there.
#[derive(Default)]
pub(crate) struct CertificateNames {
    pub(crate) dns: Vec<Box<str>>,
    pub(crate) uris: Vec<Box<str>>,
    pub(crate) addresses: Vec<Box<str>>,
}

/// Whether this is an answer about a certificate that is not a refusal to answer (RFC 6960, section
/// 4.2.1).
pub(crate) fn is_ocsp_success(der: &[u8]) -> bool {
    // The first that stands in the sequence is the status, of which 0 is a success.
    const SUCCESSFUL: [u8; 3] = [0x0a, 1, 0];
    AnyRef::from_der(der)
        .is_ok_and(|any| any.tag() == Tag::Sequence && any.value().starts_with(&SUCCESSFUL))
}

/// When a newer OCSP response is due: the first `nextUpdate` of the answers in it, in Unix seconds (RFC 6960,
/// section 4.2.1).
pub(crate) fn ocsp_end(der: &[u8]) -> Option<u64> {
    let response = AnyRef::from_der(der).ok()?;
    // responseStatus, responseBytes [0] { responseType, response OCTET STRING }.
    let bytes = elements(response.value())?.into_iter().nth(1)?;
    let bytes = AnyRef::from_der(bytes.value()).ok()?;
    let basic = elements(bytes.value())?.into_iter().nth(1)?;
    // tbsResponseData first; in it version [0]?, responderID [1] or [2], producedAt, responses.
    let data = elements(AnyRef::from_der(basic.value()).ok()?.value())?.into_iter().next()?;
    let responses = elements(data.value())?.into_iter().find(|it| it.tag() == Tag::Sequence)?;
    let ends = elements(responses.value())?.into_iter().filter_map(|single| {
        // certID, certStatus, thisUpdate, nextUpdate [0] EXPLICIT.
        let next = elements(single.value())?.into_iter().nth(3)?;
        let time = GeneralizedTime::from_der(next.value()).ok()?;
        (next.tag() == NEXT_UPDATE).then(|| time.to_unix_duration().as_secs())
    });
    ends.min()
}

/// When the successor of a list of revoked certificates is due, in Unix seconds (RFC 5280, section 5.1).
pub(crate) fn list_end(der: &[u8]) -> Option<u64> {
    let list = AnyRef::from_der(der).ok()?;
    let body = elements(list.value())?.into_iter().next()?;
    // version?, signature, issuer, thisUpdate, nextUpdate?.
    let next = elements(body.value())?.into_iter().filter(is_time).nth(1)?;
    let time = Time::from_der(&next.to_der().ok()?).ok()?;
    Some(time.to_unix_duration().as_secs())
}

/// Whether this is a list of revoked certificates of version 1 (RFC 5280, section 5.1.2.1): that of later ones is
/// written first.
pub(crate) fn is_first_list_version(der: &[u8]) -> bool {
    let list = AnyRef::from_der(der).ok().and_then(|list| elements(list.value()));
    let body = list.and_then(|list| elements(list.first()?.value()));
    // signature, issuer, thisUpdate, and what may stand behind them.
    body.is_some_and(|body| match body.as_slice() {
        [signature, issuer, this_update, ..] => {
            [signature, issuer].iter().all(|it| it.tag() == Tag::Sequence) && is_time(this_update)
        }
        _ => false,
    })
}

fn is_time(element: &AnyRef<'_>) -> bool {
    matches!(element.tag(), Tag::UtcTime | Tag::GeneralizedTime)
}

/// `[0]`, constructed.
const NEXT_UPDATE: Tag = Tag::ContextSpecific { constructed: true, number: TagNumber(0) };

/// What stands in a sequence.
fn elements(der: &[u8]) -> Option<Vec<AnyRef<'_>>> {
    let mut reader = SliceReader::new(der).ok()?;
    let mut elements = Vec::new();
    while !reader.is_finished() {
        elements.push(AnyRef::decode(&mut reader).ok()?);
    }
    Some(elements)
}

impl X509 {
    /// Parses a certificate in DER.
    pub(crate) fn read(der: &[u8]) -> Option<Self> {
        CertificateInner::from_der(der).ok().map(Self)
    }

    /// The subject, the most specific part first (RFC 4514).
    pub(crate) fn subject(&self) -> Box<str> {
        self.0.tbs_certificate().subject().to_string().into()
    }

    /// The issuer (RFC 4514).
    pub(crate) fn issuer(&self) -> Box<str> {
        self.0.tbs_certificate().issuer().to_string().into()
    }

    /// The serial number, in hexadecimal.
    pub(crate) fn serial(&self) -> Box<str> {
        let octets = self.0.tbs_certificate().serial_number().as_bytes();
        let mut text = String::with_capacity(octets.len() * 2);
        for octet in octets {
            let _ = write!(text, "{octet:02x}");
        }
        text.into()
    }

    /// From when on it is valid, in Unix seconds.
    pub(crate) fn not_before(&self) -> u64 {
        self.0.tbs_certificate().validity().not_before.to_unix_duration().as_secs()
    }

    /// Until when it is valid, in Unix seconds.
    pub(crate) fn not_after(&self) -> u64 {
        self.0.tbs_certificate().validity().not_after.to_unix_duration().as_secs()
    }

    /// The names that it is for, or `None` if they cannot be parsed.
    pub(crate) fn names(&self) -> Option<CertificateNames> {
        let mut names = CertificateNames::default();
        let found = self.0.tbs_certificate().get_extension::<SubjectAltName>().ok()?;
        let Some((_, SubjectAltName(found))) = found else { return Some(names) };
        for name in &found {
            match name {
                GeneralName::DnsName(name) => names.dns.push(name.as_str().into()),
                GeneralName::UniformResourceIdentifier(uri) => names.uris.push(uri.as_str().into()),
                GeneralName::IpAddress(octets) => {
                    names.addresses.push(address(octets.as_bytes())?);
                }
                GeneralName::OtherName(_)
                | GeneralName::Rfc822Name(_)
                | GeneralName::DirectoryName(_)
                | GeneralName::EdiPartyName(_)
                | GeneralName::RegisteredId(_) => {}
            }
        }
        Some(names)
    }

    /// Whether `issuer` may have signed this, by the names and numbers of their keys.
    pub(crate) fn is_from(&self, issuer: &Self) -> bool {
        let (this, issuer) = (self.0.tbs_certificate(), issuer.0.tbs_certificate());
        let wanted = this.get_extension::<AuthorityKeyIdentifier>().ok().flatten();
        let shown = issuer.get_extension::<SubjectKeyIdentifier>().ok().flatten();
        let is_key = match (wanted.and_then(|(_, key)| key.key_identifier), shown) {
            (Some(wanted), Some((_, shown))) => wanted.as_bytes() == shown.0.as_bytes(),
            _ => true,
        };
        this.issuer() == issuer.subject() && is_key
    }

    /// Its public key, without and with the name of its algorithm.
    pub(crate) fn public_key(&self) -> Option<(&[u8], Vec<u8>)> {
        let key = self.0.tbs_certificate().subject_public_key_info();
        Some((key.subject_public_key.as_bytes()?, key.to_der().ok()?))
    }

    /// The kind of its key, or the name of a kind that is not supported.
    pub(crate) fn key_kind(&self) -> Result<KeyKind, Box<str>> {
        let key = self.0.tbs_certificate().subject_public_key_info();
        match key.algorithm.oid {
            RSA => match key.subject_public_key.as_bytes().and_then(rsa_bits) {
                Some(RSA_BITS_MIN..=RSA_BITS_MAX) => Ok(KeyKind::Rsa),
                Some(bits) => Err(format!("RSA with {bits} bits").into()),
                None => Err("RSA, unreadable,".into()),
            },
            ED25519 => Ok(KeyKind::Ed25519),
            ELLIPTIC_CURVE => {
                let parameters = key.algorithm.parameters.as_ref();
                match parameters.and_then(|curve| curve.decode_as::<ObjectIdentifier>().ok()) {
                    Some(P256) => Ok(KeyKind::EcdsaP256),
                    Some(P384) => Ok(KeyKind::EcdsaP384),
                    Some(P521) => Ok(KeyKind::EcdsaP521),
                    Some(curve) => Err(format!("ECDSA with curve {curve}").into()),
                    None => Err("ECDSA with a curve of its own".into()),
                }
            }
            other => Err(other.to_string().into()),
        }
    }
}

/// Bits of the modulus.
fn rsa_bits(key: &[u8]) -> Option<usize> {
    let mut reader = SliceReader::new(key).ok()?;
    let bits = reader.sequence(|key| {
        let modulus: UintRef<'_> = key.decode()?;
        let _exponent: UintRef<'_> = key.decode()?;
        let top = modulus.as_bytes().first().map_or(8, |octet| octet.leading_zeros() as usize);
        Ok::<_, x509_cert::der::Error>((modulus.as_bytes().len() * 8).saturating_sub(top))
    });
    bits.ok()
}

fn address(octets: &[u8]) -> Option<Box<str>> {
    let text = match octets.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).to_string(),
        16 => Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).to_string(),
        _ => return None,
    };
    Some(text.into())
}
