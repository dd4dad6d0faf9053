//! Messages from control to workers, and reports from workers to control. Neither ever waits for
//! the other.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use config::checks::CheckTask;
use config::memory::MemoryPressure;
use config::snapshot::{Address, ClusterId, ListenerId};
use proxy::save::{BalancingPlace, ClusterBalancing, Differing, GroupMax, RestoreError, Unmovable};
use proxy::time::Time;
use proxy::{BuiltFilter, ConnKey, ExchangeKey, Snapshot};
use wiped::Pieces;

use crate::moving::Moving;

/// Messages that a worker's mailbox holds. Control sends a few a second at most; answers to filters
/// are more, and wait on control's side when the mailbox is full.
const MESSAGES_MAX: usize = 1024;

/// Reports that wait for control, of all workers.
pub const REPORTS_MAX: usize = 4096;

/// Reports of a turn that are sent together at its end, unless there are more.
const REPORTS_TOGETHER: usize = 64;

/// How long a report that is not urgent waits for others. Checks begin many at a time, and their answers come one by one: to wake
/// control for each would cost more than the check.
const LINGER: Duration = Duration::from_millis(5);

/// A message from control to a worker.
#[derive(Debug)]
pub enum Message<L, S> {
    /// A newer configuration, with the sockets of its new listeners for this worker.
    Snapshot {
        /// The configuration.
        snapshot: Arc<Snapshot>,
        /// Sockets of the listeners that are new.
        listeners: Vec<(ListenerId, L)>,
        /// Sockets that new listeners have from those whose place they take.
        inherited: Arc<[InheritedSocket]>,
    },
    /// Sockets in the place of those of the same listener and address, which no client reaches any more.
    Replace(Vec<ReplacingSocket<L>>),
    /// The answer to a filter's question.
    Answer {
        /// The exchange whose filter asked.
        exchange: ExchangeKey,
        /// The answer.
        payload: Arc<[u8]>,
    },
    /// Find out how endpoints are; each is answered by [`ReportBody::Checked`].
    Check(Box<[CheckTask]>),
    /// These clusters waited for the first checks of their endpoints, and serve.
    Warmed(Arc<[ClusterId]>),
    /// How near the process is to its bound on memory.
    Memory(MemoryPressure),
    /// Describe some connections: a part of them at a time, so that no turn gets long.
    Describe {
        /// The first slot to look at.
        first: u32,
        /// Given back with the answer.
        request: u64,
    },
    /// Give connections away, with their sockets.
    Give(Give<S>),
    /// Go on with connections that come from elsewhere.
    Take(Take<S>),
    /// Say that it is there.
    Ping(Ping),
    /// Say what was done for connections, a part of them at a time.
    Weigh(Weigh),
    /// Give the requests of a client's connection upstream connections of their own, so that it can move.
    SetApart(ConnKey),
    /// Say what was learned of clusters and endpoints, a part at a time.
    SaveBalancing(SaveBalancing),
    /// Go on with what a worker of another process has learned.
    RestoreBalancing(Vec<ClusterBalancing>),
    /// Where the process that connections come from is configured otherwise.
    Differing(Arc<Differing>),
    /// Another process accepts from the same sockets: leave that to it, and keep them.
    StopAccepting {
        /// Sockets from which it does not, by their listeners' ids in order.
        but: Arc<[KeptListener]>,
    },
    /// Accept again.
    AcceptAgain,
    /// Another process has let go of the sockets that were taken.
    SocketsAreOwn,
    /// Stop accepting, finish what runs, then stop.
    Drain,
    /// End what runs now, so that each request has its line in the log, unless another process has the connections, too.
    EndNow,
    /// Stop now.
    Stop,
}

/// A socket that a new listener has from one that goes, as its address and options are the same: the connections in its queue are
/// the new one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InheritedSocket {
    /// The new listener.
    pub id: ListenerId,
    /// The listener that goes.
    pub from: ListenerId,
    /// Where it listens.
    pub address: Address,
}

/// A socket in the place of those at the same address.
#[derive(Debug)]
pub struct ReplacingSocket<L> {
    /// Its listener.
    pub id: ListenerId,
    /// Where it listens.
    pub address: Address,
    /// The socket.
    pub socket: L,
}

/// Listening sockets from which no other process accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptListener {
    /// Their listener.
    pub id: ListenerId,
    /// Where they listen, or none for all sockets of the listener.
    pub address: Option<Address>,
}

/// Asks a worker for what it has learned of clusters and endpoints.
#[derive(Debug)]
pub struct SaveBalancing {
    /// Where to go on.
    pub from: BalancingPlace,
    /// Who asks: gets a part, and where to go on if there is more.
    pub reply: Sender<(Vec<ClusterBalancing>, Option<BalancingPlace>)>,
}

