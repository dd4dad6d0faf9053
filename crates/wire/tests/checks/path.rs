//! A path as a peer may send it: whatever its spelling, it has one normal form or none.

use wire::path::{Slashes, is_suspect, normalise};

/// Holds any octets against the rules; the first chooses another spelling of the others.
pub(crate) fn check(data: &[u8]) {
    let Some((&seed, path)) = data.split_first() else { return };
    for slashes in [Slashes::Keep, Slashes::Merge] {
        let Some(normal) = normal(path, slashes) else { continue };
        assert_eq!(self::normal(&normal, slashes).as_ref(), Some(&normal), "it stays what it is");
        assert!(is_spelled_once(&normal), "{:?}", normal.escape_ascii().to_string());
        let mut segments = normal.split(|&octet| octet == b'/').skip(1).peekable();
        while let Some(segment) = segments.next() {
            assert!(segment != b"." && segment != b"..");
            let is_empty = segment.is_empty() && segments.peek().is_some();
            assert!(!is_empty || slashes == Slashes::Keep);
        }
        if !is_suspect(path, slashes) {
            assert_eq!(normal, path);
        }
        let other = respelled(path, seed);
        assert_eq!(self::normal(&other, slashes), Some(normal), "{:?}", other.escape_ascii());
    }
}

fn normal(path: &[u8], slashes: Slashes) -> Option<Vec<u8>> {
    let mut out = b"kept".to_vec();
    let result = normalise(path, slashes, &mut out);
    assert!(out.starts_with(b"kept") && (result.is_ok() || out.len() == 4));
    result.ok().map(|()| out.split_off(4))
}

fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._~".contains(&octet)
}

/// Octets of a path, and others encoded with upper-case digits.
fn is_spelled_once(mut path: &[u8]) -> bool {
    let is_digit = |octet: &u8| octet.is_ascii_digit() || (b'A'..=b'F').contains(octet);
    loop {
        path = match path {
            [] => return true,
            [b'%', high, low, rest @ ..] if is_digit(high) && is_digit(low) => {
                let digits = [*high, *low];
                let text = std::str::from_utf8(&digits).unwrap_or_default();
                match u8::from_str_radix(text, 16) {
                    Ok(octet) if octet != 0 && !is_unreserved(octet) => rest,
                    _ => return false,
                }
            }
            [octet, rest @ ..] if is_unreserved(*octet) || b"/:@!$&'()*+,;=".contains(octet) => {
                rest
            }
            _ => return false,
        };
    }
}

/// The same path in another spelling (RFC 3986, section 6.2.2), if it is one at all.
fn respelled(mut path: &[u8], seed: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let mut state = u32::from(seed) | 1;
    loop {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (way, is_upper) = (state >> 28 & 3, state >> 31 == 1);
        let mut encode = |octet: u8| {
            let text = if is_upper { format!("%{octet:02X}") } else { format!("%{octet:02x}") };
            out.extend_from_slice(text.as_bytes());
        };
        path = match path {
            [] => return out,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digits = [*high, *low];
                let text = std::str::from_utf8(&digits).unwrap_or_default();
                encode(u8::from_str_radix(text, 16).unwrap_or_default());
                rest
            }
            [b'/', rest @ ..] => {
                let detours = [&b"/"[..], b"/./", b"/%2E/", b"/a/%2e./"];
                out.extend_from_slice(detours.get(way as usize).copied().unwrap_or_default());
                rest
            }
            [octet @ (0 | b'%' | b'\\'), rest @ ..] => {
                out.push(*octet);
                rest
            }
            [octet, rest @ ..] => {
                // An encoded reserved octet is another one.
                let is_free = !b":@!$&'()*+,;=".contains(octet);
                if is_free && way > 1 {
                    encode(*octet);
                } else {
                    out.push(*octet);
                }
                rest
            }
        };
    }
}
