//! Names of which a peer's certificate has to have one.

use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error};
use rustls_pki_types::{CertificateDer, ServerName};

use crate::context::ContextError;
use crate::x509::X509;

/// Allowed names, of which a certificate needs one.
#[derive(Debug)]
pub(crate) struct AllowedNames {
    hosts: Vec<ServerName<'static>>,
    /// URIs that have to match whole.
    uris: Vec<Box<str>>,
    /// Beginnings of URIs.
    uri_prefixes: Vec<Box<str>>,
}

impl AllowedNames {
    /// DNS names, addresses, URIs, and beginnings of URIs with `*` behind them.
    pub(crate) fn new(names: Vec<Box<str>>) -> Result<Self, ContextError> {
        let (mut hosts, mut uris, mut uri_prefixes) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            match (ServerName::try_from(&*name), name.strip_suffix('*')) {
                (Ok(host), _) => hosts.push(host.to_owned()),
                (Err(_), Some(prefix)) if prefix.contains("://") => {
                    uri_prefixes.push(prefix.into());
                }
                (Err(_), _) if name.contains(':') => uris.push(name),
                (Err(_), _) => return Err(ContextError::NameInvalid(name)),
            }
        }
        Ok(Self { hosts, uris, uri_prefixes })
    }

    /// Whether the certificate has one of them. Names that are like none of them are an error for
    /// that reason.
    pub(crate) fn check(
        &self,
        der: &CertificateDer<'_>,
        parsed: &ParsedCertificate<'_>,
    ) -> Result<(), NamesMissing> {
        let Self { hosts, uris, uri_prefixes } = self;
        if hosts.iter().any(|host| verify_server_name(parsed, host).is_ok()) {
            return Ok(());
        }
        let Some(names) = X509::read(der).and_then(|x509| x509.names()) else {
            return Err(NamesMissing::Unreadable);
        };
        let is_prefixed = |uri: &str| uri_prefixes.iter().any(|prefix| uri.starts_with(&**prefix));
        if names.uris.iter().any(|uri| uris.contains(uri) || is_prefixed(uri)) {
            return Ok(());
        }
        let presented = names.dns.into_iter().chain(names.addresses).chain(names.uris);
        Err(NamesMissing::Others(presented.map(String::from).collect()))
    }
}

/// Why a certificate has none of the allowed names.
pub(crate) enum NamesMissing {
    /// The certificate cannot be parsed.
    Unreadable,
    /// The certificate has only these names.
    Others(Vec<String>),
}

impl NamesMissing {
    /// As an error about a server that was to be `expected`.
    pub(crate) fn of_server(self, expected: &ServerName<'_>) -> Error {
        Error::InvalidCertificate(match self {
            Self::Unreadable => CertificateError::BadEncoding,
            Self::Others(presented) => CertificateError::NotValidForNameContext {
                expected: expected.to_owned(),
                presented,
            },
        })
    }

    /// As an error about a client.
    pub(crate) fn of_client(self) -> Error {
        Error::InvalidCertificate(match self {
            Self::Unreadable => CertificateError::BadEncoding,
            Self::Others(_) => CertificateError::ApplicationVerificationFailure,
        })
    }
}
