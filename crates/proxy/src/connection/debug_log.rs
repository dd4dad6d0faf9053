//! The life of a connection in the debug log: one line an event, with its time and the connection's name.
//!
//! Nothing here is called unless [`Emitter::is_debug`](telemetry::Emitter::is_debug) says so, which is asked where the event happens.
//! Lines hold no field values and no query strings, which may be credentials; what a peer chose is escaped.

use std::fmt;

use telemetry::cause::Cause;
use wire::head::{RequestHead, Version};

use crate::connection::connections::Connections;
use crate::connection::transport::Tls;
use crate::connection::{Connection, ConnectionRole};
use crate::cx::Cx;
use crate::keys::{ConnKey, StreamKey};
use crate::tools::peer_address::PeerAddress;
use crate::tools::time::Time;

/// Bytes of a path, a host or a detail in a line.
const WORD_BYTES_MAX: usize = 160;

impl Cx {
    /// Writes a line about what happened to `what` now.
    #[cold]
    #[inline(never)]
    pub(crate) fn debug(&mut self, what: impl fmt::Display, words: fmt::Arguments<'_>, now: Time) {
        let at = self.wall_clock_zero.saturating_add(now.as_nanos());
        let (seconds, micros) = (at / 1_000_000_000, at / 1_000 % 1_000_000);
        let (hours, minutes, seconds) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
        let time = format_args!("{hours:02}:{minutes:02}:{seconds:02}.{micros:06}");
        self.emitter.debug(at, format_args!("{time} {what}: {words}"));
    }
}

impl Connections {
    /// A client was accepted.
    #[cold]
    #[inline(never)]
    pub(crate) fn debug_accepted(&self, key: ConnKey, listener: &str, now: Time, cx: &mut Cx) {
        let Some(connection) = self.get(key) else { return };
        let (peer, local) = (Peer(&connection.peer), Peer(&connection.local));
        let words = format_args!("accepted from {peer} at {local}, listener {listener}");
        cx.debug(Named(key), words, now);
    }

    /// A client's handshake is done.
    #[cold]
    #[inline(never)]
    pub(crate) fn debug_tls(&self, key: ConnKey, now: Time, cx: &mut Cx) {
        let tls = self.get(key).and_then(|connection| connection.tls.as_deref());
        let Some(words) = tls.map(Tls::words) else { return };
        let (version, cipher, name) = (words.version, words.cipher, words.server_name);
        let words = format_args!("TLS done: {version} {cipher}, server name {name:?}");
        cx.debug(Named(key), words, now);
    }
}

impl Cx {
    /// A request's head was read.
    #[cold]
    #[inline(never)]
    pub(crate) fn debug_request(&mut self, at: StreamKey, head: &RequestHead<'_>, now: Time) {
        let version = match head.version() {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
        };
        let (method, path, host) = (cut(head.method_bytes()), cut(head.path()), cut(head.host()));
        let words = format_args!("request {method} {path} {version}, host \"{host}\"");
        self.debug(at, words, now);
    }

    /// A connection is over.
    #[cold]
    #[inline(never)]
    pub(crate) fn debug_closed(
        &mut self,
        key: ConnKey,
        connection: &Connection,
        cause: Option<Cause>,
        now: Time,
    ) {
        let side = match &connection.role {
            ConnectionRole::Downstream(_) => "client",
            ConnectionRole::Upstream(_) => "upstream",
        };
        let (cause, requests) = (cause.map_or("done", Cause::as_str), connection.requests);
        let millis = now.nanos_since(connection.opened) / 1_000_000;
        let words =
            format_args!("{side} closed: {cause}, after {millis}ms with {requests} requests");
        self.debug(Named(key), words, now);
    }
}

/// The octets of a word, escaped and cut.
pub(crate) fn cut(word: &[u8]) -> impl fmt::Display {
    word.get(..WORD_BYTES_MAX).unwrap_or(word).escape_ascii()
}

/// A connection by its name in lines.
pub(crate) struct Named(pub(crate) ConnKey);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {:?}", self.0)
    }
}

/// A request by its connection and, where that carries several, its stream.
impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("copy");
        }
        write!(f, "connection {:?}", self.connection)?;
        match self.is_alone() {
            true => Ok(()),
            false => write!(f, " stream {}", self.slot.stream()),
        }
    }
}

/// An address of a peer.
pub(crate) struct Peer<'p>(pub(crate) &'p PeerAddress);

impl fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.socket_address() {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("unix"),
        }
    }
}
