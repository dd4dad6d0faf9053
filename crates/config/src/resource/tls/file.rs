//! `tls`: how connections are encrypted, and who is on their other end. Listeners and their chains
//! take TLS, clusters ask for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults;
use crate::file::scalar::{OrNone, Timeout};

/// Terminates TLS: Strait routes or relays the decrypted data. A change applies to new connections. Sessions can be
/// resumed unless this section, or a file that it names, changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "ca": "write `client: { ca: FILE }`",
    "cert": "write `certificates: [{ chain: FILE, key: FILE }]`",
    "chain": "write `certificates: [{ chain: FILE, key: FILE }]`",
    "certificate": "write `certificates: [{ chain: FILE, key: FILE }]`",
    "key": "write `certificates: [{ chain: FILE, key: FILE }]`",
    "client_auth": "write `client`",
    "ssl_certificate": "write `certificates: [{ chain: FILE, key: FILE }]`",
    "ciphers": "write `cipher_suites`",
}))]
pub struct ListenerTls {
    /// Certificates with their keys. A client gets a certificate for its server name: an exact name has precedence over
    /// `*.suffix`, and without a match the first certificate is used. Among several types of keys, a client gets one
    /// that it supports.
    #[schemars(length(min = 1))]
    pub certificates: Vec<CertificateFiles>,
    /// How to treat connections that do not begin with TLS.
    #[serde(default)]
    pub mode: Mode,
    /// The oldest version of TLS.
    #[serde(default = "min_version")]
    pub min_version: Version,
    /// The newest version of TLS.
    #[serde(default = "max_version")]
    pub max_version: Version,
    /// Cipher suites in order of preference. If none of a TLS version is listed, all of that version are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub cipher_suites: Option<Vec<CipherSuite>>,
    /// Key exchange groups in order of preference. Absent: X25519 with ML-KEM-768 (which protects recorded traffic from
    /// future quantum computers), x25519, secp256r1 and secp384r1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub groups: Option<Vec<Group>>,
    /// ALPN protocols in order of preference. Absent: `h2`, `http/1.1` and `http/1.0`, as far as `protocol` allows
    /// them; none with `protocol: tcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpn: Option<Vec<String>>,
    /// Requests certificates from clients. Absent: clients need none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
    /// Whether clients get session tickets, with which further connections need no signature.
    #[serde(default = "session_tickets")]
    pub session_tickets: bool,
    /// Files with session ticket keys of at least 32 bytes, as `openssl rand 80` writes them. The first key encrypts
    /// new tickets, and all keys decrypt: to rotate, put a new file first and keep the old one for 12 hours. Other
    /// listeners and processes with the same keys accept the tickets if they have the same requirements for clients.
    /// Absent: the process creates its own keys, which change every six hours and move with a handover.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub session_ticket_files: Vec<String>,
    /// Whether returning clients may send requests together with their ClientHello, and get the response one round trip
    /// earlier (TLS 1.3, 0-RTT). An attacker on the path can replay such a request. Therefore only safe methods are
    /// accepted (`GET`, `HEAD`, `OPTIONS`, `TRACE`), and upstreams see `early-data: 1` (RFC 8470). Other requests get
    /// 425, and the client repeats them at once. The process remembers up to 16,384 sessions of the listener, and
    /// accepts each once.
    #[serde(default)]
    pub early_data: bool,
}

/// A certificate and its key. Both files are PEM; their paths are relative to the folder of the configuration. Strait
/// watches them and reads the configuration again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "cert": "write `chain`",
    "certificate": "write `chain`",
    "certificate_chain": "write `chain`",
    "crt": "write `chain`",
    "private_key": "write `key`",
}))]
pub struct CertificateFiles {
    /// The file with the certificate and its intermediate certificates.
    pub chain: String,
    /// The file with the private key.
    #[schemars(extend(
        "x-public" = true,
        "x-meant" = { "": "add `key: FILE`, which is the file of `chain` again if that has the key, too" },
    ))]
    pub key: String,
    /// The file with a stapled OCSP response (DER), for clients that request one. Another program must renew it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ocsp: Option<String>,
    /// How signatures with the key are computed, which is most of the cost of a handshake. Only for certificates that
    /// are presented to clients.
    #[serde(default)]
    pub signing: Signing,
}

