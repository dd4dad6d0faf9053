//! Connections for health checks, which go to one endpoint whatever is known of it.

use std::net::SocketAddr;

use config::snapshot::{Address, EndpointId};
use telemetry::cause::Cause;

use super::{Acquired, Ask, Pools, Sharing};
use crate::connection::Connection;
use crate::connection::connections::Connections;
use crate::tools::random::Random;

/// Where a health check goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckTarget {
    pub(crate) endpoint: EndpointId,
    /// The port that is asked in place of the endpoint's.
    pub(crate) port: Option<u16>,
}

impl Pools {
    /// An idle connection to the endpoint, else leave to open one: no bound of the cluster keeps a check from its endpoint,
    /// which would else look as if it had failed.
    pub(crate) fn acquire_checked(
        &mut self,
        ask: &Ask<'_>,
        CheckTarget { endpoint, port }: CheckTarget,
        random: &mut Random,
        connections: &mut Connections,
    ) -> Acquired {
        let Ask { cluster, sharing, .. } = *ask;
        self.has_checks = true;
        let found = cluster.place_of(endpoint);
        let found = found.and_then(|place| Some((place, cluster.endpoints.get(place)?)));
        let Some((place, found)) = found else { return Acquired::Nothing(Cause::NoEndpoint) };
        if self.cluster_or_new(cluster.id, || random.next()).is_none() {
            return Acquired::Nothing(Cause::NoEndpoint);
        }
        let idle = match (port, &found.address) {
            (Some(port), Address::Tcp(address)) => {
                let address = SocketAddr::new(address.ip(), port);
                self.idle_to((endpoint, address), ask, place, connections)
            }
            _ => self.acquire_idle((endpoint, cluster.transport), place, sharing, connections),
        };
        idle.unwrap_or(Acquired::Open(place))
    }

    /// The newest idle connection to an address that `endpoint` stands for, or to another port of it.
    pub(super) fn idle_to(
        &mut self,
        to: (EndpointId, SocketAddr),
        ask: &Ask<'_>,
        place: usize,
        connections: &mut Connections,
    ) -> Option<Acquired> {
        let newest = self.originals.get(&to).copied()?;
        let upstream = connections.get(newest).and_then(Connection::upstream)?;
        if upstream.transport != ask.cluster.transport {
            return None;
        }
        match ask.sharing {
            Sharing::InTurn => {
                self.remove_idle(newest, connections);
                Some(Acquired::Idle(newest, place))
            }
            Sharing::Together => Some(Acquired::Shared(newest, place)),
            Sharing::Personal => None,
        }
    }
}
