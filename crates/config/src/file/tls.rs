//! `tls`: how connections are encrypted, and who is on their other end. Listeners and their chains
//! take TLS, clusters ask for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OrNone, Timeout};
use crate::defaults;

/// Ends TLS: what is routed or relayed is what clients encrypted. A change concerns connections that
/// are opened after it; only a change of what stands here, or in the files that it names, makes
/// clients begin new sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerTls {
    /// Certificates with their keys. A client gets the one for the name that it asks for: a whole name
    /// before `*.suffix`, and then the first; of several kinds of keys, one that it can check.
    #[schemars(length(min = 1))]
    pub certificates: Vec<CertificateFiles>,
    /// What is done with connections that do not begin with TLS.
    #[serde(default)]
    pub mode: Mode,
    /// The oldest version of TLS that is spoken.
    #[serde(default = "min_version")]
    pub min_version: Version,
    /// The newest version of TLS that is spoken.
    #[serde(default = "max_version")]
    pub max_version: Version,
    /// Cipher suites, the preferred ones first. A version of TLS of which none stands here has all of its
    /// own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub cipher_suites: Option<Vec<CipherSuite>>,
    /// Groups for the key exchange, the preferred ones first. Absent: X25519 with ML-KEM-768, which keeps what
    /// is recorded today from quantum computers, x25519, secp256r1 and secp384r1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub groups: Option<Vec<Group>>,
    /// Protocols that are offered (ALPN), the preferred ones first. Absent: `h2`, `http/1.1` and `http/1.0`, as far
    /// as `protocol` takes them, and none with `protocol: tcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpn: Option<Vec<String>>,
    /// Asks clients for certificates. Absent: clients have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
    /// Whether clients get tickets, with which their next connections need no signature.
    #[serde(default = "session_tickets")]
    pub session_tickets: bool,
    /// Files with keys of tickets, of 32 bytes at least, as `openssl rand 80` writes them. The first makes tickets, and all
    /// are good for reading them: put a new one in front, and keep the old one for 12 hours. Other listeners and
    /// processes with the same keys take the tickets, if they ask the same of clients. Absent: keys of this
    /// process, which change every six hours and go along at a handover.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub session_ticket_files: Vec<String>,
    /// Whether clients that come back may send requests along with their hello, and be answered a round trip earlier (TLS
    /// 1.3, 0-RTT). Each hop that saw such a request can send it again, so that only safe methods are let through
    /// (`GET`, `HEAD`, `OPTIONS`, `TRACE`), with `early-data: 1` for the service to see (RFC 8470); others are answered
    /// with 425, for the client to send again at once. Sessions are remembered by this process, up to 16,384 here,
    /// and each is good once.
    #[serde(default)]
    pub early_data: bool,
}

/// A certificate and its key. Both files are PEM; their paths are relative to the folder of this file.
/// They are watched: when they change, the configuration is read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateFiles {
    /// The file with the certificate, and those that lead from it to one that peers know.
    pub chain: String,
    /// The file with its private key.
    #[schemars(extend("x-public" = true))]
    pub key: String,
    /// The file with an answer of the authority that the certificate is good (OCSP), DER, for clients that ask for
    /// one. Whatever renews it writes the file anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ocsp: Option<String>,
    /// How signatures with the key are made, which is most of what a handshake costs. Only for certificates that are
    /// shown to clients.
    #[serde(default)]
    pub signing: Signing,
}

/// How signatures with a key are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Signing {
    /// At once.
    #[default]
    Inline,
    /// RSA with 2048, 3072 and 4096 bits up to eight at a time, for handshakes that come at the same time, on processors
    /// with AVX-512 IFMA; all others at once. See the threat model.
    Batched,
    /// As `batched`, but on a thread of its own for each worker, which is free for other connections meanwhile.
    Thread,
}

