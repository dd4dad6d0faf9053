//! Verifies a server's certificate.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{EndEntityCert, ExpirationPolicy, KeyUsage, RevocationOptionsBuilder};

use crate::names::AllowedNames;
use crate::roots::Roots;

/// What is required of a server's certificate.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) rule: Rule,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
pub(super) enum Rule {
    /// Only that the server has its key.
    Nothing,
    /// That it comes from one of these, and has one of these names; without any, the one that was
    /// connected to.
    Trusted { roots: Arc<Roots>, names: Option<AllowedNames> },
}

impl Check {
    /// Whether no certificate on the way to the root is revoked.
    fn check_revocations(
        &self,
        roots: &Roots,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let lists: Vec<_> = roots.revocations().parsed.iter().collect();
        let Ok(options) = RevocationOptionsBuilder::new(&lists) else {
            // There are no lists.
            return Ok(());
        };
        let options = options.with_expiration_policy(ExpirationPolicy::Enforce).build();
        let certificate = EndEntityCert::try_from(end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let verified = certificate.verify_for_usage(
            self.algorithms.all,
            &roots.store().roots,
            intermediates,
            now,
            KeyUsage::server_auth(),
            Some(options),
            None,
        );
        match verified {
            Ok(_) => Ok(()),
            Err(webpki::Error::CertRevoked) => {
                Err(Error::InvalidCertificate(CertificateError::Revoked))
            }
            // The rest was good a moment ago, so it is for want of a list.
            Err(_) => Err(Error::InvalidCertificate(CertificateError::UnknownRevocationStatus)),
        }
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
        if let Rule::Trusted { roots, names } = &self.rule {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                roots.store(),
                intermediates,
                now,
                self.algorithms.all,
            )?;
            match names {
                None => verify_server_name(&parsed, server_name)?,
                Some(names) => names
                    .check(end_entity, &parsed)
                    .map_err(|missing| missing.of_server(server_name))?,
            }
            self.check_revocations(roots, end_entity, intermediates, now)?;
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
