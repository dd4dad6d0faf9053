//! A connection whose client has to take what it asked for.
//!
//! hyper bounds how long a head may take, and nothing of its kind for a response: a client that
//! reads nothing of `/connections` would hold it in memory for as long as it likes.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::socket::Stream;

/// How long a client may take to take any byte of an answer.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A stream whose writes fail if nothing of them is taken for [`WRITE_TIMEOUT`].
pub(super) struct Patient {
    stream: Box<dyn Stream>,
    deadline: Pin<Box<Sleep>>,
    /// Whether a write waits, and the deadline counts.
    is_waiting: bool,
}

impl Patient {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, deadline: Box::pin(sleep(WRITE_TIMEOUT)), is_waiting: false }
    }

    /// The outcome of a write, or of having waited for it too long.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.is_waiting = false;
            return outcome;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.deadline.as_mut().reset(Instant::now() + WRITE_TIMEOUT);
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut *self.stream).poll_write(context, bytes);
        self.bounded(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut *self.stream).poll_write_vectored(context, slices);
        self.bounded(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut *self.stream).poll_flush(context);
        self.bounded(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut *self.stream).poll_shutdown(context);
        self.bounded(context, outcome)
    }
}
