//! What an exchange has to do with the streams that it is on: the form of a call, and the window of a body.

use crate::connection::connections::Connections;
use crate::exchange::exchanges::Exchanges;
use crate::keys::{ExchangeKey, StreamKey};

impl Exchanges {
    /// What the frame of a call looked like that came.
    pub(crate) fn form_of(&self, key: ExchangeKey, connections: &Connections) -> u64 {
        let exchange = self.get(key);
        if let Some(detached) = exchange.and_then(|exchange| exchange.detached.as_ref()) {
            return detached.form;
        }
        let at = exchange.map(|exchange| exchange.downstream);
        let stream = at
            .and_then(|at| connections.get(at.connection)?.codec.multiplex()?.streams.get(at.slot));
        stream.map_or(0, |stream| stream.asked.form)
    }

    /// As [`Connections::take`], once the other side has room again.
    #[inline]
    pub(crate) fn pass_on(&self, from: StreamKey, n: usize, connections: &mut Connections) {
        if from.is_alone() {
            // Without a window, it is not read while the other side has no room.
            return;
        }
        let is_behind =
            self.opposite_of(from, connections).is_some_and(|to| connections.is_held_back(to));
        match connections.stream_mut(from).filter(|_| is_behind) {
            Some(stream) => stream.owed += u32::try_from(n).unwrap_or(u32::MAX),
            None => connections.take(from, n),
        }
    }
}
