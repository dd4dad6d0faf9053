//! Certificates and keys for tests, which issue them in memory as PEM text.
//!
//! An [`Authority`] signs what a [`Leaf`] describes; [`Leaf::self_signed`] needs none. A test that wants files writes
//! the text of a [`Pair`] to them. All of it panics where a name or a key is not valid: a test wrote it.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256,
    RevokedCertParams, RsaKeySize, SanType, SignatureAlgorithm,
};

/// An authority, which is a root or has been signed by others.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The properties of a certificate to issue.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// What its key is for, such as [`rcgen::PKCS_ED25519`].
    pub algorithm: &'static SignatureAlgorithm,
    /// The common name.
    pub subject: String,
    /// The organization, if there is one.
    pub organization: Option<&'static str>,
    /// DNS names, addresses and URIs.
    pub names: Vec<String>,
    /// Seconds from now.
    pub validity: Range<i64>,
    /// What it may be used for.
    pub purposes: Vec<ExtendedKeyUsagePurpose>,
    /// A random one if there is none.
    pub serial: Option<u64>,
}

/// PEM text of a certificate and its key.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Without those of authorities.
    pub chain: String,
    /// As PKCS #8.
    pub key: String,
}

/// Seconds.
pub const HOUR: i64 = 3600;

impl Leaf {
    /// A certificate that is valid for an hour more, for servers and clients.
    #[must_use]
    pub fn new(algorithm: &'static SignatureAlgorithm, names: &[&str]) -> Self {
        Self {
            algorithm,
            subject: "a service".to_owned(),
            organization: Some("Example, Inc."),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            validity: -HOUR..HOUR,
            purposes: vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
            serial: None,
        }
    }

    /// Has it signed by its own key.
    ///
    /// # Panics
    ///
    /// If a name is not valid.
    #[must_use]
    pub fn self_signed(&self) -> Pair {
        let key = key(self.algorithm);
        let certificate = self.parameters().self_signed(&key).expect("a leaf can be signed");
        Pair { chain: certificate.pem(), key: key.serialize_pem() }
    }

    fn parameters(&self) -> CertificateParams {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, &self.subject);
        if let Some(organization) = self.organization {
            parameters.distinguished_name.push(DnType::OrganizationName, organization);
        }
        parameters.subject_alt_names = self.names.iter().map(|name| alternative(name)).collect();
        parameters.extended_key_usages.clone_from(&self.purposes);
        parameters.use_authority_key_identifier_extension = true;
        parameters.not_before = date(self.validity.start).into();
        parameters.not_after = date(self.validity.end).into();
        parameters.serial_number = self.serial.map(Into::into);
        parameters
    }
}

impl Authority {
    /// A root.
    ///
    /// # Panics
    ///
    /// Never: the parameters are fixed.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let issuer =
            CertifiedIssuer::self_signed(authority(name), key(&rcgen::PKCS_ECDSA_P256_SHA256));
        Self { issuer: issuer.expect("a root can be signed") }
    }

    /// Another authority, that this one has signed.
    ///
    /// # Panics
    ///
    /// Never: the parameters are fixed.
    #[must_use]
    pub fn intermediate(&self, name: &str) -> Self {
        let key = key(&rcgen::PKCS_ECDSA_P256_SHA256);
        let issuer = CertifiedIssuer::signed_by(authority(name), key, &self.issuer);
        Self { issuer: issuer.expect("an intermediate can be signed") }
    }

    /// Its own certificate.
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a certificate for a new key.
    #[must_use]
    pub fn issue(&self, leaf: &Leaf) -> Pair {
        self.issue_for(leaf, &key(leaf.algorithm))
    }

    /// As `issue`, for this key.
    ///
    /// # Panics
    ///
    /// If a name is not valid.
    #[must_use]
    pub fn issue_for(&self, leaf: &Leaf, key: &KeyPair) -> Pair {
        let issuer: &Issuer<'_, KeyPair> = &self.issuer;
        let certificate = leaf.parameters().signed_by(key, issuer).expect("a leaf can be signed");
        Pair { chain: certificate.pem(), key: key.serialize_pem() }
    }

    /// A list of what it has revoked, good for as many seconds from now.
    ///
    /// # Panics
    ///
    /// Never: the parameters are fixed.
    #[must_use]
    pub fn revocations(&self, serials: &[u64], seconds: i64) -> String {
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
        let list = parameters.signed_by(issuer).and_then(|list| list.pem());
        list.expect("a list can be signed")
    }
}

/// A new key. Of RSA there is one in each process, since they take long to make.
///
/// # Panics
///
/// If there are no keys for this algorithm.
#[must_use]
pub fn key(algorithm: &'static SignatureAlgorithm) -> KeyPair {
    static RSA: LazyLock<String> = LazyLock::new(|| {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
        key.expect("a key can be made").serialize_pem()
    });
    let key = match algorithm == &PKCS_RSA_SHA256 {
        true => KeyPair::from_pem(&RSA),
        false => KeyPair::generate_for(algorithm),
    };
    key.expect("a key can be made")
}

/// The time in seconds, as the libraries see it that check the dates of certificates.
///
/// # Panics
///
/// If the clock is before 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "dates of certificates are checked by it")]
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("the clock is right").as_secs()
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
        SanType::URI(name.try_into().expect("a URI"))
    } else {
        SanType::DnsName(name.try_into().expect("a DNS name"))
    }
}
