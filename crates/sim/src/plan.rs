//! Requests and responses, as functions of a request's id.
//!
//! A client and every service derive independently what belongs to an id: each byte
//! of both bodies, the status, the framing. So a byte that belongs to another request is seen at
//! once, wherever it turns up.

use crate::random::{Random, mix};

/// A request, complete with what its connection should do before and after.
#[derive(Clone, Debug)]
pub struct RequestPlan {
    /// Unique in the simulation.
    pub id: u64,
    /// The method.
    pub method: &'static str,
    /// Whether it says HTTP/1.1; else HTTP/1.0.
    pub is_http11: bool,
    /// Name of the cluster that it is for.
    pub cluster: &'static str,
    /// Its body.
    pub body: RequestBody,
    /// Whether the body waits for a `100 Continue`.
    pub expects_continue: bool,
    /// Bytes to send through a tunnel, if it asks for one.
    pub tunnel: Option<usize>,
    /// Its `connection` field.
    pub connection: Option<&'static str>,
}

impl RequestPlan {
    /// Whether it says that nothing follows.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.connection.map_or(!self.is_http11, |connection| connection == "close")
    }
}

/// A request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// None.
    None,
    /// So many bytes, with `content-length`.
    Length(usize),
    /// So many bytes, chunked, with or without trailers.
    Chunked(usize, bool),
}

impl RequestBody {
    /// Its bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Length(length) | Self::Chunked(length, _) => length,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// How a response's end is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// `content-length`.
    Length,
    /// Chunked.
    Chunked,
    /// The connection closes.
    UntilClose,
}

/// A response.
#[derive(Clone, Copy, Debug)]
pub struct ResponsePlan {
    /// Its status.
    pub status: u16,
    /// Bytes of its body; 0 where the status has none.
    pub length: usize,
    /// How its end is marked.
    pub framing: ResponseFraming,
    /// Interim responses (103) before it.
    pub interim: u8,
    /// Whether a trailer section follows a chunked body.
    pub has_trailers: bool,
    /// Whether it comes before the request's body is read.
    pub is_early: bool,
    /// Whether a request that asks for a tunnel gets one.
    pub switches: bool,
    /// Whether `100 Continue` is sent to a client that waits for it.
    pub continues: bool,
}

impl ResponsePlan {
    /// The response to the request with this id.
    #[must_use]
    pub fn of(id: u64) -> Self {
        let mut random = Random::new(mix(id ^ 0x5e_ed0f_7e59));
        let status = *random.pick(&[200, 200, 200, 200, 201, 204, 304, 404, 500]);
        let has_body = !matches!(status, 204 | 304);
        let framing = match random.below(10) {
            0..=4 => ResponseFraming::Length,
            5..=8 => ResponseFraming::Chunked,
            _ => ResponseFraming::UntilClose,
        };
        let length = match random.below(20) {
            0 => random.length_between(100_000, 400_000),
            1..=3 => random.length_between(5_000, 70_000),
            4 => 0,
            _ => random.size(3_000),
        };
        Self {
            status,
            length: if has_body { length } else { 0 },
            framing: if has_body { framing } else { ResponseFraming::Length },
            interim: if random.chance(100) { 1 } else { 0 },
            has_trailers: random.chance(300),
            is_early: random.chance(100),
            switches: random.chance(800),
            continues: random.chance(700),
        }
    }
}

/// The bytes that a service sends to a relayed client.
#[derive(Clone, Copy, Debug)]
pub struct RelayPlan {
    /// Bytes that it sends, besides its greeting.
    pub length: usize,
}

impl RelayPlan {
    /// The service's greeting, sent before it knows the client's id.
    pub(crate) const GREETING: &[u8] = b"hello\n";

    /// The service's bytes for the client of this id.
    #[must_use]
    pub fn of(id: u64) -> Self {
        Self { length: ResponsePlan::of(id).length }
    }

    /// Bytes that a client gets.
    #[must_use]
    pub(crate) const fn greeted_length(self) -> usize {
        Self::GREETING.len() + self.length
    }

    /// The first bytes of a relayed client: no protocol that Strait detects begins so.
    #[must_use]
    pub(crate) fn introduction(id: u64) -> [u8; 9] {
        let [a, b, c, d, e, f, g, h] = id.to_be_bytes();
        [0, a, b, c, d, e, f, g, h]
    }
}

/// Salts by which the bytes of requests and of responses differ.
const REQUEST: u64 = 0x7265_7175_6573_7421;

/// The bytes of a response's body from `offset` on.
pub(crate) fn fill_response(id: u64, offset: u64, out: &mut [u8]) {
    fill(id, offset, out);
}

/// The bytes of a request's body from `offset` on.
pub(crate) fn fill_request(id: u64, offset: u64, out: &mut [u8]) {
    fill(id ^ REQUEST, offset, out);
}

/// Whether these are the bytes of a response's body from `offset` on.
#[must_use]
pub(crate) fn is_response(id: u64, offset: u64, bytes: &[u8]) -> bool {
    is_of(id, offset, bytes)
}

/// Whether these are the bytes of a request's body from `offset` on.
#[must_use]
pub(crate) fn is_request(id: u64, offset: u64, bytes: &[u8]) -> bool {
    is_of(id ^ REQUEST, offset, bytes)
}

fn byte(id: u64, at: u64) -> u8 {
    let word = mix(id ^ (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
    word.get((at % 8) as usize).copied().unwrap_or_default()
}

fn fill(id: u64, offset: u64, out: &mut [u8]) {
    for (place, at) in out.iter_mut().zip(offset..) {
        *place = byte(id, at);
    }
}

fn is_of(id: u64, offset: u64, bytes: &[u8]) -> bool {
    bytes.iter().zip(offset..).all(|(found, at)| *found == byte(id, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_request_or_place_are_recognised() {
        let mut bytes = [0; 32];
        fill_response(5, 100, &mut bytes);
        assert!(is_response(5, 100, &bytes));
        assert!(!is_response(6, 100, &bytes));
        assert!(!is_response(5, 101, &bytes));
        assert!(!is_request(5, 100, &bytes));
    }
}
