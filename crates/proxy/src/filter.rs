//! The filter API: what a step of a listener's chain is and may do.
//!
//! A built filter is immutable, part of the snapshot and shared by every exchange of every worker.
//! What it remembers of one exchange goes into its *slot*: bytes of a size that it names when the
//! chain is built, which a save writes down with the exchange.
//!
//! Requests run the chain in the order of the file, responses in the reverse order. Bodies pass by
//! unless a filter declares that it needs them ([`Filter::bodies`]); whether they are streamed or
//! gathered is never a filter's verdict.

pub(crate) mod filter_chain;

use std::fmt;

use wire::head::{RequestHead, ResponseHead};

pub use config::reports::Question;

/// What the chain does after a filter has run.
#[derive(Debug)]
pub enum Verdict {
    /// Run the next filter.
    Continue,
    /// Stop here and answer the downstream with this reply.
    Reply(Reply),
    /// Stop here until the worker resumes this exchange with the filter's answer.
    Suspend(Question),
}

/// What a filter needs of a body. It is declared, and the proxy carries it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyNeed {
    /// Nothing.
    #[default]
    None,
    /// Each piece as it passes, in order.
    Stream,
    /// All of it in one piece, before anything of the message goes on. A message whose body has more
    /// bytes is answered with 413 if it is a request, with 502 if it is a response.
    Gather {
        /// Bytes of the body, at most.
        bytes_max: usize,
    },
}

/// What a filter needs of an exchange's bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyNeeds {
    /// Of the request's.
    pub request: BodyNeed,
    /// Of the response's, in exchanges where the filter takes part in the response.
    pub response: BodyNeed,
}

/// Whether a filter takes part in a response whose head it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It is done with this exchange.
    Done,
    /// It gets of the body what it declared to need.
    Body,
}

/// A response made by a filter.
#[derive(Clone, Debug)]
pub struct Reply {
    /// 200 to 599.
    pub status: u16,
    /// What the body says besides the status; one word of the filter's own vocabulary.
    pub reason: &'static str,
}

/// One step of a filter chain.
pub trait Filter: fmt::Debug + Send + Sync {
    /// Bytes of the filter's slot in an exchange. Asked when the exchange begins, and the same
    /// for the life of the filter. The slot starts as zeros.
    fn slot_bytes(&self) -> usize {
        0
    }

    /// What the filter needs of bodies. The same for the life of the filter.
    fn bodies(&self) -> BodyNeeds {
        BodyNeeds::default()
    }

    /// A request's head, before it is routed.
    fn on_request(&self, head: &mut RequestHead<'_>, slot: &mut [u8]) -> Verdict;

    /// The answer to what [`Verdict::Suspend`] asked, with the head as the filter left it.
    fn on_answer(&self, answer: &[u8], head: &mut RequestHead<'_>, slot: &mut [u8]) -> Verdict {
        let _ = (answer, head, slot);
        Verdict::Continue
    }

    /// A piece of the request's body, for [`BodyNeed::Stream`].
    fn on_request_data(&self, data: &[u8], slot: &mut [u8]) {
        let _ = (data, slot);
    }

    /// The whole body of the request, for [`BodyNeed::Gather`], right after the filter's
    /// [`Filter::on_request`] let the request pass. Empty if it has none.
    fn on_request_body(&self, head: &mut RequestHead<'_>, body: &[u8], slot: &mut [u8]) -> Verdict {
        let _ = (head, body, slot);
        Verdict::Continue
    }

    /// The head of a response that the proxy makes itself: a rule's, another filter's, or the reply to a
    /// failure. The filter may not have seen the request, and has no slot here.
    fn on_reply(&self, head: &mut ResponseHead<'_>) {
        let _ = head;
    }

    /// The head of the upstream's response, unless the exchange was answered here.
    fn on_response(&self, head: &mut ResponseHead<'_>, slot: &mut [u8]) -> Part {
        let _ = (head, slot);
        Part::Done
    }

    /// A piece of the response's body, for [`BodyNeed::Stream`].
    fn on_response_data(&self, data: &[u8], slot: &mut [u8]) {
        let _ = (data, slot);
    }

    /// The whole body of the response, for [`BodyNeed::Gather`]. Empty if it has none.
    fn on_response_body(&self, head: &mut ResponseHead<'_>, body: &[u8], slot: &mut [u8]) {
        let _ = (head, body, slot);
    }
}
