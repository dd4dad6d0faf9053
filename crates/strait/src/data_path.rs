//! The workers: starts them, and keeps control's view of them.
//!
//! Messages wait here when a mailbox is full, in their order, so that control never waits and no
//! snapshot overtakes another.

mod addresses;
mod contacts;
mod listening;
#[cfg(test)]
mod tests;
mod worker_thread;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::thread;

use ::handover::UnusedSocket;
use config::checks::CheckTask;
use config::file_mode::FileMode;
use config::memory::MemoryPressure;
use config::snapshot::{Address, Cluster, ClusterId, ListenerId};
use control::{BindFailure, Bound, ExplainRequest, ExplainStep, Report, Workers};
use io::Socket;
use proxy::filter::Filter;
use proxy::{ExchangeKey, Share, Snapshot};
use telemetry::Emitter;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use worker::{Listener, Mailbox, Mailboxes, Message, ReplacingSocket, ReportQueue};

pub(crate) use self::addresses::{address_text, hint};
pub(crate) use self::contacts::{Contacts, Mail, Pings};
pub(crate) use self::listening::{Handles, Sockets};

use self::contacts::{FormerProcess, Reach};
use self::listening::{AddressSockets, Held, failure, in_the_way_of_new, take_one_each};
use self::worker_thread::Post;
use crate::activation::Activation;
use crate::control_groups::{self, ControlGroups};
use crate::descriptors::Descriptors;
use crate::explain::{self, Knowledge};
use crate::moves::Moves;
use crate::secrecy::CoreDumps;

/// The workers, as control sees them.
#[derive(Debug)]
pub(crate) struct DataPath {
    workers: Vec<Contact>,
    /// The listeners of this process.
    held: BTreeMap<ListenerId, Held>,
    core_dumps: CoreDumps,
    /// Sockets that the service manager passed to the process.
    activation: Activation,
    keeps_handles: KeepsHandles,
    /// Whether connections to upstreams may have a mark, as far as that was tried.
    can_mark: bool,
    /// The process whose place this one took.
    former: FormerProcess,
}

/// Who else is to have the listening sockets, of which this process keeps handles for that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeepsHandles {
    /// The process that takes this one's place.
    pub(crate) for_taker: bool,
    /// The service manager, for the next process.
    pub(crate) for_service_manager: bool,
}

/// Control's channel to one worker.
#[derive(Debug)]
struct Contact {
    reach: Reach,
    /// Messages for which the mailbox had no room, oldest first.
    waiting: VecDeque<Mail>,
}

/// The parts that a worker is started with.
#[derive(Debug)]
pub(crate) struct Crew {
    /// One of each for every worker.
    mailboxes: Vec<Mailbox<Listener, Socket>>,
    wakers: Vec<io::Waker>,
    pollers: Vec<io::Poller>,
}

impl DataPath {
    /// Contacts for `count` workers that have not started. Their reports go to `reports`.
    pub(crate) fn new(
        count: u32,
        core_dumps: CoreDumps,
        activation: Activation,
        keeps_handles: KeepsHandles,
        reports: Sender<Report<Self>>,
    ) -> std::io::Result<(Self, Crew)> {
        let reports: Arc<dyn ReportQueue> = Arc::new(Reports(reports));
        let Mailboxes { mailboxes, postboxes } = Mailboxes::reporting_to(&reports, count);
        let wakers: Vec<_> =
            postboxes.iter().map(|_| io::Waker::new()).collect::<Result<_, _>>()?;
        let pollers: Vec<_> =
            postboxes.iter().map(|_| io::Poller::new()).collect::<Result<_, _>>()?;
        let reaches = postboxes.into_iter().zip(&wakers).zip(&pollers);
        let reaches = reaches
            .map(|((postbox, waker), poller)| Reach::new(postbox, waker.clone(), poller.clone()));
        let workers = reaches.map(|reach| Contact { reach, waiting: VecDeque::new() }).collect();
        let (held, former) = (BTreeMap::new(), FormerProcess::default());
        let this =
            Self { workers, held, core_dumps, activation, keeps_handles, can_mark: false, former };
        Ok((this, Crew { mailboxes, wakers, pollers }))
    }

    /// Sockets that the service manager passed to the process.
    pub(crate) const fn activation(&self) -> &Activation {
        &self.activation
    }

