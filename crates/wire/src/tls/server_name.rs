//! The name of a server, as a client gives it.

use std::{fmt, str};

/// A DNS name in the one spelling that is matched: in lower case, without a dot at its end.
///
/// The rules are those of rustls, so that a hello that was routed by its name is not
/// refused for it later: labels of 1 to 63 letters, digits, `_` and inner `-`, at most 253 octets in
/// all, the last label not a number. An underscore is in no host's name, but meshes put it into
/// theirs (`outbound_.80_._.shop.svc`). Names beyond ASCII come as A-labels.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerName {
    /// The name, then zeros.
    octets: [u8; NAME_BYTES_MAX],
    len: u8,
}

/// The longest name that a query can ask for (RFC 1035, section 2.3.4), as text without a dot at
/// its end.
const NAME_BYTES_MAX: usize = 253;

/// The longest label (RFC 1035, section 2.3.4).
const LABEL_BYTES_MAX: usize = 63;

impl ServerName {
    /// Reads `bytes`, or `None` if they are not a name.
    ///
    /// One dot at the end is dropped. A client must not send it (RFC 6066, section 3); some do, and
    /// the name that they mean is the same, so it must not lead to another route.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let name = bytes.strip_suffix(b".").unwrap_or(bytes);
        let mut octets = [0; NAME_BYTES_MAX];
        octets.get_mut(..name.len())?.copy_from_slice(name);
        octets.make_ascii_lowercase();
        let is_number = |label: &[u8]| label.iter().all(u8::is_ascii_digit);
        let mut labels = name.split(|&octet| octet == b'.');
        // Also what is written like an address, but is none: 1.2.3.256, 127.1.
        let ends_in_number = name.rsplit(|&octet| octet == b'.').next().is_some_and(is_number);
        let is_name = labels.all(is_label) && !ends_in_number;
        let len = u8::try_from(name.len()).ok()?;
        is_name.then_some(Self { octets, len })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let name = self.octets.get(..usize::from(self.len)).unwrap_or_default();
        str::from_utf8(name).unwrap_or_default()
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn is_label(label: &[u8]) -> bool {
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label.iter().all(|&octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_'))
        && !label.starts_with(b"-")
        && !label.ends_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(lens: &[usize]) -> String {
        let labels: Vec<String> = lens.iter().map(|&len| "a".repeat(len)).collect();
        labels.join(".")
    }

    #[test]
    fn names_are_brought_into_one_spelling() {
        let longest = labels(&[63, 63, 63, 61]);
        let longest_with_dot = format!("{longest}.");
        for (bytes, name) in [
            ("shop.example", "shop.example"),
            ("Shop.EXAMPLE", "shop.example"),
            ("shop.example.", "shop.example"),
            ("localhost", "localhost"),
            ("a", "a"),
            ("1.2.3.4.example", "1.2.3.4.example"),
            ("1.2.3.4a", "1.2.3.4a"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("r1---sn-x.example", "r1---sn-x.example"),
            ("outbound_.80_._.shop.svc", "outbound_.80_._.shop.svc"),
            (&longest, &longest),
            (&longest_with_dot, &longest),
        ] {
            assert_eq!(ServerName::parse(bytes.as_bytes()).unwrap().as_str(), name, "{bytes}");
        }
        let name = ServerName::parse(b"A.example").unwrap();
        assert_eq!(
            (format!("{name}"), format!("{name:?}")),
            ("a.example".into(), "\"a.example\"".into())
        );
    }

    #[test]
    fn what_is_not_a_name_is_refused() {
        let (long, long_label) = (labels(&[63, 63, 63, 62]), labels(&[64]));
        let huge = labels(&[63; 5]);
        for bytes in [
            "",
            ".",
            "..",
            "a..",
            ".a",
            "a..b",
            "-a",
            "a-",
            "a.-b",
            "a-.b",
            "a b",
            "a\0",
            "a\0.b",
            "a/b",
            "a:443",
            "*.example",
            "[::1]",
            "::1",
            "1.2.3.4",
            "1.2.3.4.",
            "1.2.3.256",
            "127.1",
            "1",
            "b\u{fc}cher.example",
            "a,b",
            "a%41",
            &long,
            &long_label,
            &huge,
        ] {
            assert_eq!(ServerName::parse(bytes.as_bytes()), None, "{bytes}");
        }
    }
}
