//! Where an exchange stands, and how it gets from there to the next stage. The compiler sees to it that no other file
//! changes a stage.
//!
//! A stage that holds something (a head, a request) is left by a `take_` method, which gives that to the caller and
//! leaves [`Stage::Finishing`] behind; the caller then begins the next stage, or ends the exchange.

use crate::exchange::Exchange;
use crate::exchange::queued_request::QueuedRequest;
use crate::filter::Question;
use crate::filter::filter_chain::FilterStep;
use crate::keys::StreamKey;
use crate::tools::time::Time;
use wire::buffer::Buffer;

/// Where an exchange stands.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The filter at this step of the chain waits for an answer; the head, encoded, waits with it.
    Suspended(Suspended),
    /// The filter at this place of the chain waits for the whole body; so does the head.
    Gathering { filter: usize, head: Buffer },
    /// Few connections are left; the request, encoded, waits for more of its body.
    Buffering { request: QueuedRequest },
    /// No connection is free; the head, encoded, waits for one.
    Waiting { request: QueuedRequest },
    /// Its attempt failed; the next is on the agenda, and begins before the event is over.
    Retrying { request: QueuedRequest },
    /// Its attempt failed; the next comes after a pause, which began then.
    Pausing { request: QueuedRequest, since: Time },
    /// Given to this connection; no byte of a response yet.
    Attempting { upstream: StreamKey },
    /// The response's head went to the downstream; its body follows.
    Responding { upstream: StreamKey },
    /// The whole response is queued, or will never be; the outbox empties.
    Finishing,
}

/// What a filter's question has to wait with.
#[derive(Debug)]
pub(crate) struct Suspended {
    pub(crate) step: FilterStep,
    pub(crate) question: Question,
    pub(crate) head: Buffer,
}

/// The stage of an exchange, which this file alone can write.
#[derive(Debug)]
pub(crate) struct Current(Stage);

impl Current {
    /// Of an exchange that has just begun: it holds nothing yet.
    pub(crate) const NEW: Self = Self(Stage::Finishing);
}

impl Stage {
    /// Its name, on the admin interface.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Suspended(_) => "suspended",
            Self::Gathering { .. } => "gathering",
            Self::Buffering { .. } => "buffering",
            Self::Waiting { .. } => "waiting",
            Self::Retrying { .. } => "retrying",
            Self::Pausing { .. } => "pausing",
            Self::Attempting { .. } => "attempting",
            Self::Responding { .. } => "responding",
            Self::Finishing => "finishing",
        }
    }
}

impl Exchange {
    /// Where it stands.
    #[inline]
    pub(crate) const fn stage(&self) -> &Stage {
        &self.stage.0
    }

    /// The upstream connection, or stream, that it has, if any.
    #[inline]
    pub(crate) const fn upstream(&self) -> Option<StreamKey> {
        match self.stage.0 {
            Stage::Attempting { upstream } | Stage::Responding { upstream } => Some(upstream),
            Stage::Suspended(_)
            | Stage::Gathering { .. }
            | Stage::Buffering { .. }
            | Stage::Waiting { .. }
            | Stage::Retrying { .. }
            | Stage::Pausing { .. }
            | Stage::Finishing => None,
        }
    }

    /// Begins a stage. What the former one held was taken before, or would be lost to the pool of buffers.
    #[inline]
    fn begin(&mut self, stage: Stage) {
        debug_assert!(self.upstream().is_some() || matches!(self.stage.0, Stage::Finishing));
        self.stage.0 = stage;
    }

    /// A filter waits for an answer.
    pub(crate) fn begin_suspension(&mut self, suspended: Suspended) {
        self.begin(Stage::Suspended(suspended));
    }

    /// The filter at this place waits for the whole body.
    pub(crate) fn begin_gathering(&mut self, filter: usize, head: Buffer) {
        self.begin(Stage::Gathering { filter, head });
    }

    /// Its request waits for more of its body.
    pub(crate) fn begin_buffering(&mut self, request: QueuedRequest) {
        self.begin(Stage::Buffering { request });
    }

    /// It waits for a connection.
    pub(crate) fn begin_waiting(&mut self, request: QueuedRequest) {
        self.begin(Stage::Waiting { request });
    }

    /// The next attempt is on the agenda.
    pub(crate) fn begin_retrying(&mut self, request: QueuedRequest) {
        self.begin(Stage::Retrying { request });
    }

    /// The next attempt comes after a pause.
    pub(crate) fn begin_pause(&mut self, request: QueuedRequest, since: Time) {
        self.begin(Stage::Pausing { request, since });
    }

    /// A connection, or a stream of one, has its request.
    #[inline]
    pub(crate) fn begin_attempt(&mut self, upstream: StreamKey) {
        self.begin(Stage::Attempting { upstream });
    }

    /// The response begins, or what is said both ways.
    #[inline]
    pub(crate) fn begin_responding(&mut self, upstream: StreamKey) {
        self.begin(Stage::Responding { upstream });
    }

    /// Nothing is left but to send what is queued. Its upstream, if it has one, is its caller's to release.
    #[inline]
    pub(crate) fn begin_finishing(&mut self) {
        self.begin(Stage::Finishing);
    }

    /// Leaves whatever stage it is in, with all that this held.
    pub(crate) const fn take_stage(&mut self) -> Stage {
        std::mem::replace(&mut self.stage.0, Stage::Finishing)
    }

    /// Leaves the stage if it is that of a filter which waits for an answer.
    pub(crate) fn take_suspended(&mut self) -> Option<Suspended> {
        match self.take_stage() {
            Stage::Suspended(suspended) => Some(suspended),
            other => self.stay(other),
        }
    }

    /// Leaves the stage if it is that of a filter which waits for the body: its place, and the head.
    pub(crate) fn take_gathering(&mut self) -> Option<(usize, Buffer)> {
        match self.take_stage() {
            Stage::Gathering { filter, head } => Some((filter, head)),
            other => self.stay(other),
        }
    }

    /// Leaves the stage if it is that of a request which waits for its body.
    pub(crate) fn take_buffered(&mut self) -> Option<QueuedRequest> {
        match self.take_stage() {
            Stage::Buffering { request } => Some(request),
            other => self.stay(other),
        }
    }

    /// Leaves the stage if it waits for a connection.
    pub(crate) fn take_waiting(&mut self) -> Option<QueuedRequest> {
        match self.take_stage() {
            Stage::Waiting { request } => Some(request),
            other => self.stay(other),
        }
    }

    /// Leaves the stage if its next attempt is on the agenda.
    pub(crate) fn take_retrying(&mut self) -> Option<QueuedRequest> {
        match self.take_stage() {
            Stage::Retrying { request } => Some(request),
            other => self.stay(other),
        }
    }

    /// Leaves the stage if it pauses: the request, and since when.
    pub(crate) fn take_paused(&mut self) -> Option<(QueuedRequest, Time)> {
        match self.take_stage() {
            Stage::Pausing { request, since } => Some((request, since)),
            other => self.stay(other),
        }
    }

    /// The request that waits for its body, if one does.
    pub(crate) const fn buffered_mut(&mut self) -> Option<&mut QueuedRequest> {
        match &mut self.stage.0 {
            Stage::Buffering { request } => Some(request),
            _ => None,
        }
    }

    /// Puts back a stage that is not the one asked for.
    fn stay<T>(&mut self, stage: Stage) -> Option<T> {
        self.stage.0 = stage;
        None
    }
}
