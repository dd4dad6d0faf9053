//! What the file says about the filter.

use std::collections::BTreeMap;

use config::edits::EditsKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sets, appends and removes header fields of requests, before they are routed, and of responses, both of upstreams and
/// of Strait (direct responses, redirects, replies to failures). Hop-by-hop fields (`connection`, `upgrade`,
/// `transfer-encoding` and others) and `content-length` cannot be edited. Values are texts; only `headers` in `routes`
/// may use operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeadersConfig {
    /// Edits of request heads.
    pub request: EditsConfig,
    /// Edits of response heads.
    pub response: EditsConfig,
}

/// Edits of one kind of head, applied in the order of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EditsConfig {
    /// Names of fields to remove.
    pub remove: Vec<String>,
    /// Names and values of fields that replace all fields of the same name, or are added.
    #[schemars(extend("x-literal" = true))]
    pub set: BTreeMap<String, String>,
    /// The same, only if there is such a field.
    #[schemars(extend("x-literal" = true))]
    pub set_if_present: BTreeMap<String, String>,
    /// Names and values of fields that are added to existing ones.
    #[schemars(extend("x-literal" = true))]
    pub append: BTreeMap<String, String>,
    /// The same, only if there is no such field.
    #[schemars(extend("x-literal" = true))]
    pub append_if_absent: BTreeMap<String, String>,
}

impl From<EditsConfig> for EditsKey {
    fn from(config: EditsConfig) -> Self {
        let EditsConfig { remove, set, set_if_present, append, append_if_absent } = config;
        Self { remove, set, set_if_present, append, append_if_absent }
    }
}
