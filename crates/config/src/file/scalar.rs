//! Scalars with a form of their own, and how JSON Schema describes them.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::address::{ADDRESS_PATTERN, Address};
use crate::cidr::Cidr;
use crate::resource::assignment::dns::{ENDPOINT_PATTERN, EndpointAddress};
use crate::units::{PERIOD_PATTERN, Period, SIZE_PATTERN, Size};

/// A duration that bounds a wait: 1 ms to 24 h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeout(pub Period);

impl From<Timeout> for Duration {
    fn from(timeout: Timeout) -> Self {
        timeout.0.0
    }
}

/// A bound, or the word `none` for no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrNone<T> {
    /// No bound.
    #[default]
    None,
    /// This bound.
    Some(T),
}

impl<T: Serialize> Serialize for OrNone<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str(NONE),
            Self::Some(value) => value.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrNone<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written<T> {
            Word(Word),
            Value(T),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Word {
            None,
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Word(Word::None) => Self::None,
            Written::Value(value) => Self::Some(value),
        })
    }
}

const NONE: &str = "none";

impl JsonSchema for Period {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PERIOD_PATTERN, "x-format": "duration" })
    }
}

impl JsonSchema for Timeout {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Timeout".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Period::json_schema(generator);
        schema.insert("x-minimum".to_owned(), "1ms".into());
        schema.insert("x-maximum".to_owned(), "24h".into());
        schema
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "pattern": SIZE_PATTERN,
            "minimum": 0,
            "x-format": "size",
        })
    }
}

impl JsonSchema for Address {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": ADDRESS_PATTERN, "x-format": "address" })
    }
}

impl JsonSchema for EndpointAddress {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "EndpointAddress".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": ENDPOINT_PATTERN, "x-format": "endpoint" })
    }
}

impl JsonSchema for Cidr {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Range".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "x-format": "range" })
    }
}

impl<T: JsonSchema> JsonSchema for OrNone<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}OrNone", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        let pattern = schema.get("pattern").and_then(|pattern| pattern.as_str());
        let pattern = format!("^none$|{}", pattern.unwrap_or_default());
        schema.insert("pattern".to_owned(), pattern.into());
        schema.insert("x-none".to_owned(), true.into());
        schema
    }
}
