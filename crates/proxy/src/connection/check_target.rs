//! Where a health check goes, by which its connections are known.

use std::num::NonZeroU16;

use config::snapshot::EndpointId;

/// An endpoint, and the port of it that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CheckTarget {
    pub(crate) endpoint: EndpointId,
    /// The port that is asked in place of the endpoint's.
    pub(crate) port: Option<NonZeroU16>,
}

/// The port of a connection that is for checks: its endpoint's, or another. Every connection has room for one, so it is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckedPort(pub(crate) Option<NonZeroU16>);
