//! TLS: contexts that handshakes are made with, and what each was made from.
//!
//! A context holds keys of tickets and sessions that go on, so it lives for as long as what it was made
//! from stays the same, files' contents included. That is what sources are compared for.

pub(crate) mod build;
pub(crate) mod certificates;
pub(crate) mod expiry;
pub mod file;
pub(crate) mod resolved;
mod words;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tls::signing::ProviderId;
use tls::{
    Certificate, CipherSuite, ClientContext, Group, Roots, ServerContext, SharedTickets, TicketKey,
    Version,
};
use zeroize::Zeroizing;

use crate::resource::tls::file::{Mode as TlsMode, Signing};

/// How a listener ends TLS.
#[derive(Debug)]
pub struct ListenerTls {
    /// What handshakes are made with.
    pub context: Arc<ServerContext>,
    /// What is done with connections that do not begin with TLS.
    pub mode: TlsMode,
    /// What the context was made from.
    pub source: ListenerTlsSource,
}

impl PartialEq for ListenerTls {
    /// A context follows from its source.
    fn eq(&self, other: &Self) -> bool {
        let Self { context: _, mode, source } = self;
        *mode == other.mode && *source == other.source
    }
}

impl Eq for ListenerTls {}

/// What the context of a listener was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTlsSource {
    /// In the order of the file.
    pub certificates: Vec<Arc<CertificateSource>>,
    /// Versions that are spoken.
    pub versions: RangeInclusive<Version>,
    /// As written; none for a version means all that it has.
    pub cipher_suites: Vec<CipherSuite>,
    /// In order of preference.
    pub groups: Vec<Group>,
    /// Protocols that are offered, in order of preference.
    pub alpn: Vec<Box<[u8]>>,
    /// What certificates of clients are held to, if clients are asked for them.
    pub client: Option<ClientTrust>,
    /// Whether clients get tickets.
    pub session_tickets: bool,
    /// Keys of tickets that others share, in the order of the file.
    pub ticket_keys: Vec<Arc<TicketKeySource>>,
    /// Whether clients that come back may send data along with their hello.
    pub early_data: bool,
}

impl ListenerTlsSource {
    /// Whether the same context comes of both: the paths of their files may differ.
    pub(crate) fn makes_the_same(&self, other: &Self) -> bool {
        // Taken apart, so that a new field cannot be forgotten here.
        let Self {
            certificates,
            versions,
            cipher_suites,
            groups,
            alpn,
            client,
            session_tickets,
            ticket_keys,
            early_data,
        } = self;
        all_same(certificates, &other.certificates)
            && *versions == other.versions
            && *cipher_suites == other.cipher_suites
            && *groups == other.groups
            && *alpn == other.alpn
            && match (client, &other.client) {
                (None, None) => true,
                (Some(a), Some(b)) => {
                    a.is_required == b.is_required
                        && a.names == b.names
                        && a.roots.is_same(&b.roots)
                }
                _ => false,
            }
            && *session_tickets == other.session_tickets
            && *early_data == other.early_data
            && ticket_keys
                .iter()
                .map(|key| key.digest)
                .eq(other.ticket_keys.iter().map(|key| key.digest))
    }
}

/// The client CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTrust {
    /// The certificates that are trusted, and where they come from.
    pub roots: Arc<RootsSource>,
    /// Names of which a certificate has at least one; none for any.
    pub names: Vec<Box<str>>,
    /// Whether a client needs a certificate.
    pub is_required: bool,
    /// Age of connections from which on clients with certificates have to come again, or none.
    pub connection_age_max: Option<Duration>,
}

/// How TLS is spoken with a cluster's endpoints.
#[derive(Debug)]
pub struct ClusterTls {
    /// What handshakes are made with.
    pub context: Arc<ClientContext>,
    /// The same for relayed connections and tunnels, whose protocol is not known here: it offers none.
    /// Only there if a listener relays to this cluster, or a rule takes `CONNECT` for it.
    pub relay_context: Option<Arc<ClientContext>>,
    /// The name that endpoints are asked for, in lower case. Without one, `source.names` has those that
    /// count, or none is checked.
    pub server_name: Option<Arc<str>>,
    /// What the contexts were made from.
    pub source: ClusterTlsSource,
    /// Tells it from all others there were: connections of one are not used for another.
    pub(crate) serial: u64,
}

