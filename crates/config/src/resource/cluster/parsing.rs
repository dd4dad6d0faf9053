//! `response_parsing` of a cluster: the words are those that the codec has, with what they are for operators.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use wire::h1::Parsing;

/// How strictly responses are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResponseParsing(pub Parsing);

impl Default for ResponseParsing {
    fn default() -> Self {
        Self(Parsing::Tolerant)
    }
}

impl JsonSchema for ResponseParsing {
    fn schema_name() -> Cow<'static, str> {
        "ResponseParsing".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let each = [Parsing::Strict, Parsing::Tolerant].map(|parsing| {
            let description = description(parsing);
            json_schema!({ "description": description, "type": "string", "const": parsing })
        });
        json_schema!({ "description": "How strictly responses are parsed.", "oneOf": each })
    }
}

/// What the reference says of a word.
const fn description(parsing: Parsing) -> &'static str {
    match parsing {
        Parsing::Strict => "Only responses that conform to RFC 9112 are accepted.",
        Parsing::Tolerant => {
            "Deviations with only one possible meaning are accepted, too: heads whose lines all end with a bare LF, several\n\
             spaces before the status, an extra empty line after an interim response, `chunked` in HTTP/1.0, spaces after the\n\
             size of a chunk, and trailers such as `date` or `content-length`, which are not forwarded."
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_words_of_the_codec_are_what_may_be_written() {
        for (word, parsing) in [("strict", Parsing::Strict), ("tolerant", Parsing::Tolerant)] {
            let read: ResponseParsing = serde_json::from_value(json!(word)).unwrap();
            assert_eq!((read.0, json!(read)), (parsing, json!(word)));
            let schema = json!(schemars::schema_for!(ResponseParsing));
            let words = schema["oneOf"].as_array().unwrap().iter().map(|it| &it["const"]);
            assert_eq!(words.filter(|it| **it == json!(word)).count(), 1);
        }
        assert!(serde_json::from_value::<ResponseParsing>(json!("Strict")).is_err());
    }
}