/// Asks a worker for connections.
#[derive(Debug)]
pub struct Give<S> {
    /// The connections that are asked for.
    pub wanted: Wanted,
    /// Who asks, with room for the answer: a worker does not wait for any.
    pub reply: SyncSender<Given<S>>,
}

/// A question whether a worker still does its work. Mail is read in its order: the answer says that what came before is carried out.
#[derive(Debug)]
pub struct Ping {
    /// Who asks, with room for the answer.
    pub reply: SyncSender<Pong>,
}

/// A worker's answer to a [`Ping`].
#[derive(Clone, Copy, Debug)]
pub struct Pong {
    /// Which worker, from 0.
    pub worker: u32,
    /// Whether connections were served, or new ones accepted, a moment ago.
    pub is_busy: bool,
}

/// Which connections a worker is to give away.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// What can move to another process, from a slot on. Its sockets stay watched, since most are closed here once the other process has
    /// them, and few return: who closes a handle on one that stays open elsewhere ends that first.
    From {
        /// The first slot to look at.
        first: u32,
        /// Groups, at most.
        groups_max: u32,
        /// Connections of a group, at most: a larger one stays.
        connections_max: usize,
        /// Whether to take only connections that carry nothing.
        only_idle: bool,
    },
    /// One, with all that belongs to it, for another worker. Its sockets are not watched any more.
    One {
        /// The connection, with which its whole group goes.
        connection: ConnKey,
        /// What its group has at most.
        max: GroupMax,
    },
}

/// Connections that a worker gave away.
#[derive(Debug)]
pub struct Given<S> {
    /// Which worker, from 0.
    pub worker: u32,
    /// Each with all that belongs to it.
    pub groups: Vec<Moving<S>>,
    /// The slot to go on with, if there are more.
    pub next: Option<u32>,
    /// Connections that were looked at and cannot move yet, such as those during a handshake.
    pub pending: u32,
    /// Connections that were looked at and stay, since their listener drains with them.
    pub staying: u32,
    /// Connections that were looked at and stay, since they moved and came back.
    pub returned: u32,
    /// Connections that were looked at and stay, since more belong together than were asked for.
    pub too_large: u32,
    /// Why the one that was asked for is not given.
    pub kept: Option<Unmovable>,
    /// Whether connections of this worker were served a moment ago: they wait while others move.
    pub is_busy: bool,
}

/// Brings connections to a worker.
#[derive(Debug)]
pub struct Take<S> {
    /// The connections with their sockets.
    pub moving: Moving<S>,
    /// Where they come from.
    pub origin: Origin,
    /// Given back with the answer.
    pub number: u32,
    /// Who asks.
    pub reply: SyncSender<Taken<S>>,
}

/// Where connections come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Another process, which has the sockets, too.
    Process,
    /// Another process that this worker gave them to. They are not to be given again.
    Returned,
    /// Another worker of this process, which lets others in their place: the bounds of this one hold for them.
    AnotherWorker,
    /// A worker of this process: this one, as a rule, which had given them.
    Worker,
}

/// What became of a [`Take`].
#[derive(Debug)]
pub struct Taken<S> {
    /// The asker's own number.
    pub number: u32,
    /// What the connections are named by now, in the order in which they were saved; or why the worker cannot go on
    /// with them, and they.
    pub result: Result<Vec<ConnKey>, (RestoreError, Moving<S>)>,
    /// The saved state, once it is of no use: to overwrite that of a large group takes longer than a worker has.
    pub used: Pieces,
}

/// Asks a worker what was done for its clients' connections since it was asked last.
#[derive(Debug)]
pub struct Weigh {
    /// The first slot to look at.
    pub first: u32,
    /// Who asks.
    pub reply: Sender<Weighed>,
}

/// What was done for some connections.
#[derive(Debug)]
pub struct Weighed {
    /// Those for which something was.
    pub connections: Vec<Work>,
    /// The slot to go on with, if there are more.
    pub next: Option<u32>,
}

/// What was done for a client's connection.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The connection of the client.
    pub connection: ConnKey,
    /// Reads, writes and events since it was asked for last.
    pub operations: u16,
    /// Requests since it was accepted.
    pub requests: u32,
}

/// A report from a worker to control.
pub type Report = config::reports::Report<BuiltFilter, ExchangeKey>;

/// The content of a report.
pub type ReportBody = config::reports::ReportBody<BuiltFilter, ExchangeKey>;

/// The queue to control for the reports of all workers.
pub trait ReportQueue: fmt::Debug + Send + Sync {
    /// Queues a report, and drops it if control is gone.
    ///
    /// # Errors
    ///
    /// The report, if there is no room now.
    fn try_send(&self, report: Report) -> Result<(), Report>;

    /// The same, but waits for room. For a worker that has nothing else to do.
    fn send(&self, report: Report);
}

