//! `routes[].rules[].match`: which requests a rule is for.
//!
//! A rule has one criterion on the path, by which [`crate::resource::route::paths`] finds it, and any number of others, all of
//! which have to be met. The data path and `strait explain` ask the same [`Criterion::is_met`]. Names and meanings are
//! Envoy's; docs/configuration/routing.md lists the differences.

pub(crate) mod build;

mod cookies;
mod path;
mod query;
mod regexes;
mod template;
mod value;

pub use path::{PathKind, PathMatch};
pub(crate) use regexes::{Patterns, parse_part, whole};
pub use regexes::{REGEX_BYTES_MAX, REGEXES_BYTES_MAX, Regexes, SEARCH_BYTES_MAX, Searches};
pub use template::Template;
pub(crate) use value::build as build_value;
pub use value::{Case, Not, NotMap, Value, ValueKey, ValueMap};

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tls::PeerCertificate;
use wire::grpc::{GrpcVariant, is_grpc};
use wire::head::{Known, RequestHead};

use crate::cidr::Cidr;
use crate::percent::Percent;
use crate::printable::Printable;
use crate::resource::route::clients::ClientMatch;
use crate::resource::runtime::Fraction;
use crate::secrets::{MASK, is_secret_name};

/// A condition on the path (one of `path`, `prefix`, `segments`, `regex` and `template`) and other conditions on the
/// request. All of them must match. Paths are compared after normalisation, without the query; `%2F` stays encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["path"]}, {"required": ["prefix"]}, {"required": ["segments"]},
    {"required": ["regex"]}, {"required": ["template"]},
]))]
pub struct Match {
    /// The whole path. `*` is the target of a server-wide `OPTIONS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Box<str>>,
    /// The beginning of the path, byte by byte: `/api` matches `/apix`, `/api/` does not. `/` matches everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Box<str>>,
    /// The first segments of the path: `/tenant` matches `/tenant` and `/tenant/x`, but not `/tenantx`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<Box<str>>,
    /// A regular expression that must match the whole path, in linear time. The path is normalised: `%7E` is `~`, and
    /// `%2f` is `%2F`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<Box<str>>,
    /// A pattern for the whole path: `*` for the characters between two slashes, `**` for the remaining path; `{name}`,
    /// `{name=*}` and `{name=**}` for the same with a name that `rewrite` can use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Box<str>>,
    /// Whether the case of ASCII letters matters in `path`, `prefix` or `segments`.
    #[serde(skip_serializing_if = "value::is_default")]
    pub case: Case,
    /// Methods: a list, or `not: [...]`. `GET` does not include `HEAD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub methods: Option<Box<Listed<String>>>,
    /// Header fields by name, each with a text that the value must equal, or a map. Several fields with one name are
    /// joined by `,`. Only `present: false` matches a missing field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, ValueKey>,
    /// Query parameters by name, as `headers`. Names and values are decoded (percent-encoding and `+`); the first of
    /// several with one name counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, ValueKey>,
    /// Cookies by name, as `headers`. Quotes around a value are ignored; the first of several with one name counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-public" = true))]
    pub cookies: BTreeMap<String, ValueKey>,
    /// Address ranges of clients: a list, or `not: [...]`. With `http.trusted_hops` the client is the one that the
    /// trusted proxies name. A client on a unix socket has no address, and matches neither form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<Box<Listed<Cidr>>>,
    /// Names, one of which the client's certificate must contain: host names, addresses, or URIs such as
    /// `spiffe://example.org/ns/shop/sa/web`, which may end with `*`; `"*"` matches every certificate. `tls.client` of
    /// the listener or filter chain must have verified the certificate. Absent: the rule matches every client.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub client: Option<Vec<String>>,
    /// Whether the request is a gRPC call, according to its `content-type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<bool>,
    /// The share of requests that the rule matches. Strait draws one random number for each request, so two rules with
    /// the same share match the same requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Box<FractionKey>>,
}

