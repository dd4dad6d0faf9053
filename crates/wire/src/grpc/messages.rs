//! Messages in a body: a flag, a length, and that many octets (PROTOCOL-HTTP2,
//! `Length-Prefixed-Message`).
//!
//! Message boundaries do not follow HTTP/2 frames, chunks or reads.

use serde::{Deserialize, Serialize};

/// Counts the messages of a body that passes by in pieces.
///
/// The content of a message is skipped, not read: a piece costs what its messages cost, however
/// long they are.
///
/// ```text
///  Flag ─► Length (4 octets) ─► Payload ─► Flag
///                 └─── length 0 ───────────►
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCounter {
    messages: u64,
    state: State,
}

/// Octets in front of a message's content.
pub const MESSAGE_PREFIX_LEN: usize = 5;

impl MessageCounter {
    /// The messages that have passed, each with its last octet. Trailers that gRPC-Web has in the
    /// body are none.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether what has passed ends with a whole message, or is nothing.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.state == State::Flag
    }

    /// `data` of the body passes.
    pub fn on_data(&mut self, data: &[u8]) {
        let mut rest = data;
        loop {
            rest = match (self.state, rest) {
                (_, []) => return,
                (State::Flag, [flag, a, b, c, d, behind @ ..]) => {
                    let length = u32::from_be_bytes([*a, *b, *c, *d]);
                    self.on_length(is_trailers(*flag), length);
                    behind
                }
                (State::Flag, [flag, behind @ ..]) => {
                    let is_trailers = is_trailers(*flag);
                    self.state = State::Length { is_trailers, octets: 0, length: 0 };
                    behind
                }
                (State::Length { is_trailers, octets, length }, [octet, behind @ ..]) => {
                    let length = length << 8 | u32::from(*octet);
                    if octets < 3 {
                        self.state = State::Length { is_trailers, octets: octets + 1, length };
                    } else {
                        self.on_length(is_trailers, length);
                    }
                    behind
                }
                (State::Payload { is_trailers, left }, rest) => {
                    let len = u32::try_from(rest.len()).map_or(left, |len| len.min(left));
                    self.on_length(is_trailers, left - len);
                    rest.get(len as usize..).unwrap_or_default()
                }
            };
        }
    }

    /// `left` octets of a message are still to come.
    fn on_length(&mut self, is_trailers: bool, left: u32) {
        self.state = if left > 0 {
            State::Payload { is_trailers, left }
        } else {
            self.messages = self.messages.saturating_add(u64::from(!is_trailers));
            State::Flag
        };
    }
}

/// Where in a message the counter is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    /// Before a message.
    #[default]
    Flag,
    /// Behind so many `octets` of the length.
    Length { is_trailers: bool, octets: u8, length: u32 },
    /// Before so many octets of the content.
    Payload { is_trailers: bool, left: u32 },
}

/// Whether a flag is that of trailers (PROTOCOL-WEB, message framing).
fn is_trailers(flag: u8) -> bool {
    flag & super::web::TRAILERS_FLAG != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state of a counter after `pieces`.
    fn counted(pieces: &[&[u8]]) -> (u64, bool) {
        let mut counter = MessageCounter::default();
        for piece in pieces {
            counter.on_data(piece);
        }
        (counter.messages(), counter.is_between_messages())
    }

    #[test]
    fn messages_are_counted_with_their_last_octet_however_they_come() {
        for (body, messages, is_whole) in [
            (&b""[..], 0, true),
            (b"\0", 0, false),
            (b"\0\0\0\0", 0, false),
            (b"\0\0\0\0\0", 1, true),
            (b"\x01\0\0\0\x01", 0, false),
            (b"\x01\0\0\0\x01x", 1, true),
            (b"\0\0\0\0\x02xy\0\0\0\0\0\x01\0\0\0\x01z", 3, true),
            (b"\0\0\0\x01\0", 0, false),
            // Trailers of gRPC-Web.
            (b"\0\0\0\0\x01x\x80\0\0\0\x03a:b", 1, true),
            (b"\x81\0\0\0\0", 0, true),
        ] {
            for cut in 0..=body.len() {
                let (front, back) = body.split_at(cut);
                assert_eq!(
                    counted(&[front, back]),
                    (messages, is_whole),
                    "{} at {cut}",
                    body.escape_ascii()
                );
            }
            let octets: Vec<&[u8]> = body.chunks(1).collect();
            assert_eq!(counted(&octets), (messages, is_whole), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn a_length_has_all_of_its_octets() {
        let mut counter = MessageCounter::default();
        counter.on_data(&[0, 0, 1, 2, 3]);
        counter.on_data(&vec![0xff; 0x0001_0202]);
        assert_eq!((counter.messages(), counter.is_between_messages()), (0, false));
        counter.on_data(&[0xff]);
        assert_eq!((counter.messages(), counter.is_between_messages()), (1, true));
    }

    #[test]
    fn the_longest_message_is_skipped_whole() {
        let mut counter = MessageCounter::default();
        counter.on_data(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(counter.state, State::Payload { is_trailers: false, left: u32::MAX });
        let piece = vec![0; 1 << 20];
        for _ in 0..(1 << 12) - 1 {
            counter.on_data(&piece);
        }
        counter.on_data(&piece[..(1 << 20) - 1]);
        assert_eq!((counter.messages(), counter.is_between_messages()), (1, true));
    }
}
