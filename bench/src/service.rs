//! One connection of `upstream`: its protocol, and its answers.
//!
//! Each reads as little of a request as it takes to know where it ends, since the service shares
//! a core with the load. HTTP/2 keeps the windows of its peer, and enters its fields into the
//! peer's table once, as servers do.

use std::collections::VecDeque;
use std::str::FromStr;

use crate::frames::{ACK, END_HEADERS, END_STREAM, Frame, Frames, PADDED, PREFACE, kind};
use crate::messages::{Malformed, Messages};
use crate::requests::{BODY_BYTES, response};

/// The protocol and the answers of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: each request is answered with the same 1 KiB.
    Http1,
    /// HTTP/2 by prior knowledge, likewise.
    Http2,
    /// gRPC: each message is answered with itself and a status of 0.
    Grpc,
    /// HTTP/2 whose requests are never answered.
    Silent,
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "http1" => Ok(Self::Http1),
            "http2" => Ok(Self::Http2),
            "grpc" => Ok(Self::Grpc),
            "silent" => Ok(Self::Silent),
            _ => Err("http1, http2, grpc and silent are known".to_owned()),
        }
    }
}

/// One connection of a service.
#[derive(Debug)]
pub enum Service {
    /// HTTP/1.1.
    Http1 {
        /// The requests.
        requests: Messages,
        /// The response to each.
        response: Vec<u8>,
    },
    /// HTTP/2.
    Http2(Box<Streams>),
}

impl Service {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http1 => Self::Http1 { requests: Messages::default(), response: response() },
            Protocol::Http2 => Self::Http2(Box::new(Streams::new(Answer::Same))),
            Protocol::Grpc => Self::Http2(Box::new(Streams::new(Answer::Echo))),
            Protocol::Silent => Self::Http2(Box::new(Streams::new(Answer::Nothing))),
        }
    }

    /// Takes the next `bytes` and appends the answer to `out`.
    ///
    /// # Errors
    ///
    /// If they are not what the client of a benchmark sends.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Self::Http1 { requests, response } => {
                let ended = requests.feed(bytes, |_| true)?;
                (0..ended).for_each(|_| out.extend_from_slice(response));
                Ok(())
            }
            Self::Http2(streams) => streams.feed(bytes, out),
        }
    }
}

/// The response on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The same 1 KiB.
    Same,
    /// The bytes that were received on it, with trailers of gRPC.
    Echo,
    Nothing,
}

/// The answering side of a connection of HTTP/2.
#[derive(Debug)]
pub struct Streams {
    answer: Answer,
    preface_left: usize,
    frames: Frames,
    /// Whether our fields are in the peer's table.
    has_answered: bool,
    /// Bytes of bodies that the peer takes on all streams together.
    window: u64,
    /// Bytes of bodies that were received and not yet allowed for again.
    received: u32,
    /// Requests that go on, with what has come of their bodies.
    open: Vec<(u32, Vec<u8>)>,
    /// Answers that wait for the window.
    waiting: VecDeque<(u32, Vec<u8>)>,
}

/// The connection's receive window beyond the initial 65,535.
const WINDOW_BYTES: u32 = 1 << 30;

/// Settings (RFC 9113, section 6.5.2).
const HEADER_TABLE_SIZE: u16 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Fields of the head, of which the first response enters all but the status into the peer's
/// table (RFC 7541, section 6.2.1; the numbers are those of its appendix A).
const FIELDS: [(u8, &[u8]); 4] = [
    (54, b"upstream"),
    (33, b"Thu, 01 Jan 1970 00:00:00 GMT"),
    (31, b"application/octet-stream"),
    (28, b"1024"),
];
const GRPC_FIELD: (u8, &[u8]) = (31, b"application/grpc");
const STATUS_200: u8 = 0x88;
const ENTER: u8 = 0x40;
const INDEXED: u8 = 0x80;
/// The entry that was made last.
const NEWEST: u8 = INDEXED | 62;

