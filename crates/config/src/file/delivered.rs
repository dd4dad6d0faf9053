//! What sources other than the file deliver and a file has in another form.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use super::RouteTable;

/// Virtual hosts that listeners name together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Name, used by listeners in `routes`. Unique among route configurations and the file's route tables.
    pub name: String,
    /// Each as an entry of `routes`. In metrics and logs it has the name of both, with `/` between.
    pub virtual_hosts: Vec<RouteTable>,
}

/// A certificate with its key, or authorities with what they have revoked. Where listeners and clusters of other
/// sources name a file, they write `secret:NAME`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    /// Name, used by listeners and clusters. Unique among secrets.
    pub name: String,
    /// A certificate with those behind it, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// The key of the certificate, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = true))]
    pub key: Option<String>,
    /// Authorities, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Lists of what these have revoked, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<String>,
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).finish_non_exhaustive()
    }
}
