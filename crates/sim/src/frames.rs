//! How the scripted peers speak HTTP/2: `wire`'s codec over a simulated socket.
//!
//! The codec is Strait's own, since other tests and fuzzers cover it. The peers check by themselves
//! what they receive.

use std::io;
use std::time::Duration;

use proxy::time::Time;
use wire::buffer::Buffer;
use wire::h1::{HeadLimits, Scan, decode_request, decode_response};
use wire::h2::{
    Element, ErrorCode, Http2, Limits, RequestForm, Scheme, Scratch, StreamError, head_len_max,
    reply_len_max, trailers_len_max,
};
use wire::head::{HeadIndex, Method};

use crate::http::{Head, Malformed};
use crate::network::{EndId, Network};
use crate::random::Random;
use wire::path::Slashes;

/// Bytes that may wait to be sent before no more data joins them.
const WAITING_BYTES_MAX: usize = 32 << 10;

/// Limits of the heads that scripted peers send.
const HEAD: HeadLimits = HeadLimits {
    request_line_bytes_max: 8 << 10,
    head_bytes_max: 60 << 10,
    fields_max: 200,
    slashes: Slashes::Keep,
};

/// SETTINGS that may change while a connection is used (RFC 9113, section 6.5.2).
const HEADER_TABLE_SIZE: u16 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// An element that Strait sent.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A request, or a response that is not interim.
    Head { stream: u32, head: Head, is_end: bool },
    /// An interim response.
    Interim { stream: u32, status: u16 },
    /// A piece of a body.
    Data { stream: u32, bytes: Vec<u8>, is_end: bool },
    /// The end of a body.
    End { stream: u32 },
    /// The same, with these lines.
    Trailers { stream: u32, lines: Vec<String> },
    /// The stream is closed.
    Reset { stream: u32, code: ErrorCode },
    /// No streams above the last are taken.
    GoingAway { last_stream: u32, code: ErrorCode },
    /// An answer to a ping.
    PingAnswered,
    /// More may be sent than before.
    Leave,
}

/// One side of a connection of HTTP/2.
#[derive(Debug)]
pub(crate) struct Speaker {
    pub(crate) codec: Http2,
    limits: Limits,
    inbound: Vec<u8>,
    /// Bytes of `inbound` that are done with.
    at: usize,
    scratch: Scratch,
    outbound: Vec<u8>,
    /// Bytes of `outbound` that are sent.
    sent: usize,
    /// Bytes that were ever put into `outbound`.
    pub(crate) queued_total: u64,
    /// Bytes that were taken, and whose window is given back later.
    owed: Vec<(u32, usize)>,
    /// Settings that were changed and are to be as they were.
    changed: Vec<(u16, u32)>,
    /// Until when the codec's budget knows of the time.
    known_until: Time,
}

/// The limits of a scripted peer.
pub(crate) fn some_limits(random: &mut Random) -> Limits {
    let usual = Limits::default();
    let stream_window = match random.below(3) {
        0 => usual.stream_window_bytes_max,
        1 => 500 + random.size(4_000) as u32,
        _ => 1_000 + random.size(200_000) as u32,
    };
    let streams = match random.below(3) {
        0 => 1 + random.below(3) as u32,
        _ => usual.streams_max,
    };
    Limits {
        header_table_bytes_max: *random.pick(&[0, 100, 4_096, 4_096, 65_536]),
        streams_max: streams,
        stream_window_bytes_max: stream_window,
        connection_window_bytes_max: match random.below(2) {
            0 => 65_535,
            _ => usual.connection_window_bytes_max,
        },
        ..usual
    }
}

impl Speaker {
    pub(crate) fn client(limits: Limits) -> Self {
        Self::new(Http2::client(&limits), limits)
    }

    /// The server's side of a connection from which these bytes were read.
    pub(crate) fn server(limits: Limits, inbound: Vec<u8>) -> Self {
        Self { inbound, ..Self::new(Http2::server(&limits), limits) }
    }

    fn new(codec: Http2, limits: Limits) -> Self {
        let mut this = Self {
            codec,
            limits,
            inbound: Vec::new(),
            at: 0,
            scratch: Scratch::default(),
            outbound: Vec::new(),
            sent: 0,
            queued_total: 0,
            known_until: Time::default(),
            owed: Vec::new(),
            changed: Vec::new(),
        };
        this.say(0, |_, _| {});
        this
    }

    // Hearing.

