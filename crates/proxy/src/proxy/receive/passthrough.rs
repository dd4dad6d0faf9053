//! Data that goes from one connection to the other without being read.
//!
//! Where nothing here looks at a body or a tunnel, and nothing waits to be sent before it, the
//! worker may move bytes from socket to socket in the kernel, or send them on from where it has read
//! them to. It says afterwards how many there were, and everything that counts or waits learns of
//! them as if they had been read, queued and sent.

use crate::connection::Connection;
use crate::keys::ConnKey;
use crate::keys::StreamKey;
use crate::proxy::Proxy;
use crate::tools::sent::Sent;
use crate::tools::time::Time;

/// Bytes that may pass through without being read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passthrough {
    /// The connection it goes to.
    pub to: ConnKey,
    /// No more bytes than these.
    pub bytes_max: usize,
}

/// Bytes that passed through.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'a> {
    /// The connection that they came on.
    pub from: ConnKey,
    /// The one that they go to.
    pub to: ConnKey,
    /// How many its socket took.
    pub sent: usize,
    /// Those that have to follow.
    pub rest: &'a [u8],
    /// When the call that read them began.
    pub began: Time,
}

impl Proxy {
    /// Whether what arrives on a connection may pass through, and where it goes.
    #[must_use]
    pub fn passthrough(&self, key: ConnKey) -> Option<Passthrough> {
        let from = self.connections.get(key)?;
        let bytes_max = usize::try_from(from.codec.passthrough_max()).unwrap_or(usize::MAX);
        if bytes_max == 0
            || from.is_lingering()
            || from.tls.is_some()
            || from.inbox.is_some()
            || from.is_read_closed
            || from.is_connecting()
        {
            return None;
        }
        let to = self
            .exchanges
            .opposite_of(StreamKey::alone(key), &self.connections)
            .filter(|to| to.is_alone())?
            .connection;
        let exchange = self.exchanges.get(from.exchange()?)?;
        let is_read = match from.downstream() {
            Some(_) => exchange.reads_request_data(),
            None => exchange.reads_response_data(),
        };
        let passes = !is_read && takes_as_it_comes(self.connections.get(to)?);
        passes.then_some(Passthrough { to, bytes_max })
    }

    /// Bytes passed through from one connection to the other. All is as [`Proxy::passthrough`] said just before.
    pub fn on_passed_through(&mut self, passed: &Passed<'_>, now: Time) {
        self.handle_passed_through(passed, now);
        self.settle(now);
    }

    fn handle_passed_through(&mut self, passed: &Passed<'_>, now: Time) {
        let Passed { from, to, sent, rest, began } = *passed;
        let Some(connection) = self.connections.get_mut(from) else { return };
        let Some(exchange) = connection.exchange() else { return };
        let n = sent + rest.len();
        let is_request = connection.downstream().is_some();
        connection.codec.on_passed(n as u64);
        if is_request {
            self.exchanges.count_request_data(exchange, n, now);
            self.exchanges.await_request_data(exchange, n, now, &mut self.cx);
        } else {
            self.exchanges.count_response_data(exchange, n);
            self.exchanges.await_response_data(exchange, now, &mut self.cx);
        }
        let Some(connection) = self.connections.get_mut(to) else { return };
        connection.codec.on_passed_through(n);
        connection.outbox.push(rest, &mut self.cx.buffers);
        let sent = Sent { bytes: sent, left: rest.len(), began };
        if is_request {
            self.on_upstream_sent(to, sent, now);
        } else {
            self.on_downstream_sent(to, sent, now);
        }
        if !rest.is_empty() {
            self.connections.queue_send(to, &mut self.cx);
        }
    }
}

/// Whether a connection can take data as it comes.
fn takes_as_it_comes(to: &Connection) -> bool {
    to.codec.is_transparent()
        && !to.is_shut
        && to.tls.is_none()
        && to.outbox.is_empty()
        && !to.outbox.is_keeping()
        && !to.is_send_broken
        && !to.is_connecting()
}
