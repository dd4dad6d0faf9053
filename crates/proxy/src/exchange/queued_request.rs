//! A request that is encoded, and not or no longer given to a connection.

use wire::buffer::Buffer;

use crate::connection::Connection;
use crate::connection::codec::Codec;
use crate::connection::codec::elements::Output;
use crate::connection::codec::http1::Http1;
use crate::connection::codec::streams::Tail;
use crate::keys::Slot;
use crate::tools::buffers::Buffers;
use crate::tools::outbox::Outbox;

/// Which attempt an upstream gets, from 1.
pub(crate) const ATTEMPT_COUNT: &[u8] = b"x-envoy-attempt-count";

/// A request that is encoded, and not or no longer given to a connection.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    /// What of it has to be sent: all of it, or its body if the head goes apart.
    pub(crate) outbox: Outbox,
    pub(crate) form: Form,
}

/// What a request is encoded for.
#[derive(Debug)]
pub(crate) enum Form {
    /// A connection that carries nothing else while it lasts.
    Alone {
        /// What that connection is to speak, as far as the request is encoded.
        codec: Codec,
        /// Whether it begins with a PROXY header, so that the connection is for this client alone.
        is_personal: bool,
    },
    /// A stream: how the head is encoded depends on the connection.
    Stream {
        /// The head as plain bytes.
        head: Buffer,
        /// How the body ends, as far as is known.
        tail: Tail,
    },
}

impl QueuedRequest {
    /// Takes a request back from a connection, or a stream of one, to be sent once more.
    pub(crate) fn take_back(connection: &mut Connection, slot: Slot) -> Option<Self> {
        if let Some(multiplex) = connection.codec.multiplex_mut() {
            let stream = multiplex.streams.get_mut(slot)?;
            let head = stream.head.take()?;
            let mut outbox = std::mem::take(&mut stream.outbox);
            outbox.rewind();
            let tail = std::mem::take(&mut stream.tail);
            return Some(Self { outbox, form: Form::Stream { head, tail } });
        }
        let is_personal = connection.upstream().is_some_and(|upstream| upstream.is_personal);
        let mut outbox = std::mem::take(&mut connection.outbox);
        let mut codec = std::mem::replace(&mut connection.codec, Codec::Http1(Http1::new()));
        if let Some(codec) = codec.http1_mut() {
            // Whatever came of a response was another connection's.
            codec.receive = Http1::new().receive;
        }
        outbox.rewind();
        Some(Self { outbox, form: Form::Alone { codec, is_personal } })
    }

    /// Queues a piece of the body behind the head.
    pub(crate) fn push_data(&mut self, data: &[u8], buffers: &mut Buffers) {
        match &mut self.form {
            Form::Alone { codec, .. } => {
                if !data.is_empty() {
                    let mut out = Output { outbox: &mut self.outbox, buffers };
                    codec.send_data(Slot::ONLY, data, &mut out);
                }
            }
            Form::Stream { .. } => self.outbox.push(data, buffers),
        }
    }

    /// Queues the end of the body, with its trailer section if it has one.
    pub(crate) fn push_end(&mut self, trailers: &[u8], buffers: &mut Buffers) {
        match &mut self.form {
            Form::Alone { codec, .. } => {
                let mut out = Output { outbox: &mut self.outbox, buffers };
                codec.send_end(Slot::ONLY, trailers, &mut out);
            }
            Form::Stream { tail, .. } => *tail = Tail::of(trailers),
        }
    }

    /// Writes into the head which attempt it is for. It stands there as one digit, so that no byte moves.
    pub(crate) fn count_attempt(&mut self, number: u8) {
        let head = match &mut self.form {
            Form::Alone { .. } => self.outbox.first_mut(),
            Form::Stream { head, .. } => Some(head.filled_mut()),
        };
        let Some(head) = head else { return };
        let digit = b'0' + number.min(9);
        let len = ATTEMPT_COUNT.len();
        let is_field = |at: &[u8]| {
            let (line_end, field) = at.split_at_checked(2).unwrap_or_default();
            line_end == b"\r\n" && field.starts_with(ATTEMPT_COUNT) && field.get(len) == Some(&b':')
        };
        let found = (0..head.len()).find(|at| head.get(*at..).is_some_and(is_field));
        // What a client wrote is replaced, and written as we do: a colon, a space, a digit.
        if let Some(place) = found.and_then(|at| head.get_mut(at + 2 + len + 2)) {
            *place = digit;
        }
    }

    /// Bytes of its buffers.
    pub(crate) fn buffered_bytes(&self) -> usize {
        let head = match &self.form {
            Form::Alone { .. } => 0,
            Form::Stream { head, .. } => head.capacity(),
        };
        self.outbox.buffered_bytes() + head
    }

    /// Gives back what it holds.
    pub(crate) fn clear(mut self, buffers: &mut Buffers) {
        self.outbox.clear(buffers);
        if let Form::Stream { head, .. } = self.form {
            buffers.give_back(head);
        }
    }
}
