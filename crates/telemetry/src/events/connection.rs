//! Downstream connections.

use super::LabelId;
use crate::cause::Cause;

/// A downstream connection was accepted.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOpened {
    /// The listener.
    pub listener: LabelId,
}

/// A downstream connection was closed at accept, because a bound was reached.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionRefused {
    /// The listener.
    pub listener: LabelId,
    /// Which bound.
    pub cause: Cause,
}

/// A downstream connection ended.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionClosed {
    /// The listener.
    pub listener: LabelId,
    /// Why, if not because either side was done with it.
    pub cause: Option<Cause>,
    /// From accept to close, ns.
    pub lifetime: u64,
    /// Requests it carried.
    pub requests: u32,
}
