//! The queue of a pool, as its exchanges and the agenda see it.

use super::state::Noted;
use super::{Pool, Pools};
use crate::keys::{ExchangeKey, PoolId};
use crate::listen::clients::{ClientPlace, Clients};

impl Pools {
    /// Puts an exchange of this client into the queue.
    pub(crate) fn wait(&mut self, pool: PoolId, client: ClientPlace, exchange: ExchangeKey) {
        if let Some(state) = self.pool(pool) {
            state.turns.push(client, exchange);
            self.on_wait(pool);
        }
    }

    /// An exchange left the queue without having been taken from it. Its place there stays until it
    /// is passed; `is_waiting` tells the places that still count.
    pub(crate) fn give_up(
        &mut self,
        pool: PoolId,
        client: ClientPlace,
        is_waiting: impl Fn(ExchangeKey) -> bool,
    ) {
        if let Some(state) = self.pool(pool) {
            state.turns.give_up(client, is_waiting);
        }
        self.on_wait_over(pool);
    }

    /// Takes the exchange whose turn it is out of the queue, if any may have a connection.
    pub(crate) fn next_waiting(
        &mut self,
        pool: Pool<'_>,
        clients: &Clients,
        is_waiting: impl Fn(ExchangeKey) -> bool,
    ) -> Option<ExchangeKey> {
        let may_hold = self.may_hold(pool, clients);
        let exchange = self.pool(pool.id())?.turns.pop(may_hold, is_waiting)?;
        self.on_wait_over(pool.id());
        Some(exchange)
    }

    /// Takes an exchange out of the queue of a cluster that is gone.
    pub(crate) fn next_in_vain(
        &mut self,
        pool: PoolId,
        is_waiting: impl Fn(ExchangeKey) -> bool,
    ) -> Option<ExchangeKey> {
        let exchange = self.pool(pool)?.turns.pop(|_| Some(0), is_waiting)?;
        self.on_wait_over(pool);
        Some(exchange)
    }

    /// The client whose turn it is, if any may have a connection.
    pub(crate) fn next_client(&mut self, pool: Pool<'_>, clients: &Clients) -> Option<ClientPlace> {
        let may_hold = self.may_hold(pool, clients);
        self.pool(pool.id())?.turns.next_client(may_hold)
    }

    /// How many connections a client holds, if it may have another of this pool.
    pub(super) fn may_hold<'c>(
        &mut self,
        pool: Pool<'_>,
        clients: &'c Clients,
    ) -> impl Fn(ClientPlace) -> Option<u32> + use<'c> {
        let (free, share) = (self.free(pool), self.share_max(pool));
        let reserve = self.pool(pool.id()).map(|state| state.reserve).unwrap_or_default();
        move |client| {
            let held = clients.held_by(client);
            (held <= share || !reserve.keeps_from(client, free)).then_some(held)
        }
    }

    /// The exchange of a full queue that makes room for one of this client, if any does.
    pub(crate) fn newest_of_longest(
        &mut self,
        pool: PoolId,
        client: ClientPlace,
        is_waiting: impl Fn(ExchangeKey) -> bool,
    ) -> Option<ExchangeKey> {
        self.pool(pool)?.turns.newest_of_longest(client, is_waiting)
    }

    /// The exchanges that wait for the pool, and maybe some that do not any more.
    pub(crate) fn queue(&self, pool: PoolId) -> impl Iterator<Item = &ExchangeKey> {
        let state = self.states().find(|state| state.id == pool);
        state.into_iter().flat_map(|state| state.turns.iter())
    }

    /// How many exchanges wait for a connection of this pool.
    pub(crate) fn waiting_for(&mut self, pool: PoolId) -> u32 {
        self.pool(pool).map_or(0, |state| state.turns.waiting())
    }

    /// Whether the pool is one that is looked at because exchanges wait. Says whether that is new.
    pub(crate) fn set_crowded(&mut self, pool: PoolId, is_crowded: bool) -> bool {
        let state = self.pool(pool);
        state
            .is_some_and(|state| std::mem::replace(&mut state.is_crowded, is_crowded) != is_crowded)
    }

    /// There may be a connection for the exchanges that wait for this pool. Says whether there are
    /// any, and this is the first that is noted since they were served.
    pub(crate) fn note_room(&mut self, pool: PoolId) -> bool {
        self.note(pool, |noted| noted.has_room = true)
    }

    /// Other workers want connections of this pool. Says whether this is the first that is noted.
    pub(crate) fn note_wanted(&mut self, pool: PoolId) -> bool {
        let Some(state) = self.pool(pool) else { return false };
        !std::mem::replace(&mut state.noted.is_wanted, true)
    }

    /// What other workers want was looked at.
    pub(crate) fn forget_wanted(&mut self, pool: PoolId) {
        if let Some(state) = self.pool(pool) {
            state.noted.is_wanted = false;
        }
    }

    /// As [`Pools::note_room`], where it is a connection that is being established.
    pub(crate) fn note_spare(&mut self, pool: PoolId) -> bool {
        self.note(pool, |noted| noted.spares += 1)
    }

    fn note(&mut self, pool: PoolId, change: impl FnOnce(&mut Noted)) -> bool {
        let Some(state) = self.pool(pool).filter(|state| state.turns.waiting() > 0) else {
            return false;
        };
        let is_first = !state.noted.has_room && state.noted.spares == 0;
        change(&mut state.noted);
        is_first
    }

    /// Takes what was noted of a pool, if anything was.
    pub(crate) fn take_noted(&mut self, pool: PoolId) -> Option<Noted> {
        let noted = &mut self.pool(pool)?.noted;
        let left = Noted { is_wanted: noted.is_wanted, ..Noted::default() };
        let noted = std::mem::replace(noted, left);
        (noted.has_room || noted.spares > 0).then_some(noted)
    }
}
