//! Exchanges that hold an upstream connection while their client stands still, and what becomes of
//! them when others wait for one.
//!
//! An exchange is *stalled* from the moment on that its client is the one waited for: its request's
//! body is to come, or so much of its response waits that no more is read. It stands in a list of
//! its cluster then, the longest stalled first, and leaves it, or goes to its end, when the client
//! goes on. Nothing else is done about it, unless an exchange of that cluster waits for a connection:
//!
//! ```text
//! no connection free ─► queue ─► noted ──► the longest stalled of a client that has more than its
//!                                  ▲       share, or that is stalled for `timeouts.stall`, ends
//!                                  └── every 100 ms, as long as some wait
//! ```
//!
//! A client that had more than its share does not get the connection back at once: see
//! `pool::reserve`.

use std::time::Duration;

use config::snapshot::{Cluster, ClusterId};
use telemetry::cause::Cause;

use crate::connection::ExchangeKey;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::{Exchange, Kind, Stage};
use crate::listen::clients::{ClientPlace, Clients, Part};
use crate::proxy::Proxy;
use crate::tools::slab::{Key, Slab};
use crate::tools::time::Time;
use crate::upstream::Upstreams;

/// How long an exchange of a client that has more than its share has to be stalled: longer than what
/// a packet that was lost takes to come again on most paths.
const STALL_OVER_SHARE: Duration = Duration::from_millis(100);

/// Time between two looks at clusters in which exchanges wait.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Stalled exchanges that are looked at for one that gives way.
const LOOKED_AT_MAX: usize = 32;

/// Exchanges that give way before others have their turn.
const ENDED_TOGETHER_MAX: usize = 16;

/// Names a stalled exchange's place in its list.
pub(crate) type StallKey = Key<Stall>;

/// An exchange that is stalled.
#[derive(Debug)]
pub(crate) struct Stall {
    exchange: ExchangeKey,
    cluster: ClusterId,
    client: ClientPlace,
    /// Since when.
    since: Time,
    older: Option<StallKey>,
    newer: Option<StallKey>,
}

/// The stalled exchanges of a worker, in a list for each cluster.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    entries: Slab<Stall>,
    lists: Vec<List>,
}

/// An exchange that gives way to one that waits.
struct GivesWay {
    exchange: ExchangeKey,
    /// Its client, if that has more than its share.
    over_share: Option<ClientPlace>,
}

/// The ends of a cluster's list.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    oldest: Option<StallKey>,
    newest: Option<StallKey>,
}

impl Stalls {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn insert(&mut self, mut stall: Stall) -> StallKey {
        let slot = stall.cluster.0.slot as usize;
        if self.lists.len() <= slot {
            self.lists.resize(slot + 1, List::default());
        }
        let former = self.lists.get(slot).and_then(|list| list.newest);
        (stall.older, stall.newer) = (former, None);
        let key = self.entries.insert(stall);
        if let Some(former) = former.and_then(|former| self.entries.get_mut(former)) {
            former.newer = Some(key);
        }
        if let Some(list) = self.lists.get_mut(slot) {
            list.newest = Some(key);
            list.oldest = list.oldest.or(Some(key));
        }
        key
    }

    fn remove(&mut self, key: StallKey) -> Option<Stall> {
        let stall = self.entries.remove(key)?;
        let list = self.lists.get_mut(stall.cluster.0.slot as usize)?;
        if list.oldest == Some(key) {
            list.oldest = stall.newer;
        }
        if list.newest == Some(key) {
            list.newest = stall.older;
        }
        if let Some(older) = stall.older.and_then(|older| self.entries.get_mut(older)) {
            older.newer = stall.newer;
        }
        if let Some(newer) = stall.newer.and_then(|newer| self.entries.get_mut(newer)) {
            newer.older = stall.older;
        }
        Some(stall)
    }

    /// Those of a cluster, the longest stalled first.
    fn of(&self, cluster: ClusterId) -> impl Iterator<Item = &Stall> {
        let list = self.lists.get(cluster.0.slot as usize);
        let first = list.and_then(|list| self.entries.get(list.oldest?));
        std::iter::successors(first, |stall| self.entries.get(stall.newer?))
            .filter(move |stall| stall.cluster == cluster)
    }
}

