//! What sources other than the file deliver of a secret.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

/// A certificate with its key, CAs with their revocation lists, or a session ticket key. Where the file has the path of
/// a file, listeners and clusters of other sources have `secret:NAME`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    /// Name, used by listeners and clusters. Unique among secrets.
    pub name: String,
    /// A certificate and its intermediate certificates, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// The private key of the certificate, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = true))]
    pub key: Option<String>,
    /// CA certificates, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Certificate revocation lists of these CAs, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<String>,
    /// A stapled OCSP response: DER, as base64 between the lines `BEGIN OCSP RESPONSE` and `END OCSP RESPONSE`, as in
    /// PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ocsp: Option<String>,
    /// A session ticket key of at least 32 bytes: base64 between the lines `BEGIN TICKET KEY` and `END TICKET KEY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = true))]
    pub ticket_key: Option<String>,
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.key.zeroize();
        self.ticket_key.zeroize();
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).finish_non_exhaustive()
    }
}
