//! The workers: starts them, and keeps control's view of them.
//!
//! Messages wait here when a mailbox is full, in their order, so that control never waits and no
//! snapshot overtakes another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::activation::Activation;
use crate::control_groups::{self, ControlGroups};
use crate::crypto_thread::LazyCryptoThread;
use crate::descriptors::Descriptors;
use crate::explain::{self, Knowledge};
use crate::moves::Moves;
use crate::secrecy::CoreDumps;
use ::handover::UnusedSocket;
use config::checks::CheckTask;
use config::memory::MemoryPressure;
use config::snapshot::{Address, ClusterId, ListenSocket, Listener as ListenerConfig, ListenerId};
use control::{BindFailure, Bound, ExplainRequest, ExplainStep, Report, Workers};
use io::Socket;
use io::packets::Packets;
use proxy::filter::Filter;
use proxy::{ExchangeKey, Proxy, Share, Snapshot};
use telemetry::Emitter;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use wiped::Wiped;
use worker::{
    InheritedSocket, Kernel, Listener, Mailbox, Mailboxes, Message, Ping, Pong, Postbox,
    ReportBody, ReportQueue, Reporter, Worker, World,
};

#[cfg(test)]
mod tests;

/// Sockets of listeners, a list for each worker.
pub(crate) type Sockets = Vec<AddressSockets>;

/// Messages to a worker.
pub(crate) type Mail = Message<Listener, Socket>;

/// The workers, as control sees them.
#[derive(Debug)]
pub(crate) struct DataPath {
    workers: Vec<Contact>,
    /// The listeners of this process.
    held: Vec<Held>,
    core_dumps: CoreDumps,
    /// Sockets that the service manager passed to the process.
    activation: Activation,
    /// Whether another process may take this one's place.
    keeps_handles: bool,
    /// The process whose place this one took.
    former: Former,
}

/// A listener that this process has.
#[derive(Debug)]
struct Held {
    id: ListenerId,
    name: Arc<str>,
    options: ListenSocket,
    places: Vec<Place>,
}

/// An address of a listener that this process has.
#[derive(Debug)]
struct Place {
    /// With the port that it got, if it asked for any.
    address: Address,
    /// Handles on its sockets, for the process that takes this one's place; none if none may.
    handles: Vec<OwnedFd>,
}

/// The sockets of one address of a listener.
#[derive(Debug)]
pub(crate) struct AddressSockets {
    id: ListenerId,
    /// With the port that it got, if it asked for any.
    address: Address,
    from: SocketSource,
}

/// Where the sockets of an address come from.
#[derive(Debug)]
enum SocketSource {
    /// They are new to the workers: those of each one.
    New(Vec<Vec<Listener>>),
    /// Workers have them from this listener, which goes.
    Inherited(ListenerId),
}

/// Handles on listening sockets, by the listener's name.
pub(crate) type Handles = BTreeMap<Arc<str>, Vec<OwnedFd>>;

/// How the workers are reached from a thread that may wait.
#[derive(Clone, Debug)]
pub(crate) struct Contacts {
    workers: Vec<Reach>,
    former: Former,
}

/// How one worker is reached.
#[derive(Clone, Debug)]
struct Reach {
    postbox: Postbox<Listener, Socket>,
    waker: io::Waker,
    /// What the worker waits with.
    poller: io::Poller,
}

/// The connection to the process whose place this one took, as long as that one lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Former(Arc<Mutex<Option<FormerLine>>>);

#[derive(Debug)]
struct FormerLine {
    packets: Packets,
    /// What waits for room: that process may be stopped.
    unsent: VecDeque<Wiped>,
}

impl Former {
    /// Keeps another handle on the connection.
    pub(crate) fn keep(&self, packets: Option<Packets>) {
        *self.line() = packets.map(|packets| FormerLine { packets, unsent: VecDeque::new() });
    }

