//! What a rule's `retry` adds to an exchange: its request is kept for longer, each attempt has a bound, and it counts
//! in the budget of its cluster.

use config::retry::{AskedRetries, RetryPolicy};
use config::snapshot::EndpointId;
use wire::head::{Framing, RequestHead, ResponseHead};

use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::queued_request::QueuedRequest;
use crate::exchange::{Exchange, Wait};
use crate::keys::ExchangeKey;
use crate::tools::time::Time;
use crate::upstream::pool::{Pool, Pools};

impl Exchange {
    /// Its rule's `retry`.
    pub(crate) fn retry_policy(&self) -> Option<&RetryPolicy> {
        if !self.progress.has_retries {
            return None;
        }
        let asked = self.own_retries.as_ref().and_then(|own| own.asked.as_ref());
        match asked {
            Some((_, policy)) => Some(policy),
            None => self.forward()?.retry.as_deref(),
        }
    }

    /// Whether a response of any status may be retried, for a field that it has.
    pub(crate) fn retries_on_headers(&self) -> bool {
        self.retry_policy().is_some_and(RetryPolicy::is_on_headers)
    }

    /// Whether an attempt follows this response, as far as its rule says.
    pub(crate) fn asks_to_repeat(&self, head: &ResponseHead<'_>, is_end: bool) -> bool {
        let is_call = is_end && self.call.is_some();
        self.retry_policy().is_some_and(|policy| {
            policy.is_on_status(head.status())
                || policy.is_on_header(|name| head.find(name).is_some())
                || (is_call && grpc_status(head).is_some_and(|it| policy.is_on_grpc_status(it)))
        })
    }

    /// It asks for retries beside its rule's. Returns what holds then, if anything does.
    #[cold]
    pub(crate) fn ask_for_retries(&mut self, asked: AskedRetries) {
        let rule = self.forward().and_then(|forward| forward.retry.as_deref());
        if let Some(policy) = RetryPolicy::with_asked(rule, &asked) {
            self.own_retries.get_or_insert_default().asked = Some((asked, policy));
        }
    }

    /// What it asked for.
    pub(crate) fn asked_retries(&self) -> Option<&AskedRetries> {
        self.own_retries.as_ref()?.asked.as_ref().map(|(asked, _)| asked)
    }

    /// Whether its rule has a `retry`, or it asked for one.
    pub(crate) fn may_have_retries(&self) -> bool {
        self.asked_retries().is_some() || self.forward().is_some_and(|it| it.retry.is_some())
    }

    /// The endpoints of attempts that failed, where the next goes to another.
    #[inline]
    pub(crate) fn tried(&self) -> &[EndpointId] {
        self.own_retries.as_ref().map_or(&[], |own| &own.tried)
    }

    /// An attempt failed whose endpoint the next ones pass over, if its rule says so.
    pub(crate) fn note_tried(&mut self) {
        if !self.retry_policy().is_some_and(|policy| policy.avoids_previous) {
            return;
        }
        let place = self.route.as_ref().and_then(|route| route.endpoint);
        let endpoint = place.and_then(|place| self.cluster()?.endpoints.get(place)).map(|it| it.id);
        let own = self.own_retries.get_or_insert_default();
        if let Some(endpoint) = endpoint.filter(|it| !own.tried.contains(it)) {
            // Attempts are bounded, and so are these.
            own.tried.push(endpoint);
        }
    }

    /// Its rule has a `retry`, or it asked for one: it counts from now on, and its request is kept as far as that says.
    #[cold]
    pub(crate) fn begin_retries(
        &mut self,
        body_bytes_max: u64,
        head: &RequestHead<'_>,
        request: &mut QueuedRequest,
        pools: &mut Pools,
        cx: &mut Cx,
    ) {
        let length = match head.framing() {
            Framing::Length(length) => length,
            _ => self.progress.request_bytes,
        };
        if length <= body_bytes_max {
            request.outbox.keep_all();
        }
        self.count_retries(false, pools, cx);
    }

    /// It counts in the budget of its cluster, and so do its retries.
    pub(crate) fn count_retries(&mut self, is_retry: bool, pools: &mut Pools, cx: &mut Cx) {
        let Some(cluster) = self.cluster() else { return };
        let pool = Pool::new(cluster, self.priority());
        pools.on_retriable_begun(pool, is_retry, || cx.random.next());
        self.progress.has_retries = true;
        self.progress.is_retry = is_retry;
    }

    /// It counts there no more.
    #[inline]
    pub(crate) fn end_retries(&mut self, pools: &mut Pools) {
        if std::mem::take(&mut self.progress.has_retries)
            && let Some(pool) = self.pool()
        {
            pools.on_retriable_over(pool, std::mem::take(&mut self.progress.is_retry));
        }
    }

    /// An attempt begins whose request is here whole.
    #[cold]
    pub(crate) fn begin_try(&mut self, now: Time, cx: &mut Cx) {
        let timeout = self.retry_policy().and_then(|policy| policy.try_timeout);
        if let Some(timeout) = timeout {
            self.set_deadline(Wait::Try, now + timeout, cx);
        }
    }
}

/// The status that a response of gRPC has in its head, which then is all of it.
pub(crate) fn grpc_status(head: &ResponseHead<'_>) -> Option<u32> {
    str::from_utf8(head.find(b"grpc-status")?).ok()?.parse().ok()
}

impl Exchanges {
    /// Makes an exchange wait before its next attempt. Its request waits with it.
    pub(crate) fn pause(
        &mut self,
        key: ExchangeKey,
        request: QueuedRequest,
        (now, until): (Time, Time),
        cx: &mut Cx,
    ) {
        let Some(exchange) = self.get_mut(key) else {
            return request.clear(&mut cx.buffers);
        };
        exchange.begin_pause(request, now);
        exchange.set_deadline(Wait::Backoff, until, cx);
    }

    /// The pause is over.
    pub(crate) fn on_backoff_over(&mut self, key: ExchangeKey, now: Time, cx: &mut Cx) {
        let Some(exchange) = self.get_mut(key) else { return };
        exchange.deadlines.clear(Wait::Backoff);
        let (_, first) = exchange.deadlines.first();
        cx.timers.arm(exchange.timer, first);
        if let Some((request, since)) = exchange.take_paused() {
            exchange.record.stamps.on_pause_over(since, now);
            self.note_attempt(key, request, cx);
        }
    }
}