impl Streams {
    fn new(answer: Answer) -> Self {
        Self {
            answer,
            preface_left: PREFACE.len(),
            frames: Frames::default(),
            has_answered: false,
            window: 65_535,
            received: 0,
            open: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let bytes = self.feed_preface(bytes, out)?;
        let mut frames = std::mem::take(&mut self.frames);
        let outcome = frames.feed(bytes, |frame| self.on_frame(frame, out));
        self.frames = frames;
        if self.received > WINDOW_BYTES / 2 {
            let payload = &self.received.to_be_bytes();
            Frame { kind: kind::WINDOW_UPDATE, flags: 0, stream: 0, payload }.push(out);
            self.received = 0;
        }
        outcome
    }

    /// Reads what is left of the preface, and answers it with ours. Returns what follows.
    fn feed_preface<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<&'a [u8], Malformed> {
        if self.preface_left == 0 {
            return Ok(bytes);
        }
        let (seen, rest) = bytes.split_at(bytes.len().min(self.preface_left));
        if !PREFACE.get(PREFACE.len() - self.preface_left..).unwrap_or_default().starts_with(seen) {
            return Err(Malformed);
        }
        self.preface_left -= seen.len();
        if self.preface_left == 0 {
            let mut settings = Vec::new();
            for (id, value) in [(MAX_CONCURRENT_STREAMS, 100), (INITIAL_WINDOW_SIZE, WINDOW_BYTES)]
            {
                settings.extend_from_slice(&id.to_be_bytes());
                settings.extend_from_slice(&u32::to_be_bytes(value));
            }
            Frame { kind: kind::SETTINGS, flags: 0, stream: 0, payload: &settings }.push(out);
            let payload = &WINDOW_BYTES.to_be_bytes();
            Frame { kind: kind::WINDOW_UPDATE, flags: 0, stream: 0, payload }.push(out);
        }
        Ok(rest)
    }

    fn on_frame(&mut self, frame: Frame<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let Frame { stream, payload, .. } = frame;
        match frame.kind {
            kind::DATA if !frame.has(PADDED) => {
                let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                self.received = self.received.saturating_add(length);
                let at = self.open.iter().position(|(open, _)| *open == stream);
                let (_, body) = at.and_then(|at| self.open.get_mut(at)).ok_or(Malformed)?;
                if self.answer == Answer::Echo {
                    body.extend_from_slice(payload);
                }
            }
            kind::HEADERS if frame.has(END_HEADERS) => {
                // Trailers come on a stream that is open.
                if !self.open.iter().any(|(open, _)| *open == stream) {
                    self.open.push((stream, Vec::new()));
                }
            }
            kind::SETTINGS if !frame.has(ACK) => {
                are_settings_enough(payload)?;
                Frame { kind: kind::SETTINGS, flags: ACK, stream: 0, payload: b"" }.push(out);
            }
            kind::PING if !frame.has(ACK) => Frame { flags: ACK, ..frame }.push(out),
            kind::WINDOW_UPDATE if stream == 0 => {
                self.window += u64::from(frame.number().ok_or(Malformed)?);
                self.answer_waiting(out);
            }
            kind::RST_STREAM => {
                self.open.retain(|(open, _)| *open != stream);
                self.waiting.retain(|(waiting, _)| *waiting != stream);
            }
            kind::SETTINGS | kind::PING | kind::WINDOW_UPDATE | kind::PRIORITY | kind::GOAWAY => {}
            _ => return Err(Malformed),
        }
        if matches!(frame.kind, kind::DATA | kind::HEADERS) && frame.has(END_STREAM) {
            self.on_end(stream, out);
        }
        Ok(())
    }

    /// A request has ended.
    fn on_end(&mut self, stream: u32, out: &mut Vec<u8>) {
        let Some(at) = self.open.iter().position(|(open, _)| *open == stream) else { return };
        if self.answer != Answer::Nothing {
            let request = self.open.swap_remove(at);
            self.waiting.push_back(request);
            self.answer_waiting(out);
        }
    }

    fn answer_waiting(&mut self, out: &mut Vec<u8>) {
        while let Some((stream, echo)) = self.waiting.pop_front() {
            let length = if self.answer == Answer::Echo { echo.len() } else { BODY_BYTES };
            let Some(left) = self.window.checked_sub(length as u64) else {
                self.waiting.push_front((stream, echo));
                return;
            };
            self.window = left;
            match self.answer {
                Answer::Echo => self.push_echo(stream, &echo, out),
                Answer::Same | Answer::Nothing => self.push_same(stream, out),
            }
            self.has_answered = true;
        }
    }

