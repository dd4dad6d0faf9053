//! The frames of a connection of an RPC protocol: which one is read, and which exchange it is of.
//!
//! ```text
//!  Head ─► Body ─► Head …
//! ```
//!
//! A frame cannot give way to another once it has begun, and none of these protocols has windows. So
//! messages go on whole: a request is asked for a connection, and a response begins to be sent, when their
//! last byte is here; both have a bound. A connection that several exchanges share is never held up by one of
//! them. Upstream a stream's number stands in its frames, and is never used again; downstream it is this
//! worker's alone, and the client's own number comes back with the answer.

use serde::{Deserialize, Serialize};
use wire::head::{Framing, HeadIndex, RequestHead};
use wire::rpc::{
    Asked, CHECKSUM_BYTES_MAX, CONTROL_BYTES_MAX, Frame, FrameKind, HeadBuilder, REASON_BYTES_MAX,
    REPLY_BYTES_MAX, Reply, RpcError, RpcProtocol, head_len_max,
};

use crate::connection::bounds::UNDELIVERED_BYTES_MAX;
use crate::connection::codec::elements::{Answer, Element, Invalid};
use crate::connection::codec::multiplex::{Decoded, Framed};
use crate::connection::codec::streams::{Stream, Streams, Tail};
use crate::keys::Slot;
use crate::tools::buffers::Buffers;
use crate::tools::outbox::Outbox;
use crate::tools::time::Time;

/// Bounds on what a connection of an RPC protocol holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RpcLimits {
    /// Bytes of a frame in front of its body.
    pub(crate) head_bytes_max: usize,
    /// Bytes of a body.
    pub(crate) body_bytes_max: u64,
    /// Exchanges at a time.
    pub(crate) requests_max: usize,
}

/// The frames of one connection.
#[derive(Debug)]
pub(crate) struct RpcFrames {
    pub(crate) protocol: &'static dyn RpcProtocol,
    limits: RpcLimits,
    state: RpcState,
    /// When the peer said something last; none if it has not here.
    heard_at: Option<Time>,
}

/// Where it stands: what is saved of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RpcState {
    side: Side,
    reading: Reading,
    /// The number of the last stream.
    last_slot: u32,
    /// What the last request that came has to be answered with, and whether it is answered.
    last_asked: (Asked, bool),
    /// Heartbeats that are to be answered.
    heartbeats: Vec<Asked>,
    /// Requests that were given up, and whose clients have to hear of it.
    unanswered: Vec<Asked>,
    /// Whether the connection ends once no exchange is left.
    is_ending: bool,
    /// Frames that came; the number wraps.
    heard: u32,
}

/// Which side of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    Client,
    Server,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Reading {
    /// The head of a frame, of which nothing is here, or less than all.
    Head { has_begun: bool },
    /// So much of a body is still to come, of the stream of this number, or for none.
    Body { slot: Option<u32>, left: u64 },
}

/// Heartbeats that wait for their answers at most; then these are written before more is read.
const HEARTBEATS_MAX: usize = 8;

/// What the codec keeps of a call that was given up before the end of its response.
const BROKEN_OFF: Reply<'static> = Reply { status: 502, reason: "the response was truncated" };

impl RpcState {
    /// The number of the last stream.
    pub(crate) const fn last_slot(&self) -> u32 {
        self.last_slot
    }

    /// That of the next: numbers are odd, as those of HTTP/2's requests are, by which streams are found.
    const fn next_slot(&self) -> Option<u32> {
        match self.last_slot {
            0 => Some(1),
            last => last.checked_add(2),
        }
    }
}

impl RpcFrames {
    pub(crate) fn new(protocol: &'static dyn RpcProtocol, limits: RpcLimits, side: Side) -> Self {
        let state = RpcState {
            side,
            reading: Reading::Head { has_begun: false },
            last_slot: 0,
            last_asked: (Asked::default(), false),
            heartbeats: Vec::new(),
            unanswered: Vec::new(),
            is_ending: false,
            heard: 0,
        };
        Self { protocol, limits, state, heard_at: None }
    }

