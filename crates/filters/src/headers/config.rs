//! What the file says about the filter.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sets, appends and removes header fields of requests, before they are routed, and of responses, be they
/// an upstream's or Strait's own (direct responses, redirects, replies to failures). What concerns the next hop only (`connection`, `upgrade`,
/// `transfer-encoding` and the like) and `content-length` are Strait's own and cannot be edited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeadersConfig {
    /// Edits of a request's head.
    pub request: EditsConfig,
    /// Edits of a response's head.
    pub response: EditsConfig,
}

/// Edits of one kind of head. First fields are removed, then set, then appended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EditsConfig {
    /// Name and value of fields that replace all fields of the same name, or are added.
    #[schemars(extend("x-literal" = true))]
    pub set: BTreeMap<String, String>,
    /// Name and value of fields that are added to those there are.
    #[schemars(extend("x-literal" = true))]
    pub append: BTreeMap<String, String>,
    /// Names of fields that are removed.
    pub remove: Vec<String>,
}
