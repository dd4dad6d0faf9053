//! What a handshake negotiated, and who the peer is.

use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use x509_cert::der::pem::LineEnding;

use crate::certificate::sha256;
use crate::parameters::{CipherSuite, Group, Version};
use crate::x509::X509;

/// What a handshake negotiated, and who the peer is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandshakeFacts {
    /// The version.
    pub version: Version,
    /// The cipher suite.
    pub cipher_suite: CipherSuite,
    /// How keys were agreed on; none where a connection of TLS 1.2 was resumed.
    pub group: Option<Group>,
    /// The application protocol, if one was agreed on.
    pub alpn: Option<Box<[u8]>>,
    /// The name that the client asked for, on the server's side.
    pub server_name: Option<Box<str>>,
    /// Whether the session was resumed: then neither side signed anything.
    pub is_resumed: bool,
    /// The peer's certificate, if it sent one.
    pub peer: Option<Box<PeerCertificate>>,
}

/// The peer's certificate, if it sent one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerCertificate {
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// The subject of the leaf (RFC 4514), the most specific part first.
    pub subject: Box<str>,
    /// The issuer of the leaf.
    pub issuer: Box<str>,
    /// The serial number of the leaf, in hexadecimal.
    pub serial: Box<str>,
    /// DNS names of the leaf, as they stand there.
    pub dns_names: Vec<Box<str>>,
    /// URIs of the leaf, as they stand there.
    pub uris: Vec<Box<str>>,
    /// Addresses of the leaf.
    pub addresses: Vec<Box<str>>,
    /// From when on the leaf is valid, in Unix seconds.
    pub not_before: u64,
    /// Until when the leaf is valid, in Unix seconds.
    pub not_after: u64,
    /// The certificates as they were sent, in DER, leaf first.
    pub chain: Vec<Box<[u8]>>,
}

impl PeerCertificate {
    /// Reads `chain`, or `None` if it is empty or its leaf cannot be parsed.
    pub(crate) fn read(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let leaf = chain.first()?;
        let x509 = X509::read(leaf)?;
        let names = x509.names()?;
        Some(Self {
            fingerprint: sha256(leaf),
            subject: x509.subject(),
            issuer: x509.issuer(),
            serial: x509.serial(),
            dns_names: names.dns,
            uris: names.uris,
            addresses: names.addresses,
            not_before: x509.not_before(),
            not_after: x509.not_after(),
            chain: chain.iter().map(|certificate| certificate.as_ref().into()).collect(),
        })
    }

    /// The certificates and fingerprint of a chain whose leaf cannot be parsed; its names stay
    /// empty.
    pub(crate) fn unread(chain: &[CertificateDer<'_>]) -> Option<Self> {
        Some(Self {
            fingerprint: sha256(chain.first()?),
            subject: Box::default(),
            issuer: Box::default(),
            serial: Box::default(),
            dns_names: Vec::new(),
            uris: Vec::new(),
            addresses: Vec::new(),
            not_before: 0,
            not_after: 0,
            chain: chain.iter().map(|certificate| certificate.as_ref().into()).collect(),
        })
    }

    /// The leaf as PEM.
    #[must_use]
    pub fn leaf_pem(&self) -> String {
        self.chain.first().map(|leaf| pem(leaf)).unwrap_or_default()
    }

    /// The chain as PEM, leaf first.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        self.chain.iter().map(|certificate| pem(certificate)).collect()
    }
}

/// A certificate as PEM (RFC 7468, section 5).
fn pem(der: &[u8]) -> String {
    let pem = x509_cert::der::pem::encode_string("CERTIFICATE", LineEnding::LF, der);
    pem.expect("a certificate is not too long for memory")
}
