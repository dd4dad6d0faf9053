//! Hop 4, outwards: what an exchange says to one of its sides.
//!
//! Everything an exchange does goes to a [`StreamKey`], which may be a stream or a whole
//! connection of HTTP/1; nothing above this module has to know which.

use wire::h1;
use wire::h1::{BodyEncoder, ConnectionField, encode_reply, encode_response};
use wire::h2::{head_len_max, reply_len_max};
use wire::head::{Framing, ResponseHead, Version};

use crate::connection::connections::Connections;
use crate::connection::http2::Tail;
use crate::connection::{Connection, OUTBOX_BYTES_MAX, Send, StreamKey};
use crate::cx::Cx;
use crate::exchange::encoding::TOGETHER_BYTES_MAX;

/// A response's head, and how it is sent on.
pub(crate) struct Answer<'h, 'b> {
    pub(crate) head: &'h ResponseHead<'b>,
    /// The version that the client speaks.
    pub(crate) version: Version,
    pub(crate) framing: Framing,
    pub(crate) field: ConnectionField,
    /// Bytes of the body that will follow at once.
    pub(crate) behind: usize,
    /// Whether nothing follows.
    pub(crate) is_end: bool,
}

impl Connections {
    /// Bytes that wait to be sent there.
    pub(crate) fn backlog(&self, to: StreamKey) -> usize {
        self.get(to.connection).map_or(0, |connection| backlog_of(connection, to))
    }

    /// Whether what waits there has to be sent before more is taken from the other side.
    pub(crate) fn is_held_back(&self, to: StreamKey) -> bool {
        self.backlog(to) >= OUTBOX_BYTES_MAX
    }

    /// Begins a response, whose body comes next.
    pub(crate) fn send_response(&mut self, to: StreamKey, answer: &Answer<'_, '_>, cx: &mut Cx) {
        let Answer { head, version, framing, field, behind, is_end } = *answer;
        let room = if behind <= TOGETHER_BYTES_MAX { behind } else { 0 };
        let Some(connection) = self.get_mut(to.connection) else { return };
        let outbox = &mut connection.outbox;
        if to.is_whole() {
            // Room for what came with it too, so that a usual response is one buffer and one send.
            outbox.push_with(head.encoded_len_max() + room, &mut cx.buffers, |buffer| {
                encode_response(head, version, framing, field, buffer);
            });
            connection.send = Send::Body(BodyEncoder::new(framing));
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            multiplex.frame_control(outbox, &mut cx.buffers);
            outbox.push_with(head_len_max(head) + room, &mut cx.buffers, |buffer| {
                multiplex.codec.send_response(to.stream, head, framing, is_end, buffer);
            });
            if let Some(stream) = multiplex.stream_mut(to.stream).filter(|_| is_end) {
                (stream.tail, stream.is_ended) = (Tail::End, true);
            }
        }
        self.queue_send(to.connection, cx);
    }

    /// Sends an interim response.
    pub(crate) fn send_interim(&mut self, to: StreamKey, head: &ResponseHead<'_>, cx: &mut Cx) {
        let Some(connection) = self.get_mut(to.connection) else { return };
        let outbox = &mut connection.outbox;
        let framing = Framing::None;
        if to.is_whole() {
            outbox.push_with(head.encoded_len_max(), &mut cx.buffers, |buffer| {
                let field = ConnectionField::Default;
                encode_response(head, Version::Http11, framing, field, buffer);
            });
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            multiplex.frame_control(outbox, &mut cx.buffers);
            outbox.push_with(head_len_max(head), &mut cx.buffers, |buffer| {
                multiplex.codec.send_response(to.stream, head, framing, false, buffer);
            });
        }
        self.queue_send(to.connection, cx);
    }

    /// Says that the connection, or stream, is a tunnel from here on.
    pub(crate) fn send_switching(&mut self, to: StreamKey, head: &ResponseHead<'_>, cx: &mut Cx) {
        let Some(connection) = self.get_mut(to.connection) else { return };
        let outbox = &mut connection.outbox;
        let framing = Framing::None;
        if to.is_whole() {
            outbox.push_with(head.encoded_len_max(), &mut cx.buffers, |buffer| {
                encode_response(head, Version::Http11, framing, ConnectionField::Upgrade, buffer);
            });
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            multiplex.frame_control(outbox, &mut cx.buffers);
            outbox.push_with(head_len_max(head), &mut cx.buffers, |buffer| {
                multiplex.codec.send_response(to.stream, head, framing, false, buffer);
            });
        }
        self.queue_send(to.connection, cx);
    }

    /// Says that a tunnel stands. It has no body, but what the tunnel carries.
    pub(crate) fn send_granted(&mut self, to: StreamKey, cx: &mut Cx) {
        const GRANTED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
        self.send_bodiless(to, GRANTED, 200, cx);
    }

