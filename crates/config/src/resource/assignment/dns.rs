//! Host names in the place of addresses: how they are written, and what an answer has.
//!
//! This crate asks no DNS server: the control path does, and hands answers over
//! ([`crate::load::Loader::prepare_answers`]). Clusters that name the same host in the same way share an answer.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::{Address, without_braces};
use crate::findings::Problem;

/// Characters of a host name, without a dot at its end (RFC 1035, section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// Characters between two dots of it.
const LABEL_BYTES_MAX: usize = 63;

/// How a list of endpoints writes one, for JSON Schema.
pub(crate) const ENDPOINT_PATTERN: &str =
    r"^(unix:/.+|\[[0-9A-Fa-f:.]+\]:[0-9]+|[0-9A-Za-z._-]+:[0-9]+)$";

/// How the addresses of a name are used.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DnsMode {
    /// Each address is an endpoint. An address that an answer no longer contains gets no new requests.
    #[default]
    Strict,
    /// New connections use the first address. Connections to previous addresses stay in use until they close.
    Logical,
    /// The name has SRV records: each address of each target is an endpoint, with the port, weight and priority of the
    /// record.
    Srv,
}

/// Which addresses of a name are queried.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DnsFamily {
    /// All addresses; IPv4 first.
    #[default]
    All,
    /// IPv4 (A records).
    V4,
    /// IPv6 (AAAA records).
    V6,
    /// IPv4, or IPv6 if there are no IPv4 addresses.
    PreferV4,
    /// IPv6, or IPv4 if there are no IPv6 addresses.
    PreferV6,
}

impl DnsFamily {
    /// Whether the name is asked for IPv4 addresses.
    #[must_use]
    pub const fn asks_v4(self) -> bool {
        !matches!(self, Self::V6)
    }

    /// Whether the name is asked for IPv6 addresses.
    #[must_use]
    pub const fn asks_v6(self) -> bool {
        !matches!(self, Self::V4)
    }

    /// Keeps what is used of addresses of both families.
    pub fn select<T>(self, all: &mut Vec<T>, is_v4: impl Fn(&T) -> bool) {
        let only_v4 = match self {
            Self::All => return,
            Self::V4 => true,
            Self::V6 => false,
            Self::PreferV4 => all.iter().any(&is_v4),
            Self::PreferV6 => all.iter().all(&is_v4),
        };
        all.retain(|it| is_v4(it) == only_v4);
    }
}

/// A name that is resolved, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DnsName {
    /// The host, in lower case. With a dot at its end it is absolute; otherwise the machine's search domains
    /// apply to it.
    pub host: Arc<str>,
    /// Where its endpoints listen; none in mode `srv`, whose records say it.
    pub port: Option<NonZeroU16>,
    /// What its addresses are used for.
    pub mode: DnsMode,
    /// Which addresses it is asked for.
    pub family: DnsFamily,
    /// An answer is used for at least so long.
    pub ttl_min: Duration,
    /// An answer is used for at most so long.
    pub ttl_max: Duration,
}

impl DnsName {
    /// The host as certificates have it: without the dot of the root.
    #[must_use]
    pub fn server_name(&self) -> &str {
        self.host.strip_suffix('.').unwrap_or(&self.host)
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

/// One endpoint of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Where it listens. Its port is not 0.
    pub address: SocketAddr,
    /// Its share of the requests; 1 unless the answer says more.
    pub weight: NonZeroU16,
    /// How many priorities of the answer go before its own; 0 unless there are SRV records.
    pub priority: u8,
    /// The host whose address it is: what its certificate is for.
    pub host: Arc<str>,
}

/// What a name stands for: no endpoints, if it does not exist.
pub type DnsAnswer = Arc<[Resolved]>;

/// An endpoint as a list writes it: an address, or a host name with a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EndpointAddress {
    /// It is there.
    Address(Address),
    /// It is where the name leads.
    Host(HostPort),
}

/// A host name with a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The name, in lower case.
    pub host: Arc<str>,
    /// The port.
    pub port: NonZeroU16,
}

impl EndpointAddress {
    /// The address, if it is one.
    #[must_use]
    pub const fn address(&self) -> Option<&Address> {
        match self {
            Self::Address(address) => Some(address),
            Self::Host(_) => None,
        }
    }
}