/// Clusters in which exchanges wait, and when they are looked at again.
#[derive(Debug, Default)]
pub(crate) struct Crowds {
    /// Exchanges began to wait there.
    noted: Vec<ClusterId>,
    /// Exchanges still wait there.
    clusters: Vec<ClusterId>,
    due: Option<Time>,
}

impl Crowds {
    pub(crate) const fn due(&self) -> Option<Time> {
        self.due
    }
}

impl Exchange {
    /// Whether it can be stalled: where both sides speak as they like, silence means nothing.
    fn can_stall(&self) -> bool {
        self.kind == Kind::Http && !self.is_conversation() && !self.request.asks_upgrade
    }

    const fn is_responding(&self) -> bool {
        matches!(self.stage, Stage::Responding { .. })
    }

    /// Whether its client sends the body, and not below the least rate.
    pub(crate) fn moves_on(&self) -> bool {
        self.stall.is_some() && self.awaits_client() && !self.is_request_slow
    }

    /// Whether its client is the one waited for.
    pub(crate) fn awaits_client(&self) -> bool {
        matches!(self.stage, Stage::Attempting { .. }) && !self.request.is_complete
    }

    /// Its client is not the one waited for.
    #[inline]
    pub(crate) fn end_stall(&mut self, stalls: &mut Stalls) {
        if let Some(stall) = self.stall.take() {
            stalls.remove(stall);
        }
    }

    /// It has an upstream connection, or a stream on one.
    pub(crate) fn hold(&mut self, clients: &mut Clients) {
        if !std::mem::replace(&mut self.is_holding, true) {
            clients.add(self.client, Part::Held);
        }
    }

    /// It has no upstream connection any more.
    #[inline]
    pub(crate) fn let_go(&mut self, clients: &mut Clients, stalls: &mut Stalls) {
        if std::mem::take(&mut self.is_holding) {
            clients.remove(self.client, Part::Held);
        }
        self.end_stall(stalls);
    }
}

impl Upstreams {
    // Where others wait.

    /// An exchange began to wait for a connection of this cluster.
    pub(crate) fn note_crowd(&mut self, cluster: ClusterId) {
        if self.crowds.noted.last() != Some(&cluster) {
            self.crowds.noted.push(cluster);
        }
    }
}

