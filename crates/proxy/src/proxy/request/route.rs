//! Hops 7 and 8: the rule of a request, and its body on the way to the upstream.
//!
//! Data, ends and resets go to the other side's connection, which frames them as it needs.

use config::matching::Asked;
use config::snapshot::{Action, ClusterProtocol, Forward};
use telemetry::cause::Cause;
use wire::head::{Method, RequestHead};
use wire::upgrade::websocket_accept;

use crate::connection::transport::Tls;
use crate::exchange::queued_request::ATTEMPT_COUNT;
use crate::exchange::route::Missed;
use crate::exchange::stage::Stage;
use crate::exchange::{
    Exchange, ExchangeKind, Handshake, Route, Wait, asked_retries, asked_timeout, route,
};
use crate::keys::{ExchangeKey, StreamKey};
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::sent::Sent;
use crate::tools::time::Time;

impl Proxy {
    // Routing.

    /// Hop 7: finds the rule and does what it says.
    pub(crate) fn route(&mut self, key: ExchangeKey, head: &mut RequestHead<'_>, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let snapshot = exchange.snapshot.clone();
        let asks_tunnel = head.method() == Method::Connect && !head.is_extended_connect();
        let downstream = self.connections.get(exchange.downstream.connection);
        let tls = downstream.and_then(|connection| connection.tls.as_deref());
        let ip = || downstream.and_then(|connection| connection.peer.ip());
        let mut asked = Asked {
            head,
            source: exchange.record.client.or_else(ip),
            client: tls.and_then(Tls::client_cert).map(|client| client.peer),
            die: 0,
        };
        let listener = exchange.listener();
        let (searches, random) = (&mut self.cx.searches, &mut self.cx.random);
        let met = route::meet(&snapshot, listener, &mut asked, searches, || random.next());
        let route::Found { table, place, rule } = match met {
            Ok(found) => found,
            Err(Missed { cause, why }) => {
                if let Some(why) = why {
                    self.exchanges.note_detail(key, || Detail::of(&why));
                }
                return self.fail(key, cause, now);
            }
        };
        // A file of the largest size has fewer rules than that by far.
        let rule_place = u32::try_from(place).ok().map(|place| (table.id, place));
        let mut route = Route::new(rule_place, None);
        if self.cx.emitter.is_debug() {
            let words = format_args!("rule {place} of route table {}", table.name);
            self.cx.debug(exchange.downstream, words, now);
        }
        match &rule.action {
            Action::Forward(forward) => {
                let newest = &self.cx.snapshot;
                // One that it waited for is in the newest alone.
                let cluster = |id| snapshot.cluster(id).or_else(|| newest.cluster(id));
                let is_by_hash = |id| cluster(id).is_some_and(|it| it.balancer.is_by_hash());
                let (searches, random) = (&mut self.cx.searches, &mut self.cx.random);
                let chosen = route.choose(forward, &asked, is_by_hash, searches, random);
                route.has_edits = route::edits_response(table, rule, route.share);
                exchange.route = Some(route);
                let Some(chosen) = chosen else {
                    exchange.keep_for_response(head, &mut self.cx);
                    return self.fail(key, Cause::NoCluster, now);
                };
                let exchange = if snapshot.clusters_on_demand.is_unused() {
                    exchange
                } else {
                    // A reply to one that waits in vain is edited, too.
                    exchange.keep_for_response(head, &mut self.cx);
                    if self.await_cluster(key, head, now) {
                        return;
                    }
                    let Some(exchange) = self.exchanges.get_mut(key) else { return };
                    exchange
                };
                if asks_tunnel {
                    return self.open_tunnel(key, now);
                }
                if table.has_edits {
                    exchange.edit_request(head, &self.connections, &mut self.cx, now);
                }
                let slashes = exchange.listener().http.slashes;
                let rewriting = &mut self.cx.rewriting;
                let rewritten =
                    route::rewrite(forward, chosen.host, &rule.path, head, slashes, rewriting);
                if table.has_edits {
                    exchange.keep_for_response(head, &mut self.cx);
                }
                if rewritten.is_err() {
                    return self.fail(key, Cause::RequestTargetInvalid, now);
                }
                self.forward(key, forward, head, now);
            }
            Action::Respond(respond) => {
                route.has_edits = route::edits_response(table, rule, None);
                exchange.route = Some(route);
                exchange.keep_for_response(head, &mut self.cx);
                self.respond(key, respond, now);
            }
            Action::Redirect(redirect) => {
                route.has_edits = route::edits_response(table, rule, None);
                exchange.route = Some(route);
                exchange.keep_for_response(head, &mut self.cx);
                let slashes = exchange.listener().http.slashes;
                let rewriting = &mut self.cx.rewriting;
                if route::rewrite_for(redirect, &rule.path, head, slashes, rewriting).is_err() {
                    return self.fail(key, Cause::RequestTargetInvalid, now);
                }
                self.redirect(key, redirect, &rule.path, head, now);
            }
        }
    }

