//! The thread that signs for a worker, once there is something to sign.

use std::fmt;

use tls::signing::{Batched, CryptoThread, KeyOperations, SignJob, Signed, Tally};

/// Starts a thread with its first job.
pub(crate) struct LazyCryptoThread {
    waker: io::Waker,
    started: Option<Box<dyn KeyOperations>>,
}

impl LazyCryptoThread {
    /// For the worker that `waker` wakes.
    pub(crate) const fn new(waker: io::Waker) -> Self {
        Self { waker, started: None }
    }
}

impl KeyOperations for LazyCryptoThread {
    fn submit(&mut self, token: u64, job: SignJob, now_nanos: u64) {
        let waker = &self.waker;
        let started = self.started.get_or_insert_with(|| {
            let waker = waker.clone();
            match CryptoThread::spawn(Batched::default(), move || waker.wake()) {
                Ok(thread) => Box::new(thread),
                Err(error) => {
                    tracing::error!("no thread for signatures can be started, so the worker computes them: {error}");
                    Box::new(tls::signing::Inline::default())
                }
            }
        });
        started.submit(token, job, now_nanos);
    }

    fn poll(&mut self, now_nanos: u64) -> Option<Signed> {
        self.started.as_mut()?.poll(now_nanos)
    }

    fn flush(&mut self, now_nanos: u64) {
        if let Some(started) = &mut self.started {
            started.flush(now_nanos);
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        self.started.as_ref()?.next_deadline()
    }

    fn cancel(&mut self, token: u64) {
        if let Some(started) = &mut self.started {
            started.cancel(token);
        }
    }

    fn take_tally(&mut self) -> Tally {
        self.started.as_mut().map(|started| started.take_tally()).unwrap_or_default()
    }
}

impl fmt::Debug for LazyCryptoThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_started = self.started.is_some();
        f.debug_struct("LazyCryptoThread").field("is_started", &is_started).finish_non_exhaustive()
    }
}
