//! Where a health check goes, by which its connections are known.

use config::snapshot::EndpointId;

/// An endpoint, and the port of it that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CheckTarget {
    pub(crate) endpoint: EndpointId,
    /// The port that is asked in place of the endpoint's.
    pub(crate) port: Option<u16>,
}