    /// The sockets of listeners of a former process that no listener of `snapshot` takes. To be asked before [`Self::let_go`].
    pub(crate) fn unused(&self, snapshot: &Snapshot) -> Vec<UnusedSocket> {
        self.activation.unused(snapshot)
    }

    /// Closes its handles on sockets of a former process, once listeners have theirs, and returns the names of those that the service
    /// manager is to close.
    pub(crate) fn let_go(&mut self, snapshot: &Snapshot) -> Vec<String> {
        self.activation.let_go(snapshot, self.keeps_handles.for_service_manager)
    }

    /// How the workers are reached from another thread.
    pub(crate) fn contacts(&self) -> Contacts {
        let workers = self.workers.iter().map(|contact| contact.reach.clone()).collect();
        Contacts { workers, former: self.former.clone() }
    }

    fn post(&mut self, worker: u32, message: Mail) {
        if let Some(contact) = self.workers.get_mut(worker as usize) {
            contact.waiting.push_back(message);
            contact.flush();
        }
    }

    fn tell_all(&mut self, message: impl Fn() -> Mail) {
        for contact in &mut self.workers {
            contact.waiting.push_back(message());
            contact.flush();
        }
    }
}

impl Contact {
    fn flush(&mut self) {
        let before = self.waiting.len();
        while let Some(message) = self.waiting.pop_front() {
            if let Err(message) = self.reach.try_post(message) {
                self.waiting.push_front(message);
                break;
            }
        }
        if self.waiting.len() < before {
            self.reach.waker.wake();
        }
    }
}

impl Workers for DataPath {
    type Filter = Box<dyn Filter>;
    type Asker = ExchangeKey;
    type Sockets = Sockets;
    type Handles = Handles;
    type Mover = Moves;

    fn count(&self) -> u32 {
        u32::try_from(self.workers.len()).unwrap_or(u32::MAX)
    }

    fn bind(&mut self, snapshot: &Snapshot) -> Result<Bound<Sockets>, Vec<BindFailure>> {
        let mut bound = Bound { sockets: Vec::new(), addresses: Vec::new() };
        let mut failures = self.unmarkable(snapshot);
        for id in &snapshot.changes.listeners_added {
            let Some((_, listener)) = snapshot.listener(*id) else { continue };
            let going = &snapshot.changes.listeners_removed;
            let mut addresses = Vec::with_capacity(listener.addresses.len());
            for address in &*listener.addresses {
                let bound_address = match in_the_way_of_new(&bound.sockets, address, snapshot) {
                    None => self.bind_address(listener, address, going),
                    Some(reason) => Err(reason),
                };
                match bound_address {
                    Ok((from, address)) => {
                        addresses.push(address.clone());
                        bound.sockets.push(AddressSockets { id: *id, address, from });
                    }
                    Err(reason) => failures.push(failure(listener, address, reason)),
                }
            }
            bound.addresses.push((*id, addresses));
        }
        if failures.is_empty() { Ok(bound) } else { Err(failures) }
    }

    fn publish(&mut self, snapshot: &Arc<Snapshot>, mut sockets: Sockets) {
        self.core_dumps.on_snapshot(snapshot);
        self.hold(snapshot, &sockets);
        let removed = &snapshot.changes.listeners_removed;
        if !removed.is_empty() {
            self.held.retain(|id, _| !removed.contains(id));
        }
        let inherited: Arc<[_]> = sockets.iter().filter_map(AddressSockets::inherited).collect();
        for contact in &mut self.workers {
            let listeners = take_one_each(&mut sockets);
            let (snapshot, inherited) = (Arc::clone(snapshot), Arc::clone(&inherited));
            contact.waiting.push_back(Message::Snapshot { snapshot, listeners, inherited });
            contact.flush();
        }
    }

    fn answer(&mut self, worker: u32, asker: ExchangeKey, payload: Arc<[u8]>) {
        self.post(worker, Message::Answer { exchange: asker, payload });
    }

    fn check(&mut self, worker: u32, tasks: Box<[CheckTask]>) {
        self.post(worker, Message::Check(tasks));
    }

    fn warmed(&mut self, clusters: &Arc<[ClusterId]>) {
        self.tell_all(|| Message::Warmed(Arc::clone(clusters)));
    }

