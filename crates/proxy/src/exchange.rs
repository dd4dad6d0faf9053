//! One request and its response, whatever the codecs on either side.
//!
//! ```text
//!            ┌─► Suspended ─┐ (a filter waits for an answer)
//!            ├─► Gathering ─┤ (a filter waits for the whole body)
//!            ├─► Buffering ─┤ (connections are short, and the body is not here)
//! new ───────┤              ▼
//!            └───────► Waiting ─► Attempting ─► Responding ─► Finishing ─► gone
//!                      (for a       │   ▲ (again, if     │        ▲
//!                      connection)  └───┘  it may be)    └────────┤ (the response is queued whole)
//!                                Pausing (before another attempt) │
//!            any of them ── reply made here ──────────────────────┘
//! ```

pub(crate) mod asked_retries;
pub(crate) mod asked_timeout;
pub(crate) mod attempts;
pub(crate) mod bodies;
mod bounds;
pub(crate) mod buffered;
pub(crate) mod calling;
pub(crate) mod calls;
mod captures;
pub(crate) mod check_run;
pub(crate) mod checking;
pub(crate) mod client_cert;
mod connect_target;
pub(crate) mod copies;
pub(crate) mod deadlines;
pub(crate) mod detached;
pub(crate) mod downstream;
pub(crate) mod edits;
pub(crate) mod encoding;
pub(crate) mod ending;
pub(crate) mod endpoint_host;
pub(crate) mod exchanges;
pub mod fault;
pub(crate) mod filtering;
pub(crate) mod forwarded;
mod giving;
mod h2c;
pub(crate) mod hedging;
pub(crate) mod lookalikes;
mod made_cookie;
pub(crate) mod pages;
pub(crate) mod progress;
pub(crate) mod queued_request;
pub(crate) mod record;
mod recording;
pub(crate) mod reply;
pub(crate) mod request_buffer;
pub mod request_fields;
pub(crate) mod retrying;
pub mod route;
pub(crate) mod stage;
pub(crate) mod stalling;
pub(crate) mod stalls;
mod streams;
pub(crate) mod waiting;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use config::priority::Priority;
use config::snapshot::{
    Action, ChainId, Cluster, ClusterId, EndpointId, Forward, Listener, RouteTableId, Rule,
};
use config::subsets::SubsetHash;
use serde::{Deserialize, Serialize};
use telemetry::cause::Cause;
use wire::buffer::Buffer;
use wire::head::{Method, RequestHead, Version};
use wire::upgrade::WEBSOCKET_ACCEPT_LEN;

use crate::exchange::asked_retries::OwnRetries;
use crate::exchange::attempts::Attempt;
use crate::exchange::calls::Call;
use crate::exchange::detached::Detached;
use crate::exchange::progress::Progress;
use crate::exchange::record::{ExchangeRecord, Stamps};
use crate::exchange::stage::{Current, Stage};
use crate::exchange::stalls::StallKey;
use crate::filter::Filter;
use crate::filter::filter_chain::{BodyObservers, Gathered, Held};
use crate::keys::{ConnKey, EndpointKey, ExchangeKey, PoolId, StreamKey};
use crate::listen::clients::ClientPlace;
use crate::tools::pinned::Pinned;
use crate::tools::time::Time;
use crate::tools::wheel::TimerKey;

