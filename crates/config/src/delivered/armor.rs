//! Octets in the textual encoding of RFC 7468: base64 between a line that begins it and one that ends it.

use zeroize::Zeroizing;

/// The octets of the one block with this label; none if there is another text, or more than one.
pub(super) fn decode(text: &[u8], label: &str) -> Option<Zeroizing<Vec<u8>>> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let body = text.strip_prefix(&format!("-----BEGIN {label}-----"))?;
    let body = body.strip_suffix(&format!("-----END {label}-----"))?;
    base64(body)
}

/// The octets of base64 with its padding (RFC 4648, section 4), whatever white space is in it.
fn base64(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    // It does not grow, and so is not copied.
    let mut octets = Zeroizing::new(Vec::with_capacity(text.len() / 4 * 3 + 3));
    let (mut bits, mut digits, mut padding) = (0u32, 0u32, 0u32);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        if byte == b'=' {
            padding += 1;
            continue;
        }
        if padding > 0 {
            return None;
        }
        bits = (bits << 6) | u32::from(value(byte)?);
        digits += 1;
        if digits == 4 {
            let [_, first, second, third] = bits.to_be_bytes();
            octets.extend([first, second, third]);
            (bits, digits) = (0, 0);
        }
    }
    // What a digit has beyond the last octet is 0.
    match (digits, padding) {
        (0, 0) => {}
        (2, 2) if bits & 0xf == 0 => octets.push(u8::try_from(bits >> 4).ok()?),
        (3, 1) if bits & 0x3 == 0 => octets.extend(u16::try_from(bits >> 2).ok()?.to_be_bytes()),
        _ => return None,
    }
    Some(octets)
}

const fn value(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_as_rfc_4648_shows_it_and_nothing_else_is() {
        for (text, octets) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            (" Zm9v\nYmE=\r\n", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(base64(text).unwrap().as_slice(), octets.as_bytes(), "{text}");
        }
        assert_eq!(base64("+/+/").unwrap().as_slice(), [0xfb, 0xff, 0xbf]);
        for text in
            ["Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zm8", "Zm9v=", "Zg==Zg==", "Zm-v", "=", "Zg==="]
        {
            assert!(base64(text).is_none(), "{text}");
        }
    }

    #[test]
    fn one_block_with_the_label_is_taken() {
        let block = "-----BEGIN OCSP RESPONSE-----\nZm9v\n-----END OCSP RESPONSE-----\n";
        assert_eq!(decode(block.as_bytes(), "OCSP RESPONSE").unwrap().as_slice(), b"foo");
        for text in [
            String::new(),
            "Zm9v".to_owned(),
            block.repeat(2),
            block.replace("OCSP RESPONSE", "CERTIFICATE"),
            block.replace("END", "BEGIN"),
            block.replace("Zm9v", "Zm9"),
        ] {
            assert!(decode(text.as_bytes(), "OCSP RESPONSE").is_none(), "{text}");
        }
        assert!(decode(b"\xff", "OCSP RESPONSE").is_none());
    }
}
