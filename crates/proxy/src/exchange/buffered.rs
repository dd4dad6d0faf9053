//! What an exchange has in buffers, and since when it has waited for its client.

use std::time::Duration;

use crate::exchange::stage::{Stage, Suspended};
use crate::exchange::{Exchange, Wait};
use crate::tools::time::Time;

impl Exchange {
    /// Since when its client is to send its body, or to take its response, if it is.
    pub(crate) fn waits_for_client_since(&self) -> Option<Time> {
        let timeouts = &self.listener().timeouts;
        let waits = [
            (Wait::RequestBody, timeouts.request_body),
            (Wait::ResponseWrite, timeouts.response_write),
        ];
        let waits = waits.into_iter();
        waits.filter_map(|(wait, timeout)| before(self.deadlines.get(wait), timeout)).min()
    }

    /// Bytes of the buffers that it has beside those of its connections.
    pub(crate) fn buffered_bytes(&self) -> usize {
        let stage = match self.stage() {
            Stage::Suspended(Suspended { head, .. }) | Stage::Gathering { head, .. } => {
                head.capacity()
            }
            Stage::Buffering { request }
            | Stage::Waiting { request }
            | Stage::Pausing { request, .. }
            | Stage::Retrying { request } => request.buffered_bytes(),
            Stage::Attempting { .. } | Stage::Responding { .. } | Stage::Finishing => 0,
        };
        let gathered = self.gathered.as_ref().map_or(0, |gathered| gathered.body.capacity());
        let held = self.held.as_ref();
        stage + gathered + held.map_or(0, |held| held.head.capacity() + held.body.capacity())
    }
}

/// So long before a deadline, if that is set.
pub(crate) fn before(deadline: Time, timeout: Duration) -> Option<Time> {
    let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    deadline.is_set().then(|| Time::from_nanos(deadline.as_nanos().saturating_sub(timeout)))
}