/// One request and its response.
#[derive(Debug)]
pub struct Exchange {
    /// The configuration it began with and ends with, but for its cluster ([`Route::newer`]).
    pub(crate) snapshot: Pinned,
    /// The listener's place in that snapshot.
    pub(crate) listener: usize,
    /// The chain of it that the connection meets.
    pub(crate) chain: Option<ChainId>,
    pub(crate) downstream: StreamKey,
    pub(crate) client: ClientPlace,
    /// Whether it counts among those of its client that hold an upstream connection.
    pub(crate) is_holding: bool,
    /// Whether it counts among the requests that its cluster bounds.
    pub(crate) holds_request: bool,
    /// Whether it counts among the requests of its listener, which bounds them.
    pub(crate) holds_listener_request: bool,
    /// The endpoint, and its cluster, at which it counts among the requests under way, where the balancer asks for that.
    pub(crate) counted_at: Option<EndpointKey>,
    /// When its attempt there began, while its balancer wants to know how long that takes.
    pub(crate) measured_from: Option<Time>,
    /// What of its attempt is still to be counted for the endpoint.
    pub(crate) attempt: Attempt,
    /// Its place among the stalled exchanges, if it is one.
    pub(crate) stall: Option<StallKey>,
    pub(crate) kind: ExchangeKind,
    pub(crate) stage: Current,
    pub(crate) request: Request,
    pub(crate) route: Option<Route>,
    pub(crate) timer: TimerKey,
    pub(crate) deadlines: Deadlines,
    /// The slots of the chain's filters, one behind the other; none if no filter has one.
    pub(crate) slots: Option<Box<[u8]>>,
    /// The chain's filters that look at bodies.
    pub(crate) observers: BodyObservers,
    /// The request's body, as far as it came, once a filter wanted all of it.
    pub(crate) gathered: Option<Box<Gathered>>,
    /// What edits of the response need of the request, as [`config::edits`] writes it.
    pub(crate) kept: Option<Buffer>,
    /// The response, while a filter waits for all of it.
    pub(crate) held: Option<Box<Held>>,
    pub(crate) progress: Progress,
    pub(crate) record: ExchangeRecord,
    /// What it is as a call of gRPC, if it is one.
    pub(crate) call: Option<Box<Call>>,
    /// How a client of HTTP/1 learns that its upgrade was granted by an upstream of HTTP/2.
    pub(crate) handshake: Option<Box<Handshake>>,
    /// Copies of the request, which are sent once it is whole.
    pub(crate) copies: Option<Box<[ExchangeKey]>>,
    /// What it is if it has no downstream.
    pub(crate) detached: Option<Box<Detached>>,
    /// What it asks for, or has tried, where it may be sent again.
    pub(crate) own_retries: Option<Box<OwnRetries>>,
    /// Whether its client sends the body, or takes the response, below the least rate.
    pub(crate) is_request_slow: bool,
    pub(crate) is_response_slow: bool,
}

/// What HTTP/1 says when a protocol changes, and HTTP/2 does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handshake {
    /// The protocol that was asked for.
    pub(crate) protocol: Box<[u8]>,
    /// The answer to the client's `Sec-WebSocket-Key`, if it sent one.
    pub(crate) accept: Option<[u8; WEBSOCKET_ACCEPT_LEN]>,
}

/// What an exchange consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ExchangeKind {
    /// A request and its response.
    Http,
    /// A request for a tunnel of bytes, and these (`CONNECT`).
    Connect,
    /// A call of an RPC protocol, and its answer if it has one.
    Rpc,
    /// The bytes of a connection, both ways.
    Tcp,
    /// The same, of TLS that ends elsewhere.
    Tls,
}

/// What of the request decides how its response is read and whether it may be sent again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) version: Version,
    /// Whether the downstream lets the connection live on.
    pub(crate) is_persistent: bool,
    /// Whether the request's last byte was read.
    pub(crate) is_complete: bool,
    /// Whether its body waits for a `100 Continue`.
    pub(crate) expects_continue: bool,
    /// Whether it is an extended `CONNECT` (RFC 8441), which a parked head does not tell.
    pub(crate) is_extended_connect: bool,
    /// Whether an `Upgrade` that the route allows went upstream.
    pub(crate) asks_upgrade: bool,
    /// Whether there will be no answer.
    pub(crate) is_one_way: bool,
}

impl Request {
    /// What a head says, of a request that is complete with it or not.
    #[inline]
    pub(crate) fn of(head: &RequestHead<'_>, is_complete: bool) -> Self {
        Self {
            // With a path, it asks for a resource as GET does (RFC 8441, section 5).
            method: if head.is_extended_connect() { Method::Get } else { head.method() },
            version: head.version(),
            is_persistent: head.persistent(),
            is_complete,
            expects_continue: head.expects_continue(),
            is_extended_connect: head.is_extended_connect(),
            asks_upgrade: false,
            is_one_way: head.rpc().is_some_and(|rpc| rpc.is_one_way()),
        }
    }

    /// Of an exchange without one: nothing was asked that could be read, and nothing else will be.
    pub(crate) const NONE: Self = Self {
        method: Method::Other,
        version: Version::Http11,
        is_persistent: false,
        is_complete: false,
        expects_continue: false,
        is_extended_connect: false,
        asks_upgrade: false,
        is_one_way: false,
    };
}

