//! A connection that several exchanges share: the frames that it is made of, and what its streams carry.
//!
//! ```text
//!   exchange ─► heads ───────────────────────────────────────┐
//!            ─► data, ends ─► a stream's outbox ─► frames ───┴─► the connection's outbox
//! ```
//!
//! Bodies wait in their stream's outbox until the connection is about to be sent; then streams take
//! turns, as far as the connection's queue allows. So an end that came with the last piece goes out in
//! its frame, and no body holds up another. What a frame is, and when a stream may send one, is said in
//! [`http2`](super::http2) and [`rpc`](super::rpc).

use std::time::Duration;

use telemetry::cause::Cause;
use wire::h2::{ConnectionError, ErrorCode, Scratch};
use wire::head::{HeadIndex, ResponseHead};
use wire::rpc::RpcError;

use crate::connection::bounds::OUTBOX_BYTES_MAX;
use crate::connection::codec::elements::{Answer, Element, Output, WholeReply};
use crate::connection::codec::http2::Http2Frames;
use crate::connection::codec::rpc::RpcFrames;
use crate::connection::codec::streams::{Stream, Streams, Tail};
use crate::connection::codec::watches::{Watch, Watches};
use crate::connection::turns::TurnShare;
use crate::keys::{ExchangeKey, Slot};
use crate::tools::buffers::Buffers;
use crate::tools::detail::Detail;
use crate::tools::outbox::Outbox;
use crate::tools::time::Time;

/// A connection that several exchanges share.
#[derive(Debug)]
pub(crate) struct Multiplex {
    pub(crate) frames: Frames,
    pub(crate) streams: Streams,
    pub(crate) watches: Watches,
    pub(crate) share: TurnShare,
    /// Why the connection cannot go on, if it cannot.
    pub(crate) failure: Option<Cause>,
    /// It is about to be closed: it gets no further stream while its own go elsewhere.
    pub(crate) is_gone: bool,
}

/// Whose frames they are.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is behind a box with all else of the connection")]
pub(crate) enum Frames {
    Http2(Http2Frames),
    Rpc(RpcFrames),
}

/// Room for what is decoded.
#[derive(Debug, Default)]
pub(crate) struct FrameScratch {
    pub(crate) http2: Scratch,
    pub(crate) index: HeadIndex,
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

/// Which rule the peer broke that the connection does not survive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FramesError {
    Http2(ConnectionError),
    Rpc(RpcError),
}

impl FramesError {
    pub(crate) const fn cause(self) -> Cause {
        match self {
            Self::Http2(ConnectionError::TooMuchWork(_) | ConnectionError::AnswersUndelivered) => {
                Cause::Http2Abuse
            }
            Self::Http2(_) => Cause::Http2Invalid,
            Self::Rpc(_) => Cause::RpcInvalid,
        }
    }

    pub(crate) fn detail(self) -> Detail {
        match self {
            Self::Http2(error) => Detail::of(&error),
            Self::Rpc(error) => Detail::of(&error),
        }
    }
}

impl Multiplex {
    pub(crate) fn new(frames: Frames) -> Self {
        Self {
            frames,
            streams: Streams::default(),
            watches: Watches::NONE,
            share: TurnShare::default(),
            failure: None,
            is_gone: false,
        }
    }

    /// Its frames, if they are of HTTP/2.
    #[inline]
    pub(crate) fn http2_mut(&mut self) -> Option<&mut Http2Frames> {
        match &mut self.frames {
            Frames::Http2(http2) => Some(http2),
            Frames::Rpc(_) => None,
        }
    }

    /// Its frames, if they are of an RPC protocol.
    pub(crate) const fn rpc(&self) -> Option<&RpcFrames> {
        match &self.frames {
            Frames::Rpc(rpc) => Some(rpc),
            Frames::Http2(_) => None,
        }
    }

    /// [`Multiplex::rpc`].
    pub(crate) const fn rpc_mut(&mut self) -> Option<&mut RpcFrames> {
        match &mut self.frames {
            Frames::Rpc(rpc) => Some(rpc),
            Frames::Http2(_) => None,
        }
    }

    /// It has been without streams for a while: gives back the storage for them.
    pub(crate) fn on_idle(&mut self) {
        if let Some(http2) = self.http2_mut() {
            http2.codec.on_idle();
        }
        self.streams = Streams::default();
    }

    /// The peer has opened a stream, for this exchange.
    pub(crate) fn begin_stream(&mut self, slot: Slot, exchange: ExchangeKey) {
        let mut stream = Stream::new(slot.stream(), exchange);
        if let Frames::Rpc(rpc) = &self.frames {
            (stream.asked, stream.is_one_way) = rpc.last_asked();
        }
        self.streams.insert(stream);
        self.watches.clear(Watch::Idle);
    }

