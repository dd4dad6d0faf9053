//! A tree read into types through serde. What was cut counts as absent.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};

use super::{Entry, Node, Scalar, Value};
use crate::findings::Position;

/// Reads `node` into a type.
pub(crate) fn deserialize<T: DeserializeOwned>(node: &Node) -> Result<T, Mismatch> {
    T::deserialize(Reader(node))
}

/// What a type does not accept. The shape of a type is checked before, so that this is only seen
/// where a type accepts less than its schema says.
#[derive(Debug)]
pub(crate) struct Mismatch {
    pub(crate) at: Option<Position>,
    /// Whether it is about a stand-in, hence not the file's mistake.
    pub(crate) is_about_stand_in: bool,
    pub(crate) message: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mismatch {}

impl serde::de::Error for Mismatch {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { at: None, is_about_stand_in: false, message: message.to_string() }
    }

    // Without the value, which may be a secret.

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("{expected} is needed here"))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("{expected} is needed here"))
    }
}

impl Mismatch {
    /// The innermost node that a type did not accept is where the mistake is.
    fn or_at(mut self, node: &Node) -> Self {
        if self.at.is_none() {
            self.at = Some(node.at);
            self.is_about_stand_in = node.is_stand_in;
        }
        self
    }
}

#[derive(Clone, Copy)]
struct Reader<'a>(&'a Node);

impl<'a> Reader<'a> {
    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.0.value {
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Map(entries) => visitor.visit_map(Entries { rest: entries.iter(), value: None }),
            Value::Cut => visitor.visit_unit(),
            Value::Scalar { .. } => match self.0.scalar() {
                None | Some(Scalar::Null) => visitor.visit_unit(),
                Some(Scalar::Bool(value)) => visitor.visit_bool(value),
                Some(Scalar::Float(value)) => visitor.visit_f64(value),
                Some(Scalar::Text(text)) => visitor.visit_str(text),
                Some(Scalar::Integer(value)) => {
                    match (u64::try_from(value), i64::try_from(value)) {
                        (Ok(value), _) => visitor.visit_u64(value),
                        (_, Ok(value)) => visitor.visit_i64(value),
                        _ => visitor.visit_i128(value),
                    }
                }
            },
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.visit(visitor).map_err(|error| error.or_at(self.0))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.0.scalar() {
            Some(Scalar::Null) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self).map_err(|error| error.or_at(self.0))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let result = match (&self.0.value, self.0.entries()) {
            (Value::Scalar { text, .. }, _) => {
                let text: StrDeserializer<'_, Mismatch> = text.as_ref().into_deserializer();
                visitor.visit_enum(text)
            }
            (_, [entry]) => visitor.visit_enum(Variant(entry)),
            _ => Err(serde::de::Error::custom("one name, or a map with one key, is expected")),
        };
        result.map_err(|error| error.or_at(self.0))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// Reads a value within another. A type that refuses it only after it was read, as with
/// `try_from`, refuses this value and not what is around it.
fn read<'de, T: DeserializeSeed<'de>>(seed: T, node: &Node) -> Result<T::Value, Mismatch> {
    seed.deserialize(Reader(node)).map_err(|error| error.or_at(node))
}

struct Items<'a>(std::slice::Iter<'a, Node>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Mismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Mismatch> {
        let next = self.0.find(|item| !item.is_cut());
        next.map(|item| read(seed, item)).transpose()
    }
}

struct Entries<'a> {
    rest: std::slice::Iter<'a, Entry>,
    value: Option<&'a Node>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Mismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Mismatch> {
        let Some(entry) = self.rest.find(|entry| !entry.value.is_cut()) else { return Ok(None) };
        self.value = Some(&entry.value);
        let key: StrDeserializer<'_, Mismatch> = entry.key.as_ref().into_deserializer();
        let at = |mut error: Mismatch| {
            error.at.get_or_insert(entry.key_at);
            error
        };
        seed.deserialize(key).map(Some).map_err(at)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mismatch> {
        match self.value.take() {
            Some(value) => read(seed, value),
            None => Err(serde::de::Error::custom("a value was asked for before its key")),
        }
    }
}

struct Variant<'a>(&'a Entry);

impl<'a, 'de> EnumAccess<'de> for Variant<'a> {
    type Error = Mismatch;
    type Variant = Content<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Content<'a>), Mismatch> {
        let key: StrDeserializer<'_, Mismatch> = self.0.key.as_ref().into_deserializer();
        Ok((seed.deserialize(key)?, Content(&self.0.value)))
    }
}

/// What stands behind the name of a variant.
struct Content<'a>(&'a Node);

impl<'de> VariantAccess<'de> for Content<'_> {
    type Error = Mismatch;

    fn unit_variant(self) -> Result<(), Mismatch> {
        serde::Deserialize::deserialize(Reader(self.0))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Mismatch> {
        read(seed, self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Mismatch> {
        Reader(self.0).deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        Reader(self.0).deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::findings::Findings;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        name: String,
        count: u8,
        #[serde(default)]
        pairs: BTreeMap<String, f64>,
        #[serde(default)]
        list: Vec<Kind>,
        optional: Option<bool>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Plain,
        Newtype(i64),
        Tuple(u8, u8),
        Struct { a: u8 },
    }

    fn tree(text: &str) -> Node {
        super::super::read(text, "", &mut Findings::new("f", text)).unwrap()
    }

    #[test]
    fn every_kind_of_type_is_read() {
        let text = "{name: x, count: 255, pairs: {a.b: 1.5, c: 2}, optional: true,
            list: [plain, newtype: -3, tuple: [1, 2], struct: {a: 1}, newtype: -18446744073709551615]}";
        let error = deserialize::<Sample>(&tree(text)).unwrap_err();
        assert_eq!(error.at, Some(Position { line: 2, column: 80 }), "{error}");

        let mut root = tree(text);
        let Value::Map(entries) = &mut root.value else { panic!() };
        let Value::List(items) = &mut entries[4].value.value else { panic!() };
        items[4].value = Value::Cut;
        let sample: Sample = deserialize(&root).unwrap();
        assert_eq!(sample.list.len(), 4);
        assert_eq!(sample.list[3], Kind::Struct { a: 1 });
        assert_eq!(sample.pairs["a.b"], 1.5);
    }

    #[test]
    fn a_mismatch_is_placed_at_the_innermost_value() {
        for (text, line, column) in [
            ("name: x\ncount: 256\n", 2, 8),
            ("name: x\ncount: 1\nlist: [plain, other]\n", 3, 15),
            ("name: x\ncount: 1\nextra: 1\n", 3, 1),
            ("name: x\n", 1, 1),
        ] {
            let error = deserialize::<Sample>(&tree(text)).unwrap_err();
            assert_eq!(error.at, Some(Position { line, column }), "{text}: {error}");
        }
    }
}
