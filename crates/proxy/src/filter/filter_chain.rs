//! Hop 6: the chain of filters, and the bodies that filters want to see.
//!
//! A request whose filter waits, for an answer or for the whole body, is parked as its canonical
//! encoding: plain bytes that a save can write down, read again when it goes on. A response that
//! waits for its body is parked in the same way, and nothing of it has gone downstream then.

use serde::{Deserialize, Serialize};
use wire::buffer::Buffer;

use crate::filter::{BodyNeed, Filter};

/// Room to begin with for a body whose length is not known.
pub(crate) const GATHER_BYTES_FIRST: usize = 4 << 10;

/// Where in its chain a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FilterStep {
    /// The filter at this place looks at the head.
    Head(usize),
    /// It looks at the body, if it needs all of it.
    Body(usize),
}

impl FilterStep {
    pub(crate) const fn place(self) -> usize {
        match self {
            Self::Head(place) | Self::Body(place) => place,
        }
    }

    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Head(place) => Self::Body(place),
            Self::Body(place) => Self::Head(place + 1),
        }
    }
}

/// Filters of a chain that look at bodies as they pass, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BodyObservers {
    /// At the request's.
    pub(crate) request: FilterSet,
    /// Those that take part in the response, whether they stream or gather.
    pub(crate) response: FilterSet,
}

/// Filters of a chain by their places, of which a chain has no more than fit in here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilterSet(u64);

impl FilterSet {
    pub(crate) fn insert(&mut self, place: usize) {
        debug_assert!(place < config::snapshot::FILTERS_MAX, "the configuration bounds chains");
        self.0 |= 1 << place;
    }

    pub(crate) const fn contains(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BodyObservers {
    /// Those that a chain has when a request begins.
    pub(crate) fn at_requests(filters: &[Box<dyn Filter>]) -> Self {
        let mut observers = Self::default();
        for (place, filter) in filters.iter().enumerate() {
            if filter.bodies().request == BodyNeed::Stream {
                observers.request.insert(place);
            }
        }
        observers
    }
}

/// A request's body that a filter wanted whole.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) body: Buffer,
    /// The trailer section, if it came.
    pub(crate) trailers: Vec<u8>,
}

/// A response that waits until a filter has seen all of it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) head: Buffer,
    pub(crate) body: Buffer,
    /// Bytes of the body that the filters take.
    pub(crate) bytes_max: usize,
}

/// Appends to a body, which grows by at least its own length, so that its bytes are not copied
/// again and again.
pub(crate) fn gather(body: &mut Buffer, data: &[u8], buffers: &mut crate::tools::buffers::Buffers) {
    if body.spare_len() < data.len() {
        let more = data.len().max(body.len());
        let narrow = std::mem::replace(body, Buffer::new(0));
        *body = buffers.widen(narrow, more);
    }
    body.push(data);
}
