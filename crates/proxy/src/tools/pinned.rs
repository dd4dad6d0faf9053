//! A snapshot that an exchange or a listener of this worker uses.
//!
//! Workers share snapshots through an `Arc`, whose count every core may write to; within a worker
//! the uses are counted apart, without atomic operations. The worker has one `Arc` of each.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use crate::Snapshot;

/// A use of a snapshot in this worker.
#[derive(Clone, Debug)]
pub(crate) struct Pinned {
    #[expect(clippy::redundant_allocation, reason = "two counts are the point: local and shared")]
    snapshot: Rc<Arc<Snapshot>>,
}

impl Pinned {
    pub(crate) fn new(snapshot: Arc<Snapshot>) -> Self {
        Self { snapshot: Rc::new(snapshot) }
    }

    /// Whether this is its only use here.
    pub(crate) fn is_last(&self) -> bool {
        Rc::strong_count(&self.snapshot) == 1
    }

    /// The worker's `Arc`, if this is its only use here.
    pub(crate) fn into_shared(self) -> Option<Arc<Snapshot>> {
        Rc::try_unwrap(self.snapshot).ok()
    }

    pub(crate) fn shared(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }
}

impl Deref for Pinned {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}
