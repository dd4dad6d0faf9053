//! `subsets` of a cluster and `subset` of a rule: endpoints by what they are, and requests by what they ask for.
//!
//! A subset is the endpoints that have the same values under the keys of one entry of `by`. It is known by a hash of
//! these keys and values, so that a request which asks for one keeps a number, whichever configuration its cluster has
//! by the time that it is tried again. Names and meanings are those of Envoy's subsets (`lb_subset_config`).

pub(crate) mod build;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::route::matching::{Asked, Place, Searches};
use crate::xxhash::xxh64;

/// Entries of `by`, at most.
pub(crate) const SELECTORS_MAX: usize = 16;

/// How endpoints form subsets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Subsets {
    /// Lists of keys of `metadata`: endpoints with equal values for all keys of a list form a subset.
    #[schemars(length(min = 1))]
    pub by: Vec<Vec<String>>,
    /// Where requests go that select no subset, or one that does not exist.
    #[serde(default)]
    pub fallback: Fallback,
    /// The subset for `fallback: default`: keys and values of its endpoints.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub default: Metadata,
}

/// Where requests without an existing subset go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// To no endpoint: 503, cause `no_endpoint`.
    #[default]
    None,
    /// To any endpoint of the cluster.
    Any,
    /// To the endpoints that `default` selects.
    Default,
}

/// The value that a rule requires for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SubsetValue {
    /// This value.
    Text(String),
    /// The value of a header field.
    Header(SubsetHeader),
}

/// A value from the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubsetHeader {
    /// The header field. If the request lacks it, the key is ignored.
    pub header: String,
}

/// What a rule asks for, key by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsetAsked {
    /// In the order of the keys.
    parts: Box<[(Box<str>, Wanted)]>,
}

/// A value that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Text(Box<str>),
    Of(Place),
}

/// By which keys a cluster's endpoints make subsets, and what is done where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selectors {
    by: Box<[BTreeSet<String>]>,
    fallback: Fallback,
    default: Metadata,
}

/// What an endpoint is: values by keys.
pub type Metadata = BTreeMap<String, String>;

/// Which endpoints a request asks for: a hash of keys and values.
pub type SubsetHash = NonZeroU64;

impl std::fmt::Display for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Any => "any",
            Self::Default => "default",
        })
    }
}

impl SubsetAsked {
    /// Keys and values, each key once.
    pub(crate) fn new(parts: BTreeMap<Box<str>, Wanted>) -> Self {
        Self { parts: parts.into_iter().collect() }
    }

    /// The subset that a request asks for; none if it asks for no key at all.
    pub fn hash(&self, asked: &Asked<'_>, searches: &mut Searches) -> Option<SubsetHash> {
        let mut text = searches.take_text();
        let mut hash = Hash::default();
        for (key, wanted) in &self.parts {
            match wanted {
                Wanted::Text(value) => hash.add(key, value.as_bytes()),
                Wanted::Of(place) => {
                    if let Some(value) = place.find(asked.head, &mut text) {
                        hash.add(key, value);
                    }
                }
            }
        }
        searches.give_back_text(text);
        hash.finish()
    }
}

impl Selectors {
    pub(crate) fn new(file: &Subsets) -> Self {
        let by = file.by.iter().map(|keys| keys.iter().cloned().collect());
        Self { by: by.collect(), fallback: file.fallback, default: file.default.clone() }
    }

    /// Where a request goes for which there is no subset.
    #[must_use]
    pub const fn fallback(&self) -> Fallback {
        self.fallback
    }

    /// The subsets that an endpoint with this metadata belongs to, each with its keys and values.
    pub(crate) fn of(&self, metadata: &Metadata) -> BTreeMap<SubsetHash, String> {
        let subset = |keys: &BTreeSet<String>| {
            let (mut hash, mut name) = (Hash::default(), String::new());
            for key in keys {
                let value = metadata.get(key)?;
                hash.add(key, value.as_bytes());
                let comma = if name.is_empty() { "" } else { "," };
                name.push_str(&format!("{comma}{key}={value}"));
            }
            Some((hash.finish()?, name))
        };
        self.by.iter().filter_map(subset).collect()
    }

    /// Whether an endpoint with this metadata is one of those of `default`.
    pub(crate) fn is_default(&self, metadata: &Metadata) -> bool {
        self.default.iter().all(|(key, value)| metadata.get(key) == Some(value))
    }
}

/// The hash of keys, in their order, with their values.
#[derive(Default)]
struct Hash(Option<u64>);

impl Hash {
    fn add(&mut self, key: &str, value: &[u8]) {
        // Seeded by what is before it, and the value by its key: what is one and what is the other counts.
        let key = xxh64(key.as_bytes(), self.0.unwrap_or_default());
        self.0 = Some(xxh64(value, key));
    }

    fn finish(self) -> Option<SubsetHash> {
        self.0.map(|hash| NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }
}
