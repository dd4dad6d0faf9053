//! Hop 8: an endpoint and a connection for a request, and another attempt where one fails.

use std::sync::Arc;

use config::snapshot::{Cluster, ClusterId, ClusterProtocol};
use telemetry::cause::Cause;
use wire::head::RequestHead;

use crate::connection::destination::destination;
use crate::exchange::check_run::CheckRun;
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::exchange::waiting::is_waiting;
use crate::exchange::{Exchange, ExchangeKind, Route, Wait};
use crate::keys::{ConnKey, ExchangeKey, PoolId, label};
use crate::listen::clients::ClientPlace;
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::time::Time;
use crate::upstream::pool::{Acquired, Ask, Pool, Sharing};

impl Proxy {
    // The upstream side of an exchange.

    /// Finds a connection for a request and gives it to that, or queues it, or fails. `head` is the
    /// request's, where it is at hand. What is not from the queue goes through [`Proxy::ask`].
    pub(in crate::proxy) fn attempt(
        &mut self,
        key: ExchangeKey,
        request: QueuedRequest,
        head: Option<&RequestHead<'_>>,
        now: Time,
    ) {
        self.find_connection(key, request, head, now);
        if self.upstream.pools.preconnects {
            self.preconnect(key, now);
        }
        if let Some(pool) = self.upstream.pools.release_permits() {
            self.ring_next(pool);
        }
    }

