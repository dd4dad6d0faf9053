//! Whether a server is who it should be.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::context::ContextError;
use crate::x509::X509;

/// What is asked of a server's certificate.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) rule: Rule,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
pub(super) enum Rule {
    /// Nothing but that the server has its key.
    Nothing,
    /// That it comes from one of these, and is for this name.
    Trusted { roots: Arc<RootCertStore>, name: Name },
}

/// Which name a certificate has to have.
#[derive(Debug)]
pub(super) enum Name {
    /// The one that was connected to.
    Server,
    /// Any of these.
    OneOf { hosts: Vec<ServerName<'static>>, uris: Vec<Box<str>> },
}

impl Name {
    pub(super) fn new(names: Vec<Box<str>>) -> Result<Self, ContextError> {
        if names.is_empty() {
            return Ok(Self::Server);
        }
        let (mut hosts, mut uris) = (Vec::new(), Vec::new());
        for name in names {
            match ServerName::try_from(&*name) {
                Ok(host) => hosts.push(host.to_owned()),
                Err(_) if name.contains(':') => uris.push(name),
                Err(_) => return Err(ContextError::NameInvalid(name)),
            }
        }
        Ok(Self::OneOf { hosts, uris })
    }

    fn check(
        &self,
        der: &CertificateDer<'_>,
        parsed: &ParsedCertificate<'_>,
        server_name: &ServerName<'_>,
    ) -> Result<(), Error> {
        let Self::OneOf { hosts, uris } = self else {
            return verify_server_name(parsed, server_name);
        };
        if hosts.iter().any(|host| verify_server_name(parsed, host).is_ok()) {
            return Ok(());
        }
        let names = X509::read(der).and_then(|x509| x509.names());
        let names = names.ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if names.uris.iter().any(|uri| uris.contains(uri)) {
            return Ok(());
        }
        let presented = names.dns.into_iter().chain(names.addresses).chain(names.uris);
        Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected: server_name.to_owned(),
            presented: presented.map(String::from).collect(),
        }))
    }
}

impl ServerCertVerifier for Check {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Rule::Trusted { roots, name } = &self.rule {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                roots,
                intermediates,
                now,
                self.algorithms.all,
            )?;
            name.check(end_entity, &parsed, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
