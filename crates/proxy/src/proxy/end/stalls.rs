//! Exchanges that stand still give way to those that wait.

use std::time::Duration;

use telemetry::cause::Cause;

use crate::keys::{ExchangeKey, PoolId};
use crate::listen::clients::ClientPlace;
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::time::Time;
use crate::upstream::pool::Pool;

/// How long an exchange of a client that has more than its share has to be stalled: longer than what
/// a packet that was lost takes to come again on most paths.
const STALL_OVER_SHARE: Duration = Duration::from_millis(100);

/// Time between two looks at clusters in which exchanges wait.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Stalled exchanges that are looked at for one that gives way.
const LOOKED_AT_MAX: usize = 32;

/// Exchanges that give way before others have their turn.
const ENDED_TOGETHER_MAX: usize = 16;

/// An exchange that gives way to one that waits.
struct GivesWay {
    exchange: ExchangeKey,
    /// Its client, if that has more than its share.
    over_share: Option<ClientPlace>,
}

impl Proxy {
    /// Looks at the clusters where exchanges began to wait, once the event that made them wait is over.
    pub(in crate::proxy) fn relieve_noted(&mut self, now: Time) {
        // Those that would end may be about to leave.
        while !self.upstream.crowds.noted.is_empty()
            && self.leaving.is_none()
            && let Some(pool) = self.upstream.crowds.noted.pop()
        {
            if self.relieve(pool, now) && self.upstream.pools.set_crowded(pool, true) {
                self.upstream.crowds.pools.push(pool);
                self.upstream.crowds.due = self.upstream.crowds.due.or(Some(now + LOOK_INTERVAL));
            }
        }
    }

    /// Looks again at the clusters in which exchanges still wait.
    pub(in crate::proxy) fn relieve_crowds(&mut self, now: Time) {
        if self.upstream.crowds.due.is_none_or(|due| due > now) {
            return;
        }
        let mut pools = std::mem::take(&mut self.upstream.crowds.pools);
        pools.retain(|pool| {
            self.upstream.pools.forget_full(*pool);
            let is_crowded = self.relieve(*pool, now);
            if !is_crowded {
                self.upstream.pools.set_crowded(*pool, false);
            }
            is_crowded
        });
        self.upstream.crowds.due = (!pools.is_empty()).then(|| now + LOOK_INTERVAL);
        self.upstream.crowds.pools = pools;
    }

    /// Ends stalled exchanges of a pool for others that wait. Says whether some still do.
    fn relieve(&mut self, id: PoolId, now: Time) -> bool {
        let Some(cluster) = self.cx.snapshot.cluster(id.cluster).cloned() else { return false };
        let pool = Pool::new(&cluster, id.priority);
        if self.upstream.pools.end_reserve(pool, now) {
            self.serve_waiting(id, now);
        }
        self.want_again(id);
        for _ in 0..ENDED_TOGETHER_MAX {
            let waiting = self.upstream.pools.next_client(pool, &self.listen.clients);
            let Some(waiting) = waiting else { break };
            if self.upstream.pools.can_serve(pool) {
                // They wait for something else, such as to know what a connection allows.
                break;
            }
            let found = self.find_stalled(pool, waiting, now);
            let Some(GivesWay { exchange: key, over_share }) = found else { break };
            if let Some(client) = over_share {
                self.upstream.pools.on_gave_way(id, client, now);
                let max = cluster.bounds_of(id.priority).connections_max;
                let words = format_args!(
                    "its client has more than an eighth of connections_max of the cluster: {max}, and others wait"
                );
                self.exchanges.note_detail(key, || Detail::of(&words));
            } else if let Some(stall) = cluster.timeouts.stall {
                let words =
                    format_args!("timeouts.stall of the cluster: {stall:?}, and others wait");
                self.exchanges.note_detail(key, || Detail::of(&words));
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
    fn find_stalled(&self, pool: Pool<'_>, waiting: ClientPlace, now: Time) -> Option<GivesWay> {
        let patience = pool.cluster.timeouts.stall?;
        let share = self.upstream.pools.share_max(pool);
        let held_there = self.listen.clients.held_by(waiting);
        let mut stalls = self.exchanges.stalls.of(pool.id()).take(LOOKED_AT_MAX);
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
