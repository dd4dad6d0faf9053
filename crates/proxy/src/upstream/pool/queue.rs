//! The queue of a cluster, as its exchanges and the agenda see it.

use config::snapshot::{Cluster, ClusterId};

use super::Pools;
use super::state::Noted;
use crate::keys::ExchangeKey;
use crate::listen::clients::{ClientPlace, Clients};

impl Pools {
    /// Puts an exchange of this client into the queue.
    pub(crate) fn wait(&mut self, cluster: ClusterId, client: ClientPlace, exchange: ExchangeKey) {
        if let Some(state) = self.cluster(cluster) {
            state.turns.push(client, exchange);
            self.on_wait(cluster);
        }
    }

    /// An exchange left the queue without having been taken from it. Its place there stays until it
    /// is passed; `is_waiting` tells the places that still count.
    pub(crate) fn give_up(
        &mut self,
        cluster: ClusterId,
        client: ClientPlace,
        is_waiting: impl Fn(ExchangeKey) -> bool,
    ) {
        if let Some(state) = self.cluster(cluster) {
            state.turns.give_up(client, is_waiting);
        }
        self.on_wait_over(cluster);
    }

    /// Takes the exchange whose turn it is out of the queue, if any may have a connection.
    pub(crate) fn next_waiting(
        &mut self,
        cluster: &Cluster,
        clients: &Clients,
        is_waiting: impl Fn(ExchangeKey) -> bool,
    ) -> Option<ExchangeKey> {
        let may_hold = self.may_hold(cluster, clients);
        let exchange = self.cluster(cluster.id)?.turns.pop(may_hold, is_waiting)?;
        self.on_wait_over(cluster.id);
        Some(exchange)
    }

    /// Takes an exchange out of the queue of a cluster that is gone.
    pub(crate) fn next_in_vain(
        &mut self,
        cluster: ClusterId,
        is_waiting: impl Fn(ExchangeKey) -> bool,
    ) -> Option<ExchangeKey> {
        let exchange = self.cluster(cluster)?.turns.pop(|_| Some(0), is_waiting)?;
        self.on_wait_over(cluster);
        Some(exchange)
    }

    /// The client whose turn it is, if any may have a connection.
    pub(crate) fn next_client(
        &mut self,
        cluster: &Cluster,
        clients: &Clients,
    ) -> Option<ClientPlace> {
        let may_hold = self.may_hold(cluster, clients);
        self.cluster(cluster.id)?.turns.next_client(may_hold)
    }

    /// How many connections a client holds, if it may have another of this cluster.
    pub(super) fn may_hold<'c>(
        &mut self,
        cluster: &Cluster,
        clients: &'c Clients,
    ) -> impl Fn(ClientPlace) -> Option<u32> + use<'c> {
        let (free, share) = (self.free(cluster), self.share_max(cluster));
        let reserve = self.cluster(cluster.id).map(|state| state.reserve).unwrap_or_default();
        move |client| {
            let held = clients.held_by(client);
            (held <= share || !reserve.keeps_from(client, free)).then_some(held)
        }
    }

    /// The exchange of a full queue that makes room for one of this client, if any does.
    pub(crate) fn newest_of_longest(
        &mut self,
        cluster: ClusterId,
        client: ClientPlace,
        is_waiting: impl Fn(ExchangeKey) -> bool,
    ) -> Option<ExchangeKey> {
        self.cluster(cluster)?.turns.newest_of_longest(client, is_waiting)
    }

    /// The exchanges that wait for the cluster, and maybe some that do not any more.
    pub(crate) fn queue(&self, cluster: ClusterId) -> impl Iterator<Item = &ExchangeKey> {
        let state = self.clusters.iter().flatten().find(|state| state.id == cluster);
        state.into_iter().flat_map(|state| state.turns.iter())
    }

    /// How many exchanges wait for a connection of this cluster.
    pub(crate) fn waiting_for(&mut self, cluster: ClusterId) -> u32 {
        self.cluster(cluster).map_or(0, |state| state.turns.waiting())
    }

    /// Whether the cluster is one that is looked at because exchanges wait. Says whether that is new.
    pub(crate) fn set_crowded(&mut self, cluster: ClusterId, is_crowded: bool) -> bool {
        let state = self.cluster(cluster);
        state
            .is_some_and(|state| std::mem::replace(&mut state.is_crowded, is_crowded) != is_crowded)
    }

    /// There may be a connection for the exchanges that wait for this cluster. Says whether there are
    /// any, and this is the first that is noted since they were served.
    pub(crate) fn note_room(&mut self, cluster: ClusterId) -> bool {
        self.note(cluster, |noted| noted.has_room = true)
    }

    /// Other workers want connections of this cluster. Says whether this is the first that is noted.
    pub(crate) fn note_wanted(&mut self, cluster: ClusterId) -> bool {
        let Some(state) = self.cluster(cluster) else { return false };
        !std::mem::replace(&mut state.noted.is_wanted, true)
    }

    /// What other workers want was looked at.
    pub(crate) fn forget_wanted(&mut self, cluster: ClusterId) {
        if let Some(state) = self.cluster(cluster) {
            state.noted.is_wanted = false;
        }
    }

    /// As [`Pools::note_room`], where it is a connection that is being established.
    pub(crate) fn note_spare(&mut self, cluster: ClusterId) -> bool {
        self.note(cluster, |noted| noted.spares += 1)
    }

    fn note(&mut self, cluster: ClusterId, change: impl FnOnce(&mut Noted)) -> bool {
        let Some(state) = self.cluster(cluster).filter(|state| state.turns.waiting() > 0) else {
            return false;
        };
        let is_first = !state.noted.has_room && state.noted.spares == 0;
        change(&mut state.noted);
        is_first
    }

    /// Takes what was noted of a cluster, if anything was.
    pub(crate) fn take_noted(&mut self, cluster: ClusterId) -> Option<Noted> {
        let noted = &mut self.cluster(cluster)?.noted;
        let left = Noted { is_wanted: noted.is_wanted, ..Noted::default() };
        let noted = std::mem::replace(noted, left);
        (noted.has_room || noted.spares > 0).then_some(noted)
    }
}