impl FromStr for EndpointAddress {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        match text.parse() {
            Ok(address) => Ok(Self::Address(address)),
            Err(_) if is_meant_as_name(text) => text.parse().map(Self::Host),
            Err(problem) => Err(url(text).or_else(|| with_weight(text)).unwrap_or(problem)),
        }
    }
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Host(HostPort { host, port }) => write!(f, "{host}:{port}"),
        }
    }
}

impl Serialize for EndpointAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EndpointAddress {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for HostPort {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if let Some(problem) = url(text) {
            return Err(problem);
        }
        if let Some(problem) = without_braces(text) {
            return Err(problem);
        }
        if is_of_records(text) {
            let hint = format!("write `endpoints: {{ dns: {text}, mode: srv }}`");
            return Err(Problem::new("this is a name of SRV records", hint));
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(Problem::new(
                "the port is missing",
                format!("write {text}:80, for instance"),
            ));
        };
        if host.parse::<IpAddr>().is_ok() || host.starts_with('[') {
            let hint = format!("write `endpoints: [{text:?}]`");
            return Err(Problem::new("this is an address, which needs no DNS", hint));
        }
        let host = host_name(host)?;
        let port = port.parse::<u16>().map_err(|_| {
            let hint = format!("write {host}:80, for instance");
            Problem::new("a port is a number from 1 to 65535", hint)
        })?;
        let Some(port) = NonZeroU16::new(port) else {
            let problem =
                Problem::new("nothing can be reached at port 0", "write the endpoint's port");
            return Err(problem);
        };
        Ok(Self { host, port })
    }
}

/// Whether a name was meant by what is no address: it has a letter, and nothing that names have not.
fn is_meant_as_name(text: &str) -> bool {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let is_of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    host.bytes().all(is_of_name)
        && host.bytes().any(|b| b.is_ascii_alphabetic())
        && port.bytes().all(|b| b.is_ascii_digit())
}

/// Whether this is a name of SRV records, by the labels that these begin with. They have the port, so there is none.
pub(crate) fn is_of_records(text: &str) -> bool {
    let mut labels = text.split('.');
    labels.next().is_some_and(|service| service.starts_with('_'))
        && labels.next().is_some_and(|protocol| protocol.starts_with('_'))
        && !text.contains(':')
}

/// What is wrong with an address that is followed by its weight, as nginx has it.
fn with_weight(text: &str) -> Option<Problem> {
    let (address, rest) = text.trim_end_matches(';').split_once(char::is_whitespace)?;
    let weight = rest.split_whitespace().find_map(|word| word.strip_prefix("weight="))?;
    let weight: u16 = weight.parse().ok()?;
    address.parse::<EndpointAddress>().ok()?;
    // Brackets would begin a list.
    let quotes = if address.starts_with('[') { "\"" } else { "" };
    let hint = format!("write {{ address: {quotes}{address}{quotes}, weight: {weight} }}");
    Some(Problem::new("the weight of an endpoint has a key of its own", hint))
}

/// What is wrong with a URL in the place of a host and a port; none if it is no URL.
fn url(text: &str) -> Option<Problem> {
    let (scheme, authority) = scheme_and_authority(text)?;
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let is_tls = matches!(scheme, "https" | "wss" | "grpcs");
    let port = match (has_port, is_tls) {
        (true, _) => "",
        (false, true) => ":443",
        (false, false) => ":80",
    };
    let tls = if is_tls { ", and add `tls: { }` to the cluster" } else { "" };
    let rule = "this is a URL, and a host with a port is needed here";
    Some(Problem::new(rule, format!("write {authority}{port}{tls}")))
}

/// The same in the place of a name of SRV records.
pub(crate) fn url_of_records(text: &str) -> Option<Problem> {
    let (_, authority) = scheme_and_authority(text)?;
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let rule = "this is a URL, and the name of SRV records is needed here";
    Some(Problem::new(rule, format!("write _http._tcp.{host}, for instance")))
}

/// Of a URL.
fn scheme_and_authority(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, behind)| behind);
    Some((scheme, if authority.is_empty() { "api.internal" } else { authority }))
}