    /// What is written down of it.
    pub(crate) fn into_state(self) -> RpcState {
        self.state
    }

    /// As it was written down.
    pub(crate) const fn restored(
        protocol: &'static dyn RpcProtocol,
        limits: RpcLimits,
        state: RpcState,
    ) -> Self {
        Self { protocol, limits, state, heard_at: None }
    }

    /// The peer said something.
    pub(crate) const fn on_sign_of_life(&mut self, now: Time) {
        self.heard_at = Some(now);
    }

    /// When the peer said something last, if it has since the connection is this worker's.
    pub(crate) const fn heard_at(&self) -> Option<Time> {
        self.heard_at
    }

    /// Whether so many calls are under way, or have answers that are not in the queue yet, that no more are read.
    pub(super) fn is_full(&self, streams: &Streams) -> bool {
        self.state.side == Side::Server && streams.len() >= 2 * self.limits.requests_max
    }

    /// Frames that have begun; the number wraps.
    pub(crate) const fn heard(&self) -> u32 {
        self.state.heard
    }

    /// What the last request that came has to be answered with, and whether it is not answered at all.
    pub(super) const fn last_asked(&self) -> (Asked, bool) {
        self.state.last_asked
    }

    pub(super) fn free_slots(&self, streams: &Streams) -> usize {
        if self.state.is_ending || self.is_exhausted() {
            return 0;
        }
        self.limits.requests_max.saturating_sub(streams.len())
    }

    /// Whether no number is left: those that were used may still be answered.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.state.next_slot().is_none()
    }

    /// Whether a head has begun, or a body is read that nothing waits for.
    pub(super) const fn is_amid_head(&self) -> bool {
        matches!(
            self.state.reading,
            Reading::Head { has_begun: true } | Reading::Body { slot: None, .. }
        )
    }

    /// Tells the peer that the connection will end, where the protocol can say so.
    pub(super) const fn drain(&self) {}

    pub(super) const fn go_away(&mut self) {
        self.state.is_ending = true;
    }

    pub(super) fn is_finished(&self, streams: &Streams) -> bool {
        self.state.is_ending && streams.is_empty() && !self.has_control()
    }

    pub(super) const fn has_control(&self) -> bool {
        !self.state.heartbeats.is_empty() || !self.state.unanswered.is_empty()
    }

    pub(super) const fn owes_many_answers(&self) -> bool {
        self.state.heartbeats.len() >= HEARTBEATS_MAX
    }

    /// Writes what is no exchange's.
    pub(super) fn frame_control(&mut self, outbox: &mut Outbox, buffers: &mut Buffers) {
        if outbox.len() >= UNDELIVERED_BYTES_MAX && self.state.side == Side::Client {
            // A service that takes nothing gets no further answers.
            self.state.heartbeats.clear();
        }
        for asked in self.state.heartbeats.drain(..) {
            outbox.push_with(CONTROL_BYTES_MAX, buffers, |buffer| {
                self.protocol.encode_heartbeat_answer(asked, buffer);
            });
        }
        for asked in self.state.unanswered.drain(..) {
            outbox.push_with(REPLY_BYTES_MAX, buffers, |buffer| {
                self.protocol.encode_reply(asked, &BROKEN_OFF, buffer);
            });
        }
    }
}

