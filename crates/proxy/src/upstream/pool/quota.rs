//! The quota of an endpoint in its cluster's connections, where no more of them may be opened.
//!
//! An endpoint that was chosen and has fewer connections than its weight is worth gets one in place of an idle one to an
//! endpoint that has more. So endpoints which come late, and those that happened to be chosen when all connections were
//! open, have theirs after a few requests; from then on none is closed for another any more, and an exchange whose endpoint
//! has no idle one takes one of another. Where there are fewer connections than endpoints, a part is less than one
//! connection: each choice then closes a connection and opens one, as far as its endpoint has none.

use config::snapshot::Endpoint;
use config::view::Group;

/// The connections of a cluster, by the weights of a group of its endpoints.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quota {
    connections_max: u64,
    weight_sum: u64,
}

impl Quota {
    pub(super) fn new(connections_max: u32, group: &Group) -> Self {
        Self { connections_max: connections_max.into(), weight_sum: group.weight_sum().max(1) }
    }

    /// Whether an endpoint with so many connections has fewer than its part, rounded up.
    pub(super) fn has_less(self, open: u32, endpoint: &Endpoint) -> bool {
        u64::from(open) < self.part_of(endpoint).div_ceil(self.weight_sum)
    }

    /// Whether an endpoint with so many connections has more than its part, rounded down.
    pub(super) fn has_more(self, open: u32, endpoint: &Endpoint) -> bool {
        u64::from(open) > self.part_of(endpoint) / self.weight_sum
    }

    /// Its quota, times all weights.
    fn part_of(self, endpoint: &Endpoint) -> u64 {
        self.connections_max * u64::from(endpoint.weight)
    }
}
