//! Host name ⇒ value, exact before longest `*.suffix` before longest `prefix.*` before `*`.
//!
//! `*.a.b` matches `x.a.b` and `y.x.a.b`, but neither `a.b` nor `.a.b`; `a.*` matches `a.b` and `a.b.c`, but
//! neither `a` nor `a.`. A look-up allocates
//! nothing and costs one hash for the whole name and one for each label behind a dot, as long as
//! the rest is not longer than the longest suffix or prefix in the table. Neither the number of hosts nor
//! an endless name sent by a peer makes it dearer.

use std::net::Ipv6Addr;
use std::sync::Arc;

use crate::findings::Problem;
use crate::map::Map;

/// What a listener looks a request's host up in.
#[derive(Clone, Debug)]
pub struct HostTable<T> {
    exact: Map<Box<[u8]>, T>,
    /// Keyed without `*.`.
    suffixes: Map<Box<[u8]>, T>,
    suffix_bytes_max: usize,
    /// Keyed without `.*`.
    prefixes: Map<Box<[u8]>, T>,
    prefix_bytes_max: usize,
    any: Option<T>,
}

impl<T> Default for HostTable<T> {
    fn default() -> Self {
        Self {
            exact: Map::default(),
            suffixes: Map::default(),
            suffix_bytes_max: 0,
            prefixes: Map::default(),
            prefix_bytes_max: 0,
            any: None,
        }
    }
}

impl<T: PartialEq> PartialEq for HostTable<T> {
    fn eq(&self, other: &Self) -> bool {
        self.exact == other.exact
            && self.suffixes == other.suffixes
            && self.prefixes == other.prefixes
            && self.any == other.any
    }
}

impl<T: Eq> Eq for HostTable<T> {}

impl<T: Copy> HostTable<T> {
    /// The value for `host`, which is lower case and has no port.
    #[must_use]
    pub fn find(&self, host: &[u8]) -> Option<T> {
        let exact = self.exact.get(host).or_else(|| self.find_suffix(host));
        exact.or_else(|| self.find_prefix(host)).copied().or(self.any)
    }

    /// The same without `*`.
    fn find_named(&self, host: &[u8]) -> Option<T> {
        let exact = self.exact.get(host).or_else(|| self.find_suffix(host));
        exact.or_else(|| self.find_prefix(host)).copied()
    }

    /// The values of all entries that `host` matches, the closest first.
    pub fn find_all(&self, host: &[u8]) -> impl Iterator<Item = T> {
        let exact = self.exact.get(host).copied();
        let wild = self.all_suffixes(host).chain(self.all_prefixes(host)).copied();
        exact.into_iter().chain(wild).chain(self.any)
    }

    /// Gives `host` the value `value`.
    ///
    /// # Errors
    ///
    /// The value that `host` has already, which stays.
    pub fn insert(&mut self, host: &Host, value: T) -> Result<(), T> {
        let former = match host {
            Host::Exact(name) => put(&mut self.exact, name.as_bytes(), value),
            Host::Suffix(suffix) => {
                self.suffix_bytes_max = self.suffix_bytes_max.max(suffix.len());
                put(&mut self.suffixes, suffix.as_bytes(), value)
            }
            Host::Prefix(prefix) => {
                self.prefix_bytes_max = self.prefix_bytes_max.max(prefix.len());
                put(&mut self.prefixes, prefix.as_bytes(), value)
            }
            Host::Any => self.any.or_else(|| {
                self.any = Some(value);
                None
            }),
        };
        former.map_or(Ok(()), Err)
    }

    /// Longest suffix first: the dots are taken from the left.
    fn find_suffix(&self, host: &[u8]) -> Option<&T> {
        if self.suffixes.is_empty() {
            return None;
        }
        self.all_suffixes(host).next()
    }

    /// Longest prefix first: the dots are taken from the right.
    fn find_prefix(&self, host: &[u8]) -> Option<&T> {
        if self.prefixes.is_empty() {
            return None;
        }
        self.all_prefixes(host).next()
    }