impl PartialEq for ClusterTls {
    /// Contexts follow from their source, and serials count them.
    fn eq(&self, other: &Self) -> bool {
        let Self { context: _, relay_context, server_name, source, serial: _ } = self;
        relay_context.is_some() == other.relay_context.is_some()
            && *server_name == other.server_name
            && *source == other.source
    }
}

impl Eq for ClusterTls {}

/// What the contexts of a cluster were made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTlsSource {
    /// The CA of endpoints; none if their certificates are not verified.
    pub roots: Option<Arc<RootsSource>>,
    /// Names of which an endpoint has at least one; none for the one that it is asked for.
    pub names: Vec<Box<str>>,
    /// What endpoints get that ask for a certificate.
    pub certificate: Option<Arc<CertificateSource>>,
    /// Versions that are spoken.
    pub versions: RangeInclusive<Version>,
    /// As written; none for a version means all that it has.
    pub cipher_suites: Vec<CipherSuite>,
    /// In order of preference.
    pub groups: Vec<Group>,
    /// Protocols that are offered, in order of preference.
    pub alpn: Vec<Box<[u8]>>,
}

impl ClusterTls {
    /// Whether endpoints may be sockets of the file system, which have no name of their own: it is said whose
    /// certificate counts, or none does.
    pub(crate) fn allows_unix(&self) -> bool {
        self.source.roots.is_none() || !self.source.names.is_empty() || self.server_name.is_some()
    }
}

impl ClusterTlsSource {
    /// Whether the same contexts come of both: the paths of their files may differ.
    pub(crate) fn makes_the_same(&self, other: &Self) -> bool {
        let Self { roots, names, certificate, versions, cipher_suites, groups, alpn } = self;
        let is_same_trust = match (roots, &other.roots) {
            (None, None) => true,
            (Some(a), Some(b)) => a.is_same(b),
            _ => false,
        };
        is_same_trust
            && *names == other.names
            && all_same(certificate.as_slice(), other.certificate.as_slice())
            && *versions == other.versions
            && *cipher_suites == other.cipher_suites
            && *groups == other.groups
            && *alpn == other.alpn
    }

    /// Whether connections of the one may go on with the other: that has at most renewed what the same files or secrets hold.
    pub(crate) fn is_renewal_of(&self, former: &Self) -> bool {
        let Self { roots, names, certificate, versions, cipher_suites, groups, alpn } = self;
        let is_same_trust = match (roots, &former.roots) {
            (None, None) => true,
            (Some(a), Some(b)) => a.path == b.path && a.crl == b.crl,
            _ => false,
        };
        let is_same_certificate = match (certificate, &former.certificate) {
            (None, None) => true,
            (Some(a), Some(b)) => a.chain == b.chain && a.key == b.key,
            _ => false,
        };
        is_same_trust
            && is_same_certificate
            && *names == former.names
            && *versions == former.versions
            && *cipher_suites == former.cipher_suites
            && *groups == former.groups
            && *alpn == former.alpn
    }
}

impl Signing {
    const BATCHED: ProviderId = ProviderId(1);
    const THREAD: ProviderId = ProviderId(2);

    /// The identity in the key's certificate; none if it names none.
    #[must_use]
    pub const fn provider(self) -> Option<ProviderId> {
        match self {
            Self::Inline => None,
            Self::Batched => Some(Self::BATCHED),
            Self::Thread => Some(Self::THREAD),
        }
    }

    /// What a provider stands for.
    #[must_use]
    pub fn of(provider: ProviderId) -> Self {
        match provider {
            Self::BATCHED => Self::Batched,
            Self::THREAD => Self::Thread,
            ProviderId(_) => Self::Inline,
        }
    }
}

