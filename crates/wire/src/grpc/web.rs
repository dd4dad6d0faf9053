//! gRPC-Web (PROTOCOL-WEB): gRPC for clients that cannot read trailers, such as browsers.
//!
//! ```text
//!  client ── RequestDecoder ──► messages ─────────────────────────► gRPC service
//!         ◄─ ResponseEncoder ── messages, then trailers as a frame ─┘
//! ```
//!
//! A body is messages as gRPC has them, and that of a response ends with one more frame, which
//! holds the trailers. Text is the same in base64. Heads are gRPC's but for their content types,
//! for which [`convert_content_type`](super::convert_content_type) is; a response that says all in
//! its head, with `grpc-status` there and no body, stays as it is.
//!
//! Both machines write to a buffer. What they keep between two calls are a few octets.

use std::iter;

use serde::{Deserialize, Serialize};

use super::base64::{self, TextError};
use super::{MESSAGE_PREFIX_LEN, is_grpc};
use crate::buffer::Buffer;
use crate::h1::field;
use crate::octets;

/// How a body of gRPC-Web is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Encoding {
    /// As it is.
    Binary,
    /// In base64.
    Text,
}

/// The encoding of a response: what the client's `Accept` names first, and otherwise that of its
/// request. `accept` is empty if there was none.
#[must_use]
pub fn response_encoding(request: Encoding, accept: &[u8]) -> Encoding {
    let mut accepted = octets::list(accept).filter_map(|name| is_grpc(name)?.web_encoding());
    accepted.next().unwrap_or(request)
}

/// Turns the body of a gRPC-Web request into that of a gRPC request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestDecoder {
    text: Option<base64::Decoder>,
}

impl RequestDecoder {
    /// A decoder at the beginning of a body.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        let text = match encoding {
            Encoding::Binary => None,
            Encoding::Text => Some(base64::Decoder::default()),
        };
        Self { text }
    }

    /// Writes what `input` holds. That is never longer than `input`, and may be nothing.
    ///
    /// # Errors
    ///
    /// When the text is not base64. What came before that was written; there is nothing to go on
    /// with.
    ///
    /// # Panics
    ///
    /// When `out` has less room than `input` is long and the output needs it.
    pub fn decode(&mut self, input: &[u8], out: &mut Buffer) -> Result<(), TextError> {
        match &mut self.text {
            None => {
                out.push(input);
                Ok(())
            }
            Some(text) => text.decode(input, out),
        }
    }

    /// The body is over.
    ///
    /// # Errors
    ///
    /// When the text ends within a group of four characters: padding is part of it.
    pub fn on_eof(&self) -> Result<(), TextError> {
        self.text.as_ref().map_or(Ok(()), base64::Decoder::on_eof)
    }
}

/// Turns the body and the trailers of a gRPC response into the body of a gRPC-Web response.
///
/// Of text, up to two octets stay behind until more come. **Call [`ResponseEncoder::flush`] when
/// nothing more is at hand**, or a client waits for the end of a message that the service has sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseEncoder {
    text: Option<base64::Encoder>,
}