/// A name that DNS can be asked for, in lower case. Underscores are allowed: names of containers and of SRV
/// records have them.
///
/// # Errors
///
/// What is wrong with it, and what may have been meant.
pub fn host_name(text: &str) -> Result<Arc<str>, Problem> {
    let plain = text.strip_suffix('.').unwrap_or(text);
    if plain.parse::<IpAddr>().is_ok() {
        let hint = "write `endpoints: [ADDRESS:PORT]`";
        return Err(Problem::new("this is an address, which needs no DNS", hint));
    }
    if !text.is_ascii() {
        let hint = "write its form for DNS, which begins with xn--";
        return Err(Problem::new("a host name has letters of ASCII only", hint));
    }
    if plain.len() > HOST_BYTES_MAX {
        let rule = format!("a host name has at most {HOST_BYTES_MAX} characters");
        return Err(Problem::new(rule, "write a shorter name"));
    }
    let is_sound = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !plain.split('.').all(is_sound) {
        let rule = format!(
            "between the dots of a host name stand 1 to {LABEL_BYTES_MAX} letters, digits, - and _"
        );
        return Err(Problem::new(rule, "write a name such as api.internal"));
    }
    Ok(text.to_ascii_lowercase().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_addresses_and_names_and_says_what_else_was_meant() {
        for (text, shown) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("API.internal:8080", "api.internal:8080"),
            ("localhost:80", "localhost:80"),
            ("my_service:80", "my_service:80"),
            ("api.example.com.:443", "api.example.com.:443"),
        ] {
            assert_eq!(text.parse::<EndpointAddress>().unwrap().to_string(), shown);
        }
        for (text, hint) in [
            ("localhost", "write localhost:80, for instance"),
            ("api.internal:0", "write the endpoint's port"),
            ("api.internal:65536", "write api.internal:80, for instance"),
            ("-api:80", "write a name such as api.internal"),
            ("a..b:80", "write a name such as api.internal"),
            ("256.0.0.1:80", "write 127.0.0.1:80, [::1]:80 or unix:/run/app.sock"),
            ("127.0.0.1", "write 127.0.0.1:80, for instance"),
            ("::1:8080", "write [::1]:8080, or [::1:8080]:80 if the port is missing"),
            ("http://api:80", "write api:80"),
            ("http://api.internal/v1", "write api.internal:80"),
            ("http://10.0.0.1", "write 10.0.0.1:80"),
            ("HTTP://[::1]/", "write [::1]:80"),
            (
                "https://a@api.internal?x",
                "write api.internal:443, and add `tls: { }` to the cluster",
            ),
            ("http://", "write api.internal:80"),
            ("127.0.0.1:90 weight=5", "write { address: 127.0.0.1:90, weight: 5 }"),
            ("api:90  max_fails=2 weight=5;", "write { address: api:90, weight: 5 }"),
            ("[::1]:90 weight=5", "write { address: \"[::1]:90\", weight: 5 }"),
            ("127.0.0.1:90 weight=x", "write 127.0.0.1:80, for instance"),
            ("api:$PORT", "write api:${PORT}"),
            ("_http._tcp.x", "write `endpoints: { dns: _http._tcp.x, mode: srv }`"),
            ("_http.x", "write _http.x:80, for instance"),
        ] {
            assert_eq!(text.parse::<EndpointAddress>().unwrap_err().hint, hint, "{text}");
        }
    }

    #[test]
    fn a_host_name_fits_into_a_question() {
        let label = "a".repeat(LABEL_BYTES_MAX);
        let long = [label.as_str(); 4].join(".");
        assert_eq!(long.len(), 255);
        for (name, is_sound) in [
            (label.as_str(), true),
            (&format!("{label}a"), false),
            (&long[..HOST_BYTES_MAX], true),
            (&format!("{}.", &long[..HOST_BYTES_MAX]), true),
            (&long[1..], false),
            ("", false),
            (".", false),
            ("10.0.0.1", false),
            ("10.0.0.1.", false),
            ("::1", false),
            ("b\u{fc}cher.example", false),
            ("a\u{7}b", false),
            ("a b", false),
            ("_http._tcp.legacy.internal", true),
        ] {
            assert_eq!(host_name(name).is_ok(), is_sound, "{name:?}");
        }
    }
}
