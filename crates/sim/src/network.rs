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
//! How it models epoll is told in the crate's documentation.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::time::Duration;

use config::snapshot::Address;
use proxy::ConnKey;
use proxy::time::Time;
use worker::{AcceptError, ConnectError, ConnectState, Event, Ready};

use crate::faults::Faults;
use crate::random::Random;
use crate::trace::Trace;

/// What a clock reading costs: so that no two are the same.
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

/// Names a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerSocket(usize);

/// Names a scripted peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId(pub usize);

/// Whose a socket is.
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
    /// Somebody connected to it.
    Accept(ListenerSocket),
}

/// Everything that can happen by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// What this end sent gets to the other.
    Segment(EndId),
    /// A reset gets to this end.
    Reset(EndId),
    /// The rest of what a read could have got arrives.
    Late(EndId),
    /// The socket takes bytes again.
    Space(EndId),
    /// Somebody looks at this end for no reason.
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
    /// What epoll knows it by.
    key: Option<ConnKey>,
    is_listed: bool,
    inbox: VecDeque<u8>,
    inbox_max: usize,
    /// Bytes behind `inbox` that were held up by a short read.
    late: VecDeque<u8>,
    outbox: VecDeque<u8>,
    outbox_max: usize,
    /// The other's end has arrived.
    has_fin: bool,
    /// Our end is said, and maybe not sent yet.
    is_shut: bool,
    is_fin_sent: bool,
    /// The owner closed it; what is in the outbox still goes out.
    is_closed: bool,
    /// It counts as one of the workers' descriptors.
    has_descriptor: bool,
    /// A segment is on its way.
    is_moving: bool,
    /// Nothing moves any more, and nobody is told.
    is_silent: bool,
    /// A write took less than it was given: an event says when there is room.
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
    /// What epoll knows it by.
    token: Option<u32>,
    is_open: bool,
}

/// What one worker's epoll instance knows.
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
    ports: u32,
    /// Descriptors that the workers have in use, and may have.
    descriptors: usize,
    descriptors_max: usize,
    /// Bytes that came from an end and were read at the other; kept when both are gone.
    read_by_other: BTreeMap<EndId, u64>,
    /// Bytes that a worker moved unread.
    pub spliced_total: u64,
    /// What happened.
    pub trace: Trace,
}

impl Network {
    /// An empty network for so many workers.
    #[must_use]
    pub fn new(random: Random, faults: Faults, workers: usize) -> Self {
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
            ports: 0,
            descriptors: 0,
            descriptors_max: usize::MAX,
            read_by_other: BTreeMap::new(),
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

    /// Lets the next thing happen, at its time.
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

    /// From now on nothing goes wrong; what fell silent breaks, so that its ends hear of it.
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

    /// The misfortunes in force.
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
        let (queue, token) = (VecDeque::new(), None);
        self.listeners.push(Listener { owner, address, queue, backlog, token, is_open: true });
        ListenerSocket(self.listeners.len() - 1)
    }

    /// Stops listening. Who waits in the queue is reset.
    pub fn close_listener(&mut self, listener: ListenerSocket) {
        let Some(state) = self.listeners.get_mut(listener.0) else { return };
        state.is_open = false;
        state.token = None;
        for end in std::mem::take(&mut state.queue) {
            self.destroy(end);
        }
    }

