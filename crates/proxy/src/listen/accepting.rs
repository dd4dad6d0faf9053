//! Bounds that a new connection meets before anything is read from it.

use std::num::NonZeroU32;

use config::memory::MemoryPressure;

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

/// The bound on the memory of the process, and how much of it is in use.
pub(crate) fn of_memory(memory: MemoryPressure) -> Detail {
    let mib = |bytes: u64| bytes >> 20;
    Detail::of(&format_args!(
        "limits.memory_max: {} MiB, of which {} are resident",
        mib(memory.max_bytes),
        mib(memory.resident_bytes)
    ))
}

/// The bound on the connections of one client.
pub(crate) fn of_client_bound(max: NonZeroU32) -> Detail {
    Detail::of(&format_args!("connections_per_client_max of the listener: {max}"))
}
