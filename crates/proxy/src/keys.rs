//! What connections, exchanges and streams are named by, wherever a name is all that is needed.

use config::priority::Priority;
use config::snapshot::{ClusterId, EndpointId, Id};
use serde::{Deserialize, Serialize};
use telemetry::events::LabelId;

use crate::tools::slab::Key;

/// Stands for a connection in [`ConnKey`].
#[derive(Debug)]
pub enum OfConnection {}

/// Stands for an exchange in [`ExchangeKey`].
#[derive(Debug)]
pub enum OfExchange {}

/// Names one connection of a worker.
pub type ConnKey = Key<OfConnection>;
/// Names one exchange of a worker.
pub type ExchangeKey = Key<OfExchange>;

/// Upstream connections of a cluster, for requests of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolId {
    pub(crate) cluster: ClusterId,
    pub(crate) priority: Priority,
}

impl PoolId {
    /// Whether its connections count in the bound of each endpoint, where its cluster has that.
    pub(crate) const fn is_counted_by_endpoint(self) -> bool {
        matches!(self.priority, Priority::Default)
    }

    /// Where it stands among all pools.
    pub(crate) const fn place(self) -> usize {
        2 * self.cluster.0.slot as usize + self.priority as usize
    }
}

/// An endpoint, and the pool that a connection to it is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndpointKey {
    pub(crate) pool: PoolId,
    pub(crate) endpoint: EndpointId,
}

/// Names an exchange on a connection. The codec of that connection chooses it, and nothing else reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slot(u32);

impl Slot {
    /// The one exchange of a connection that carries one at a time.
    pub(crate) const ONLY: Self = Self(0);

    /// Of a stream of HTTP/2: its number, which is never 0 and never used again.
    pub(crate) const fn of_stream(id: u32) -> Self {
        Self(id)
    }

    /// The number of the stream.
    pub(crate) const fn stream(self) -> u32 {
        self.0
    }
}

/// One side of an exchange: a connection, and what its codec knows the exchange by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    pub(crate) connection: ConnKey,
    pub(crate) slot: Slot,
}

impl StreamKey {
    /// The downstream of an exchange that has none. It is that of no connection, and not alone on it.
    pub(crate) const NONE: Self =
        Self { connection: ConnKey::from_bits(u64::MAX), slot: Slot(u32::MAX) };

    /// A connection that carries one exchange at a time.
    pub(crate) const fn alone(connection: ConnKey) -> Self {
        Self { connection, slot: Slot::ONLY }
    }

    /// Whether the connection carries no other exchange meanwhile.
    pub(crate) const fn is_alone(self) -> bool {
        matches!(self.slot, Slot::ONLY)
    }
}

/// A stable id as the label of what happens to the thing that it names.
pub(crate) const fn label(id: Id) -> LabelId {
    LabelId { slot: id.slot, generation: id.generation }
}
