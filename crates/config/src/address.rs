//! Addresses as they stand in a file: `127.0.0.1:80`, `[::1]:80`, `unix:/run/app.sock`.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::findings::Problem;

/// Bytes of a unix socket's path, without the final NUL (`sun_path`, unix(7)).
pub(crate) const UNIX_PATH_BYTES_MAX: usize = 107;

/// How an address is written, for JSON Schema.
pub(crate) const ADDRESS_PATTERN: &str = r"^(unix:/.+|\[[0-9A-Fa-f:.]+\]:[0-9]+|[0-9.]+:[0-9]+)$";

/// Where to listen or connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A unix stream socket.
    Unix(Arc<Path>),
}

impl Address {
    /// Whether this is a socket of the file system.
    #[must_use]
    pub const fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Whether the system chooses the port.
    #[must_use]
    pub const fn is_any_port(&self) -> bool {
        matches!(self, Self::Tcp(address) if address.port() == 0)
    }

    /// Whether listeners on both would take each other's connections: the port is the same, and
    /// so is the IP address, unless one of them is all addresses of its family. A listener on IPv6
    /// takes no IPv4. Port 0 is any free port, hence never the same.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(a), Self::Tcp(b)) => {
                let is_any = a.ip().is_unspecified() || b.ip().is_unspecified();
                a.port() == b.port()
                    && a.port() != 0
                    && a.is_ipv4() == b.is_ipv4()
                    && (is_any || (a.ip(), scope(a)) == (b.ip(), scope(b)))
            }
            (Self::Unix(a), Self::Unix(b)) => a == b,
            (Self::Tcp(_), Self::Unix(_)) | (Self::Unix(_), Self::Tcp(_)) => false,
        }
    }
}

/// The interface that a link-local address is of.
const fn scope(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

impl FromStr for Address {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(path);
        }
        match text.parse::<SocketAddr>() {
            Ok(address) => Ok(Self::Tcp(address)),
            Err(_) => Err(explain(text)),
        }
    }
}

fn unix(path: &str) -> Result<Address, Problem> {
    if !path.starts_with('/') || path.contains('\0') {
        return Err(Problem::new(
            "a unix socket has an absolute path",
            "write unix:/run/app.sock, for instance",
        ));
    }
    if path.len() > UNIX_PATH_BYTES_MAX {
        return Err(Problem::new(
            format!("the path of a unix socket has at most {UNIX_PATH_BYTES_MAX} bytes"),
            "use a shorter path",
        ));
    }
    Ok(Address::Unix(Arc::from(Path::new(path))))
}

/// Why `text` is not a socket address, and what was probably meant.
fn explain(text: &str) -> Problem {
    if let Some(problem) = without_braces(text) {
        return problem;
    }
    let needs = "an address is an IP address with a port, or a unix socket";
    if is_ipv6(text) {
        let hint = match text.rsplit_once(':') {
            Some((host, port)) if is_ipv6(host) && port.parse::<u16>().is_ok() => {
                format!("write [{host}]:{port}, or [{text}]:80 if the port is missing")
            }
            _ => format!("write [{text}]:80"),
        };
        return Problem::new("an IPv6 address with a port must be in brackets", hint);
    }
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Problem::new("the port is missing", format!("write {text}:80, for instance"));
    }
    if text.starts_with('/') {
        return Problem::new(needs, format!("write unix:{text} for a unix socket"));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Problem::new(needs, "write 127.0.0.1:80, [::1]:80 or unix:/run/app.sock");
    };
    if matches!(host, "" | "*") {
        return Problem::new(
            needs,
            format!("write 0.0.0.0:{port} or [::]:{port} for every address"),
        );
    }
    let is_ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    if is_ip && port.parse::<u16>().is_err() {
        return Problem::new(
            "a port is a number up to 65535",
            format!("write {host}:80, for instance"),
        );
    }
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let is_quad = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if host.bytes().all(is_name) && !is_quad {
        return Problem::new(
            "host names are not resolved here",
            format!("use an IP address such as 127.0.0.1:{port}"),
        );
    }
    Problem::new(needs, "write 127.0.0.1:80, [::1]:80 or unix:/run/app.sock")
}

