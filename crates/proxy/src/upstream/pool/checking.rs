//! Connections for health checks: those of an endpoint, apart from those for requests.
//!
//! A check goes to its endpoint whatever is known of it, so no bound of the cluster counts its connection, no request
//! meets one, none makes room for another, and no check waits in the queue. An endpoint keeps one at most for each port
//! that is checked, from check to check.

use config::snapshot::{Address, EndpointId};
use telemetry::cause::Cause;

use super::{Acquired, Ask, Pools, Sharing};
use crate::connection::Connection;
use crate::connection::check_target::CheckTarget;
use crate::connection::codec::multiplex::Multiplex;
use crate::connection::connections::Connections;
use crate::keys::ConnKey;
use crate::tools::random::Random;

/// A connection that waits for the next check, or has room for one more.
#[derive(Debug)]
pub(super) struct KeptForChecks {
    connection: ConnKey,
    /// The address that its endpoint had: that of a name may be another by now.
    address: Address,
}

impl Pools {
    /// The connection that is kept for checks of an endpoint, else leave to open one.
    pub(crate) fn acquire_checked(
        &mut self,
        ask: &Ask<'_>,
        target: CheckTarget,
        random: &mut Random,
        connections: &Connections,
    ) -> Acquired {
        let Ask { cluster, sharing, .. } = *ask;
        self.has_checks = true;
        let found = cluster.place_of(target.endpoint);
        let found = found.and_then(|place| Some((place, cluster.endpoints.get(place)?)));
        let Some((place, endpoint)) = found else { return Acquired::Nothing(Cause::NoEndpoint) };
        if self.pool_or_new(ask.followed(), || random.next()).is_none() {
            return Acquired::Nothing(Cause::NoEndpoint);
        }
        let Some(kept) = self.checked.get(&target) else { return Acquired::Open(place) };
        let key = kept.connection;
        let upstream = connections.get(key).and_then(Connection::upstream);
        let is_alike = kept.address == endpoint.address
            && upstream
                .is_some_and(|upstream| upstream.transport == cluster.transports.of(endpoint).id);
        if !is_alike {
            self.checked.remove(&target);
            // One that carries another check ends with that.
            let is_busy = connections.get(key).is_none_or(Connection::is_busy);
            return if is_busy { Acquired::Open(place) } else { Acquired::Replace(key, place) };
        }
        match sharing {
            Sharing::Personal => Acquired::Open(place),
            Sharing::Together => {
                // One goes before anything is known of the peer. Another would have to wait in the queue for what that
                // says, behind requests that may wait for this check.
                let takes_more = |it: &Multiplex| it.has_peer_settings() || it.streams.is_empty();
                let multiplex = connections.get(key).and_then(Connection::multiplex);
                match multiplex.is_some_and(takes_more) {
                    true => Acquired::Shared(key, place),
                    false => Acquired::Open(place),
                }
            }
            Sharing::InTurn => {
                self.checked.remove(&target);
                Acquired::Idle(key, place)
            }
        }
    }

    /// Keeps a connection for the next check. Returns false if another is kept already.
    pub(crate) fn keep_for_checks(
        &mut self,
        connection: ConnKey,
        target: CheckTarget,
        address: Address,
    ) -> bool {
        let kept = self.checked.entry(target).or_insert(KeptForChecks { connection, address });
        kept.connection == connection
    }

    /// A connection is not kept any more, if it was.
    pub(crate) fn forget_kept(&mut self, connection: ConnKey, target: CheckTarget) {
        if self.checked.get(&target).is_some_and(|kept| kept.connection == connection) {
            self.checked.remove(&target);
        }
    }

    /// Some connection that is kept for checks of an endpoint.
    pub(super) fn first_kept(&self, endpoint: EndpointId) -> Option<ConnKey> {
        let from = CheckTarget { endpoint, port: None };
        let (target, kept) = self.checked.range(from..).next()?;
        (target.endpoint == endpoint).then_some(kept.connection)
    }
}
