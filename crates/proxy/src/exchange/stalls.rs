//! Exchanges that hold an upstream connection while their client stands still, and what becomes of
//! them when others wait for one.
//!
//! An exchange is *stalled* from the moment on that its client is the one waited for: its request's
//! body is to come, or so much of its response waits that no more is read. It stands in a list of
//! its pool then, the longest stalled first, and leaves it, or goes to its end, when the client
//! goes on. Nothing else is done about it, unless an exchange of that pool waits for a connection:
//!
//! ```text
//! no connection free ─► queue ─► noted ──► the longest stalled of a client that has more than its
//!                                  ▲       share, or that is stalled for `timeouts.stall`, ends
//!                                  └── every 100 ms, as long as some wait
//! ```
//!
//! A client that had more than its share does not get the connection back at once: see
//! `pool::reserve`.

use crate::keys::{ExchangeKey, PoolId};
use crate::listen::clients::ClientPlace;
use crate::tools::slab::{Key, Slab};
use crate::tools::time::Time;

/// Names a stalled exchange's place in its list.
pub(crate) type StallKey = Key<Stall>;

/// An exchange that is stalled.
#[derive(Debug)]
pub(crate) struct Stall {
    pub(crate) exchange: ExchangeKey,
    pool: PoolId,
    pub(crate) client: ClientPlace,
    /// Since when.
    pub(crate) since: Time,
    older: Option<StallKey>,
    newer: Option<StallKey>,
}

impl Stall {
    /// Of an exchange that has stalled at this moment.
    pub(crate) const fn new(
        exchange: ExchangeKey,
        pool: PoolId,
        client: ClientPlace,
        since: Time,
    ) -> Self {
        Self { exchange, pool, client, since, older: None, newer: None }
    }
}

/// The stalled exchanges of a worker, in a list for each pool.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    pub(crate) entries: Slab<Stall>,
    lists: Vec<List>,
}

/// The ends of a pool's list.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    oldest: Option<StallKey>,
    newest: Option<StallKey>,
}

impl Stalls {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn insert(&mut self, mut stall: Stall) -> StallKey {
        let slot = stall.pool.place();
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

    pub(crate) fn remove(&mut self, key: StallKey) -> Option<Stall> {
        let stall = self.entries.remove(key)?;
        let list = self.lists.get_mut(stall.pool.place())?;
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

    /// Those of a pool, the longest stalled first.
    pub(crate) fn of(&self, pool: PoolId) -> impl Iterator<Item = &Stall> {
        let list = self.lists.get(pool.place());
        let first = list.and_then(|list| self.entries.get(list.oldest?));
        std::iter::successors(first, |stall| self.entries.get(stall.newer?))
            .filter(move |stall| stall.pool == pool)
    }
}

/// Pools for whose connections exchanges wait, and when they are looked at again.
#[derive(Debug, Default)]
pub(crate) struct Crowds {
    /// Exchanges began to wait there.
    pub(crate) noted: Vec<PoolId>,
    /// Exchanges still wait there.
    pub(crate) pools: Vec<PoolId>,
    pub(crate) due: Option<Time>,
}

impl Crowds {
    pub(crate) const fn due(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use config::priority::Priority;
    use config::snapshot::{ClusterId, Id};

    use super::*;

    fn pool(slot: u32, priority: Priority) -> PoolId {
        PoolId { cluster: ClusterId(Id { slot, generation: 0 }), priority }
    }

    fn stall(slot: u32, exchange: u64) -> Stall {
        Stall {
            exchange: ExchangeKey::from_bits(exchange),
            pool: pool(slot, Priority::Default),
            client: ClientPlace::UNKNOWN,
            since: Time::from_nanos(0),
            older: None,
            newer: None,
        }
    }

    fn order(stalls: &Stalls, slot: u32) -> Vec<u64> {
        stalls.of(pool(slot, Priority::Default)).map(|stall| stall.exchange.to_bits()).collect()
    }

    #[test]
    fn each_pool_has_its_list_with_the_oldest_first() {
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
        assert_eq!(stalls.of(pool(2, Priority::High)).count(), 0);
        assert_eq!(stalls.len(), 2);
    }
}
