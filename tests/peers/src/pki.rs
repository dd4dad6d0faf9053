//! Certificates for Strait and its peers, as files in a claim's folder.

use std::path::PathBuf;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_RSA_SHA256, RsaKeySize,
};

use crate::lab::Lab;

/// A root CA, with an intermediate that signs leaf certificates.
#[derive(Debug)]
pub(crate) struct Authority {
    intermediate: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as files.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The certificate and the intermediate's.
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ecdsa,
    Rsa,
}

impl Authority {
    /// A new one; the file `NAME.pem` has the certificate of its root.
    pub(crate) fn new(lab: &Lab, name: &str) -> Result<Self> {
        let root = CertifiedIssuer::self_signed(issuing(&format!("{name} root"))?, key()?)?;
        let params = issuing(&format!("{name} intermediate"))?;
        let intermediate = CertifiedIssuer::signed_by(params, key()?, &root)?;
        lab.write(&format!("{name}.pem"), root.pem())?;
        Ok(Self { intermediate })
    }

    /// Writes `FILES.pem` and `FILES.key` for a name.
    pub(crate) fn issue(&self, lab: &Lab, files: &str, name: &str) -> Result<Pair> {
        self.issue_kind(lab, files, name, Kind::Ecdsa)
    }

    /// The same with a key of this kind.
    pub(crate) fn issue_kind(
        &self,
        lab: &Lab,
        files: &str,
        name: &str,
        kind: Kind,
    ) -> Result<Pair> {
        let key = match kind {
            Kind::Ecdsa => key()?,
            Kind::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?,
        };
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, format!("{files} for {name}"));
        let certificate = params.signed_by(&key, &self.intermediate)?;
        let chain = format!("{}{}", certificate.pem(), self.intermediate.pem());
        Ok(Pair {
            chain: lab.write(&format!("{files}.pem"), chain)?,
            key: lab.write(&format!("{files}.key"), key.serialize_pem())?,
        })
    }
}

fn key() -> Result<KeyPair> {
    Ok(KeyPair::generate()?)
}

fn issuing(name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}
