//! How an exchange begins: with its request's head, or with one that is refused.

use telemetry::events::ExchangeStarted;

use crate::connection::ConnectionRole;
use crate::connection::codec::Codec;
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::record::Stamps;
use crate::exchange::{Beginning, Exchange, Request};
use crate::keys::{ExchangeKey, StreamKey, label};
use crate::listen::Listen;
use crate::listen::clients::Part;
use crate::timers::TimerOwner;
use crate::tools::time::Time;

impl Exchanges {
    /// Puts an exchange on the downstream connection, or stream, whose head was just read, or refused.
    pub(crate) fn begin_exchange(
        &mut self,
        at: StreamKey,
        request: Request,
        now: Time,
        connections: &mut Connections,
        listen: &mut Listen,
        cx: &mut Cx,
    ) -> Option<ExchangeKey> {
        let connection = connections.get_mut(at.connection)?;
        let ConnectionRole::Downstream(downstream) = &mut connection.role else { return None };
        let is_first = connection.requests == 0;
        connection.requests += 1;
        let opened = connection.opened;
        let state = listen.listeners.get(downstream.listener);
        let (snapshot, place) = state.pin();
        let listener = label(state.id.0);
        let client = downstream.client;
        listen.clients.add(client, Part::Exchange);
        let began = std::mem::replace(&mut downstream.head_began, Time::NEVER).min(now);
        let accepted = if is_first { opened } else { Time::NEVER };
        let stamps = Stamps { accepted, began, head_read: now, ..Stamps::NONE };
        let timer = cx.timers.insert(TimerOwner::Exchange(ExchangeKey::from_bits(0)).into());
        let chain = downstream.chain;
        let beginning =
            Beginning { snapshot, listener: place, chain, downstream: at, client, stamps };
        let exchange = self.table.insert(Exchange::new(beginning, request, timer));
        cx.timers.set_owner(timer, TimerOwner::Exchange(exchange).into());
        match &mut connection.codec {
            Codec::Shared(multiplex) => multiplex.begin_stream(at.slot, exchange),
            Codec::Opening(_) | Codec::Http1(_) | Codec::Bytes(_) => {
                downstream.exchange = Some(exchange);
            }
        }
        cx.emitter.exchange_started(&ExchangeStarted { listener });
        Some(exchange)
    }
}
