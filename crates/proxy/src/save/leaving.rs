//! Finding a group: every connection and exchange that one connection cannot be moved without.
//!
//! A small group is found and taken out of the worker's tables at once. A large one is found, looked at and taken out over several
//! turns, so that others do not wait for it. Nothing may change meanwhile in what was found:
//!
//! - the worker passes over events of its sockets, and sends nothing ([`Proxy::is_leaving`]);
//! - nothing is read on that was read before, and its deadlines are postponed;
//! - its exchanges stay in their queues, and all others of these queues with them;
//! - its shared upstream connections are in no pool ([`Upstream::is_withheld`](crate::connection::Upstream));
//! - what looks at all connections or exchanges, to end some, waits (`Cx::has_part_of_group`);
//! - messages wait, so that no configuration, answer or drain comes.
//!
//! A connection whose exchanges were not looked at yet may still change: another of them may end, and the connection with it. From then on
//! all that could change it is in the group. So the group is looked at once more when all of it is found: what is gone is left out,
//! what keeps it from moving is found where it cannot change any more, and were there a way for something to join it meanwhile, it would
//! stay.

use std::collections::BTreeSet;

use super::companions::Companions;
use super::{GroupMax, NotSaved, Unmovable};
use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::exchange::stage::Stage;
use crate::keys::{ConnKey, ExchangeKey, PoolId, StreamKey};
use crate::proxy::Proxy;
use crate::tools::time::Time;

/// A group that is about to leave.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(super) companions: Companions,
    max: GroupMax,
    /// How many of its connections are of clients.
    clients: usize,
    /// How many connections were asked for their exchanges.
    explored: usize,
    /// How many connections and exchanges were looked at, once all are found.
    examined: (usize, usize),
    /// Whether some of it was gone by then.
    lost_some: bool,
    why_not: Option<Unmovable>,
    /// Whether it takes several turns, in which others are served.
    is_large: bool,
    /// The pools in whose queues exchanges of a large group wait.
    pub(super) queues: BTreeSet<PoolId>,
}

impl Leaving {
    pub(super) fn new(key: ConnKey, is_client: bool, max: GroupMax) -> Self {
        let mut companions = Companions::default();
        companions.add_connection(key);
        Self {
            companions,
            max,
            clients: usize::from(is_client),
            explored: 0,
            examined: (0, 0),
            lost_some: false,
            why_not: None,
            is_large: false,
            queues: BTreeSet::new(),
        }
    }

    pub(super) const fn is_large(&self) -> bool {
        self.is_large
    }

    /// Whether all of it is found.
    pub(super) const fn is_explored(&self) -> bool {
        self.explored == self.companions.connections.len()
    }

    fn is_examined(&self) -> bool {
        let Companions { connections, exchanges, .. } = &self.companions;
        self.examined == (connections.len(), exchanges.len())
    }

    fn has_exchange(&self, key: ExchangeKey) -> bool {
        self.companions.place_of_exchange(key).is_some()
    }
}

/// How far a group is.
pub(super) enum Found {
    /// There is more to be found; so many entries were looked at.
    Part(usize),
    All,
}

