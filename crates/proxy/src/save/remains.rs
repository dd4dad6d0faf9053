//! What is left of a connection that was written down: its keys.

use crate::connection::transport::SavedTls;

/// The record layer of a group's first connection, if that has one: most groups have one connection. It is overwritten and freed when
/// this is dropped.
///
/// That takes about as long as to write it down, and nothing waits for it, while a handover waits for the next connection: it is
/// dropped once the handover is through, by the one that keeps it.
#[derive(Debug, Default)]
pub struct Remains(Option<Box<SavedTls>>);

impl Remains {
    pub(super) fn keep(&mut self, saved: Option<Box<SavedTls>>) {
        if self.0.is_none() {
            self.0 = saved;
        }
    }
}