/// A list of which one holds, or of which none does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Listed<T> {
    /// One of these.
    Any(#[schemars(length(min = 1))] Vec<T>),
    /// None of these.
    None(NotListed<T>),
}

/// An inverted list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotListed<T> {
    /// Values that must not match.
    #[schemars(length(min = 1))]
    pub not: Vec<T>,
}

impl<T> Listed<T> {
    /// The list, and whether it is inverted.
    pub(crate) fn parts(&self) -> (&[T], bool) {
        match self {
            Self::Any(list) => (list, false),
            Self::None(listed) => (&listed.not, true),
        }
    }
}

/// A share of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FractionKey {
    /// The share, 0 to 100, with up to four decimals.
    pub percent: Percent,
    /// The runtime value that replaces `percent`: its name under `runtime`, or in the admin interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
}

/// A request, as criteria see it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'r> {
    /// Its head, with the path in its normal form.
    pub head: &'r RequestHead<'r>,
    /// The client's address: the one that trusted hops name, or else the connection's.
    pub source: Option<IpAddr>,
    /// The client's certificate, if one was checked.
    pub client: Option<&'r PeerCertificate>,
    /// The request's random number, for all fractions.
    pub die: u64,
}

/// A condition on something else than the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// The method is one of these, or none of them.
    Methods {
        /// As requests have them.
        methods: Box<[Box<str>]>,
        /// Whether it is none of them.
        is_inverted: bool,
    },
    /// A value that the request has under a name.
    Value(Place, Value),
    /// The client's address is in one of these ranges, or in none.
    Sources {
        /// The ranges.
        ranges: Box<[Cidr]>,
        /// Whether it is in none.
        is_inverted: bool,
    },
    /// The client's certificate has one of these names.
    Client(ClientMatch),
    /// Whether it is a call of gRPC.
    Grpc(bool),
    /// The die falls within this share.
    Fraction(Fraction),
}

/// Where in a request a value stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the fields with this name, which is in lower case.
    Header(Box<str>),
    /// In the query's first parameter with this name.
    Query(Box<str>),
    /// In the first cookie with this name.
    Cookie(Box<str>),
}

impl Criterion {
    /// Whether the request meets it. `searches` is the worker's, `regexes` the table's.
    pub fn is_met(
        &self,
        asked: &Asked<'_>,
        regexes: &Arc<Regexes>,
        searches: &mut Searches,
    ) -> bool {
        match self {
            Self::Methods { methods, is_inverted } => {
                let method = asked.head.method_bytes();
                methods.iter().any(|known| known.as_bytes() == method) != *is_inverted
            }
            Self::Value(place, value) => {
                let mut text = searches.take_text();
                let is_met = value.is_met(place.find(asked.head, &mut text), regexes, searches);
                searches.give_back_text(text);
                is_met
            }
            // Without an address neither answer is known.
            Self::Sources { ranges, is_inverted } => asked.source.is_some_and(|source| {
                let source = source.to_canonical();
                ranges.iter().any(|range| range.contains(source)) != *is_inverted
            }),
            Self::Client(client) => client.is_met_by(asked.client),
            Self::Grpc(is_asked) => is_call(asked.head) == *is_asked,
            Self::Fraction(fraction) => fraction.now().holds(asked.die),
        }
    }

    /// What the request has where it should meet this, for `strait explain`.
    #[must_use]
    pub fn seen(&self, asked: &Asked<'_>) -> String {
        match self {
            Self::Methods { .. } => shown(asked.head.method_bytes()),
            Self::Value(place, _) => match place.find(asked.head, &mut Vec::new()) {
                Some(value) => shown(value),
                None => "absent".to_owned(),
            },
            Self::Sources { .. } => {
                asked.source.map_or_else(|| "unknown".to_owned(), |ip| ip.to_string())
            }
            Self::Client(_) => match asked.client {
                Some(client) => client_names(client),
                None => "no certificate".to_owned(),
            },
            Self::Grpc(_) => match asked.head.field(Known::ContentType) {
                Some(value) => format!("content-type {}", shown(value)),
                None => "no content-type".to_owned(),
            },
            Self::Fraction(fraction) => {
                let die = Percent::of_die(asked.die);
                match fraction.runtime {
                    Some(_) => format!("the random number {die}, and {}", fraction.shown()),
                    None => format!("the random number {die}"),
                }
            }
        }
    }
}