    fn all_prefixes<'s>(&'s self, host: &[u8]) -> impl Iterator<Item = &'s T> {
        // A dot at the very end has no label behind it for `*` to stand for.
        let dots = memchr::memrchr_iter(b'.', host).filter(|&dot| dot + 1 < host.len());
        dots.filter_map(|dot| host.get(..dot))
            .filter(|prefix| prefix.len() <= self.prefix_bytes_max)
            .filter_map(|prefix| self.prefixes.get(prefix))
    }

    fn all_suffixes<'s>(&'s self, host: &[u8]) -> impl Iterator<Item = &'s T> {
        // A dot at the very beginning has no label before it for `*` to stand for.
        let dots = memchr::memchr_iter(b'.', host).filter(|&dot| dot > 0);
        dots.filter_map(|dot| host.get(dot + 1..))
            .filter(|suffix| suffix.len() <= self.suffix_bytes_max)
            .filter_map(|suffix| self.suffixes.get(suffix))
    }
}

/// What a listener looks a request's host up in, where the port may count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIndex<T> {
    hosts: HostTable<T>,
    /// Hosts with the port that a request names, if any table has such.
    with_ports: Option<Box<HostTable<T>>>,
}

impl<T> Default for HostIndex<T> {
    fn default() -> Self {
        Self { hosts: HostTable::default(), with_ports: None }
    }
}

impl<T: Copy> HostIndex<T> {
    /// The value for `host`, which is lower case, of a request that names no port.
    #[must_use]
    pub fn find(&self, host: &[u8]) -> Option<T> {
        self.find_authority(host, || host)
    }

    /// The value for `host`, which is lower case and has no port, of a request that names it as `authority` says, which is
    /// asked only where some port counts. What counts the port goes first, but for `*`.
    #[must_use]
    #[inline]
    pub fn find_authority<'a>(
        &self,
        host: &[u8],
        authority: impl FnOnce() -> &'a [u8],
    ) -> Option<T> {
        match &self.with_ports {
            None => self.hosts.find(host),
            Some(with_ports) => self.find_with_ports(with_ports, host, authority()),
        }
    }

    #[cold]
    fn find_with_ports(
        &self,
        with_ports: &HostTable<T>,
        host: &[u8],
        authority: &[u8],
    ) -> Option<T> {
        // A longer one is no host of any table.
        let mut room = [0; HOST_BYTES_MAX + PORT_BYTES_MAX];
        let port = port_of(authority);
        let colon = if port.is_empty() { &b""[..] } else { b":" };
        let mut len = 0;
        let fits = [host, colon, port].into_iter().all(|part| {
            let place = room.get_mut(len..len + part.len());
            len += part.len();
            place.map(|place| place.copy_from_slice(part)).is_some()
        });
        let named = room.get(..len).filter(|_| fits);
        let found = named.and_then(|named| with_ports.find_named(named));
        found.or_else(|| self.hosts.find(host)).or(with_ports.any)
    }

    /// Gives `host` the value `value`; `has_port`: the port counts.
    ///
    /// # Errors
    ///
    /// The value that `host` has already, which stays.
    pub fn insert(&mut self, host: &Host, has_port: bool, value: T) -> Result<(), T> {
        let any = self.hosts.any.or_else(|| self.with_ports.as_ref()?.any);
        if let (Host::Any, Some(former)) = (host, any) {
            return Err(former);
        }
        match has_port {
            true => self.with_ports.get_or_insert_default().insert(host, value),
            false => self.hosts.insert(host, value),
        }
    }
}

/// The port of a valid authority, without zeros at its front; empty if none is named.
#[must_use]
pub fn port_of(authority: &[u8]) -> &[u8] {
    let colon = authority.iter().rposition(|&octet| octet == b':');
    let port = colon.and_then(|colon| authority.get(colon + 1..)).unwrap_or_default();
    // Behind the last colon of an IPv6 address is its bracket.
    if !port.iter().all(u8::is_ascii_digit) {
        return &[];
    }
    let first = port.iter().position(|&digit| digit != b'0');
    port.get(first.unwrap_or_else(|| port.len().saturating_sub(1))..).unwrap_or_default()
}