impl Exchanges {
    /// An exchange's client is the one waited for from now on, if it was not already.
    pub(crate) fn on_stalled(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.table.get_mut(key) else { return };
        if exchange.stall.is_some() || !exchange.is_holding || !exchange.can_stall() {
            return;
        }
        let Some(cluster) = exchange.cluster().map(|cluster| cluster.id) else { return };
        let client = exchange.client;
        let stall = Stall { exchange: key, cluster, client, since: now, older: None, newer: None };
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
        if self.get(key).is_some_and(Exchange::is_responding) {
            self.on_stalled(key, now);
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

impl Proxy {
    /// Looks at the clusters where exchanges began to wait, once the event that made them wait is over.
    pub(crate) fn relieve_noted(&mut self, now: Time) {
        while let Some(cluster) = self.upstream.crowds.noted.pop() {
            if self.relieve(cluster, now) && self.upstream.pools.set_crowded(cluster, true) {
                self.upstream.crowds.clusters.push(cluster);
                self.upstream.crowds.due = self.upstream.crowds.due.or(Some(now + LOOK_INTERVAL));
            }
        }
    }

    /// Looks again at the clusters in which exchanges still wait.
    pub(crate) fn relieve_crowds(&mut self, now: Time) {
        if self.upstream.crowds.due.is_none_or(|due| due > now) {
            return;
        }
        let mut clusters = std::mem::take(&mut self.upstream.crowds.clusters);
        clusters.retain(|cluster| {
            let is_crowded = self.relieve(*cluster, now);
            if !is_crowded {
                self.upstream.pools.set_crowded(*cluster, false);
            }
            is_crowded
        });
        self.upstream.crowds.due = (!clusters.is_empty()).then(|| now + LOOK_INTERVAL);
        self.upstream.crowds.clusters = clusters;
    }

    /// Ends stalled exchanges of a cluster for others that wait. Says whether some still do.
    fn relieve(&mut self, id: ClusterId, now: Time) -> bool {
        let Some(cluster) = self.cx.snapshot.cluster(id).cloned() else { return false };
        if self.upstream.pools.end_reserve(&cluster, now) {
            self.serve_waiting(id, now);
        }
        for _ in 0..ENDED_TOGETHER_MAX {
            let waiting = self.upstream.pools.next_client(&cluster, &self.listen.clients);
            let Some(waiting) = waiting else { break };
            if self.upstream.pools.can_serve(&cluster) {
                // They wait for something else, such as to know what a connection allows.
                break;
            }
            let found = self.find_stalled(&cluster, waiting, now);
            let Some(GivesWay { exchange: key, over_share }) = found else { break };
            if let Some(client) = over_share {
                self.upstream.pools.on_gave_way(id, client, now);
            }
            let is_begun = self.exchanges.get(key).is_some_and(|it| it.progress.has_response);
            if is_begun {
                // What waits for a client that takes nothing would only hold memory.
                self.abort(key, Cause::Stalled, now);
            } else {
                self.fail(key, Cause::Stalled, now);
            }
            self.settle(now);
        }
        self.settle(now);
        self.upstream.pools.waiting_for(id) > 0
    }

    /// The exchange that gives way to one of the client that waits, if any does: the longest stalled
    /// of a client that has more than its share and more than twice as much, or one that is stalled
    /// for long, unless its client has less.
    fn find_stalled(&self, cluster: &Cluster, waiting: ClientPlace, now: Time) -> Option<GivesWay> {
        let patience = cluster.timeouts.stall?;
        let share = self.upstream.pools.share_max(cluster);
        let held_there = self.listen.clients.held_by(waiting);
        let mut stalls = self.exchanges.stalls.of(cluster.id).take(LOOKED_AT_MAX);
        stalls.find_map(|stall| {
            let stalled = now - stall.since;
            let held = self.listen.clients.held_by(stall.client);
            let is_over_share = held > share && held > held_there.saturating_mul(2);
            let is_long = stalled >= patience && held_there <= held;
            let gives_way = (is_over_share && stalled >= STALL_OVER_SHARE.min(patience)) || is_long;
            let over_share = is_over_share.then_some(stall.client);
            gives_way.then_some(GivesWay { exchange: stall.exchange, over_share })
        })
    }
}

#[cfg(test)]
mod tests {
    use config::snapshot::Id;

    use super::*;

    fn cluster(slot: u32) -> ClusterId {
        ClusterId(Id { slot, generation: 0 })
    }

    fn stall(slot: u32, exchange: u64) -> Stall {
        Stall {
            exchange: ExchangeKey::from_bits(exchange),
            cluster: cluster(slot),
            client: ClientPlace::UNKNOWN,
            since: Time::from_nanos(0),
            older: None,
            newer: None,
        }
    }

    fn order(stalls: &Stalls, slot: u32) -> Vec<u64> {
        stalls.of(cluster(slot)).map(|stall| stall.exchange.to_bits()).collect()
    }

    #[test]
    fn each_cluster_has_its_list_with_the_oldest_first() {
        let mut stalls = Stalls::default();
        let keys = [(0, 1), (2, 2), (0, 3), (0, 4), (2, 5)]
            .map(|(slot, exchange)| (exchange, stalls.insert(stall(slot, exchange))));
        assert_eq!((order(&stalls, 0), order(&stalls, 2)), (vec![1, 3, 4], vec![2, 5]));
        assert!(order(&stalls, 1).is_empty() && order(&stalls, 9).is_empty());
        for (gone, left) in [(3, vec![1, 4]), (1, vec![4]), (4, vec![])] {
            let (_, key) = *keys.iter().find(|(exchange, _)| *exchange == gone).unwrap();
            stalls.remove(key);
            assert_eq!(order(&stalls, 0), left, "{gone}");
        }
        assert_eq!(order(&stalls, 2), [2, 5]);
        assert_eq!(stalls.len(), 2);
    }
}
