//! Edits of header fields that rules ask for (`headers` in `routes`), and what their operators know of an exchange.
//!
//! Requests are edited once, before they are encoded: another attempt sends the same bytes. What the edits of the
//! response need of the request is kept until then, under the names of its fields, so that a configuration whose rule
//! asks for other fields finds no wrong ones.

use std::io::Write as _;
use std::net::SocketAddr;

use config::edits::HeaderEdits;
use config::edits::operators::{Fact, OperatorFacts};
use telemetry::cause::Cause;
use wire::buffer::Buffer;
use wire::head::{RequestHead, ResponseHead, Version};

use crate::connection::Connection;
use crate::connection::connections::Connections;
use crate::connection::transport::{ClientCert, Tls, TlsWords};
use crate::cx::Cx;
use crate::exchange::{Exchange, ExchangeKind};
use crate::tools::peer_address::PeerAddress;
use crate::tools::text::Text;
use crate::tools::time::Time;

impl Exchange {
    /// Edits the head of a request that is forwarded, before its path and host are rewritten.
    #[cold]
    pub(crate) fn edit_request(
        &self,
        head: &mut RequestHead<'_>,
        connections: &Connections,
        cx: &mut Cx,
        now: Time,
    ) {
        let mut scratch = std::mem::take(&mut cx.scratch);
        let facts = FactsOf::new(self, connections, cx.wall_clock_zero, now);
        for edits in self.edits().into_iter().flatten() {
            edits.request.apply_to_request(head, &facts, &mut scratch);
        }
        cx.scratch = scratch;
    }

    /// Keeps what the edits of the response need of the request.
    pub(crate) fn keep_for_response(&mut self, head: &RequestHead<'_>, cx: &mut Cx) {
        if !self.has_edits() {
            return;
        }
        cx.scratch.clear();
        for edits in self.edits().into_iter().flatten() {
            edits.response.keep(head, &mut cx.scratch);
        }
        let kept = (!cx.scratch.is_empty()).then(|| cx.buffers.lease_with(&cx.scratch));
        if let Some(former) = std::mem::replace(&mut self.kept, kept) {
            cx.buffers.give_back(former);
        }
    }

    /// Edits the head of its final response, an upstream's or, for this `cause` if any, Strait's own.
    #[cold]
    pub(crate) fn edit_response(
        &self,
        head: &mut ResponseHead<'_>,
        cause: Option<Cause>,
        connections: &Connections,
        cx: &mut Cx,
        now: Time,
    ) {
        let status = head.status();
        let facts = FactsOf::new(self, connections, cx.wall_clock_zero, now);
        let facts = FactsOf { status, cause, ..facts };
        let kept = self.kept.as_ref().map_or(&[][..], Buffer::filled);
        for edits in self.edits().into_iter().flatten() {
            edits.response.apply_to_response(head, kept, &facts, &mut cx.scratch);
        }
    }

    /// Whether its response is edited.
    #[inline]
    pub(crate) fn has_edits(&self) -> bool {
        self.route.as_ref().is_some_and(|route| route.has_edits)
    }

    /// The edits for it, in their order.
    fn edits(&self) -> [Option<&HeaderEdits>; 3] {
        let found = || {
            let route = self.route.as_ref()?;
            let (table, place) = route.rule?;
            let table = self.snapshot.route_table(table)?;
            let rule = table.rules.get(usize::try_from(place).ok()?)?;
            Some(table.edits_for(rule, route.share))
        };
        found().unwrap_or_default()
    }
}

/// What operators may ask for, of an exchange.
struct FactsOf<'e> {
    exchange: &'e Exchange,
    connections: &'e Connections,
    connection: Option<&'e Connection>,
    wall_clock_zero: u64,
    now: Time,
    /// 0 while there is none.
    status: u16,
    cause: Option<Cause>,
}

impl<'e> FactsOf<'e> {
    fn new(
        exchange: &'e Exchange,
        connections: &'e Connections,
        wall_clock_zero: u64,
        now: Time,
    ) -> Self {
        let connection = connections.get(exchange.downstream.connection);
        Self { exchange, connections, connection, wall_clock_zero, now, status: 0, cause: None }
    }

    /// The client, as the connection or a trusted hop names it.
    fn client(&self) -> Option<SocketAddr> {
        // A client that a trusted hop named has no port that is known here.
        let named = self.exchange.record.client.map(|ip| SocketAddr::new(ip, 0));
        named.or_else(|| self.connection?.peer.socket_address())
    }

    fn direct(&self) -> Option<SocketAddr> {
        self.connection?.peer.socket_address()
    }

    fn local(&self) -> Option<SocketAddr> {
        self.connection?.local.socket_address()
    }

    fn tls(&self) -> Option<&'e Tls> {
        self.connection?.tls.as_deref()
    }

    fn words(&self) -> TlsWords<'e> {
        self.tls().map(Tls::words).unwrap_or_default()
    }

    fn cert(&self) -> Option<ClientCert<'e>> {
        self.tls()?.client_cert()
    }

    fn millis_to(&self, end: Time, out: &mut Vec<u8>) {
        let began = self.exchange.record.stamps.began;
        if began.is_set() && end.is_set() {
            push_number(end.nanos_since(began) / 1_000_000, out);
        }
    }

    /// The address of the endpoint without its port, or the port.
    fn push_endpoint(&self, is_port: bool, out: &mut Vec<u8>) {
        let text = self.exchange.endpoint_text(self.connections);
        let address = std::str::from_utf8(text.as_bytes()).ok();
        if let Some(address) = address.and_then(|text| text.parse::<SocketAddr>().ok()) {
            push(Some(address), if is_port { Piece::Port } else { Piece::Ip }, out);
        }
    }
}

