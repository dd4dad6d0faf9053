//! What an exchange without a downstream is, and the room that copies of requests may take.

use serde::{Deserialize, Serialize};
use telemetry::events::MirrorDrop;

use crate::cx::Cx;

/// What a copy counts as beside its request's bytes: the exchange itself and a small buffer.
const COPY_BYTES: u64 = 2_048;

/// What an exchange is that has no downstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Detached {
    /// What it counts as towards the bound on copies.
    pub(crate) bytes: u64,
    /// Why it is not sent, if it is not.
    #[serde(skip)]
    pub(crate) dropped: Option<MirrorDrop>,
}

impl Cx {
    /// Counts a copy, or more of one, if there is room for it.
    pub(crate) fn hold_copy(&mut self, bytes: u64) -> bool {
        let bytes_max = self.share.of_bytes(self.snapshot.limits.mirrored_bytes_max);
        let sum = self.copied_bytes.saturating_add(bytes);
        if sum > bytes_max {
            return false;
        }
        self.copied_bytes = sum;
        true
    }
}

impl Detached {
    /// A copy of a request with so many bytes; none if there is no room for it.
    pub(crate) fn begin(bytes: u64, cx: &mut Cx) -> Option<Box<Self>> {
        let bytes = bytes.saturating_add(COPY_BYTES);
        cx.hold_copy(bytes).then(|| Box::new(Self { bytes, dropped: None }))
    }
}
