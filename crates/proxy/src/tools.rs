//! Plain containers and values that know nothing of connections: tables, timers, buffers, time.

pub(crate) mod buffers;
pub(crate) mod detail;
pub(crate) mod differing;
pub(crate) mod names;
pub(crate) mod outbox;
pub(crate) mod peer_address;
pub(crate) mod pinned;
pub(crate) mod places;
pub(crate) mod random;
pub(crate) mod rate;
pub(crate) mod sent;
pub mod slab;
pub(crate) mod spread;
pub(crate) mod text;
pub mod time;
pub(crate) mod wheel;
