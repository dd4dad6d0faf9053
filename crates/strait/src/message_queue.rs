//! Log messages on their way to standard error: a bounded queue and the thread that empties it.
//!
//! The thread that logs only copies its message into the queue. Standard error may be a pipe that
//! is full; only the writer thread waits for it. Messages beyond the bound are dropped and counted,
//! and the count is logged once there is room again.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes of messages that wait. One reload can log 200 warnings of some 500 bytes, so that many
/// fit, and the memory cannot matter.
const QUEUED_BYTES_MAX: usize = 1 << 20;

/// How long the end of the process waits for a writer that has no processor.
const UNTAKEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Hands messages to the writer thread. All clones share one queue.
#[derive(Clone, Debug)]
pub(crate) struct MessageQueue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Held for a copy of a message or a swap of buffers, never while something is written.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    text: Vec<u8>,
    /// Messages that did not fit since the last swap.
    dropped: u64,
    is_writing: bool,
}

impl MessageQueue {
    /// Starts the thread, which writes to `output`. After messages were dropped, it calls
    /// `on_dropped` with their number.
    ///
    /// # Errors
    ///
    /// The system has no room for a thread.
    pub(crate) fn start(
        output: impl Write + Send + 'static,
        on_dropped: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Self { shared: Arc::default() };
        let shared = Arc::clone(&queue.shared);
        thread::Builder::new()
            .name("strait-stderr".to_owned())
            .spawn(move || shared.write_to(output, on_dropped))?;
        Ok(queue)
    }

    /// Queues a message, or drops it if too much waits. Does not wait for the output.
    pub(crate) fn push(&self, message: &[u8]) {
        let mut state = self.shared.lock();
        // A message alone in the queue always fits.
        if state.text.is_empty() || state.text.len() + message.len() <= QUEUED_BYTES_MAX {
            state.text.extend_from_slice(message);
        } else {
            state.dropped += 1;
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until all messages are written, for `timeout` at most where the output does not take them. A writer that has not begun
    /// with them waits for a processor, and is waited for a little longer.
    pub(crate) fn flush(&self, timeout: Duration) {
        let is_busy = |state: &mut State| state.is_writing || !state.text.is_empty();
        let is_untaken = |state: &mut State| !state.is_writing && !state.text.is_empty();
        // After the timeout, the process ends without its last messages.
        let mut state = self.shared.wait(self.shared.lock(), timeout, is_busy);
        if is_untaken(&mut state) {
            let state = self.shared.wait(state, UNTAKEN_TIMEOUT, is_untaken);
            drop(self.shared.wait(state, timeout, is_busy));
        }
    }
}

/// Takes a formatted message in one write.
impl Write for MessageQueue {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        self.push(message);
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as the state is so, for `timeout` at most.
    fn wait<'s>(
        &'s self,
        state: MutexGuard<'s, State>,
        timeout: Duration,
        is_so: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'s, State> {
        let waited = self.changed.wait_timeout_while(state, timeout, is_so);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn write_to(&self, mut output: impl Write, on_dropped: impl Fn(u64)) {
        let mut taken = Vec::new();
        loop {
            let is_idle = |state: &mut State| state.text.is_empty() && state.dropped == 0;
            let state = self.changed.wait_while(self.lock(), is_idle);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut state.text, &mut taken);
            let dropped = std::mem::take(&mut state.dropped);
            state.is_writing = true;
            drop(state);
            self.changed.notify_all();
            // A closed standard error must not end the process, and leaves no place to say so.
            let _ = output.write_all(&taken);
            taken = Vec::new();
            if dropped > 0 {
                on_dropped(dropped);
            }
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Passes on what is written, after a permission for each write.
    struct Gate {
        permissions: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.permissions.recv();
            self.written.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_end_waits_for_a_writer_that_has_not_begun() {
        let queue = MessageQueue { shared: Arc::default() };
        let ((permit, permissions), (written, writes)) = (channel(), channel());
        queue.push(b"last\n");
        let flushed = queue.clone();
        let end = thread::spawn(move || flushed.flush(Duration::from_millis(1)));
        assert!(writes.recv_timeout(Duration::from_millis(100)).is_err());
        assert!(!end.is_finished(), "the writer has no processor yet");
        permit.send(()).unwrap();
        let shared = Arc::clone(&queue.shared);
        thread::spawn(move || shared.write_to(Gate { permissions, written }, |_| {}));
        end.join().unwrap();
        assert_eq!(writes.try_recv().unwrap(), b"last\n");
    }

    #[test]
    fn a_blocked_output_costs_messages_beyond_the_bound_and_their_number_is_reported() {
        let ((permit, permissions), (written, writes)) = (channel(), channel());
        let (on_dropped, dropped) = channel();
        let queue = MessageQueue::start(Gate { permissions, written }, move |count| {
            let _ = on_dropped.send(count);
        })
        .unwrap();
        queue.push(b"first\n");
        // Until the thread has taken the first, so that the rest is counted exactly.
        while !queue.shared.lock().is_writing {
            thread::yield_now();
        }
        let message = vec![b'x'; QUEUED_BYTES_MAX / 4];
        for _ in 0..7 {
            queue.push(&message);
        }
        queue.flush(Duration::from_millis(1));
        permit.send(()).unwrap();
        permit.send(()).unwrap();
        assert_eq!(writes.recv().unwrap(), b"first\n");
        assert_eq!(writes.recv().unwrap().len(), 4 * message.len());
        assert_eq!(dropped.recv().unwrap(), 3);
        queue.push(b"later\n");
        permit.send(()).unwrap();
        queue.flush(Duration::from_secs(20));
        assert_eq!(writes.try_recv().unwrap(), b"later\n");
    }
}
