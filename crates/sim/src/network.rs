//! A network and a clock: stream connections with bounded buffers, listeners, epoll, time.
//!
//! Everything that happens stands in one queue, ordered by time; nothing happens by itself. The
//! two ends of a connection are [`EndId`]s. A worker uses its ends through [`crate::SimWorld`],
//! the scripted peers use theirs directly, by the same calls.
//!
//! ```text
//!   send ─► outbox ──── segment, after a while ───► inbox ─► recv
//!           (bounded: what does not fit is           (bounded: what does not fit stays
//!            not taken)                               in the sender's outbox)
//! ```
//!
//! The crate's documentation describes how epoll is modelled.

mod bytes;
mod epoll;
mod secure;
mod segments;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::time::Duration;

use config::snapshot::Address;
use proxy::ConnKey;
use proxy::time::Time;
use worker::{AcceptError, ConnectError, ConnectState};

use crate::faults::Faults;
use crate::random::Random;
use crate::trace::Trace;
use secure::Security;

/// The time that a clock reading takes, so that no two readings are the same.
const READING: Duration = Duration::from_nanos(50);

/// How long a SYN waits to be sent again when the listener's queue was full.
const SYN_AGAIN: Duration = Duration::from_secs(1);

/// A network shared by workers and peers.
pub type Shared = Rc<RefCell<Network>>;

/// Names one end of a connection. Stale once the end is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndId {
    slot: u32,
    generation: u32,
}

impl EndId {
    /// As one number, for tokens and traces.
    #[must_use]
    pub const fn number(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }
}

/// Counts reads and closes: the clock may stand still between two of them.
type Moment = u64;

/// Names a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerSocket(usize);

/// Names a scripted peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId(pub usize);

/// The owner of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The worker's with this number.
    Worker(usize),
    /// A scripted peer's.
    Peer(PeerId),
}

/// Why a peer is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Something became possible on this end.
    End(EndId),
    /// Its time has come.
    Timer(u64),
    /// A connection waits on this listener.
    Accept(ListenerSocket),
}

/// Everything that can happen by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// Bytes of this end arrive at the other.
    Segment(EndId),
    /// A reset arrives at this end.
    Reset(EndId),
    /// The rest of what a read could have got arrives.
    Late(EndId),
    /// The socket takes bytes again.
    Space(EndId),
    /// A spurious event for this end.
    Nudge(EndId),
    /// A connection attempt ends.
    Connected(EndId),
    /// A peer's timer.
    Timer(usize, u64),
    /// Descriptors are there again.
    Descriptors,
}

/// One end of a connection.
#[derive(Debug)]
struct End {
    owner: Owner,
    other: Option<EndId>,
    phase: Phase,
    address: SocketAddr,
    /// Where it connected to, if it did.
    target: Option<SocketAddr>,
    /// Its token in epoll.
    key: Option<ConnKey>,
    /// Whether a worker of another process has it, which does not watch it yet: it uses those of a large group before.
    is_handed_over: bool,
    is_listed: bool,
    /// Nothing is reported of its writing side.
    reads_only: bool,
    inbox: VecDeque<u8>,
    inbox_max: usize,
    /// Bytes behind `inbox` that were held up by a short read.
    late: VecDeque<u8>,
    outbox: VecDeque<u8>,
    outbox_max: usize,
    /// The other's end has arrived.
    has_fin: bool,
    /// This end was shut down for writing; the FIN may still wait.
    is_shut: bool,
    is_fin_sent: bool,
    /// The owner closed it; what is in the outbox still goes out.
    is_closed: bool,
    /// It counts as one of the workers' descriptors.
    has_descriptor: bool,
    /// A segment is on its way.
    is_moving: bool,
    /// Nothing moves any more, without an error at either end.
    is_silent: bool,
    /// A worker has watched it before.
    is_known: bool,
    /// It is closed, and consumes what arrives until the other's end.
    swallows: bool,
    /// A write took less than it was given: an event reports when there is room.
    wants_space: bool,
    error: Option<ErrorKind>,
    latency: Duration,
    read_total: u64,
    written_total: u64,
}

/// Where an end is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Connecting { target: Address, tries: u32 },
    Open,
    Broken,
}

#[derive(Debug)]
struct Listener {
    owner: Owner,
    address: Address,
    queue: VecDeque<EndId>,
    backlog: usize,
    /// Workers that watch it, of one process or of two, and its token in the epoll of each.
    watchers: BTreeMap<usize, u32>,
    is_open: bool,
}

