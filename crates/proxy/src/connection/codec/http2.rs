//! A connection of HTTP/2 as the proxy has it: the codec, and what its streams carry.
//!
//! ```text
//!   exchange ─► heads ───────────────────────────────────────┐
//!            ─► data, ends ─► a stream's outbox ─► frames ───┴─► the connection's outbox
//! ```
//!
//! Heads are encoded when they come, since the order of header blocks is the order of the
//! compression tables. Bodies wait in their stream's outbox until the connection is about to be
//! sent; then streams take turns, as far as their windows and the connection's queue allow. So an
//! end that came with the last piece goes out in its frame, and no body holds up another.

use std::time::Duration;

use config::snapshot::{Http2Options, HttpOptions};
use telemetry::cause::Cause;
use wire::h1::HeadLimits;
use wire::h2::{
    self, ConnectionError, ErrorCode, Http2, Limits, Scratch, head_len_max, reply_len_max,
    trailers_len_max,
};
use wire::head::{Framing, ResponseHead};

use crate::connection::bounds::OUTBOX_BYTES_MAX;
use crate::connection::codec::elements::{
    Answer, Element, Invalid, Output, TOGETHER_BYTES_MAX, WholeReply,
};
use crate::connection::codec::streams::{Stream, Streams, Tail};
use crate::connection::codec::watches::{Watch, Watches};
use crate::connection::turns::TurnShare;
use crate::keys::{ExchangeKey, Slot};
use crate::tools::buffers::Buffers;
use crate::tools::outbox::Outbox;
use crate::tools::time::Time;

/// Room for the frames that say something about the connection, a few at a time.
const CONTROL_BYTES: usize = 128;

/// A connection of HTTP/2.
#[derive(Debug)]
pub(crate) struct Multiplex {
    pub(crate) codec: Http2,
    pub(crate) limits: Limits,
    pub(crate) streams: Streams,
    pub(crate) watches: Watches,
    pub(crate) share: TurnShare,
    /// Until when the codec's budget has been told of the time.
    told_until: Time,
    /// Why the connection cannot go on, if it cannot.
    pub(crate) failure: Option<Cause>,
    /// It is about to be closed: it gets no further stream while its own go elsewhere.
    pub(crate) is_gone: bool,
}

/// What frames hold.
#[derive(Debug)]
pub(crate) enum Decoded<'b> {
    /// Nothing yet: more bytes are needed.
    NeedMore,
    /// Nothing that anything follows from.
    Nothing,
    /// An element of a stream's message.
    Of(Slot, Element<'b>),
    /// The peer's settings have changed: it may take more streams.
    SettingsChanged,
    /// The peer takes no more streams.
    GoingAway { code: ErrorCode, debug: &'b [u8] },
    /// The peer has answered a PING of this content.
    PingAnswered([u8; 8]),
}

/// What framing came to for one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framed {
    pub(crate) slot: Slot,
    /// Bytes of the body that went into frames.
    pub(crate) bytes: usize,
    /// Bytes that still wait.
    pub(crate) left: usize,
    pub(crate) is_ended: bool,
}

impl Multiplex {
    pub(crate) fn new(codec: Http2, limits: Limits, now: Time) -> Self {
        Self {
            codec,
            limits,
            streams: Streams::default(),
            watches: Watches::NONE,
            share: TurnShare::default(),
            told_until: now,
            failure: None,
            is_gone: false,
        }
    }

    /// It has been without streams for a while: gives back the storage for them.
    pub(crate) fn rest(&mut self) {
        self.codec.on_idle();
        self.streams = Streams::default();
    }

    /// The peer has opened a stream, for this exchange.
    pub(crate) fn begin_stream(&mut self, slot: Slot, exchange: ExchangeKey) {
        self.streams.insert(Stream::new(slot.stream(), exchange));
        self.watches.clear(Watch::Idle);
    }

    /// Takes a stream out, and resets it with this code if it is open.
    pub(crate) fn reset(&mut self, slot: Slot, code: ErrorCode) -> Option<Stream> {
        self.codec.reset(slot.stream(), code);
        self.streams.remove(slot)
    }

    /// The peer gets back so much of its window for a stream.
    pub(crate) fn on_taken(&mut self, slot: Slot, n: usize) {
        self.codec.on_taken(slot.stream(), n);
    }

    /// Whether the peer may still answer on a stream: what it announced to end with leaves it in.
    pub(crate) fn is_open(&self, stream: &Stream) -> bool {
        self.codec.is_open(stream.id)
    }

    /// A window opened, or all of them.
    fn on_window_opened(&mut self, stream: Option<u32>) {
        match stream {
            Some(id) => self.streams.wake(Slot::of_stream(id)),
            None => self.streams.wake_all(),
        }
    }

