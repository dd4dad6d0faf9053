//! The list in an `Upgrade` field (RFC 9110, section 7.8), and the handshake of WebSocket where
//! only one side of a proxy has it: over HTTP/1.1 there is a key and an answer to it (RFC 6455,
//! section 1.3), over HTTP/2 neither (RFC 8441, section 5).

use sha1_smol::Sha1;

use crate::octets;

/// Bytes of a key.
pub const WEBSOCKET_KEY_LEN: usize = 24;

/// Bytes of the answer to one.
pub const WEBSOCKET_ACCEPT_LEN: usize = 28;

/// A `Sec-WebSocket-Key` of these random bytes.
#[must_use]
pub fn websocket_key(random: [u8; 16]) -> [u8; WEBSOCKET_KEY_LEN] {
    base64(random)
}

/// The `Sec-WebSocket-Accept` that answers `key`.
#[must_use]
pub fn websocket_accept(key: &[u8]) -> [u8; WEBSOCKET_ACCEPT_LEN] {
    const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let mut hash = Sha1::new();
    hash.update(key.trim_ascii());
    hash.update(GUID);
    base64(hash.digest().bytes())
}

/// RFC 4648, section 4, with padding.
fn base64<const N: usize, const M: usize>(octets: [u8; N]) -> [u8; M] {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const { assert!(M == N.div_ceil(3) * 4, "four characters for each three octets") };
    let mut text = [b'='; M];
    for (group, out) in octets.chunks(3).zip(text.chunks_mut(4)) {
        let bits =
            group.iter().zip([16, 8, 0]).map(|(octet, by)| u32::from(*octet) << by).sum::<u32>();
        for (place, by) in out.iter_mut().take(group.len() + 1).zip([18, 12, 6, 0]) {
            let sextet = (bits >> by & 63) as usize;
            *place = ALPHABET.get(sextet).copied().unwrap_or(b'=');
        }
    }
    text
}

/// Whether every protocol that `value` offers is among `allowed`, and it offers at least one.
///
/// Names are compared without case, the version after a `/` included: `websocket` allows
/// `WebSocket` and not `websocket/13`. One unknown protocol refuses the whole list: the upstream,
/// not the proxy, would choose from it.
#[must_use]
pub fn all_allowed<T: AsRef<str>>(value: &[u8], allowed: &[T]) -> bool {
    let mut offers = octets::list(value).peekable();
    offers.peek().is_some()
        && offers.all(|offer| {
            allowed.iter().any(|name| name.as_ref().as_bytes().eq_ignore_ascii_case(offer))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_key_is_that_of_the_specification() {
        let key = b"dGhlIHNhbXBsZSBub25jZQ==";
        assert_eq!(&websocket_key(*b"the sample nonce"), key);
        assert_eq!(&websocket_accept(key), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn only_lists_of_allowed_protocols_pass() {
        let allowed = ["websocket", "tls/1.0"];
        for (value, expected) in [
            (&b"websocket"[..], true),
            (b"WebSocket", true),
            (b" websocket , TLS/1.0 ", true),
            (b",websocket,", true),
            (b"", false),
            (b" , ", false),
            (b"h2c", false),
            (b"websocket, h2c", false),
            (b"h2c, websocket", false),
            (b"websocket/13", false),
            (b"websocket h2c", false),
            (b"web", false),
        ] {
            assert_eq!(all_allowed(value, &allowed), expected, "{:?}", value.escape_ascii());
        }
        assert!(!all_allowed::<&str>(b"websocket", &[]));
    }
}