impl ResponseEncoder {
    /// An encoder at the beginning of a body.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        let text = match encoding {
            Encoding::Binary => None,
            Encoding::Text => Some(base64::Encoder::default()),
        };
        Self { text }
    }

    /// Writes `data` of the body.
    ///
    /// # Panics
    ///
    /// When `out` has less room than [`data_len_max`] and the data needs it.
    pub fn encode(&mut self, data: &[u8], out: &mut Buffer) {
        match &mut self.text {
            None => out.push(data),
            Some(text) => text.encode(data, out),
        }
    }

    /// Writes what was kept back, at most four characters. [`data_len_max`] has room for it.
    ///
    /// # Panics
    ///
    /// When `out` has no room for that.
    pub fn flush(&mut self, out: &mut Buffer) {
        if let Some(text) = &mut self.text {
            text.flush(out);
        }
    }

    /// Ends the body with a trailer section, which are valid field lines, each with its line end.
    ///
    /// Names are in lower case then. Values that the service has in base64 (`-bin`) stay so in text
    /// too, though they need not: what they stand for may hold a line end.
    ///
    /// # Panics
    ///
    /// When `out` has less room than [`trailers_len_max`] and the section needs it.
    pub fn encode_trailers(&mut self, section: &[u8], out: &mut Buffer) {
        // A colon, a space and a line end.
        let len = lines(section).map(|(name, value)| name.len() + value.len() + 4).sum();
        let [a, b, c, d] = octets::narrow(len).to_be_bytes();
        self.encode(&[TRAILERS_FLAG, a, b, c, d], out);
        for (name, value) in lines(section) {
            for octet in name {
                self.encode(&[octet.to_ascii_lowercase()], out);
            }
            self.encode(b": ", out);
            self.encode(value, out);
            self.encode(b"\r\n", out);
        }
        self.flush(out);
    }
}

/// Room that is enough to [encode](ResponseEncoder::encode) `len` octets of data and to
/// [flush](ResponseEncoder::flush) behind them.
#[must_use]
pub const fn data_len_max(len: usize) -> usize {
    (len + KEPT_LEN_MAX).div_ceil(3) * 4
}

/// So many octets of data fit `room`, by [`data_len_max`].
#[must_use]
pub const fn data_len_fitting(room: usize) -> usize {
    (room / 4 * 3).saturating_sub(KEPT_LEN_MAX)
}

/// Room that is enough to [end a body](ResponseEncoder::encode_trailers) with `section`.
#[must_use]
pub fn trailers_len_max(section: &[u8]) -> usize {
    // Each line may lack the space behind its colon.
    let lines = section.iter().filter(|&&octet| octet == b'\n').count();
    data_len_max(MESSAGE_PREFIX_LEN + section.len() + lines)
}

/// The bit of a flag that marks trailers (PROTOCOL-WEB, message framing).
pub(super) const TRAILERS_FLAG: u8 = 0x80;

/// Octets that an encoder keeps.
const KEPT_LEN_MAX: usize = 2;

