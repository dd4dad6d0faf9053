//! What the clients of a listener hold in buffers, and whose connections end when that is too much.
//!
//! Each connection is bounded by itself: the size of a head, a queue either way, the windows of
//! HTTP/2. `buffered_max` of a listener bounds all of them together. Nothing is counted while bytes
//! come and go: what a connection holds follows from its state, and is added up at a *look*, ten
//! times a second at most, and only while all buffers of the worker together are larger than the
//! smallest bound of a listener. So the sum cannot drift, a restored connection is in it, and an
//! exchange pays nothing for it. Between two looks a listener may be over its bound by what comes
//! in that time. The clients of all listeners together are bounded in the same way to half of `limits.memory_max`; there, exchanges
//! count, too, and the next look comes after a few events where all that has grown by an eighth of the bound, since one client with many
//! streams can fill the rest of the memory in less time.
//!
//! ```text
//! held by the worker > smallest bound ─► look ─► a listener over its own, or all ─► its largest holders end
//!                                         ▲ └── none ──┐
//!                                         └── 100 ms ──┘
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
use crate::keys::label;
use crate::listen::Listen;
use crate::tools::time::Time;

/// Time between two looks, for each [`LOOKED_AT_ONCE`] connections of the worker.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Connections that one interval pays for: a look at so many takes about a millisecond.
pub(crate) const LOOKED_AT_ONCE: usize = 16_384;

impl Listen {
    /// When to look at what is held, if all buffers together are more than one listener's bound, or more
    /// than the memory allows with the `exchange_bytes` beside them.
    pub(crate) fn buffered_due(&self, exchange_bytes: u64, cx: &Cx) -> Option<Time> {
        let least = cx.snapshot.listener_bounds.buffered_bytes_least.unwrap_or(u64::MAX);
        let most = cx.memory.buffered_bytes_max();
        let buffered = cx.buffers.usage().bytes;
        let is_over = buffered > cx.share.of_bytes(least)
            || buffered.saturating_add(exchange_bytes) > cx.share.of_bytes(most);
        (is_over && !cx.has_part_of_group).then_some(self.buffered_look)
    }

    /// Sets the gauges to what the last look found.
    pub(crate) fn tell_buffered(&self, cx: &mut Cx) {
        for (listener, buffered_bytes) in self.listeners.buffered() {
            cx.emitter.listener_gauges(label(listener.0), &ListenerGauges { buffered_bytes });
        }
    }
}
