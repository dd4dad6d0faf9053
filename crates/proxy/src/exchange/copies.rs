//! Exchanges without a downstream: copies of requests that `mirror` of a rule sends to other clusters.
//!
//! ```text
//! request ─► route ─► forward ──────────────────► Attempting … as ever
//!                        │  (a die for each mirror)
//!                        └─► copy: Buffering ─► Retrying ─► Attempting ─► Responding ─► gone
//!                            (grows as the      (the request is whole)    (what comes is dropped)
//!                             request comes)
//! ```
//!
//! A copy is an exchange like any other, with the cluster's balancer, pool and timeouts, but for its downstream, which is
//! [`StreamKey::NONE`](crate::keys::StreamKey::NONE): what is sent there goes nowhere, and a failure is answered by no reply. It is sent
//! once the request is whole, so that a slow client holds no connection of the other cluster, and what it is a copy
//! of never waits for it.
//!
//! *Bound.* All copies of a worker may hold its share of `limits.mirrored_max`, and one a quarter of that. What would go beyond
//! it is dropped: the copy, not the request.
//!
//! *Turns.* Copies have a turn of their own in their cluster's queue, behind all clients that wait there.

use std::time::Duration;

use config::mirrors::Mirror;
use telemetry::cause::Cause;
use telemetry::events::{CopyFinished, ExchangeFinished, MirrorDrop};
use wire::head::Version;

use crate::agenda::Note;
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::exchange::detached::Detached;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::fault::is_warned_of;
use crate::exchange::queued_request::QueuedRequest;
use crate::exchange::{Beginning, Exchange, Request, Route, Wait};
use crate::keys::{ExchangeKey, label};
use crate::listen::clients::ClientPlace;
use crate::tools::detail::Detail;
use crate::tools::time::Time;
use crate::tools::wheel::TimerKey;

/// How long a copy may take, from when it is whole: services that stall keep no room from other copies for longer.
const COPY_TIME_MAX: Duration = Duration::from_secs(60);

impl Exchange {
    /// A copy of it without a downstream, for another cluster.
    pub(crate) fn copy(
        &self,
        mirror: &Mirror,
        detached: Box<Detached>,
        now: Time,
        timer: TimerKey,
    ) -> Self {
        let place = (self.listener, self.chain);
        let beginning = Beginning::detached(self.snapshot.clone(), place, ClientPlace::COPIES, now);
        let request = Request {
            method: self.request.method,
            version: Version::Http11,
            is_persistent: true,
            // It is sent when it is.
            is_complete: true,
            is_one_way: self.request.is_one_way,
            ..Request::NONE
        };
        let of_original = self.route.as_ref();
        let route = Route {
            hash: of_original.and_then(|route| route.hash),
            subset: of_original.and_then(|route| route.subset),
            ..Route::new(None, Some(mirror.cluster))
        };
        let mut copy = Self::new(beginning, request, timer);
        copy.kind = self.kind;
        copy.route = Some(route);
        copy.detached = Some(detached);
        copy.progress.request_bytes = self.progress.request_bytes;
        copy
    }

    /// How long a copy of its request may take: as long as the request, up to a minute.
    pub(crate) fn timeout_of_copies(&self) -> Duration {
        let own = self.forward().and_then(|forward| forward.timeout);
        own.map_or(COPY_TIME_MAX, |own| own.min(COPY_TIME_MAX))
    }

    /// It is over. If its copies wait for the rest of the request, they never get it; if it is one itself, there is room
    /// for others.
    #[inline]
    pub(crate) fn end_copies(&mut self, cx: &mut Cx) {
        self.end_hedge(cx);
        if let Some(copies) = self.copies.take() {
            cx.agenda.0.extend(copies.iter().map(|copy| Note::Abandon(*copy)));
        }
        if let Some(detached) = self.detached.take() {
            detached.let_go(cx);
        }
    }
}

impl Exchanges {
    /// A piece of the body of a request that has copies.
    #[cold]
    pub(crate) fn copy_request_data(&mut self, key: ExchangeKey, data: &[u8], cx: &mut Cx) {
        let Some(copies) = self.get_mut(key).and_then(|it| it.copies.take()) else { return };
        let grow = |copy: &ExchangeKey| {
            self.grow_copy(*copy, cx, |request, cx| request.push_data(data, &mut cx.buffers))
        };
        // One that was dropped is none any more, wherever its request moves.
        let left: Box<[ExchangeKey]> = copies.into_iter().filter(grow).collect();
        if let Some(exchange) = self.get_mut(key).filter(|_| !left.is_empty()) {
            exchange.copies = Some(left);
        }
    }