/// Where the request goes.
#[derive(Debug)]
pub(crate) struct Route {
    /// The rule that says so, by its table and its place there; none for what is relayed, and for what was
    /// taken up under a configuration without that rule.
    pub(crate) rule: Option<(RouteTableId, u32)>,
    pub(crate) cluster: Option<ClusterId>,
    /// Whose connections and bounds of the cluster it uses.
    pub(crate) priority: Priority,
    /// The snapshot that has the cluster as attempts follow it, once one that is newer than the
    /// exchange's own has changed it.
    pub(crate) newer: Option<Pinned>,
    /// Place of the endpoint in the cluster, once one was chosen.
    pub(crate) endpoint: Option<usize>,
    /// The endpoint that was chosen for an attempt which waits for a connection. A worker that takes the exchange over
    /// chooses anew.
    pub(crate) chosen: Option<EndpointId>,
    /// The connection that is being established, for which an attempt waits to know how many streams it takes: it fails with that.
    pub(crate) awaits: Option<ConnKey>,
    /// What each attempt chooses its endpoint by, where the cluster goes by a hash.
    pub(crate) hash: Option<NonZeroU64>,
    /// Which endpoints each attempt may choose, where the cluster has subsets.
    pub(crate) subset: Option<SubsetHash>,
    /// The value of a cookie that the response brings the client.
    pub(crate) cookie: Option<NonZeroU64>,
    /// The place of the cluster among the weights of the rule, if it has any.
    pub(crate) share: Option<u32>,
    /// Whether the response's header fields are edited.
    pub(crate) has_edits: bool,
    /// Whether each attempt takes the host of its endpoint.
    pub(crate) takes_endpoint_host: bool,
    /// The host from before, for an attempt whose endpoint has none.
    pub(crate) host_before: Option<Buffer>,
}

impl Route {
    /// Of a rule, or none for what is relayed, to a cluster.
    pub(crate) const fn new(rule: Option<(RouteTableId, u32)>, cluster: Option<ClusterId>) -> Self {
        Self {
            rule,
            cluster,
            priority: Priority::Default,
            newer: None,
            endpoint: None,
            chosen: None,
            awaits: None,
            hash: None,
            subset: None,
            cookie: None,
            share: None,
            has_edits: false,
            takes_endpoint_host: false,
            host_before: None,
        }
    }
}

/// Where an exchange begins.
pub(crate) struct Beginning {
    pub(crate) snapshot: Pinned,
    pub(crate) listener: usize,
    pub(crate) chain: Option<ChainId>,
    pub(crate) downstream: StreamKey,
    pub(crate) client: ClientPlace,
    pub(crate) stamps: Stamps,
}

impl Beginning {
    /// Of an exchange without a downstream, which began `now`.
    pub(crate) fn detached(
        snapshot: Pinned,
        (listener, chain): (usize, Option<ChainId>),
        client: ClientPlace,
        now: Time,
    ) -> Self {
        let stamps = Stamps { began: now, head_read: now, ..Stamps::NONE };
        Self { snapshot, listener, chain, downstream: StreamKey::NONE, client, stamps }
    }
}

impl Exchange {
    /// One that begins with this request. Its timer is none's yet.
    pub(crate) fn new(beginning: Beginning, request: Request, timer: TimerKey) -> Self {
        let Beginning { snapshot, listener, chain, downstream, client, stamps } = beginning;
        Self {
            snapshot,
            listener,
            chain,
            downstream,
            client,
            is_holding: false,
            holds_request: false,
            holds_listener_request: false,
            counted_at: None,
            measured_from: None,
            attempt: Attempt::Counted,
            stall: None,
            kind: ExchangeKind::Http,
            stage: Current::NEW,
            request,
            route: None,
            timer,
            deadlines: Deadlines::default(),
            slots: None,
            observers: BodyObservers::default(),
            gathered: None,
            kept: None,
            held: None,
            progress: Progress::default(),
            record: ExchangeRecord::new(stamps),
            call: None,
            handshake: None,
            copies: None,
            detached: None,
            own_retries: None,
            is_request_slow: false,
            is_response_slow: false,
        }
    }

    /// The cluster that it is forwarded to: as its snapshot has it or, once an attempt began after a
    /// reload that changed it, as the newer one does.
    pub(crate) fn cluster(&self) -> Option<&Arc<Cluster>> {
        let route = self.route.as_ref()?;
        route.newer.as_ref().unwrap_or(&self.snapshot).cluster(route.cluster?)
    }

    /// The pool that it has connections of.
    #[inline]
    pub(crate) fn pool(&self) -> Option<PoolId> {
        let route = self.route.as_ref()?;
        Some(PoolId { cluster: route.cluster?, priority: route.priority })
    }

    /// Whose connections and bounds of its cluster it uses.
    #[inline]
    pub(crate) fn priority(&self) -> Priority {
        self.route.as_ref().map_or(Priority::Default, |route| route.priority)
    }