impl OperatorFacts for FactsOf<'_> {
    fn push(&self, fact: Fact, out: &mut Vec<u8>) {
        match fact {
            Fact::RemoteAddress => push(self.client(), Piece::Whole, out),
            Fact::RemoteIp => push(self.client(), Piece::Ip, out),
            Fact::RemotePort => push(self.client(), Piece::Port, out),
            Fact::DirectAddress => push(self.direct(), Piece::Whole, out),
            Fact::DirectIp => push(self.direct(), Piece::Ip, out),
            Fact::DirectPort => push(self.direct(), Piece::Port, out),
            Fact::LocalAddress => push(self.local(), Piece::Whole, out),
            Fact::LocalIp => push(self.local(), Piece::Ip, out),
            Fact::LocalPort => push(self.local(), Piece::Port, out),
            Fact::PeerUris => push_names(self.cert().map(|it| &*it.peer.uris), out),
            Fact::PeerHosts => push_names(self.cert().map(|it| &*it.peer.dns_names), out),
            Fact::PeerIps => push_names(self.cert().map(|it| &*it.peer.addresses), out),
            Fact::PeerSubject => push_text(self.cert().map(|it| &*it.peer.subject), out),
            Fact::PeerIssuer => push_text(self.cert().map(|it| &*it.peer.issuer), out),
            Fact::PeerSerial => push_text(self.cert().map(|it| &*it.peer.serial), out),
            Fact::PeerFingerprint => {
                for octet in self.cert().iter().flat_map(|it| it.peer.fingerprint) {
                    // Writing to a vector cannot fail.
                    let _ = write!(out, "{octet:02x}");
                }
            }
            Fact::LocalUri => push_text(self.cert().and_then(|it| it.shown_uri), out),
            Fact::TlsVersion => push_text(Some(self.words().version), out),
            Fact::TlsCipher => push_text(Some(self.words().cipher), out),
            Fact::ServerName => push_text(Some(self.words().server_name), out),
            Fact::Protocol => out.extend_from_slice(match self.exchange.request.version {
                _ if self.exchange.kind == ExchangeKind::Rpc => b"RPC",
                Version::Http10 => b"HTTP/1.0",
                Version::Http11 => b"HTTP/1.1",
                Version::Http2 => b"HTTP/2",
            }),
            Fact::Scheme => {
                out.extend_from_slice(if self.tls().is_some() { b"https" } else { b"http" });
            }
            Fact::RouteName => {
                push_text(self.exchange.rule().and_then(|rule| rule.name.as_deref()), out);
            }
            Fact::UpstreamCluster => {
                push_text(self.exchange.cluster().map(|cluster| &*cluster.name), out);
            }
            Fact::UpstreamAddress => {
                out.extend_from_slice(self.exchange.endpoint_text(self.connections).as_bytes());
            }
            Fact::UpstreamIp => self.push_endpoint(false, out),
            Fact::UpstreamPort => self.push_endpoint(true, out),
            Fact::Attempts => push_number(u64::from(self.exchange.progress.attempts), out),
            Fact::Status => push_number(u64::from(self.status), out),
            Fact::Cause => push_text(self.cause.map(Cause::as_str), out),
            Fact::ResponseTime => self.millis_to(self.exchange.record.stamps.first_byte, out),
            Fact::Duration => self.millis_to(self.now, out),
        }
    }

    fn start_nanos(&self) -> u64 {
        self.wall_clock_zero.saturating_add(self.exchange.record.stamps.began.as_nanos())
    }
}

/// What of an address is meant.
#[derive(Clone, Copy)]
enum Piece {
    Whole,
    Ip,
    Port,
}

fn push(address: Option<SocketAddr>, piece: Piece, out: &mut Vec<u8>) {
    let Some(address) = address else { return };
    match piece {
        Piece::Whole => out.extend_from_slice(Text::of_socket(address).as_bytes()),
        Piece::Ip => out.extend_from_slice(Text::of_ip(&PeerAddress::from(address)).as_bytes()),
        Piece::Port => push_number(u64::from(address.port()), out),
    }
}

fn push_number(number: u64, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{number}");
}

fn push_text(text: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
}

/// Names of a certificate, of which none can pass for two.
fn push_names(names: Option<&[Box<str>]>, out: &mut Vec<u8>) {
    for (place, name) in names.unwrap_or_default().iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        for (place, piece) in name.split(',').enumerate() {
            if place > 0 {
                out.extend_from_slice(b"%2C");
            }
            out.extend_from_slice(piece.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_certificate_passes_for_two() {
        let names = ["spiffe://a/b", "spiffe://a/c,spiffe://a/admin"].map(Box::from);
        let mut out = Vec::new();
        push_names(Some(&names), &mut out);
        assert_eq!(out, b"spiffe://a/b,spiffe://a/c%2Cspiffe://a/admin");
    }
}
