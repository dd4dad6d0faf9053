//! How workers, and the process whose place this one took, are reached from a thread that may wait.

use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use io::Socket;
use io::packets::{Packets, Peer};
use wiped::Wiped;
use worker::{Listener, Message, Ping, Pong, Postbox};

/// How the workers are reached from a thread that may wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contacts {
    pub(super) workers: Vec<Reach>,
    pub(super) former: FormerProcess,
}

/// How one worker is reached.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    postbox: Postbox<Listener, Socket>,
    pub(super) waker: io::Waker,
    /// What the worker waits with.
    pub(super) poller: io::Poller,
    backlog: Backlog,
}

/// Messages to one worker that may not be lost, while there is no room in its mailbox: a thread delivers them in their order. The sender
/// does not wait, since other workers may depend on it and this one may hang.
#[derive(Clone, Debug, Default)]
struct Backlog(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<Mail>,
    /// Whether a thread is at it. From then on nothing else may be put into the mailbox.
    has_thread: bool,
}

impl Backlog {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next message of the thread, whose end it is if there is none.
    fn next(&self) -> Option<Mail> {
        let mut waiting = self.lock();
        let next = waiting.messages.pop_front();
        waiting.has_thread = next.is_some();
        next
    }
}

impl Reach {
    pub(super) fn new(
        postbox: Postbox<Listener, Socket>,
        waker: io::Waker,
        poller: io::Poller,
    ) -> Self {
        Self { postbox, waker, poller, backlog: Backlog::default() }
    }

    /// Puts a message in if there is room and nothing waits for it.
    pub(super) fn try_post(&self, message: Mail) -> Result<(), Mail> {
        let waiting = self.backlog.lock();
        if waiting.has_thread { Err(message) } else { self.postbox.post(message) }
    }

    /// Whether messages wait for room.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog.lock().has_thread
    }

    fn deliver(&self, worker: usize, message: Mail) {
        let mut waiting = self.backlog.lock();
        if waiting.has_thread {
            waiting.messages.push_back(message);
        } else if let Err(message) = self.postbox.post(message) {
            waiting.messages.push_back(message);
            waiting.has_thread = true;
            drop(waiting);
            let this = self.clone();
            let thread = thread::Builder::new().name("strait-late".to_owned());
            if let Err(error) = thread.spawn(move || this.deliver_waiting(worker)) {
                tracing::error!(
                    worker,
                    "the thread that waits for room in a worker's mailbox cannot be started: {error}"
                );
                self.deliver_waiting(worker);
            }
        }
        // It may sleep over a full mailbox only if it was not woken for what is in it.
        self.waker.wake();
    }

    fn deliver_waiting(&self, worker: usize) {
        let mut lost = 0_u32;
        while let Some(message) = self.backlog.next() {
            match self.postbox.deliver(message) {
                Ok(()) => self.waker.wake(),
                Err(_) => lost += 1,
            }
        }
        if lost > 0 {
            tracing::error!(worker, lost, "a worker has ended, and messages to it are lost");
        }
    }
}

/// The connection to the process whose place this one took, as long as that one lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormerProcess(Arc<Mutex<Option<FormerLine>>>);

#[derive(Debug)]
struct FormerLine {
    packets: Packets,
    /// What waits for room: that process may be stopped.
    unsent: VecDeque<Wiped>,
    /// Whether that process stands in for this one no more.
    is_left: bool,
    /// Whether that process takes everything back.
    takes_back: bool,
}

impl FormerProcess {
    /// Keeps another handle on the connection.
    pub(crate) fn keep(&self, packets: Option<Packets>) {
        let line = |packets| FormerLine {
            packets,
            unsent: VecDeque::new(),
            is_left: false,
            takes_back: false,
        };
        *self.line() = packets.map(line);
    }

    /// Whether there is one that stands in for this one, which has neither handed over nor begun to end.
    pub(crate) fn stands_by(&self) -> bool {
        self.line().as_ref().is_some_and(|line| !line.is_left)
    }

    /// Who that process is, as long as it lives.
    pub(crate) fn peer(&self) -> Option<Peer> {
        self.line().as_ref().and_then(|line| line.packets.peer().ok())
    }

    /// Says that this process ends as it should, or has handed over in its turn: there is nothing to stand in for.
    pub(crate) fn leave(&self) {
        self.send(&::handover::Message::Committed);
        self.note_left();
    }

    /// That process stands in for this one no more.
    pub(crate) fn note_left(&self) {
        if let Some(line) = &mut *self.line() {
            line.is_left = true;
        }
    }

    /// That process was asked to take everything back, or does not after all.
    pub(crate) fn note_taking_back(&self, takes_back: bool) {
        if let Some(line) = &mut *self.line() {
            line.takes_back = takes_back;
        }
    }

