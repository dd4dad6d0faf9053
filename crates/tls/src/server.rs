//! The side that is asked for a connection.

mod check;
mod choice;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, SignatureAlgorithm};

use crate::certificate::{Certificate, KeyKind};
use crate::context::{self, ContextError, Parts};
use crate::handshake::early::EARLY_DATA_BYTES_MAX;
use crate::names::AllowedNames;
use crate::parameters::{CipherSuite, Group, Version};
use crate::roots::Roots;
use crate::secrets::Capture;
use crate::tickets::{DatedSessions, DatedTickets, EarlySessions, OwnTickets, SharedTickets};
use check::NamedClients;
use choice::Choice;

/// Whether clients show certificates.
#[derive(Clone, Debug)]
pub enum ClientAuth {
    /// Clients are not asked for a certificate.
    Off,
    /// Clients are asked, and may have none; one that is shown has to come from these CAs.
    Optional(Arc<Roots>),
    /// Clients have to show a certificate from these CAs.
    Required(Arc<Roots>),
}

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Certificates to choose from, the default first.
    pub certificates: Vec<Arc<Certificate>>,
    /// Versions that it speaks.
    pub versions: RangeInclusive<Version>,
    /// Suites in order of preference. A version for which there is none has its defaults, and if
    /// there is none at all, the client's order counts: it knows best what it does fast.
    pub cipher_suites: Vec<CipherSuite>,
    /// Groups in order of preference; none for [`Group::DEFAULT`].
    pub groups: Vec<Group>,
    /// Application protocols in order of preference. If there are any, a client that asks for
    /// others only is refused.
    pub alpn: Vec<Box<[u8]>>,
    /// Whether clients show certificates.
    pub client_auth: ClientAuth,
    /// Names of which a client's certificate has to have one, as those of
    /// [`ClientOptions`](crate::ClientOptions); none for any name.
    pub client_names: Vec<Box<str>>,
    /// Whether, and how, clients go on from earlier connections.
    pub resumption: Resumption,
}

/// Whether and how sessions are resumed.
#[derive(Clone, Debug)]
pub enum Resumption {
    /// Sessions are not resumed.
    Off,
    /// By tickets, sealed with keys of this context that rotate by themselves: another context does
    /// not accept them, so that its rules cannot be got around.
    Tickets,
    /// The same with keys of the process, which go along when another process takes its place; the scope keeps contexts apart.
    OwnTickets(OwnTickets),
    /// By tickets with keys that other contexts and processes share.
    SharedTickets(SharedTickets),
    /// By sessions that are remembered; a client may send early data (0-RTT) with its next
    /// hello. See [`Handshake::may_begin_early`](crate::Handshake::may_begin_early).
    EarlyData(EarlySessions),
}

/// The configuration of a server, shared by its connections.
pub struct ServerContext {
    choice: Arc<Choice>,
    config: Arc<ServerConfig>,
    /// Verifies clients' certificates, if clients are asked for one.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    /// Whether a provider signs for one of the certificates, so that handshakes may wait.
    may_wait: bool,
}

