//! Names of RPC protocols, as the configuration has them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a protocol's name at most.
const NAME_BYTES_MAX: usize = 15;

/// The name of an RPC protocol: lower-case letters and digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RpcName {
    /// Filled up with zeroes.
    bytes: [u8; NAME_BYTES_MAX],
}

impl RpcName {
    /// The name `text`, or `None` if it is no such name.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_word = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit();
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        (!text.is_empty() && text.bytes().all(is_word)).then_some(Self { bytes })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().position(|octet| *octet == 0).unwrap_or(NAME_BYTES_MAX);
        str::from_utf8(self.bytes.get(..end).unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Debug for RpcName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for RpcName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for RpcName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RpcName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).ok_or_else(|| serde::de::Error::custom("no protocol is called so"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_words() {
        for (text, is_name) in [
            ("bolt", true),
            ("a23456789012345", true),
            ("a234567890123456", false),
            ("", false),
            ("Bolt", false),
            ("tri-ple", false),
            ("b\0", false),
        ] {
            let name = RpcName::new(text);
            assert_eq!(name.is_some(), is_name, "{text}");
            assert!(name.is_none_or(|name| name.as_str() == text), "{text}");
        }
    }
}
