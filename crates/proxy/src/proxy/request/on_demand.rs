//! A cluster that is not there, and that a source is asked for once a request needs it.
//!
//! The request waits as one does whose filter asks: its head is parked, and the question is data that is asked again wherever the
//! exchange goes. It has no rule yet when it goes on, since how it is encoded depends on its cluster. What cannot wait, a copy of a
//! request or a relayed connection, fails as it does without such a source, and asks for those that come later.

use std::time::Duration;

use config::reports::ON_DEMAND_TOPIC;
use config::snapshot::ClusterId;
use telemetry::cause::Cause;
use wire::head::RequestHead;

use crate::exchange::Wait;
use crate::filter::Question;
use crate::filter::filter_chain::FilterStep;
use crate::keys::ExchangeKey;
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::time::Time;

/// Between two questions of what does not wait. These come as fast as clients like.
const ASIDE_INTERVAL: Duration = Duration::from_millis(10);

impl Proxy {
    /// Lets a request wait for its cluster, if that is not there and a source is asked for it. Returns whether it waits.
    pub(super) fn await_cluster(
        &mut self,
        key: ExchangeKey,
        head: &RequestHead<'_>,
        now: Time,
    ) -> bool {
        let Some(exchange) = self.exchanges.get_mut(key) else { return false };
        if exchange.cluster().is_some() {
            return false;
        }
        let Some(route) = &mut exchange.route else { return false };
        let Some(id) = route.cluster else { return false };
        if self.cx.snapshot.cluster(id).is_some() {
            route.newer = Some(self.cx.snapshot.clone());
            return false;
        }
        let timeout = exchange.snapshot.resolvers.on_demand_timeout;
        let step = FilterStep::Head(exchange.listener().filters.len());
        let Some(question) = self.question_for(id).filter(|_| !timeout.is_zero()) else {
            return false;
        };
        self.exchanges.suspend(key, step, question, timeout, head, now, &mut self.cx);
        true
    }

    /// What a source said about the cluster that a request waits for.
    pub(super) fn on_cluster_answer(
        &mut self,
        key: ExchangeKey,
        answer: &[u8],
        head: &mut RequestHead<'_>,
        until: Time,
        now: Time,
    ) {
        if !answer.is_empty() {
            self.exchanges.note_detail(key, || Detail::of(&String::from_utf8_lossy(answer)));
            return self.fail(key, Cause::NoCluster, now);
        }
        self.route(key, head, now);
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        // Another cluster may have been chosen: all that it waits for has the time of one.
        if exchange.awaits_cluster() {
            exchange.set_deadline(Wait::Filter, until, &mut self.cx);
        }
    }

    /// Asks for the cluster of something that does not wait for it, now and then.
    pub(super) fn ask_for_cluster(&mut self, key: ExchangeKey, id: ClusterId, now: Time) {
        if self.cx.snapshot.clusters_on_demand.is_unused() || now < self.cx.asks_aside_at {
            return;
        }
        let Some(question) = self.question_for(id) else { return };
        self.cx.asks_aside_at = now + ASIDE_INTERVAL;
        self.cx.ops.push_back(Op::Ask { exchange: key, question });
    }

    fn question_for(&self, id: ClusterId) -> Option<Question> {
        let name = self.cx.snapshot.clusters_on_demand.find(id.0)?;
        Some(Question { topic: ON_DEMAND_TOPIC.into(), payload: name.as_bytes().into() })
    }
}
