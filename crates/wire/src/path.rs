//! Paths in the one spelling that is matched and forwarded.
//!
//! Routes decide by path, so two spellings of one path must not take two routes, and what was
//! matched must be what the upstream sees. What is done, and nothing else, in this order:
//!
//! * percent-encoded unreserved characters are decoded (RFC 3986, section 6.2.2.2);
//! * what stays encoded has upper-case digits: `%2f` is `%2F` (section 6.2.2.1);
//! * octets that no path may hold as they are (section 3.3: `"`, `<`, `>`, `[`, `]`, `^`, `` ` ``,
//!   `{`, `|`, `}`) are encoded, since clients send them either way;
//! * with [`Slashes::Merge`], `//` becomes `/`;
//! * dot segments are resolved, after that decoding, so that `%2e%2e` is one too (section 5.2.4).
//!
//! An encoded reserved character is another one than the character itself (section 2.2): `%2F` is no
//! `/` and `%2B` no `+`, and each stays as it was sent. An upstream that treats the two alike
//! cannot be protected here. So are parameters: `..;x` is no dot segment.
//!
//! Refused: a percent sign without two hex digits, `%00`, and `\`, which some servers take for a
//! slash.

use serde::{Deserialize, Serialize};

use crate::octets::{self, hex_value};

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

/// How several slashes in a row are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Slashes {
    /// Empty segments, which stay (RFC 3986).
    #[default]
    Keep,
    /// One slash.
    Merge,
}

/// Whether `path` may be in need of [`normalise`]: it holds an octet that is decoded, encoded or
/// refused, `/.`, or, where slashes are merged, `//`.
#[must_use]
pub fn is_suspect(path: &[u8], slashes: Slashes) -> bool {
    !path.iter().all(|&octet| is_path_octet(octet))
        || has_dot_segment_start(path)
        || (slashes == Slashes::Merge && has_empty_segment(path))
}

