//! The blocks of counters that a worker writes and the collector reads.
//!
//! A block belongs to one worker. Blocks of listeners, rules and clusters are made at the first
//! event that names them and announced to the collector through a bounded queue; while that queue
//! is full they count already and are announced later. Each but those of endpoints
//! stands on cache lines of its own, since its neighbours may be another worker's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use crate::counters::connection::{ConnectionCounters, ConnectionEnds};
use crate::counters::endpoint::EndpointsBlock;
use crate::counters::exchange::{ExchangeCounters, ExchangeTimes, RuleBlock};
use crate::counters::tls::{TlsCounters, TlsTimes};
use crate::counters::upstream::{ClusterBlock, UpstreamEnds};
use crate::counters::worker::{LogRecordCounters, WorkerLevels};
use crate::events::LabelId;

/// Slots of listeners, route tables and clusters that are counted; those beyond are not. Slots are
/// dense, so this bounds the table that finds the blocks.
pub(crate) const LABEL_SLOTS_MAX: usize = 1 << 20;
/// New blocks that can wait to be fetched by the collector.
const ANNOUNCED_MAX: usize = 256;

/// One worker, whatever the listener or the cluster.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerBlock {
    pub(crate) connections: ConnectionEnds,
    pub(crate) tls: TlsTimes,
    pub(crate) exchanges: ExchangeTimes,
    pub(crate) upstream: UpstreamEnds,
    pub(crate) levels: WorkerLevels,
    pub(crate) records: LogRecordCounters,
    pub(crate) slow_floor: SlowFloor,
    pub(crate) log_bell: LogBell,
}

/// One listener on one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ListenerBlock {
    pub(crate) connections: ConnectionCounters,
    pub(crate) tls: TlsCounters,
    pub(crate) exchanges: ExchangeCounters,
}

/// Wakes the reader of the records once there are any, while it waits for them. On a line of its own: the reader writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct LogBell {
    is_awaited: AtomicBool,
    reader: OnceLock<Thread>,
}

impl LogBell {
    /// The calling thread is the reader, and is to be unparked with the next record.
    pub(crate) fn await_ring(&self) {
        self.reader.get_or_init(std::thread::current);
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_awaiting(&self) {
        self.is_awaited.store(false, Ordering::Relaxed);
    }

    /// A record was handed on. Without a fence, which each record would pay for: a reader that begins to wait at this
    /// very moment may be missed, and waits for its own timeout then.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.is_awaited.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.is_awaited.store(false, Ordering::Relaxed);
        if let Some(reader) = self.reader.get() {
            reader.unpark();
        }
    }
}

/// The total, ns, above which an exchange is a candidate for the list of slow ones. The only word
/// here that control writes and the worker reads; on a line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SlowFloor(AtomicU64);

impl SlowFloor {
    pub(crate) fn is_below(&self, total: u64) -> bool {
        total > self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, total: u64) {
        self.0.store(total, Ordering::Relaxed);
    }
}

/// A new block, announced to the collector.
#[derive(Debug)]
pub(crate) enum Announced {
    Listener(LabelId, Arc<ListenerBlock>),
    /// The route table, and which block of its slots.
    Rules(LabelId, u32, Arc<RuleBlock>),
    Cluster(LabelId, Arc<ClusterBlock>),
    /// Which block of endpoints, as if it were a slot.
    Endpoints(LabelId, Arc<EndpointsBlock>),
}

/// Announces new blocks, and remembers whether some could not be.
#[derive(Debug)]
pub(crate) struct Announcer {
    queue: rtrb::Producer<Announced>,
    is_behind: bool,
}

impl Announcer {
    /// An announcer and the end that the collector reads.
    pub(crate) fn new() -> (Self, rtrb::Consumer<Announced>) {
        let (queue, announced) = rtrb::RingBuffer::new(ANNOUNCED_MAX);
        (Self { queue, is_behind: false }, announced)
    }

    /// Whether a block waits to be announced and there is room for it.
    pub(crate) fn can_catch_up(&self) -> bool {
        self.is_behind && !self.queue.is_full()
    }

    /// Clears the mark that blocks wait; [`Blocks::announce_rest`] sets it again if the queue is
    /// still full.
    pub(crate) fn start_catching_up(&mut self) {
        self.is_behind = false;
    }

    fn announce(&mut self, announced: Announced) -> bool {
        let is_announced = self.queue.push(announced).is_ok();
        self.is_behind |= !is_announced;
        is_announced
    }
}

/// The blocks of one kind, by label.
#[derive(Debug)]
pub(crate) struct Blocks<B> {
    entries: Vec<Option<Entry<B>>>,
}