    /// Whether somebody listens on the address.
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
        if matches!(owner, Owner::Worker(_)) {
            self.run_out_of_descriptors();
            if self.descriptors >= self.descriptors_max {
                return Err(ConnectError::OutOfDescriptors);
            }
            if self.chance(self.faults.connect_refused) && self.random.chance(300) {
                self.trace.note(self.now, "connect fails", 0, &[]);
                return Err(ConnectError::Failed);
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
        let is_lost = self.chance(self.faults.connect_lost);
        if let Some(end) = self.get_mut(end) {
            end.is_silent = is_lost;
        }
        // Without latency the handshake is over before the call returns, as on loopback it may be.
        if self.faults.latency_max.is_zero() && !is_lost && self.is_listening(address) {
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
            return Err(AcceptError::Fatal);
        };
        let is_worker = matches!(state.owner, Owner::Worker(_));
        if state.queue.is_empty() {
            return Ok(None);
        }
        if is_worker {
            self.run_out_of_descriptors();
            if self.descriptors >= self.descriptors_max {
                self.trace.note(self.now, "no descriptor", 0, &[]);
                return Err(AcceptError::OutOfDescriptors);
            }
        }
        let state = self.listeners.get_mut(listener.0).expect("found above");
        let end = state.queue.pop_front().expect("checked above");
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
        let other = state.other.and_then(|other| self.get(other));
        let peer = other.map_or(local, |other| other.address);
        Ok(Some((end, peer, local)))
    }

    fn run_out_of_descriptors(&mut self) {
        if self.descriptors_max == usize::MAX && self.chance(self.faults.descriptors) {
            self.descriptors_max = self.descriptors;
            let span = self.random.span(Duration::from_secs(2));
            self.trace.note(self.now, "descriptors", self.descriptors as u64, &[]);
            self.after(span, Happening::Descriptors);
        }
    }

    // Bytes.

    /// Reads; 0 is the other's end.
    ///
    /// # Errors
    ///
    /// `WouldBlock`, or why the connection is broken.
    pub fn recv(&mut self, id: EndId, buffer: &mut [u8]) -> io::Result<usize> {
        let is_short = self.chance(self.faults.short_read);
        let cut = self.random.length_below(buffer.len().max(2));
        let Some(end) = self.get_mut(id) else { return Err(ErrorKind::NotConnected.into()) };
        if matches!(end.phase, Phase::Connecting { .. }) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let available = end.inbox.len();
        if available == 0 {
            if let Some(error) = end.error.take() {
                return Err(error.into());
            }
            if end.has_fin || end.phase == Phase::Broken {
                return Ok(0);
            }
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut length = available.min(buffer.len());
        let is_ending = end.has_fin || end.phase == Phase::Broken;
        if is_short && length > 1 && available <= buffer.len() && !is_ending {
            // A short read means that nothing is left. So the rest is not there yet: it arrives
            // behind this read, with an event of its own.
            length = 1 + cut % (length - 1);
            let rest = end.inbox.split_off(length);
            let arrived = std::mem::replace(&mut end.late, rest);
            end.late.extend(arrived);
            let span = Duration::from_nanos(1 + cut as u64);
            self.after(span, Happening::Late(id));
        }
        let end = self.get_mut(id).expect("found above");
        for (place, byte) in buffer.iter_mut().zip(end.inbox.drain(..length)) {
            *place = byte;
        }
        end.read_total += length as u64;
        let (room, other, read_total) = (end.room(), end.other, end.read_total);
        if let Some(other) = other {
            self.read_by_other.insert(other, read_total);
        }
        let Some(end) = self.get(id) else { return Ok(length) };
        let is_open_again = room >= end.inbox_max.div_ceil(2);
        if is_open_again
            && let Some(other) = other
            && self.get(other).is_some_and(|other| !other.is_moving && !other.outbox.is_empty())
        {
            self.move_on(other);
        }
        Ok(length)
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if that is nothing, or why the connection is broken.
    pub fn send(&mut self, id: EndId, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let is_partial = self.chance(self.faults.partial_write);
        let cut = self.random.next();
        let Some(end) = self.get_mut(id) else { return Err(ErrorKind::NotConnected.into()) };
        match end.phase {
            Phase::Connecting { .. } => return Err(ErrorKind::WouldBlock.into()),
            Phase::Broken => {
                return Err(end.error.take().unwrap_or(ErrorKind::BrokenPipe).into());
            }
            Phase::Open if end.is_shut => return Err(ErrorKind::BrokenPipe.into()),
            Phase::Open => {}
        }
        let wanted = slices.iter().map(|slice| slice.len()).sum::<usize>();
        let mut length = wanted.min(end.outbox_max - end.outbox.len());
        if is_partial && length > 0 {
            // Memory was short; an event says when it is there again.
            length = usize::try_from(cut % length as u64).expect("less than a length");
            end.wants_space = true;
            let span = Duration::from_nanos(1 + cut % 1_000_000);
            self.after(span, Happening::Space(id));
        }
        let end = self.get_mut(id).expect("found above");
        if length < wanted {
            end.wants_space = true;
        }
        if length == 0 && wanted > 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut left = length;
        for slice in slices {
            let taken = slice.get(..left.min(slice.len())).unwrap_or_default();
            end.outbox.extend(taken);
            left -= taken.len();
        }
        end.written_total += length as u64;
        self.move_on(id);
        Ok(length)
    }

    /// Writes one slice; see [`Network::send`]. What is not taken now is not an error.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub fn send_some(&mut self, id: EndId, bytes: &[u8]) -> io::Result<usize> {
        match self.send(id, &[IoSlice::new(bytes)]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }

    /// Reads all that is there, up to `bytes_max`; says whether the other's end was behind it.
    ///
    /// # Errors
    ///
    /// The connection is broken; what was read before is in `into`.
    pub fn recv_all(
        &mut self,
        id: EndId,
        bytes_max: usize,
        into: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let mut left = bytes_max;
        while left > 0 {
            let room = buffer.get_mut(..left.min(4096)).expect("no longer than the buffer");
            match self.recv(id, room) {
                Ok(0) => return Ok(true),
                Ok(n) => {
                    into.extend_from_slice(buffer.get(..n).expect("read into it"));
                    left -= n;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Says that nothing more will be sent.
    pub fn shutdown_write(&mut self, id: EndId) {
        if let Some(end) = self.get_mut(id)
            && end.phase == Phase::Open
            && !end.is_shut
        {
            end.is_shut = true;
            self.move_on(id);
            // With the acknowledgement of our end the connection is over in both directions.
            if self.get(id).is_some_and(|end| end.has_fin) {
                let way = self.way(id);
                self.after(way, Happening::Nudge(id));
            }
        }
    }

    /// Closes. Bytes that were not read make it a reset, as in the kernel.
    pub fn close(&mut self, id: EndId) {
        let Some(end) = self.get_mut(id) else { return };
        let has_unread = !end.inbox.is_empty() || !end.late.is_empty();
        if end.phase != Phase::Open || has_unread {
            return self.reset(id);
        }
        self.trace.note(self.now, "close", id.number(), &[]);
        self.leave(id);
        if let Some(end) = self.get_mut(id) {
            (end.is_closed, end.is_shut) = (true, true);
            if end.is_fin_sent && end.outbox.is_empty() {
                self.remove(id);
            } else {
                self.move_on(id);
            }
        }
    }

    /// Closes so that the other end sees a reset. Some of what was sent may get there before.
    pub fn reset(&mut self, id: EndId) {
        self.trace.note(self.now, "reset", id.number(), &[]);
        self.leave(id);
        let waiting = self.get(id).map_or(0, |end| end.outbox.len());
        let kept = self.random.length_below(waiting + 1);
        if let Some(end) = self.get_mut(id) {
            end.outbox.truncate(kept);
        }
        if kept > 0 {
            self.carry(id, kept);
        }
        self.destroy(id);
    }

    /// How a connection attempt ended.
    ///
    /// # Errors
    ///
    /// Why it failed.
    pub fn take_error(&mut self, id: EndId) -> io::Result<()> {
        let Some(end) = self.get_mut(id) else { return Err(ErrorKind::NotConnected.into()) };
        end.error.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Whether a connection attempt has succeeded, and if not, whether it has failed.
    #[must_use]
    pub fn connected(&self, id: EndId) -> Option<bool> {
        match self.get(id).map(|end| &end.phase) {
            Some(Phase::Connecting { .. }) => None,
            Some(Phase::Open) => Some(true),
            Some(Phase::Broken) | None => Some(false),
        }
    }

    /// Whether the end is broken, which a peer that does not read would not notice.
    #[must_use]
    pub fn is_broken(&self, id: EndId) -> bool {
        self.get(id).is_none_or(|end| end.phase == Phase::Broken)
    }

    /// Bytes sent on this end that were read at the other, also after both are gone.
    #[must_use]
    pub fn read_by_other(&self, id: EndId) -> u64 {
        self.read_by_other.get(&id).copied().unwrap_or(0)
    }

    /// Bytes that were written on this end so far.
    #[must_use]
    pub fn written_total(&self, id: EndId) -> u64 {
        self.get(id).map_or(0, |end| end.written_total)
    }

    // What moves.

    /// Starts a segment from this end, if there is anything to send and none is on its way.
    fn move_on(&mut self, id: EndId) {
        let way = self.way(id);
        if let Some(end) = self.get_mut(id)
            && !end.is_moving
            && (!end.outbox.is_empty() || (end.is_shut && !end.is_fin_sent))
        {
            end.is_moving = true;
            self.after(way, Happening::Segment(id));
        }
    }

    fn on_segment(&mut self, id: EndId) {
        let is_cut = self.chance(self.faults.short_segment);
        let is_reset = self.chance(self.faults.reset);
        let falls_silent = self.chance(self.faults.silence);
        let Some(end) = self.get_mut(id) else { return };
        end.is_moving = false;
        if end.is_silent {
            return;
        }
        let other = end.other;
        let Some(other_id) = other.filter(|other| self.get(*other).is_some()) else {
            // Nobody is there any more.
            return self.on_reset(id);
        };
        if is_reset {
            self.trace.note(self.now, "breaks", id.number(), &[]);
            self.break_both(id, other_id);
            return;
        }
        if falls_silent {
            self.trace.note(self.now, "falls silent", id.number(), &[]);
            for end in [id, other_id] {
                if let Some(end) = self.get_mut(end) {
                    end.is_silent = true;
                }
            }
            return;
        }
        let waiting = self.get(id).map_or(0, |end| end.outbox.len());
        if waiting > 0 && self.get(other_id).is_some_and(|other| other.is_closed) {
            // The other end is closed, and what arrives there is answered with a reset.
            self.destroy(other_id);
            return;
        }
        let length =
            if is_cut && waiting > 1 { 1 + self.random.size(waiting - 1) } else { waiting };
        let carried = self.carry(id, length.min(waiting));
        let has_room = self.get(other_id).is_some_and(|other| other.room() > 0);
        let Some(end) = self.get_mut(id) else { return };
        if !end.outbox.is_empty() {
            if has_room {
                self.move_on(id);
            }
            return;
        }
        let is_closed = end.is_closed;
        if !end.is_shut || end.is_fin_sent {
            return;
        }
        if carried > 0 && self.random.chance(500) {
            // The end comes in a segment of its own.
            return self.move_on(id);
        }
        if let Some(end) = self.get_mut(id) {
            end.is_fin_sent = true;
        }
        self.trace.note(self.now, "fin", other_id.number(), &[]);
        if let Some(other) = self.get_mut(other_id) {
            other.has_fin = true;
            let late = std::mem::take(&mut other.late);
            other.inbox.extend(late);
        }
        self.edge(other_id);
        if is_closed {
            self.remove(id);
        } else {
            // The acknowledgement of our end; if the other's is here, both are over.
            if self.get(id).is_some_and(|end| end.has_fin) {
                let way = self.way(id);
                self.after(way, Happening::Nudge(id));
            }
        }
    }

    /// Moves up to `length` bytes to the other end, as far as there is room.
    fn carry(&mut self, id: EndId, length: usize) -> usize {
        let Some(other_id) = self.get(id).and_then(|end| end.other) else { return 0 };
        let room = self.get(other_id).map_or(0, End::room);
        let length = length.min(room);
        if length == 0 {
            return 0;
        }
        let Some(end) = self.get_mut(id) else { return 0 };
        let bytes: Vec<u8> = end.outbox.drain(..length).collect();
        let has_space = end.wants_space && end.is_writable();
        self.trace.note(self.now, "segment", other_id.number(), &bytes);
        if let Some(other) = self.get_mut(other_id) {
            let place = if other.late.is_empty() { &mut other.inbox } else { &mut other.late };
            place.extend(bytes);
        }
        self.edge(other_id);
        if has_space {
            self.edge(id);
        }
        length
    }

    fn on_late(&mut self, id: EndId) {
        if let Some(end) = self.get_mut(id) {
            let late = std::mem::take(&mut end.late);
            end.inbox.extend(late);
            self.edge(id);
        }
    }

    /// A reset arrives.
    fn on_reset(&mut self, id: EndId) {
        let purges = self.random.chance(300);
        let Some(end) = self.get_mut(id) else { return };
        if end.is_silent {
            return;
        }
        if end.is_closed {
            return self.remove(id);
        }
        if end.phase == Phase::Broken {
            return;
        }
        end.phase = Phase::Broken;
        end.error.get_or_insert(ErrorKind::ConnectionReset);
        end.outbox.clear();
        let late = std::mem::take(&mut end.late);
        end.inbox.extend(late);
        if purges && matches!(end.owner, Owner::Peer(_)) {
            // Linux lets a program read what came before the reset; others do not.
            end.inbox.clear();
        }
        self.trace.note(self.now, "rst", id.number(), &[]);
        self.edge(id);
    }

    fn break_both(&mut self, id: EndId, other: EndId) {
        self.queue_now(Happening::Reset(id));
        self.queue_now(Happening::Reset(other));
        for end in [id, other] {
            if let Some(end) = self.get_mut(end) {
                end.outbox.clear();
            }
        }
    }

    /// The end is gone at once; the other hears of it.
    fn destroy(&mut self, id: EndId) {
        self.leave(id);
        let other = self.get(id).and_then(|end| end.other);
        if let Some(other) = other {
            let way = self.way(other);
            self.after(way, Happening::Reset(other));
        }
        self.remove(id);
    }

    // Epoll.

    /// Reports what becomes possible on an end, and what is possible already.
    pub fn watch(&mut self, id: EndId, worker: usize, key: ConnKey) {
        if let Some(end) = self.get_mut(id) {
            end.owner = Owner::Worker(worker);
            end.key = Some(key);
            self.edge(id);
        }
    }

    /// Stops to. The end may be watched again, by another worker.
    pub fn unwatch(&mut self, id: EndId) {
        let Some(end) = self.get_mut(id) else { return };
        end.key = None;
        end.is_listed = false;
        if let Owner::Worker(worker) = end.owner
            && let Some(epoll) = self.epolls.get_mut(worker)
        {
            epoll.ready.retain(|listed| *listed != id);
        }
    }

    /// Reports connections in a listener's queue.
    pub fn watch_listener(&mut self, listener: ListenerSocket, token: u32) {
        if let Some(state) = self.listeners.get_mut(listener.0) {
            state.token = Some(token);
        }
    }

    /// Stops to.
    pub fn unwatch_listener(&mut self, listener: ListenerSocket) {
        if let Some(state) = self.listeners.get_mut(listener.0) {
            state.token = None;
        }
    }

    /// Tells a worker that there is mail.
    pub fn notify(&mut self, worker: usize) {
        if let Some(epoll) = self.epolls.get_mut(worker) {
            epoll.has_mail = true;
        }
    }

    /// Whether a wait would bring something.
    #[must_use]
    pub fn has_events(&self, worker: usize) -> bool {
        let epoll = self.epolls.get(worker);
        epoll.is_some_and(|epoll| epoll.has_mail || !epoll.ready.is_empty())
            || self.listeners.iter().any(|listener| listener.is_reported(worker))
    }

    /// Appends what a worker's wait brings.
    pub fn events(&mut self, worker: usize, events: &mut Vec<Event>) {
        let is_few = self.chance(self.faults.few_events);
        let events_max = if is_few { self.random.length_between(1, 4) } else { 256 };
        if self.chance(self.faults.spurious_event) {
            self.list_anybody(worker);
        }
        for listener in &self.listeners {
            if listener.is_reported(worker)
                && events.len() < events_max
                && let Some(token) = listener.token
            {
                events.push(Event::Accept(token));
            }
        }
        let Some(epoll) = self.epolls.get_mut(worker) else { return };
        if std::mem::take(&mut epoll.has_mail) {
            events.push(Event::Mail);
        }
        while events.len() < events_max {
            let Some(epoll) = self.epolls.get_mut(worker) else { return };
            let Some(id) = epoll.ready.pop_front() else { return };
            let Some(end) = self.get_mut(id) else { continue };
            end.is_listed = false;
            let Some(key) = end.key else { continue };
            // The kernel looks at the socket when it hands the event out, and tells all of it.
            if let Some(ready) = end.ready() {
                events.push(Event::Socket { key, ready });
                let flags =
                    [ready.is_readable, ready.is_writable, ready.is_ending, ready.is_closed];
                let flags = flags.map(|flag| if flag { b'1' } else { b'0' });
                self.trace.note(self.now, "event", id.number(), &flags);
            }
        }
    }

    fn list_anybody(&mut self, worker: usize) {
        let slot = self.random.length_below(self.ends.len().max(1));
        if let Some((generation, Some(end))) = self.ends.get(slot)
            && end.owner == Owner::Worker(worker)
        {
            let id = EndId { slot: slot as u32, generation: *generation };
            self.edge(id);
        }
    }

    /// Something became possible on an end: its owner is told.
    fn edge(&mut self, id: EndId) {
        let Some(end) = self.get_mut(id) else { return };
        match end.owner {
            Owner::Worker(worker) => {
                if end.key.is_some() && !end.is_listed {
                    end.is_listed = true;
                    if let Some(epoll) = self.epolls.get_mut(worker) {
                        epoll.ready.push_back(id);
                    }
                }
            }
            Owner::Peer(peer) if !end.is_closed => self.wakes.push_back((peer, Wake::End(id))),
            Owner::Peer(_) => {}
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
            key: None,
            is_listed: false,
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

    /// The owner has nothing to do with it any more.
    fn leave(&mut self, id: EndId) {
        let Some(end) = self.get_mut(id) else { return };
        end.is_closed = true;
        end.key = None;
        let had_descriptor = std::mem::take(&mut end.has_descriptor);
        self.descriptors -= usize::from(had_descriptor);
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

    /// As the kernel sees it: a third of the buffer is free.
    fn is_writable(&self) -> bool {
        (self.outbox_max - self.outbox.len()) * 3 >= self.outbox_max
    }

    /// What epoll reports, if anything.
    fn ready(&mut self) -> Option<Ready> {
        if matches!(self.phase, Phase::Connecting { .. }) {
            return None;
        }
        let is_broken = self.phase == Phase::Broken;
        let is_over = is_broken || (self.has_fin && self.is_shut);
        let is_closed = is_over || self.error.is_some();
        let has_room = self.is_writable() || self.is_shut;
        if !has_room {
            self.wants_space = true;
        }
        let ready = Ready {
            is_readable: !self.inbox.is_empty() || self.has_fin || is_closed,
            is_writable: has_room || is_closed,
            is_ending: self.has_fin || is_closed,
            is_closed,
        };
        (ready != Ready::default()).then_some(ready)
    }
}

impl Listener {
    fn is_reported(&self, worker: usize) -> bool {
        self.is_open
            && self.token.is_some()
            && self.owner == Owner::Worker(worker)
            && !self.queue.is_empty()
    }
}
