//! The side that asks for a connection.

mod check;
mod sessions;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::sign::SingleCertAndKey;

use crate::certificate::Certificate;
use crate::context::{self, ContextError, Parts};
use crate::names::AllowedNames;
use crate::parameters::{CipherSuite, Group, Version};
use crate::roots::Roots;
use crate::secrets::Capture;
use check::{Check, Rule};
use sessions::Sessions;

/// Tickets that are kept, eight of each of the servers connected to last.
const TICKETS_MAX: usize = 256;

/// Which certificates of a server are accepted.
#[derive(Clone, Debug)]
pub enum Verify {
    /// From one of these, valid, and for the right name.
    Roots(Arc<Roots>),
    /// Any certificate is accepted. **Dangerous**: an attacker on the path can read and change
    /// everything. The server still has to prove that it has the certificate's key.
    Nothing,
}

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Which certificates of the server are accepted.
    pub verify: Verify,
    /// The client's certificate, if the server asks for one.
    pub certificate: Option<Arc<Certificate>>,
    /// Versions that it speaks.
    pub versions: RangeInclusive<Version>,
    /// Suites in order of preference. A version for which there is none has its defaults.
    pub cipher_suites: Vec<CipherSuite>,
    /// Groups in order of preference; none for [`Group::DEFAULT`]. Servers of TLS 1.2 may read
    /// them as the curves that their certificates can have, too (RFC 8422, section 5.1).
    pub groups: Vec<Group>,
    /// Application protocols in order of preference.
    pub alpn: Vec<Box<[u8]>>,
    /// Names of which the server's certificate has to have one: DNS names, addresses, or URIs as
    /// SPIFFE's, to the letter or, with `*` at the end, to there. None: the name that is connected to.
    pub names: Vec<Box<str>>,
}

/// The configuration of a client, shared by its connections, with its cache of session tickets.
pub struct ClientContext {
    config: Arc<ClientConfig>,
}

impl ClientContext {
    /// Makes one of `options`.
    ///
    /// # Errors
    ///
    /// When no connection could come of them.
    pub fn new(options: ClientOptions) -> Result<Self, ContextError> {
        let parts = Parts::new(&options.versions, &options.cipher_suites, &options.groups)?;
        // The names have to be valid even if nothing is checked.
        let names = match options.names {
            names if names.is_empty() => None,
            names => Some(AllowedNames::new(names)?),
        };
        let rule = match options.verify {
            Verify::Nothing => Rule::Nothing,
            Verify::Roots(roots) => Rule::Trusted { roots, names },
        };
        let algorithms = parts.provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(parts.provider)
            .with_protocol_versions(&parts.versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Check { rule, algorithms }));
        let mut config = match options.certificate {
            None => builder.with_no_client_auth(),
            Some(certificate) => {
                let certified = SingleCertAndKey::from(Arc::clone(certificate.certified()));
                builder.with_client_cert_resolver(Arc::new(certified))
            }
        };
        config.alpn_protocols = context::alpn(options.alpn)?;
        config.key_log = Arc::new(Capture);
        config.enable_secret_extraction = true;
        config.resumption = Resumption::store(Arc::new(Sessions::new(TICKETS_MAX)));
        Ok(Self { config: Arc::new(config) })
    }

    pub(crate) fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }
}

impl fmt::Debug for ClientContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientContext").finish_non_exhaustive()
    }
}
