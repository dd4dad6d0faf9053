//! TLS records become data, and data becomes TLS records.

use telemetry::cause::Cause;
use wire::tls::record::{Opened, RecordError};

use crate::connection::codec::Codec;
use crate::connection::transport::{KeyUsage, TlsState, last_words};
use crate::connection::{Connection, ConnectionRole};
use crate::keys::ConnKey;
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::time::Time;

/// Connections that [`Proxy::cool_down`] looks at in one call: some hundred microseconds of work.
const COOLED_AT_ONCE: u32 = 16_384;

impl Proxy {
    /// Bytes arrived; at most as many as [`Proxy::read_bytes_max`] said. They may be changed.
    pub fn on_received(&mut self, key: ConnKey, bytes: &mut [u8], now: Time) {
        match self.connections.get(key).map(|it| (it.tls.is_some(), &it.codec)) {
            Some((true, _)) => self.on_records(key, bytes, now),
            Some((false, Codec::Opening(_))) => {
                self.on_data(key, bytes, now);
                // A handshake may begin with what came.
                self.resume_handshake(key, now);
            }
            Some((false, _)) => self.on_data(key, bytes, now),
            None => {}
        }
        self.settle(now);
    }

    /// Bytes of records, in order. A record that is not there whole is put together apart, so that
    /// those behind it are opened where they were read to.
    pub(super) fn on_records(&mut self, key: ConnKey, mut bytes: &mut [u8], now: Time) {
        while !bytes.is_empty() {
            let Some(tls) = self.connections.tls_mut(key) else { return };
            tls.is_warm = true;
            let Some(partial) = tls.partial.take() else {
                let (n, wanted) = self.open_records(key, bytes, now);
                let rest = bytes.get(n..).unwrap_or_default();
                if !rest.is_empty() {
                    let partial = self.cx.buffers.lease_with(rest);
                    self.connections.put_partial(key, partial, wanted, &mut self.cx);
                }
                return;
            };
            let missing = tls.wanted.saturating_sub(partial.len()).clamp(1, bytes.len());
            let (front, behind) = std::mem::take(&mut bytes).split_at_mut(missing);
            bytes = behind;
            let mut partial = self.cx.buffers.widen(partial, front.len());
            partial.push(front);
            let (n, wanted) = self.open_records(key, partial.filled_mut(), now);
            partial.consume(n);
            self.connections.put_partial(key, partial, wanted, &mut self.cx);
        }
    }

    /// Goes through what is there whole: how many bytes are done with, and how many the rest has to
    /// have before it can be gone on with.
    pub(super) fn open_records(
        &mut self,
        key: ConnKey,
        input: &mut [u8],
        now: Time,
    ) -> (usize, usize) {
        let mut at = 0;
        loop {
            let all = input.len();
            let rest = input.get_mut(at..).unwrap_or_default();
            let Some(tls) = self.connections.tls_mut(key) else { return (all, 0) };
            let records = match &mut tls.state {
                TlsState::Records(records) => records,
                TlsState::Expected(_) => {
                    self.admit_handshake(key, now);
                    continue;
                }
                TlsState::Waiting { .. } | TlsState::Handshake(_) | TlsState::Early(_) => {
                    let was_early = tls.is_early();
                    let Some(n) = self.advance_handshake(key, rest, now) else { return (all, 0) };
                    let Some(tls) = self.connections.tls_mut(key) else { return (all, 0) };
                    let waits = match tls.state {
                        TlsState::Records(_) => false,
                        // What came along with the hello is there to be taken.
                        TlsState::Early(_) => was_early && n == 0,
                        TlsState::Expected(_)
                        | TlsState::Waiting { .. }
                        | TlsState::Handshake(_) => n == 0,
                    };
                    if waits {
                        return (at, usize::MAX);
                    }
                    at += n;
                    continue;
                }
            };
            match records.open(rest) {
                Ok((n, opened)) => {
                    at += n;
                    match opened {
                        Opened::NeedMore { record_len } => {
                            if records.has_control() {
                                self.connections.queue_send(key, &mut self.cx);
                            }
                            return (at, record_len);
                        }
                        Opened::Data { bytes, .. } => self.on_data(key, bytes, now),
                        Opened::Ticket(ticket) => {
                            if let Some(tickets) = &mut tls.tickets {
                                tickets.keep(&ticket);
                            }
                        }
                        Opened::End => {
                            self.on_close_notify(key, now);
                            return (all, 0);
                        }
                    }
                }
                Err(error) => {
                    // The peer could not read it inside a record that was partly sent.
                    let is_sent = tls.outbox.is_empty();
                    let words = last_words(records).filter(|_| is_sent);
                    self.on_record_error(key, words, error, now);
                    return (all, 0);
                }
            }
        }
    }