impl ReportQueue for SyncSender<Report> {
    fn try_send(&self, report: Report) -> Result<(), Report> {
        match Self::try_send(self, report) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(report)) => Err(report),
        }
    }

    fn send(&self, report: Report) {
        // Without control there is no reader.
        let _ = Self::send(self, report);
    }
}

/// A worker's end: messages to it, reports from it.
#[derive(Debug)]
pub struct Mailbox<L, S> {
    messages: Receiver<Message<L, S>>,
    progress: Progress,
    reports: Arc<dyn ReportQueue>,
    worker: u32,
    /// Reports of this turn, those that wait for others, and those that did not fit: oldest first, and none may be lost.
    unsent: std::collections::VecDeque<ReportBody>,
    /// When they are sent, if none of them is urgent.
    flush_at: Option<Time>,
}

/// Reports the end of a worker, from the thread that runs it, after all reports of the worker.
#[derive(Debug)]
pub struct Reporter {
    reports: Arc<dyn ReportQueue>,
    worker: u32,
}

impl Reporter {
    /// Waits for room and sends the report.
    pub fn report(&self, body: ReportBody) {
        self.reports.send(Report { worker: self.worker, body });
    }
}

/// Control's end of one worker's mailbox. The worker has to be woken after a message.
#[derive(Debug)]
pub struct Postbox<L, S> {
    messages: SyncSender<Message<L, S>>,
    progress: Progress,
}

/// How many parts of large groups a worker has moved: it may answer nothing else meanwhile, and is at work as long as this grows.
#[derive(Clone, Debug, Default)]
struct Progress(Arc<AtomicU32>);

impl<L, S> Clone for Postbox<L, S> {
    fn clone(&self) -> Self {
        Self { messages: self.messages.clone(), progress: self.progress.clone() }
    }
}

impl<L, S> Postbox<L, S> {
    /// Puts a message in.
    ///
    /// # Errors
    ///
    /// The message, if the mailbox is full or the worker is gone.
    pub fn post(&self, message: Message<L, S>) -> Result<(), Message<L, S>> {
        self.messages.try_send(message).map_err(|error| match error {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
        })
    }

    /// Puts a message in that may not be lost, and waits for room as long as the worker is there. Not for control, which
    /// never waits.
    ///
    /// # Errors
    ///
    /// The message, if the worker is gone.
    pub fn deliver(&self, message: Message<L, S>) -> Result<(), Message<L, S>> {
        self.messages.send(message).map_err(|error| error.0)
    }

    /// In how many turns the worker has moved connections, up to 2^32: as long as this grows it is at work, although it answers nothing.
    #[must_use]
    pub fn progress(&self) -> u32 {
        self.progress.0.load(Ordering::Relaxed)
    }
}

/// All the ends for a number of workers.
#[derive(Debug)]
pub struct Mailboxes<L, S> {
    /// One for each worker.
    pub mailboxes: Vec<Mailbox<L, S>>,
    /// One for each worker, for control.
    pub postboxes: Vec<Postbox<L, S>>,
}

impl<L, S> Mailboxes<L, S> {
    /// Makes the ends for this many workers, and of a queue for their reports.
    #[must_use]
    pub fn new(workers: u32) -> (Self, Receiver<Report>) {
        let (queue, reports) = sync_channel(REPORTS_MAX);
        let queue: Arc<dyn ReportQueue> = Arc::new(queue);
        (Self::reporting_to(&queue, workers), reports)
    }

    /// Makes the ends for this many workers, whose reports go to `queue`.
    #[must_use]
    pub fn reporting_to(queue: &Arc<dyn ReportQueue>, workers: u32) -> Self {
        let (mut mailboxes, mut postboxes) = (Vec::new(), Vec::new());
        for worker in 0..workers {
            let (sender, messages) = sync_channel(MESSAGES_MAX);
            let (reports, progress) = (Arc::clone(queue), Progress::default());
            postboxes.push(Postbox { messages: sender, progress: progress.clone() });
            mailboxes.push(Mailbox {
                messages,
                progress,
                reports,
                worker,
                unsent: Default::default(),
                flush_at: None,
            });
        }
        Self { mailboxes, postboxes }
    }
}

impl<L, S> Mailbox<L, S> {
    /// Sends reports of the worker's thread itself.
    #[must_use]
    pub fn reporter(&self) -> Reporter {
        Reporter { reports: Arc::clone(&self.reports), worker: self.worker }
    }

    pub(crate) fn next(&self) -> Option<Message<L, S>> {
        self.messages.try_recv().ok()
    }