/// What the peer says.
impl RpcFrames {
    /// Reads on, as [`Multiplex::decode`](super::multiplex::Multiplex::decode) does.
    pub(super) fn decode<'b>(
        &mut self,
        input: &'b [u8],
        index: &'b mut HeadIndex,
        streams: &Streams,
    ) -> Result<(usize, Decoded<'b>), RpcError> {
        if input.is_empty() {
            return Ok((0, Decoded::NeedMore));
        }
        match self.state.reading {
            Reading::Head { .. } => self.decode_head(input, index, streams),
            Reading::Body { slot, left } => {
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let left = left - n as u64;
                self.state.reading = reading(slot, left);
                let bytes = input.get(..n).unwrap_or_default();
                let element = Element::Data { bytes, is_end: left == 0 };
                let slot = slot.map(Slot::of_stream);
                Ok((n, slot.map_or(Decoded::Nothing, |slot| Decoded::Of(slot, element))))
            }
        }
    }

    fn decode_head<'b>(
        &mut self,
        input: &'b [u8],
        index: &'b mut HeadIndex,
        streams: &Streams,
    ) -> Result<(usize, Decoded<'b>), RpcError> {
        let frame = self.protocol.frame(input)?;
        debug_assert!(frame.is_none_or(|frame| frame.head_len > 0), "{:?}", self.protocol);
        let is_too_large = |len: usize| len > self.limits.head_bytes_max;
        let head = frame.and_then(|frame| Some((frame, input.get(..frame.head_len)?)));
        let Some((frame, head)) = head else {
            if is_too_large(frame.map_or(input.len(), |frame| frame.head_len)) {
                return Err(RpcError::HeadTooLarge);
            }
            self.state.reading = Reading::Head { has_begun: true };
            return Ok((0, Decoded::NeedMore));
        };
        if is_too_large(head.len()) {
            return Err(RpcError::HeadTooLarge);
        }
        self.state.heard = self.state.heard.wrapping_add(1);
        let decoded = match (self.state.side, frame.kind) {
            (Side::Server, FrameKind::Request | FrameKind::OneWay) => {
                self.begin_request(&frame, head, index, streams)?
            }
            (Side::Client, FrameKind::Response) => {
                self.begin_response(&frame, head, index, streams)
            }
            (_, FrameKind::Heartbeat) => {
                self.state.heartbeats.push(frame.asked);
                self.state.reading = reading(None, frame.body_len);
                Decoded::Nothing
            }
            (_, FrameKind::HeartbeatAnswer) => {
                self.state.reading = reading(None, frame.body_len);
                Decoded::PingAnswered([0; 8])
            }
            (side, FrameKind::GoAway) => {
                self.state.reading = reading(None, frame.body_len);
                match side {
                    Side::Client => {
                        self.state.is_ending = true;
                        Decoded::GoingAway { code: wire::h2::ErrorCode::NO_ERROR, debug: b"" }
                    }
                    Side::Server => Decoded::Nothing,
                }
            }
            (Side::Server, FrameKind::Response)
            | (Side::Client, FrameKind::Request | FrameKind::OneWay) => {
                return Err(RpcError::Unexpected);
            }
        };
        Ok((frame.head_len, decoded))
    }

    fn begin_request<'b>(
        &mut self,
        frame: &Frame,
        head: &'b [u8],
        index: &'b mut HeadIndex,
        streams: &Streams,
    ) -> Result<Decoded<'b>, RpcError> {
        if self.is_full(streams) {
            // It asks on, and does not take the answers that say so.
            return Err(RpcError::RequestsTooMany);
        }
        if streams.is_empty() && self.is_exhausted() {
            // Nothing names one of the former.
            self.state.last_slot = 0;
        }
        // Two thousand million requests with never a moment between them end the connection.
        let slot = self.state.next_slot().ok_or(RpcError::RequestsTooMany)?;
        self.state.last_slot = slot;
        self.state.last_asked = (frame.asked, frame.kind == FrameKind::OneWay);
        let head = if frame.body_len > self.limits.body_bytes_max {
            Err(RpcError::BodyTooLarge)
        } else if self.state.is_ending {
            Err(RpcError::GoingAway)
        } else if streams.len() >= self.limits.requests_max {
            Err(RpcError::RequestsTooMany)
        } else {
            self.protocol.decode_request(frame, HeadBuilder::new(head, index))
        };
        let element = match head {
            Ok(head) => {
                self.state.reading = reading(Some(slot), frame.body_len);
                Element::Request { head, is_end: frame.body_len == 0 }
            }
            Err(error) => {
                self.state.reading = reading(None, frame.body_len);
                Element::Invalid { error: Invalid::Rpc(error), input: &[], is_end: true }
            }
        };
        Ok(Decoded::Of(Slot::of_stream(slot), element))
    }

    fn begin_response<'b>(
        &mut self,
        frame: &Frame,
        head: &'b [u8],
        index: &'b mut HeadIndex,
        streams: &Streams,
    ) -> Decoded<'b> {
        let slot = u32::try_from(frame.asked.id).ok().filter(|slot| *slot > 0);
        let is_awaited = |slot: &u32| {
            // What was not sent whole cannot be answered.
            streams.get(Slot::of_stream(*slot)).is_some_and(|stream| stream.is_ended)
        };
        let Some(slot) = slot.filter(is_awaited) else {
            // It was given up.
            self.state.reading = reading(None, frame.body_len);
            return Decoded::Nothing;
        };
        let head = if frame.body_len > self.limits.body_bytes_max {
            Err(RpcError::BodyTooLarge)
        } else {
            self.protocol.decode_response(frame, HeadBuilder::new(head, index))
        };
        let element = match head {
            Ok(head) => {
                self.state.reading = reading(Some(slot), frame.body_len);
                Element::Response { head, is_end: frame.body_len == 0 }
            }
            Err(error) => {
                self.state.reading = reading(None, frame.body_len);
                Element::Invalid { error: Invalid::Rpc(error), input: &[], is_end: true }
            }
        };
        Decoded::Of(Slot::of_stream(slot), element)
    }
}

