//! Upstream connections that have served for long enough: so many requests, or for so long. They take no further request, and
//! close once they carry none.
//!
//! Those of HTTP/1 are looked at after each request; those that exchanges share, and idle ones, once a second as well, with the
//! downstream connections that are over their age.

use std::time::Duration;

use config::snapshot::{Cluster, ClusterId};

use crate::Snapshot;
use crate::connection::connections::Connections;
use crate::connection::{Connection, UpstreamState};
use crate::cx::Cx;
use crate::keys::ConnKey;
use crate::tools::spread::spread;
use crate::tools::time::Time;
use crate::upstream::Upstreams;

impl Upstreams {
    /// Notes whether any of these clusters bounds the age of its connections.
    pub(crate) fn note_ages(&mut self, snapshot: &Snapshot, clusters: &[ClusterId]) {
        let clusters = clusters.iter().filter_map(|id| snapshot.cluster(*id));
        self.has_ages |= clusters.into_iter().any(|it| it.timeouts.connection_age.is_some());
    }

    /// Ends a connection that is over its age, or has it end with what it carries.
    pub(crate) fn end_aged(
        &mut self,
        key: ConnKey,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        let Some(connection) = connections.get(key) else { return };
        let ends = match connection.upstream().map(|it| &it.state) {
            Some(UpstreamState::Idle(_) | UpstreamState::Shared { connecting_since: None, .. }) => {
                true
            }
            // After its request, it is not kept.
            _ => false,
        };
        if ends {
            self.dismiss(key, now, connections, cx);
        }
    }
}

/// Whether a connection has carried as many requests as one of its cluster may.
#[inline]
pub(crate) fn has_served(connection: &Connection, cluster: &Cluster) -> bool {
    cluster.requests_per_connection_max.is_some_and(|max| connection.requests >= max.get())
}

/// Whether a connection is over the age that one of its cluster may have.
#[inline]
pub(crate) fn is_aged(connection: &Connection, cluster: &Cluster, now: Time) -> bool {
    cluster.timeouts.connection_age.is_some_and(|age| {
        let age = spread(age, 900, connection.opened);
        Duration::from_nanos(now.nanos_since(connection.opened)) >= age
    })
}