    /// Whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.line().is_some()
    }

    /// Says that this process ends as it should: there is nothing to stand in for.
    pub(crate) fn leave(&self) {
        self.send(&::handover::Message::Committed);
    }

    /// Sends it a message as soon as it reads, and says whether there is such a process.
    pub(crate) fn send(&self, message: &::handover::Message) -> bool {
        let mut line = self.line();
        let Some(line) = &mut *line else { return false };
        // There are four such messages, each of them sent once or twice.
        line.unsent.push_back(message.encode());
        line.flush()
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

impl Held {
    fn handles(&self) -> impl Iterator<Item = &OwnedFd> {
        self.places.iter().flat_map(|place| &place.handles)
    }
}

impl AddressSockets {
    /// For the workers, if they have the sockets.
    fn inherited(&self) -> Option<InheritedSocket> {
        match self.from {
            SocketSource::New(_) => None,
            SocketSource::Inherited(from) => {
                Some(InheritedSocket { id: self.id, from, address: self.address.clone() })
            }
        }
    }
}

impl Contacts {
    /// Asks these workers whether they have carried out what they were sent, and waits for all: their answers, or one that does not answer
    /// in this time.
    pub(crate) fn ping(
        &self,
        workers: impl Iterator<Item = usize>,
        timeout: Duration,
    ) -> Result<Vec<Pong>, usize> {
        let (reply, answers) = sync_channel(self.count());
        let mut missing = BTreeSet::new();
        for worker in workers {
            self.post(worker, Message::Ping(Ping { reply: reply.clone() })).map_err(|_| worker)?;
            missing.insert(worker);
        }
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let until = io::clock::monotonic_ns().saturating_add(timeout);
        let mut pongs = Vec::with_capacity(missing.len());
        while let Some(worker) = missing.first().copied() {
            let left = Duration::from_nanos(until.saturating_sub(io::clock::monotonic_ns()));
            let pong = answers.recv_timeout(left).map_err(|_| worker)?;
            missing.remove(&(pong.worker as usize));
            pongs.push(pong);
        }
        Ok(pongs)
    }

    /// How many workers there are.
    pub(crate) fn count(&self) -> usize {
        self.workers.len()
    }

    /// The connection to the process whose place this one took.
    pub(crate) const fn former(&self) -> &Former {
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
        let Some(Reach { postbox, waker, .. }) = self.workers.get(worker) else {
            return Err(message);
        };
        for _ in 0..TRIES_MAX {
            match postbox.post(message) {
                Ok(()) => return Ok(()),
                Err(back) => message = back,
            }
            waker.wake();
            pause();
        }
        Err(message)
    }

    /// Puts a message into a worker's mailbox that may not be lost, and waits for room as long as the worker is there.
    ///
    /// # Errors
    ///
    /// The message: the worker is gone.
    pub(crate) fn deliver(&self, worker: usize, message: Mail) -> Result<(), Mail> {
        let Some(Reach { postbox, waker, .. }) = self.workers.get(worker) else {
            return Err(message);
        };
        // It may sleep over a full mailbox only if it was not woken for what is in it.
        waker.wake();
        postbox.deliver(message)?;
        waker.wake();
        Ok(())
    }

    /// Has a worker not watch a socket any more that it gave away, before this process's handle on it is closed. Where another process
    /// has one, too, the worker would be woken for whatever happens there.
    pub(crate) fn unwatch(&self, worker: usize, socket: &Socket) {
        if let Some(reach) = self.workers.get(worker) {
            // Fails only if it is not watched, which is what is wanted.
            let _ = reach.poller.remove(socket);
        }
    }

    /// The same to all workers; without a worker its message is of no use.
    pub(crate) fn deliver_to_all(&self, message: impl Fn() -> Mail) {
        for worker in 0..self.count() {
            drop(self.deliver(worker, message()));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own waits for room in a mailbox")]
fn pause() {
    thread::sleep(Duration::from_millis(5));
}

/// Which listener of this process has the address of a new listener.
enum InTheWay<'a> {
    Nothing,
    /// Only listeners that make room for it.
    Going,
    /// One that stays, by its name and the address.
    Staying(&'a str, &'a Address),
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
        keeps_handles: bool,
        reports: Sender<Report<Self>>,
    ) -> std::io::Result<(Self, Crew)> {
        let reports: Arc<dyn ReportQueue> = Arc::new(Reports(reports));
        let Mailboxes { mailboxes, postboxes } = Mailboxes::reporting_to(&reports, count);
        let wakers: Vec<_> =
            postboxes.iter().map(|_| io::Waker::new()).collect::<Result<_, _>>()?;
        let pollers: Vec<_> =
            postboxes.iter().map(|_| io::Poller::new()).collect::<Result<_, _>>()?;
        let reaches = postboxes.into_iter().zip(&wakers).zip(&pollers);
        let reaches = reaches.map(|((postbox, waker), poller)| Reach {
            postbox,
            waker: waker.clone(),
            poller: poller.clone(),
        });
        let workers = reaches.map(|reach| Contact { reach, waiting: VecDeque::new() }).collect();
        let (held, former) = (Vec::new(), Former::default());
        let this = Self { workers, held, core_dumps, activation, keeps_handles, former };
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

    /// Closes its handles on sockets of a former process, once listeners have theirs, and says of which listeners there were
    /// any.
    pub(crate) fn let_go(&mut self) -> Vec<String> {
        self.activation.let_go()
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
            if let Err(message) = self.reach.postbox.post(message) {
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
        let mut failures = unmarkable(snapshot);
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
            self.held.retain(|held| !removed.contains(&held.id));
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
        self.former.send(&::handover::Message::ListConnections { request, worker, slot });
    }

    fn explain(
        snapshot: &Arc<Snapshot>,
        request: &ExplainRequest,
    ) -> Result<Vec<ExplainStep>, String> {
        explain::steps(snapshot, request, None, Knowledge::Live)
    }

    fn mover(&self) -> Option<Moves> {
        let has_all = self.workers.iter().all(|contact| contact.waiting.is_empty());
        has_all.then(|| Moves(self.contacts()))
    }

    fn handles(&self) -> std::io::Result<Handles> {
        let handles = self.held.iter().map(|held| {
            let handles: Result<_, _> = held.handles().map(OwnedFd::try_clone).collect();
            handles.map(|handles| (Arc::clone(&held.name), handles))
        });
        handles.collect()
    }

    fn set_socket_options(&self, snapshot: &Snapshot) {
        for held in &self.held {
            let Some((_, listener)) = snapshot.listener(held.id) else { continue };
            let mut handles = held.handles();
            if let Err(error) = handles.try_for_each(|it| worker::set_options(it, &listener.socket))
            {
                tracing::warn!("listener {}: cannot set its socket's options: {error}", held.name);
            }
        }
    }

    fn drain(&mut self) {
        self.former.leave();
        // The queues end with the workers' own handles.
        let places = self.held.iter_mut().flat_map(|held| &mut held.places);
        places.for_each(|place| place.handles.clear());
        self.tell_all(|| Message::Drain);
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

    fn flush(&mut self) {
        for contact in &mut self.workers {
            contact.flush();
        }
    }
}

impl DataPath {
    fn hold(&mut self, snapshot: &Snapshot, sockets: &Sockets) {
        for AddressSockets { id, address, from } in sockets {
            let Some((_, listener)) = snapshot.listener(*id) else { continue };
            let place = match from {
                SocketSource::New(_) if !self.keeps_handles => None,
                SocketSource::New(sockets) => {
                    let sockets = sockets.iter().flatten();
                    let handles = sockets.filter_map(|it| it.try_clone_fd().ok()).collect();
                    Some(Place { address: address.clone(), handles })
                }
                SocketSource::Inherited(from) => self.take_place(*from, address),
            };
            let place =
                place.unwrap_or_else(|| Place { address: address.clone(), handles: Vec::new() });
            match self.held.iter_mut().find(|held| held.id == *id) {
                Some(held) => held.places.push(place),
                None => {
                    let (name, options) = (Arc::clone(&listener.name), listener.socket);
                    self.held.push(Held { id: *id, name, options, places: vec![place] });
                }
            }
        }
    }

    /// Takes from a listener that goes what another one goes on with.
    fn take_place(&mut self, from: ListenerId, address: &Address) -> Option<Place> {
        let held = self.held.iter_mut().find(|held| held.id == from)?;
        let place = held.places.iter().position(|place| place.address == *address)?;
        Some(held.places.swap_remove(place))
    }

    /// The sockets of one address of a listener, one or more for each worker, and where they listen.
    fn bind_address(
        &self,
        listener: &ListenerConfig<Box<dyn Filter>>,
        address: &Address,
        going: &[ListenerId],
    ) -> Result<(SocketSource, Address), String> {
        let options = &listener.socket;
        if let Some(from) = self.inherited(address, options, going) {
            return Ok((SocketSource::Inherited(from), address.clone()));
        }
        let (sockets, bound) = match self.in_the_way(address, going) {
            InTheWay::Nothing if let Some(taken) = self.activation.taken(listener, address) => {
                taken_as(worker::take_over(taken, options, self.count()))
            }
            InTheWay::Nothing | InTheWay::Going
                if let Some(inherited) = self.activation.find(address) =>
            {
                bound_as(worker::inherit(inherited, options, self.count()))
            }
            InTheWay::Nothing => {
                let bound = worker::bind(address, options, self.count());
                let is_in_use = matches!(bound, Err(io::BindError::InUse));
                let may_stand_by = is_in_use && self.activation.has_taken();
                bound_as(bound).map_err(|reason| match may_stand_by {
                    true => reason + STANDS_BY,
                    false => reason,
                })
            }
            InTheWay::Going if address.is_unix() => Err(TAKEN_OVER.to_owned()),
            InTheWay::Going => bound_as(worker::bind_beside(address, options, self.count())),
            InTheWay::Staying(name, at) => {
                let at = address_text(at);
                Err(format!("listener {name} of this process has {at}; choose another port"))
            }
        }?;
        let address = bound.map_or_else(|| address.clone(), Address::Tcp);
        Ok((SocketSource::New(sockets), address))
    }

    /// A listener that goes, and listens on this address with the same options: its sockets stay open.
    fn inherited(
        &self,
        address: &Address,
        options: &ListenSocket,
        going: &[ListenerId],
    ) -> Option<ListenerId> {
        let mut leaving = self.held.iter().filter(|held| going.contains(&held.id));
        let is_there = |held: &&Held| {
            held.options == *options && held.places.iter().any(|place| place.address == *address)
        };
        leaving.find(is_there).map(|held| held.id)
    }

    /// Which listener of this process stands in the way of one on `address`, when those in `going`
    /// go.
    fn in_the_way(&self, address: &Address, going: &[ListenerId]) -> InTheWay<'_> {
        let held = self.held.iter();
        let held = held.flat_map(|held| held.places.iter().map(move |at| (held, &at.address)));
        let mut overlapping = held.filter(|(_, at)| at.overlaps(address)).peekable();
        if overlapping.peek().is_none() {
            return InTheWay::Nothing;
        }
        let staying = overlapping.find(|(held, _)| !going.contains(&held.id));
        staying.map_or(InTheWay::Going, |(held, at)| InTheWay::Staying(&held.name, at))
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

/// One worker's thread.
struct Post {
    share: Share,
    descriptors: Descriptors,
    accepts: bool,
    /// The core to stay on, if any.
    cpu: Option<usize>,
    snapshot: Arc<Snapshot>,
    listeners: Vec<(ListenerId, Listener)>,
    mailbox: Mailbox<Listener, Socket>,
    waker: io::Waker,
    poller: io::Poller,
    /// The wakers of all workers.
    wakers: Arc<[io::Waker]>,
    bells: proxy::Bells,
    emitter: Emitter,
}

impl Post {
    fn work(self) {
        let guard = EndProcessOnPanic;
        let reporter = self.mailbox.reporter();
        reporter.report(match self.turn_until_told(&reporter) {
            Ok(()) => ReportBody::Stopped,
            Err(reason) => ReportBody::Failed(reason),
        });
        std::mem::forget(guard);
    }

    fn turn_until_told(self, reporter: &Reporter) -> Result<(), String> {
        if let Some(cpu) = self.cpu
            && let Err(error) = io::affinity::pin_current_thread(cpu)
        {
            tracing::warn!(worker = self.share.worker, cpu, "cannot stay on this core: {error}");
        }
        let crypto_thread = LazyCryptoThread::new(self.waker.clone());
        let mut world =
            Kernel::new(self.poller, self.waker).map_err(|error| format!("epoll: {error}"))?;
        world.set_descriptor_bounds(self.descriptors.bounds);
        world.set_crew(self.share.worker, self.wakers);
        let settings = proxy::Settings { share: self.share, seed: seed(), bells: self.bells };
        let stage_times = self.snapshot.access_log.stage_times;
        let now = world.now();
        let mut proxy = Proxy::new(settings, self.snapshot, self.emitter, now);
        proxy.set_descriptors_max(self.descriptors.connections_max);
        proxy.set_crypto_thread(Box::new(crypto_thread));
        let (group_part_max, accepts) = (worker::GROUP_PART_MAX, self.accepts);
        let settings = worker::Settings { stage_times, group_part_max, accepts };
        let mut worker = Worker::new(world, proxy, self.listeners, self.mailbox, settings)
            .map_err(|error| format!("a listener cannot be watched: {error}"))?;
        reporter.report(ReportBody::Started);
        worker.run().map_err(|error| error.to_string())
    }
}

/// Ends the process when a panic unwinds through it, as every panic does in a release build (see
/// `docs/decisions`): tests must not see another behaviour.
struct EndProcessOnPanic;

impl Drop for EndProcessOnPanic {
    fn drop(&mut self) {
        std::process::abort();
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

/// The sockets of each listener for one worker.
fn take_one_each(sockets: &mut Sockets) -> Vec<(ListenerId, Listener)> {
    let of_worker = |of_address: &mut AddressSockets| {
        let id = of_address.id;
        let sockets = match &mut of_address.from {
            SocketSource::New(sockets) => sockets.pop(),
            SocketSource::Inherited(_) => None,
        };
        sockets.unwrap_or_default().into_iter().map(move |socket| (id, socket))
    };
    sockets.iter_mut().flat_map(of_worker).collect()
}

/// What an address in use may mean besides, where another process hands over.
const STANDS_BY: &str = ". If a process that was replaced still serves it: `strait upgrade --back`, or wait until its \
                         `handover.probation` is over";

/// Why a unix listener that changes needs another process.
const TAKEN_OVER: &str = "this process listens there already: changes of the socket options of a unix \
                          listener require `strait upgrade`, a restart, or another path";

/// Sockets and the address of TCP that they got, or why there are none.
fn bound_as(
    result: Result<Vec<Listener>, io::BindError>,
) -> Result<(Vec<Vec<Listener>>, Option<SocketAddr>), String> {
    taken_as(result.map(|sockets| sockets.into_iter().map(|socket| vec![socket]).collect()))
}

/// As [`bound_as`], where a worker may have several.
fn taken_as(
    result: Result<Vec<Vec<Listener>>, io::BindError>,
) -> Result<(Vec<Vec<Listener>>, Option<SocketAddr>), String> {
    let sockets = result.map_err(|error| {
        let hint = match &error {
            io::BindError::InUse => "stop that process, or take another address",
            io::BindError::NotTransparent => {
                "`original_destination: tproxy` needs it; give the process that, or remove the option"
            }
            io::BindError::NotASocket => "take another path, or remove what is there",
            io::BindError::System { source, .. } => hint(source),
        };
        format!("{error}; {hint}")
    })?;
    let first = sockets.iter().flatten().next();
    let address = first.and_then(|socket| socket.local_address().ok().flatten());
    Ok((sockets, address))
}

/// A hint for an error of the kernel.
pub(crate) fn hint(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::AddrInUse => "stop the process that listens there, or take another address",
        ErrorKind::AddrNotAvailable => {
            "no interface here has this address: `ip address` lists them"
        }
        ErrorKind::PermissionDenied => {
            "ports below 1024 need CAP_NET_BIND_SERVICE, and a socket's directory has to be writable"
        }
        ErrorKind::NotFound => "make the directory first",
        _ => "take another address",
    }
}

fn failure(
    listener: &ListenerConfig<Box<dyn Filter>>,
    address: &Address,
    reason: String,
) -> BindFailure {
    let address = address_text(address);
    BindFailure::Listener { listener: Arc::clone(&listener.name), address, reason }
}

/// Why a new listener cannot have an address beside those that were bound before it for the same snapshot. The system
/// would let it: sockets that take over from others share their address.
fn in_the_way_of_new(
    bound: &[AddressSockets],
    address: &Address,
    snapshot: &Snapshot,
) -> Option<String> {
    let other = bound.iter().find(|other| other.address.overlaps(address))?;
    let name = snapshot.listener(other.id).map_or("", |(_, listener)| &listener.name);
    let at = address_text(&other.address);
    Some(format!("listener {name}, which is new with it, has {at}; choose another port"))
}

/// The new and changed clusters that ask for a mark, if this process cannot give any.
fn unmarkable(snapshot: &Snapshot) -> Vec<BindFailure> {
    let changes = &snapshot.changes;
    let asking = changes.clusters_added.iter().chain(&changes.clusters_changed);
    let asking = asking.filter_map(|id| snapshot.cluster(*id));
    let mut marked = asking.filter(|cluster| cluster.mark.is_some()).peekable();
    if marked.peek().is_none() {
        return Vec::new();
    }
    let Err(error) = worker::probe_mark() else { return Vec::new() };
    let reason = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "`mark` needs CAP_NET_ADMIN; give the process that, or remove it".to_owned()
        }
        _ => format!("`mark` cannot be tried: {error}"),
    };
    let failure = |cluster: &Arc<_>| BindFailure::Cluster {
        cluster: Arc::clone(cluster),
        reason: reason.clone(),
    };
    marked.map(|cluster| failure(&cluster.name)).collect()
}

/// An address as the configuration file writes it.
pub(crate) fn address_text(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// A number that differs in every worker and every run.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8)
}
