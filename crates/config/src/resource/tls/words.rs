//! How the words of `tls` are written, and how JSON Schema describes them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::resource::tls::file::{CipherSuite, Group, Version};

/// What is written by one of a few names, each of them as it is shown.
macro_rules! named {
    ($($type:ident: $title:literal, $doc:literal;)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map(Self).map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                $title.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let names = tls::$type::ALL.map(|known| known.to_string());
                json_schema!({ "type": "string", "enum": names, "description": $doc })
            }
        }
    )*};
}

named! {
    CipherSuite: "CipherSuite", "A cipher suite, by its name in IANA's registry.";
    Group: "Group", "A group for the key exchange, by its name in IANA's registry.";
}

impl JsonSchema for Version {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let each = tls::Version::ALL.map(|version| {
            let number = serde_json::json!(version);
            let description = format!("TLS {}.", number.as_str().unwrap_or_default());
            json_schema!({ "type": "string", "const": number, "description": description })
        });
        json_schema!({
            "description": "A version of TLS. Older ones are not supported.",
            "oneOf": each,
        })
    }
}
