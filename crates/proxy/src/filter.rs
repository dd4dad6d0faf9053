//! The filter API: what a step of a listener's chain is and may do.
//!
//! A built filter is immutable, part of the snapshot and shared by every exchange of every worker.
//! What it remembers of one exchange goes into its *slot*: bytes of a size that it names when the
//! chain is built, which a save writes down with the exchange.
//!
//! Requests run the chain in the order of the file, responses in the reverse order.

use std::fmt;
use std::sync::Arc;

use wire::head::{RequestHead, ResponseHead};

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

/// A response made by a filter.
#[derive(Clone, Debug)]
pub struct Reply {
    /// 200 to 599.
    pub status: u16,
    /// What the body says besides the status; one word of the filter's own vocabulary.
    pub reason: &'static str,
}

/// What a suspended filter waits to be told: data, so that it can be written down with its
/// exchange and be asked again elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who is asked, by a name that control knows.
    pub topic: Arc<str>,
    /// What is asked, in a form that the filter and the one it asks agree on.
    pub payload: Arc<[u8]>,
}

/// One step of a filter chain.
pub trait Filter: fmt::Debug + Send + Sync {
    /// Bytes of the filter's slot in an exchange. Asked when the exchange begins, and the same
    /// for the life of the filter. The slot starts as zeros.
    fn slot_bytes(&self) -> usize {
        0
    }

    /// A request's head, before it is routed.
    fn on_request(&self, head: &mut RequestHead<'_>, slot: &mut [u8]) -> Verdict;

    /// The answer to what [`Verdict::Suspend`] asked, with the head as the filter left it.
    fn on_answer(&self, answer: &[u8], head: &mut RequestHead<'_>, slot: &mut [u8]) -> Verdict {
        let _ = (answer, head, slot);
        Verdict::Continue
    }

    /// The head of the upstream's response, unless the exchange was answered here.
    fn on_response(&self, head: &mut ResponseHead<'_>, slot: &mut [u8]) {
        let _ = (head, slot);
    }
}