    /// Takes a stream out, and resets it with this code if it is open.
    pub(crate) fn reset(&mut self, slot: Slot, code: ErrorCode) -> Option<Stream> {
        match &mut self.frames {
            Frames::Http2(http2) => http2.codec.reset(slot.stream(), code),
            Frames::Rpc(rpc) => {
                let stream = self.streams.get_mut(slot)?;
                rpc.note_unanswered(stream);
            }
        }
        self.streams.remove(slot)
    }

    /// The peer gets back so much of its window for a stream.
    pub(crate) fn on_taken(&mut self, slot: Slot, n: usize) {
        if let Some(http2) = self.http2_mut() {
            http2.codec.on_taken(slot.stream(), n);
        }
    }

    /// Whether the peer may still answer on a stream: what it announced to end with leaves it in.
    pub(crate) fn is_open(&self, stream: &Stream) -> bool {
        match &self.frames {
            Frames::Http2(http2) => http2.codec.is_open(stream.id),
            Frames::Rpc(_) => true,
        }
    }

    /// How many more exchanges it may carry now.
    pub(crate) fn free_slots(&self) -> usize {
        match &self.frames {
            Frames::Http2(http2) => http2.codec.free_slots(),
            Frames::Rpc(rpc) => rpc.free_slots(&self.streams),
        }
    }

    /// Whether it has no numbers left for further streams, so that another has to take its place.
    pub(crate) const fn is_exhausted(&self) -> bool {
        match &self.frames {
            // Its slots are none then, and the peer hears of the end of each stream.
            Frames::Http2(_) => false,
            Frames::Rpc(rpc) => rpc.is_exhausted(),
        }
    }

    /// Whether the peer has said what it takes.
    pub(crate) fn has_peer_settings(&self) -> bool {
        match &self.frames {
            Frames::Http2(http2) => http2.codec.has_peer_settings(),
            Frames::Rpc(_) => true,
        }
    }

    /// Whether the peer takes a `CONNECT` that names a protocol (RFC 8441).
    pub(crate) fn allows_extended_connect(&self) -> bool {
        match &self.frames {
            Frames::Http2(http2) => http2.codec.allows_extended_connect(),
            Frames::Rpc(_) => false,
        }
    }

    /// Whether a head has begun that is not there whole, and what follows it has to wait.
    pub(crate) fn is_amid_head(&self) -> bool {
        match &self.frames {
            Frames::Http2(http2) => http2.codec.is_amid_head(),
            Frames::Rpc(rpc) => rpc.is_amid_head(),
        }
    }

    /// Tells the peer that the connection will end; what it asks for before it knows is answered.
    pub(crate) fn drain(&mut self) {
        match &mut self.frames {
            Frames::Http2(http2) => http2.codec.drain(),
            Frames::Rpc(rpc) => rpc.drain(),
        }
    }

    /// The connection ends with the streams that it has.
    pub(crate) fn go_away(&mut self, code: ErrorCode) {
        match &mut self.frames {
            Frames::Http2(http2) => http2.codec.go_away(code),
            Frames::Rpc(rpc) => rpc.go_away(),
        }
    }

    /// Whether everything is said that is to be said on it.
    pub(crate) fn is_finished(&self) -> bool {
        match &self.frames {
            Frames::Http2(http2) => http2.codec.is_finished(),
            Frames::Rpc(rpc) => rpc.is_finished(&self.streams),
        }
    }

    /// Asks the peer for a sign of life, where the protocol has such.
    pub(crate) fn ping(&mut self, opaque: [u8; 8]) {
        if let Some(http2) = self.http2_mut() {
            http2.codec.ping(opaque);
        }
    }

    /// The peer said something at `now`.
    pub(crate) fn on_sign_of_life(&mut self, now: Time) {
        match &mut self.frames {
            Frames::Http2(http2) => http2.on_time(now),
            Frames::Rpc(rpc) => rpc.on_sign_of_life(now),
        }
        self.watches.clear(Watch::PingTimeout);
    }

    /// What the peer said at `now` is read: where streams are open, it may be silent for so long.
    pub(crate) fn watch_silence(&mut self, now: Time, silence: Option<Duration>) {
        match silence.filter(|_| !self.streams.is_empty()) {
            Some(silence) => self.watches.set(Watch::PingDue, now + silence),
            None => self.watches.clear(Watch::PingDue),
        }
    }

    // Framing.

    /// Whether [`Multiplex::frame`] would write something, were there room.
    pub(crate) fn has_work(&self) -> bool {
        let has_control = match &self.frames {
            Frames::Http2(http2) => http2.codec.has_control(),
            Frames::Rpc(rpc) => rpc.has_control(),
        };
        has_control || self.streams.has_work()
    }

