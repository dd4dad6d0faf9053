//! Signatures that are made on another thread come back.

use telemetry::events::SignaturesMade;
use tls::signing::{KeyOperations, Signed, Tally};

use crate::keys::ConnKey;
use crate::proxy::Proxy;
use crate::tools::time::Time;

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