impl Place {
    /// The value there. What has to be put together or decoded is written to `text`.
    pub fn find<'v>(&self, head: &'v RequestHead<'_>, text: &'v mut Vec<u8>) -> Option<&'v [u8]> {
        match self {
            Self::Header(name) => joined(head, name.as_bytes(), text),
            Self::Query(name) => query::find(head.query()?, name.as_bytes(), text),
            Self::Cookie(name) => {
                let mut fields = head.fields_named(Known::Cookie);
                fields.find_map(|field| cookies::find(field, name.as_bytes()))
            }
        }
    }
}

/// The value of all fields of this name, joined by commas (RFC 9110, section 5.3).
fn joined<'v>(head: &'v RequestHead<'_>, name: &[u8], text: &'v mut Vec<u8>) -> Option<&'v [u8]> {
    let mut values = head.find_all(name);
    let first = values.next()?;
    let Some(second) = values.next() else { return Some(first) };
    text.clear();
    text.extend_from_slice(first);
    for value in [second].into_iter().chain(values) {
        text.push(b',');
        text.extend_from_slice(value);
    }
    Some(text)
}

fn is_call(head: &RequestHead<'_>) -> bool {
    let variant = head.field(Known::ContentType).and_then(is_grpc);
    variant == Some(GrpcVariant::Grpc)
}

/// Characters of a value that are shown.
const SHOWN_CHARS_MAX: usize = 80;

/// A peer's bytes, quoted and shortened.
fn shown(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

fn client_names(client: &PeerCertificate) -> String {
    let names = client.uris.iter().chain(&client.dns_names).chain(&client.addresses);
    let names: Vec<&str> = names.map(AsRef::as_ref).collect();
    if names.is_empty() { "a certificate without names".to_owned() } else { names.join(", ") }
}

impl Place {
    /// Whether what stands there is taken for a secret.
    fn is_secret(&self) -> bool {
        match self {
            Self::Header(name) | Self::Query(name) => is_secret_name(name),
            Self::Cookie(_) => true,
        }
    }
}

impl Criterion {
    /// In one line, for metrics and the admin interface: as it is written, but for values that are taken for secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Value(place, value) if place.is_secret() && !value.asks_only_for_presence() => {
                format!("{place} {MASK}")
            }
            shown => Printable(&shown.to_string()).to_string(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header {name}"),
            Self::Query(name) => write!(f, "query {name}"),
            Self::Cookie(name) => write!(f, "cookie {name}"),
        }
    }
}

impl fmt::Display for Criterion {
    /// In one line, the same for criteria that match the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Methods { methods, is_inverted } => list(f, "method", methods, *is_inverted),
            Self::Value(place, value) => write!(f, "{place} {value}"),
            Self::Sources { ranges, is_inverted } => list(f, "source", ranges, *is_inverted),
            Self::Client(ClientMatch::Anyone) => f.write_str("client anyone"),
            Self::Client(ClientMatch::Named(names)) => list(f, "client", names, false),
            Self::Grpc(true) => f.write_str("grpc"),
            Self::Grpc(false) => f.write_str("not grpc"),
            Self::Fraction(fraction) => write!(f, "{fraction}"),
        }
    }
}

fn list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    all: &[T],
    is_inverted: bool,
) -> fmt::Result {
    write!(f, "{}{what} ", if is_inverted { "not " } else { "" })?;
    for (place, each) in all.iter().enumerate() {
        write!(f, "{}{each}", if place == 0 { "" } else { " or " })?;
    }
    Ok(())
}