    /// Whether that process takes everything back: then it closes this connection and serves on.
    pub(crate) fn takes_back(&self) -> bool {
        self.line().as_ref().is_some_and(|line| line.takes_back)
    }

    /// Sends it a message as soon as it reads, and says whether there is such a process.
    pub(crate) fn send(&self, message: &::handover::Message) -> bool {
        let mut line = self.line();
        let Some(line) = &mut *line else { return false };
        // Each of them is sent once or twice.
        line.unsent.push_back(message.encode());
        line.flush()
    }

    /// Asks it a question, which is dropped if it has not read what it was sent before: one that stands still would be asked for ever.
    pub(crate) fn ask(&self, question: &::handover::Message) {
        let mut line = self.line();
        let Some(line) = &mut *line else { return };
        if line.flush() && line.unsent.is_empty() {
            line.unsent.push_back(question.encode());
            line.flush();
        }
    }

    /// Sends what had no room.
    pub(crate) fn flush(&self) {
        if let Some(line) = &mut *self.line() {
            line.flush();
        }
    }

    fn line(&self) -> MutexGuard<'_, Option<FormerLine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FormerLine {
    /// Whether the other process still has its end.
    fn flush(&mut self) -> bool {
        while let Some(message) = self.unsent.front() {
            match self.packets.send(message, &[], Duration::ZERO) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(error) => return error.kind() == std::io::ErrorKind::TimedOut,
            }
        }
        true
    }
}

/// What one look adds to the time without progress, at most, and how often there is one: if more has passed, this process was stopped.
const LOOK_MAX: Duration = Duration::from_millis(250);

/// How long workers are waited for that move connections: they have as long as they make progress.
#[derive(Debug)]
pub(crate) struct Patience {
    progress: u32,
    looked_at: u64,
    /// How long there was none.
    without: Duration,
}

impl Patience {
    /// Whether these workers have made no progress for so long.
    pub(crate) fn is_over(
        &mut self,
        contacts: &Contacts,
        workers: impl Iterator<Item = usize>,
        timeout: Duration,
    ) -> bool {
        let (latest, now) = (contacts.progress(workers), io::clock::monotonic_ns());
        let passed = Duration::from_nanos(now.saturating_sub(self.looked_at)).min(LOOK_MAX);
        let without = if latest == self.progress { self.without + passed } else { Duration::ZERO };
        *self = Self { progress: latest, looked_at: now, without };
        without >= timeout
    }
}

/// Workers that were asked whether they have carried out what they were sent.
#[derive(Debug)]
pub(crate) struct Pings {
    answers: Receiver<Pong>,
    missing: BTreeSet<usize>,
    pongs: Vec<Pong>,
}

impl Pings {
    /// Whether all have answered, within this time at most.
    ///
    /// # Errors
    ///
    /// One that has ended.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<bool, usize> {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let until = io::clock::monotonic_ns().saturating_add(timeout);
        while let Some(worker) = self.missing.first().copied() {
            let left = Duration::from_nanos(until.saturating_sub(io::clock::monotonic_ns()));
            let pong = match self.answers.recv_timeout(left) {
                Ok(pong) => pong,
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => return Err(worker),
            };
            self.missing.remove(&(pong.worker as usize));
            self.pongs.push(pong);
        }
        Ok(true)
    }

    /// The workers that have not answered.
    pub(crate) fn missing(&self) -> impl Iterator<Item = usize> {
        self.missing.iter().copied()
    }

    /// Whether a worker that has answered also serves others.
    pub(crate) fn is_any_busy(&self) -> bool {
        self.pongs.iter().any(|pong| pong.is_busy)
    }
}

impl Contacts {
    /// Asks these workers whether they have carried out what they were sent, and waits for all: their answers, or one that does not answer
    /// in this time, nor makes progress with connections that move.
    pub(crate) fn ping(
        &self,
        workers: impl Iterator<Item = usize>,
        timeout: Duration,
    ) -> Result<Vec<Pong>, usize> {
        let mut pings = self.begin_pings(workers)?;
        let mut patience = self.patience(pings.missing());
        let look = timeout.min(LOOK_MAX);
        while !pings.wait(look)? && !patience.is_over(self, pings.missing(), timeout) {}
        pings.missing.first().map_or(Ok(pings.pongs), |worker| Err(*worker))
    }

    /// Asks them, and lets the caller wait.
    pub(crate) fn begin_pings(&self, workers: impl Iterator<Item = usize>) -> Result<Pings, usize> {
        let (reply, answers) = sync_channel(self.count());
        let mut missing = BTreeSet::new();
        for worker in workers {
            self.post(worker, Message::Ping(Ping { reply: reply.clone() })).map_err(|_| worker)?;
            missing.insert(worker);
        }
        Ok(Pings { answers, missing, pongs: Vec::new() })
    }

