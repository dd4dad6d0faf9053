//! Connections that go from one worker to another, where the bound of a cluster is reached: see `upstream::pool::bounds`.

use std::time::Duration;

use crate::keys::PoolId;
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::tools::time::Time;
use crate::upstream::pool::{Pool, Want, Yield};

/// Connections that a worker closes for others at a time.
const YIELDED_MAX: u32 = 16;

/// How long exchanges share a connection at least before it takes no more of them, for a worker that has less than its
/// part: to open one costs more than a request.
const SHARED_MIN: Duration = Duration::from_millis(100);

impl Proxy {
    /// Exchanges wait for a connection of a cluster whose bound is reached: other workers have to know.
    pub(super) fn want(&mut self, id: PoolId) {
        let Some(cluster) = self.cx.snapshot.cluster(id.cluster) else { return };
        let want = self.upstream.pools.want(Pool::new(cluster, id.priority));
        self.follow_want(id, want);
    }

    /// Exchanges have been waiting for a while.
    pub(in crate::proxy) fn want_again(&mut self, id: PoolId) {
        let Some(cluster) = self.cx.snapshot.cluster(id.cluster) else { return };
        let want = self.upstream.pools.want_again(Pool::new(cluster, id.priority));
        self.follow_want(id, want);
    }

    fn follow_want(&mut self, id: PoolId, want: Want) {
        match want {
            Want::Nothing => {}
            Want::Room => self.upstream.note_room(id, &mut self.cx),
            Want::Look(workers) => self.ring(id, workers),
        }
    }

    fn ring(&mut self, id: PoolId, workers: u64) {
        self.cx.bells.ring(workers, id.cluster);
        self.cx.ops.push_back(Op::Wake(workers));
    }

    /// This worker was woken: another may have left something for it.
    pub fn on_woken(&mut self, now: Time) {
        let bells = self.cx.bells.take(self.cx.share.worker);
        if bells == 0 {
            return;
        }
        let pools: Vec<_> = self.upstream.pools.rung(bells).collect();
        for pool in pools {
            self.upstream.note_room(pool, &mut self.cx);
        }
        self.settle(now);
    }

    /// Other workers want connections of a cluster: closes what is not used here, and has the next of them look.
    pub(in crate::proxy) fn yield_connections(&mut self, id: PoolId, now: Time) {
        let Some(cluster) = self.cx.snapshot.cluster(id.cluster).cloned() else {
            return self.upstream.pools.forget_wanted(id);
        };
        let pool = Pool::new(&cluster, id.priority);
        let yielded = match self.upstream.pools.yielding(pool) {
            Yield::Nothing => 0,
            Yield::One => self.close_unused(pool, (1, 1), now),
            Yield::Unused(count) => self.close_unused(pool, (count.min(YIELDED_MAX), 0), now),
        };
        if yielded == 0 && self.upstream.pools.yielding(pool) != Yield::Nothing {
            self.retire_shared(pool, now);
        }
        self.serve_waiting(id, now);
        // What was closed here noted the same once more.
        self.upstream.pools.forget_wanted(id);
        self.ring_next(id);
    }

    /// Has the next worker look whose exchanges wait, if there is a connection for them.
    pub(super) fn ring_next(&mut self, id: PoolId) {
        let cluster = self.cx.snapshot.cluster(id.cluster);
        let pool = cluster.map(|cluster| Pool::new(cluster, id.priority));
        let next = pool.and_then(|pool| self.upstream.pools.next_to_ring(pool));
        if let Some(workers) = next {
            self.ring(id, workers);
        }
    }

    /// Closes connections that no exchange uses, up to so many; returns how many. Each has carried so many requests: where
    /// exchanges wait here too, one that was opened for them is theirs first. Otherwise workers would close each other's
    /// connections without end.
    pub(in crate::proxy) fn close_unused(
        &mut self,
        pool: Pool<'_>,
        (count, requests): (u32, u32),
        now: Time,
    ) -> u32 {
        for closed in 0..count {
            let unused = self.upstream.pools.any_unused(pool, &self.connections);
            let carried = unused.and_then(|key| self.connections.get(key)).map(|it| it.requests);
            let unused = unused.filter(|_| carried.is_some_and(|carried| carried >= requests));
            let Some(unused) = unused else { return closed };
            self.close_upstream(unused, None, now);
        }
        count
    }

    /// Has a connection that is shared take no more exchanges, if workers have less than their part.
    fn retire_shared(&mut self, pool: Pool<'_>, now: Time) {
        if !self.upstream.pools.owes(pool) {
            return;
        }
        let is_old = |opened: Time| now - opened >= SHARED_MIN;
        let shared = self.upstream.pools.next_shared(pool, is_old, &self.connections);
        if let Some(shared) = shared {
            self.upstream.retire(shared, &mut self.connections, &mut self.cx);
        }
    }
}
