//! The process is near `limits.memory_max`: what a worker does about it (`config::memory`).

use std::time::Duration;

use config::memory::{MemoryLevel, MemoryPressure};
use telemetry::cause::Cause;

use crate::connection::{Connection, UpstreamState};
use crate::keys::ExchangeKey;
use crate::listen::accepting::of_memory;
use crate::proxy::Proxy;
use crate::tools::time::Time;

/// Idle connections that close at a time; the next ones close a [`PAUSE`] later, so that others are served in between.
const CLOSED_AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);

impl Proxy {
    /// Control says how near the process is to its bound on memory, and what buffers have to hold less.
    pub fn set_memory(&mut self, memory: MemoryPressure, now: Time) {
        let former = std::mem::replace(&mut self.cx.memory, memory);
        if memory.level >= MemoryLevel::High && former.level < MemoryLevel::High {
            self.close_idle(now);
        }
        if memory.releases_free {
            self.cx.buffers.release_free();
        }
        let excess_bytes = self.cx.share.of_bytes(memory.excess_bytes);
        if excess_bytes > 0 {
            self.end_holders_of(excess_bytes, now);
            self.cx.buffers.release_free();
        }
        self.set_buffers_threshold();
        self.settle(now);
    }

    /// A new request, or call, is refused since there is too little memory.
    #[cold]
    pub(in crate::proxy) fn refuse_overloaded(&mut self, key: ExchangeKey, now: Time) {
        let memory = self.cx.memory;
        self.exchanges.note_detail(key, || of_memory(memory));
        self.fail(key, Cause::Overloaded, now);
    }

    /// Has the connections close soon on which nothing is under way.
    fn close_idle(&mut self, now: Time) {
        let (mut one_by_one, mut multiplexed) = (Vec::new(), Vec::new());
        for (key, connection) in self.connections.table.iter() {
            match connection.multiplex() {
                None if is_idle(connection) => one_by_one.push(connection.timer),
                Some(all) if connection.downstream().is_some() && all.streams.is_empty() => {
                    multiplexed.push(key);
                }
                _ => {}
            }
        }
        for (timers, pause) in one_by_one.chunks(CLOSED_AT_ONCE).zip(0..) {
            let deadline = now + PAUSE * pause;
            for timer in timers {
                if deadline < self.cx.timers.deadline(*timer) {
                    self.cx.timers.arm(*timer, deadline);
                }
            }
        }
        for key in multiplexed {
            self.connections.begin_goaway(key, now, &mut self.cx);
        }
    }
}

/// Whether a connection is kept for a next request alone.
fn is_idle(connection: &Connection) -> bool {
    if let Some(upstream) = connection.upstream() {
        return matches!(upstream.state, UpstreamState::Idle(_));
    }
    connection.downstream().is_some_and(|downstream| {
        downstream.exchange.is_none()
            && downstream.lingering.is_none()
            && !downstream.head_began.is_set()
            && connection.opening().is_none()
    })
}
