//! A request of HTTP/1 that asks for `h2c`: its connection goes on as one of HTTP/2.

use config::snapshot::ListenerProtocol;
use wire::h2::Http2;
use wire::head::{RequestHead, Version};

use crate::connection::codec::http2::downstream_limits;
use crate::connection::codec::multiplex::Multiplex;
use crate::connection::codec::streams::Stream;
use crate::connection::codec::watches::Watch;
use crate::connection::connections::Connections;
use crate::connection::http2::http2;
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::keys::{ExchangeKey, Slot};
use crate::tools::time::Time;

impl Exchanges {
    /// An HTTP/1 request that asked for `h2c` is stream 1 of the connection from here on: the first of a
    /// connection that may speak either. Inside TLS it is ALPN that offers HTTP/2.
    pub(crate) fn upgrade_to_http2(
        &mut self,
        key: ExchangeKey,
        head: &RequestHead<'_>,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        const SWITCHING: &[u8] =
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
        let Some(exchange) = self.get_mut(key) else { return };
        let Some(settings) = head.http2_settings() else { return };
        let (listener, connection) = (exchange.listener(), exchange.downstream.connection);
        let Some(open) = connections.get_mut(connection) else { return };
        let is_first = open.requests == 1 && open.tls.is_none();
        if !is_first || listener.protocol != ListenerProtocol::Auto {
            return;
        }
        let limits = downstream_limits(&listener.http, &listener.http2, cx.memory.level);
        let Ok(codec) = Http2::upgraded_server(settings, &limits) else { return };
        let opening = now + listener.timeouts.request_head;
        let mut multiplex = Multiplex::new(http2(codec, limits, now));
        multiplex.watches.set(Watch::Opening, opening);
        multiplex.streams.insert(Stream::new(1, key));
        exchange.downstream.slot = Slot::of_stream(1);
        exchange.request.version = Version::Http2;
        open.outbox.push(SWITCHING, &mut cx.buffers);
        if let Some(downstream) = open.downstream_mut() {
            downstream.exchange = None;
        }
        connections.set_multiplex(connection, multiplex, cx);
        connections.queue_send(connection, cx);
    }
}