/// The state of one worker's epoll instance.
#[derive(Debug, Default)]
struct Epoll {
    ready: VecDeque<EndId>,
    has_mail: bool,
}

/// The network.
#[derive(Debug)]
pub struct Network {
    now: Time,
    random: Random,
    faults: Faults,
    ends: Vec<(u32, Option<End>)>,
    free: Vec<u32>,
    listeners: Vec<Listener>,
    epolls: Vec<Epoll>,
    queue: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    queued: u64,
    wakes: VecDeque<(PeerId, Wake)>,
    /// A process is being killed: what it has open is reset, so that peers can tell that from an end in order, as they
    /// cannot everywhere where the kernel sends FIN.
    pub(crate) is_killing: bool,
    ports: u32,
    /// Where workers began to connect.
    connects: BTreeMap<usize, Vec<SocketAddr>>,
    /// Descriptors that the workers have in use, and may have.
    descriptors: usize,
    descriptors_max: usize,
    /// Bytes that came from an end and were read at the other, after each read that brought some; kept
    /// when both are gone.
    read_by_other: BTreeMap<EndId, Vec<(Moment, u64)>>,
    /// When a worker closed the other end of this one, if it did.
    closed_by_worker: BTreeMap<EndId, Moment>,
    /// When a worker first wrote at the other end of this one, if it did.
    first_answers: BTreeMap<EndId, Moment>,
    /// The last moment of them all.
    moment: Moment,
    security: Security,
    /// Bytes that clients and services read.
    pub read_by_peers: u64,
    /// Bytes that passed through a worker.
    pub spliced_total: u64,
    /// The trace of the run.
    pub trace: Trace,
}

impl Network {
    /// An empty network for so many workers.
    #[must_use]
    pub fn new(random: Random, faults: Faults, workers: usize) -> Self {
        let security = Security::new(random.split("tls", 0), faults.is_harmful(), workers);
        Self {
            now: Time::from_nanos(1_000_000_000),
            random,
            faults,
            ends: Vec::new(),
            free: Vec::new(),
            listeners: Vec::new(),
            epolls: (0..workers).map(|_| Epoll::default()).collect(),
            queue: BinaryHeap::new(),
            queued: 0,
            wakes: VecDeque::new(),
            is_killing: false,
            ports: 0,
            connects: BTreeMap::new(),
            descriptors: 0,
            descriptors_max: usize::MAX,
            read_by_other: BTreeMap::new(),
            closed_by_worker: BTreeMap::new(),
            first_answers: BTreeMap::new(),
            moment: 0,
            security,
            read_by_peers: 0,
            spliced_total: 0,
            trace: Trace::default(),
        }
    }

    // Time.

    /// The clock, which reading takes a moment.
    pub fn read_clock(&mut self) -> Time {
        self.now = self.now + READING;
        self.now
    }

