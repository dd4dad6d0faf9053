//! Connections that begin with a request of HTTP/1.1 (`Upgrade: h2c`).
//!
//! RFC 9113 has taken this way out again, section 3.2 of RFC 7540 says how it goes: the request is
//! stream 1, and the client's settings come along in `HTTP2-Settings`.

use thiserror::Error;

use super::Limits;
use super::connection::{Http2, Http2Role};
use super::error::ConnectionError;
use super::settings::SETTING_LEN;
use super::stream::{Half, Stream, StreamKind};

/// Why a request cannot be upgraded. It can be answered as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UpgradeError {
    /// `HTTP2-Settings` is not in base64url, or not a list of settings.
    #[error("settings that are not in base64url")]
    EncodingInvalid,
    /// A setting is out of its range.
    #[error("in the settings: {0}")]
    Settings(#[from] ConnectionError),
}

impl Http2 {
    /// The side that answers, behind a request of HTTP/1.1 that was read to the end of its body.
    /// `settings` is the value of its one `HTTP2-Settings`.
    ///
    /// The `101` is sent in HTTP/1.1. Behind it the connection begins as any other, and the
    /// request has to be answered on stream 1.
    ///
    /// # Errors
    ///
    /// When the settings are none.
    pub fn upgraded_server(settings: &[u8], limits: &Limits) -> Result<Self, UpgradeError> {
        let payload = base64url(settings).ok_or(UpgradeError::EncodingInvalid)?;
        let (all, rest) = payload.as_chunks::<SETTING_LEN>();
        if !rest.is_empty() {
            return Err(UpgradeError::EncodingInvalid);
        }
        let mut this = Self::server(limits);
        for setting in all {
            this.theirs.on_setting(*setting, Http2Role::Client)?;
            this.encoder.set_size_allowed(this.theirs.header_table_bytes_max);
        }
        let mut stream = Stream::new(1, StreamKind::Plain, this.theirs.window, this.ours.window);
        stream.receiving = Half::End;
        this.streams.on_peer_used(1);
        this.streams.open(stream);
        Ok(this)
    }
}

/// Decodes base64url without padding (RFC 4648, section 5); padding is tolerated.
fn base64url(text: &[u8]) -> Option<Vec<u8>> {
    let text = match text {
        [text @ .., b'=', b'='] | [text @ .., b'='] => text,
        text => text,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for &octet in group {
            bits = bits << 6 | u32::from(sextet(octet)?);
        }
        // Bits beyond the last whole octet have to be zero.
        let (octets, spare) = match group.len() {
            4 => (3, 0),
            3 => (2, 2),
            2 => (1, 4),
            _ => return None,
        };
        if bits & ((1 << spare) - 1) != 0 {
            return None;
        }
        let [_, rest @ ..] = (bits >> spare).to_be_bytes();
        bytes.extend_from_slice(rest.get(3 - octets..)?);
    }
    Some(bytes)
}

fn sextet(octet: u8) -> Option<u8> {
    match octet {
        b'A'..=b'Z' => Some(octet - b'A'),
        b'a'..=b'z' => Some(octet - b'a' + 26),
        b'0'..=b'9' => Some(octet - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_is_read_as_it_is_written() {
        for (text, bytes) in [
            (&b""[..], Some(&b""[..])),
            (b"Zg", Some(b"f")),
            (b"Zg==", Some(b"f")),
            (b"Zm8", Some(b"fo")),
            (b"Zm8=", Some(b"fo")),
            (b"Zm9v", Some(b"foo")),
            (b"Zm9vYg", Some(b"foob")),
            (b"-_-_", Some(b"\xfb\xff\xbf")),
            (b"Z", None),
            (b"Zh", None),
            (b"Zm9", None),
            (b"Zm9v+/", None),
            (b"Zm 9", None),
            (b"Z===", None),
        ] {
            assert_eq!(base64url(text).as_deref(), bytes, "{:?}", text.escape_ascii());
        }
    }

    #[test]
    fn the_request_is_stream_1_and_its_settings_hold() {
        let limits = Limits::default();
        // INITIAL_WINDOW_SIZE 16, then MAX_CONCURRENT_STREAMS 100.
        let h2 = Http2::upgraded_server(b"AAQAAAAQAAMAAABk", &limits).unwrap();
        assert_eq!(h2.streams().collect::<Vec<_>>(), [1]);
        assert_eq!(h2.sendable(1), 16);
        assert!(Http2::upgraded_server(b"", &limits).is_ok());
        for (settings, error) in [
            (&b"AAQ"[..], UpgradeError::EncodingInvalid),
            (b"AA!", UpgradeError::EncodingInvalid),
            // ENABLE_PUSH 2
            (b"AAIAAAAC", UpgradeError::Settings(ConnectionError::SettingInvalid)),
        ] {
            assert_eq!(Http2::upgraded_server(settings, &limits).err(), Some(error));
        }
    }
}
