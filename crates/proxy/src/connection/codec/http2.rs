//! The frames of a connection of HTTP/2.
//!
//! Heads are encoded when they come, since the order of header blocks is the order of the compression
//! tables. A body goes out as far as the windows of its stream and its connection allow.

use std::time::Duration;

use config::memory::MemoryLevel;
use config::snapshot::{Http2Options, HttpOptions};
use wire::h1::HeadLimits;
use wire::h2::{
    self, ConnectionError, ErrorCode, Http2, Limits, Scratch, head_len_max, reply_len_max,
    trailers_len_max,
};
use wire::head::{Framing, ResponseHead};

use crate::connection::codec::elements::{
    Answer, Element, Invalid, Output, TOGETHER_BYTES_MAX, WholeReply,
};
use crate::connection::codec::multiplex::{Decoded, Framed};
use crate::connection::codec::streams::{Stream, Streams, Tail};
use crate::keys::Slot;
use crate::tools::buffers::Buffers;
use crate::tools::outbox::Outbox;
use crate::tools::time::Time;

/// Room for the frames that say something about the connection, a few at a time.
const CONTROL_BYTES: usize = 128;

/// The window of a stream on connections that begin while the process is short of memory: one frame of the least size that a
/// peer may choose.
const SPARED_WINDOW: u32 = 16 << 10;

/// The codec, and what it may hold.
#[derive(Debug)]
pub(crate) struct Http2Frames {
    pub(crate) codec: Http2,
    pub(crate) limits: Limits,
    /// The time that the codec's budget has seen last.
    told_until: Time,
}

impl Http2Frames {
    pub(crate) fn new(codec: Http2, limits: Limits, now: Time) -> Self {
        Self { codec, limits, told_until: now }
    }

    /// Tells the codec's budget of the time.
    pub(super) fn on_time(&mut self, now: Time) {
        let millis = now.nanos_since(self.told_until) / 1_000_000;
        if millis > 0 {
            self.codec.on_time(u32::try_from(millis).unwrap_or(u32::MAX));
            self.told_until = self.told_until + Duration::from_millis(millis);
        }
    }

    /// Writes what has to be said about the connection.
    #[inline]
    pub(crate) fn frame_control(&mut self, outbox: &mut Outbox, buffers: &mut Buffers) {
        while self.codec.has_control() {
            outbox.push_with(CONTROL_BYTES, buffers, |buffer| self.codec.send_control(buffer));
        }
    }

    /// Reads on, as [`Multiplex::decode`](super::multiplex::Multiplex::decode) does.
    #[inline]
    pub(super) fn decode<'b>(
        &mut self,
        input: &'b [u8],
        scratch: &'b mut Scratch,
        streams: &mut Streams,
    ) -> Result<(usize, Decoded<'b>), ConnectionError> {
        let (n, element) = self.codec.decode(input, &self.limits, scratch)?;
        let (stream, element) = match element {
            h2::Element::NeedMore => return Ok((n, Decoded::NeedMore)),
            h2::Element::AnswersDue => return Ok((n, Decoded::Nothing)),
            h2::Element::Request { stream, head, is_end } => {
                (stream, Element::Request { head, is_end })
            }
            h2::Element::Unacceptable { stream, error, is_end } => {
                (stream, Element::Invalid { error: Invalid::Head(error), input: &[], is_end })
            }
            h2::Element::Malformed { stream, error, is_end } => {
                (stream, Element::Invalid { error: Invalid::Message(error), input: &[], is_end })
            }
            h2::Element::Failed { stream, error } => (
                stream,
                Element::Invalid { error: Invalid::Stream(error), input: &[], is_end: true },
            ),
            h2::Element::Response { stream, head, is_end } => {
                (stream, Element::Response { head, is_end })
            }
            h2::Element::Interim { stream, head } => (stream, Element::Interim { head }),
            h2::Element::Data { stream, bytes, is_end } => {
                (stream, Element::Data { bytes, is_end })
            }
            h2::Element::End { stream } => (stream, Element::End { trailers: &[] }),
            h2::Element::Trailers { stream, section } => {
                (stream, Element::End { trailers: section })
            }
            h2::Element::Reset { stream, code } => (stream, Element::Reset { code }),
            h2::Element::WindowOpened { stream } => {
                match stream {
                    Some(id) => streams.wake(Slot::of_stream(id)),
                    None => streams.wake_all(),
                }
                return Ok((n, Decoded::Nothing));
            }
            h2::Element::SettingsChanged => {
                streams.wake_all();
                return Ok((n, Decoded::SettingsChanged));
            }
            h2::Element::GoingAway { code, debug, .. } => {
                return Ok((n, Decoded::GoingAway { code, debug }));
            }
            h2::Element::PingAnswered { opaque } => return Ok((n, Decoded::PingAnswered(opaque))),
        };
        Ok((n, Decoded::Of(Slot::of_stream(stream), element)))
    }
}

