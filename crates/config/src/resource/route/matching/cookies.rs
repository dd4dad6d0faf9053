//! Cookies of a request (RFC 6265, section 4.2.1).

/// The value of the first cookie with this name in a `cookie` field, without quotes around it.
pub(super) fn find<'v>(field: &'v [u8], name: &[u8]) -> Option<&'v [u8]> {
    let pairs = field.split(|octet| *octet == b';').map(<[u8]>::trim_ascii);
    let value = pairs.into_iter().find_map(|pair| {
        let equals = memchr::memchr(b'=', pair)?;
        let (spelt, value) = pair.split_at(equals);
        (spelt.trim_ascii_end() == name).then(|| value.get(1..).unwrap_or_default())
    })?;
    let value = value.trim_ascii_start();
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some(inner.unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_however_its_neighbours_look() {
        for (field, value) in [
            ("", None),
            ("beta", None),
            ("beta=", Some("")),
            ("beta=yes", Some("yes")),
            ("beta=yes; beta=no", Some("yes")),
            ("a=b;beta=yes", Some("yes")),
            ("a=b;  beta=yes  ;c", Some("yes")),
            ("a=beta=yes", None),
            ("xbeta=yes", None),
            ("Beta=yes", None),
            ("beta =yes", Some("yes")),
            ("beta= yes", Some("yes")),
            ("beta=\"yes\"", Some("yes")),
            ("beta=\"\"", Some("")),
            ("beta=\"", Some("\"")),
            ("beta=\"yes", Some("\"yes")),
            ("beta=a=b", Some("a=b")),
            ("beta=y%65s", Some("y%65s")),
            (";;;;beta=1", Some("1")),
        ] {
            let found = find(field.as_bytes(), b"beta");
            assert_eq!(found, value.map(str::as_bytes), "{field:?}");
        }
    }
}
