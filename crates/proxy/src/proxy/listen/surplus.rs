//! What bounds allow no more once the connections of another process are here: while they were there, neither process knew of all.

use std::collections::BTreeMap;

use crate::keys::ConnKey;
use crate::listen::clients::{ClientPlace, Part};
use crate::proxy::Proxy;
use crate::tools::time::Time;
use crate::upstream::pool::Pool;

impl Proxy {
    /// Ends what is beyond bounds: of connections that were accepted from `since` on, those beyond the bound of their client or
    /// listener, which are asked to go as old ones are; and unused connections beyond the bound of their cluster. What another process
    /// handed over stays.
    pub fn end_surplus(&mut self, since: Time, now: Time) {
        for key in self.beyond_bounds(since) {
            self.connections.on_aged(key, now, &mut self.cx);
            self.listen.close_later(key, true, &self.connections, now);
            self.settle(now);
        }
        let pools: Vec<_> = self.upstream.pools.all().collect();
        for id in pools {
            let Some(cluster) = self.cx.snapshot.cluster(id.cluster).cloned() else { continue };
            let pool = Pool::new(&cluster, id.priority);
            // Other workers are at it, too: each looks again before it closes the next.
            while self.upstream.pools.surplus(pool) > 0 && self.close_unused(pool, (1, 0), now) > 0
            {
                self.settle(now);
            }
        }
    }

    /// The newest connections of those that were accepted from then on, as many as are too many.
    fn beyond_bounds(&self, since: Time) -> Vec<ConnKey> {
        let accepted = self.connections.table.iter().filter(|(_, it)| it.opened >= since);
        let mut accepted: Vec<_> = accepted
            .filter_map(|(key, connection)| {
                let downstream = connection.downstream()?;
                // The time for which one stood still on its way is not among that since it was opened.
                let stays = downstream.is_restored || downstream.is_aged;
                (!stays).then_some((connection.opened, key, downstream.listener, downstream.client))
            })
            .collect();
        accepted.sort_unstable_by_key(|(opened, ..)| std::cmp::Reverse(*opened));
        let mut of_listeners: BTreeMap<u64, u32> = BTreeMap::new();
        let mut of_clients: BTreeMap<ClientPlace, u32> = BTreeMap::new();
        let mut beyond = Vec::new();
        for (_, key, listener, client) in accepted {
            let state = self.listen.listeners.get(listener);
            let settings = state.listener();
            let open = of_listeners.entry(listener.to_bits()).or_insert(state.open);
            let count = self.listen.clients.count_of(client, Part::Connection);
            let of_client = of_clients.entry(client).or_insert(count);
            let is_beyond = *open > self.cx.share.of(settings.connections_max.get())
                || *of_client > self.cx.share.of(settings.connections_per_client_max.get());
            if is_beyond {
                *open -= 1;
                *of_client = of_client.saturating_sub(1);
                beyond.push(key);
            }
        }
        beyond
    }
}
