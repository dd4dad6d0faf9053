//! What an exchange says to one of its sides: the codec of that connection writes it, and the connection
//! is sent before the event is over.

use wire::head::ResponseHead;

use crate::connection::Connection;
use crate::connection::bounds::OUTBOX_BYTES_MAX;
use crate::connection::codec::Codec;
use crate::connection::codec::elements::{Answer, Output, WholeReply};
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::keys::StreamKey;

impl Connections {
    /// Bytes that wait to be sent there.
    pub(crate) fn backlog(&self, to: StreamKey) -> usize {
        self.get(to.connection).map_or(0, |connection| backlog_of(connection, to))
    }

    /// Whether what waits there has to be sent before more is taken from the other side.
    pub(crate) fn is_held_back(&self, to: StreamKey) -> bool {
        self.backlog(to) >= OUTBOX_BYTES_MAX
    }

    /// Whether a body that was queued to its end there has an end that was not sent.
    pub(crate) fn has_open_end(&self, to: StreamKey) -> bool {
        self.get(to.connection).is_some_and(|connection| connection.codec.has_open_end(to.slot))
    }

    /// [`Codec::send_response`].
    pub(crate) fn send_response(&mut self, to: StreamKey, answer: &Answer<'_, '_>, cx: &mut Cx) {
        self.send(to, cx, |codec, out| codec.send_response(to.slot, answer, out));
    }

    /// [`Codec::send_interim`].
    pub(crate) fn send_interim(&mut self, to: StreamKey, head: &ResponseHead<'_>, cx: &mut Cx) {
        self.send(to, cx, |codec, out| codec.send_interim(to.slot, head, out));
    }

    /// [`Codec::send_switching`].
    pub(crate) fn send_switching(&mut self, to: StreamKey, head: &ResponseHead<'_>, cx: &mut Cx) {
        self.send(to, cx, |codec, out| codec.send_switching(to.slot, head, out));
    }

    /// [`Codec::send_status`].
    pub(crate) fn send_status(&mut self, to: StreamKey, status: u16, cx: &mut Cx) {
        self.send(to, cx, |codec, out| codec.send_status(to.slot, status, out));
    }

    /// [`Codec::send_reply`]; a connection that is gone is said to have taken it.
    pub(crate) fn send_reply(
        &mut self,
        to: StreamKey,
        reply: &WholeReply<'_>,
        cx: &mut Cx,
    ) -> bool {
        self.send(to, cx, |codec, out| codec.send_reply(to.slot, reply, out)).unwrap_or(true)
    }

    /// [`Codec::send_data`]. Gives how many bytes wait to be sent there.
    pub(crate) fn send_data(&mut self, to: StreamKey, data: &[u8], cx: &mut Cx) -> usize {
        let Some(connection) = self.get_mut(to.connection) else { return 0 };
        let (codec, mut out) = connection.output(&mut cx.buffers);
        let queued = codec.send_data(to.slot, data, &mut out);
        let backlog = queued.unwrap_or_else(|| connection.unsent_len());
        self.queue_send(to.connection, cx);
        backlog
    }

    /// [`Codec::send_end`]. Says whether nothing is left to send, so that no later event reports that it was
    /// sent.
    pub(crate) fn send_end(&mut self, to: StreamKey, trailers: &[u8], cx: &mut Cx) -> bool {
        let Some(connection) = self.get_mut(to.connection) else { return true };
        let (codec, mut out) = connection.output(&mut cx.buffers);
        if codec.send_end(to.slot, trailers, &mut out) {
            return true;
        }
        if to.is_alone() && connection.is_sent() {
            return true;
        }
        self.queue_send(to.connection, cx);
        false
    }

    fn send<R>(
        &mut self,
        to: StreamKey,
        cx: &mut Cx,
        write: impl FnOnce(&mut Codec, &mut Output<'_>) -> R,
    ) -> Option<R> {
        let connection = self.get_mut(to.connection)?;
        let (codec, mut out) = connection.output(&mut cx.buffers);
        let written = write(codec, &mut out);
        self.queue_send(to.connection, cx);
        Some(written)
    }
}

/// Bytes that wait to be sent on a connection, or on a stream of it.
#[inline]
fn backlog_of(connection: &Connection, to: StreamKey) -> usize {
    connection.codec.queued(to.slot).unwrap_or_else(|| connection.unsent_len())
}
