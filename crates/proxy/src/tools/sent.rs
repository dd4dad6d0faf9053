//! What a socket took of the bytes that wait for it.

use super::time::Time;

/// The result of a send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// How many bytes it took.
    pub(crate) bytes: usize,
    /// How many still wait.
    pub(crate) left: usize,
    /// When the call began.
    pub(crate) began: Time,
}

impl Sent {
    /// Nothing waited to be sent.
    pub(crate) const fn nothing(now: Time) -> Self {
        Self { bytes: 0, left: 0, began: now }
    }
}