/// A certificate with its key, and where they were read.
#[derive(Debug)]
pub struct CertificateSource {
    /// The certificate, which holds its key.
    pub certificate: Arc<Certificate>,
    /// Path of the chain as the file has it.
    pub chain: Arc<str>,
    /// Path of the key as the file has it.
    pub key: Arc<str>,
    /// Path of the authority's answer (OCSP) as the file has it, if there is one.
    pub ocsp: Option<Arc<str>>,
    /// How signatures with the key are made.
    pub signing: Signing,
    /// The file of the chain as it was read; its key may stand there, too.
    pub(crate) chain_pem: Arc<Zeroizing<Vec<u8>>>,
    /// The key's digest. It need not be a strong one: a key that fits the same chain is the same key.
    pub(crate) key_digest: u64,
    /// The answer as it was read.
    pub(crate) ocsp_der: Option<Arc<Zeroizing<Vec<u8>>>>,
}

impl CertificateSource {
    /// Whether both are the same certificate with the same key.
    fn is_same(&self, other: &Self) -> bool {
        self.chain_pem == other.chain_pem
            && self.key_digest == other.key_digest
            && self.ocsp_der == other.ocsp_der
            && self.signing == other.signing
    }
}

impl PartialEq for CertificateSource {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain
            && self.key == other.key
            && self.ocsp == other.ocsp
            && self.is_same(other)
    }
}

impl Eq for CertificateSource {}

fn all_same(a: &[Arc<CertificateSource>], b: &[Arc<CertificateSource>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same(b))
}

/// A key of session tickets, and where it was read.
#[derive(Debug)]
pub struct TicketKeySource {
    /// The key.
    pub key: Arc<TicketKey>,
    /// Path of its file as the file has it.
    pub path: Arc<str>,
    /// The file's digest.
    pub(crate) digest: u64,
}

impl PartialEq for TicketKeySource {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.digest == other.digest
    }
}

impl Eq for TicketKeySource {}

/// CAs, and where they were read.
#[derive(Debug)]
pub struct RootsSource {
    /// The certificates that are trusted.
    pub roots: Arc<Roots>,
    /// Path of their file as the file has it; none for those whom the system trusts.
    pub path: Option<Arc<str>>,
    /// The file as it was read; empty for those whom the system trusts, which are read once.
    pub(crate) pem: Arc<Zeroizing<Vec<u8>>>,
    /// Path of the lists of what was revoked as the file has it, if there are any.
    pub crl: Option<Arc<str>>,
    /// The lists as they were read.
    pub(crate) crl_pem: Option<Arc<Zeroizing<Vec<u8>>>>,
}

impl RootsSource {
    /// A digest of what its files say, the same in every process that has the same; none if it has none, as of those whom the system
    /// trusts.
    pub(crate) fn digest(&self) -> Option<[u8; 32]> {
        let lists = self.crl_pem.as_ref().map_or(&[][..], |lists| lists);
        let is_named = self.path.is_some() || self.crl_pem.is_some();
        is_named.then(|| SharedTickets::scope_of(&[&self.pem, lists]))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.path.is_some() == other.path.is_some()
            && self.pem == other.pem
            && self.crl_pem == other.crl_pem
    }
}

impl ClientTrust {
    /// A digest of what is asked of clients, the same in every process that asks the same.
    pub(crate) fn digest(&self) -> [u8; 32] {
        // How long a connection lasts says nothing of which clients are let in.
        let Self { roots, names, is_required, connection_age_max: _ } = self;
        let lists = roots.crl_pem.as_ref().map_or(&[][..], |lists| lists);
        let mut parts: Vec<&[u8]> = vec![&roots.pem, lists];
        parts.push(if *is_required { b"required" } else { b"optional" });
        parts.extend(names.iter().map(|name| name.as_bytes()));
        SharedTickets::scope_of(&parts)
    }
}

impl PartialEq for RootsSource {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.crl == other.crl && self.is_same(other)
    }
}

impl Eq for RootsSource {}
