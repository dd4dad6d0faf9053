//! Parameters of a query, as `application/x-www-form-urlencoded` has them (WHATWG URL, section 5.1).
//!
//! Names and values are decoded before they are compared: one parameter has many spellings, and a rule that compared
//! only one of them could be got around by any other.

/// The value of the first parameter with this name. What has to be decoded is written to `text`.
pub(super) fn find<'v>(query: &'v [u8], name: &[u8], text: &'v mut Vec<u8>) -> Option<&'v [u8]> {
    let value = parameters(query).find(|(spelt, _)| is_name(spelt, name))?.1;
    if !value.iter().any(|octet| matches!(octet, b'%' | b'+')) {
        return Some(value);
    }
    text.clear();
    text.extend(Decoded(value));
    Some(text)
}

/// Name and value of each parameter, as spelt. One without `=` has an empty value.
fn parameters(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let parts = query.split(|octet| *octet == b'&').filter(|part| !part.is_empty());
    parts.map(|part| {
        let equals = memchr::memchr(b'=', part);
        let (name, value) = part.split_at(equals.unwrap_or(part.len()));
        (name, value.get(1..).unwrap_or_default())
    })
}

fn is_name(spelt: &[u8], name: &[u8]) -> bool {
    // Decoding makes nothing longer.
    spelt.len() >= name.len() && (spelt == name || Decoded(spelt).eq(name.iter().copied()))
}

/// The octets of a name or a value. A `%` without two hex digits behind it stands for itself.
#[derive(Clone, Copy, Debug)]
struct Decoded<'a>(&'a [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (octet, rest) = match self.0 {
            [] => return None,
            [b'%', high, low, rest @ ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, rest),
                _ => (b'%', self.0.get(1..).unwrap_or_default()),
            },
            [b'+', rest @ ..] => (b' ', rest),
            [octet, rest @ ..] => (*octet, rest),
        };
        self.0 = rest;
        Some(octet)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len().div_ceil(3), Some(self.0.len()))
    }
}

fn hex(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_found_in_all_its_spellings() {
        for (query, value) in [
            ("", None),
            ("page", Some("")),
            ("page=", Some("")),
            ("page=1", Some("1")),
            ("page=1&page=2", Some("1")),
            ("a=b&page=1", Some("1")),
            ("&&page=1&", Some("1")),
            ("pages=1", None),
            ("xpage=1", None),
            ("Page=1", None),
            ("p%61ge=1", Some("1")),
            ("%70%61%67%65=1", Some("1")),
            ("page=%31", Some("1")),
            ("page=a+b", Some("a b")),
            ("page=a%20b", Some("a b")),
            ("page=a%2Bb", Some("a+b")),
            ("page=a=b", Some("a=b")),
            ("page=%", Some("%")),
            ("page=%4", Some("%4")),
            ("page=%zz", Some("%zz")),
            ("page=%00", Some("\0")),
            ("page=1#x", Some("1#x")),
            ("a;page=1", None),
        ] {
            let mut text = Vec::new();
            let found = find(query.as_bytes(), b"page", &mut text);
            assert_eq!(found, value.map(str::as_bytes), "{query:?}");
        }
    }

    #[test]
    fn a_name_with_spaces_and_signs_is_found() {
        let mut text = Vec::new();
        assert_eq!(find(b"a+b%26=1", b"a b&", &mut text), Some(&b"1"[..]));
        assert_eq!(find(&[b'&'; 8_192], b"page", &mut text), None);
        assert_eq!(find(b"=1", b"", &mut text), Some(&b"1"[..]));
    }
}