#[derive(Debug)]
struct Entry<B> {
    generation: u32,
    is_announced: bool,
    block: Arc<B>,
}

impl<B> Default for Blocks<B> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<B: Default> Blocks<B> {
    /// The block for `id`, made and announced as `announced` says if this is its first use.
    ///
    /// `None` for an id whose slot was given to something newer: what is removed from the
    /// configuration is not counted any more.
    pub(crate) fn block(
        &mut self,
        id: LabelId,
        announcer: &mut Announcer,
        announced: impl Fn(LabelId, Arc<B>) -> Announced,
    ) -> Option<&B> {
        let slot = usize::try_from(id.slot).ok()?;
        let is_known = matches!(
            self.entries.get(slot),
            Some(Some(entry)) if entry.generation == id.generation
        );
        if !is_known {
            self.make(id, slot, announcer, announced);
        }
        match self.entries.get(slot) {
            Some(Some(entry)) if entry.generation == id.generation => Some(&entry.block),
            _ => None,
        }
    }

    /// Announces what had to wait.
    pub(crate) fn announce_rest(
        &mut self,
        announcer: &mut Announcer,
        announced: impl Fn(LabelId, Arc<B>) -> Announced,
    ) {
        for (slot, entry) in (0u32..).zip(&mut self.entries) {
            let Some(entry) = entry.as_mut().filter(|entry| !entry.is_announced) else { continue };
            let id = LabelId { slot, generation: entry.generation };
            entry.is_announced = announcer.announce(announced(id, Arc::clone(&entry.block)));
        }
    }

    #[cold]
    fn make(
        &mut self,
        id: LabelId,
        slot: usize,
        announcer: &mut Announcer,
        announced: impl Fn(LabelId, Arc<B>) -> Announced,
    ) {
        if slot >= LABEL_SLOTS_MAX {
            return;
        }
        if self.entries.len() <= slot {
            self.entries.resize_with(slot + 1, || None);
        }
        let Some(place) = self.entries.get_mut(slot) else { return };
        if place.as_ref().is_some_and(|entry| entry.generation > id.generation) {
            return;
        }
        let block = Arc::new(B::default());
        let is_announced = announcer.announce(announced(id, Arc::clone(&block)));
        *place = Some(Entry { generation: id.generation, is_announced, block });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u32, generation: u32) -> LabelId {
        LabelId { slot, generation }
    }

    #[test]
    fn a_newer_use_of_a_slot_takes_it_and_an_older_one_is_not_counted() {
        let (mut announcer, mut announced) = Announcer::new();
        let mut blocks = Blocks::<ListenerBlock>::default();
        let first = blocks.block(id(3, 0), &mut announcer, Announced::Listener).unwrap();
        first.exchanges.started.increment();
        let second = blocks.block(id(3, 1), &mut announcer, Announced::Listener).unwrap();
        assert_eq!(second.exchanges.started.value(), 0);
        assert!(blocks.block(id(3, 0), &mut announcer, Announced::Listener).is_none());
        assert!(matches!(
            announced.pop(),
            Ok(Announced::Listener(LabelId { generation: 0, .. }, _))
        ));
        assert!(matches!(
            announced.pop(),
            Ok(Announced::Listener(LabelId { generation: 1, .. }, _))
        ));
        assert!(announced.pop().is_err());
    }

    #[test]
    fn a_slot_beyond_the_bound_is_not_counted_and_allocates_nothing() {
        let (mut announcer, _announced) = Announcer::new();
        let mut blocks = Blocks::<ListenerBlock>::default();
        let last = u32::try_from(LABEL_SLOTS_MAX).unwrap();
        for slot in [last, u32::MAX] {
            assert!(blocks.block(id(slot, 0), &mut announcer, Announced::Listener).is_none());
        }
        assert!(blocks.entries.is_empty());
    }

    #[test]
    fn blocks_that_found_the_queue_full_are_announced_later() {
        let (mut announcer, mut announced) = Announcer::new();
        let mut blocks = Blocks::<ListenerBlock>::default();
        let count = u32::try_from(ANNOUNCED_MAX).unwrap() + 2;
        for slot in 0..count {
            assert!(blocks.block(id(slot, 0), &mut announcer, Announced::Listener).is_some());
        }
        assert!(!announcer.can_catch_up(), "the queue is full");
        let mut seen = std::iter::from_fn(|| announced.pop().ok()).count();
        assert!(announcer.can_catch_up());
        announcer.start_catching_up();
        blocks.announce_rest(&mut announcer, Announced::Listener);
        assert!(!announcer.can_catch_up(), "nothing is left");
        seen += std::iter::from_fn(|| announced.pop().ok()).count();
        assert_eq!(seen, usize::try_from(count).unwrap());
    }
}