    /// Hop 8 begins: encodes the request and asks for a connection.
    fn forward(
        &mut self,
        key: ExchangeKey,
        forward: &Forward,
        head: &mut RequestHead<'_>,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let asks_upgrade =
            head.upgrade().is_some_and(|value| route::allows_upgrade(&forward.upgrades, value));
        exchange.request.asks_upgrade = asks_upgrade;
        if exchange.request.is_extended_connect && !asks_upgrade {
            return self.fail(key, Cause::RequestNotImplemented, now);
        }
        let asked_retries = match exchange.kind {
            ExchangeKind::Rpc => None,
            _ if head.has_unusual_names() && exchange.listener().http.trust_retries => {
                asked_retries::read(head)
            }
            _ => None,
        };
        let asked = match exchange.kind {
            ExchangeKind::Rpc => None,
            _ => asked_timeout::take(head, exchange.listener().http.trust_timeouts),
        };
        let timeout = exchange.bound_call(head, asked.unwrap_or(forward.timeout));
        if !forward.mirrors.is_empty() && !asks_upgrade {
            self.mirror(key, forward, head, now);
        }
        let exchange = self.exchanges.get_mut(key).expect("making copies ends no exchange");
        let is_complete = exchange.request.is_complete;
        let is_shared = match exchange.cluster().map(|cluster| &cluster.protocol) {
            Some(ClusterProtocol::Rpc(_)) => return self.forward_call(key, forward, head, now),
            _ if exchange.kind == ExchangeKind::Rpc => {
                return self.forward_call(key, forward, head, now);
            }
            protocol => matches!(protocol, Some(ClusterProtocol::Http2)),
        };
        let gathered = exchange.gathered.take();
        if asks_upgrade && is_shared && exchange.downstream.is_alone() {
            let key = head.find(b"sec-websocket-key");
            exchange.handshake = head.upgrade().map(|protocol| {
                let (protocol, accept) = (protocol.into(), key.map(websocket_accept));
                Box::new(Handshake { protocol, accept })
            });
        }
        if let Some(asked) = asked_retries {
            exchange.ask_for_retries(asked);
        }
        let retries = match exchange.own_retries.as_ref().and_then(|own| own.asked.as_ref()) {
            Some((_, policy)) => Some(policy),
            None => forward.retry.as_deref(),
        };
        let kept_bytes_max = retries.map(|policy| policy.body_bytes_max);
        if retries.is_some_and(|policy| policy.tells_attempts) {
            head.set(ATTEMPT_COUNT, b"1");
        }
        let mut request = if is_shared {
            // What follows a change of protocols belongs to the new one.
            self.cx.encode_for_stream(head, is_complete && !asks_upgrade)
        } else {
            exchange.encode_whole(head, asks_upgrade, &self.connections, &mut self.cx)
        };
        if let Some(bytes_max) = kept_bytes_max {
            let pools = &mut self.upstream.pools;
            exchange.begin_retries(bytes_max, head, &mut request, pools, &mut self.cx);
        }
        if let Some(gathered) = gathered {
            self.cx.push_gathered(*gathered, is_complete, &mut request);
        }
        if let Some(timeout) = timeout {
            exchange.set_deadline(Wait::Whole, now + timeout, &mut self.cx);
        }
        // It may have to wait until more of its body is here.
        if exchange.may_buffer() && self.upstream.is_short(exchange, &self.cx) {
            return self.exchanges.buffer_request(key, request, now, &mut self.cx);
        }
        self.ask(key, request, Some(head), now);
    }

    // Elements of the request.

