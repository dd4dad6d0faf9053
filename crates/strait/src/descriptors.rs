//! How the descriptors of the process are divided.
//!
//! ```text
//!   0 ......... accept_max ........ connect_max ........ limit on open files
//!   │ clients and upstreams │ upstreams alone │ admin, logs, files │
//! ```
//!
//! A client that is accepted needs a connection to an upstream too, so clients get half of what is
//! left: beyond it they are closed at once, which is better than an answer of 503 to all of them.

use ::handover::Downstream;
use config::snapshot::Limits;
use worker::DescriptorBounds;

/// Descriptors that connections leave to the admin interface (64 connections on each of its sockets),
/// access log, configuration files, certificates and new listeners.
const RESERVED: u64 = 128;

/// Descriptors that clients leave to connections to upstreams, so that an accepted client is served.
const RESERVED_FOR_CONNECTING: u64 = 128;

/// Either takes no more than this part of a low limit.
const RESERVED_PART: u64 = 8;

/// Descriptors that a worker opens once it runs: epoll, and a pipe that bytes pass through.
const WORKER: u64 = 3;

/// Descriptors that control opens once it runs: epoll and wakers, signals, the watch on files.
const CONTROL: u64 = 12;

/// The division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// The limit on open files.
    pub(crate) limit: u64,
    pub(crate) bounds: DescriptorBounds,
    /// Downstream connections that there is room for, in the process.
    pub(crate) connections_max: u32,
}

impl Descriptors {
    /// Of a process that may open `limit` descriptors, and has opened `open` before its threads start.
    pub(crate) fn divide(limit: u64, open: u64, workers: u32) -> Self {
        let part = limit / RESERVED_PART;
        let connect_max = limit - RESERVED.min(part);
        let accept_max = connect_max - RESERVED_FOR_CONNECTING.min(part);
        let fixed = open + CONTROL + u64::from(workers) * WORKER;
        let room = connect_max.saturating_sub(fixed) / 2;
        let room = room.min(accept_max.saturating_sub(fixed)).max(1);
        let connections_max = u32::try_from(room).unwrap_or(u32::MAX);
        let bounds = DescriptorBounds { accept_max, connect_max };
        Self { limit, bounds, connections_max }
    }

    /// Refuses to take the place of a process that may open more files than this one, and has as many downstream connections as this one has room for.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub(crate) fn check_room_for(&self, former: Downstream) -> Result<(), String> {
        let Self { limit, connections_max, .. } = *self;
        if limit >= former.open_files_max || former.connections < u64::from(connections_max) {
            return Ok(());
        }
        Err(format!(
            "the running process has {} downstream connections, and this one has room for {connections_max}: its limit on open files is \
             {limit}, and that of the running process {}: raise it (ulimit -n, LimitNOFILE= of systemd, --ulimit nofile= of docker)",
            former.connections, former.open_files_max
        ))
    }

    /// Warns if the configuration allows more connections than there is room for.
    pub(crate) fn warn(&self, limits: &Limits) {
        let Self { limit, connections_max, .. } = self;
        if limits.connections_max.get() > *connections_max {
            tracing::warn!(
                open_files = limit,
                connections_max,
                "limits.connections_max is {}, but the limit on open files leaves room for \
                 {connections_max} downstream connections, each with one to an upstream: raise the \
                 hard limit (ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile= of docker), or \
                 lower limits.connections_max",
                limits.connections_max
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_half_of_what_is_left_at_any_limit() {
        for (limit, open, workers, accept_max, connect_max, connections_max) in [
            (0, 20, 1, 0, 0, 1),
            (20, 20, 2, 16, 18, 1),
            (100, 20, 2, 76, 88, 25),
            (1024, 30, 4, 768, 896, 421),
            (65_536, 40, 8, 65_280, 65_408, 32_666),
            (1 << 20, 40, 8, (1 << 20) - 256, (1 << 20) - 128, 524_186),
        ] {
            let divided = Descriptors::divide(limit, open, workers);
            let bounds = DescriptorBounds { accept_max, connect_max };
            assert_eq!(divided, Descriptors { limit, bounds, connections_max }, "{limit}");
        }
        // Without a limit.
        let divided = Descriptors::divide(u64::MAX, 40, 8);
        assert_eq!(divided.connections_max, u32::MAX);
    }

    #[test]
    fn a_process_that_would_refuse_new_clients_takes_no_place_of_one_that_accepts_them() {
        let here = Descriptors::divide(100, 20, 2);
        assert_eq!(here.connections_max, 25);
        let there = |connections, open_files_max| Downstream { connections, open_files_max };
        assert_eq!(here.check_room_for(there(24, 101)), Ok(()));
        let reason = here.check_room_for(there(25, 101)).unwrap_err();
        assert!(reason.contains("25 downstream connections"), "{reason}");
        assert!(reason.contains("is 100, and that of the running process 101"), "{reason}");
        // One that may not open more does not accept any either.
        assert_eq!(here.check_room_for(there(25, 100)), Ok(()));
    }
}