    fn push_same(&self, stream: u32, out: &mut Vec<u8>) {
        let mut block = vec![STATUS_200];
        for ((name, value), age) in FIELDS.iter().zip((0u8..4).rev()) {
            if self.has_answered {
                block.push(NEWEST + age);
            } else {
                block.push(ENTER | name);
                push_text(value, &mut block);
            }
        }
        Frame { kind: kind::HEADERS, flags: END_HEADERS, stream, payload: &block }.push(out);
        let payload = &[b'a'; BODY_BYTES];
        Frame { kind: kind::DATA, flags: END_STREAM, stream, payload }.push(out);
    }

    fn push_echo(&self, stream: u32, body: &[u8], out: &mut Vec<u8>) {
        let (mut head, mut trailers) = (vec![STATUS_200], Vec::new());
        if self.has_answered {
            head.push(NEWEST + 1);
            trailers.push(NEWEST);
        } else {
            let (name, value) = GRPC_FIELD;
            head.push(ENTER | name);
            push_text(value, &mut head);
            trailers.push(ENTER);
            push_text(b"grpc-status", &mut trailers);
            push_text(b"0", &mut trailers);
        }
        Frame { kind: kind::HEADERS, flags: END_HEADERS, stream, payload: &head }.push(out);
        for payload in body.chunks(1 << 14) {
            Frame { kind: kind::DATA, flags: 0, stream, payload }.push(out);
        }
        let flags = END_HEADERS | END_STREAM;
        Frame { kind: kind::HEADERS, flags, stream, payload: &trailers }.push(out);
    }
}

/// A short text that is not Huffman-coded (RFC 7541, section 5.2).
fn push_text(text: &[u8], block: &mut Vec<u8>) {
    let length = u8::try_from(text.len()).ok().filter(|&length| length < 127);
    block.push(length.expect("the service's texts are short"));
    block.extend_from_slice(text);
}

