//! Upstream connections: the choice of an endpoint, pools and the queues for them, original
//! destinations, and what becomes of a connection whose exchange is over.

pub(crate) mod attempts;
pub(crate) mod balance;
pub(crate) mod connecting;
pub(crate) mod original;
pub(crate) mod pool;
pub(crate) mod release;
pub(crate) mod retry;
pub(crate) mod spare;

use crate::exchange::stalls::Crowds;
use crate::share::Share;
use crate::upstream::pool::Pools;
use crate::upstream::spare::Spares;

/// What a worker knows of its upstreams beside their connections.
#[derive(Debug)]
pub(crate) struct Upstreams {
    pub(crate) pools: Pools,
    pub(crate) spares: Spares,
    pub(crate) crowds: Crowds,
}

impl Upstreams {
    pub(crate) fn new(share: Share) -> Self {
        Self { pools: Pools::new(share), spares: Spares::default(), crowds: Crowds::default() }
    }
}