    /// Goes on behind the peer's close_notify if it has come: in its turn, as with FIN, which is not
    /// read either while what was read before has to wait.
    pub(in crate::proxy) fn on_close_notify(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        let is_ended = connection.tls.as_ref().is_some_and(|tls| tls.is_ended());
        if is_ended && !connection.is_read_closed && self.read_bytes_max(key) > 0 {
            self.on_data_end(key, now);
        }
    }

    /// A record behind which the connection cannot go on, or an alert.
    fn on_record_error(
        &mut self,
        key: ConnKey,
        words: Option<Box<[u8]>>,
        error: RecordError,
        now: Time,
    ) {
        if let Some(words) = words {
            self.cx.ops.push_back(Op::SendNow(key, words));
        }
        let is_peers_word = matches!(error, RecordError::AlertReceived(_));
        if self.connections.is_downstream(key) && !is_peers_word {
            self.log_failed(key, Cause::TlsInvalid, || Detail::of(&error), now);
            self.break_downstream(key, Some(Cause::TlsInvalid), now);
        } else {
            self.handle_broken(key, &error.to_string(), now);
        }
    }

    // Ends.

    /// The peer will send nothing more (FIN).
    pub fn on_read_closed(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        if connection.is_handshaking() {
            self.on_peer_gone(key, "FIN", now);
        } else if connection.is_amid_record() || connection.is_cut_off() {
            self.handle_broken(key, "FIN without close_notify", now);
        } else if !connection.is_read_closed {
            self.on_data_end(key, now);
        }
        self.settle(now);
    }

    /// The connection is broken: reset, or an error while reading. `errno` is the error's name, such as
    /// `ECONNRESET`; empty if there is none.
    pub fn on_broken(&mut self, key: ConnKey, errno: &'static str, now: Time) {
        self.handle_broken(key, errno, now);
        self.settle(now);
    }

    /// `how` it broke, for the log.
    fn handle_broken(&mut self, key: ConnKey, how: &str, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        if connection.is_handshaking() {
            return self.on_peer_gone(key, how, now);
        }
        match connection.role {
            ConnectionRole::Downstream(_) => self.on_downstream_broken(key, how, now),
            ConnectionRole::Upstream(_) => {
                self.connections.note_end(key, how);
                self.on_upstream_broken(key, now);
            }
        }
    }

    // Sending.

    /// Seals what waits on a connection of TLS, as far as it may wait sealed.
    pub(in crate::proxy) fn seal(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.is_connecting() {
            // Another connection may get what waits here yet.
            return;
        }
        let is_ending = connection.is_ending();
        let is_shared = connection.multiplex().is_some();
        let Some(tls) = connection.tls.as_deref_mut() else { return };
        match tls.seal(&mut connection.outbox, is_ending, &mut self.cx.buffers) {
            KeyUsage::Good => {}
            // The other version of HTTP sees to it with its next response.
            KeyUsage::NearLimit if !is_shared => {}
            KeyUsage::NearLimit => {
                tls.is_key_limit_warned = true;
                match connection.role {
                    ConnectionRole::Downstream(_) => {
                        self.connections.begin_goaway(key, now, &mut self.cx);
                    }
                    ConnectionRole::Upstream(_) => {
                        self.upstream.retire(key, &mut self.connections, &mut self.cx);
                    }
                }
            }
            KeyUsage::Exhausted => {
                self.handle_broken(key, "the TLS key has reached its limit", now);
            }
        }
    }

    /// Lets go of what connections that were silent for a while do not need. Called every second; where there
    /// are many connections, it looks at some of them.
    pub fn cool_down(&mut self) {
        let cool = |connection: &mut Connection| {
            if let Some(tls) = connection.tls.as_deref_mut() {
                tls.on_quiet();
            }
        };
        let next =
            self.connections.table.change_range(self.connections.cool_next, COOLED_AT_ONCE, cool);
        self.connections.cool_next = next.unwrap_or(0);
    }
}
