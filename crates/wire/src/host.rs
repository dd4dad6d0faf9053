//! The authority of a request: a host and perhaps a port (RFC 9110, section 7.2).
//!
//! Stricter than RFC 3986: a name is made of letters, digits and `-._~`. Percent-encoding, the
//! comma of two hosts that a hop joined, userinfo and the like are refused, because hosts are
//! compared as octets, end up in `Location` fields and logs, and no real name needs them. Empty
//! labels are refused, but for the last: `shop.example.` is the host `shop.example`, whose name it is
//! with the dot of the root (RFC 1034, section 3.1). An IPv6 address has many spellings, of which hosts are
//! compared in one (RFC 5952).

use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;

/// A valid authority in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// The host as it was received, without the dot of the root; an IPv6 address keeps its
    /// brackets. Empty if there is none.
    pub host: &'a [u8],
    /// The port, if one is named.
    pub port: Option<u16>,
    /// Whether the host is written as it is compared: in lower case, and an IPv6 address as RFC 5952 has it.
    pub is_normal: bool,
}

impl<'a> Authority<'a> {
    /// Reads `bytes`, or `None` if they are not an authority. No bytes at all are one without a
    /// host, which a request may have when its target has none.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        // The beginning of the host counts as the end of a label, too.
        let (mut seen, mut before, mut pairs) = (0, DOT, 0);
        let mut is_normal = true;
        let host_len = match bytes {
            [b'[', ..] => {
                let (address, text) = address_at(bytes)?;
                is_normal = is_text_of(address, text);
                text.len() + 2
            }
            _ => {
                let is_other = |&octet: &u8| {
                    let class = class_of(octet);
                    seen |= class;
                    pairs |= class & before;
                    before = class;
                    class == 0
                };
                bytes.iter().position(is_other).unwrap_or(bytes.len())
            }
        };
        let (host, rest) = bytes.split_at_checked(host_len)?;
        if pairs & DOT != 0 {
            return None;
        }
        let port = match rest {
            [] => None,
            [b':', port @ ..] if !host.is_empty() => parse_port(port)?,
            _ => return None,
        };
        let is_normal = is_normal && seen & UPPER_CASE == 0;
        let host = host.strip_suffix(b".").unwrap_or(host);
        Some(Self { host, port, is_normal })
    }

    /// The host as it is compared.
    #[must_use]
    pub fn normal_host(&self) -> Vec<u8> {
        match address_at(self.host) {
            Some((address, _)) => format!("[{address}]").into_bytes(),
            None => self.host.to_ascii_lowercase(),
        }
    }
}

/// The parts before and behind the dot of the root in a valid authority; all of it before, if it
/// has none.
pub(crate) fn around_root_dot(authority: &[u8]) -> (&[u8], &[u8]) {
    let host_len = authority.iter().rposition(|&octet| octet == b':').unwrap_or(authority.len());
    match authority.split_at_checked(host_len) {
        Some((host, port)) => match host.strip_suffix(b".") {
            Some(host) => (host, port),
            None => (authority, &[]),
        },
        None => (authority, &[]),
    }
}

/// A bracketed IPv6 address at the front, and its text without the brackets. Zones are refused.
fn address_at(bytes: &[u8]) -> Option<(Ipv6Addr, &str)> {
    let rest = bytes.strip_prefix(b"[")?;
    let close = rest.iter().position(|&octet| octet == b']')?;
    let text = std::str::from_utf8(rest.get(..close)?).ok()?;
    Some((text.parse().ok()?, text))
}

/// Whether an address is written in the one way in which hosts are compared.
fn is_text_of(address: Ipv6Addr, text: &str) -> bool {
    /// What of a text has not been written yet.
    struct Rest<'t>(&'t str);
    impl fmt::Write for Rest<'_> {
        fn write_str(&mut self, written: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(written).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(text);
    write!(rest, "{address}").is_ok() && rest.0.is_empty()
}

/// The digits behind a colon; there may be none (RFC 3986, section 3.2.3).
#[expect(clippy::option_option, reason = "the outer level is validity")]
fn parse_port(digits: &[u8]) -> Option<Option<u16>> {
    if digits.is_empty() {
        return Some(None);
    }
    digits
        .iter()
        .try_fold(0u16, |port, &digit| {
            let value = digit.checked_sub(b'0').filter(|&value| value <= 9)?;
            port.checked_mul(10)?.checked_add(u16::from(value))
        })
        .map(Some)
}

