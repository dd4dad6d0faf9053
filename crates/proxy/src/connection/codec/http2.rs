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

use std::collections::VecDeque;
use std::time::Duration;

use config::snapshot::{Http2Options, HttpOptions};
use serde::{Deserialize, Serialize};
use telemetry::cause::Cause;
use wire::buffer::Buffer;
use wire::h1::HeadLimits;
use wire::h2::{
    self, ConnectionError, ErrorCode, Http2, Limits, Scratch, head_len_max, place_of,
    reply_len_max, trailers_len_max,
};
use wire::head::{Framing, ResponseHead};

use crate::connection::bounds::OUTBOX_BYTES_MAX;
use crate::connection::codec::elements::{
    Answer, Element, Invalid, Output, TOGETHER_BYTES_MAX, WholeReply,
};
use crate::connection::turns::TurnShare;
use crate::keys::ExchangeKey;
use crate::keys::Slot;
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
    /// Those with an exchange, in the order of their numbers.
    streams: VecDeque<Stream>,
    /// Those that have something to send and may, each once; they take turns.
    ready: VecDeque<Slot>,
    pub(crate) watches: Watches,
    pub(crate) share: TurnShare,
    /// Until when the codec's budget has been told of the time.
    told_until: Time,
    /// Why the connection cannot go on, if it cannot.
    pub(crate) failure: Option<Cause>,
    /// It is about to be closed: it gets no further stream while its own go elsewhere.
    pub(crate) is_gone: bool,
}

/// A stream with an exchange.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) exchange: ExchangeKey,
    /// Bytes of a body that wait for their turn, or for a window.
    pub(crate) outbox: Outbox,
    /// What ends the body.
    pub(crate) tail: Tail,
    /// Whether the tail was sent.
    pub(crate) is_ended: bool,
    is_ready: bool,
    /// What the peer sent and the exchange does not take yet.
    pub(crate) inbox: Option<Box<StreamInbox>>,
    /// Bytes that were passed on while the other side had to catch up: the peer gets its window
    /// back when it did.
    pub(crate) owed: u32,
    /// The head of a request that went upstream, as plain bytes, while it may have to be sent again.
    pub(crate) head: Option<Buffer>,
}

/// What ends a body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tail {
    /// It goes on.
    #[default]
    Open,
    /// Its last byte.
    End,
    /// A trailer section.
    Trailers(Box<[u8]>),
    /// It breaks off with this code.
    Reset(u32),
}

impl Tail {
    /// The end, with a trailer section unless that is empty.
    pub(crate) fn of(trailers: &[u8]) -> Self {
        if trailers.is_empty() { Self::End } else { Self::Trailers(trailers.into()) }
    }
}

/// A body that waits until its exchange takes it.
#[derive(Debug)]
pub(crate) struct StreamInbox {
    pub(crate) body: Buffer,
    pub(crate) tail: Tail,
}

/// What a connection of HTTP/2 may be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Watch {
    /// Being established; of a downstream, its preface, or the rest of a head that has begun.
    Opening,
    /// A stream.
    Idle,
    /// The peer to take what waits for it.
    Write,
    /// Data from the peer, before a keep-alive PING is sent.
    PingDue,
    /// The answer to a keep-alive PING.
    PingTimeout,
    /// The answer to the PING of a graceful GOAWAY (RFC 9113, section 6.8), after which the final one follows.
    FinalGoaway,
    /// A stream again soon, before what holds them is given back.
    CoolDown,
}

impl Watch {
    const ALL: [Self; 7] = [
        Self::Opening,
        Self::Idle,
        Self::Write,
        Self::PingDue,
        Self::PingTimeout,
        Self::FinalGoaway,
        Self::CoolDown,
    ];
}

/// When each watch ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watches([Time; Watch::ALL.len()]);

impl Watches {
    pub(crate) const NONE: Self = Self([Time::NEVER; Watch::ALL.len()]);

    pub(crate) fn set(&mut self, watch: Watch, deadline: Time) {
        if let Some(place) = self.0.get_mut(watch as usize) {
            *place = deadline;
        }
    }

