//! One worker's thread.

use std::sync::Arc;

use config::snapshot::ListenerId;
use io::Socket;
use proxy::{Proxy, Share, Snapshot};
use telemetry::Emitter;
use worker::{Kernel, Listener, Mailbox, ReportBody, Reporter, Worker, World};

use crate::crypto_thread::LazyCryptoThread;
use crate::descriptors::Descriptors;

/// One worker's thread.
pub(super) struct Post {
    pub(super) share: Share,
    pub(super) descriptors: Descriptors,
    pub(super) accepts: bool,
    /// The core to stay on, if any.
    pub(super) cpu: Option<usize>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) listeners: Vec<(ListenerId, Listener)>,
    pub(super) mailbox: Mailbox<Listener, Socket>,
    pub(super) waker: io::Waker,
    pub(super) poller: io::Poller,
    /// The wakers of all workers.
    pub(super) wakers: Arc<[io::Waker]>,
    pub(super) bells: proxy::Bells,
    pub(super) emitter: Emitter,
}

impl Post {
    pub(super) fn work(self) {
        let guard = EndProcessOnPanic;
        let reporter = self.mailbox.reporter();
        reporter.report(match self.turn_until_told(&reporter) {
            Ok(()) => ReportBody::Stopped,
            Err(reason) => ReportBody::Failed(reason),
        });
        std::mem::forget(guard);
    }

    fn turn_until_told(self, reporter: &Reporter) -> Result<(), String> {
        if let Some(cpu) = self.cpu
            && let Err(error) = io::affinity::pin_current_thread(cpu)
        {
            tracing::warn!(worker = self.share.worker, cpu, "cannot stay on this core: {error}");
        }
        let crypto_thread = LazyCryptoThread::new(self.waker.clone());
        let mut world =
            Kernel::new(self.poller, self.waker).map_err(|error| format!("epoll: {error}"))?;
        world.set_descriptor_bounds(self.descriptors.bounds);
        world.set_crew(self.share.worker, self.wakers);
        let settings = proxy::Settings { share: self.share, seed: seed(), bells: self.bells };
        let stage_times = self.snapshot.access_log.stage_times;
        let now = world.now();
        let mut proxy = Proxy::new(settings, self.snapshot, self.emitter, now);
        proxy.set_descriptors_max(self.descriptors.connections_max);
        proxy.set_crypto_thread(Box::new(crypto_thread));
        let (group_part_max, accepts) = (worker::GROUP_PART_MAX, self.accepts);
        let settings = worker::Settings { stage_times, group_part_max, accepts };
        let mut worker = Worker::new(world, proxy, self.listeners, self.mailbox, settings)
            .map_err(|error| format!("a listener cannot be watched: {error}"))?;
        reporter.report(ReportBody::Started);
        worker.run().map_err(|error| error.to_string())
    }
}

/// Ends the process when a panic unwinds through it, as every panic does in a release build (see
/// `docs/decisions`): tests must not see another behaviour.
struct EndProcessOnPanic;

impl Drop for EndProcessOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// A number that differs in every worker and every run.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8)
}
