//! An authority that signs whatever a test needs.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, RsaKeySize, SanType,
};
use tls::{Certificate, KeyKind, Roots};

/// An authority.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The properties of a certificate to issue.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) kind: KeyKind,
    /// DNS names, addresses and URIs.
    pub(crate) names: Vec<&'static str>,
    /// Seconds from now.
    pub(crate) validity: std::ops::Range<i64>,
    pub(crate) purposes: Vec<ExtendedKeyUsagePurpose>,
}

/// A chain and a key.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) chain: String,
    pub(crate) key: String,
}

pub(crate) const HOUR: i64 = 3600;

impl Leaf {
    pub(crate) fn new(kind: KeyKind, names: &[&'static str]) -> Self {
        Self {
            kind,
            names: names.to_vec(),
            validity: -HOUR..HOUR,
            purposes: vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
        }
    }
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(authority(name), key).unwrap() }
    }

    /// Another authority, that this one has signed.
    pub(crate) fn intermediate(&self, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::signed_by(authority(name), key, &self.issuer).unwrap() }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn roots(&self) -> Arc<Roots> {
        Arc::new(Roots::from_pem(self.pem().as_bytes()).unwrap())
    }

    pub(crate) fn issue(&self, leaf: &Leaf) -> Pair {
        self.issue_for(leaf, &key(leaf.kind))
    }

    /// As `issue`, for this key.
    pub(crate) fn issue_for(&self, leaf: &Leaf, key: &KeyPair) -> Pair {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "a service");
        parameters.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        parameters.subject_alt_names = leaf.names.iter().map(|name| alternative(name)).collect();
        parameters.extended_key_usages = leaf.purposes.clone();
        parameters.use_authority_key_identifier_extension = true;
        parameters.not_before = date(leaf.validity.start).into();
        parameters.not_after = date(leaf.validity.end).into();
        let issuer: &Issuer<'_, KeyPair> = &self.issuer;
        let certificate = parameters.signed_by(key, issuer).unwrap();
        Pair { chain: certificate.pem(), key: key.serialize_pem() }
    }

    /// A certificate for `a.example` with this serial number.
    pub(crate) fn numbered(&self, serial: u64) -> Arc<Certificate> {
        let (key, names) = (key(KeyKind::EcdsaP256), vec!["a.example".to_owned()]);
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.serial_number = Some(serial.into());
        let issuer: &Issuer<'_, KeyPair> = &self.issuer;
        let certificate = parameters.signed_by(&key, issuer).unwrap();
        Pair { chain: certificate.pem(), key: key.serialize_pem() }.certificate()
    }

    /// A list of what it has revoked, good for as many seconds from now.
    pub(crate) fn revocations(&self, serials: &[u64], seconds: i64) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: date(-HOUR).into(),
            reason_code: None,
            invalidity_date: None,
        };
        let parameters = CertificateRevocationListParams {
            this_update: date(-HOUR).into(),
            next_update: date(seconds).into(),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let issuer: &Issuer<'_, KeyPair> = &self.issuer;
        parameters.signed_by(issuer).unwrap().pem().unwrap()
    }

    /// A certificate for these names, good for now.
    pub(crate) fn certificate(&self, kind: KeyKind, names: &[&'static str]) -> Arc<Certificate> {
        self.issue(&Leaf::new(kind, names)).certificate()
    }
}

impl Pair {
    pub(crate) fn certificate(&self) -> Arc<Certificate> {
        let read = Certificate::from_pem(self.chain.as_bytes(), self.key.as_bytes(), now());
        Arc::new(read.unwrap())
    }

    /// As it was an hour and a half from now, or will be.
    pub(crate) fn certificate_at(&self, seconds: i64) -> Arc<Certificate> {
        let at = now().strict_add_signed(seconds);
        let read = Certificate::from_pem(self.chain.as_bytes(), self.key.as_bytes(), at);
        Arc::new(read.unwrap())
    }
}

/// The time that rustls looks at too.
#[expect(clippy::disallowed_methods, reason = "dates of certificates are checked by it")]
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

fn date(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(now().strict_add_signed(seconds))
}

fn authority(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters.use_authority_key_identifier_extension = true;
    parameters
}

fn alternative(name: &str) -> SanType {
    if let Ok(address) = name.parse() {
        SanType::IpAddress(address)
    } else if name.contains(':') {
        SanType::URI(name.try_into().unwrap())
    } else {
        SanType::DnsName(name.try_into().unwrap())
    }
}

/// Keys of RSA take long to make.
static RSA: LazyLock<String> = LazyLock::new(|| {
    let key = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048);
    key.unwrap().serialize_pem()
});

pub(crate) fn key(kind: KeyKind) -> KeyPair {
    let key = match kind {
        KeyKind::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        KeyKind::EcdsaP256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        KeyKind::EcdsaP384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        KeyKind::EcdsaP521 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
        KeyKind::Rsa => KeyPair::from_pem(&RSA),
    };
    key.unwrap()
}
