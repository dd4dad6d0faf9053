//! Upstream connections: the choice of an endpoint, pools and the queues for them, original
//! destinations, and what becomes of a connection whose exchange is over.

pub(crate) mod age;
pub(crate) mod balance;
pub(crate) mod connecting;
pub(crate) mod original;
pub(crate) mod own;
pub(crate) mod pool;
pub(crate) mod release;
pub(crate) mod retry;
pub(crate) mod spare;
pub(crate) mod sparing;

use telemetry::events::ChoiceKind;

use crate::agenda::Note;
use crate::connection::check_target::CheckTarget;
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::exchange::stalls::Crowds;
use crate::keys::{ConnKey, PoolId};
use crate::listen::clients::Clients;
use crate::share::Share;
use crate::tools::random::Random;
use crate::tools::time::Time;
use crate::upstream::own::OwnConnections;
use crate::upstream::pool::{Acquired, Ask, Pools};
use crate::upstream::spare::{Spares, Unheard};

/// What a worker knows of its upstreams beside their connections.
#[derive(Debug)]
pub(crate) struct Upstreams {
    pub(crate) pools: Pools,
    pub(crate) spares: Spares,
    pub(crate) unheard: Unheard,
    pub(crate) crowds: Crowds,
    pub(crate) own: OwnConnections,
    /// Whether a cluster bounds the age of its connections, or did since the worker began.
    pub(crate) has_ages: bool,
}

impl Upstreams {
    pub(crate) fn new(share: Share) -> Self {
        Self {
            pools: Pools::new(share),
            spares: Spares::default(),
            unheard: Unheard::default(),
            crowds: Crowds::default(),
            own: OwnConnections::default(),
            has_ages: false,
        }
    }
}

impl Upstreams {
    /// Finds a connection for an attempt ([`Pools::acquire`]), or for the health check of a `target`. Says whether one that is to be
    /// opened is the own of this client, which may have some (`own`).
    #[inline]
    pub(crate) fn acquire(
        &mut self,
        ask: &Ask<'_>,
        (target, client): (Option<CheckTarget>, Option<ConnKey>),
        now: Time,
        clients: &Clients,
        connections: &mut Connections,
        random: &mut Random,
    ) -> (Acquired, Option<ChoiceKind>, bool) {
        if let Some(target) = target {
            return (self.pools.acquire_checked(ask, target, random, connections), None, false);
        }
        let own =
            client.and_then(|it| self.acquire_own(it, ask, now, clients, connections, random));
        own.unwrap_or_else(|| {
            let (acquired, kind) = self.pools.acquire(ask, clients, random, now, connections);
            (acquired, kind, false)
        })
    }

    /// Connections of a pool may be free, or may be opened, for exchanges that wait.
    pub(crate) fn note_room(&mut self, pool: PoolId, cx: &mut Cx) {
        if self.pools.is_wanted_by_others(pool) {
            // What of it is for exchanges of this worker follows from that.
            if self.pools.note_wanted(pool) {
                cx.agenda.push(Note::Yield(pool));
            }
        } else if self.pools.note_room(pool) {
            cx.agenda.push(Note::Serve(pool));
        }
    }

    /// A spare connection is there that an exchange of this pool may be waiting for.
    pub(crate) fn note_spare(&mut self, pool: PoolId, cx: &mut Cx) {
        if self.pools.note_spare(pool) {
            cx.agenda.push(Note::Serve(pool));
        }
    }

    /// An exchange began to wait for a connection of this pool.
    pub(crate) fn note_crowd(&mut self, pool: PoolId) {
        if self.crowds.noted.last() != Some(&pool) {
            self.crowds.noted.push(pool);
        }
    }
}
