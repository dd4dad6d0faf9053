//! Answers of control, for threads that have something else to do before long.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::sync::oneshot::Receiver;

use super::line::{nanos, now};

/// Goes on with a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The answer if it comes within this time: none inside if it never will.
pub(super) fn answer_within<T>(answer: &mut Receiver<T>, timeout: Duration) -> Option<Option<T>> {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let until = now().saturating_add(nanos(timeout));
    loop {
        if let Poll::Ready(answer) = Pin::new(&mut *answer).poll(&mut context) {
            return Some(answer.ok());
        }
        let left = Duration::from_nanos(until.saturating_sub(now()));
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn an_answer_is_waited_for_and_an_end_is_noticed() {
        let (reply, mut answer) = oneshot::channel();
        assert_eq!(answer_within(&mut answer, Duration::from_millis(1)), None);
        let replying = thread::spawn(move || reply.send(7));
        assert_eq!(answer_within(&mut answer, Duration::from_secs(60)), Some(Some(7)));
        replying.join().unwrap().unwrap();
        let (reply, mut answer) = oneshot::channel::<u8>();
        drop(reply);
        assert_eq!(answer_within(&mut answer, Duration::from_secs(60)), Some(None));
    }
}
