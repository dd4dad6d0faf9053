//! Hop 7: the rule of a request, and what it says: to forward it, with which hop 8 begins, to respond, or to
//! redirect.

use config::matching::Asked;
use config::snapshot::{Action, ClusterProtocol, Forward};
use telemetry::cause::Cause;
use wire::head::{Method, RequestHead};
use wire::upgrade::websocket_accept;

use crate::connection::transport::Tls;
use crate::exchange::queued_request::ATTEMPT_COUNT;
use crate::exchange::route::Missed;
use crate::exchange::{ExchangeKind, Handshake, Route, Wait, asked_retries, asked_timeout, route};
use crate::keys::ExchangeKey;
use crate::proxy::Proxy;
use crate::tools::time::Time;

impl Proxy {
    /// Hop 7: finds the rule and does what it says.
    pub(super) fn route(&mut self, key: ExchangeKey, head: &mut RequestHead<'_>, now: Time) {
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
                return match why {
                    Some(why) => self.fail_with(key, cause, &why, now),
                    None => self.fail(key, cause, now),
                };
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
                self.redirect(key, redirect, head, now);
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
            let asked = head.upgrade().unwrap_or_default().escape_ascii();
            let words = format_args!("upgrades of the rule does not contain {asked}");
            return self.fail_with(key, Cause::RequestNotImplemented, &words, now);
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
        if exchange.may_buffer() && exchange.is_short(&self.upstream.pools, &self.cx) {
            return self.exchanges.buffer_request(key, request, now, &mut self.cx);
        }
        self.ask(key, request, Some(head), now);
    }
}