/// Names and values of a trailer section.
fn lines(section: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = 0;
    iter::from_fn(move || {
        let Ok((entry, next)) = field(section, at) else {
            debug_assert_eq!(at, section.len(), "the section was valid");
            return None;
        };
        at = next;
        Some((entry.name().of(section), entry.value().of(section)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTION: &[u8] = b"Grpc-Status: 0\r\nx-a:b \r\nX-Empty:\r\n";
    const FRAME: &[u8] = b"\x80\0\0\0\x23grpc-status: 0\r\nx-a: b\r\nx-empty: \r\n";

    /// Runs `encode` in just enough room.
    fn written(room: usize, encode: impl FnOnce(&mut Buffer)) -> Vec<u8> {
        let mut out = Buffer::new(room);
        encode(&mut out);
        out.filled().to_vec()
    }

    #[test]
    fn a_binary_request_passes_as_it_is() {
        let mut decoder = RequestDecoder::new(Encoding::Binary);
        let out = written(5, |out| {
            decoder.decode(b"\0\0=", out).unwrap();
            decoder.decode(b"\xff\n", out).unwrap();
        });
        assert_eq!(out, b"\0\0=\xff\n");
        assert_eq!(decoder.on_eof(), Ok(()));
    }

    #[test]
    fn a_text_request_is_decoded_segment_by_segment() {
        let mut decoder = RequestDecoder::new(Encoding::Text);
        let out = written(14, |out| {
            decoder.decode(b"AAAAAAE", out).unwrap();
            assert_eq!(decoder.on_eof(), Err(TextError::GroupCut));
            decoder.decode(b"=eA==", out).unwrap();
        });
        assert_eq!(out, b"\0\0\0\0\x01x");
        assert_eq!(decoder.on_eof(), Ok(()));
        let error = decoder.decode(b"*", &mut Buffer::new(1));
        assert_eq!(error, Err(TextError::CharacterInvalid));
    }

    #[test]
    fn a_binary_response_ends_with_its_trailers() {
        let mut encoder = ResponseEncoder::new(Encoding::Binary);
        let data = written(data_len_max(6), |out| {
            encoder.encode(b"\0\0\0\0\x01x", out);
            encoder.flush(out);
        });
        assert_eq!(data, b"\0\0\0\0\x01x");
        let trailers = written(trailers_len_max(SECTION), |out| {
            encoder.encode_trailers(SECTION, out);
        });
        assert_eq!(trailers.escape_ascii().to_string(), FRAME.escape_ascii().to_string());
    }

    #[test]
    fn a_text_response_keeps_what_makes_no_group_until_it_is_flushed() {
        let mut encoder = ResponseEncoder::new(Encoding::Text);
        let mut out = Buffer::new(64);
        encoder.encode(b"foob", &mut out);
        assert_eq!(out.filled(), b"Zm9v");
        encoder.flush(&mut out);
        assert_eq!(out.filled(), b"Zm9vYg==");
        encoder.flush(&mut out);
        assert_eq!(out.len(), 8, "there is nothing to flush twice");
        encoder.encode(b"f", &mut out);
        encoder.encode(b"", &mut out);
        encoder.encode(b"o", &mut out);
        assert_eq!(out.len(), 8);
        encoder.encode(b"of", &mut out);
        assert_eq!(&out.filled()[8..], b"Zm9v");
    }

    #[test]
    fn trailers_of_text_follow_what_was_kept() {
        for data in [&b""[..], b"a", b"ab", b"abc"] {
            let mut encoder = ResponseEncoder::new(Encoding::Text);
            let mut text = Vec::new();
            text.extend(written(4, |out| encoder.encode(data, out)));
            text.extend(written(trailers_len_max(SECTION), |out| {
                encoder.encode_trailers(SECTION, out);
            }));
            let body = written(text.len(), |out| {
                let mut decoder = RequestDecoder::new(Encoding::Text);
                decoder.decode(&text, out).unwrap();
                decoder.on_eof().unwrap();
            });
            assert_eq!(body, [data, FRAME].concat());
        }
    }

    #[test]
    fn no_trailers_are_an_empty_frame() {
        let mut encoder = ResponseEncoder::new(Encoding::Text);
        let text = written(trailers_len_max(b""), |out| encoder.encode_trailers(b"", out));
        assert_eq!(text, b"gAAAAAA=");
    }

    #[test]
    fn the_room_that_is_named_is_enough_and_what_fits_it_is_known() {
        for len in 0..50 {
            for kept in [&b""[..], b"a", b"ab"] {
                let mut encoder = ResponseEncoder::new(Encoding::Text);
                encoder.encode(kept, &mut Buffer::default());
                let mut out = Buffer::new(data_len_max(len));
                encoder.encode(&vec![b'x'; len], &mut out);
                encoder.flush(&mut out);
                assert!(out.spare_len() == 0 || kept.len() < 2, "{len} behind {kept:?}");
            }
        }
        for room in 0..50 {
            let len = data_len_fitting(room);
            assert!(len == 0 || data_len_max(len) <= room, "{room}");
            assert!(data_len_max(len + 1) > room, "{room}");
        }
    }

    #[test]
    fn a_client_says_how_it_wants_its_response() {
        let (binary, text) = (Encoding::Binary, Encoding::Text);
        for (request, accept, expected) in [
            (binary, &b""[..], binary),
            (text, b"", text),
            (text, b"*/*", text),
            (binary, b"application/grpc", binary),
            (binary, b"application/grpc-web-text", text),
            (text, b"application/grpc-web+proto", binary),
            (binary, b"text/html, Application/gRPC-Web-Text+proto;q=1, application/grpc-web", text),
        ] {
            let encoding = response_encoding(request, accept);
            assert_eq!(encoding, expected, "{}", accept.escape_ascii());
        }
    }
}
