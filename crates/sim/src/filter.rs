//! Filters that make exchanges wait: one asks a question before it lets a request pass, one gathers
//! bodies.

use std::sync::Arc;

use config::FilterKinds;
use proxy::filter::{BodyNeed, BodyNeeds, Filter, Part, Question, Verdict};
use schemars::JsonSchema;
use serde::Deserialize;
use wire::head::{RequestHead, ResponseHead};

/// Asks, and lets pass.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Ask {
    /// The topic of the question.
    topic: String,
}

/// The slot's content once the question was asked.
const ASKED: u8 = 1;

impl Filter for Ask {
    fn slot_bytes(&self) -> usize {
        1
    }

    fn on_request(&self, head: &mut RequestHead<'_>, slot: &mut [u8]) -> Verdict {
        assert_eq!(slot, [0], "a slot starts as zeros");
        slot.fill(ASKED);
        let topic = Arc::from(self.topic.as_str());
        Verdict::Suspend(Question { topic, payload: Arc::from(head.path()) })
    }

    fn on_answer(&self, answer: &[u8], head: &mut RequestHead<'_>, slot: &mut [u8]) -> Verdict {
        assert_eq!(slot, [ASKED], "the slot is as the question left it");
        assert_eq!(answer, head.path(), "the answer is to this exchange's question");
        Verdict::Continue
    }
}

/// Wants bodies whole, the response's for every other path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Gather {}

/// More than any body of a simulation has.
pub(crate) const GATHERED_BYTES_MAX: usize = 1 << 20;

impl Filter for Gather {
    fn slot_bytes(&self) -> usize {
        1
    }

    fn bodies(&self) -> BodyNeeds {
        let need = BodyNeed::Gather { bytes_max: GATHERED_BYTES_MAX };
        BodyNeeds { request: need, response: need }
    }

    fn on_request(&self, head: &mut RequestHead<'_>, slot: &mut [u8]) -> Verdict {
        slot.fill(head.path().iter().fold(0, |sum: u8, octet| sum.wrapping_add(*octet)));
        Verdict::Continue
    }

    fn on_response(&self, _head: &mut ResponseHead<'_>, slot: &mut [u8]) -> Part {
        if slot.first().is_some_and(|sum| sum % 2 == 0) { Part::Body } else { Part::Done }
    }
}

/// Has every response say by which version of its listener it was made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Stamp {
    /// The field.
    field: String,
    /// What it says.
    value: String,
}

impl Filter for Stamp {
    fn on_request(&self, _head: &mut RequestHead<'_>, _slot: &mut [u8]) -> Verdict {
        Verdict::Continue
    }

    fn on_response(&self, head: &mut ResponseHead<'_>, _slot: &mut [u8]) -> Part {
        self.on_reply(head);
        Part::Done
    }

    fn on_reply(&self, head: &mut ResponseHead<'_>) {
        head.set(self.field.as_bytes(), self.value.as_bytes());
    }
}

/// Makes the filters known.
///
/// # Panics
///
/// If a schema is not one that the loader understands.
pub(crate) fn register(kinds: &mut FilterKinds<Box<dyn Filter>>) {
    kinds
        .register("ask", |ask: Ask| Ok(Box::new(ask) as Box<dyn Filter>))
        .expect("the schema is one that the loader understands");
    kinds
        .register("gather", |gather: Gather| Ok(Box::new(gather) as Box<dyn Filter>))
        .expect("the schema is one that the loader understands");
    kinds
        .register("stamp", |stamp: Stamp| Ok(Box::new(stamp) as Box<dyn Filter>))
        .expect("the schema is one that the loader understands");
}