/// May stand in a name.
const NAME: u8 = 1;
/// May stand in a name, and is an upper-case letter.
const UPPER_CASE: u8 = 2;
/// Ends a label.
const DOT: u8 = 4;

#[inline]
fn class_of(octet: u8) -> u8 {
    CLASSES.get(usize::from(octet)).copied().unwrap_or_default()
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "the loop ends at 255")]
        let byte = octet as u8;
        if byte.is_ascii_uppercase() {
            classes[octet] = NAME | UPPER_CASE;
        } else if byte == b'.' {
            classes[octet] = NAME | DOT;
        } else if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') {
            classes[octet] = NAME;
        }
        octet += 1;
    }
    classes
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_separated_from_ports() {
        for (bytes, host, port) in [
            ("", "", None),
            ("a", "a", None),
            ("example.com", "example.com", None),
            ("example.com.", "example.com", None),
            ("example.com.:80", "example.com", Some(80)),
            ("127.0.0.1.", "127.0.0.1", None),
            ("my_host-1.~x", "my_host-1.~x", None),
            ("example.com:80", "example.com", Some(80)),
            ("example.com:", "example.com", None),
            ("example.com:0", "example.com", Some(0)),
            ("example.com:65535", "example.com", Some(65535)),
            ("example.com:00080", "example.com", Some(80)),
            ("127.0.0.1:8080", "127.0.0.1", Some(8080)),
            ("[::1]", "[::1]", None),
            ("[2001:db8::1]:443", "[2001:db8::1]", Some(443)),
            ("[::ffff:1.2.3.4]:1", "[::ffff:1.2.3.4]", Some(1)),
        ] {
            let authority = Authority::parse(bytes.as_bytes()).unwrap();
            assert_eq!((authority.host, authority.port), (host.as_bytes(), port), "{bytes}");
            assert!(authority.is_normal, "{bytes}");
            assert_eq!(authority.normal_host(), host.as_bytes());
        }
    }

    #[test]
    fn the_dot_of_the_root_is_found() {
        for (authority, before, behind) in [
            ("", "", ""),
            ("a", "a", ""),
            ("a:80", "a:80", ""),
            ("a.", "a", ""),
            ("a.b.:80", "a.b", ":80"),
            ("a.:", "a", ":"),
            ("[::1]", "[::1]", ""),
            ("[::1]:80", "[::1]:80", ""),
        ] {
            let found = around_root_dot(authority.as_bytes());
            assert_eq!(found, (before.as_bytes(), behind.as_bytes()), "{authority}");
        }
    }

    #[test]
    fn other_spellings_of_a_host_are_seen() {
        for (bytes, normal) in [
            ("Example.com:80", "example.com"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
            ("[0:0:0:0:0:0:0:1]", "[::1]"),
            ("[::0001]:80", "[::1]"),
            ("[0::1]", "[::1]"),
            ("[::0.0.0.1]", "[::1]"),
            ("[2001:db8:0:0:1:0:0:1]", "[2001:db8::1:0:0:1]"),
            ("[2001:db8:0:1:1:1:1::]", "[2001:db8:0:1:1:1:1:0]"),
            ("[::ffff:102:304]", "[::ffff:1.2.3.4]"),
            ("[::FFFF:1.2.3.4]:1", "[::ffff:1.2.3.4]"),
        ] {
            let authority = Authority::parse(bytes.as_bytes()).unwrap();
            assert!(!authority.is_normal, "{bytes}");
            assert_eq!(authority.normal_host(), normal.as_bytes(), "{bytes}");
            assert!(Authority::parse(normal.as_bytes()).unwrap().is_normal, "{normal}");
        }
    }

    #[test]
    fn what_is_not_an_authority_is_refused() {
        for bytes in [
            ":80",
            "a b",
            "a,b",
            "user@host",
            "a/b",
            "a%41",
            "a:8a",
            "a:+80",
            "a:65536",
            "a:80:80",
            "a::",
            "::1",
            "[]",
            "[::1",
            "[::1]x",
            "[::1%eth0]",
            "[v1.x]",
            "[127.0.0.1]",
            "*",
            ".",
            ".:80",
            ".a",
            "a..",
            "a..:80",
            "a..b",
            "[::1].",
            "a\"b",
            "\u{e9}",
        ] {
            assert_eq!(Authority::parse(bytes.as_bytes()), None, "{bytes}");
        }
    }
}