    /// Lets the next attempt follow `newest`, the newest snapshot, where that has changed the cluster.
    /// Endpoints change at run time, and one that was removed may be gone, or be another service's by now;
    /// what else the cluster says (TLS, timeouts) goes with them. A request that is encoded for what the
    /// cluster was, and would not do for what it is, stays with that.
    pub(crate) fn follow_cluster(&mut self, newest: &Pinned) {
        let Some(current) = self.cluster() else { return };
        let Some(changed) = newest.cluster(current.id) else { return };
        if Arc::ptr_eq(current, changed) || !is_encoded_alike(current, changed) {
            return;
        }
        let Some(route) = &self.route else { return };
        let endpoint = route.endpoint.and_then(|place| current.endpoints.get(place));
        let endpoint = endpoint.and_then(|endpoint| changed.place_of(endpoint.id));
        if let Some(route) = &mut self.route {
            (route.newer, route.endpoint) = (Some(newest.clone()), endpoint);
        }
    }

    /// The endpoint that was chosen, and its pool, if the cluster's balancer compares how much is under way at endpoints, or its
    /// `preconnect` follows that.
    pub(crate) fn endpoint_to_count(&self) -> Option<EndpointKey> {
        let place = self.route.as_ref()?.endpoint?;
        let cluster = self.cluster()?;
        let counts = cluster.balancer.counts_requests() || cluster.preconnect.is_some();
        let counts = counts && self.check().is_none();
        let endpoint = cluster.endpoints.get(place).filter(|_| counts)?.id;
        Some(EndpointKey { pool: self.pool()?, endpoint })
    }

    /// Whether a response has begun that cannot be replaced. One of RPC begins when it is whole.
    pub(crate) const fn has_responded(&self) -> bool {
        let is_unsent = matches!(self.kind, ExchangeKind::Rpc)
            && matches!(self.stage(), Stage::Responding { .. });
        self.progress.has_response && !is_unsent
    }

    /// The listener as it was when the exchange began.
    pub(crate) fn listener(&self) -> &Listener<Box<dyn Filter>> {
        let listener = self.snapshot.listeners.get(self.listener);
        listener.expect("places are of this very snapshot").seen_by(self.chain)
    }

    /// Whether its rule lets a connection change to these protocols.
    pub(crate) fn allows_upgrade(&self, protocols: &[u8]) -> bool {
        self.forward().is_some_and(|forward| route::allows_upgrade(&forward.upgrades, protocols))
    }

    /// Its rule.
    pub(crate) fn rule(&self) -> Option<&Rule> {
        let (table, place) = self.route.as_ref()?.rule?;
        self.snapshot.route_table(table)?.rules.get(usize::try_from(place).ok()?)
    }

    /// What its rule says of forwarding.
    pub(crate) fn forward(&self) -> Option<&Forward> {
        match &self.rule()?.action {
            Action::Forward(forward) => Some(forward),
            Action::Respond(_) | Action::Redirect(_) => None,
        }
    }

    /// Whether its sides speak and are silent as they like, rather than one after the other.
    pub(crate) const fn is_conversation(&self) -> bool {
        self.progress.is_tunnel || self.call.is_some()
    }

    /// What it is called that it waited too long for this.
    pub(crate) fn cause_of(&self, wait: Wait) -> Cause {
        match wait {
            Wait::Filter if self.awaits_cluster() => Cause::NoCluster,
            Wait::RequestBody if self.is_request_slow => Cause::RequestTooSlow,
            Wait::ResponseWrite if self.is_response_slow => Cause::ResponseTooSlow,
            _ => wait.cause(),
        }
    }

    /// Whether a source is asked for its cluster, and has not answered.
    pub(crate) fn awaits_cluster(&self) -> bool {
        matches!(self.stage(), Stage::Suspended(it) if it.question.is_for_cluster())
    }

    /// How long the client may be silent before there is a response.
    pub(crate) fn silence_of_client(&self) -> (Wait, Duration) {
        (Wait::RequestBody, self.listener().timeouts.request_body)
    }

    /// How long both sides may be silent.
    pub(crate) fn silence(&self) -> (Wait, Duration) {
        match self.cluster() {
            Some(cluster) if !self.is_conversation() => {
                (Wait::ResponseBody, cluster.timeouts.response_body)
            }
            _ => (Wait::TunnelIdle, self.listener().timeouts.tunnel_idle),
        }
    }

