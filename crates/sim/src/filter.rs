//! A filter that asks before it lets a request pass, so that simulations have suspended exchanges.

use std::sync::Arc;

use config::FilterKinds;
use proxy::filter::{Filter, Question, Verdict};
use schemars::JsonSchema;
use serde::Deserialize;
use wire::head::RequestHead;

/// Asks, and lets pass.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Ask {
    /// Who is asked.
    topic: String,
}

/// What the slot remembers once the question was asked.
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

/// Makes the filter known.
///
/// # Panics
///
/// If its schema is not one that the loader understands.
pub(crate) fn register(kinds: &mut FilterKinds<Box<dyn Filter>>) {
    kinds
        .register("ask", |ask: Ask| Ok(Box::new(ask) as Box<dyn Filter>))
        .expect("the schema is one that the loader understands");
}