    /// Connections have moved in this turn.
    pub(crate) fn note_progress(&self) {
        self.progress.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of its worker.
    pub(crate) const fn worker(&self) -> u32 {
        self.worker
    }

    /// Sends a report to control, with the others of this turn: each may wake control, which reads several at a time.
    /// One that does not fit waits here: these are few, and none may be lost.
    pub(crate) fn report(&mut self, body: ReportBody) {
        self.flush_at = None;
        self.queue(body);
    }

    /// The same for what is not urgent: it waits a little for others.
    pub(crate) fn report_later(&mut self, body: ReportBody, now: Time) {
        if self.unsent.is_empty() {
            self.flush_at = Some(now + LINGER);
        }
        self.queue(body);
    }

    fn queue(&mut self, body: ReportBody) {
        self.unsent.push_back(body);
        if self.unsent.len() >= REPORTS_TOGETHER {
            self.flush();
        }
    }

    /// When [`Mailbox::end_turn`] has something to send even if nothing is reported until then.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.flush_at
    }

    /// Sends what waits, unless all of it may wait for more, as far as there is room.
    pub(crate) fn end_turn(&mut self, now: Time) {
        if !self.unsent.is_empty() && self.flush_at.is_none_or(|at| at <= now) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.flush_at = None;
        while let Some(body) = self.unsent.pop_front() {
            let report = Report { worker: self.worker, body };
            if let Err(report) = self.reports.try_send(report) {
                return self.unsent.push_front(report.body);
            }
        }
    }

    /// Waits until all reports are sent. For a worker that has nothing else to do.
    pub(crate) fn finish(&mut self) {
        let reporter = self.reporter();
        self.unsent.drain(..).for_each(|body| reporter.report(body));
    }
}

#[cfg(test)]
mod tests {
    use config::checks::CheckResult;

    use super::*;

    #[test]
    fn all_reports_of_a_worker_come_before_its_end() {
        let (Mailboxes { mut mailboxes, .. }, reports) = Mailboxes::<(), ()>::new(1);
        let mut mailbox = mailboxes.pop().unwrap();
        let reporter = mailbox.reporter();
        for _ in 0..=REPORTS_MAX {
            mailbox.report(ReportBody::OutOfDescriptors("EMFILE"));
        }
        mailbox.report(ReportBody::Drained { cut_off: 3 });
        let worker = std::thread::spawn(move || {
            mailbox.finish();
            drop(mailbox);
            reporter.report(ReportBody::Stopped);
        });
        let sent: Vec<_> = reports.iter().map(|report| report.body).collect();
        worker.join().unwrap();
        assert_eq!(sent.len(), REPORTS_MAX + 3);
        let [.., ReportBody::Drained { cut_off: 3 }, ReportBody::Stopped] = sent.as_slice() else {
            panic!("{:?}", sent.last());
        };
    }

    #[test]
    fn passed_checks_wait_for_others_and_go_with_what_is_urgent() {
        let (Mailboxes { mut mailboxes, .. }, reports) = Mailboxes::<(), ()>::new(1);
        let mut mailbox = mailboxes.pop().unwrap();
        let passed = |number| ReportBody::Checked { number, result: CheckResult::Passed };
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let sent = || reports.try_iter().count();

        mailbox.report_later(passed(1), at(10));
        mailbox.report_later(passed(2), at(12));
        mailbox.end_turn(at(12));
        assert_eq!((sent(), mailbox.deadline()), (0, Some(at(15))));
        mailbox.end_turn(at(15));
        assert_eq!((sent(), mailbox.deadline()), (2, None));

        mailbox.report_later(passed(3), at(20));
        mailbox.report(ReportBody::OutOfDescriptors("EMFILE"));
        mailbox.report_later(passed(4), at(20));
        mailbox.end_turn(at(20));
        assert_eq!((sent(), mailbox.deadline()), (3, None));

        for number in 0..REPORTS_TOGETHER as u64 {
            mailbox.report_later(passed(number), at(30));
        }
        assert_eq!((sent(), mailbox.deadline()), (REPORTS_TOGETHER, None));

        mailbox.report_later(passed(5), at(40));
        mailbox.finish();
        assert_eq!(sent(), 1);
    }

    #[test]
    fn what_finds_no_room_is_sent_again_in_the_next_turn() {
        let (Mailboxes { mut mailboxes, .. }, reports) = Mailboxes::<(), ()>::new(1);
        let mut mailbox = mailboxes.pop().unwrap();
        let passed = |number| ReportBody::Checked { number, result: CheckResult::Passed };
        let now = Time::from_nanos(0);
        let count = REPORTS_MAX as u64 + 1;
        (0..count).for_each(|number| mailbox.report_later(passed(number), now));
        mailbox.end_turn(now + LINGER);
        assert_eq!(reports.try_iter().count(), REPORTS_MAX);
        mailbox.report_later(passed(count), now + LINGER);
        mailbox.end_turn(now + LINGER);
        assert_eq!(reports.try_iter().count(), 2);
    }
}
