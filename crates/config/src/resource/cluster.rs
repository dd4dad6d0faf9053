//! Clusters and their endpoints.

pub mod adaptive;
pub(crate) mod assigned;
pub mod balance;
pub mod breakers;
pub(crate) mod build;
pub mod checks;
pub mod drained;
pub mod file;
pub mod hash_table;
pub mod health;
pub mod outlier;
pub(crate) mod parsing;
pub mod preconnect;
pub mod priority;
pub(crate) mod resolved;
pub mod schedule;
pub mod slow_start;
pub mod subsets;
pub mod transports;
mod unchanged;
pub mod view;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use wire::h1::Parsing;

use crate::address::Address;
use crate::percent::Percent;
use crate::resource::assignment::endpoints_from::{EndpointsFrom, LeftOut};
use crate::resource::assignment::file::{Locality, ReportedHealth};
use crate::resource::assignment::locality::LocalityRule;
use crate::resource::cluster::adaptive::Adaptive;
use crate::resource::cluster::balance::Balancer;
use crate::resource::cluster::breakers::{Breakers, EndpointConnections};
use crate::resource::cluster::checks::HealthCheck;
use crate::resource::cluster::file::Protocol as ClusterProtocol;
use crate::resource::cluster::file::ProxyProtocol;
use crate::resource::cluster::health::{Activity, HealthCell, HealthStatus, Warming};
use crate::resource::cluster::outlier::Outlier;
use crate::resource::cluster::preconnect::Preconnect;
use crate::resource::cluster::priority::{Bounds, Priority};
use crate::resource::cluster::slow_start::SlowStart;
use crate::resource::cluster::subsets::{Metadata, Selectors};
use crate::resource::cluster::transports::{Transport, Transports};
use crate::resource::cluster::view::View;
use crate::snapshot::connection_options::{Http2Options, Keepalive, RpcOptions};
use crate::snapshot::id::{ClusterId, EndpointId};

/// A logical service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Stable name.
    pub id: ClusterId,
    /// What it was built from.
    pub source: Arc<file::Cluster>,
    /// Name in the file.
    pub name: Arc<str>,
    /// Its addresses; none if it has an original destination.
    pub endpoints: Vec<Endpoint>,
    /// Where they come from.
    pub endpoints_from: EndpointsFrom,
    /// Addresses of host names that are not among its endpoints, because there are too many.
    pub left_out: Box<[LeftOut]>,
    /// Stands for every address, if it connects to where downstream connections were going.
    pub original_destination: Option<EndpointId>,
    /// Their places in the order of their ids; empty if they stand in that order.
    pub(crate) places_by_id: Box<[u32]>,
    /// How requests are shared among them.
    pub balancer: Balancer,
    /// How localities share requests, if they count.
    pub localities: Option<LocalityRule>,
    /// What one of them gets that came lately, if that is less.
    pub slow_start: Option<SlowStart>,
    /// What its endpoints are asked at intervals.
    pub checks: Arc<[HealthCheck]>,
    /// Whether it has had a request, where it has checks.
    pub activity: Activity,
    /// How long it waits for the first checks of its endpoints when it is new, if it does.
    pub initial_check_timeout: Option<Duration>,
    /// Whether it waits for them, if it asks for that.
    pub warming: Warming,
    /// When its endpoints are ejected, if they are.
    pub outlier: Option<Outlier>,
    /// All endpoints get requests where fewer than this share of them may be chosen.
    pub panic: Percent,
    /// Who of them may be chosen, by what a request asks for.
    pub view: View,
    /// By what they make subsets, if they do.
    pub selectors: Option<Selectors>,
    /// How they are spoken to: TLS, and ids that name `protocol`, TLS and `proxy_protocol` together.
    pub transports: Transports,
    /// What its endpoints speak.
    pub protocol: ClusterProtocol,
    /// What one connection of HTTP/2 may hold.
    pub http2: Http2Options,
    /// What one connection of an RPC protocol may hold.
    pub rpc: RpcOptions,
    /// How strictly its responses are read.
    pub response_parsing: Parsing,
    /// Interim responses before the final one.
    pub interim_responses_max: u8,
    /// How long its peers may take.
    pub timeouts: UpstreamTimeouts,
    /// What it allows requests of the default priority, in the process.
    pub bounds: Bounds,
    /// What it allows those of high priority.
    pub high: Bounds,
    /// Connections for requests of default priority that are open to each endpoint at a time, in the process, if they are
    /// bounded.
    pub connections_per_endpoint_max: Option<NonZeroU32>,
    /// The bound of requests of the default priority that follows how long responses take, if there is one.
    pub adaptive: Option<Adaptive>,
    /// Requests that one connection carries, if they are bounded.
    pub requests_per_connection_max: Option<NonZeroU32>,
    /// What connections are opened before requests need them, if any.
    pub preconnect: Option<Preconnect>,
    /// What of its bounds is in use.
    pub breakers: Breakers,
    /// Whether each connection begins with a PROXY protocol header, and of which version.
    pub proxy_protocol: ProxyProtocol,
    /// TCP keepalive.
    pub keepalive: Option<Keepalive>,
    /// Whether a request's first bytes may travel with the SYN.
    pub fast_open: bool,
    /// Mark of the packets that go to it.
    pub mark: Option<NonZeroU32>,
}

