//! Where an exchange begins to wait for its client, and where it ceases to.

use std::num::NonZeroU32;

use config::breakers::Member;

use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::stage::Stage;
use crate::exchange::stalls::{Stall, Stalls};
use crate::exchange::{Exchange, ExchangeKind};
use crate::keys::ExchangeKey;
use crate::listen::clients::{Clients, Part};
use crate::share::Share;
use crate::tools::time::Time;
use crate::upstream::pool::{Pool, Pools};

impl Exchange {
    /// Whether it can be stalled: where both sides speak as they like, silence means nothing.
    fn can_stall(&self) -> bool {
        self.kind == ExchangeKind::Http && !self.is_conversation() && !self.request.asks_upgrade
    }

    const fn is_responding(&self) -> bool {
        matches!(self.stage(), Stage::Responding { .. })
    }

    /// Whether its client sends the body, and not below the least rate.
    pub(crate) fn moves_on(&self) -> bool {
        self.stall.is_some() && self.awaits_client() && !self.is_request_slow
    }

    /// Whether its client is the one waited for.
    pub(crate) fn awaits_client(&self) -> bool {
        matches!(self.stage(), Stage::Attempting { .. }) && !self.request.is_complete
    }

    /// Its client is not the one waited for.
    #[inline]
    pub(crate) fn end_stall(&mut self, stalls: &mut Stalls) {
        if let Some(stall) = self.stall.take() {
            stalls.remove(stall);
        }
    }

    /// It has an upstream connection, or a stream on one.
    pub(crate) fn hold(&mut self, clients: &mut Clients, pools: &mut Pools) {
        if !std::mem::replace(&mut self.is_holding, true) {
            clients.add(self.client, Part::Held);
            if pools.is_counting {
                self.counted_at = self.endpoint_to_count();
                self.counted_at.into_iter().for_each(|at| pools.on_request_begun(at));
            }
        }
    }

    /// Whether it is to be counted among the requests of its cluster, if that bounds them.
    pub(crate) fn is_bounded(&self) -> bool {
        let is_relay = matches!(self.kind, ExchangeKind::Tcp | ExchangeKind::Tls);
        !self.holds_request && !is_relay && self.check().is_none()
    }

    /// It came with its upstream connection from another worker: it counts here from now on.
    pub(crate) fn hold_request(&mut self, pools: &mut Pools, cx: &mut Cx) {
        if self.is_bounded()
            && let priority = self.priority()
            && let Some(cluster) = self.cluster().filter(|it| it.bounds_requests(priority))
        {
            pools.add_request(Pool::new(cluster, priority), || cx.random.next());
            self.holds_request = true;
        }
    }

    /// It is not under way at an endpoint.
    #[inline]
    pub(crate) fn give_request(&mut self, pools: &mut Pools) {
        if std::mem::take(&mut self.holds_request)
            && let Some(pool) = self.pool()
        {
            pools.give_request(pool);
        }
    }

    /// Counts it among the requests of its listener, if that bounds them. Returns the bound if it is reached.
    #[inline]
    pub(crate) fn take_listener_request(&mut self, share: Share) -> Result<(), NonZeroU32> {
        let max = self.listener().requests_max.filter(|_| !share.is_apart());
        let Some(max) = max else { return Ok(()) };
        if !self.listener().breakers.take_request(share.member(), max.get()) {
            return Err(max);
        }
        self.holds_listener_request = true;
        Ok(())
    }

    /// It came from another worker: it counts here from now on.
    pub(crate) fn hold_listener_request(&mut self, member: Member) {
        let is_relay = matches!(self.kind, ExchangeKind::Tcp | ExchangeKind::Tls);
        if self.listener().requests_max.is_some() && self.detached.is_none() && !is_relay {
            self.listener().breakers.add_request(member);
            self.holds_listener_request = true;
        }
    }

    /// It is over here.
    #[inline]
    pub(crate) fn give_listener_request(&mut self, member: Member) {
        if std::mem::take(&mut self.holds_listener_request) {
            self.listener().breakers.give_request(member);
        }
    }

    /// It has no upstream connection any more.
    #[inline]
    pub(crate) fn let_go(&mut self, clients: &mut Clients, stalls: &mut Stalls, pools: &mut Pools) {
        if std::mem::take(&mut self.is_holding) {
            clients.remove(self.client, Part::Held);
            self.measured_from = None;
            if let Some(at) = self.counted_at.take() {
                pools.on_request_over(at);
            }
        }
        self.give_request(pools);
        self.end_stall(stalls);
    }
}

impl Exchanges {
    /// An exchange's client is the one waited for from now on, if it was not already.
    pub(crate) fn on_stalled(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.table.get_mut(key) else { return };
        if exchange.stall.is_some() || !exchange.is_holding || !exchange.can_stall() {
            return;
        }
        // What was taken up may name a cluster that is gone.
        let Some((_, pool)) = exchange.cluster().zip(exchange.pool()) else { return };
        let client = exchange.client;
        let stall = Stall::new(key, pool, client, now);
        exchange.stall = Some(self.stalls.insert(stall));
    }

    /// An exchange's client went on, and is waited for again.
    pub(crate) fn restart_stall(&mut self, key: ExchangeKey, now: Time) {
        if let Some(exchange) = self.table.get_mut(key) {
            exchange.end_stall(&mut self.stalls);
        }
        self.on_stalled(key, now);
    }

    /// So much of a response waits for the client that no more of it is read.
    pub(crate) fn on_response_stalled(&mut self, key: ExchangeKey, now: Time) {
        let exchange = self.get_mut(key).filter(|exchange| exchange.is_responding());
        if let Some(exchange) = exchange {
            exchange.record.stamps.hold_response(now);
            self.on_stalled(key, now);
        }
    }

    /// Enough of a response was taken for more of it to be read.
    pub(crate) fn resume_response(&mut self, key: ExchangeKey, now: Time) {
        if let Some(exchange) = self.get_mut(key) {
            exchange.record.stamps.resume_response(now);
        }
    }

    /// The client took some of a response.
    pub(crate) fn end_response_stall(&mut self, key: ExchangeKey) {
        let exchange = self.table.get_mut(key).filter(|exchange| exchange.is_responding());
        if let Some(exchange) = exchange {
            exchange.end_stall(&mut self.stalls);
        }
    }

    /// How long an exchange has been stalled, for saving.
    pub(crate) fn stalled_for(&self, exchange: &Exchange, now: Time) -> Option<u64> {
        let stall = self.stalls.entries.get(exchange.stall?)?;
        Some(now.nanos_since(stall.since))
    }
}