/// Puts `value` under `key` unless something is there, which is then returned.
fn put<T: Copy>(map: &mut Map<Box<[u8]>, T>, key: &[u8], value: T) -> Option<T> {
    if let Some(former) = map.get(key) {
        return Some(*former);
    }
    map.insert(key.into(), value);
    None
}

/// A host as a route table names it. Lower case, without a port; an IPv6 address as RFC 5952 has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// This host alone.
    Exact(Arc<str>),
    /// Every host that ends with a dot and this.
    Suffix(Arc<str>),
    /// Every host that begins with this and a dot.
    Prefix(Arc<str>),
    /// Every host.
    Any,
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Suffix(suffix) => write!(f, "*.{suffix}"),
            Self::Prefix(prefix) => write!(f, "{prefix}.*"),
            Self::Any => f.write_str("*"),
        }
    }
}

/// Bytes of a host name (RFC 1035, section 2.3.4, as text and without the final dot).
pub(crate) const HOST_BYTES_MAX: usize = 253;

/// Bytes of a port, with its colon.
const PORT_BYTES_MAX: usize = 6;

impl Host {
    /// A host of a table where ports count: with the port that a request names, or without for those that name none.
    ///
    /// # Errors
    ///
    /// If it can be the host of no request.
    pub(crate) fn with_port(text: &str) -> Result<Self, Problem> {
        let port =
            text.rsplit_once(':').filter(|(name, _)| name.ends_with(']') || !name.contains(':'));
        let Some((name, port)) = port else { return text.parse() };
        let is_port =
            port.parse::<u16>().is_ok_and(|number| number > 0 && number.to_string() == port);
        if !is_port {
            let rule = "a port is a number from 1 to 65535";
            return Err(Problem::new(rule, format!("write {name}:8080, for instance")));
        }
        match name.parse()? {
            Self::Exact(name) => Ok(Self::Exact(format!("{name}:{port}").into())),
            Self::Suffix(suffix) => Ok(Self::Suffix(format!("{suffix}:{port}").into())),
            Self::Prefix(_) | Self::Any => {
                let rule = "a `*` at the end includes any port, so no port may follow it";
                Err(Problem::new(rule, format!("write {name}")))
            }
        }
    }
}

impl std::str::FromStr for Host {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let lower = text.to_ascii_lowercase();
        let (name, kind): (_, fn(Arc<str>) -> Self) =
            match (lower.strip_prefix("*."), lower.strip_suffix(".*")) {
                (Some(suffix), _) => (suffix, Self::Suffix),
                (None, Some(prefix)) => (prefix, Self::Prefix),
                (None, None) => (lower.as_str(), Self::Exact),
            };
        check_name(name)?;
        match address_of(name) {
            Some(address) => Ok(kind(format!("[{address}]").into())),
            None => Ok(kind(Arc::from(name))),
        }
    }
}

