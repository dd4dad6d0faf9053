//! Bytes of a protocol that is not read here: a tunnel behind an upgrade or a `CONNECT`, or a relayed
//! connection. Each way ends with the connection's own end in that way.

use serde::{Deserialize, Serialize};

use crate::connection::codec::elements::{Element, Output};

/// A connection that carries bytes as they come, both ways.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Bytes {
    /// Whether the peer's end was passed on.
    pub(crate) is_read_complete: bool,
    /// Whether the end of what is sent is queued.
    is_ending: bool,
}

impl Bytes {
    pub(crate) const fn new() -> Self {
        Self { is_read_complete: false, is_ending: false }
    }

    pub(crate) const fn is_ending(&self) -> bool {
        self.is_ending
    }

    pub(crate) const fn takes_data(&self) -> bool {
        !self.is_ending
    }

    pub(super) const fn decode<'b>(&self, input: &'b [u8]) -> (usize, Option<Element<'b>>) {
        if self.is_read_complete {
            return (0, None);
        }
        (input.len(), Some(Element::Data { bytes: input, is_end: false }))
    }

    pub(super) fn send_data(&self, data: &[u8], out: &mut Output<'_>) {
        if self.takes_data() {
            out.push(data);
        }
    }

    pub(super) const fn send_end(&mut self) {
        self.is_ending = true;
    }
}
