//! Which endpoint of a cluster is next: the one whose turn it is.
//!
//! The order is the cluster's [`Schedule`](config::schedule::Schedule), a function of one running
//! number, of which each worker has its own and begins elsewhere.

use config::snapshot::{Cluster, Endpoint, EndpointId};

/// Turns that are let pass for the sake of another endpoint. In a cluster of two of equal weights the
/// second is another one; where one endpoint has nearly all of the weight, its neighbour stands in.
const PASSES_MAX: u32 = 16;

/// The next endpoint in turn and its place in the cluster, or none if the cluster has none. It is
/// another one than `avoid`, if there is any other.
pub(crate) fn pick<'c>(
    cluster: &'c Cluster,
    avoid: Option<EndpointId>,
    cursor: &mut u64,
) -> Option<(usize, &'c Endpoint)> {
    let endpoint_at = |place: usize| cluster.endpoints.get(place).map(|found| (place, found));
    let mut avoided = 0;
    for _ in 0..PASSES_MAX {
        let turn = *cursor;
        *cursor = cursor.wrapping_add(1);
        let (place, endpoint) = endpoint_at(cluster.schedule.place(turn)?)?;
        if Some(endpoint.id) != avoid {
            return Some((place, endpoint));
        }
        avoided = place;
    }
    // The next one that has turns at all, which is the avoided one if there is no other.
    let count = cluster.endpoints.len();
    let next = (1..=count).map(|ahead| (avoided + ahead) % count);
    next.filter_map(endpoint_at).find(|(_, endpoint)| endpoint.weight > 0)
}