/// How signatures with a key are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Signing {
    /// At once, in the worker.
    #[default]
    Inline,
    /// Up to eight RSA signatures (2048, 3072 or 4096 bits) at once, for simultaneous handshakes, on processors with
    /// AVX-512 IFMA; other signatures at once. See the threat model.
    Batched,
    /// As `batched`, but in a separate thread for each worker, which meanwhile serves other connections.
    Thread,
}

/// How to treat connections that do not begin with TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Plaintext connections are closed.
    #[default]
    Strict,
    /// Plaintext connections are served, too; the first bytes distinguish them. Use it only while clients migrate to
    /// TLS, because a client, or an attacker between, can choose plaintext.
    Permissive,
}

/// A version of TLS. Older ones are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub tls::Version);

/// A cipher suite, by its name in IANA's registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherSuite(pub tls::CipherSuite);

/// A group for the key exchange, by its name in IANA's registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(pub tls::Group);

/// Requirements for client certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// The client CA: a PEM file of CA certificates, relative to the folder of the configuration, and watched.
    pub ca: String,
    /// The PEM file with certificate revocation lists (CRLs). It must contain a current list of each CA between a
    /// client and `ca`: a certificate whose CA has no list is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<String>,
    /// Names, one of which a client's certificate must contain: host names, or URIs such as
    /// `spiffe://example.org/ns/shop/sa/web`, which may end with `*`. Empty: any name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Whether a client must present a certificate.
    #[serde(default)]
    pub mode: ClientMode,
    /// Maximum of `timeouts.connection_age` for clients with a certificate, or `none`. Because certificates are
    /// verified only when a connection begins, this limits how long a certificate can be used after it was revoked or
    /// has expired, plus `timeouts.connection_age_grace` for active requests. Each connection has up to 20 % less.
    #[serde(default)]
    pub connection_age_max: OrNone<Timeout>,
}

/// Whether a client must present a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientMode {
    /// The handshake fails without a certificate issued by `ca`.
    #[default]
    Required,
    /// A client needs no certificate; the handshake fails with one that was not issued by `ca`.
    Optional,
}

/// Uses TLS to the endpoints of a cluster, and verifies their certificates. `connect_timeout` limits the connection and
/// its handshake together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "ca_file": "write `ca`",
    "cert": "write `certificate: { chain: FILE, key: FILE }`",
    "insecure_skip_verify": "write `verify: off`",
    "sni": "write `server_name`",
    "ciphers": "write `cipher_suites`",
    "trusted_ca": "write `ca`",
}))]
pub struct ClusterTls {
    /// The server name (SNI) that is sent to endpoints, and that their certificates must contain unless `names` is set.
    /// Without both, each endpoint's certificate must contain its address. An endpoint on a unix socket has no address,
    /// so it needs one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Names, one of which an endpoint's certificate must contain: host names, or URIs such as
    /// `spiffe://example.org/ns/shop/sa/api`, which may end with `*`. Empty: `server_name`, or the address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The CA of the endpoints: a PEM file of CA certificates, relative to the folder of the configuration, and
    /// watched. Absent: the CAs that the system trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The PEM file with certificate revocation lists (CRLs). It must contain a current list of each CA between an
    /// endpoint and `ca`: a certificate whose CA has no list is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<String>,
    /// Whether the certificates of endpoints are verified.
    pub verify: Verify,
    /// The client certificate, for endpoints that request one. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateFiles>,
    /// The oldest version of TLS.
    pub min_version: Version,
    /// The newest version of TLS.
    pub max_version: Version,
    /// Cipher suites in order of preference. If none of a TLS version is listed, all of that version are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub cipher_suites: Option<Vec<CipherSuite>>,
    /// Key exchange groups in order of preference. Absent: X25519 with ML-KEM-768 (which protects recorded traffic from
    /// future quantum computers), x25519, secp256r1 and secp384r1.
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
            min_version: Version(defaults::TLS_MIN_VERSION),
            max_version: Version(defaults::TLS_MAX_VERSION),
            cipher_suites: None,
            groups: None,
        }
    }
}

/// Whether the certificates of endpoints are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verify {
    /// Certificates are verified.
    #[default]
    On,
    /// Any certificate is accepted, so that an attacker on the path can read and change all data.
    Off,
}

const fn min_version() -> Version {
    Version(defaults::TLS_MIN_VERSION)
}

const fn max_version() -> Version {
    Version(defaults::TLS_MAX_VERSION)
}

const fn session_tickets() -> bool {
    // They cost a client nothing that it did not give away with its first handshake.
    true
}