    pub(crate) fn clear(&mut self, watch: Watch) {
        self.set(watch, Time::NEVER);
    }

    /// When a watch ends; `NEVER` if it is not set.
    pub(crate) fn get(&self, watch: Watch) -> Time {
        self.0.get(watch as usize).copied().unwrap_or(Time::NEVER)
    }

    pub(crate) fn is_set(&self, watch: Watch) -> bool {
        self.get(watch).is_set()
    }

    /// The watch that ends first, and when.
    pub(crate) fn first(&self) -> (Watch, Time) {
        let all = Watch::ALL.into_iter().zip(self.0);
        all.min_by_key(|(_, deadline)| *deadline).expect("there are watches")
    }

    /// What is left of each at `now`, for saving.
    pub(crate) fn remaining(&self, now: Time) -> Vec<Option<Duration>> {
        self.0.iter().map(|deadline| deadline.is_set().then(|| *deadline - now)).collect()
    }

    pub(crate) fn restored(saved: &[Option<Duration>], now: Time) -> Self {
        let mut watches = Self::NONE;
        for (place, left) in watches.0.iter_mut().zip(saved) {
            *place = left.map_or(Time::NEVER, |left| now + left);
        }
        watches
    }
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

impl Stream {
    pub(crate) const fn new(id: u32, exchange: ExchangeKey) -> Self {
        Self {
            id,
            exchange,
            outbox: Outbox::new(),
            tail: Tail::Open,
            is_ended: false,
            is_ready: false,
            inbox: None,
            owed: 0,
            head: None,
        }
    }

    pub(crate) const fn slot(&self) -> Slot {
        Slot::of_stream(self.id)
    }

    fn has_work(&self) -> bool {
        !self.outbox.is_empty() || (self.tail != Tail::Open && !self.is_ended)
    }

    /// Bytes of the buffers that it has.
    pub(crate) fn buffered_bytes(&self) -> usize {
        let inbox = self.inbox.as_ref().map_or(0, |inbox| inbox.body.capacity());
        let head = self.head.as_ref().map_or(0, Buffer::capacity);
        self.outbox.buffered_bytes() + inbox + head
    }

    /// Gives back what it holds.
    pub(crate) fn clear(&mut self, buffers: &mut Buffers) {
        self.outbox.clear(buffers);
        if let Some(inbox) = self.inbox.take() {
            buffers.give_back(inbox.body);
        }
        self.forget_request(buffers);
    }

