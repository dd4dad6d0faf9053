//! Signatures on a separate thread.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread;

use super::{KeyOperations, SignError, SignJob, Signed, Tally};

/// Jobs that may wait for the thread. With RSA-2048 that is 20 to 60 ms of its work, beyond which a
/// handshake is better off without it.
pub const JOBS_MAX: usize = 256;

/// Runs another provider on a separate thread.
///
/// With [`Batched`](super::Batched) there, jobs that come in while it is busy are the next batch.
/// Beyond [`JOBS_MAX`], and when the thread has gone, jobs are done where they are submitted, if
/// the key is here.
///
/// The thread ends when this is dropped; results of jobs that it still works on are lost.
pub struct CryptoThread {
    jobs: SyncSender<(u64, SignJob)>,
    results: Receiver<Results>,
    /// Results to give out, also of jobs that did not go to the thread.
    done: VecDeque<Signed>,
    tally: Tally,
}

/// Results that the thread sends together.
struct Results {
    signed: Vec<Signed>,
    tally: Tally,
}

impl CryptoThread {
    /// Starts a thread. `wake` is called there when there are results, to have the loop poll: it
    /// writes to an eventfd, say.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn spawn<O, W>(operations: O, wake: W) -> io::Result<Self>
    where
        O: KeyOperations + Send + 'static,
        W: Fn() + Send + 'static,
    {
        let (jobs, jobs_there) = sync_channel(JOBS_MAX);
        let (results_there, results) = channel();
        thread::Builder::new()
            .name("strait-crypto".to_owned())
            .spawn(move || work(operations, &jobs_there, &results_there, &wake))?;
        Ok(Self { jobs, results, done: VecDeque::new(), tally: Tally::default() })
    }
}

impl KeyOperations for CryptoThread {
    fn submit(&mut self, token: u64, job: SignJob, _now_nanos: u64) {
        let result = match self.jobs.try_send((token, job)) {
            Ok(()) => return,
            Err(TrySendError::Full((_, job))) if !job.key.is_here() => Err(SignError::Refused),
            Err(TrySendError::Full((_, job)) | TrySendError::Disconnected((_, job))) => job.sign(),
        };
        self.tally.count(&result);
        self.done.push_back(Signed { token, result });
    }

    fn poll(&mut self, _now_nanos: u64) -> Option<Signed> {
        while let Ok(Results { signed, tally }) = self.results.try_recv() {
            self.done.extend(signed);
            self.tally += tally;
        }
        self.done.pop_front()
    }

    /// The thread goes on as soon as it can.
    fn flush(&mut self, _now_nanos: u64) {}

    /// The thread wakes the caller's loop.
    fn next_deadline(&self) -> Option<u64> {
        None
    }

    fn cancel(&mut self, token: u64) {
        self.done.retain(|signed| signed.token != token);
    }

    fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }
}

impl fmt::Debug for CryptoThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CryptoThread").finish_non_exhaustive()
    }
}

/// The thread's loop, until its owner is dropped.
fn work(
    mut operations: impl KeyOperations,
    jobs: &Receiver<(u64, SignJob)>,
    results: &Sender<Results>,
    wake: &impl Fn(),
) {
    // It looks at no clock: as soon as there are no more jobs, nothing waits for others.
    const NOW: u64 = 0;
    while let Ok(first) = jobs.recv() {
        // In pieces, so that those in front do not wait for all behind them.
        let others = jobs.try_iter().take(JOBS_AT_ONCE - 1);
        for (token, job) in std::iter::once(first).chain(others) {
            operations.submit(token, job, NOW);
        }
        operations.flush(NOW);
        let signed = std::iter::from_fn(|| operations.poll(NOW)).collect();
        if results.send(Results { signed, tally: operations.take_tally() }).is_err() {
            return;
        }
        wake();
    }
}

/// Jobs that the thread takes before it gives out results: as many as go into a batch.
const JOBS_AT_ONCE: usize = 8;