/// Appends the normal form of `path` (without a query) to `out`.
///
/// # Errors
///
/// When the path is refused; `out` then holds what it held before.
pub fn normalise(path: &[u8], slashes: Slashes, out: &mut Vec<u8>) -> Result<(), PathError> {
    let start = out.len();
    let result = append_normalised(path, slashes, start, out);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Appends `path` to `out` with each octet in its one spelling, and leaves its segments as they are:
/// for the beginning of a path, whose last segment goes on.
///
/// # Errors
///
/// When the path is refused; `out` then holds what it held before.
pub fn normalise_octets(path: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    let start = out.len();
    let result = match path {
        [b'/', ..] => append_octets(path, out),
        _ => Err(PathError::Relative),
    };
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Whether a segment begins with a dot. Dots elsewhere, as in `index.html`, change nothing.
pub(crate) fn has_dot_segment_start(path: &[u8]) -> bool {
    path.windows(2).any(|pair| pair == b"/.")
}

/// Whether one slash follows another.
#[inline]
pub(crate) fn has_empty_segment(path: &[u8]) -> bool {
    octets::has_pair(path, b'/')
}

/// Whether `octet` stands in a path as it is (RFC 3986, section 3.3: `pchar`), or between segments.
pub(crate) const fn is_path_octet(octet: u8) -> bool {
    is_unreserved(octet)
        || matches!(octet, b'/' | b':' | b'@')
        || matches!(octet, b'!' | b'$' | b'&' | b'\'' | b'(' | b')')
        || matches!(octet, b'*' | b'+' | b',' | b';' | b'=')
}

fn append_normalised(
    path: &[u8],
    slashes: Slashes,
    start: usize,
    out: &mut Vec<u8>,
) -> Result<(), PathError> {
    let segments = path.strip_prefix(b"/").ok_or(PathError::Relative)?;
    // An encoded octet never decodes to a slash, so the segments are those of the raw path.
    // Before each, `out` ends in a slash.
    out.push(b'/');
    let mut segments = segments.split(|&octet| octet == b'/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && slashes == Slashes::Merge {
            continue;
        }
        let segment_start = out.len();
        append_octets(segment, out)?;
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

fn append_octets(mut path: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    loop {
        path = match path {
            [] => return Ok(()),
            [b'\\', ..] => return Err(PathError::Backslash),
            [0, ..] => return Err(PathError::EncodedNul),
            [b'%', high, low, rest @ ..] => {
                let octet =
                    hex_value(*high).zip(hex_value(*low)).map(|(high, low)| high << 4 | low);
                match octet.ok_or(PathError::PercentInvalid)? {
                    0 => return Err(PathError::EncodedNul),
                    octet if is_unreserved(octet) => out.push(octet),
                    octet => push_encoded(octet, out),
                }
                rest
            }
            [b'%', ..] => return Err(PathError::PercentInvalid),
            [octet, rest @ ..] => {
                if is_path_octet(*octet) {
                    out.push(*octet);
                } else {
                    push_encoded(*octet, out);
                }
                rest
            }
        };
    }
}

fn push_encoded(octet: u8, out: &mut Vec<u8>) {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'A' + value - 10 };
    out.extend_from_slice(&[b'%', digit(octet >> 4), digit(octet & 0xf)]);
}

/// RFC 3986, section 2.3.
const fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normalised(path: &[u8]) -> Result<Vec<u8>, PathError> {
        normalised_with(path, Slashes::Keep)
    }

    fn normalised_with(path: &[u8], slashes: Slashes) -> Result<Vec<u8>, PathError> {
        let mut out = b"kept".to_vec();
        let result = normalise(path, slashes, &mut out);
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
            ("/a%2fb", "/a%2Fb"),
            ("/a/..%2Fb", "/a/..%2Fb"),
            ("/a%20b%c3%A9", "/a%20b%C3%A9"),
            ("/%252e%252e/", "/%252e%252e/"),
            ("/%25%32%65", "/%252e"),
            ("/%5c", "/%5C"),
            ("/a+b", "/a+b"),
            ("/a%2bb", "/a%2Bb"),
            ("/%7B%7b{", "/%7B%7B%7B"),
            ("/\"<>[]^`{|}", "/%22%3C%3E%5B%5D%5E%60%7B%7C%7D"),
            ("/%22%3c%3e%5b%5d%5e%60%7b%7c%7d", "/%22%3C%3E%5B%5D%5E%60%7B%7C%7D"),
            ("/\u{e9} \u{1}", "/%C3%A9%20%01"),
            ("/:@!$&'()*+,;=-._~", "/:@!$&'()*+,;=-._~"),
            ("/..;/a", "/..;/a"),
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
    fn slashes_in_a_row_are_one_where_they_are_merged() {
        for (path, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("///a", "/a"),
            ("//a//b//", "/a/b/"),
            ("/a//../b", "/b"),
            ("/a/..//b", "/b"),
            ("//..//", "/"),
            ("/a/.//", "/a/"),
            ("/a//.", "/a/"),
            ("/a/%2F/b", "/a/%2F/b"),
        ] {
            let out = normalised_with(path.as_bytes(), Slashes::Merge).unwrap();
            assert_eq!(String::from_utf8_lossy(&out), expected, "{path}");
        }
    }

    #[test]
    fn the_beginning_of_a_path_keeps_its_segments() {
        for (path, expected) in [
            ("/.", Ok("/.")),
            ("/a/%2e%2E", Ok("/a/..")),
            ("/g%c3%a9/%7b//", Ok("/g%C3%A9/%7B//")),
            ("a", Err(PathError::Relative)),
            ("/%0", Err(PathError::PercentInvalid)),
        ] {
            let mut out = b"kept".to_vec();
            let result = normalise_octets(path.as_bytes(), &mut out);
            let kept = format!("kept{}", expected.unwrap_or_default());
            assert_eq!((result, out), (expected.map(drop), kept.into_bytes()), "{path}");
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

    /// A path of segments, spelled in two of the ways that RFC 3986 calls equivalent, and which of
    /// them are equivalent only where slashes are merged.
    fn spellings(is_merged: bool) -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let octets = proptest::collection::vec((1..=255u8, any::<bool>(), any::<[u8; 2]>()), 0..6);
        let segment = (octets, any::<[u8; 2]>());
        proptest::collection::vec(segment, 1..5).prop_map(move |segments| {
            let mut paths = (Vec::new(), Vec::new());
            for (octets, detours) in segments {
                let mut texts = (Vec::new(), Vec::new());
                for (octet, is_encoded, hows) in octets {
                    spell(octet, is_encoded, hows[0], &mut texts.0);
                    spell(octet, is_encoded, hows[1], &mut texts.1);
                }
                for (path, text, detour) in
                    [(&mut paths.0, texts.0, detours[0]), (&mut paths.1, texts.1, detours[1])]
                {
                    let detours: [&[u8]; 4] = [b"/", b"/./", b"/%2E/", b"/x/.%2e/"];
                    path.extend_from_slice(detours[usize::from(detour % 4)]);
                    if is_merged && detour >= 128 {
                        path.push(b'/');
                    }
                    path.extend_from_slice(&text);
                }
            }
            paths
        })
    }

    /// Writes an octet of a segment in one of its spellings. What is reserved has two meanings: as
    /// it is, and encoded.
    fn spell(octet: u8, is_encoded: bool, how: u8, out: &mut Vec<u8>) {
        let is_free = is_unreserved(octet) || !is_path_octet(octet);
        let is_raw_allowed = !matches!(octet, b'%' | b'\\' | b'/');
        let is_encoded = if is_free { how & 1 == 0 } else { is_encoded };
        if is_raw_allowed && !is_encoded {
            return out.push(octet);
        }
        let text = format!("{octet:02x}").into_bytes();
        out.push(b'%');
        for (place, digit) in text.into_iter().enumerate() {
            let is_upper = how & (2 << place) != 0;
            out.push(if is_upper { digit.to_ascii_uppercase() } else { digit });
        }
    }

    proptest! {
        #[test]
        fn a_normal_path_is_normal(path in "/[a-b./%25eEfF0{+\\[]{0,24}", merges in any::<bool>()) {
            let slashes = if merges { Slashes::Merge } else { Slashes::Keep };
            if let Ok(once) = normalised_with(path.as_bytes(), slashes) {
                prop_assert_eq!(&normalised_with(&once, slashes).unwrap(), &once);
                prop_assert!(once.starts_with(b"/"));
                let segments: Vec<&[u8]> = once.split(|&octet| octet == b'/').collect();
                prop_assert!(!segments.contains(&&b"."[..]) && !segments.contains(&&b".."[..]));
                prop_assert!(!merges || !has_empty_segment(&once));
                if !is_suspect(path.as_bytes(), slashes) {
                    prop_assert_eq!(once, path.into_bytes());
                }
            }
        }

        #[test]
        fn equivalent_paths_are_spelled_alike((one, other) in spellings(false)) {
            prop_assert_eq!(normalised(&one).unwrap(), normalised(&other).unwrap());
        }

        #[test]
        fn equivalent_paths_are_spelled_alike_with_slashes_merged(
            (one, other) in spellings(true),
        ) {
            let normalised = |path: &[u8]| normalised_with(path, Slashes::Merge).unwrap();
            prop_assert_eq!(normalised(&one), normalised(&other));
        }
    }
}
