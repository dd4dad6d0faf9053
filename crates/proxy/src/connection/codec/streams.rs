//! The streams of a connection that carries several exchanges: what waits on each, and whose turn it is to
//! send. What a stream is on the wire is its codec's.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use wire::buffer::Buffer;
use wire::h2::place_of;
use wire::rpc::Asked;

use crate::keys::{ExchangeKey, Slot};
use crate::tools::buffers::Buffers;
use crate::tools::outbox::Outbox;

/// The streams with an exchange.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// In the order of their numbers.
    all: VecDeque<Stream>,
    /// Those that have something to send and may, each once; they take turns.
    ready: VecDeque<Slot>,
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
    /// The head of a request that went upstream, as plain bytes, while it may have to be sent again. Of RPC
    /// the head of a frame, either way, that waits for its body.
    pub(crate) head: Option<Buffer>,
    /// What the answer to a client of RPC has to agree with.
    pub(crate) asked: Asked,
    /// What the frame looked like whose message goes out here ([`Asked::form`]).
    pub(crate) form: u64,
    /// Frames of RPC that had come when this one's was sent.
    pub(crate) heard: u32,
    /// Whether the client of a call takes no answer.
    pub(crate) is_one_way: bool,
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
            asked: Asked { id: 0, form: 0 },
            form: 0,
            heard: 0,
            is_one_way: false,
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

impl Streams {
    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Option<&Stream> {
        self.all.get(self.place(slot)?)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Stream> {
        let place = self.place(slot)?;
        self.all.get_mut(place)
    }

    /// Adds a stream whose number is above all others'.
    pub(crate) fn insert(&mut self, stream: Stream) {
        debug_assert!(self.all.back().is_none_or(|last| last.id < stream.id));
        let slot = stream.slot();
        self.all.push_back(stream);
        self.wake(slot);
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<Stream> {
        self.all.remove(self.place(slot)?)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.all.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.all.iter_mut()
    }

    /// The slots of all streams.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.all.iter().map(Stream::slot).collect()
    }

    /// The exchanges of all streams.
    pub(crate) fn exchanges(&self) -> Vec<ExchangeKey> {
        self.all.iter().map(|stream| stream.exchange).collect()
    }

    fn place(&self, slot: Slot) -> Option<usize> {
        let id_at = |place| self.all.get(place).map(|stream: &Stream| stream.id);
        place_of(slot.stream(), self.all.len(), id_at)
    }

    // Turns.

    /// Whether a stream waits for its turn.
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A stream may have something to send.
    #[inline]
    pub(crate) fn wake(&mut self, slot: Slot) {
        let Some(stream) = self.get_mut(slot) else { return };
        if !stream.is_ready && stream.has_work() {
            stream.is_ready = true;
            self.ready.push_back(slot);
        }
    }

    /// Every stream may have something to send.
    pub(crate) fn wake_all(&mut self) {
        for stream in &mut self.all {
            if !stream.is_ready && stream.has_work() {
                stream.is_ready = true;
                self.ready.push_back(stream.slot());
            }
        }
    }

    /// Lets the stream whose turn it is send: gives what came of it, or none if no stream waits. `send` also
    /// says whether the stream may go on when its turn comes again.
    #[inline]
    pub(crate) fn take_turn<R>(
        &mut self,
        send: impl FnOnce(&mut Stream) -> (R, bool),
    ) -> Option<R> {
        let place = loop {
            let slot = self.ready.pop_front()?;
            // A stream that is gone leaves its place here.
            if let Some(place) = self.place(slot) {
                break place;
            }
        };
        let stream = self.all.get_mut(place)?;
        stream.is_ready = false;
        let (sent, may_go_on) = send(stream);
        if may_go_on && stream.has_work() {
            stream.is_ready = true;
            self.ready.push_back(stream.slot());
        }
        Some(sent)
    }
}