    /// Whether the request's body is taken now: by an upstream, a filter, or a buffer.
    pub(crate) const fn takes_request_data(&self) -> bool {
        // What comes behind the request for another protocol is of that.
        let has_streams = !self.downstream.is_alone();
        let awaits_upgrade = self.request.asks_upgrade && !self.progress.is_tunnel && has_streams;
        (self.upstream().is_some() && !awaits_upgrade)
            || matches!(self.stage(), Stage::Gathering { .. } | Stage::Buffering { .. })
    }
}

/// Whether requests to both clusters are encoded in the same way: for a stream or a connection, and
/// with a PROXY protocol header in front of them, of a handshake, or not at all.
fn is_encoded_alike(one: &Cluster, other: &Cluster) -> bool {
    let headers = (one.proxy_protocol, other.proxy_protocol);
    one.protocol == other.protocol
        && headers.0 == headers.1
        && (!headers.0.is_sent() || has_tls(one) == has_tls(other))
}

/// Whether TLS is spoken with the endpoints: with all of them, where a PROXY header is in front of it.
fn has_tls(cluster: &Cluster) -> bool {
    cluster.transports.own().tls.is_some()
}

/// What an exchange may wait for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Wait {
    /// Its end, from its beginning.
    Whole,
    /// The next piece of the request body, as long as no response has begun.
    RequestBody,
    /// The answer to a filter's question.
    Filter,
    /// A connection to become free.
    Connection,
    /// The upstream to take what waits for it.
    RequestWrite,
    /// The response's head, from the request's last byte.
    ResponseHead,
    /// The next piece of the response body, or of the request's that still comes.
    ResponseBody,
    /// The downstream to take what waits for it.
    ResponseWrite,
    /// A byte either way in a tunnel or a call of gRPC.
    TunnelIdle,
    /// The end of a pause before its endpoints are connected to again.
    Pause,
    /// The head of the response, from the beginning of its attempt.
    Try,
    /// The end of the pause before another attempt.
    Backoff,
}

impl Wait {
    pub(crate) const ALL: [Self; 12] = [
        Self::Whole,
        Self::RequestBody,
        Self::Filter,
        Self::Connection,
        Self::RequestWrite,
        Self::ResponseHead,
        Self::ResponseBody,
        Self::ResponseWrite,
        Self::TunnelIdle,
        Self::Pause,
        Self::Try,
        Self::Backoff,
    ];

    /// What it is called when it took too long.
    pub(crate) const fn cause(self) -> Cause {
        match self {
            Self::Whole => Cause::RequestTimeout,
            Self::RequestBody => Cause::RequestBodyTimeout,
            Self::Filter => Cause::FilterTimeout,
            Self::Connection | Self::Pause | Self::Backoff => Cause::PendingTimeout,
            Self::RequestWrite => Cause::RequestWriteTimeout,
            Self::ResponseHead => Cause::ResponseHeadTimeout,
            Self::Try => Cause::TryTimeout,
            Self::ResponseBody => Cause::ResponseBodyTimeout,
            Self::ResponseWrite => Cause::ResponseWriteTimeout,
            Self::TunnelIdle => Cause::TunnelIdleTimeout,
        }
    }
}

/// The deadlines of an exchange, one for each thing it may wait for.
#[derive(Clone, Debug)]
pub(crate) struct Deadlines([Time; Wait::ALL.len()]);

impl Default for Deadlines {
    fn default() -> Self {
        Self([Time::NEVER; Wait::ALL.len()])
    }
}

impl Deadlines {
    pub(crate) fn set(&mut self, wait: Wait, deadline: Time) {
        if let Some(place) = self.0.get_mut(wait as usize) {
            *place = deadline;
        }
    }

    pub(crate) fn get(&self, wait: Wait) -> Time {
        self.0.get(wait as usize).copied().unwrap_or(Time::NEVER)
    }

    pub(crate) fn is_set(&self, wait: Wait) -> bool {
        self.get(wait).is_set()
    }

    pub(crate) fn clear(&mut self, wait: Wait) {
        self.set(wait, Time::NEVER);
    }

    /// The wait that ends first, and when; `NEVER` if none is set.
    pub(crate) fn first(&self) -> (Wait, Time) {
        let all = Wait::ALL.into_iter().zip(self.0);
        all.min_by_key(|(_, deadline)| *deadline).expect("there are waits")
    }

    /// Those that are set, with what is left of them at `now`.
    pub(crate) fn remaining(&self, now: Time) -> Vec<(u8, Duration)> {
        let set = self.0.into_iter().zip(0u8..).filter(|(deadline, _)| deadline.is_set());
        set.map(|(deadline, wait)| (wait, deadline - now)).collect()
    }
}
