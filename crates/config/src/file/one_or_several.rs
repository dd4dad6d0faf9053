//! Keys that take one value or a list of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One or a list of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrSeveral<T> {
    /// A single value.
    One(T),
    /// Several.
    Several(#[schemars(length(min = 1))] Vec<T>),
}

impl<T> OneOrSeveral<T> {
    /// All of them.
    #[must_use]
    pub const fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several.as_slice(),
        }
    }
}
