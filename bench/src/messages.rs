//! Where HTTP/1.1 messages end, for peers that are known: our own requests and responses, passed
//! on by a proxy. Bodies have a `content-length`; anything else is an error and not a guess, so
//! that a proxy that changes the framing does not go unnoticed.

use memchr::memmem;

/// A byte stream of messages, cut anywhere.
#[derive(Debug, Default)]
pub struct Messages {
    /// The beginning of a head whose end has not come yet.
    partial_head: Vec<u8>,
    body_left: u64,
}

/// The stream is not a sequence of messages with known lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Longest head that is waited for.
const HEAD_BYTES_MAX: usize = 16 << 10;

impl Messages {
    /// Takes the next `bytes` and returns how many messages ended in them. `on_head` sees each head
    /// (with the empty line) and says whether it is as it should be.
    ///
    /// # Errors
    ///
    /// A head that `on_head` refuses, that is too long, or that frames its body by other means
    /// than `content-length`.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        mut on_head: impl FnMut(&[u8]) -> bool,
    ) -> Result<usize, Malformed> {
        let mut ended = 0;
        while !bytes.is_empty() {
            if self.body_left == 0 {
                let Some(rest) = self.feed_head(bytes, &mut on_head)? else { break };
                bytes = rest;
            }
            let body = bytes.len().min(usize::try_from(self.body_left).unwrap_or(usize::MAX));
            bytes = bytes.get(body..).unwrap_or_default();
            self.body_left = self.body_left.saturating_sub(body as u64);
            if self.body_left == 0 {
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// Reads a head off the front and returns what follows, or none if it goes on in later bytes.
    fn feed_head<'a>(
        &mut self,
        bytes: &'a [u8],
        on_head: &mut impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<&'a [u8]>, Malformed> {
        if self.partial_head.is_empty()
            && let Some(end) = head_end(bytes)
        {
            let (head, rest) = bytes.split_at_checked(end).ok_or(Malformed)?;
            self.body_left = on_head(head).then(|| body_length(head)).flatten().ok_or(Malformed)?;
            return Ok(Some(rest));
        }
        let before = self.partial_head.len();
        self.partial_head.extend_from_slice(bytes);
        let Some(end) = head_end(&self.partial_head) else {
            return if self.partial_head.len() > HEAD_BYTES_MAX {
                Err(Malformed)
            } else {
                Ok(None)
            };
        };
        self.partial_head.truncate(end);
        let head = &self.partial_head;
        self.body_left = on_head(head).then(|| body_length(head)).flatten().ok_or(Malformed)?;
        self.partial_head.clear();
        Ok(Some(bytes.get(end.saturating_sub(before)..).unwrap_or_default()))
    }
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// The length of the body behind `head` (0 without a field that says so), or none if it is framed
/// in another way or is wrong.
fn body_length(head: &[u8]) -> Option<u64> {
    let mut length = 0;
    for line in head.split(|&byte| byte == b'\n').skip(1) {
        // By its length and first letter first: this runs for every line of every message.
        match line {
            [b'c' | b'C', ..] if is_named(line, b"content-length:") => {
                let value = line.get(15..)?.trim_ascii();
                length = std::str::from_utf8(value).ok()?.parse().ok()?;
            }
            [b't' | b'T', ..] if is_named(line, b"transfer-encoding:") => return None,
            _ => {}
        }
    }
    Some(length)
}

fn is_named(line: &[u8], name: &[u8]) -> bool {
    line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"POST / HTTP/1.1\r\ncontent-LENGTH: 5\r\nX: y\r\n\r\nhello\
                            GET /2 HTTP/1.1\r\n\r\n\
                            POST / HTTP/1.1\r\nContent-Length:0\r\n\r\n\
                            HTTP/1.1 200 OK\r\nContent-Length: 2 \r\n\r\nok";

    #[test]
    fn messages_end_where_they_end_however_the_stream_is_cut() {
        for first in 0..=STREAM.len() {
            for second in first..=STREAM.len() {
                let mut messages = Messages::default();
                let mut heads = Vec::new();
                let parts = [&STREAM[..first], &STREAM[first..second], &STREAM[second..]];
                let mut ended = 0;
                for part in parts {
                    ended += messages
                        .feed(part, |head| {
                            heads.push(head.len());
                            head.ends_with(b"\r\n\r\n")
                        })
                        .unwrap();
                }
                assert_eq!(ended, 4, "cut at {first} and {second}");
                assert_eq!(heads, [44, 19, 37, 39], "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn an_unfinished_message_has_not_ended() {
        let mut messages = Messages::default();
        assert_eq!(messages.feed(&STREAM[..48], |_| true), Ok(0));
        assert_eq!(messages.feed(&STREAM[48..49], |_| true), Ok(1));
    }

    #[test]
    fn other_framing_wrong_lengths_endless_and_refused_heads_are_errors() {
        for wrong in [
            &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            &[b'x'; HEAD_BYTES_MAX + 1],
        ] {
            assert_eq!(Messages::default().feed(wrong, |_| true), Err(Malformed));
        }
        assert_eq!(Messages::default().feed(STREAM, |_| false), Err(Malformed));
    }
}
