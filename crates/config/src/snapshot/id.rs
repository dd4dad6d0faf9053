//! Names of resources across snapshots.

/// A stable name for one resource: a slot in a table and the use of that slot.
///
/// A slot is used again after its resource went, with the next generation; a stale id therefore
/// finds nothing instead of the wrong thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Place in the table.
    pub slot: u32,
    /// How often the place was given away before.
    pub generation: u32,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub Id);
    )*};
}

ids! {
    /// Names a listener across snapshots: same name and address, same id.
    ListenerId
    /// Names one chain of a listener.
    ChainId
    /// Names a route table (one entry of `routes`) across snapshots.
    RouteTableId
    /// Names a cluster across snapshots.
    ClusterId
    /// Names an endpoint of one cluster (same cluster, same address) across snapshots. Unique
    /// in the process, not only in its cluster.
    EndpointId
    /// Names how the endpoints of a cluster are spoken to: protocol, TLS and PROXY header. A connection
    /// carries requests of its own transport only.
    TransportId
}
