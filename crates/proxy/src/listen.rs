//! Listeners: what comes in, which chain of its listener it meets, which clients it is from, and how a
//! listener ends.

pub(crate) mod accepting;
pub(crate) mod age;
pub(crate) mod buffered;
pub(crate) mod clients;
pub(crate) mod drain;
pub(crate) mod listeners;
pub mod misdirected;
pub(crate) mod ping;
pub(crate) mod refusals;
pub(crate) mod relay;

use std::num::NonZeroU32;

use crate::cx::Cx;
use crate::listen::age::AskedToGo;
use crate::listen::clients::{ClientPlace, Clients};
use crate::listen::listeners::{ListenerKey, Listeners};
use crate::tools::time::Time;

/// What a worker knows of its listeners and of the clients that come by them.
#[derive(Debug)]
pub(crate) struct Listen {
    pub(crate) listeners: Listeners,
    pub(crate) clients: Clients,
    /// Listeners that are gone, and when their last connections end.
    pub(crate) draining_listeners: Vec<(ListenerKey, Time)>,
    /// Exchanges that the end of a drain cut off.
    pub(crate) cut_off: u32,
    /// Downstream connections that the process has descriptors for.
    pub(crate) descriptors_max: u32,
    /// Where [`Proxy::end_aged`](crate::proxy::Proxy::end_aged) goes on.
    pub(crate) age_next: u32,
    /// Connections beyond a bound, or over their age. Those that have ended since are among them for a second.
    pub(crate) asked_to_go: Vec<AskedToGo>,
    /// Not before this time, [`Proxy::bound_buffered`](crate::proxy::Proxy::bound_buffered) looks again.
    pub(crate) buffered_look: Time,
}

impl Listen {
    /// For a worker before its first connection.
    pub(crate) fn new(listeners: Listeners, now: Time) -> Self {
        Self {
            listeners,
            clients: Clients::default(),
            draining_listeners: Vec::new(),
            cut_off: 0,
            descriptors_max: u32::MAX,
            age_next: 0,
            asked_to_go: Vec::new(),
            buffered_look: now + buffered::LOOK_INTERVAL,
        }
    }

    /// Downstream connections open at a time, in the process.
    pub(crate) fn connections_max(&self, cx: &Cx) -> u32 {
        cx.snapshot.limits.connections_max.get().min(self.descriptors_max)
    }

    /// Whether more exchanges of a client are under way than its listener allows.
    #[inline]
    pub(crate) fn has_too_many(
        &self,
        client: ClientPlace,
        max: Option<NonZeroU32>,
        cx: &Cx,
    ) -> bool {
        max.is_some_and(|max| self.clients.exchanges_of(client) > cx.share.of(max.get()))
    }
}
