//! Signatures for clients' handshakes, where the handshake itself does not make them.
//!
//! `tls::signing` has the providers and says how a loop drives them; here is the part of it that
//! knows connections. A handshake that waits keeps its bytes, and is read no further.

use std::fmt;

use config::snapshot::Signing;
use tls::signing::{Batched, KeyOperations, SignJob, Signed};

use crate::keys::ConnKey;
use crate::tools::time::Time;

/// The providers of one worker.
#[derive(Default)]
pub(crate) struct Signers {
    pub(crate) batched: Batched,
    /// What works elsewhere and wakes the worker; nothing, where there are no threads.
    pub(crate) thread: Option<Box<dyn KeyOperations>>,
}

impl Signers {
    /// Has a connection's signature made, by whom its key names.
    pub(crate) fn submit(&mut self, key: ConnKey, job: SignJob, now: Time) {
        let is_for_thread = Signing::of(job.key.provider()) == Signing::Thread;
        match &mut self.thread {
            Some(thread) if is_for_thread => thread.submit(key.to_bits(), job, now.as_nanos()),
            _ => self.batched.submit(key.to_bits(), job, now.as_nanos()),
        }
    }

    pub(crate) fn poll(&mut self, now: Time) -> Option<Signed> {
        let of_thread = self.thread.as_mut().and_then(|thread| thread.poll(now.as_nanos()));
        of_thread.or_else(|| self.batched.poll(now.as_nanos()))
    }

    /// A connection's signature is not wanted any more.
    pub(crate) fn cancel(&mut self, key: ConnKey) {
        self.batched.cancel(key.to_bits());
        if let Some(thread) = &mut self.thread {
            thread.cancel(key.to_bits());
        }
    }
}

impl fmt::Debug for Signers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signers").field("waiting", &self.batched.len()).finish_non_exhaustive()
    }
}
