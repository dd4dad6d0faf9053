//! Field names that a service may read as another's.
//!
//! CGI, and what came of it (WSGI, Rack, PHP), turns `-` and `_` into the same octet, so that
//! `X_Forwarded_For` is `X-Forwarded-For` there. And services trust any name that begins with
//! `x-forwarded-` to come from a proxy.

use super::Known;
use crate::octets::{self, NameScan};

const FORWARDED: &[u8] = b"x-forwarded-";

const ENVOY: &[u8] = b"x-envoy-";

/// Bytes of the longest name of the table.
const KNOWN_BYTES_MAX: usize = 24;

/// Whether a name that is not in the table needs a closer look: it holds `_`, or begins with
/// `x-forwarded-` or `x-envoy-`. Costs a few instructions for any other.
#[inline]
pub(crate) fn is_unusual(name: &[u8], scan: NameScan) -> bool {
    let is_long_x = name.len() > FORWARDED.len() && matches!(name.first(), Some(b'x' | b'X'));
    scan.has_underscore() || (is_long_x && (is_forwarded(name) || is_envoy(name)))
}

/// Whether the name holds `_`.
#[must_use]
#[inline]
pub fn has_underscore(name: &[u8]) -> bool {
    octets::find(name, 0, b'_').is_some()
}

/// Whether the name begins with `x-forwarded-`, in any case and with `_` for `-`.
#[must_use]
pub fn is_forwarded(name: &[u8]) -> bool {
    begins_with(name, FORWARDED)
}

/// Whether the name begins with `x-envoy-`, in any case and with `_` for `-`: Envoy's fields ask a proxy for something.
#[must_use]
pub fn is_envoy(name: &[u8]) -> bool {
    begins_with(name, ENVOY)
}

fn begins_with(name: &[u8], wanted: &[u8]) -> bool {
    let pairs = wanted.iter().zip(name);
    name.len() > wanted.len()
        && pairs.fold(true, |is_same, (wanted, octet)| is_same && *wanted == folded(*octet))
}

/// The name of the table that this one is with `-` for `_`.
#[must_use]
pub fn known_twin(name: &[u8]) -> Known {
    let mut twin = [0; KNOWN_BYTES_MAX];
    let Some(twin) = twin.get_mut(..name.len()) else { return Known::Other };
    for (octet, from) in twin.iter_mut().zip(name) {
        *octet = folded(*from);
    }
    Known::from_name(twin)
}

/// Whether two names are the same to a service that takes `_` for `-`.
#[must_use]
pub fn are_twins(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| folded(*one) == folded(*other))
}

const fn folded(octet: u8) -> u8 {
    match octet {
        b'_' => b'-',
        octet => octet.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_cgi_reads_them() {
        for (name, is_unusual_, is_forwarded_, twin) in [
            ("accept", false, false, Known::Other),
            ("x-forwarded-", false, false, Known::Other),
            ("x-forwarded-prefix", true, true, Known::Other),
            ("X-Forwarded-SSL", true, true, Known::Other),
            ("x_forwarded-ssl", true, true, Known::Other),
            ("X_Forwarded_For", true, true, Known::XForwardedFor),
            ("x_forwarded_client_cert", true, true, Known::XForwardedClientCert),
            ("x_real-ip", true, false, Known::XRealIp),
            ("Content_Length", true, false, Known::ContentLength),
            ("transfer_encoding", true, false, Known::TransferEncoding),
            ("my_field", true, false, Known::Other),
            ("x-forwarderforx", false, false, Known::Other),
            ("X-Envoy-Max-Retries", true, false, Known::Other),
            ("x-envoyed-retries", false, false, Known::Other),
            ("a_name_that_is_longer_than_those_of_the_table", true, false, Known::Other),
            ("", false, false, Known::Other),
        ] {
            let bytes = name.as_bytes();
            assert_eq!(is_unusual(bytes, NameScan::new(bytes)), is_unusual_, "{name}");
            assert_eq!(is_forwarded(bytes), is_forwarded_, "{name}");
            assert_eq!(known_twin(bytes), twin, "{name}");
        }
        for known in Known::ALL {
            assert!(known.name().len() <= KNOWN_BYTES_MAX);
        }
        assert!(are_twins(b"X_a-B", b"x-A_b"));
        assert!(!are_twins(b"x-a", b"x-ab") && !are_twins(b"x-a", b"x.a"));
    }
}