/// What is said to the peer.
impl RpcFrames {
    /// Writes the head of a request, whose number is still missing.
    ///
    /// # Errors
    ///
    /// If the protocol has no room for it.
    pub(crate) fn encode_request(
        protocol: &'static dyn RpcProtocol,
        head: &RequestHead<'_>,
        buffers: &mut Buffers,
    ) -> Result<wire::buffer::Buffer, RpcError> {
        let mut buffer = buffers.lease(head_len_max(head));
        match protocol.encode_request(head, body_len(head.framing()), &mut buffer) {
            Ok(()) => Ok(buffer),
            Err(error) => {
                buffers.give_back(buffer);
                Err(error)
            }
        }
    }

    /// Opens a stream for a request, in whose encoded head its number is changed. Gives that number, or none
    /// if there is none left.
    pub(crate) fn open(&mut self, head: &mut [u8]) -> Option<u32> {
        let slot = self.state.next_slot()?;
        self.state.last_slot = slot;
        self.protocol.set_id(head, slot.into());
        Some(slot)
    }

    pub(super) fn send_response(
        &self,
        stream: &mut Stream,
        answer: &Answer<'_, '_>,
        buffers: &mut Buffers,
    ) {
        let Answer { head, framing, .. } = *answer;
        let mut buffer = buffers.lease(head_len_max(head));
        let encoded =
            self.protocol.encode_response(stream.asked, head, body_len(framing), &mut buffer);
        if encoded.is_err() {
            // Its frame is an error of ours then.
            buffer.clear();
        }
        stream.head = Some(buffer);
        stream.form = head.rpc_form();
    }

    /// Says whether nothing is to be sent.
    pub(super) fn send_reply(
        &self,
        stream: &mut Stream,
        status: u16,
        body: &[u8],
        buffers: &mut Buffers,
    ) -> bool {
        stream.clear(buffers);
        stream.tail = Tail::End;
        if stream.is_one_way {
            stream.is_ended = true;
            return true;
        }
        let reply = Reply { status, reason: reason(body) };
        stream.outbox.push_with(REPLY_BYTES_MAX, buffers, |buffer| {
            self.protocol.encode_reply(stream.asked, &reply, buffer);
        });
        false
    }

