//! The list in an `Upgrade` field (RFC 9110, section 7.8).

use crate::octets;

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
