//! What follows from the end of an exchange or a connection: noted while an event lasts, done when
//! the event is over.
//!
//! Nothing that ends one exchange or connection goes on with another from within. It leaves a
//! [`Note`] and returns. [`Proxy::settle`](crate::Proxy::settle) does what is noted, as the last step of every public
//! method that an event of the worker arrives by:
//!
//! ```text
//! on_received, on_sent … ─► consume … ─► close_upstream, fail_attempt, after_exchange …
//!            │                                             │ leave notes
//!            ▼                                             ▼
//!          settle ◄───────────────────────────────────── agenda
//!            │                                             ▲ leave notes
//!            └─► resume_source, serve_noted, attempt_again, abandon, close_upstreams
//! ```
//!
//! So no method of [`Proxy`](crate::Proxy) is entered again while it is at work, and what a method has read of the
//! tables before it ended something still holds behind that.
//!
//! *Order.* First in, first out: exchanges that wait are served before the exchange that left them
//! room looks for another connection itself. A new request of the same event does not overtake
//! exchanges that wait: [`Proxy::ask`](crate::Proxy::ask) serves them first if a note says that there is room. An event
//! that consists of many, such as deadlines that pass at the same time, is settled after each.
//!
//! *Stale notes.* A note holds a key. If its connection, stream, exchange or cluster is gone by then,
//! or is in another state, the note finds nothing to do.
//!
//! *Termination.* Whatever a note causes is itself noted. A [`Note::Serve`] follows the end of a
//! connection or stream, or one that becomes free, and so does a [`Note::Yield`], which closes what is unused; a
//! [`Note::Attempt`] follows an attempt that failed,
//! of which an exchange has [`ATTEMPTS_UNSEEN_MAX`](crate::upstream::retry::ATTEMPTS_UNSEEN_MAX), or a
//! connection that had to leave its pool because it opens no stream; a [`Note::Resume`] follows the
//! end of an exchange, or its getting a connection. A worker has so many of each, and nothing begins
//! anew but requests whose bytes wait in an inbox: these get fewer.
//!
//! *Bound.* A cluster is noted once (`Pools::note_room`), an exchange once (it is
//! [`Stage::Retrying`](crate::exchange::stage::Stage::Retrying) meanwhile), a connection or stream once for each exchange on
//! it that ends or
//! gets a connection. There are no more notes than a small multiple of the worker's exchanges and
//! clusters, which have bounds. Their storage is used again from event to event; what a large event
//! needs beyond [`NOTES_KEPT_MAX`] is given back.
//!
//! Between two events the agenda is empty, so that no note is ever saved.

use std::collections::VecDeque;

use crate::keys::{ExchangeKey, PoolId, StreamKey};

/// Notes for which room is kept when nothing is noted; a note has 24 bytes.
const NOTES_KEPT_MAX: usize = 64;

/// Something to do when the event is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// Read on from a connection or a stream, beginning with what was read and could not be taken.
    Resume(StreamKey),
    /// Serve the exchanges that wait for a connection of this pool: there may be one.
    Serve(PoolId),
    /// Other workers want connections of this pool: leave them what is not used.
    Yield(PoolId),
    /// Look for another connection for this exchange.
    Attempt(ExchangeKey),
    /// End this exchange, which has no downstream: what it is a copy of is over before it is whole, or it is a check of which
    /// enough is known.
    Abandon(ExchangeKey),
    /// The last downstream of a drain is gone: close the upstream connections.
    CloseUpstreams,
}

/// The notes of one event, in order.
#[derive(Debug, Default)]
pub(crate) struct Agenda(pub(crate) VecDeque<Note>);

impl Agenda {
    pub(crate) fn push(&mut self, note: Note) {
        self.0.push_back(note);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives memory back that a large event took.
    pub(crate) fn trim(&mut self) {
        self.0.shrink_to(NOTES_KEPT_MAX);
    }
}