    /// Adds to a copy that waits for its request. Says whether it waits on: beyond the bound on copies it is dropped.
    fn grow_copy(
        &mut self,
        copy: ExchangeKey,
        cx: &mut Cx,
        push: impl FnOnce(&mut QueuedRequest, &mut Cx),
    ) -> bool {
        let Some(exchange) = self.get_mut(copy) else { return false };
        let Some(request) = exchange.buffered_mut() else { return false };
        let before = request.buffered_bytes();
        push(request, cx);
        let growth = request.buffered_bytes().saturating_sub(before);
        let Some(detached) = &mut exchange.detached else { return false };
        if detached.hold(growth as u64, cx) {
            return true;
        }
        detached.dropped = Some(MirrorDrop::Memory);
        if let Some(request) = exchange.take_buffered() {
            request.clear(&mut cx.buffers);
        }
        cx.agenda.push(Note::Abandon(copy));
        false
    }

    /// The request is whole: its copies are sent when the event is over.
    #[cold]
    pub(crate) fn send_copies(
        &mut self,
        key: ExchangeKey,
        trailers: &[u8],
        now: Time,
        cx: &mut Cx,
    ) {
        let Some(exchange) = self.get_mut(key) else { return };
        let timeout = exchange.timeout_of_copies();
        let body_bytes = exchange.progress.request_bytes;
        let copies = exchange.copies.take();
        for copy in copies.iter().flatten().copied() {
            let end = |request: &mut QueuedRequest, cx: &mut Cx| {
                request.push_end(trailers, &mut cx.buffers);
            };
            if !self.grow_copy(copy, cx, end) {
                continue;
            }
            let Some(exchange) = self.get_mut(copy) else { continue };
            exchange.progress.request_bytes = body_bytes;
            if let Some(request) = exchange.take_buffered() {
                self.note_attempt(copy, request, cx);
                self.set_deadline(copy, Wait::Whole, now + timeout, cx);
            }
        }
    }
}

impl Exchanges {
    /// Restored exchanges have these copies, by their places. A copy without its original is over.
    pub(crate) fn join_copies(
        &mut self,
        exchanges: &[Option<ExchangeKey>],
        copies: &[Vec<u32>],
        cx: &mut Cx,
    ) {
        for (key, places) in exchanges.iter().zip(copies) {
            let all = places.iter().filter_map(|place| *exchanges.get(*place as usize)?);
            let all: Box<[ExchangeKey]> = all.collect();
            if all.is_empty() {
                continue;
            }
            match key.and_then(|key| self.get_mut(key)) {
                Some(exchange) if !exchange.request.is_complete => exchange.copies = Some(all),
                _ => cx.agenda.0.extend(all.iter().map(|copy| Note::Abandon(*copy))),
            }
        }
    }
}

impl Exchange {
    /// Reports a copy that is over. It is in no access log, since no client asked for it.
    #[cold]
    pub(crate) fn report_copy(
        &self,
        detached: &Detached,
        cause: Option<Cause>,
        now: Time,
        connections: &Connections,
        cx: &mut Cx,
    ) {
        let Some(id) = self.route.as_ref().and_then(|route| route.cluster) else { return };
        let cluster = label(id.0);
        if cause == Some(Cause::DownstreamClosed) {
            let reason = detached.dropped.unwrap_or(MirrorDrop::Incomplete);
            return cx.emitter.mirror_dropped(cluster, reason);
        }
        let status = if cause.is_some() { 0 } else { self.record.status };
        match self.progress.attempts {
            0 => cx.emitter.mirror_dropped(cluster, MirrorDrop::Unsent),
            _ => cx.emitter.copy_finished(&CopyFinished { cluster, status }),
        }
        if cx.emitter.is_debug() {
            let cause = cause.map_or("done", Cause::as_str);
            let endpoint = self.endpoint_text(connections);
            let endpoint = String::from_utf8_lossy(endpoint.as_bytes()).into_owned();
            let words = format_args!("end of a copy: {cause}, status {status}, {endpoint}");
            cx.debug(self.downstream, words, now);
        }
        if let Some(cause) = cause.filter(|cause| is_warned_of(*cause)) {
            self.warn_of_copy(cause, now, connections, cx);
        }
    }

    fn warn_of_copy(&self, cause: Cause, now: Time, connections: &Connections, cx: &mut Cx) {
        let at = cx.wall_clock_zero.saturating_add(now.as_nanos());
        let listener = label(self.listener().id.0);
        let cluster = self.route.as_ref().and_then(|route| route.cluster).map(|id| label(id.0));
        let failures = cx.emitter.note_failure(cluster, listener, cause, at);
        if failures == 0 {
            return;
        }
        let detail = self.record.cause_detail.as_ref();
        cx.emitter.copy_failed(&ExchangeFinished {
            listener,
            cluster,
            cause: Some(cause),
            failures,
            endpoint: self.endpoint_text(connections).as_bytes(),
            cause_detail: detail.map_or(&[], Detail::as_bytes),
            ..ExchangeFinished::EMPTY
        });
    }
}