/// What is done with connections that do not begin with TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// They are closed.
    #[default]
    Strict,
    /// They are served without encryption: first bytes tell which they are. For the time of a
    /// change to TLS, since nothing keeps a client, or who is between, from leaving it out.
    Permissive,
}

/// A version of TLS. Older ones are not spoken.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Version {
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

/// A cipher suite, by its name in IANA's registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherSuite(pub tls::CipherSuite);

/// A group for the key exchange, by its name in IANA's registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(pub tls::Group);

/// What certificates of clients are held to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// The client CA: a file of certificates, PEM; relative to the folder of this
    /// file, and watched.
    pub ca: String,
    /// The file with lists of revoked certificates (CRLs), PEM. There has to be a current one of each
    /// authority between a client and `ca`: a certificate that none speaks of is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<String>,
    /// The names of which a client's certificate has at least one: host names, or URIs such as
    /// `spiffe://example.org/ns/shop/sa/web`, which may end with `*`. Empty: any will do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Whether a client needs a certificate.
    #[serde(default)]
    pub mode: ClientMode,
    /// The most of `timeouts.connection_age` for a client that has shown a certificate, or `none`: a certificate
    /// is checked when a connection begins, so this is how long one that was revoked since, or has
    /// expired, may be used, with `timeouts.connection_age_grace` for what runs then. Each connection has up
    /// to 20 % less.
    #[serde(default)]
    pub connection_age_max: OrNone<Timeout>,
}

/// Whether a client needs a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientMode {
    /// It does: without one that `ca` vouches for, the handshake fails.
    #[default]
    Required,
    /// It may have none; one that `ca` does not vouch for fails the handshake.
    Optional,
}

/// Speaks TLS with the endpoints of a cluster, and checks who they are. `connect_timeout` bounds
/// the connection and its handshake together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterTls {
    /// The name that endpoints are asked for (SNI), and that their certificates have unless `names` says
    /// otherwise. Without both, each endpoint's certificate has to have its address; one at a unix socket
    /// has none, so it has to be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// The names of which an endpoint's certificate has at least one: host names, or URIs such as
    /// `spiffe://example.org/ns/shop/sa/api`, which may end with `*`. Empty: `server_name`, or the address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The CA of the endpoints: a file of certificates, PEM; relative to the folder of this
    /// file, and watched. Absent: whom the system trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The file with lists of revoked certificates (CRLs), PEM. There has to be a current one of each
    /// authority between an endpoint and `ca`: a certificate that none speaks of is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<String>,
    /// Whether it is checked who an endpoint is.
    pub verify: Verify,
    /// The certificate that endpoints get if they ask for one. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateFiles>,
    /// The oldest version of TLS that is spoken.
    pub min_version: Version,
    /// The newest version of TLS that is spoken.
    pub max_version: Version,
    /// Cipher suites, the preferred ones first. A version of TLS of which none stands here has all of its
    /// own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub cipher_suites: Option<Vec<CipherSuite>>,
    /// Groups for the key exchange, the preferred ones first. Absent: X25519 with ML-KEM-768, which keeps what
    /// is recorded today from quantum computers, x25519, secp256r1 and secp384r1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub groups: Option<Vec<Group>>,
}

impl Default for ClusterTls {
    fn default() -> Self {
        Self {
            server_name: None,
            names: Vec::new(),
            ca: None,
            crl: None,
            verify: Verify::On,
            certificate: None,
            min_version: defaults::TLS_MIN_VERSION,
            max_version: defaults::TLS_MAX_VERSION,
            cipher_suites: None,
            groups: None,
        }
    }
}

/// Whether it is checked who a peer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verify {
    /// It is.
    #[default]
    On,
    /// Any certificate is taken, so that a machine on the way can read and change everything.
    Off,
}

const fn min_version() -> Version {
    defaults::TLS_MIN_VERSION
}

const fn max_version() -> Version {
    defaults::TLS_MAX_VERSION
}

const fn session_tickets() -> bool {
    // They cost a client nothing that it did not give away with its first handshake.
    true
}
