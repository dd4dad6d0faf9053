//! Who signs for the handshakes of clients, where that is not the handshake itself.
//!
//! `tls::signing` has the providers and says how a loop drives them; here is the part of it that
//! knows connections. A handshake that waits keeps its bytes, and is read no further.

use std::fmt;

use config::snapshot::Signing;
use telemetry::events::SignaturesMade;
use tls::signing::{Batched, KeyOperations, SignJob, Signed, Tally};

use crate::connection::ConnKey;
use crate::proxy::Proxy;
use crate::tools::time::Time;

/// The providers of one worker.
#[derive(Default)]
pub(crate) struct Signers {
    batched: Batched,
    /// What works elsewhere and wakes the worker; nothing, where there are no threads.
    thread: Option<Box<dyn KeyOperations>>,
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

    fn poll(&mut self, now: Time) -> Option<Signed> {
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

impl Proxy {
    /// Sets who signs on a thread of its own. Without it, what is for it is signed in batches.
    pub fn set_crypto_thread(&mut self, thread: Box<dyn KeyOperations>) {
        self.connections.signers.thread = Some(thread);
    }

    /// When to call [`Proxy::on_signatures`] at the latest if there is nothing else to do; none where no
    /// signature waits for others.
    #[must_use]
    pub fn signatures_deadline(&self) -> Option<Time> {
        self.connections.signers.batched.idle_deadline().map(Time::from_nanos)
    }

    /// Goes on with handshakes whose signatures are there. `is_idle` says that there is nothing else
    /// to do, so that no signature waits for others any longer.
    pub fn on_signatures(&mut self, is_idle: bool, now: Time) {
        if is_idle {
            self.connections.signers.batched.on_idle(now.as_nanos());
        }
        while let Some(Signed { token, result }) = self.connections.signers.poll(now) {
            self.on_signature(ConnKey::from_bits(token), result, now);
            self.settle(now);
        }
        let mut tally = self.connections.signers.batched.take_tally();
        if let Some(thread) = &mut self.connections.signers.thread {
            tally += thread.take_tally();
        }
        if tally != Tally::default() {
            let Tally { inline, batched, failed, sizes } = tally;
            self.cx.emitter.signatures_made(&SignaturesMade { inline, batched, failed, sizes });
        }
    }
}