    /// Reads all bytes that have arrived; returns whether the other's end was behind them.
    pub(crate) fn receive(
        &mut self,
        end: EndId,
        bytes_max: usize,
        network: &mut Network,
    ) -> (usize, io::Result<bool>) {
        self.inbound.drain(..self.at);
        self.at = 0;
        let millis = network.now().nanos_since(self.known_until) / 1_000_000;
        self.codec.on_time(u32::try_from(millis).unwrap_or(u32::MAX));
        self.known_until = self.known_until + Duration::from_millis(millis);
        let before = self.inbound.len();
        let result = network.recv_all(end, bytes_max, &mut self.inbound);
        (self.inbound.len() - before, result)
    }

    /// The next element that was received.
    ///
    /// # Errors
    ///
    /// A rule was broken.
    pub(crate) fn hear(&mut self) -> Result<Option<Heard>, Malformed> {
        let rest = self.inbound.get(self.at..).unwrap_or_default();
        let (n, element) = self
            .codec
            .decode(rest, &self.limits, &mut self.scratch)
            .map_err(|error| format!("a rule of HTTP/2 was broken: {error}"))?;
        let heard = match element {
            Element::NeedMore => None,
            Element::Request { stream, head, is_end } => {
                let (method, path) = (text(head.method_bytes()), text(head.path()));
                let connect = if head.is_extended_connect() { " connect" } else { "" };
                let line = format!("{method} {path}{connect}");
                Some(Heard::Head {
                    stream,
                    head: Head { line, fields: fields(head.iter()) },
                    is_end,
                })
            }
            Element::Response { stream, head, is_end } => {
                let line = format!("HTTP/1.1 {}", head.status());
                Some(Heard::Head {
                    stream,
                    head: Head { line, fields: fields(head.iter()) },
                    is_end,
                })
            }
            Element::Interim { stream, head } => {
                Some(Heard::Interim { stream, status: head.status() })
            }
            Element::Data { stream, bytes, is_end } => {
                Some(Heard::Data { stream, bytes: bytes.to_vec(), is_end })
            }
            Element::End { stream } => Some(Heard::End { stream }),
            Element::Trailers { stream, section } => {
                let lines = text(section).lines().map(str::to_owned).collect();
                Some(Heard::Trailers { stream, lines })
            }
            Element::Reset { stream, code } => Some(Heard::Reset { stream, code }),
            Element::GoingAway { last_stream, code, .. } => {
                Some(Heard::GoingAway { last_stream, code })
            }
            Element::PingAnswered { .. } => Some(Heard::PingAnswered),
            Element::WindowOpened { .. } | Element::SettingsChanged | Element::AnswersDue => {
                Some(Heard::Leave)
            }
            Element::Unacceptable { stream, error, .. } => {
                return Err(format!("stream {stream} cannot be read: {error}"));
            }
            Element::Malformed { stream, error, .. } => {
                return Err(format!("a rule was broken on stream {stream}: {error}"));
            }
            // A peer that has not read our settings yet may open more streams than they allow.
            Element::Failed { error: StreamError::Refused, .. } => Some(Heard::Leave),
            Element::Failed { stream, error } => {
                return Err(format!("a rule was broken on stream {stream}: {error}"));
            }
        };
        self.at += n;
        Ok(heard)
    }

    /// Data was taken; the window for it is given back now, or with [`Speaker::pay`].
    pub(crate) fn take(&mut self, stream: u32, n: usize, is_later: bool) {
        if is_later {
            self.owed.push((stream, n));
        } else {
            self.codec.on_taken(stream, n);
        }
    }

    /// Gives back what windows are owed.
    pub(crate) fn pay(&mut self) {
        for (stream, n) in std::mem::take(&mut self.owed) {
            self.codec.on_taken(stream, n);
        }
    }

    // Saying.

    fn say<T>(&mut self, room: usize, write: impl FnOnce(&mut Http2, &mut Buffer) -> T) -> T {
        let mut out = Buffer::new(room + (16 << 10));
        self.codec.send_control(&mut out);
        let result = write(&mut self.codec, &mut out);
        self.put(out.filled());
        result
    }

    fn put(&mut self, bytes: &[u8]) {
        self.outbound.extend_from_slice(bytes);
        self.queued_total += bytes.len() as u64;
    }

    /// Sends a request, with a head in the form of HTTP/1.
    pub(crate) fn ask(&mut self, head: &str, form: RequestForm, is_end: bool) -> Option<u32> {
        let mut index = HeadIndex::default();
        let decoded = decode_request(head.as_bytes(), &mut Scan::default(), &HEAD, &mut index);
        let (head, _) = decoded.ok().flatten().expect("the simulation sends valid heads");
        self.say(head_len_max(&head), |codec, out| {
            codec.send_request(&head, Scheme::Http, form, is_end, out)
        })
    }

