//! What filters ask, and who answers.
//!
//! A filter that has to ask a service suspends its exchange and names a topic. The binary registers
//! one answerer a topic. A question of an unknown topic is never answered, so that its exchange
//! ends with its deadline: letting it through unanswered could open what the filter closes.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use config::reports::Question;

/// An answer on its way.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Arc<[u8]>> + Send>>;

type Answerer = Box<dyn Fn(Arc<[u8]>) -> Answering + Send>;

/// The answerers by topic.
#[derive(Default)]
pub struct Answerers(BTreeMap<Arc<str>, Answerer>);

impl Answerers {
    /// Lets `answerer` answer the questions of `topic`, in place of who did before.
    pub fn register<A, R>(&mut self, topic: &str, answerer: A)
    where
        A: Fn(Arc<[u8]>) -> R + Send + 'static,
        R: Future<Output = Arc<[u8]>> + Send + 'static,
    {
        self.0.insert(topic.into(), Box::new(move |payload| Box::pin(answerer(payload))));
    }

    /// The answer to `question`, or none if its topic has no handler.
    pub(crate) fn ask(&self, question: &Question) -> Option<Answering> {
        let answerer = self.0.get(&question.topic)?;
        Some(answerer(Arc::clone(&question.payload)))
    }
}

impl fmt::Debug for Answerers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_goes_to_its_topic_and_an_unknown_topic_is_not_answered() {
        let mut answerers = Answerers::default();
        answerers.register("length", |payload: Arc<[u8]>| async move {
            payload.len().to_string().into_bytes().into()
        });
        let ask =
            |topic: &str| Question { topic: topic.into(), payload: b"four".as_slice().into() };
        assert_eq!(&*answerers.ask(&ask("length")).unwrap().await, b"4");
        assert!(answerers.ask(&ask("width")).is_none());
    }
}