    fn find_connection(
        &mut self,
        key: ExchangeKey,
        mut request: QueuedRequest,
        mut head: Option<&RequestHead<'_>>,
        now: Time,
    ) {
        let has_former = self.cx.has_former_snapshots();
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        if has_former {
            exchange.follow_cluster(&self.cx.snapshot);
        }
        let Some(cluster) = exchange.cluster() else {
            if let Some(id) = exchange.route.as_ref().and_then(|route| route.cluster) {
                self.ask_for_cluster(key, id, now);
            }
            return self.fail_queued(key, request, Cause::NoCluster, now);
        };
        if !fits(exchange, &request, cluster) {
            let words = "the cluster speaks another protocol than when the request was encoded";
            self.exchanges.note_detail(key, || Detail::of(&words));
            return self.fail_queued(key, request, Cause::NoEndpoint, now);
        }
        let failed = exchange.route.as_ref().and_then(|route| route.endpoint);
        let failed = failed.and_then(|place| cluster.endpoints.get(place)).map(|it| it.id);
        let takes_host = exchange.route.as_ref().is_some_and(Route::may_name_endpoint);
        let sharing = match request.form {
            Form::Alone { is_personal: true, .. } => Sharing::Personal,
            Form::Alone { is_personal: false, .. } => Sharing::InTurn,
            Form::Stream { .. } => Sharing::Together,
        };
        let priority = exchange.priority();
        let id = PoolId { cluster: cluster.id, priority };
        let newest = self.cx.snapshot.cluster(id.cluster).unwrap_or(cluster);
        let is_bounded = newest.bounds_requests(priority) && exchange.is_bounded();
        if is_bounded && !self.cx.share.is_apart() {
            let (pools, random) = (&mut self.upstream.pools, &mut self.cx.random);
            let refusal = pools.refuse_request(Pool::new(newest, priority), random, now);
            if let Some(cause) = refusal {
                return self.fail_queued(key, request, cause, now);
            }
        }
        // One that upgrades may have to wait for SETTINGS.
        let may_own = sharing == Sharing::Together
            && !self.upstream.own.is_empty()
            && cluster.original_destination.is_none()
            && !exchange.request.asks_upgrade;
        let destination = cluster
            .original_destination
            .and_then(|_| destination(&self.connections, exchange.downstream.connection));
        let ask = Ask {
            cluster,
            newest,
            priority,
            avoid: failed,
            tried: exchange.tried(),
            chosen: exchange.route.as_ref().and_then(|route| route.chosen),
            hash: exchange.route.as_ref().and_then(|route| route.hash),
            subset: exchange.route.as_ref().and_then(|route| route.subset),
            locality: self.cx.snapshot.locality,
            destination,
            sharing,
            client: exchange.client,
        };
        let (acquired, kind, is_own) = self.upstream.acquire(
            &ask,
            (
                exchange.check().map(CheckRun::target),
                may_own.then_some(exchange.downstream.connection),
            ),
            now,
            &self.listen.clients,
            &mut self.connections,
            &mut self.cx.random,
        );
        if let Some(kind) = kind
            && acquired.endpoint().is_some()
        {
            self.cx.emitter.endpoint_chosen(label(id.cluster.0), kind);
        }
        if is_bounded && let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.holds_request = true;
        }
        if takes_host
            && let Some(place) = acquired.endpoint()
            && self.exchanges.name_endpoint(key, place, &mut request, &mut self.cx.buffers)
        {
            head = None;
        }
        self.use_acquired(key, id, (acquired, is_own), request, head, now);
    }

    /// Does with a request what its attempt got.
    #[inline]
    fn use_acquired(
        &mut self,
        key: ExchangeKey,
        id: PoolId,
        (acquired, is_own): (Acquired, bool),
        request: QueuedRequest,
        head: Option<&RequestHead<'_>>,
        now: Time,
    ) {
        match acquired {
            Acquired::Idle(connection, place) => self.exchanges.give(
                key,
                connection,
                place,
                request,
                now,
                &mut self.upstream.pools,
                &mut self.connections,
                &mut self.listen,
                &mut self.cx,
            ),
            Acquired::Shared(connection, place) => {
                self.give_stream(key, connection, place, request, head, now);
            }
            Acquired::Open(place) => {
                let (cluster, is_check) = self.cluster_of(key);
                let request = match is_check || is_own {
                    true => Some(request),
                    false => self.try_spare(key, Some(place), request, now),
                };
                if let Some(request) = request {
                    self.open(key, (&cluster, place), is_own, request, head, now);
                }
            }
            Acquired::Replace(idle, place) => {
                let (cluster, is_check) = self.cluster_of(key);
                if !is_check {
                    self.upstream.pools.keep_connection(id);
                }
                self.close_upstream(idle, None, now);
                self.open(key, (&cluster, place), false, request, head, now);
            }
            Acquired::Wait { place, stays } => {
                let (cluster, _) = self.cluster_of(key);
                let chosen = cluster.endpoints.get(place).map(|endpoint| endpoint.id);
                if let Some(route) = self.exchanges.get_mut(key).and_then(|it| it.route.as_mut()) {
                    route.chosen = chosen;
                }
                let to = stays.then_some(place);
                if let Some(request) = self.try_spare(key, to, request, now) {
                    self.exchanges.enqueue(key, request, now, &mut self.upstream, &mut self.cx);
                    self.want(id);
                }
            }
            Acquired::Reserved | Acquired::Warming => {
                self.exchanges.enqueue(key, request, now, &mut self.upstream, &mut self.cx);
            }
            Acquired::Pause(until) => {
                self.exchanges.enqueue(key, request, now, &mut self.upstream, &mut self.cx);
                self.exchanges.set_deadline(key, Wait::Pause, until, &mut self.cx);
            }
            Acquired::Overflow => self.enqueue_over(key, request, id, now),
            Acquired::Nothing(cause) => self.fail_queued(key, request, cause, now),
        }
    }

    /// The cluster of an attempt, and whether that checks its endpoints' health.
    fn cluster_of(&self, key: ExchangeKey) -> (Arc<Cluster>, bool) {
        let exchange = self.exchanges.get(key).expect("its attempt has not ended");
        let cluster = exchange.cluster().expect("the attempt has found it");
        (Arc::clone(cluster), exchange.check().is_some())
    }

    /// A request waits until this connection says how many streams it takes, if the queue has a place for it. How long that is
    /// established, the bound for connecting says; the one for waiting begins behind that.
    pub(super) fn enqueue_for_settings(
        &mut self,
        key: ExchangeKey,
        connection: ConnKey,
        request: QueuedRequest,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        let Some((cluster, id)) = exchange.cluster().zip(exchange.pool()) else { return };
        let until = now + (cluster.timeouts.connect + cluster.timeouts.pending);
        let is_first = !exchange.deadlines.is_set(Wait::Connection);
        let newest = self.cx.snapshot.cluster(id.cluster).unwrap_or(cluster);
        if self.upstream.pools.takes_place(Pool::new(newest, id.priority)) {
            self.exchanges.enqueue(key, request, now, &mut self.upstream, &mut self.cx);
        } else {
            self.enqueue_over(key, request, id, now);
        }
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        if !is_waiting(Some(exchange)) {
            return;
        }
        if let Some(route) = &mut exchange.route {
            route.awaits = Some(connection);
        }
        if is_first {
            self.exchanges.set_deadline(key, Wait::Connection, until, &mut self.cx);
        }
    }

    /// The queue is full: an exchange takes the place of the newest of a client that has more there.
    fn enqueue_over(&mut self, key: ExchangeKey, request: QueuedRequest, id: PoolId, now: Time) {
        let client = self.exchanges.get(key).map_or(ClientPlace::UNKNOWN, |it| it.client);
        let exchanges = &self.exchanges;
        let is_waiting = |key| is_waiting(exchanges.get(key));
        let newest = match client {
            ClientPlace::COPIES => None,
            // Those in it may be about to leave.
            _ if self.is_leaving_queue(id) => None,
            _ => self.upstream.pools.newest_of_longest(id, client, is_waiting),
        };
        let Some(other) = newest else {
            return self.fail_queued(key, request, Cause::PendingOverflow, now);
        };
        self.upstream.pools.keep_place(id);
        self.fail(other, Cause::PendingOverflow, now);
        self.exchanges.enqueue(key, request, now, &mut self.upstream, &mut self.cx);
        self.want(id);
    }

    pub(super) fn fail_queued(
        &mut self,
        key: ExchangeKey,
        request: QueuedRequest,
        cause: Cause,
        now: Time,
    ) {
        request.clear(&mut self.cx.buffers);
        if cause == Cause::NoEndpoint {
            self.note_removal(key);
        }
        self.fail(key, cause, now);
    }

    /// The cluster of a request has no connection for it. Notes that, if so, because it is gone: what its endpoints
    /// were like does not matter then.
    fn note_removal(&mut self, key: ExchangeKey) {
        let exchange = self.exchanges.get(key).filter(|it| it.record.cause_detail.is_none());
        let Some(cluster) = exchange.and_then(Exchange::cluster) else { return };
        if self.cx.snapshot.cluster(cluster.id).is_none() {
            let reason = Detail::of(&format_args!(
                "a newer configuration has removed the cluster {}, to which the request had no connection yet",
                cluster.name
            ));
            self.exchanges.note_detail(key, || reason);
        }
    }

    /// Gives connections to those that wait for one of a cluster, as far as there are any.
    pub(in crate::proxy) fn serve_cluster(&mut self, id: ClusterId, now: Time) {
        for pool in self.upstream.pools.pools_of(id) {
            self.serve_waiting(pool, now);
        }
    }

    /// The same of one of its pools.
    pub(crate) fn serve_waiting(&mut self, id: PoolId, now: Time) {
        if self.is_leaving_queue(id) {
            return;
        }
        let PoolId { cluster, priority } = id;
        let newest = self.cx.snapshot.cluster(cluster);
        if newest.is_some_and(|it| it.warming.waits()) {
            // All of them, which may be a thousand, would wait again. No check waits here.
            return;
        }
        if newest.is_some_and(|it| self.upstream.pools.can_serve(Pool::new(it, priority))) {
            // Those for which there is no connection say so again.
            self.upstream.pools.end_wanting(id);
        }
        // Each has one chance: an exchange that cannot follow the newest configuration of the cluster
        // may not know the endpoint whose connection is idle, and then waits on.
        for _ in 0..self.upstream.pools.waiting_for(id) {
            let exchanges = &self.exchanges;
            let is_waiting = |key| is_waiting(exchanges.get(key));
            let Some(cluster) = self.cx.snapshot.cluster(cluster).map(Arc::clone) else {
                return self.fail_waiting(id, now);
            };
            let pool = Pool::new(&cluster, priority);
            if !self.upstream.pools.can_serve(pool) {
                return self.want(id);
            }
            let next = self.upstream.pools.next_waiting(pool, &self.listen.clients, is_waiting);
            let Some(key) = next else { return };
            self.leave_queue(key, now);
        }
    }

    /// Gives the first that waits for a connection another try.
    pub(in crate::proxy) fn serve_next(&mut self, id: PoolId, now: Time) {
        if self.is_leaving_queue(id) {
            return;
        }
        let exchanges = &self.exchanges;
        let is_waiting = |key| is_waiting(exchanges.get(key));
        let Some(cluster) = self.cx.snapshot.cluster(id.cluster) else { return };
        let pool = Pool::new(cluster, id.priority);
        let next = self.upstream.pools.next_waiting(pool, &self.listen.clients, is_waiting);
        if let Some(key) = next {
            self.leave_queue(key, now);
        }
    }

    /// The cluster is gone; so is the hope of those that wait for it.
    fn fail_waiting(&mut self, id: PoolId, now: Time) {
        loop {
            let exchanges = &self.exchanges;
            let next = self.upstream.pools.next_in_vain(id, |key| is_waiting(exchanges.get(key)));
            let Some(key) = next else { return };
            if let Some(request) = self.exchanges.take_waiting(key, now) {
                self.fail_queued(key, request, Cause::NoEndpoint, now);
            }
        }
    }

    /// An exchange that was taken out of the queue tries again.
    fn leave_queue(&mut self, key: ExchangeKey, now: Time) {
        if let Some(request) = self.exchanges.take_waiting(key, now) {
            self.attempt(key, request, None, now);
            self.exchanges.note_request(key, &mut self.cx);
        }
    }
}

/// Whether a request is encoded for what its cluster speaks. It is not where it came from a worker or a process whose
/// configuration was another.
fn fits(exchange: &Exchange, request: &QueuedRequest, cluster: &Cluster) -> bool {
    match (&request.form, exchange.kind) {
        (Form::Alone { .. }, ExchangeKind::Tcp | ExchangeKind::Tls) => true,
        (Form::Alone { .. }, _) => cluster.protocol == ClusterProtocol::Http1,
        (Form::Stream { .. }, ExchangeKind::Rpc) => {
            matches!(cluster.protocol, ClusterProtocol::Rpc(_))
        }
        (Form::Stream { .. }, _) => cluster.protocol == ClusterProtocol::Http2,
    }
}