    /// Begins to wait for these workers.
    pub(crate) fn patience(&self, workers: impl Iterator<Item = usize>) -> Patience {
        let looked_at = io::clock::monotonic_ns();
        Patience { progress: self.progress(workers), looked_at, without: Duration::ZERO }
    }

    /// In how many turns these workers have moved connections, which is another number as long as one of them is at it.
    fn progress(&self, workers: impl Iterator<Item = usize>) -> u32 {
        let reached = workers.filter_map(|worker| self.workers.get(worker));
        reached.fold(0, |sum, reach| sum.wrapping_add(reach.postbox.progress()))
    }

    /// How many workers there are.
    pub(crate) fn count(&self) -> usize {
        self.workers.len()
    }

    /// The connection to the process whose place this one took.
    pub(crate) const fn former(&self) -> &FormerProcess {
        &self.former
    }

    /// Puts a message into a worker's mailbox, and waits for room for a moment.
    ///
    /// # Errors
    ///
    /// The message: the worker is gone, or takes none.
    pub(crate) fn post(&self, worker: usize, message: Mail) -> Result<(), Mail> {
        self.post_unwoken(worker, message)?;
        if let Some(reach) = self.workers.get(worker) {
            reach.waker.wake();
        }
        Ok(())
    }

    /// The same for one of several messages, the last of which wakes the worker.
    ///
    /// # Errors
    ///
    /// The message.
    pub(crate) fn post_unwoken(&self, worker: usize, mut message: Mail) -> Result<(), Mail> {
        const TRIES_MAX: u32 = 200;
        let Some(reach) = self.workers.get(worker) else { return Err(message) };
        for _ in 0..TRIES_MAX {
            match reach.try_post(message) {
                Ok(()) => return Ok(()),
                Err(back) => message = back,
            }
            reach.waker.wake();
            pause();
        }
        Err(message)
    }

    /// Sends a worker a message that may not be lost. It comes behind those that were delivered before, as soon as there is room; this does not
    /// wait for that.
    pub(crate) fn deliver(&self, worker: usize, message: Mail) {
        if let Some(reach) = self.workers.get(worker) {
            reach.deliver(worker, message);
        }
    }

    /// Waits until what was delivered is in the mailboxes, for so long at most: a worker may hang.
    pub(crate) fn flush(&self, timeout: Duration) {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let until = io::clock::monotonic_ns().saturating_add(timeout);
        let is_waiting = Reach::has_backlog;
        while self.workers.iter().any(is_waiting) && io::clock::monotonic_ns() < until {
            pause();
        }
    }

    /// Has a worker not watch a socket any more that it gave away, before this process's handle on it is closed. Where another process
    /// has one, too, the worker would be woken for whatever happens there.
    pub(crate) fn unwatch(&self, worker: usize, socket: &Socket) {
        if let Some(reach) = self.workers.get(worker) {
            // Fails only if it is not watched, which is what is wanted.
            let _ = reach.poller.remove(socket);
        }
    }

    /// The same to all workers.
    pub(crate) fn deliver_to_all(&self, message: impl Fn() -> Mail) {
        for worker in 0..self.count() {
            self.deliver(worker, message());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own waits for room in a mailbox")]
fn pause() {
    thread::sleep(Duration::from_millis(5));
}

/// Messages to a worker.
pub(crate) type Mail = Message<Listener, Socket>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_waited_for_unless_they_have_ended() {
        let (reply, answers) = sync_channel(2);
        let mut pings = Pings { answers, missing: [0, 1].into(), pongs: Vec::new() };
        assert_eq!(pings.wait(Duration::ZERO), Ok(false));
        reply.send(Pong { worker: 0, is_busy: true }).expect("there is room");
        assert_eq!(pings.wait(Duration::ZERO), Ok(false));
        assert_eq!((pings.missing().collect::<Vec<_>>(), pings.is_any_busy()), (vec![1], true));
        drop(reply);
        assert_eq!(pings.wait(Duration::MAX), Err(1));
    }

    /// Its workers end one by one then, and do not hang.
    #[test]
    fn nothing_stands_by_for_a_process_that_has_handed_over_or_ends() {
        let (own, other) = Packets::pair().expect("the system has room");
        let former = FormerProcess::default();
        assert!(!former.stands_by());
        former.keep(Some(own));
        assert!(former.stands_by());
        former.leave();
        assert!(!former.stands_by() && former.send(&::handover::Message::Succeeded));
        let mut buffer = [0; 64];
        let heard = other.receive(&mut buffer, Duration::ZERO).expect("it is open");
        let io::packets::Received::Packet(len, _) = heard else { panic!("{heard:?}") };
        let committed = ::handover::Message::decode(&buffer[..len]);
        assert_eq!(committed, Ok(Some(::handover::Message::Committed)));
    }
}