    /// Whether so many calls are under way that the answers that are there are written before more is read.
    pub(crate) fn is_full_of_calls(&self) -> bool {
        self.rpc().is_some_and(|rpc| rpc.is_full(&self.streams))
    }

    /// Whether so many answers are due that they are written before more is read.
    pub(crate) fn owes_many_answers(&self) -> bool {
        match &self.frames {
            Frames::Http2(http2) => http2.codec.owes_many_answers(),
            Frames::Rpc(rpc) => rpc.owes_many_answers(),
        }
    }

    /// Writes what has to be said about the connection. It goes before all else.
    pub(crate) fn frame_control(&mut self, outbox: &mut Outbox, buffers: &mut Buffers) {
        match &mut self.frames {
            Frames::Http2(http2) => http2.frame_control(outbox, buffers),
            Frames::Rpc(rpc) => rpc.frame_control(outbox, buffers),
        }
    }

    /// Lets the stream whose turn it is put a frame into the connection's queue, unless that is
    /// full. Says what came of it, or none if there is nothing to do.
    pub(crate) fn frame(&mut self, outbox: &mut Outbox, buffers: &mut Buffers) -> Option<Framed> {
        self.frame_control(outbox, buffers);
        if outbox.len() >= OUTBOX_BYTES_MAX {
            return None;
        }
        match &mut self.frames {
            Frames::Http2(http2) => {
                let codec = &mut http2.codec;
                self.streams.take_turn(|stream| {
                    let framed = super::http2::frame_stream(codec, stream, outbox, buffers);
                    // One that could send nothing waits for its window.
                    let may_go_on =
                        framed.bytes > 0 && framed.left > 0 && codec.sendable(stream.id) > 0;
                    (framed, may_go_on)
                })
            }
            // One that is not here whole waits for nothing but its rest.
            Frames::Rpc(rpc) => loop {
                let framed = self
                    .streams
                    .take_turn(|stream| (rpc.frame_stream(stream, outbox, buffers), false))?;
                if framed.is_ended {
                    return Some(framed);
                }
            },
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
        scratch: &'b mut FrameScratch,
    ) -> Result<(usize, Decoded<'b>), FramesError> {
        match &mut self.frames {
            Frames::Http2(http2) => http2
                .decode(input, &mut scratch.http2, &mut self.streams)
                .map_err(FramesError::Http2),
            Frames::Rpc(rpc) => {
                rpc.decode(input, &mut scratch.index, &self.streams).map_err(FramesError::Rpc)
            }
        }
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
        let is_end = answer.is_end;
        match &mut self.frames {
            Frames::Http2(http2) => http2.send_response(slot, answer, out),
            Frames::Rpc(rpc) => {
                let Some(stream) = self.streams.get_mut(slot) else { return };
                rpc.send_response(stream, answer, out.buffers);
                if is_end {
                    self.send_end(slot, &[]);
                }
                return;
            }
        }
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
        if let Some(http2) = self.http2_mut() {
            http2.send_interim(slot, head, out);
        }
    }

    /// Sends a head without fields.
    pub(super) fn send_status(&mut self, slot: Slot, status: u16, out: &mut Output<'_>) {
        if let Some(http2) = self.http2_mut() {
            http2.send_status(slot, status, out);
        }
    }

    /// Says whether the reply ended with its head.
    pub(super) fn send_reply(
        &mut self,
        slot: Slot,
        reply: &WholeReply<'_>,
        out: &mut Output<'_>,
    ) -> bool {
        let is_ended = match &mut self.frames {
            Frames::Http2(http2) => {
                let is_end = http2.send_reply(slot, reply, out);
                if let Some(stream) = self.streams.get_mut(slot) {
                    stream.outbox.push(reply.body, out.buffers);
                    (stream.tail, stream.is_ended) = (Tail::End, is_end);
                }
                is_end
            }
            Frames::Rpc(rpc) => {
                let Some(stream) = self.streams.get_mut(slot) else { return true };
                rpc.send_reply(stream, reply.status, reply.body, out.buffers)
            }
        };
        self.streams.wake(slot);
        is_ended
    }

    /// Gives how many bytes wait on the stream.
    pub(super) fn send_data(&mut self, slot: Slot, data: &[u8], out: &mut Output<'_>) -> usize {
        let Some(stream) = self.streams.get_mut(slot) else { return 0 };
        stream.outbox.push(data, out.buffers);
        if self.rpc().is_none() {
            self.streams.wake(slot);
        }
        self.queued(slot)
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

    /// Bytes that wait on a stream for its turn. A message of RPC that is not there whole waits for nothing
    /// but its rest.
    pub(crate) fn queued(&self, slot: Slot) -> usize {
        match self.streams.get(slot) {
            Some(stream) if self.rpc().is_some() && stream.tail == Tail::Open => 0,
            Some(stream) => stream.outbox.len(),
            None => 0,
        }
    }
}
