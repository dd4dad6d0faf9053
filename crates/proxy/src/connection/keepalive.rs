//! A downstream connection of HTTP/1 between two exchanges: what is left of one request, the wait for
//! the next, and the end.

use crate::connection::Life;
use crate::connection::codec::Codec;
use crate::connection::codec::bytes::Bytes;
use crate::connection::codec::http1::{Discarded, Receive};
use crate::connection::connections::Connections;
use crate::connection::delivery::Lingering;
use crate::connection::reading::Step;
use crate::cx::Cx;
use crate::keys::{ConnKey, StreamKey};
use crate::listen::Listen;
use crate::ops::Op;
use crate::tools::time::Time;

impl Connections {
    /// Waits for the next request, which may have come already.
    pub(crate) fn await_request(
        &mut self,
        key: ConnKey,
        now: Time,
        listen: &mut Listen,
        cx: &mut Cx,
    ) {
        let Some(connection) = self.get_mut(key) else { return };
        connection.codec.await_head();
        let Some(downstream) = connection.downstream() else { return };
        let deadline = now + listen.listeners.get(downstream.listener).listener().timeouts.idle;
        cx.timers.arm(connection.timer, deadline);
        if connection.is_read_closed && connection.inbox.is_none() {
            self.close_downstream(key, None, now, listen, cx);
        } else if connection.inbox.is_some() {
            // It asked before it was answered: others have their turn first.
            self.hold_back(key);
        } else {
            cx.ops.push_back(Op::Read(key));
        }
    }

    /// Turns what is still to come of a request's body into something to discard.
    pub(crate) fn discard_request(&mut self, source: StreamKey, cx: &Cx) {
        let left = cx.snapshot.limits.discard_bytes_max;
        if let Some(connection) = self.get_mut(source.connection)
            && let Some(codec) = connection.codec.http1_mut()
            && let Receive::Body(body) = &codec.receive
        {
            codec.receive = Receive::Discard { body: body.clone(), left };
        }
    }

    /// A body that its exchange does not want: read within bounds, so that the connection can be kept.
    pub(crate) fn on_discarded_bytes(
        &mut self,
        key: ConnKey,
        input: &[u8],
        now: Time,
        listen: &mut Listen,
        cx: &mut Cx,
    ) -> Step {
        let Some(connection) = self.get_mut(key) else { return Step::Wait(0) };
        let Some(codec) = connection.codec.http1_mut() else { return Step::Wait(0) };
        let (n, discarded) = codec.discard(input);
        match discarded {
            Discarded::NeedMore => return Step::Wait(n),
            Discarded::Some => {}
            Discarded::Complete => {
                if connection.exchange().is_none() {
                    self.await_request(key, now, listen, cx);
                }
            }
            Discarded::TooMuch => self.end_downstream(key, now, listen, cx),
        }
        Step::Took(n)
    }

    /// The outbox of a downstream without exchange is empty.
    pub(crate) fn on_downstream_drained(
        &mut self,
        key: ConnKey,
        now: Time,
        listen: &mut Listen,
        cx: &mut Cx,
    ) {
        let Some(connection) = self.get_mut(key) else { return };
        let Some(downstream) = connection.downstream() else { return };
        match downstream.life {
            Life::CloseWhenSent if !connection.may_have_spoken() => {
                self.close_downstream(key, None, now, listen, cx);
            }
            Life::CloseWhenSent | Life::LingerWhenSent => self.linger(key, now, listen, cx),
            Life::Open | Life::Lingering | Life::Refused => {}
        }
    }

    /// Ends a connection that has no exchange, once what it has to send is sent.
    pub(crate) fn end_downstream(
        &mut self,
        key: ConnKey,
        now: Time,
        listen: &mut Listen,
        cx: &mut Cx,
    ) {
        let Some(connection) = self.get_mut(key) else { return };
        let (is_empty, has_exchange) = (connection.is_sent(), connection.exchange());
        let left = cx.snapshot.limits.discard_bytes_max;
        if let Some(downstream) = connection.downstream_mut() {
            downstream.life = Life::LingerWhenSent;
            downstream.lingering = Some(Box::new(Lingering::new(left)));
        }
        if is_empty && has_exchange.is_none() {
            self.linger(key, now, listen, cx);
        }
    }

    /// What follows on a connection belongs to no message. A stream stays what it is: its frames go on.
    pub(crate) fn begin_bytes(&mut self, side: StreamKey) {
        if !side.is_alone() {
            return;
        }
        let Some(connection) = self.get_mut(side.connection) else { return };
        connection.codec = Codec::Bytes(Bytes::new());
        if let Some(role) = connection.downstream_mut() {
            role.life = Life::CloseWhenSent;
        }
    }

    /// One side of a tunnel has sent all that it will: [`Connections::shut`]. The end of a stream is a frame.
    pub(crate) fn shut_side(&mut self, side: StreamKey, cx: &mut Cx) {
        if side.is_alone() {
            self.shut(side.connection, cx);
        }
    }

    /// Shuts our side of a connection whose outbox is empty.
    pub(crate) fn shut(&mut self, key: ConnKey, cx: &mut Cx) {
        if let Some(connection) = self.get_mut(key)
            && !connection.is_shut
        {
            connection.is_shut = true;
            self.send_close_notify(key, cx);
            cx.ops.push_back(Op::ShutdownWrite(key));
        }
    }
}
