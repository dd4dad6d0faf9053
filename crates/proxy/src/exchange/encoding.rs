//! A request as it is sent upstream: encoded whole for HTTP/1, parked until a stream has it for HTTP/2,
//! behind a PROXY protocol header where the cluster wants one.

use std::net::SocketAddr;

use config::snapshot::ProxyProtocol;
use wire::h1::{BodyEncoder, ConnectionField};
use wire::head::{Framing, Head, Known, RequestHead, Version};
use wire::proxy_protocol;
use wire::upgrade::websocket_key;

use crate::connection::codec::Codec;
use crate::connection::codec::elements::TOGETHER_BYTES_MAX;
use crate::connection::codec::http1::{Http1, Send};
use crate::connection::codec::streams::Tail;
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::exchange::Exchange;
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::tools::outbox::Outbox;

/// Bytes of the longest PROXY protocol header that is sent: a line of version 1.
const PROXY_HEADER_BYTES_MAX: usize = 107;

impl Cx {
    /// A request for a stream: how its head is encoded depends on the connection.
    pub(crate) fn encode_for_stream(
        &mut self,
        head: &RequestHead<'_>,
        is_complete: bool,
    ) -> QueuedRequest {
        let mut outbox = Outbox::new();
        outbox.keep();
        let tail = if is_complete { Tail::End } else { Tail::Open };
        QueuedRequest { outbox, form: Form::Stream { head: self.park(head), tail } }
    }
}

impl Exchange {
    /// A request for a connection that is its own.
    #[inline]
    pub(crate) fn encode_whole(
        &self,
        head: &mut RequestHead<'_>,
        asks_upgrade: bool,
        connections: &Connections,
        cx: &mut Cx,
    ) -> QueuedRequest {
        // One that was parked reads as the request of HTTP/1 that it stands for.
        if asks_upgrade && !self.downstream.is_alone() && is_websocket(head) {
            // The client of HTTP/2 has no key to send, and no use for the answer to one.
            head.set(b"sec-websocket-key", &websocket_key(cx.random.octets()));
        }
        if head.version() == Version::Http2
            && announces_trailers(head)
            && matches!(head.framing(), Framing::Length(_))
        {
            // Only the chunked coding has a place for them.
            head.set_framing(Framing::Chunked);
        }
        let encoder = BodyEncoder::new(head.framing());
        let send = if encoder.is_complete() { Send::Idle } else { Send::Body(encoder) };
        let mut outbox = Outbox::new();
        outbox.keep();
        let is_personal = self.push_proxy_header(&mut outbox, connections, cx);
        // Room for the body of a usual request too, so that all of it is in one buffer: one send,
        // and all of it there to be sent again.
        let body = match head.framing() {
            Framing::Length(n) => usize::try_from(n).unwrap_or(usize::MAX),
            _ => 0,
        };
        let bytes = head.encoded_len_max();
        let room = bytes.saturating_add(if body <= TOGETHER_BYTES_MAX { body } else { 0 });
        outbox.push_with(room, &mut cx.buffers, |buffer| {
            wire::h1::encode_request(head, connection_field(asks_upgrade), buffer);
        });
        let codec = Codec::Http1(Http1::sending(send));
        QueuedRequest { outbox, form: Form::Alone { codec, is_personal } }
    }

    /// The PROXY protocol header, for clusters that want one in front of each connection. Says
    /// whether there is one.
    pub(crate) fn push_proxy_header(
        &self,
        outbox: &mut Outbox,
        connections: &Connections,
        cx: &mut Cx,
    ) -> bool {
        let cluster = self.cluster();
        let version = cluster.map_or(ProxyProtocol::Off, |cluster| cluster.proxy_protocol);
        if !version.is_sent() {
            return false;
        }
        // In front of a handshake it is written where that begins.
        if cluster.is_some_and(|cluster| cluster.transports.own().tls.is_none()) {
            self.write_proxy_header(version, outbox, connections, cx);
        }
        true
    }

    /// Writes the header of this version.
    pub(crate) fn write_proxy_header(
        &self,
        version: ProxyProtocol,
        outbox: &mut Outbox,
        connections: &Connections,
        cx: &mut Cx,
    ) {
        // An exchange that has none speaks for the proxy itself.
        let connection = connections.get(self.downstream.connection);
        // A client that a trusted hop named has no port that is known here.
        let client = self.record.client.map(|ip| SocketAddr::new(ip, 0));
        let source = client.or_else(|| connection?.peer.socket_address());
        let addresses = source.zip(connection.and_then(|it| it.local.socket_address()));
        outbox.push_with(PROXY_HEADER_BYTES_MAX, &mut cx.buffers, |buffer| {
            match (version, addresses) {
                (ProxyProtocol::Off, _) => {}
                (ProxyProtocol::V1, Some((source, destination))) => {
                    proxy_protocol::encode_v1(source, destination, buffer);
                }
                (ProxyProtocol::V1, None) => proxy_protocol::encode_unknown_v1(buffer),
                (ProxyProtocol::V2, Some((source, destination))) => {
                    proxy_protocol::encode_v2(source, destination, buffer);
                }
                (ProxyProtocol::V2, None) => proxy_protocol::encode_local_v2(buffer),
            }
        });
    }
}

/// Whether trailers come behind a body whose length is known, which HTTP/2 allows.
pub(crate) fn announces_trailers<K>(head: &Head<'_, K>) -> bool {
    head.field(Known::Trailer).is_some()
}

fn is_websocket(head: &RequestHead<'_>) -> bool {
    head.upgrade().is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
}

/// How an encoded request names what becomes of its connection.
pub(crate) const fn connection_field(asks_upgrade: bool) -> ConnectionField {
    if asks_upgrade { ConnectionField::Upgrade } else { ConnectionField::Default }
}