    /// Puts the frame of a stream into the connection's queue, if all of it is here.
    pub(super) fn frame_stream(
        &self,
        stream: &mut Stream,
        outbox: &mut Outbox,
        buffers: &mut Buffers,
    ) -> Framed {
        let slot = stream.slot();
        let waiting = stream.outbox.len();
        if stream.tail == Tail::Open || stream.is_ended {
            return Framed { slot, bytes: 0, left: waiting, is_ended: stream.is_ended };
        }
        stream.is_ended = true;
        stream.heard = self.state.heard;
        let is_whole = matches!(stream.tail, Tail::End | Tail::Trailers(_));
        match &stream.head {
            Some(head) if is_whole && self.announces(head.filled(), waiting) => {
                let mut checksum = [0; CHECKSUM_BYTES_MAX];
                let len = self.protocol.checksum_len(head.filled()).min(waiting);
                let checksum = checksum.get_mut(..len).unwrap_or_default();
                outbox.push_together(head.filled(), waiting, buffers);
                outbox.take_from(&mut stream.outbox, waiting - checksum.len(), buffers);
                if !checksum.is_empty() {
                    let content_len = (waiting - checksum.len()) as u64;
                    stream.outbox.take_exact(checksum, buffers);
                    let head = head.filled();
                    self.protocol.amend_checksum(stream.form, head, content_len, checksum);
                    outbox.push(checksum, buffers);
                }
            }
            // A whole reply.
            None if is_whole => outbox.take_from(&mut stream.outbox, waiting, buffers),
            // It breaks off, or has no place in a frame: nothing of it was sent.
            Some(_) | None => {
                stream.clear(buffers);
                if self.state.side == Side::Server && !stream.is_one_way {
                    outbox.push_with(REPLY_BYTES_MAX, buffers, |buffer| {
                        self.protocol.encode_reply(stream.asked, &BROKEN_OFF, buffer);
                    });
                }
            }
        }
        Framed { slot, bytes: waiting, left: 0, is_ended: true }
    }

    /// Whether nothing came since the frame of this stream was sent, or the peer has stopped before the end of its response.
    pub(crate) fn is_silent_since(&self, stream: &Stream) -> bool {
        let is_amid = self.state.reading != Reading::Head { has_begun: false };
        let is_its =
            matches!(self.state.reading, Reading::Body { slot, .. } if slot == Some(stream.id));
        stream.is_ended && (stream.heard == self.state.heard || is_amid && is_its)
    }

    /// A stream ends: if its client waits for an answer, it hears that there is none.
    pub(super) fn note_unanswered(&mut self, stream: &Stream) {
        if self.state.side == Side::Server && !stream.is_ended && !stream.is_one_way {
            self.state.unanswered.push(stream.asked);
        }
    }

    /// Whether this head is of a body of so many bytes.
    fn announces(&self, head: &[u8], bytes: usize) -> bool {
        let frame = self.protocol.frame(head).ok().flatten();
        frame.is_some_and(|frame| frame.head_len == head.len() && frame.body_len == bytes as u64)
    }
}

/// What comes behind the head of a frame, or behind a piece of its body.
const fn reading(slot: Option<u32>, left: u64) -> Reading {
    match left {
        0 => Reading::Head { has_begun: false },
        left => Reading::Body { slot, left },
    }
}

/// Bytes of a body, as its head says.
const fn body_len(framing: Framing) -> u64 {
    match framing {
        Framing::Length(n) => n,
        Framing::None | Framing::Chunked | Framing::UntilClose => 0,
    }
}

/// As much of a reply's body as a reason may have.
fn reason(body: &[u8]) -> &str {
    let body = body.trim_ascii_end();
    let cut = body.get(..REASON_BYTES_MAX).unwrap_or(body);
    match str::from_utf8(cut) {
        Ok(reason) => reason,
        Err(error) => {
            let valid = cut.get(..error.valid_up_to()).unwrap_or_default();
            str::from_utf8(valid).unwrap_or_default()
        }
    }
}
