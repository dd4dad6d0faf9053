//! Hop 2: a connection is accepted, or refused, and what its first bytes are read as.

use std::net::SocketAddr;

use config::cidr::Cidr;
use config::memory::MemoryLevel;
use config::snapshot::ListenerId;
use telemetry::cause::Cause;
use telemetry::events::{ConnectionOpened, ConnectionRefused};

use crate::connection::codec::Codec;
use crate::connection::codec::Opening;
use crate::connection::{ConnectionRole, Downstream, Life, Origin};
use crate::keys::{ConnKey, label};
use crate::listen::accepting::{of_client_bound, of_memory};
use crate::listen::clients::{ClientPlace, Part};
use crate::listen::listeners::ListenerKey;
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::peer_address::PeerAddress;
use crate::tools::time::Time;

impl Proxy {
    /// A downstream connected; `original` is where it was going, if rules of the machine brought it
    /// here. None if a bound is reached: the worker closes the socket then.
    pub fn on_accepted(
        &mut self,
        listener: ListenerId,
        peer: PeerAddress,
        local: PeerAddress,
        original: Option<SocketAddr>,
        now: Time,
    ) -> Option<ConnKey> {
        let origin = Origin::of_original(self.cx.keep_original(original));
        let listener = self.listen.listeners.find(listener)?;
        let client = self.let_in(listener, &peer, now)?;
        let state = self.listen.listeners.get(listener);
        let settings = state.listener();
        let has_proxy_header = settings.http.proxy_protocol.is_some();
        let deadline = now + settings.timeouts.request_head;
        self.cx.emitter.connection_opened(&ConnectionOpened { listener: label(state.id.0) });
        self.listen.listeners.on_opened(listener);
        let life = Life::Open;
        let role = ConnectionRole::Downstream(Downstream {
            listener,
            client,
            chain: None,
            exchange: None,
            life,
            lingering: None,
            is_detected: false,
            is_aged: false,
            is_restored: false,
            head_began: Time::NEVER,
            origin,
        });
        let key = self.connections.insert_connection(
            role,
            Codec::Opening(Opening::ProxyHeader),
            now,
            &mut self.cx,
        );
        if let Some(connection) = self.connections.get_mut(key) {
            (connection.peer, connection.local) = (peer, local);
            self.cx.timers.arm(connection.timer, deadline);
        }
        if self.cx.emitter.is_debug() {
            let listener = self.listen.listeners.get(listener).listener();
            self.connections.debug_accepted(key, &listener.name, now, &mut self.cx);
        }
        if !has_proxy_header {
            self.begin_connection(key, now);
            self.settle(now);
        }
        Some(key)
    }

    /// Counts a new connection for its client, unless it is beyond a bound: then it is refused.
    fn let_in(
        &mut self,
        listener: ListenerKey,
        peer: &PeerAddress,
        now: Time,
    ) -> Option<ClientPlace> {
        let state = self.listen.listeners.get(listener);
        let settings = state.listener();
        if self.cx.memory.level >= MemoryLevel::Critical {
            let (id, memory) = (state.id, self.cx.memory);
            self.cx.refuse(id, peer, Cause::Overloaded, || of_memory(memory), now);
            return None;
        }
        let is_over = state.open >= self.cx.share.of(settings.connections_max.get())
            || self.listen.listeners.open
                >= self.cx.share.of(self.listen.connections_max(&self.cx));
        if is_over {
            let (id, max) = (state.id, settings.connections_max);
            let process_max = self.cx.snapshot.limits.connections_max;
            let detail = || {
                Detail::of(&format_args!(
                    "connections_max of the listener: {max}; of limits: {process_max}"
                ))
            };
            self.cx.refuse(id, peer, Cause::ConnectionsOverflow, detail, now);
            return None;
        }
        if !may_send_proxy_header(settings.http.proxy_protocol.as_deref(), peer) {
            let detail = || Detail::of(&"proxy_protocol.from does not contain the address");
            self.cx.refuse(state.id, peer, Cause::ProxyProtocolSource, detail, now);
            return None;
        }
        let has_proxy_header = settings.http.proxy_protocol.is_some();
        // Behind trusted proxies, and before a PROXY header, the peer is not the client.
        let is_client = !has_proxy_header && settings.http.trusted_hops == 0;
        let address = peer.ip().filter(|_| is_client);
        let per_client_max = self.cx.share.of(settings.connections_per_client_max.get());
        let id = state.id;
        let (client, count) = self.listen.clients.enter(address, id, Part::Connection);
        if count > per_client_max {
            self.listen.clients.remove(client, Part::Connection);
            let max = settings.connections_per_client_max;
            let detail = || of_client_bound(max);
            self.cx.refuse(id, peer, Cause::ClientConnectionsOverflow, detail, now);
            return None;
        }
        // What a client has no right to costs others none of the rate.
        if let Some(rate) = settings.accept_rate.as_ref()
            && !self.cx.share.is_apart()
            && !rate.take(now.as_nanos())
        {
            self.listen.clients.remove(client, Part::Connection);
            let rate = rate.per_second();
            let detail =
                || Detail::of(&format_args!("accept_rate of the listener: {rate} a second"));
            self.cx.refuse(id, peer, Cause::AcceptRate, detail, now);
            return None;
        }
        Some(client)
    }

    /// Bounds downstream connections of the process, whatever the configuration says, by what the
    /// system lets it open.
    pub const fn set_descriptors_max(&mut self, connections: u32) {
        self.listen.descriptors_max = connections;
    }

    /// A connection could not be accepted: [`Cause::OutOfDescriptors`] or [`Cause::AcceptFailed`].
    pub fn on_accept_failed(&mut self, listener: ListenerId, cause: Cause) {
        let listener = label(listener.0);
        self.cx.emitter.connection_refused(&ConnectionRefused { listener, cause });
    }
}

/// Whether a peer may say where its connection comes from, or need not be asked.
fn may_send_proxy_header(from: Option<&[Cidr]>, peer: &PeerAddress) -> bool {
    match from {
        None | Some([]) => true,
        Some(from) => {
            let ip = peer.socket_address().map(|address| address.ip().to_canonical());
            ip.is_some_and(|ip| from.iter().any(|range| range.contains(ip)))
        }
    }
}