    fn set_memory(&mut self, memory: MemoryPressure) {
        // Of a worker that reads nothing, the last is enough.
        for contact in &mut self.workers {
            contact.waiting.retain(|message| !matches!(message, Message::Memory(_)));
        }
        self.tell_all(|| Message::Memory(memory));
    }

    fn describe(&mut self, worker: u32, first: u32, request: u64) {
        // Clients may ask as often as they like: a worker that reads nothing is not asked once its mailbox is full, and has no answer
        // either way.
        if self.workers.get(worker as usize).is_some_and(|contact| contact.waiting.is_empty()) {
            self.post(worker, Message::Describe { first, request });
        }
    }

    fn ask_alive(&mut self, worker: u32, request: u64) {
        // No connection has this slot: the answer is empty. There is one such question at a time.
        self.post(worker, Message::Describe { first: u32::MAX, request });
    }

    fn list_former(&mut self, request: u32, worker: u32, slot: u32) {
        // One that has ended says nothing, and control hears of that.
        self.former.ask(&::handover::Message::ListConnections { request, worker, slot });
    }

    fn leave_former(&mut self) {
        self.former.leave();
    }

    fn explain(
        snapshot: &Arc<Snapshot>,
        request: &ExplainRequest,
    ) -> Result<Vec<ExplainStep>, String> {
        explain::steps(snapshot, request, None, Knowledge::Live)
    }

    fn mover(&self) -> Option<Moves> {
        let has_all =
            |contact: &Contact| contact.waiting.is_empty() && !contact.reach.has_backlog();
        let has_all = self.workers.iter().all(has_all);
        has_all.then(|| Moves(self.contacts()))
    }

    fn handles(&self, listeners: Option<&[ListenerId]>) -> std::io::Result<Handles> {
        let is_asked = |id: &ListenerId| listeners.is_none_or(|ids| ids.contains(id));
        let mut handles = Handles::default();
        for (_, held) in self.held.iter().filter(|(id, _)| is_asked(id)) {
            held.add_handles(&mut handles)?;
        }
        Ok(handles)
    }

    fn set_socket_options(&self, snapshot: &Snapshot) {
        for (id, held) in &self.held {
            let Some((_, listener)) = snapshot.listener(*id) else { continue };
            let mut handles = held.handles();
            if let Err(error) = handles.try_for_each(|it| worker::set_options(it, &listener.socket))
            {
                tracing::warn!("listener {}: cannot set its socket's options: {error}", held.name);
            }
            if let Some(mode) = listener.socket.mode {
                held.set_modes(mode);
            }
        }
    }

    fn bind_lost(&mut self, snapshot: &Snapshot) -> Vec<ListenerId> {
        let (workers, keeps_handles) = (self.count(), self.keeps_handles);
        let mut all = Vec::new();
        for (id, held) in &mut self.held {
            let Some((_, listener)) = snapshot.listener(*id) else { continue };
            let bound = held.bind_lost(&listener.socket, workers, keeps_handles);
            all.extend(bound.into_iter().map(|(address, sockets)| (*id, address, sockets)));
        }
        let listeners: Vec<_> = all.iter().map(|(id, ..)| *id).collect();
        for contact in &mut self.workers {
            let of_worker = |(id, address, sockets): &mut (ListenerId, Address, Vec<Listener>)| {
                let (id, address) = (*id, address.clone());
                Some(ReplacingSocket { id, address, socket: sockets.pop()? })
            };
            let replacing: Vec<_> = all.iter_mut().filter_map(of_worker).collect();
            if !replacing.is_empty() {
                contact.waiting.push_back(Message::Replace(replacing));
                contact.flush();
            }
        }
        listeners
    }

    fn drain(&mut self) {
        self.former.leave();
        self.leave_files();
        self.close_handles();
        self.tell_all(|| Message::Drain);
    }

    fn end_now(&mut self) {
        self.leave_files();
        self.close_handles();
        self.tell_all(|| Message::EndNow);
    }

    fn stop(&mut self) {
        self.tell_all(|| Message::Stop);
    }

    fn resident_bytes() -> Option<u64> {
        io::process::rss_bytes().ok()
    }

    fn memory_bytes_max() -> Option<u64> {
        ControlGroups::own().memory_bytes_max(control_groups::read)
    }

    fn release_free_memory() {
        io::release_free_memory();
    }

    fn note_signals(signals: &[i32]) -> std::io::Result<()> {
        io::passing::note(signals)
    }