/// What is said to the peer on one stream.
impl Http2Frames {
    pub(super) fn send_response(
        &mut self,
        slot: Slot,
        answer: &Answer<'_, '_>,
        out: &mut Output<'_>,
    ) {
        let Answer { head, framing, behind, is_end, .. } = *answer;
        let room = if behind <= TOGETHER_BYTES_MAX { behind } else { 0 };
        self.frame_control(out.outbox, out.buffers);
        out.push_with(head_len_max(head) + room, |buffer| {
            self.codec.send_response(slot.stream(), head, framing, is_end, buffer);
        });
    }

    /// Sends a head behind which another follows, or what a tunnel carries.
    pub(super) fn send_interim(
        &mut self,
        slot: Slot,
        head: &ResponseHead<'_>,
        out: &mut Output<'_>,
    ) {
        self.frame_control(out.outbox, out.buffers);
        out.push_with(head_len_max(head), |buffer| {
            self.codec.send_response(slot.stream(), head, Framing::None, false, buffer);
        });
    }

    /// Sends a head without fields.
    pub(super) fn send_status(&mut self, slot: Slot, status: u16, out: &mut Output<'_>) {
        self.frame_control(out.outbox, out.buffers);
        out.push_with(reply_len_max(&[]), |buffer| {
            self.codec.send_reply(slot.stream(), status, &[], None, false, buffer);
        });
    }

    /// Says whether the reply ended with its head.
    pub(super) fn send_reply(
        &mut self,
        slot: Slot,
        reply: &WholeReply<'_>,
        out: &mut Output<'_>,
    ) -> bool {
        let WholeReply { status, fields, length, body, .. } = *reply;
        let is_end = body.is_empty();
        self.frame_control(out.outbox, out.buffers);
        out.push_with(reply_len_max(fields), |buffer| {
            self.codec.send_reply(slot.stream(), status, fields, length, is_end, buffer);
        });
        is_end
    }
}

/// Puts one frame of a stream's body into the connection's queue, and its end if it is there.
pub(super) fn frame_stream(
    codec: &mut Http2,
    stream: &mut Stream,
    outbox: &mut Outbox,
    buffers: &mut Buffers,
) -> Framed {
    let id = stream.id;
    let waiting = stream.outbox.len();
    let bytes = waiting.min(codec.sendable(id));
    let is_all = bytes == waiting;
    let is_last = is_all && stream.tail == Tail::End && !stream.is_ended;
    let mut sent = 0;
    if (bytes > 0 || is_last)
        && let Some(header) = codec.begin_data(id, bytes, is_last)
    {
        outbox.push_together(&header, bytes, buffers);
        outbox.take_from(&mut stream.outbox, bytes, buffers);
        stream.is_ended |= is_last;
        sent = bytes;
    }
    if is_all && !stream.is_ended {
        match &stream.tail {
            Tail::Trailers(section) => {
                outbox.push_with(trailers_len_max(section), buffers, |buffer| {
                    codec.send_trailers(id, section, buffer);
                });
                stream.is_ended = true;
            }
            Tail::Reset(code) => {
                codec.reset(id, ErrorCode(*code));
                stream.is_ended = true;
            }
            Tail::Open | Tail::End => {}
        }
    }
    Framed {
        slot: Slot::of_stream(id),
        bytes: sent,
        left: stream.outbox.len(),
        is_ended: stream.is_ended,
    }
}

/// What a downstream connection of this listener may hold.
pub(crate) fn downstream_limits(
    http: &HttpOptions,
    http2: &Http2Options,
    memory: MemoryLevel,
) -> Limits {
    let head = HeadLimits {
        request_line_bytes_max: http.request_line_bytes_max,
        head_bytes_max: http.head_bytes_max,
        fields_max: http.fields_max,
        slashes: http.slashes,
    };
    limits(head, http2, memory)
}

/// What a connection with these options may hold.
pub(crate) fn limits(head: HeadLimits, http2: &Http2Options, memory: MemoryLevel) -> Limits {
    let is_spared = memory >= MemoryLevel::Elevated;
    let window_max = if is_spared { SPARED_WINDOW } else { u32::MAX };
    Limits {
        head,
        header_table_bytes_max: http2.header_table_bytes_max,
        streams_max: http2.streams_max.get(),
        stream_window_bytes_max: http2.stream_window_bytes_max.min(window_max),
        connection_window_bytes_max: http2.connection_window_bytes_max,
        frame_bytes_max: http2.frame_bytes_max,
        work_max: http2.work_max.get(),
        work_per_second: http2.work_per_second,
        early_reset_millis: u32::try_from(http2.early_reset.as_millis()).unwrap_or(u32::MAX),
    }
}