    /// The peer said something at `now`.
    pub(crate) fn on_sign_of_life(&mut self, now: Time, silence: Option<Duration>) {
        let millis = now.nanos_since(self.told_until) / 1_000_000;
        if millis > 0 {
            self.codec.on_time(u32::try_from(millis).unwrap_or(u32::MAX));
            self.told_until = self.told_until + Duration::from_millis(millis);
        }
        self.watches.clear(Watch::PingTimeout);
        match silence.filter(|_| !self.streams.is_empty()) {
            Some(silence) => self.watches.set(Watch::PingDue, now + silence),
            None => self.watches.clear(Watch::PingDue),
        }
    }

    // Framing.

    /// Whether [`Multiplex::frame`] would write something, were there room.
    pub(crate) fn has_work(&self) -> bool {
        self.codec.has_control() || self.streams.has_work()
    }

    /// Writes what has to be said about the connection. It goes before all else.
    pub(crate) fn frame_control(&mut self, outbox: &mut Outbox, buffers: &mut Buffers) {
        while self.codec.has_control() {
            outbox.push_with(CONTROL_BYTES, buffers, |buffer| self.codec.send_control(buffer));
        }
    }

    /// Lets the stream whose turn it is put a frame into the connection's queue, unless that is
    /// full. Says what came of it, or none if there is nothing to do.
    pub(crate) fn frame(&mut self, outbox: &mut Outbox, buffers: &mut Buffers) -> Option<Framed> {
        self.frame_control(outbox, buffers);
        if outbox.len() >= OUTBOX_BYTES_MAX {
            return None;
        }
        let codec = &mut self.codec;
        self.streams.take_turn(|stream| {
            let framed = frame_stream(codec, stream, outbox, buffers);
            // One that could send nothing waits for its window.
            let may_go_on = framed.bytes > 0 && framed.left > 0 && codec.sendable(stream.id) > 0;
            (framed, may_go_on)
        })
    }
}

/// What the peer says.
impl Multiplex {
    /// Reads on: how many bytes of `input` are done with, and what they hold.
    ///
    /// # Errors
    ///
    /// Which rule the peer broke that the connection does not survive.
    #[inline]
    pub(crate) fn decode<'b>(
        &mut self,
        input: &'b [u8],
        scratch: &'b mut Scratch,
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
                self.on_window_opened(stream);
                return Ok((n, Decoded::Nothing));
            }
            h2::Element::SettingsChanged => {
                self.on_window_opened(None);
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
impl Multiplex {
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
        if let Some(stream) = self.streams.get_mut(slot).filter(|_| is_end) {
            (stream.tail, stream.is_ended) = (Tail::End, true);
        }
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
        if let Some(stream) = self.streams.get_mut(slot) {
            stream.outbox.push(body, out.buffers);
            (stream.tail, stream.is_ended) = (Tail::End, is_end);
        }
        self.streams.wake(slot);
        is_end
    }

    /// Gives how many bytes wait on the stream.
    pub(super) fn send_data(&mut self, slot: Slot, data: &[u8], out: &mut Output<'_>) -> usize {
        let Some(stream) = self.streams.get_mut(slot) else { return 0 };
        stream.outbox.push(data, out.buffers);
        let waiting = stream.outbox.len();
        self.streams.wake(slot);
        waiting
    }

    /// Says whether the end was queued before, or the stream is gone.
    pub(super) fn send_end(&mut self, slot: Slot, trailers: &[u8]) -> bool {
        let Some(stream) = self.streams.get_mut(slot) else { return true };
        if stream.is_ended {
            return true;
        }
        stream.tail = Tail::of(trailers);
        self.streams.wake(slot);
        false
    }
}

/// Puts one frame of a stream's body into the connection's queue, and its end if it is there.
fn frame_stream(
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
pub(crate) fn downstream_limits(http: &HttpOptions, http2: &Http2Options) -> Limits {
    let head = HeadLimits {
        request_line_bytes_max: http.request_line_bytes_max,
        head_bytes_max: http.head_bytes_max,
        fields_max: http.fields_max,
        slashes: http.slashes,
    };
    limits(head, http2)
}

/// What a connection with these options may hold.
pub(crate) fn limits(head: HeadLimits, http2: &Http2Options) -> Limits {
    Limits {
        head,
        header_table_bytes_max: http2.header_table_bytes_max,
        streams_max: http2.streams_max.get(),
        stream_window_bytes_max: http2.stream_window_bytes_max,
        connection_window_bytes_max: http2.connection_window_bytes_max,
        frame_bytes_max: http2.frame_bytes_max,
        work_max: http2.work_max.get(),
        work_per_second: http2.work_per_second,
        early_reset_millis: u32::try_from(http2.early_reset.as_millis()).unwrap_or(u32::MAX),
    }
}
