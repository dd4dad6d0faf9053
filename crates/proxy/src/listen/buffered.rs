//! What the clients of a listener hold in buffers, and whose connections end when that is too much.
//!
//! Each connection is bounded by itself: the size of a head, a queue either way, the windows of
//! HTTP/2. `buffered_max` of a listener bounds all of them together. Nothing is counted while bytes
//! come and go: what a connection holds follows from its state, and is added up at a *look*, ten
//! times a second at most, and only while all buffers of the worker together are larger than the
//! smallest bound of a listener. So the sum cannot drift, a restored connection is in it, and an
//! exchange pays nothing for it. Between two looks a listener may be over its bound by what comes
//! in that time. The clients of all listeners together are bounded in the same way to half of `limits.memory_max`.
//!
//! ```text
//! buffers of the worker > smallest bound ─► look ─► a listener over its own, or all ─► its largest holders end
//!                                            ▲ └── none ──┐
//!                                            └── 100 ms ──┘
//! ```
//!
//! Each look sets the gauges of all listeners, and so does another one every ten seconds for them alone.
//! Control learns how many connections were closed at a look ([`Op::BufferedOverflow`](crate::Op::BufferedOverflow)).
//!
//! Envoy resets the streams with the largest accounts when its overload manager, which samples, says
//! that memory is short. The order here is the same: by powers of two of what is held, and of those
//! alike the client that has been waited for longest.

use std::time::Duration;

use telemetry::events::ListenerGauges;

use crate::cx::Cx;
use crate::exchange::record::label;
use crate::exchange::stage::{Stage, Suspended};
use crate::exchange::{Exchange, Wait};
use crate::listen::Listen;
use crate::tools::time::Time;

/// Time between two looks, for each [`LOOKED_AT_ONCE`] connections of the worker.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Connections that one interval pays for: a look at so many takes about a millisecond.
pub(crate) const LOOKED_AT_ONCE: usize = 16_384;

impl Listen {
    /// When to look at what is held, if all buffers together are more than one listener's bound.
    pub(crate) fn buffered_due(&self, cx: &Cx) -> Option<Time> {
        let least = cx.snapshot.listener_bounds.buffered_bytes_least;
        let least = least.unwrap_or(u64::MAX).min(cx.memory.buffered_bytes_max());
        let least = cx.share.of_bytes(least);
        (cx.buffers.usage().bytes > least && !cx.is_placing).then_some(self.buffered_look)
    }

    /// Sets the gauges to what the last look found.
    pub(crate) fn tell_buffered(&self, cx: &mut Cx) {
        for (listener, buffered_bytes) in self.listeners.buffered() {
            cx.emitter.listener_gauges(label(listener.0), &ListenerGauges { buffered_bytes });
        }
    }
}

impl Exchange {
    /// Since when its client is to send its body, or to take its response, if it is.
    pub(crate) fn waits_for_client_since(&self) -> Option<Time> {
        let timeouts = &self.listener().timeouts;
        let waits = [
            (Wait::RequestBody, timeouts.request_body),
            (Wait::ResponseWrite, timeouts.response_write),
        ];
        let waits = waits.into_iter();
        waits.filter_map(|(wait, timeout)| before(self.deadlines.get(wait), timeout)).min()
    }

    /// Bytes of the buffers that it has beside those of its connections.
    pub(crate) fn buffered_bytes(&self) -> usize {
        let stage = match self.stage() {
            Stage::Suspended(Suspended { head, .. }) | Stage::Gathering { head, .. } => {
                head.capacity()
            }
            Stage::Buffering { request }
            | Stage::Waiting { request }
            | Stage::Pausing { request, .. }
            | Stage::Retrying { request } => request.buffered_bytes(),
            Stage::Attempting { .. } | Stage::Responding { .. } | Stage::Finishing => 0,
        };
        let gathered = self.gathered.as_ref().map_or(0, |gathered| gathered.body.capacity());
        let held = self.held.as_ref();
        stage + gathered + held.map_or(0, |held| held.head.capacity() + held.body.capacity())
    }
}

/// So long before a deadline, if that is set.
pub(crate) fn before(deadline: Time, timeout: Duration) -> Option<Time> {
    let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    deadline.is_set().then(|| Time::from_nanos(deadline.as_nanos().saturating_sub(timeout)))
}
