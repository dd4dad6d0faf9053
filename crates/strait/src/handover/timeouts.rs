//! How long one waits for another in a handover, where the conversation itself does not say (`handover::Deadlines`).

use std::time::Duration;

/// What all workers have learned is worth no longer wait: an upgrade goes on without what is missing.
pub(super) const BALANCING_TIMEOUT: Duration = Duration::from_secs(1);

/// The end of a process that has closed its connection.
pub(super) const PROCESS_END_TIMEOUT: Duration = Duration::from_secs(1);

/// An answer of a worker that has connections to give or to take. It answers in its next turn.
pub(super) const WORKER_TIMEOUT: Duration = Duration::from_secs(2);

/// Room in the mailboxes of workers to which connections return.
pub(super) const MAILBOX_TIMEOUT: Duration = Duration::from_secs(2);

/// An answer of a worker in the probation, before its process is unwell: what is asked twice.
pub(super) const WATCHDOG_TIMEOUT: Duration = Duration::from_millis(2500);

/// The end of a process that has given everything back, beyond the drain.
pub(super) const RETURNED_END_TIMEOUT: Duration = Duration::from_secs(10);