    /// Whether a body that was sent to its end there has an end that was not sent.
    pub(crate) fn has_open_end(&self, to: StreamKey) -> bool {
        let multiplex = self.get(to.connection).and_then(|c| c.multiplex.as_ref());
        let stream = multiplex.and_then(|multiplex| multiplex.stream(to.stream));
        stream.is_some_and(|stream| stream.tail != Tail::Open && !stream.is_ended)
    }

    /// Sends a whole reply. Says whether nobody will be told when it was sent.
    pub(crate) fn send_reply(
        &mut self,
        to: StreamKey,
        status: u16,
        fields: &[(&[u8], &[u8])],
        (length, body): (Option<u64>, &[u8]),
        field: ConnectionField,
        cx: &mut Cx,
    ) -> bool {
        let Some(connection) = self.get_mut(to.connection) else { return true };
        let outbox = &mut connection.outbox;
        if to.is_whole() {
            outbox.push_with(h1::reply_len_max(fields), &mut cx.buffers, |buffer| {
                encode_reply(status, fields, length, field, buffer);
            });
            outbox.push(body, &mut cx.buffers);
            connection.send = Send::Idle;
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            let is_end = body.is_empty();
            multiplex.frame_control(outbox, &mut cx.buffers);
            outbox.push_with(reply_len_max(fields), &mut cx.buffers, |buffer| {
                multiplex.codec.send_reply(to.stream, status, fields, length, is_end, buffer);
            });
            if let Some(stream) = multiplex.stream_mut(to.stream) {
                stream.outbox.push(body, &mut cx.buffers);
                (stream.tail, stream.is_ended) = (Tail::End, is_end);
            }
            multiplex.wake(to.stream);
        }
        self.queue_send(to.connection, cx);
        !to.is_whole() && body.is_empty()
    }

    /// Gives leave to send the body.
    pub(crate) fn send_continue(&mut self, to: StreamKey, cx: &mut Cx) {
        const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        self.send_bodiless(to, CONTINUE, 100, cx);
    }

    /// Sends a head without fields, with this text where it is one of HTTP/1.
    fn send_bodiless(&mut self, to: StreamKey, text: &[u8], status: u16, cx: &mut Cx) {
        let Some(connection) = self.get_mut(to.connection) else { return };
        let outbox = &mut connection.outbox;
        if to.is_whole() {
            outbox.push(text, &mut cx.buffers);
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            multiplex.frame_control(outbox, &mut cx.buffers);
            outbox.push_with(reply_len_max(&[]), &mut cx.buffers, |buffer| {
                multiplex.codec.send_reply(to.stream, status, &[], None, false, buffer);
            });
        }
        self.queue_send(to.connection, cx);
    }

    /// Sends a piece of a body, in the framing that its head announced. Returns how many bytes wait
    /// to be sent there.
    pub(crate) fn send_data(&mut self, to: StreamKey, data: &[u8], cx: &mut Cx) -> usize {
        const SAME: &str = "both sides have the same framing, and the decoder keeps to it";
        let Some(connection) = self.get_mut(to.connection) else { return 0 };
        if to.is_whole() {
            connection.send_data(data, &mut cx.buffers).expect(SAME);
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            if let Some(stream) = multiplex.stream_mut(to.stream) {
                stream.outbox.push(data, &mut cx.buffers);
            }
            multiplex.wake(to.stream);
        }
        let backlog = backlog_of(connection, to);
        self.queue_send(to.connection, cx);
        backlog
    }

    /// Sends the end of a body, with its trailer section if it has one. Says whether nothing is
    /// left to send, so that nobody will be told when it was sent.
    pub(crate) fn send_end(&mut self, to: StreamKey, trailers: &[u8], cx: &mut Cx) -> bool {
        const SAME: &str = "both sides have the same framing, and the decoder keeps to it";
        let Some(connection) = self.get_mut(to.connection) else { return true };
        if to.is_whole() {
            connection.send_end(trailers, &mut cx.buffers).expect(SAME);
            if connection.is_sent() {
                return true;
            }
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            let Some(stream) = multiplex.stream_mut(to.stream) else { return true };
            if stream.is_ended {
                return true;
            }
            stream.tail = Tail::of(trailers);
            multiplex.wake(to.stream);
        }
        self.queue_send(to.connection, cx);
        false
    }
}

/// Bytes that wait to be sent on a connection, or on a stream of it.
#[inline]
fn backlog_of(connection: &Connection, to: StreamKey) -> usize {
    if to.is_whole() {
        return connection.unsent_len();
    }
    let stream = connection.multiplex.as_ref().and_then(|it| it.stream(to.stream));
    stream.map_or(0, |stream| stream.outbox.len())
}
