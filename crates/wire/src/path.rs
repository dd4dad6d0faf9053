//! Paths in the one spelling that is matched and forwarded.
//!
//! Routes decide by path, so two spellings of one path must not take two routes, and what was
//! matched must be what the upstream sees. What is done, and nothing else:
//!
//! * percent-encoded unreserved characters are decoded (RFC 3986, section 6.2.2.2);
//! * dot segments are resolved, after that decoding, so that `%2e%2e` is one too (section 5.2.4);
//! * `%2F` and every other encoded octet stay as they are, with their case: to decode them would
//!   change what the path means. An upstream that treats `%2F` as a slash is out of reach here;
//! * `//` stays: an empty segment is a segment.
//!
//! Refused: a percent sign without two hex digits, `%00`, and `\`, which some servers take for a
//! slash.

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A `\`.
    #[error("a backslash in the path")]
    Backslash,
    /// `%00`.
    #[error("an encoded NUL in the path")]
    EncodedNul,
    /// A `%` without two hex digits behind it.
    #[error("a percent sign without two hex digits in the path")]
    PercentInvalid,
    /// No `/` at its start.
    #[error("the path does not begin with a slash")]
    Relative,
}

/// Whether `path` may be in need of [`normalise`]: it holds `%`, `\` or `/.`.
#[must_use]
pub fn is_suspect(path: &[u8]) -> bool {
    path.iter().any(|octet| matches!(octet, b'%' | b'\\')) || has_dot_segment_start(path)
}

/// Appends the normal form of `path` (without a query) to `out`.
///
/// # Errors
///
/// When the path is refused; `out` then holds what it held before.
pub fn normalise(path: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    let start = out.len();
    let result = append_normalised(path, start, out);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Whether a segment begins with a dot. Dots elsewhere, as in `index.html`, change nothing.
pub(crate) fn has_dot_segment_start(path: &[u8]) -> bool {
    path.windows(2).any(|pair| pair == b"/.")
}

fn append_normalised(path: &[u8], start: usize, out: &mut Vec<u8>) -> Result<(), PathError> {
    let segments = path.strip_prefix(b"/").ok_or(PathError::Relative)?;
    // An encoded octet never decodes to a slash, so the segments are those of the raw path.
    // Before each, `out` ends in a slash.
    out.push(b'/');
    let mut segments = segments.split(|&octet| octet == b'/').peekable();
    while let Some(segment) = segments.next() {
        let segment_start = out.len();
        append_decoded(segment, out)?;
        match out.get(segment_start..).unwrap_or_default() {
            b"." => out.truncate(segment_start),
            b".." => out.truncate(parent_end(out, start, segment_start)),
            _ if segments.peek().is_some() => out.push(b'/'),
            _ => {}
        }
    }
    Ok(())
}

/// Where `out` ends, with a slash, once the segment before the one at `segment_start` is gone. The
/// root has no parent but itself.
fn parent_end(out: &[u8], start: usize, segment_start: usize) -> usize {
    let before = out.get(start..segment_start.saturating_sub(1)).unwrap_or_default();
    let slash = before.iter().rposition(|&octet| octet == b'/').unwrap_or(0);
    start + slash + 1
}

fn append_decoded(mut segment: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    loop {
        let (octet, rest) = match segment {
            [] => return Ok(()),
            [b'\\', ..] => return Err(PathError::Backslash),
            [b'%', high, low, rest @ ..] => match (hex(*high), hex(*low)) {
                (Some(0), Some(0)) => return Err(PathError::EncodedNul),
                (Some(high), Some(low)) if is_unreserved(high << 4 | low) => {
                    (high << 4 | low, rest)
                }
                // What stays encoded is copied octet by octet; the two digits are next.
                (Some(_), Some(_)) => (b'%', segment.get(1..).unwrap_or_default()),
                _ => return Err(PathError::PercentInvalid),
            },
            [b'%', ..] => return Err(PathError::PercentInvalid),
            [octet, rest @ ..] => (*octet, rest),
        };
        out.push(octet);
        segment = rest;
    }
}

/// RFC 3986, section 2.3.
fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~')
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normalised(path: &[u8]) -> Result<Vec<u8>, PathError> {
        let mut out = b"kept".to_vec();
        let result = normalise(path, &mut out);
        assert!(out.starts_with(b"kept"));
        match result {
            Ok(()) => Ok(out.split_off(4)),
            Err(error) => {
                assert_eq!(out, b"kept", "an error leaves no trace");
                Err(error)
            }
        }
    }

    #[test]
    fn each_path_has_one_spelling() {
        for (path, expected) in [
            ("/", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("/a/b.html", "/a/b.html"),
            ("/.", "/"),
            ("/./", "/"),
            ("/..", "/"),
            ("/../", "/"),
            ("/../../a", "/a"),
            ("/a/.", "/a/"),
            ("/a/./b", "/a/b"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/b/../c", "/a/c"),
            ("/a/b/../../c", "/c"),
            ("/a/b/c/./../../g", "/a/g"),
            ("/a/...", "/a/..."),
            ("/a/.b", "/a/.b"),
            ("/a/..b", "/a/..b"),
            ("/a/b.", "/a/b."),
            ("/%2e", "/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e/b", "/b"),
            ("/a/%2e./b", "/b"),
            ("/%61%7E%2D%5f", "/a~-_"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%2fb", "/a%2fb"),
            ("/a/..%2Fb", "/a/..%2Fb"),
            ("/a%20b%c3%A9", "/a%20b%c3%A9"),
            ("/%252e%252e/", "/%252e%252e/"),
            ("/%25%32%65", "/%252e"),
            ("/%5C", "/%5C"),
            ("//", "//"),
            ("//a//b", "//a//b"),
            ("/a//../b", "/a/b"),
            ("//..", "/"),
            ("/a;x=1/b", "/a;x=1/b"),
        ] {
            let out = normalised(path.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&out), expected, "{path}");
        }
    }

    #[test]
    fn what_cannot_be_normal_is_refused() {
        for (path, error) in [
            ("", PathError::Relative),
            ("a/b", PathError::Relative),
            ("*", PathError::Relative),
            ("/a\\b", PathError::Backslash),
            ("/..\\a", PathError::Backslash),
            ("/%00", PathError::EncodedNul),
            ("/a%00b", PathError::EncodedNul),
            ("/%", PathError::PercentInvalid),
            ("/%4", PathError::PercentInvalid),
            ("/%4g", PathError::PercentInvalid),
            ("/%g4", PathError::PercentInvalid),
            ("/%%34%31", PathError::PercentInvalid),
            ("/%2/e", PathError::PercentInvalid),
        ] {
            assert_eq!(normalised(path.as_bytes()), Err(error), "{path}");
        }
    }

    proptest! {
        #[test]
        fn a_normal_path_is_normal(path in "/[a-b./%25eEfF0]{0,24}") {
            if let Ok(once) = normalised(path.as_bytes()) {
                prop_assert_eq!(&normalised(&once).unwrap(), &once);
                prop_assert!(once.starts_with(b"/"));
                let segments: Vec<&[u8]> = once.split(|&octet| octet == b'/').collect();
                prop_assert!(!segments.contains(&&b"."[..]) && !segments.contains(&&b".."[..]));
                if !is_suspect(path.as_bytes()) {
                    prop_assert_eq!(once, path.into_bytes());
                }
            }
        }
    }
}