/// The IPv6 address that a name is in brackets.
fn address_of(name: &str) -> Option<Ipv6Addr> {
    name.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// Refuses what the host of a request can never be.
fn check_name(name: &str) -> Result<(), Problem> {
    if name.is_empty() || name.len() > HOST_BYTES_MAX {
        return Err(Problem::new(
            format!("a host has 1 to {HOST_BYTES_MAX} characters"),
            "write a name such as shop.example.com, or \"*\" for every host",
        ));
    }
    if name.contains('/') {
        let authority = authority_of(name);
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let hint = match !host.contains('/') && check_name(host).is_ok() {
            true => format!("write \"{host}\""),
            false => "write a name such as shop.example.com".to_owned(),
        };
        return Err(Problem::new("a host has no scheme and no path", hint));
    }
    if name.starts_with('~') || name.contains(['^', '$', '\\', '(', '|']) {
        let rule = "a host is no regular expression";
        let hint = "write \"*.suffix\", \"prefix.*\", or each name in the list";
        return Err(Problem::new(rule, hint));
    }
    if name.contains('*') {
        return Err(Problem::new(
            "`*` may be used alone or for whole labels at one end, as in *.example.com and shop.*",
            "write \"*.suffix\", \"prefix.*\", \"*\" or the whole name",
        ));
    }
    if name.starts_with('[') && name.ends_with(']') {
        return match address_of(name) {
            Some(_) => Ok(()),
            None => Err(Problem::new(
                "the text in brackets must be an IPv6 address",
                "write [::1], for instance",
            )),
        };
    }
    if let Some((host, port)) = name.rsplit_once(':') {
        let hint = if !host.contains(':') && port.bytes().all(|b| b.is_ascii_digit()) {
            format!("write \"{host}\"")
        } else {
            format!("put an IPv6 address in brackets: \"[{name}]\"")
        };
        return Err(Problem::new("hosts are matched without their port", hint));
    }
    let is_label =
        |label: &str| !label.is_empty() && label.bytes().all(|b| is_host_byte(b) && b != b'.');
    if !name.split('.').all(is_label) {
        let rule =
            "a host consists of labels of letters, digits, `-` and `_`, with one dot between them";
        return Err(match name.strip_prefix('.') {
            // As nginx has it, for both.
            Some(suffix) if suffix.split('.').all(is_label) => Problem::new(
                rule,
                format!("write \"*.{suffix}\", and \"{suffix}\" if that is meant, too"),
            ),
            _ => Problem::new(
                rule,
                "write a name such as shop.example.com (international names in their xn-- form)",
            ),
        });
    }
    Ok(())
}

/// What stands between the scheme and the path of a URL.
pub(crate) fn authority_of(url: &str) -> &str {
    let behind_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    behind_scheme.split(['/', '?', '#']).next().unwrap_or_default()
}

const fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_count_where_a_table_says_so() {
        let mut index = HostIndex::default();
        for (value, host) in ["a.example", "*.b.example", "c.*", "*"].iter().enumerate() {
            index.insert(&host.parse().unwrap(), false, value).unwrap();
        }
        let with_ports = ["a.example:8080", "*.b.example:81", "d.example", "[::1]:80", "e.*"];
        for (value, host) in with_ports.iter().enumerate() {
            index.insert(&Host::with_port(host).unwrap(), true, 10 + value).unwrap();
        }
        for (authority, expected) in [
            ("A.example:8080", 10),
            ("a.example", 0),
            ("a.example:80", 0),
            ("x.b.example:81", 11),
            ("x.b.example:82", 1),
            ("d.example", 12),
            ("d.example:80", 3),
            ("a.example:08080", 10),
            ("a.example:", 0),
            ("a.example:0", 0),
            ("[::1]:80", 13),
            ("[::1]:0080", 13),
            ("[::1]", 3),
            ("e.example:99", 14),
            ("c.example:99", 2),
        ] {
            let host = authority.to_ascii_lowercase();
            let host = host
                .rsplit_once(':')
                .filter(|(host, _)| !host.contains(':') || host.ends_with(']'))
                .map_or(&*host, |(host, _)| host);
            let found = index.find_authority(host.as_bytes(), || authority.as_bytes());
            assert_eq!(found, Some(expected), "{authority}");
        }
        // The host is in its one spelling, whatever the client wrote.
        assert_eq!(index.find_authority(b"[::1]", || b"[0:0::0001]:80"), Some(13));
        let long = vec![b'a'; 70_000];
        assert_eq!(index.find_authority(&long, || &long), Some(3));
        assert_eq!(index.insert(&Host::Any, true, 9), Err(3));
        for text in ["a:0", "a:", "a:080", "a:65536", "c.*:80", "*:80", "a:b:80", "::1"] {
            assert!(Host::with_port(text).is_err(), "{text}");
        }
    }

    fn table(hosts: &[&str]) -> HostTable<usize> {
        let mut table = HostTable::default();
        for (value, host) in hosts.iter().enumerate() {
            table.insert(&host.parse().unwrap(), value).unwrap();
        }
        table
    }

    #[test]
    fn exact_goes_before_the_longest_suffix_before_any() {
        let table = table(&["a.b", "*.a.b", "*.x.a.b", "*"]);
        for (host, value) in [
            ("a.b", 0),
            ("c.a.b", 1),
            ("c.d.a.b", 1),
            ("x.a.b", 1),
            ("c.x.a.b", 2),
            ("d.c.x.a.b", 2),
            ("b", 3),
            ("ca.b", 3),
            (".a.b", 3),
            ("", 3),
            (".", 3),
            ("a.b.", 3),
        ] {
            assert_eq!(table.find(host.as_bytes()), Some(value), "{host:?}");
        }
    }

    #[test]
    fn a_prefix_goes_behind_suffixes_and_the_longest_first() {
        let table = table(&["shop.*", "shop.eu.*", "*.eu.example", "shop.eu.org", "*"]);
        for (host, value) in [
            ("shop.example", 0),
            ("shop.us.example", 0),
            ("shop.eu.net", 1),
            ("shop.eu.de.net", 1),
            ("shop.eu.example", 2),
            ("shop.eu.org", 3),
            ("shop", 4),
            ("shop.", 4),
            ("shops.example", 4),
            ("a.shop.example", 4),
            (".shop.x", 4),
        ] {
            assert_eq!(table.find(host.as_bytes()), Some(value), "{host:?}");
        }
        let all: Vec<_> = table.find_all(b"shop.eu.example").collect();
        assert_eq!(all, [2, 1, 0, 4]);
    }

    #[test]
    fn all_that_match_come_with_the_closest_first() {
        let table = table(&["a.b", "*.a.b", "*.x.a.b", "*"]);
        for (host, values) in [
            ("a.b", &[0, 3][..]),
            ("c.a.b", &[1, 3]),
            ("c.x.a.b", &[2, 1, 3]),
            ("b", &[3]),
            (".a.b", &[3]),
        ] {
            let found: Vec<_> = table.find_all(host.as_bytes()).collect();
            assert_eq!(found, values, "{host:?}");
        }
    }

    #[test]
    fn without_any_an_unknown_host_finds_nothing() {
        let table = table(&["a.b", "*.a.b"]);
        for host in ["b", "a.b.c", ".a.b", "xa.b"] {
            assert_eq!(table.find(host.as_bytes()), None, "{host:?}");
        }
    }

    #[test]
    fn a_second_value_for_a_host_is_refused_with_the_first() {
        for host in ["a.b", "*.a.b", "*"] {
            let mut table = table(&["a.b", "*.a.b", "*"]);
            let first = table.insert(&host.parse().unwrap(), 9).unwrap_err();
            assert!(first < 3, "{host}");
            assert_eq!(table.find(host.replace('*', "x").as_bytes()), Some(first));
        }
    }

    #[test]
    fn hosts_are_kept_in_lower_case_and_written_as_they_are_read() {
        for (text, shown) in [
            ("Shop.Example.COM", "shop.example.com"),
            ("*.A.b", "*.a.b"),
            ("Shop.*", "shop.*"),
            ("*", "*"),
            ("[::1]", "[::1]"),
            ("[0:0:0:0:0:0:0:1]", "[::1]"),
            ("[2001:DB8:0::0001]", "[2001:db8::1]"),
            ("127.0.0.1", "127.0.0.1"),
            ("my_service-1", "my_service-1"),
        ] {
            assert_eq!(text.parse::<Host>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_no_request_can_ask_for_is_refused() {
        for (text, hint) in [
            ("", "shop.example.com"),
            ("a..b", "shop.example.com"),
            ("a.b.", "shop.example.com"),
            ("a b", "shop.example.com"),
            ("bücher.de", "xn--"),
            ("a.*.b", "*.suffix"),
            ("*a.b", "*.suffix"),
            ("*.a.*", "*.suffix"),
            ("a*", "prefix.*"),
            ("a.b:80", "\"a.b\""),
            ("::1", "[::1]"),
            ("[::g]", "[::1]"),
            ("~^www", "each name"),
            ("^(www|shop)$", "each name"),
        ] {
            let problem = text.parse::<Host>().unwrap_err();
            assert!(problem.hint.contains(hint), "{text}: {problem:?}");
        }
        assert!("a".repeat(253).parse::<Host>().is_ok());
        assert!("a".repeat(254).parse::<Host>().is_err());
    }
}
