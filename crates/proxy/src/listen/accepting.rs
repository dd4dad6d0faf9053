//! Bounds that a new connection meets before anything is read from it.

use std::num::NonZeroU32;

use crate::connection::connections::Connections;
use crate::keys::ConnKey;
use crate::listen::Listen;
use crate::tools::detail::Detail;

impl Listen {
    /// How many connections a client of this one's listener may have.
    pub(crate) fn per_client_max(
        &self,
        key: ConnKey,
        connections: &Connections,
    ) -> Option<NonZeroU32> {
        let downstream = connections.get(key)?.downstream()?;
        let listener = self.listeners.get(downstream.listener).listener();
        Some(listener.connections_per_client_max)
    }
}

/// The bound on the connections of one client.
pub(crate) fn of_client_bound(max: NonZeroU32) -> Detail {
    Detail::of(&format_args!("connections_per_client_max of the listener: {max}"))
}
