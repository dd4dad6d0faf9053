//! What an event left to do on other connections and exchanges, done when the event is over.

use wire::head::RequestHead;

use crate::agenda::Note;
use crate::exchange::Exchange;
use crate::exchange::queued_request::QueuedRequest;
use crate::keys::{ExchangeKey, PoolId};
use crate::proxy::Proxy;
use crate::tools::time::Time;

impl Proxy {
    /// Does what was noted during an event, and what is noted meanwhile.
    #[inline]
    pub(crate) fn settle(&mut self, now: Time) {
        if !self.cx.agenda.is_empty() {
            self.settle_notes(now);
        }
    }

    // Apart, so that the look at an empty agenda is all that most events pay.
    #[inline(never)]
    fn settle_notes(&mut self, now: Time) {
        while let Some(note) = self.cx.agenda.0.pop_front() {
            match note {
                // It goes on where it goes.
                Note::Resume(source) if self.is_leaving(source.connection) => {}
                Note::Resume(source) => self.resume_source(source, now),
                Note::Serve(pool) => self.serve_noted(pool, now),
                Note::Yield(pool) => self.yield_connections(pool, now),
                Note::Attempt(exchange) => self.attempt_again(exchange, now),
                Note::Abandon(exchange) => self.abandon(exchange, now),
                Note::CloseUpstreams => self.close_upstreams(now),
            }
        }
    }

    /// Serves a pool's queue, if a note says that there may be connections for it.
    fn serve_noted(&mut self, pool: PoolId, now: Time) {
        let Some(noted) = self.upstream.pools.take_noted(pool) else { return };
        if noted.has_room {
            self.serve_waiting(pool, now);
        }
        for _ in 0..noted.spares {
            self.serve_next(pool, now);
        }
    }

    /// Finds a connection for a request that is not from the queue. If there is room for exchanges that
    /// wait already, they are served first. `head` is the request's, where it is at hand.
    pub(crate) fn ask(
        &mut self,
        key: ExchangeKey,
        request: QueuedRequest,
        head: Option<&RequestHead<'_>>,
        now: Time,
    ) {
        if !self.cx.agenda.is_empty()
            && let Some(pool) = self.exchanges.get(key).and_then(Exchange::pool)
        {
            self.serve_noted(pool, now);
        }
        self.attempt(key, request, head, now);
    }

    fn attempt_again(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let Some(request) = exchange.take_retrying() else { return };
        self.ask(key, request, None, now);
        self.exchanges.note_request(key, &mut self.cx);
    }
}