impl Cluster {
    /// The ids of its endpoints, that of its original destination among them.
    pub fn endpoint_ids(&self) -> impl Iterator<Item = EndpointId> {
        self.endpoints.iter().map(|endpoint| endpoint.id).chain(self.original_destination)
    }

    /// Whether this is one of its endpoints, or stands for its original destinations.
    #[must_use]
    pub fn has_endpoint(&self, id: EndpointId) -> bool {
        self.place_of(id).is_some() || self.original_destination == Some(id)
    }

    /// How the endpoint with this id is spoken to, if it has that.
    #[must_use]
    pub fn transport_of(&self, id: EndpointId) -> Option<&Transport> {
        let endpoint = self.place_of(id).and_then(|place| self.endpoints.get(place));
        let own = || (self.original_destination == Some(id)).then(|| self.transports.own());
        endpoint.map(|endpoint| self.transports.of(endpoint)).or_else(own)
    }

    /// How the endpoint at `place` is spoken to, and what stands for an original destination.
    #[must_use]
    pub fn transport_at(&self, place: usize) -> &Transport {
        let endpoint = self.endpoints.get(place);
        endpoint.map_or_else(|| self.transports.own(), |endpoint| self.transports.of(endpoint))
    }

    /// What it allows requests of this priority, in the process.
    #[must_use]
    #[inline]
    pub const fn bounds_of(&self, priority: Priority) -> &Bounds {
        match priority {
            Priority::Default => &self.bounds,
            Priority::High => &self.high,
        }
    }

    /// Connections for requests of this priority that may be open to each endpoint, in the process, if that is bounded.
    #[must_use]
    #[inline]
    pub const fn per_endpoint_max(&self, priority: Priority) -> Option<NonZeroU32> {
        match priority {
            Priority::Default => self.connections_per_endpoint_max,
            Priority::High => None,
        }
    }

