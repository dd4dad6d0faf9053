//! Connections as the admin interface lists them.

use std::time::Duration;

use config::reports::{ConnectionSide, ConnectionSummaries, ConnectionSummary};
use telemetry::events::ClusterGauges;
use telemetry::events::WorkerGauges;

use crate::connection::Connection;
use crate::connection::ConnectionRole;
use crate::connection::UpstreamState;
use crate::connection::codec::Codec;
use crate::connection::codec::Opening;
use crate::connection::codec::http1::Http1;
use crate::connection::codec::http1::Receive;
use crate::exchange::record::Word;
use crate::keys::{ConnKey, label};
use crate::proxy::Proxy;
use crate::tools::time::Time;

impl Proxy {
    /// The connections in `count` slots from `first` on, and the slot to go on with.
    #[must_use]
    pub fn describe(&self, first: u32, count: u32, now: Time) -> ConnectionSummaries {
        let (slots, next) = self.connections.table.range(first, count);
        let connections = slots.map(|(key, connection)| self.summary(key, connection, now));
        ConnectionSummaries { connections: connections.collect(), next }
    }

    fn summary(&self, key: ConnKey, connection: &Connection, now: Time) -> ConnectionSummary {
        let exchange = connection.exchange().and_then(|exchange| self.exchanges.get(exchange));
        let side = match &connection.role {
            ConnectionRole::Downstream(downstream) => {
                ConnectionSide::Downstream(self.listen.listeners.get(downstream.listener).id)
            }
            ConnectionRole::Upstream(upstream) => {
                ConnectionSide::Upstream(upstream.cluster, upstream.endpoint)
            }
        };
        let state = match (&connection.role, exchange) {
            (_, Some(exchange)) if exchange.progress.is_tunnel => "tunnel",
            (ConnectionRole::Upstream(upstream), _) => match upstream.state {
                UpstreamState::Connecting { .. } => "connecting",
                UpstreamState::Busy { .. } => "busy",
                UpstreamState::Idle(_) => "idle",
                UpstreamState::Shared { connecting_since: Some(_), .. } => "connecting",
                UpstreamState::Shared { .. } if connection.is_busy() => "busy",
                UpstreamState::Shared { .. } => "idle",
            },
            (ConnectionRole::Downstream(_), Some(exchange)) => exchange.stage().as_str(),
            (ConnectionRole::Downstream(downstream), None) if downstream.lingering.is_some() => {
                "closing"
            }
            (ConnectionRole::Downstream(_), None) => match &connection.codec {
                Codec::Opening(Opening::ProxyHeader) => "proxy_header",
                Codec::Opening(Opening::Handshake) => "handshaking",
                Codec::Opening(Opening::Detect | Opening::Hello) => "detecting",
                Codec::Shared(multiplex) if multiplex.streams.is_empty() => "idle",
                Codec::Shared(_) => "streams",
                Codec::Http1(Http1 { receive: Receive::Head(_), .. }) => {
                    if connection.inbox.is_some() { "reading_head" } else { "idle" }
                }
                Codec::Http1(Http1 { receive: Receive::Discard { .. }, .. }) => "discarding",
                Codec::Http1(Http1 { receive: Receive::Body(_) | Receive::Complete, .. })
                | Codec::Bytes(_) => "closing",
            },
        };
        let target = exchange.map(|exchange| exchange.record.words.word(Word::Target));
        ConnectionSummary {
            slot: key.index(),
            generation: key.generation(),
            side,
            peer: connection.peer.socket_address(),
            state,
            age: Duration::from_nanos(now.nanos_since(connection.opened)),
            requests: connection.requests,
            streams: connection.multiplex().map(|all| all.streams.len()),
            inbox_bytes: connection.inbox.as_ref().map_or(0, wire::buffer::Buffer::len),
            outbox_bytes: connection.unsent_len(),
            target: String::from_utf8_lossy(target.unwrap_or_default()).into_owned(),
        }
    }

    /// The requests that clients' connections have carried, of those in `count` slots from `first` on, and the slot to
    /// go on with.
    #[must_use]
    pub fn requests_carried(&self, first: u32, count: u32) -> (Vec<(ConnKey, u32)>, Option<u32>) {
        let (slots, next) = self.connections.slots(first, count);
        let downstreams = slots.filter(|(_, connection)| connection.downstream().is_some());
        (downstreams.map(|(key, connection)| (key, connection.requests)).collect(), next)
    }

    /// Tells how long this worker has been at work since its start, ns.
    pub fn tell_busy(&mut self, busy: u64) {
        self.cx.emitter.worker_busy(busy);
    }

    /// Tells the gauges of this worker.
    pub fn tell_gauges(&mut self, turns: u64, events: u64) {
        let buffers = self.cx.buffers.usage();
        self.cx.emitter.worker_gauges(&WorkerGauges {
            turns,
            events,
            buffers_leased: buffers.leased,
            buffers_reused_total: buffers.reused_total,
            buffers_allocated_total: buffers.allocated_total,
            buffer_bytes: buffers.bytes,
            connections_downstream: u64::from(self.listen.listeners.open),
            connections_upstream: u64::from(self.upstream.pools.open),
            idle_upstream: u64::from(self.upstream.pools.idle),
            pending: u64::from(self.upstream.pools.waiting),
        });
        for (cluster, idle, pending) in self.upstream.pools.levels() {
            let gauges = ClusterGauges { idle, pending };
            self.cx.emitter.cluster_gauges(label(cluster.0), &gauges);
        }
    }
}
