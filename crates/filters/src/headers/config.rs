//! What the file says about the filter.

use std::collections::BTreeMap;

use config::edits::EditsKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sets, appends and removes header fields of requests, before they are routed, and of responses, be they
/// an upstream's or Strait's own (direct responses, redirects, replies to failures). What concerns the next hop only (`connection`, `upgrade`,
/// `transfer-encoding` and the like) and `content-length` are Strait's own and cannot be edited. Values are texts: operators are for `headers` in
/// `routes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeadersConfig {
    /// Edits of a request's head.
    pub request: EditsConfig,
    /// Edits of a response's head.
    pub response: EditsConfig,
}

/// Edits of one kind of head, in the order of the keys here: first fields are removed, in the end some are appended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EditsConfig {
    /// Names of fields that are removed.
    pub remove: Vec<String>,
    /// Name and value of fields that replace all fields of the same name, or are added.
    #[schemars(extend("x-literal" = true))]
    pub set: BTreeMap<String, String>,
    /// The same where there is such a field; else nothing is done.
    #[schemars(extend("x-literal" = true))]
    pub set_if_present: BTreeMap<String, String>,
    /// Name and value of fields that are added to those there are.
    #[schemars(extend("x-literal" = true))]
    pub append: BTreeMap<String, String>,
    /// The same where there is no such field; else nothing is done.
    #[schemars(extend("x-literal" = true))]
    pub append_if_absent: BTreeMap<String, String>,
}

impl From<EditsConfig> for EditsKey {
    fn from(config: EditsConfig) -> Self {
        let EditsConfig { remove, set, set_if_present, append, append_if_absent } = config;
        Self { remove, set, set_if_present, append, append_if_absent }
    }
}
