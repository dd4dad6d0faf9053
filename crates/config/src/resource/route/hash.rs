//! `hash` of a rule: what of a request says to which endpoint it goes, where the cluster balances by hash.
//!
//! The values that a request has are put together in their order, so that each of them counts; a value that is absent
//! has no part. As in Envoy, whose hashes these are: a client that Envoy sent to an endpoint goes on there.
//!
//! A cookie that a client does not have yet is made for it: a random value, of which the hash is taken at once, so that
//! this request goes where those that bring the cookie will go.

pub(crate) mod build;

use std::fmt::{self, Write};
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::route::matching::{Asked, Place, Searches};
use crate::units::Period;
use crate::xxhash::xxh64;

/// A value of a request that is part of its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HashKey {
    /// A value without a name.
    Word(HashWord),
    /// A value with a name.
    Value(HashValueKey),
}

/// A value without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HashWord {
    /// The client's address; with `http.trusted_hops` the client that the trusted proxies name.
    ClientIp,
}

/// A value with a name: one of `header`, `cookie`, `query` and `constant`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["header"]}, {"required": ["cookie"]}, {"required": ["query"]}, {"required": ["constant"]},
]))]
pub struct HashValueKey {
    /// A header field; several with one name are joined by `,`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// A cookie.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-public" = true))]
    pub cookie: Option<HashCookie>,
    /// A decoded query parameter; the first of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The same value for all requests: rules with the same constant use the same endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constant: Option<String>,
    /// Whether values after this one are ignored if there is already a hash.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub terminal: bool,
}

/// A cookie that is part of the hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HashCookie {
    /// Name of the cookie.
    pub name: String,
    /// Gives a client without the cookie one with this lifetime; `0s` for a session cookie. Absent: no cookie is
    /// created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Period>,
    /// Path of a created cookie. Absent: the client decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// What says to which endpoint the requests of a rule go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashing {
    parts: Box<[Part]>,
}

/// A value that has a part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) value: PartValue,
    /// Whether those behind it have none once there is a hash.
    pub(crate) is_terminal: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartValue {
    /// What stands there.
    Place(Place),
    /// This cookie, which is made where it is absent.
    Made(Place, MadeCookie),
    ClientIp,
    Constant(Box<str>),
}

/// How a cookie is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeCookie {
    name: Box<str>,
    /// What stands behind the value in `set-cookie`.
    attributes: Box<str>,
}

/// The hash of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hashed {
    /// The hash; none if the request has none of the values.
    pub hash: Option<NonZeroU64>,
    /// The value of the cookie that the client is to be given, if one was made.
    pub cookie: Option<NonZeroU64>,
}

impl Hashing {
    /// Values in their order.
    pub(crate) fn new(parts: Vec<Part>) -> Self {
        Self { parts: parts.into() }
    }

    /// The hash of a request. `random` is asked where a cookie has to be made.
    pub fn hash(
        &self,
        asked: &Asked<'_>,
        searches: &mut Searches,
        mut random: impl FnMut() -> u64,
    ) -> Hashed {
        let mut hash: Option<u64> = None;
        let mut cookie = None;
        let mut text = searches.take_text();
        for part in &self.parts {
            let value = match &part.value {
                PartValue::Place(place) => place.find(asked.head, &mut text).map(hash_of),
                PartValue::Made(place, _) => {
                    let found = place.find(asked.head, &mut text).map(hash_of);
                    Some(found.unwrap_or_else(|| {
                        let made = or_one(random());
                        cookie = Some(made);
                        hash_of(&cookie_value(made))
                    }))
                }
                PartValue::ClientIp => asked.source.map(|source| hash_of_client(source).get()),
                PartValue::Constant(text) => Some(hash_of(text.as_bytes())),
            };
            if let Some(value) = value {
                // Rotated, so that a value which stands twice does not cancel itself.
                hash = Some(hash.map_or(value, |hash| hash.rotate_left(1) ^ value));
            }
            if part.is_terminal && hash.is_some() {
                break;
            }
        }
        searches.give_back_text(text);
        Hashed { hash: hash.map(or_one), cookie }
    }

    /// How the cookie is made that a client may be given.
    #[must_use]
    pub fn made_cookie(&self) -> Option<&MadeCookie> {
        self.parts.iter().find_map(|part| match &part.value {
            PartValue::Made(_, made) => Some(made),
            PartValue::Place(_) | PartValue::ClientIp | PartValue::Constant(_) => None,
        })
    }
}

impl MadeCookie {
    /// Of a name, a time to live that is zero for as long as the browser runs, and a path.
    pub(crate) fn new(name: &str, ttl: Duration, path: Option<&str>) -> Self {
        let ttl = Some(ttl).filter(|ttl| !ttl.is_zero());
        let mut attributes = String::new();
        if let Some(ttl) = ttl {
            attributes.push_str(&format!("; Max-Age={}", ttl.as_secs()));
        }
        if let Some(path) = path {
            attributes.extend(["; Path=", path]);
        }
        attributes.push_str("; HttpOnly");
        Self { name: name.into(), attributes: attributes.into() }
    }

    /// Hands the value of the `set-cookie` field to `take` (RFC 6265, section 4.1). `searches` lends the room for it.
    pub fn with_text(&self, value: NonZeroU64, searches: &mut Searches, take: impl FnOnce(&[u8])) {
        let mut text = searches.take_text();
        text.clear();
        text.extend_from_slice(self.name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(&cookie_value(value));
        text.extend_from_slice(self.attributes.as_bytes());
        take(&text);
        searches.give_back_text(text);
    }
}

/// The hash of one value, the same in each process and version.
#[must_use]
pub fn hash_of(value: &[u8]) -> u64 {
    xxh64(value, 0)
}

/// The hash of a client's address.
#[must_use]
pub fn hash_of_client(client: IpAddr) -> NonZeroU64 {
    let mut text = AddressText { text: [0; 45], len: 0 };
    or_one(hash_of(text.written(client.to_canonical())))
}

/// The value of a cookie that is made.
fn cookie_value(value: NonZeroU64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|place| {
        let digit = value.get() >> (60 - 4 * place) & 0xf;
        DIGITS.get(usize::try_from(digit).unwrap_or_default()).copied().unwrap_or(b'0')
    })
}

fn or_one(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

/// Room for an address as text.
struct AddressText {
    text: [u8; 45],
    len: usize,
}

impl AddressText {
    fn written(&mut self, ip: IpAddr) -> &[u8] {
        // The longest address has room.
        let _ = write!(self, "{ip}");
        self.text.get(..self.len).unwrap_or_default()
    }
}

impl Write for AddressText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.text.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}