    /// The clock, as it stands.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// When something happens next.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((time, _, _))| *time)
    }

    /// Sets the clock forward, if that is forward. Now and then it goes further.
    pub fn advance(&mut self, time: Time) {
        self.now = self.now.max(time);
        let jump = self.faults.clock_jump_per_million;
        if jump > 0 && self.random.below(1_000_000) < u64::from(jump) {
            let span = self.random.span(self.faults.clock_jump_max);
            self.now = self.now + span;
            self.trace.note(self.now, "clock jump", 0, &[]);
        }
    }

    /// Carries out the next event, at its time.
    pub fn step(&mut self) {
        let Some(Reverse((time, _, happening))) = self.queue.pop() else { return };
        self.now = self.now.max(time);
        match happening {
            Happening::Segment(end) => self.on_segment(end),
            Happening::Reset(end) => self.on_reset(end),
            Happening::Late(end) => self.on_late(end),
            Happening::Space(end) | Happening::Nudge(end) => self.edge(end),
            Happening::Connected(end) => self.on_connected(end),
            Happening::Timer(peer, token) => {
                self.wakes.push_back((PeerId(peer), Wake::Timer(token)));
            }
            Happening::Descriptors => self.descriptors_max = usize::MAX,
        }
    }

    /// The next peer that has something to do.
    pub fn take_wake(&mut self) -> Option<(PeerId, Wake)> {
        self.wakes.pop_front()
    }

    /// Wakes a peer after a while.
    pub fn wake_after(&mut self, peer: PeerId, token: u64, span: Duration) {
        self.after(span, Happening::Timer(peer.0, token));
    }

    // Faults.

    /// Ends all faults; silent connections break, so that their ends see an error.
    pub fn heal(&mut self) {
        self.trace.note(self.now, "heal", 0, &[]);
        self.faults = Faults::none();
        self.descriptors_max = usize::MAX;
        for slot in 0..self.ends.len() {
            let Some((generation, Some(end))) = self.ends.get_mut(slot) else { continue };
            let id = EndId { slot: slot as u32, generation: *generation };
            if std::mem::take(&mut end.is_silent) {
                end.error = Some(ErrorKind::TimedOut);
                self.queue_now(Happening::Reset(id));
            }
        }
    }

    /// The faults in force.
    #[must_use]
    pub const fn faults(&self) -> &Faults {
        &self.faults
    }

    fn chance(&mut self, rate: u32) -> bool {
        rate > 0 && self.random.chance(rate)
    }

    // Listening and connecting.

    /// Listens.
    pub fn listen(&mut self, owner: Owner, address: Address, backlog: usize) -> ListenerSocket {
        let (queue, watchers) = (VecDeque::new(), BTreeMap::new());
        self.listeners.push(Listener { owner, address, queue, backlog, watchers, is_open: true });
        ListenerSocket(self.listeners.len() - 1)
    }

    /// Stops listening. Connections in the queue are reset.
    pub fn close_listener(&mut self, listener: ListenerSocket) {
        let Some(state) = self.listeners.get_mut(listener.0) else { return };
        state.is_open = false;
        state.watchers.clear();
        for end in std::mem::take(&mut state.queue) {
            self.destroy(end);
        }
    }

    /// Whether a socket listens on the address.
    #[must_use]
    pub fn is_listening(&self, address: &Address) -> bool {
        self.listeners.iter().any(|listener| listener.is_open && listener.address == *address)
    }

    /// Begins to connect.
    ///
    /// # Errors
    ///
    /// As [`worker::World::connect`].
    pub fn connect(
        &mut self,
        owner: Owner,
        address: &Address,
    ) -> Result<(EndId, ConnectState), ConnectError> {
        if let Owner::Worker(worker) = owner {
            if let Address::Tcp(address) = address {
                self.connects.entry(worker).or_default().push(*address);
            }
            self.run_out_of_descriptors();
            if self.descriptors >= self.descriptors_max {
                return Err(ConnectError::OutOfDescriptors);
            }
            if self.chance(self.faults.connect_refused) && self.random.chance(300) {
                self.trace.note(self.now, "connect fails", 0, &[]);
                return Err(ConnectError::Failed(""));
            }
        }
        self.ports += 1;
        let [_, high, middle, low] = self.ports.to_be_bytes();
        let ip = match owner {
            Owner::Worker(_) => Ipv4Addr::new(127, 0, 0, 1),
            Owner::Peer(_) => Ipv4Addr::new(10, high, middle, low),
        };
        let port = 1024 + u16::from_be_bytes([middle, low]) % 60_000;
        let phase = Phase::Connecting { target: address.clone(), tries: 0 };
        let local = SocketAddr::V4(SocketAddrV4::new(ip, port));
        let end = self.insert(owner, phase, local);
        self.trace.note(self.now, "connect", end.number(), &[]);
        self.secure_asking(end, owner);
        let is_lost = self.chance(self.faults.connect_lost);
        if let Some(end) = self.get_mut(end) {
            end.is_silent = is_lost;
            if let Address::Tcp(address) = address {
                end.target = Some(*address);
            }
        }
        // Without latency the handshake is over before the call returns, as on loopback it may be;
        // but that of TLS, which the simulation begins behind, is not.
        if self.faults.latency_max.is_zero()
            && !is_lost
            && self.is_listening(address)
            && !self.is_secure_service(address)
        {
            self.on_connected(end);
            if self.get(end).is_some_and(|end| end.phase == Phase::Open) {
                return Ok((end, ConnectState::Connected));
            }
            return Ok((end, ConnectState::Connecting));
        }
        let way = self.way(end);
        self.after(way, Happening::Connected(end));
        Ok((end, ConnectState::Connecting))
    }

    fn on_connected(&mut self, id: EndId) {
        let Some(end) = self.get_mut(id) else { return };
        let Phase::Connecting { target, tries } = &mut end.phase else { return };
        if end.is_silent {
            return;
        }
        *tries += 1;
        let (target, tries, owner) = (target.clone(), *tries, end.owner);
        let is_refused =
            matches!(owner, Owner::Worker(_)) && self.chance(self.faults.connect_refused);
        let open: Vec<usize> = (0..self.listeners.len())
            .filter(|place| {
                self.listeners
                    .get(*place)
                    .is_some_and(|listener| listener.is_open && listener.address == target)
            })
            .collect();
        if open.is_empty() || is_refused {
            self.trace.note(self.now, "refused", id.number(), &[]);
            if let Some(end) = self.get_mut(id) {
                end.phase = Phase::Broken;
                end.error = Some(ErrorKind::ConnectionRefused);
            }
            return self.edge(id);
        }
        let place = *self.random.pick(&open);
        let Some(listener) = self.listeners.get(place) else { return };
        if listener.queue.len() >= listener.backlog {
            let span = SYN_AGAIN * 2u32.pow(tries.min(6));
            return self.after(span, Happening::Connected(id));
        }
        let (accepting, address) = (listener.owner, listener.address.clone());
        let local = match address {
            Address::Tcp(address) => address,
            Address::Unix(_) => SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
        };
        let other = self.insert(accepting, Phase::Open, local);
        if let Some(end) = self.get_mut(other) {
            end.other = Some(id);
        }
        if let Some(end) = self.get_mut(id) {
            (end.other, end.phase) = (Some(other), Phase::Open);
        }
        self.trace.note(self.now, "connected", id.number(), &other.number().to_le_bytes());
        if let Some(listener) = self.listeners.get_mut(place) {
            listener.queue.push_back(other);
        }
        if let Owner::Peer(peer) = accepting {
            self.wakes.push_back((peer, Wake::Accept(ListenerSocket(place))));
        }
        self.edge(id);
    }

    /// The next connection in a listener's queue, with the other's address.
    ///
    /// # Errors
    ///
    /// As [`worker::World::accept`].
    pub fn accept(
        &mut self,
        listener: ListenerSocket,
    ) -> Result<Option<(EndId, SocketAddr, SocketAddr)>, AcceptError> {
        let Some(state) = self.listeners.get_mut(listener.0) else {
            return Err(AcceptError::Fatal("EBADF"));
        };
        let is_worker = matches!(state.owner, Owner::Worker(_));
        if state.queue.is_empty() {
            return Ok(None);
        }
        if is_worker {
            self.run_out_of_descriptors();
            if self.descriptors >= self.descriptors_max {
                self.trace.note(self.now, "no descriptor", 0, &[]);
                return Err(AcceptError::OutOfDescriptors("EMFILE"));
            }
        }
        let state = self.listeners.get_mut(listener.0).expect("found above");
        let end = state.queue.pop_front().expect("checked above");
        let address = state.address.clone();
        if is_worker && self.chance(self.faults.accept_aborted) {
            self.trace.note(self.now, "accept aborted", end.number(), &[]);
            self.destroy(end);
            return Err(AcceptError::Transient);
        }
        self.trace.note(self.now, "accept", end.number(), &[]);
        let Some(state) = self.get_mut(end) else { return Err(AcceptError::Transient) };
        state.has_descriptor = is_worker;
        self.descriptors += usize::from(is_worker);
        let Some(state) = self.get(end) else { return Err(AcceptError::Transient) };
        let local = state.address;
        let peer = self.peer_address(end).unwrap_or(local);
        if !is_worker {
            self.secure_accepted(end, &address);
        }
        Ok(Some((end, peer, local)))
    }

    /// Where an end is.
    #[must_use]
    pub fn address(&self, end: EndId) -> Option<SocketAddr> {
        Some(self.get(end)?.address)
    }

    /// Where the upstream connections of a worker lead, by their keys.
    pub(crate) fn targets(&self, worker: usize) -> BTreeMap<u64, SocketAddr> {
        let ends = self.ends.iter().filter_map(|(_, end)| end.as_ref());
        let own = ends.filter(|end| end.owner == Owner::Worker(worker));
        own.filter_map(|end| Some((end.key?.to_bits(), end.target?))).collect()
    }

    /// Where workers began to connect since this was asked last.
    pub(crate) fn take_connects(&mut self, worker: usize) -> Vec<SocketAddr> {
        self.connects.remove(&worker).unwrap_or_default()
    }

    /// Where an end's connection comes from, as long as the other one is there.
    #[must_use]
    pub fn peer_address(&self, end: EndId) -> Option<SocketAddr> {
        let other = self.get(end)?.other?;
        Some(self.get(other)?.address)
    }

    fn run_out_of_descriptors(&mut self) {
        if self.descriptors_max == usize::MAX && self.chance(self.faults.descriptors) {
            self.descriptors_max = self.descriptors;
            let span = self.random.span(Duration::from_secs(2));
            self.trace.note(self.now, "descriptors", self.descriptors as u64, &[]);
            self.after(span, Happening::Descriptors);
        }
    }

    // Places.

    /// Ends that workers have open.
    #[must_use]
    pub fn worker_ends(&self) -> usize {
        let ends = self.ends.iter().filter_map(|(_, end)| end.as_ref());
        ends.filter(|end| matches!(end.owner, Owner::Worker(_)) && !end.is_closed).count()
    }

    fn insert(&mut self, owner: Owner, phase: Phase, address: SocketAddr) -> EndId {
        let mut room = || {
            let is_tiny =
                self.faults.tiny_buffers > 0 && self.random.chance(self.faults.tiny_buffers);
            if is_tiny {
                self.random.length_between(1, 500)
            } else {
                self.random.length_between(2 << 10, 128 << 10)
            }
        };
        let (inbox_max, outbox_max) = (room(), room());
        let latency = self.random.span(self.faults.latency_max);
        let is_worker = matches!(owner, Owner::Worker(_));
        let has_descriptor = is_worker && matches!(phase, Phase::Connecting { .. });
        self.descriptors += usize::from(has_descriptor);
        let end = End {
            owner,
            other: None,
            phase,
            address,
            target: None,
            key: None,
            is_listed: false,
            reads_only: false,
            is_handed_over: false,
            inbox: VecDeque::new(),
            inbox_max,
            late: VecDeque::new(),
            outbox: VecDeque::new(),
            outbox_max,
            has_fin: false,
            is_shut: false,
            is_fin_sent: false,
            is_closed: false,
            has_descriptor,
            is_moving: false,
            is_silent: false,
            is_known: false,
            swallows: false,
            wants_space: false,
            error: None,
            latency,
            read_total: 0,
            written_total: 0,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.ends.push((0, None));
            (self.ends.len() - 1) as u32
        });
        let place = self.ends.get_mut(slot as usize).expect("made above");
        place.0 += 1;
        place.1 = Some(end);
        EndId { slot, generation: place.0 }
    }

    /// The owner gives the end up.
    fn leave(&mut self, id: EndId) {
        let Some(end) = self.get_mut(id) else { return };
        let was_closed = std::mem::replace(&mut end.is_closed, true);
        let other = end.other.filter(|_| !was_closed && matches!(end.owner, Owner::Worker(_)));
        end.key = None;
        let had_descriptor = std::mem::take(&mut end.has_descriptor);
        self.descriptors -= usize::from(had_descriptor);
        if let Some(other) = other {
            self.moment += 1;
            self.closed_by_worker.insert(other, self.moment);
        }
    }

    fn remove(&mut self, id: EndId) {
        if let Some((generation, place)) = self.ends.get_mut(id.slot as usize)
            && *generation == id.generation
            && place.take().is_some()
        {
            self.free.push(id.slot);
        }
    }

    fn get(&self, id: EndId) -> Option<&End> {
        let (generation, end) = self.ends.get(id.slot as usize)?;
        if *generation == id.generation { end.as_ref() } else { None }
    }

    fn get_mut(&mut self, id: EndId) -> Option<&mut End> {
        let (generation, end) = self.ends.get_mut(id.slot as usize)?;
        if *generation == id.generation { end.as_mut() } else { None }
    }

    /// How long the next segment from or to this end takes.
    fn way(&mut self, id: EndId) -> Duration {
        let latency = self.get(id).map_or(Duration::ZERO, |end| end.latency);
        let jitter = Duration::from_nanos(self.random.below(20_000));
        let is_stalled = self.chance(self.faults.stall);
        let stall =
            if is_stalled { self.random.span(self.faults.stall_max) } else { Duration::ZERO };
        latency + jitter + stall
    }

    fn after(&mut self, span: Duration, happening: Happening) {
        self.queued += 1;
        self.queue.push(Reverse((self.now + span, self.queued, happening)));
    }

    fn queue_now(&mut self, happening: Happening) {
        self.after(Duration::ZERO, happening);
    }
}

impl End {
    /// Bytes that may still arrive.
    fn room(&self) -> usize {
        self.inbox_max.saturating_sub(self.inbox.len() + self.late.len())
    }
}