impl Proxy {
    /// Whether a connection belongs to a group that is about to leave: nothing is done about its events until it has left, or stays.
    #[must_use]
    pub fn is_leaving(&self, key: ConnKey) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.companions.has_connection(key))
    }

    /// The same of an exchange.
    pub(crate) fn is_leaving_exchange(&self, key: ExchangeKey) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.has_exchange(key))
    }

    /// Whether exchanges wait for a connection of this pool that are about to leave.
    pub(crate) fn is_leaving_queue(&self, pool: PoolId) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.queues.contains(&pool))
    }

    /// Goes on finding a group: another connection is asked for its exchanges, or something that was found is looked at.
    ///
    /// # Errors
    ///
    /// It cannot move.
    pub(super) fn find_more(&mut self, leaving: &mut Leaving) -> Result<Found, NotSaved> {
        if !leaving.is_explored() {
            let looked_at = self.explore(leaving);
            if leaving.companions.connections.len() > leaving.max.connections
                || leaving.clients > leaving.max.clients
            {
                return Err(leaving.not_saved(Unmovable::TooLarge));
            }
            return Ok(Found::Part(looked_at));
        }
        if !leaving.is_examined() {
            self.examine(leaving);
            return Ok(Found::Part(1));
        }
        if let Some(why) = leaving.why_not {
            return Err(leaving.not_saved(why));
        }
        if std::mem::take(&mut leaving.lost_some) {
            let has_connection = |key| self.connections.get(key).is_some();
            let has_exchange = |key| self.exchanges.get(key).is_some();
            leaving.companions.retain(has_connection, has_exchange);
            if leaving.companions.connections.is_empty() {
                return Err(leaving.not_saved(Unmovable::Unknown));
            }
        }
        Ok(Found::All)
    }

    /// Adds the exchanges of the next connection, and what these are on. Gives how many entries that were.
    fn explore(&mut self, leaving: &mut Leaving) -> usize {
        let next = leaving.companions.connections.get(leaving.explored).copied();
        leaving.explored += 1;
        let Some(key) = next else { return 1 };
        if self.connections.get(key).is_some_and(Connection::owes_handshake) {
            // One that ends meanwhile lets its connection go on.
            leaving.why_not = Some(Unmovable::NotYet);
        }
        let exchanges = self.connections.exchanges_on(key);
        for key in &exchanges {
            self.add(*key, leaving);
        }
        1 + exchanges.len()
    }

    fn add(&mut self, key: ExchangeKey, leaving: &mut Leaving) {
        if !leaving.companions.add_exchange(key) {
            return;
        }
        let Some(exchange) = self.exchanges.get(key) else { return };
        let copies = exchange.copies.iter().flatten();
        for copy in copies.filter(|copy| self.exchanges.get(**copy).is_some()) {
            leaving.companions.add_exchange(*copy);
        }
        if self.exchanges.hedges > 0 && self.is_hedged(exchange) {
            // The answer to the earlier attempt, which is not found by this one, would lead elsewhere.
            leaving.why_not = Some(Unmovable::NotYet);
        }
        let (client, upstream) = (exchange.downstream, exchange.upstream());
        if leaving.is_large {
            leaving.queues.extend(self.queue_of(key));
        }
        if client != StreamKey::NONE && leaving.companions.add_connection(client.connection) {
            leaving.clients += 1;
        }
        if let Some(StreamKey { connection, .. }) = upstream
            && leaving.companions.add_connection(connection)
            && leaving.is_large
        {
            self.upstream.set_aside(connection, &mut self.connections);
        }
    }

    /// The pool in whose queue an exchange waits.
    fn queue_of(&self, key: ExchangeKey) -> Option<PoolId> {
        let exchange = self.exchanges.get(key)?;
        matches!(exchange.stage(), Stage::Waiting { .. }).then(|| exchange.pool()).flatten()
    }

    /// A group will take several turns: from here on it is left alone.
    pub(super) fn begin_large(&mut self, leaving: &mut Leaving) {
        leaving.is_large = true;
        self.cx.has_part_of_group = true;
        for key in &leaving.companions.connections {
            self.upstream.set_aside(*key, &mut self.connections);
        }
        let queues = leaving.companions.exchanges.iter().filter_map(|key| self.queue_of(*key));
        leaving.queues.extend(queues);
    }

    /// A group has left, or stays. Gives the pools in whose queues exchanges of it waited, and others behind them.
    pub(super) fn end_leaving(&mut self) -> BTreeSet<PoolId> {
        let large = self.leaving.take().filter(Leaving::is_large);
        large.map_or_else(BTreeSet::new, |leaving| {
            self.cx.has_part_of_group = false;
            leaving.queues
        })
    }

    /// A connection goes on whose group was to leave, and stays.
    pub fn on_kept(&mut self, key: ConnKey, now: Time) {
        self.upstream.give_back(key, &mut self.connections, &mut self.cx);
        self.on_restored(&[key], now);
    }

    /// Looks at something that was found, as it will be taken.
    fn examine(&self, leaving: &mut Leaving) {
        let Companions { connections, exchanges, .. } = &leaving.companions;
        let (why_not, is_there) = if let Some(key) = connections.get(leaving.examined.0).copied() {
            let why_not = self.why_connection_stays(key, leaving);
            leaving.examined.0 += 1;
            (why_not, self.connections.get(key).is_some())
        } else if let Some(key) = exchanges.get(leaving.examined.1).copied() {
            let why_not = self.why_exchange_stays(key, leaving);
            leaving.examined.1 += 1;
            (why_not, self.exchanges.get(key).is_some())
        } else {
            return;
        };
        leaving.lost_some |= !is_there;
        // That another connection drains says more: it goes on until that is over.
        if leaving.why_not != Some(Unmovable::WithDraining) {
            leaving.why_not = why_not.or(leaving.why_not);
        }
    }

    fn why_connection_stays(&self, key: ConnKey, leaving: &Leaving) -> Option<Unmovable> {
        if self.connections.stays(key, &self.listen) {
            return Some(Unmovable::WithDraining);
        }
        let connection = self.connections.get(key)?;
        let has_another = || {
            let exchanges = self.connections.exchanges_on(key);
            exchanges.into_iter().any(|exchange| !leaving.has_exchange(exchange))
        };
        // A handshake is finished where it began.
        (connection.owes_handshake() || has_another()).then_some(Unmovable::NotYet)
    }

    fn why_exchange_stays(&self, key: ExchangeKey, leaving: &Leaving) -> Option<Unmovable> {
        let exchange = self.exchanges.get(key)?;
        let has_listener = !self.cx.snapshot.listeners.is_empty();
        let has_side = |side: StreamKey| {
            side == StreamKey::NONE || leaving.companions.has_connection(side.connection)
        };
        let has_all = has_side(exchange.downstream) && exchange.upstream().is_none_or(has_side);
        let stays = !has_all
            || self.exchanges.hedges > 0 && self.is_hedged(exchange)
            || exchange.detached.is_some() && !has_listener;
        stays.then_some(Unmovable::NotYet)
    }

    /// Earlier attempts do not move, and the first response may be theirs.
    fn is_hedged(&self, exchange: &Exchange) -> bool {
        let hedge = exchange.hedge().and_then(|hedge| self.exchanges.get(hedge));
        exchange.hedge_of().is_some() || hedge.is_some()
    }
}

impl Leaving {
    fn not_saved(&self, why: Unmovable) -> NotSaved {
        NotSaved { why, connections: self.companions.connections.clone() }
    }
}