/// What is to be said of a variable as a shell has it, in a text that is wrong because of it.
pub(crate) fn without_braces(text: &str) -> Option<Problem> {
    let (before, rest) = text.split_once('$')?;
    let of_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let (name, behind) = rest.split_at(rest.bytes().take_while(of_name).count());
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return None;
    }
    let rule = "the name of a variable stands in braces";
    Some(Problem::new(rule, format!("write {before}${{{name}}}{behind}")))
}

fn is_ipv6(text: &str) -> bool {
    text.parse::<std::net::Ipv6Addr>().is_ok()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["127.0.0.1:80", "[::1]:80", "0.0.0.0:0", "unix:/run/app.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn each_mistake_gets_the_hint_that_mends_it() {
        for (text, hint) in [
            ("localhost:80", "use an IP address such as 127.0.0.1:80"),
            ("api.internal:9000", "use an IP address such as 127.0.0.1:9000"),
            ("127.0.0.1", "write 127.0.0.1:80, for instance"),
            ("::1", "write [::1]:80"),
            ("::1:8080", "write [::1]:8080, or [::1:8080]:80 if the port is missing"),
            ("2001:db8::f:a", "write [2001:db8::f:a]:80"),
            (":80", "write 0.0.0.0:80 or [::]:80 for every address"),
            ("*:8080", "write 0.0.0.0:8080 or [::]:8080 for every address"),
            ("127.0.0.1:$PORT", "write 127.0.0.1:${PORT}"),
            ("[::1]:$PORT", "write [::1]:${PORT}"),
            ("$HOST_1:80", "write ${HOST_1}:80"),
            ("127.0.0.1:$1", "write 127.0.0.1:80, for instance"),
            ("127.0.0.1:65536", "write 127.0.0.1:80, for instance"),
            ("127.0.0.1:http", "write 127.0.0.1:80, for instance"),
            ("[::1]:x", "write [::1]:80, for instance"),
            ("256.0.0.1:80", "write 127.0.0.1:80, [::1]:80 or unix:/run/app.sock"),
            ("/run/app.sock", "write unix:/run/app.sock for a unix socket"),
            ("unix:app.sock", "write unix:/run/app.sock, for instance"),
            ("unix:", "write unix:/run/app.sock, for instance"),
            ("", "write 127.0.0.1:80, [::1]:80 or unix:/run/app.sock"),
            ("localhost", "write 127.0.0.1:80, [::1]:80 or unix:/run/app.sock"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap_err().hint, hint, "{text}");
        }
    }

    #[test]
    fn all_addresses_of_a_family_overlap_with_each_of_it_on_the_same_port() {
        for (a, b, overlaps) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("[::1]:80", "[::]:80", true),
            ("unix:/a", "unix:/a", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "[::]:80", false),
            ("0.0.0.0:80", "[::]:80", false),
            ("0.0.0.0:0", "0.0.0.0:0", false),
            ("[fe80::1%1]:80", "[fe80::1%2]:80", false),
            ("[fe80::1%1]:80", "[::]:80", true),
            ("unix:/a", "unix:/b", false),
            ("unix:/a", "0.0.0.0:80", false),
        ] {
            let (a, b): (Address, Address) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!((a.overlaps(&b), b.overlaps(&a)), (overlaps, overlaps), "{a} and {b}");
        }
    }

    #[test]
    fn a_unix_path_fits_its_structure_to_the_byte() {
        let fits = format!("unix:/{}", "a".repeat(UNIX_PATH_BYTES_MAX - 1));
        assert!(fits.parse::<Address>().is_ok());
        assert!(format!("{fits}a").parse::<Address>().unwrap_err().rule.contains("107"));
    }
}