impl ServerContext {
    /// Makes one of `options`.
    ///
    /// # Errors
    ///
    /// When no connection could come of them.
    pub fn new(options: ServerOptions) -> Result<Self, ContextError> {
        if options.certificates.is_empty() {
            return Err(ContextError::NoCertificate);
        }
        let parts = Parts::new(&options.versions, &options.cipher_suites, &options.groups)?;
        check_suites(&options, &parts)?;
        let may_wait = options.certificates.iter().any(|one| one.key_handle().is_some());
        let choice = Arc::new(Choice::new(options.certificates));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&parts.provider))
            .with_protocol_versions(&parts.versions)?;
        let clients = match options.client_auth {
            ClientAuth::Off => None,
            ClientAuth::Optional(roots) => {
                Some(verifier(&roots, &parts).allow_unauthenticated().build())
            }
            ClientAuth::Required(roots) => Some(verifier(&roots, &parts).build()),
        };
        let clients = match clients {
            None => None,
            Some(verifier) => Some(named(verifier.map_err(refused)?, options.client_names)?),
        };
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&choice) as _);
        config.alpn_protocols = context::alpn(options.alpn)?;
        config.ignore_client_order = !options.cipher_suites.is_empty();
        config.key_log = Arc::new(Capture);
        config.enable_secret_extraction = true;
        // A session's state is in its ticket; this context stores none.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 1;
        match options.resumption {
            Resumption::Off => config.send_tls13_tickets = 0,
            Resumption::Tickets => {
                let tickets = OwnTickets { ring: Arc::default(), scope: [0; 32] };
                config.ticketer = Arc::new(DatedTickets(Arc::new(tickets)));
            }
            Resumption::OwnTickets(own) => {
                config.ticketer = Arc::new(DatedTickets(Arc::new(own)));
            }
            Resumption::SharedTickets(shared) => {
                config.ticketer = Arc::new(DatedTickets(Arc::new(shared)));
            }
            // A ticket is then a number, under which its session is found once.
            Resumption::EarlyData(sessions) => {
                config.session_storage = Arc::new(DatedSessions(Arc::new(sessions)));
                config.max_early_data_size = EARLY_DATA_BYTES_MAX;
            }
        }
        Ok(Self { choice, config: Arc::new(config), clients, may_wait })
    }

    /// The certificate that a client gets that asks for this name and takes every kind of key.
    #[must_use]
    pub fn certificate_for(&self, name: Option<&str>) -> Arc<Certificate> {
        Arc::clone(self.choice.first(name))
    }

    pub(crate) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    pub(crate) const fn clients(&self) -> Option<&Arc<dyn ClientCertVerifier>> {
        self.clients.as_ref()
    }

    pub(crate) fn may_wait(&self) -> bool {
        self.may_wait
    }
}

impl fmt::Debug for ServerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerContext").field("choice", &self.choice).finish_non_exhaustive()
    }
}

fn verifier(roots: &Roots, parts: &Parts) -> rustls::server::ClientCertVerifierBuilder {
    let provider = Arc::clone(&parts.provider);
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots.store()), provider);
    builder.with_crls(roots.revocations().lists.iter().cloned()).enforce_revocation_expiration()
}

/// Verifies clients' certificates and requires one of these names.
fn named(
    trust: Arc<dyn ClientCertVerifier>,
    names: Vec<Box<str>>,
) -> Result<Arc<dyn ClientCertVerifier>, ContextError> {
    if names.is_empty() {
        return Ok(trust);
    }
    Ok(Arc::new(NamedClients { trust, names: AllowedNames::new(names)? }))
}

fn refused(error: rustls::server::VerifierBuilderError) -> ContextError {
    ContextError::Refused(error.to_string().into())
}

/// Suites of TLS 1.2 name the kind of key that signs.
fn check_suites(options: &ServerOptions, parts: &Parts) -> Result<(), ContextError> {
    if *options.versions.end() > Version::Tls12 {
        return Ok(());
    }
    let is_usable = |certificate: &Arc<Certificate>| {
        let algorithm = match certificate.key_kind() {
            KeyKind::Ed25519 => SignatureAlgorithm::ED25519,
            KeyKind::EcdsaP256 | KeyKind::EcdsaP384 | KeyKind::EcdsaP521 => {
                SignatureAlgorithm::ECDSA
            }
            KeyKind::Rsa => SignatureAlgorithm::RSA,
        };
        let mut suites = parts.provider.cipher_suites.iter();
        suites.any(|suite| suite.usable_for_signature_algorithm(algorithm))
    };
    if options.certificates.iter().any(is_usable) {
        Ok(())
    } else {
        Err(ContextError::NoSuiteForKeys)
    }
}