/// Whether an answer fits a stream's window, and our fields the table: the service counts on it.
fn are_settings_enough(payload: &[u8]) -> Result<(), Malformed> {
    let (settings, _) = payload.as_chunks::<6>();
    for &[id0, id1, v0, v1, v2, v3] in settings {
        let value = u32::from_be_bytes([v0, v1, v2, v3]);
        let least = match u16::from_be_bytes([id0, id1]) {
            HEADER_TABLE_SIZE => 1 << 10,
            INITIAL_WINDOW_SIZE => 1 << 12,
            _ => 0,
        };
        if value < least {
            return Err(Malformed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of one side as bytes.
    fn bytes_of(frames: &[Frame<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.push(&mut bytes));
        bytes
    }

    /// Kind, flags, stream and length of each frame.
    fn outline(bytes: &[u8]) -> Vec<(u8, u8, u32, usize)> {
        let mut outline = Vec::new();
        let mut frames = Frames::default();
        let read = frames.feed(bytes, |frame| {
            outline.push((frame.kind, frame.flags, frame.stream, frame.payload.len()));
            Ok(())
        });
        read.unwrap();
        outline
    }

    fn headers(stream: u32, flags: u8) -> Frame<'static> {
        let flags = END_HEADERS | flags;
        Frame { kind: kind::HEADERS, flags, stream, payload: b"\x82" }
    }

    /// A service that has been greeted.
    fn greeted(protocol: Protocol) -> Service {
        let mut service = Service::new(protocol);
        let mut out = Vec::new();
        for byte in PREFACE {
            assert!(out.is_empty());
            service.feed(&[*byte], &mut out).unwrap();
        }
        let greeting = [(kind::SETTINGS, 0, 0, 12), (kind::WINDOW_UPDATE, 0, 0, 4)];
        assert_eq!(outline(&out), greeting);
        service
    }

    #[test]
    fn a_request_is_answered_when_it_has_ended_and_the_second_answer_is_shorter() {
        let mut service = greeted(Protocol::Http2);
        let mut out = Vec::new();
        service.feed(&bytes_of(&[headers(1, 0)]), &mut out).unwrap();
        assert!(out.is_empty());
        let data = Frame { kind: kind::DATA, flags: END_STREAM, stream: 1, payload: b"q" };
        service.feed(&bytes_of(&[data, headers(3, END_STREAM)]), &mut out).unwrap();
        let [first, body, second, _] = outline(&out)[..] else { panic!("{:?}", outline(&out)) };
        assert_eq!((first.2, second.2), (1, 3));
        assert_eq!(body, (kind::DATA, END_STREAM, 1, BODY_BYTES));
        assert!(first.3 > 60 && second.3 == 5, "{first:?} {second:?}");
    }

    #[test]
    fn a_message_comes_back_as_it_was_with_a_status() {
        let mut service = greeted(Protocol::Grpc);
        let mut out = Vec::new();
        let pieces = [&b"one"[..], b"two"].map(|payload| {
            let flags = if payload == b"two" { END_STREAM } else { 0 };
            Frame { kind: kind::DATA, flags, stream: 1, payload }
        });
        service.feed(&bytes_of(&[headers(1, 0), pieces[0], pieces[1]]), &mut out).unwrap();
        let [_, body, trailers] = outline(&out)[..] else { panic!("{:?}", outline(&out)) };
        assert_eq!(body, (kind::DATA, 0, 1, 6));
        assert_eq!(trailers.1, END_STREAM | END_HEADERS);
        assert!(out.windows(6).any(|window| window == b"onetwo"));
        assert!(out.ends_with(b"\x0bgrpc-status\x010"));
    }

    #[test]
    fn answers_wait_for_the_window_and_resets_end_the_waiting() {
        let mut service = greeted(Protocol::Http2);
        let mut out = Vec::new();
        let requests: Vec<_> = (0..70).map(|n| headers(2 * n + 1, END_STREAM)).collect();
        service.feed(&bytes_of(&requests), &mut out).unwrap();
        assert_eq!(outline(&out).len(), 2 * 63, "65,535 hold 63 answers");
        out.clear();
        let reset =
            Frame { kind: kind::RST_STREAM, flags: 0, stream: 2 * 63 + 1, payload: &[0; 4] };
        let more = Frame {
            kind: kind::WINDOW_UPDATE,
            flags: 0,
            stream: 0,
            payload: &(1u32 << 20).to_be_bytes(),
        };
        service.feed(&bytes_of(&[reset, more]), &mut out).unwrap();
        assert_eq!(outline(&out).len(), 2 * 6);
    }

    #[test]
    fn a_silent_service_answers_pings_and_settings_only() {
        let mut service = greeted(Protocol::Silent);
        let mut out = Vec::new();
        let ping = Frame { kind: kind::PING, flags: 0, stream: 0, payload: b"12345678" };
        let settings = Frame { kind: kind::SETTINGS, flags: 0, stream: 0, payload: b"" };
        service.feed(&bytes_of(&[settings, headers(1, END_STREAM), ping]), &mut out).unwrap();
        assert_eq!(outline(&out), [(kind::SETTINGS, ACK, 0, 0), (kind::PING, ACK, 0, 8)]);
    }

    #[test]
    fn what_the_service_does_not_follow_is_an_error() {
        let small = [0, 4, 0, 0, 0, 1];
        for frame in [
            Frame { kind: kind::HEADERS, flags: 0, stream: 1, payload: b"" },
            Frame { kind: kind::DATA, flags: 0, stream: 1, payload: b"" },
            Frame { kind: kind::SETTINGS, flags: 0, stream: 0, payload: &small },
            Frame { kind: 9, flags: 0, stream: 1, payload: b"" },
        ] {
            let mut service = greeted(Protocol::Http2);
            assert_eq!(service.feed(&bytes_of(&[frame]), &mut Vec::new()), Err(Malformed));
        }
        let mut service = Service::new(Protocol::Http2);
        assert_eq!(service.feed(b"GET / HTTP/1.1", &mut Vec::new()), Err(Malformed));
    }
}