    /// What was asked is not asked again.
    pub(crate) fn forget_request(&mut self, buffers: &mut Buffers) {
        self.outbox.forget(buffers);
        if let Some(head) = self.head.take() {
            buffers.give_back(head);
        }
    }
}

impl Multiplex {
    pub(crate) fn new(codec: Http2, limits: Limits, now: Time) -> Self {
        Self {
            codec,
            limits,
            streams: VecDeque::new(),
            ready: VecDeque::new(),
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
        self.streams = VecDeque::new();
        self.ready = VecDeque::new();
    }

    // Streams.

    #[inline]
    pub(crate) fn stream(&self, slot: Slot) -> Option<&Stream> {
        self.streams.get(self.place(slot.stream())?)
    }

    #[inline]
    pub(crate) fn stream_mut(&mut self, slot: Slot) -> Option<&mut Stream> {
        let place = self.place(slot.stream())?;
        self.streams.get_mut(place)
    }

    /// The peer has opened a stream, for this exchange.
    pub(crate) fn begin_stream(&mut self, slot: Slot, exchange: ExchangeKey) {
        self.insert(Stream::new(slot.stream(), exchange));
        self.watches.clear(Watch::Idle);
    }

    /// Adds a stream whose number is above all others'.
    pub(crate) fn insert(&mut self, stream: Stream) {
        debug_assert!(self.streams.back().is_none_or(|last| last.id < stream.id));
        let slot = stream.slot();
        self.streams.push_back(stream);
        self.wake(slot);
    }

    /// Takes a stream out, and resets it with this code if it is open.
    pub(crate) fn reset(&mut self, slot: Slot, code: ErrorCode) -> Option<Stream> {
        self.codec.reset(slot.stream(), code);
        self.streams.remove(self.place(slot.stream())?)
    }

    /// The peer gets back so much of its window for a stream.
    pub(crate) fn on_taken(&mut self, slot: Slot, n: usize) {
        self.codec.on_taken(slot.stream(), n);
    }

    /// Whether the peer may still answer on a stream: what it announced to end with leaves it in.
    pub(crate) fn is_open(&self, stream: &Stream) -> bool {
        self.codec.is_open(stream.id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.streams.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.streams.iter_mut()
    }

    /// The slots of all streams.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.streams.iter().map(Stream::slot).collect()
    }

    /// The exchanges of all streams.
    pub(crate) fn exchanges(&self) -> Vec<ExchangeKey> {
        self.streams.iter().map(|stream| stream.exchange).collect()
    }

    fn place(&self, id: u32) -> Option<usize> {
        place_of(id, self.streams.len(), |place| self.streams.get(place).map(|stream| stream.id))
    }

    // What the peer gives leave for.

    /// A stream may have something to send.
    pub(crate) fn wake(&mut self, slot: Slot) {
        let Some(stream) = self.stream_mut(slot) else { return };
        if !stream.is_ready && stream.has_work() {
            stream.is_ready = true;
            self.ready.push_back(slot);
        }
    }

    /// A window opened, or all of them.
    fn on_window_opened(&mut self, stream: Option<u32>) {
        match stream {
            Some(id) => self.wake(Slot::of_stream(id)),
            None => {
                for stream in &mut self.streams {
                    if !stream.is_ready && stream.has_work() {
                        stream.is_ready = true;
                        self.ready.push_back(stream.slot());
                    }
                }
            }
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
        self.codec.has_control() || !self.ready.is_empty()
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
        loop {
            let slot = self.ready.pop_front()?;
            // A stream that is gone leaves its place here.
            let Some(place) = self.place(slot.stream()) else { continue };
            let Some(stream) = self.streams.get_mut(place) else { continue };
            stream.is_ready = false;
            let framed = frame_stream(&mut self.codec, stream, outbox, buffers);
            let goes_on = stream.has_work()
                && (framed.left == 0
                    || (framed.bytes > 0 && self.codec.sendable(slot.stream()) > 0));
            if goes_on {
                stream.is_ready = true;
                self.ready.push_back(slot);
            }
            return Some(framed);
        }
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
        if let Some(stream) = self.stream_mut(slot).filter(|_| is_end) {
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
        if let Some(stream) = self.stream_mut(slot) {
            stream.outbox.push(body, out.buffers);
            (stream.tail, stream.is_ended) = (Tail::End, is_end);
        }
        self.wake(slot);
        is_end
    }

    /// Gives how many bytes wait on the stream.
    pub(super) fn send_data(&mut self, slot: Slot, data: &[u8], out: &mut Output<'_>) -> usize {
        let Some(stream) = self.stream_mut(slot) else { return 0 };
        stream.outbox.push(data, out.buffers);
        let waiting = stream.outbox.len();
        if !stream.is_ready && stream.has_work() {
            stream.is_ready = true;
            self.ready.push_back(slot);
        }
        waiting
    }

    /// Says whether the end was queued before, or the stream is gone.
    pub(super) fn send_end(&mut self, slot: Slot, trailers: &[u8]) -> bool {
        let Some(stream) = self.stream_mut(slot) else { return true };
        if stream.is_ended {
            return true;
        }
        stream.tail = Tail::of(trailers);
        self.wake(slot);
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
    if (bytes > 0 || is_last)
        && let Some(header) = codec.begin_data(id, bytes, is_last)
    {
        outbox.push_together(&header, bytes, buffers);
        outbox.take_from(&mut stream.outbox, bytes, buffers);
        stream.is_ended |= is_last;
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
        bytes,
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
