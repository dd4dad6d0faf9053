//! Certificates for Strait and its peers, as files in a claim's folder.

use std::path::PathBuf;

use anyhow::Result;
use pki::Leaf;
use rcgen::SignatureAlgorithm;

use crate::lab::Lab;

/// A root CA, with an intermediate that signs leaf certificates.
#[derive(Debug)]
pub(crate) struct Authority {
    intermediate: pki::Authority,
}

/// A certificate and its key, as files.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The certificate and the intermediate's.
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// A new one; the file `NAME.pem` has the certificate of its root.
    pub(crate) fn new(lab: &Lab, name: &str) -> Result<Self> {
        let root = pki::Authority::new(&format!("{name} root"));
        lab.write(&format!("{name}.pem"), root.pem())?;
        Ok(Self { intermediate: root.intermediate(&format!("{name} intermediate")) })
    }

    /// Writes `FILES.pem` and `FILES.key` for a name.
    pub(crate) fn issue(&self, lab: &Lab, files: &str, name: &str) -> Result<Pair> {
        self.issue_for(lab, files, name, &rcgen::PKCS_ECDSA_P256_SHA256)
    }

    /// The same with a key for this algorithm.
    pub(crate) fn issue_for(
        &self,
        lab: &Lab,
        files: &str,
        name: &str,
        algorithm: &'static SignatureAlgorithm,
    ) -> Result<Pair> {
        let subject = format!("{files} for {name}");
        let leaf = Leaf { subject, organization: None, ..Leaf::new(algorithm, &[name]) };
        let issued = self.intermediate.issue(&leaf);
        let chain = format!("{}{}", issued.chain, self.intermediate.pem());
        Ok(Pair {
            chain: lab.write(&format!("{files}.pem"), chain)?,
            key: lab.write(&format!("{files}.key"), issued.key)?,
        })
    }
}