    /// Sends a response, with a head in the form of HTTP/1.
    pub(crate) fn answer(&mut self, stream: u32, head: &str, is_end: bool) {
        let mut index = HeadIndex::default();
        let text = head.as_bytes();
        let decoded = decode_response(text, &mut Scan::default(), &HEAD, &mut index, Method::Get);
        let (head, _) = decoded.ok().flatten().expect("the simulation sends valid heads");
        self.say(head_len_max(&head), |codec, out| {
            codec.send_response(stream, &head, head.framing(), is_end, out);
        });
    }

    /// Sends an interim response.
    pub(crate) fn answer_for_now(&mut self, stream: u32, status: u16) {
        self.say(reply_len_max(&[]), |codec, out| {
            codec.send_reply(stream, status, &[], None, false, out);
        });
    }

    /// How much of a body may be sent now.
    pub(crate) fn room(&self, stream: u32) -> usize {
        let room = WAITING_BYTES_MAX.saturating_sub(self.outbound.len() - self.sent);
        self.codec.sendable(stream).min(room)
    }

    /// Sends a piece of a body that is no longer than there is room for.
    pub(crate) fn send(&mut self, stream: u32, data: &[u8], is_end: bool) {
        self.say(data.len() + 16, |codec, out| {
            if let Some(header) = codec.begin_data(stream, data.len(), is_end) {
                out.push(&header);
                out.push(data);
            }
        });
    }

    /// Ends a body with a trailer section.
    pub(crate) fn end_with(&mut self, stream: u32, trailers: &str) {
        self.say(trailers_len_max(trailers.as_bytes()), |codec, out| {
            codec.send_trailers(stream, trailers.as_bytes(), out);
        });
    }

    /// Changes a setting for a while, or changes what was changed back.
    ///
    /// The codec keeps its own limits, which allow more than the settings that are sent here.
    pub(crate) fn change_settings(&mut self, random: &mut Random) {
        self.say(0, |_, _| {});
        if self.changed.is_empty() {
            let Limits { stream_window_bytes_max, streams_max, header_table_bytes_max, .. } =
                self.limits;
            let (key, value, usual) = match random.below(3) {
                0 => {
                    // Pieces of a few bytes would be taken for an attack.
                    let window = random.below(u64::from(stream_window_bytes_max)) as u32;
                    let window = if window < 300 { 0 } else { window };
                    (INITIAL_WINDOW_SIZE, window, stream_window_bytes_max)
                }
                1 => {
                    let streams = random.below(u64::from(streams_max)) as u32;
                    (MAX_CONCURRENT_STREAMS, streams, streams_max)
                }
                _ => {
                    let table = random.below(u64::from(header_table_bytes_max) + 1) as u32;
                    (HEADER_TABLE_SIZE, table, header_table_bytes_max)
                }
            };
            self.changed.push((key, usual));
            self.put_settings(key, value);
        } else {
            self.restore_settings();
        }
    }

    /// Changes back what was changed.
    pub(crate) fn restore_settings(&mut self) {
        for (key, value) in std::mem::take(&mut self.changed) {
            self.put_settings(key, value);
        }
    }

    fn put_settings(&mut self, key: u16, value: u32) {
        let mut frame = vec![0, 0, 6, 4, 0, 0, 0, 0, 0];
        frame.extend(key.to_be_bytes());
        frame.extend(value.to_be_bytes());
        self.put(&frame);
    }

    /// Writes what waits to the socket, up to `bytes_max`; returns how much it took.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub(crate) fn flush(
        &mut self,
        end: EndId,
        bytes_max: usize,
        network: &mut Network,
    ) -> io::Result<usize> {
        if self.codec.has_control() {
            self.say(0, |_, _| {});
        }
        let rest = self.outbound.get(self.sent..).unwrap_or_default();
        let rest = rest.get(..bytes_max.min(rest.len())).unwrap_or_default();
        if rest.is_empty() {
            return Ok(0);
        }
        let n = network.send_some(end, rest)?;
        self.sent += n;
        if self.sent == self.outbound.len() {
            self.outbound.clear();
            self.sent = 0;
        }
        Ok(n)
    }

    /// Whether everything was handed to the socket.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outbound.is_empty() && !self.codec.has_control()
    }
}

/// A random series of times with a mean interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    next: Time,
    span: Duration,
}

impl Pulse {
    pub(crate) fn every(span: Duration) -> Self {
        Self { next: Time::default(), span }
    }

    /// Whether it is time; if so, the next time is another.
    pub(crate) fn is_due(&mut self, now: Time, random: &mut Random) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next = now + self.span / 2 + random.span(self.span);
        }
        is_due
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fields<'h>(fields: impl Iterator<Item = (&'h [u8], &'h [u8])>) -> Vec<(String, String)> {
    fields.map(|(name, value)| (text(name).to_ascii_lowercase(), text(value))).collect()
}