    fn has_come(signal: i32) -> bool {
        io::passing::has_come(signal)
    }

    fn take_signal(signal: i32) -> Option<bool> {
        io::passing::take(signal)
    }

    fn pass_on(process: u32, signal: i32) -> bool {
        io::passing::pass_on(process, signal)
    }

    fn flush(&mut self) {
        for contact in &mut self.workers {
            contact.flush();
        }
    }
}

impl DataPath {
    /// The queues of listeners end with the workers' own handles.
    fn close_handles(&mut self) {
        let places = self.held.values_mut().flat_map(|held| &mut held.places);
        places.for_each(|place| place.handles.clear());
    }

    /// Before this process ends: files of unix sockets stay where the service manager has the sockets.
    fn leave_files(&self) {
        if self.keeps_handles.for_service_manager {
            io::own_socket_files(false);
        }
    }

    /// The new and changed clusters that ask for a mark, if this process cannot give any. Once it could, it can: to try needs a descriptor.
    fn unmarkable(&mut self, snapshot: &Snapshot) -> Vec<BindFailure> {
        let changes = &snapshot.changes;
        let asking = changes.clusters_added.iter().chain(&changes.clusters_changed);
        let asking = asking.filter_map(|id| snapshot.cluster(*id));
        let mut marked = asking.filter(|cluster| cluster.mark.is_some()).peekable();
        if self.can_mark || marked.peek().is_none() {
            return Vec::new();
        }
        let reason = match worker::probe_mark() {
            Ok(()) => {
                self.can_mark = true;
                return Vec::new();
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                "`mark` needs CAP_NET_ADMIN; give the process that, or remove it".to_owned()
            }
            Err(error) => format!("`mark` cannot be tried: {error}"),
        };
        let failure = |cluster: &Arc<Cluster>| BindFailure::Cluster {
            cluster: Arc::clone(&cluster.name),
            reason: reason.clone(),
        };
        marked.map(failure).collect()
    }

    /// Gives the files of unix sockets that a former process left with the service manager the permissions that new ones would have.
    pub(crate) fn set_file_modes(&self, snapshot: &Snapshot) {
        for (id, held) in &self.held {
            let listener = snapshot.listener(*id);
            let mode = listener.and_then(|(_, listener)| listener.socket.mode);
            held.set_modes(mode.unwrap_or(FileMode::GROUP));
        }
    }

    /// Starts the workers with the first snapshot. Unless they accept, [`Mail::AcceptAgain`] begins that.
    pub(crate) fn start(
        &mut self,
        (crew, accepts): (Crew, bool),
        snapshot: &Arc<Snapshot>,
        mut sockets: Sockets,
        emitters: Vec<Emitter>,
        descriptors: Descriptors,
    ) -> std::io::Result<()> {
        self.hold(snapshot, &sockets);
        let workers = self.count();
        let cpus = if snapshot.startup.pins_workers { io::affinity::cpus()? } else { Vec::new() };
        let wakers: Arc<[io::Waker]> = crew.wakers.clone().into();
        let bells = proxy::Bells::new(workers);
        let crews = crew.mailboxes.into_iter().zip(crew.wakers).zip(crew.pollers).zip(emitters);
        for (worker, (((mailbox, waker), poller), emitter)) in (0..workers).zip(crews) {
            let post = Post {
                share: Share { worker, workers },
                descriptors,
                accepts,
                cpu: cpus.iter().cycle().nth(worker as usize).copied(),
                snapshot: Arc::clone(snapshot),
                listeners: take_one_each(&mut sockets),
                mailbox,
                waker,
                poller,
                wakers: Arc::clone(&wakers),
                bells: bells.clone(),
                emitter,
            };
            thread::Builder::new()
                .name(format!("strait-worker-{worker}"))
                .spawn(move || post.work())?;
        }
        Ok(())
    }
}

/// Control's queue of reports. A report wakes control, and no other thread.
#[derive(Debug)]
struct Reports(Sender<Report<DataPath>>);

impl ReportQueue for Reports {
    fn try_send(&self, report: worker::Report) -> Result<(), worker::Report> {
        match self.0.try_send(report) {
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(report)) => Err(report),
        }
    }

    fn send(&self, report: worker::Report) {
        // Without control there is no reader.
        let _ = self.0.blocking_send(report);
    }
}