    /// Connections that may be open at a time, in the process, those to each endpoint considered.
    #[must_use]
    #[inline]
    pub fn connections_bound(&self, priority: Priority) -> u32 {
        let max = self.bounds_of(priority).connections_max.get();
        self.per_endpoint_max(priority).map_or(max, |of_each| {
            let count = u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX);
            of_each.get().saturating_mul(count).clamp(1, max)
        })
    }

    /// The bound of requests of this priority that follows how long their responses take, if there is one.
    #[must_use]
    #[inline]
    pub const fn adaptive_of(&self, priority: Priority) -> Option<&Adaptive> {
        match priority {
            Priority::Default => self.adaptive.as_ref(),
            Priority::High => None,
        }
    }

    /// Whether requests of this priority are bounded.
    #[must_use]
    #[inline]
    pub const fn bounds_requests(&self, priority: Priority) -> bool {
        self.bounds_of(priority).requests_max.is_some() || self.adaptive_of(priority).is_some()
    }

    /// Requests that may be under way now, if they are bounded, and whether that is for the time that responses take. `now` is
    /// the time of a clock that all workers have, ns.
    #[inline]
    pub fn requests_bound(&self, priority: Priority, now: u64) -> Option<(u32, bool)> {
        let max = self.bounds_of(priority).requests_max.map(|max| (max.get(), false));
        let adaptive = self.adaptive_of(priority);
        let adaptive = adaptive.map(|adaptive| (adaptive.limit_at(now), true));
        max.into_iter().chain(adaptive).min()
    }

    /// The same to be shown: to look at it changes nothing.
    #[must_use]
    pub fn requests_limit(&self, priority: Priority) -> Option<u32> {
        let max = self.bounds_of(priority).requests_max.map(NonZeroU32::get);
        let adaptive = self.adaptive_of(priority).map(Adaptive::limit);
        max.into_iter().chain(adaptive).min()
    }

    /// Whether the health of its endpoints is known.
    #[must_use]
    pub fn has_health(&self) -> bool {
        self.outlier.is_some() || !self.checks.is_empty()
    }

    /// Whether requests may meet endpoints that are ejected or unfit, since too few others are left.
    #[must_use]
    pub fn is_panicking(&self) -> bool {
        !self.warming.waits() && self.view.is_panicking(self.panic)
    }

    /// The place of the endpoint with this id among its endpoints, found by bisection.
    #[must_use]
    pub fn place_of(&self, id: EndpointId) -> Option<usize> {
        if self.places_by_id.is_empty() {
            // Most clusters have their ids in a row, as they came: one look is enough then.
            let first = self.endpoints.first()?.id.0.slot;
            let guess = usize::try_from(id.0.slot.wrapping_sub(first)).ok()?;
            if self.endpoints.get(guess).is_some_and(|endpoint| endpoint.id == id) {
                return Some(guess);
            }
            return self.endpoints.binary_search_by_key(&id, |endpoint| endpoint.id).ok();
        }
        let id_at = |place: &u32| self.endpoints.get(*place as usize).map(|endpoint| endpoint.id);
        let found = self.places_by_id.binary_search_by_key(&Some(id), id_at).ok()?;
        self.places_by_id.get(found).map(|place| *place as usize)
    }
}

/// One address of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Stable name.
    pub id: EndpointId,
    /// Where it listens.
    pub address: Address,
    /// Weight as written, or 0 if it is drained or its source says so. With 0, it gets no new requests.
    pub weight: u16,
    /// The weight that it has unless an operator drains it.
    pub(crate) weight_undrained: u16,
    /// Whether an operator drains it.
    pub is_drained: bool,
    /// What its source says of its health.
    pub reported: ReportedHealth,
    /// It is chosen only where no endpoint of a lower number may be.
    pub priority: u8,
    /// What is known of its health, if its cluster asks for that.
    pub health: HealthCell,
    /// Connections to it that are open, if its cluster bounds these.
    pub connections: EndpointConnections,
    /// The place of its transport among those of its cluster.
    pub(crate) transport: u8,
    /// What else is said of it, if anything is.
    pub(crate) description: Option<Arc<Description>>,
}

/// What is said of few endpoints, or is the same of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) host: Option<Arc<str>>,
    pub(crate) locality: Option<Arc<Locality>>,
    pub(crate) metadata: Option<Arc<Metadata>>,
}

impl Endpoint {
    /// Which requests it gets: the worst of what its source and this process know of its health.
    #[must_use]
    #[inline]
    pub fn status(&self) -> HealthStatus {
        self.health.status().min(self.reported.status())
    }

    /// The host whose address it is, without the dot of the root, if a name led to it. TLS asks for it where
    /// the cluster's names no other.
    #[must_use]
    pub fn host(&self) -> Option<&Arc<str>> {
        self.description.as_ref()?.host.as_ref()
    }

    /// Where it is, if its source says so.
    #[must_use]
    pub fn locality(&self) -> Option<&Arc<Locality>> {
        self.description.as_ref()?.locality.as_ref()
    }

    /// What it is, for subsets and transports.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        static NONE: Metadata = Metadata::new();
        let description = self.description.as_ref();
        description.and_then(|it| it.metadata.as_deref()).unwrap_or(&NONE)
    }
}

/// How long an upstream may take. Each has a counter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// To establish a connection, TLS included.
    pub connect: Duration,
    /// For a connection while all are in use.
    pub pending: Duration,
    /// From the request's last byte to the response's head.
    pub response_head: Duration,
    /// Between two pieces of a response body.
    pub response_body: Duration,
    /// Without progress while request bytes wait to be taken by the upstream.
    pub request_write: Duration,
    /// With a client that stands still, while others wait for the connection; none for no bound.
    pub stall: Option<Duration>,
    /// In the pool.
    pub idle: Duration,
    /// Age from which a connection takes no further request; none for no bound.
    pub connection_age: Option<Duration>,
}
