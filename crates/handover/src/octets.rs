//! Bytes as one value, in the same form as a list of them. As a list, each is written, counted and read by itself: 400 bytes of an
//! idle connection of TLS took as long as the system call that brought them. A list that is read also grows, and leaves copies behind.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserializer, Serializer};
use wiped::Wiped;

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Wiped, D::Error> {
    deserializer.deserialize_bytes(Octets)
}

struct Octets;

impl Visitor<'_> for Octets {
    type Value = Wiped;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("octets")
    }

    fn visit_bytes<E>(self, octets: &[u8]) -> Result<Wiped, E> {
        Ok(octets.to_vec().into())
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use wiped::Wiped;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Octets(#[serde(with = "super")] Wiped);

    #[test]
    fn octets_have_the_form_of_a_list() {
        for len in [0, 1, 127, 128, 400, 70_000] {
            let octets: Vec<u8> = (0..=255).cycle().take(len).collect();
            let list = postcard::to_allocvec(&octets).unwrap();
            let octets = Octets(octets.into());
            assert_eq!(postcard::to_allocvec(&octets).unwrap(), list, "{len}");
            assert_eq!(postcard::from_bytes(&list), Ok(octets), "{len}");
            for end in 0..list.len().min(4) {
                let cut = postcard::from_bytes::<Octets>(list.get(..end).unwrap());
                assert!(cut.is_err(), "{end} of {len}");
            }
        }
    }
}
