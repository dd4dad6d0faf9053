//! Which endpoint of a cluster is next: weighted round robin.
//!
//! Static stride scheduling: the schedule is a function of one running number, so that a worker
//! keeps eight bytes for a cluster of any size and a changed endpoint costs it nothing. In each
//! pass over the endpoints, one with weight *w* of the largest weight *m* is taken in *w* of *m*
//! passes, at evenly spread ones; the largest is taken in every pass, so a pick always ends.

use config::snapshot::{Cluster, Endpoint};

/// The largest stride; the heaviest endpoint of a cluster has it.
const STRIDE_MAX: u64 = u16::MAX as u64;

/// The next endpoint in turn and its place in the cluster, or none if the cluster has none.
pub(crate) fn pick<'c>(cluster: &'c Cluster, cursor: &mut u64) -> Option<(usize, &'c Endpoint)> {
    let count = cluster.endpoints.len() as u64;
    if count == 0 {
        return None;
    }
    loop {
        let turn = *cursor;
        *cursor = cursor.wrapping_add(1);
        let place = usize::try_from(turn % count).ok()?;
        let endpoint = cluster.endpoints.get(place)?;
        if cluster.is_uniform || is_taken(turn % count, turn / count, endpoint) {
            return Some((place, endpoint));
        }
    }
}

/// Whether the endpoint at `place` is taken in this pass. Neighbours start half a stride apart,
/// so that equal small weights do not all fall into the same pass.
fn is_taken(place: u64, pass: u64, endpoint: &Endpoint) -> bool {
    let stride = u64::from(endpoint.stride.get());
    let phase = stride.wrapping_mul(pass).wrapping_add(place * (STRIDE_MAX / 2)) % STRIDE_MAX;
    phase >= STRIDE_MAX - stride
}
