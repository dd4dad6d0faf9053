//! What reads and writes of a stream of HTTP/2 mean for its exchange.

use wire::h2::ErrorCode;

use crate::connection::codec::streams::{StreamInbox, Tail};
use crate::exchange::Exchange;
use crate::keys::{ConnKey, ExchangeKey, StreamKey};
use crate::proxy::Proxy;
use crate::tools::time::Time;

impl Proxy {
    /// Hands an exchange what came while it could not take it.
    pub(crate) fn resume_stream(&mut self, from: StreamKey, now: Time) {
        let Some(key) = self.connections.exchange_of(from) else { return };
        let takes = |exchange: &Exchange| exchange.takes_request_data();
        if !self.exchanges.get(key).is_some_and(takes) {
            return;
        }
        let Some(inbox) = self.connections.stream_mut(from).and_then(|stream| stream.inbox.take())
        else {
            return;
        };
        let StreamInbox { body, tail } = *inbox;
        if !body.is_empty() {
            self.on_request_data(key, body.filled(), now);
            self.exchanges.pass_on(from, body.len(), &mut self.connections);
            // No other send may be due that carries the peer's window update.
            self.connections.queue_send(from.connection, &mut self.cx);
        }
        self.cx.buffers.give_back(body);
        if tail != Tail::Open {
            self.on_request_end(key, trailers_of(&tail), now);
        }
    }

    /// Takes a stream from its exchange, and resets it if it is open with this code.
    pub(in crate::proxy) fn drop_stream(&mut self, at: StreamKey, code: ErrorCode, now: Time) {
        let Some(multiplex) = self.connections.multiplex_mut(at.connection) else { return };
        let Some(mut stream) = multiplex.reset(at.slot, code) else { return };
        stream.clear(&mut self.cx.buffers);
        self.after_stream(at.connection, now);
    }

    /// A stream is gone: there is room for another.
    fn after_stream(&mut self, key: ConnKey, now: Time) {
        if let Some(pool) = self.upstream.offer(key, &mut self.connections, &mut self.cx) {
            self.upstream.note_room(pool, &mut self.cx);
        }
        let Some(multiplex) = self.connections.multiplex_mut(key) else { return };
        if multiplex.has_work() {
            self.connections.queue_send(key, &mut self.cx);
        }
        self.await_streams(key, now);
    }
}

/// The upstream side.
impl Proxy {
    /// The upstream has said something to an exchange.
    pub(super) fn on_first_byte(&mut self, upstream: StreamKey, key: ExchangeKey, now: Time) {
        if let Some(exchange) = self.exchanges.get_mut(key)
            && !exchange.record.stamps.first_byte.is_set()
        {
            exchange.record.stamps.first_byte = now;
        }
        let Some(connection) = self.connections.get(upstream.connection) else { return };
        if let Some(role) = connection.upstream().filter(|role| role.checked_port.is_none()) {
            self.upstream.pools.on_answered(role.endpoint, &connection.peer);
        }
    }
}

fn trailers_of(tail: &Tail) -> &[u8] {
    match tail {
        Tail::Trailers(section) => section,
        Tail::Open | Tail::End | Tail::Reset(_) => &[],
    }
}