    /// A piece of the request body.
    pub(crate) fn on_request_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        self.exchanges.count_request_data(key, data.len(), now);
        let Some(exchange) = self.exchanges.get(key) else { return };
        let bytes_max = exchange.listener().http.body_bytes_max;
        if !exchange.progress.is_tunnel
            && bytes_max.is_some_and(|max| exchange.progress.request_bytes > max)
        {
            return self.fail(key, Cause::RequestBodyTooLarge, now);
        }
        if exchange.call.is_none() {
            return self.pass_request_data(key, data, now);
        }
        let pass = |proxy: &mut Self, data: &[u8]| proxy.pass_request_data(key, data, now);
        if let Err(cause) = self.translate_request(key, data, pass) {
            self.fail(key, cause, now);
        }
    }

    /// A piece of the request body as it goes on.
    fn pass_request_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.show_request_data(data);
        if exchange.copies.is_some() {
            self.exchanges.copy_request_data(key, data, &mut self.cx);
        }
        let exchange = self.exchanges.get(key).expect("filling copies ends no exchange");
        let is_gathering = matches!(exchange.stage(), Stage::Gathering { .. });
        let is_buffering = matches!(exchange.stage(), Stage::Buffering { .. });
        let (upstream, has_retries) = (exchange.upstream(), exchange.progress.has_retries);
        if is_gathering || is_buffering || upstream.is_some() {
            self.exchanges.await_request_data(key, data.len(), now, &mut self.cx);
        }
        if is_buffering {
            return self.buffer_request_data(key, data, now);
        }
        if is_gathering {
            return self.gather_request_data(key, data, now);
        }
        let Some(upstream) = upstream else { return };
        if has_retries {
            self.bound_kept_request(key, upstream);
        }
        if self.exchanges.get(key).is_some_and(Exchange::moves_on) {
            self.exchanges.restart_stall(key, now);
        }
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        if connection.is_send_broken {
            // The upstream takes nothing more, but may have answered: the rest is dropped.
            return connection.forget_body(upstream.slot, &mut self.cx.buffers);
        }
        self.connections.send_data(upstream, data, &mut self.cx);
    }

    /// The end of the request, with its trailer section.
    pub(crate) fn on_request_end(&mut self, key: ExchangeKey, trailers: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        exchange.request.is_complete = true;
        exchange.on_request_whole(now);
        exchange.record.stamps.on_body(now);
        exchange.deadlines.clear(Wait::RequestBody);
        if !matches!(exchange.stage(), Stage::Responding { .. }) {
            exchange.end_stall(&mut self.exchanges.stalls);
        }
        let is_tunnel = exchange.progress.is_tunnel;
        if !is_tunnel && !matches!(exchange.stage(), Stage::Responding { .. }) {
            exchange.deadlines.clear(Wait::TunnelIdle);
        }
        let upstream = exchange.upstream();
        if exchange.progress.has_retries && matches!(exchange.stage(), Stage::Attempting { .. }) {
            exchange.begin_try(now, &mut self.cx);
        }
        let has_call = exchange.call.is_some();
        if let Some(downstream) = self.connections.get_mut(exchange.downstream.connection) {
            downstream.codec.complete_read();
        }
        if has_call && let Err(cause) = self.exchanges.end_call_request(key) {
            return self.fail(key, cause, now);
        }
        let mut room = Vec::new();
        let trailers = match self.exchanges.screen_trailers(key, trailers, &mut room, &mut self.cx)
        {
            Ok(trailers) => trailers,
            Err(cause) => return self.fail(key, cause, now),
        };
        let exchange = self.exchanges.get(key).expect("looking at trailers ends no exchange");
        if exchange.copies.is_some() {
            self.exchanges.send_copies(key, trailers, now, &mut self.cx);
        }
        let exchange = self.exchanges.get(key).expect("sending copies ends no exchange");
        if matches!(exchange.stage(), Stage::Gathering { .. }) {
            return self.on_request_gathered(key, trailers, now);
        }
        if matches!(exchange.stage(), Stage::Buffering { .. }) {
            return self.on_request_buffered(key, trailers, now);
        }
        let Some(upstream) = upstream else { return };
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        if connection.is_send_broken {
            return connection.forget_body(upstream.slot, &mut self.cx.buffers);
        }
        let is_connecting = connection.is_connecting();
        let is_sent = self.connections.send_end(upstream, trailers, &mut self.cx);
        if is_sent && !is_connecting && upstream.is_alone() {
            self.on_upstream_sent(upstream.connection, Sent::nothing(now), now);
        }
        if is_tunnel {
            self.finish_tunnel(key, now);
        }
    }

    /// Reads on, on a connection or a stream.
    pub(crate) fn resume_source(&mut self, source: StreamKey, now: Time) {
        if source.is_alone() {
            self.resume_inbox(source.connection, now);
        } else {
            self.resume_stream(source, now);
        }
    }
}
