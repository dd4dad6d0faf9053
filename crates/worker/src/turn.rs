//! The loop.
//!
//! Order inside a turn matters. What the proxy asks for is done after a batch of events: the kernel
//! reads for many, then writes for many, and finds its code and the bytes in the cache each time.
//! Deadlines run after socket events, so that a byte that arrived in time is never lost to its own
//! timeout. A connection with more to read than one read takes goes to the end of the turn's queue,
//! so that one busy peer cannot starve the others; one with more requests than a turn begins for it waits for
//! the next. So do TLS handshakes beyond the first few: new clients wait for their cost, and
//! clients that are being served do not.

mod listening;
mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use config::checks::CheckResult;
use config::snapshot::ListenerId;
use proxy::time::Time;
use proxy::{ConnKey, ConnectFailure, Op, Proxy, SLICES_MAX};
use telemetry::cause::Cause;

use self::listening::ACCEPTS_MAX;
use self::reading::SPLICE_BYTES;
use crate::mailbox::{Mailbox, Message, ReportBody, SaveBalancing};
use crate::moving::{Moves, UnderWay};
use crate::sockets::{Flags, Sockets};
use crate::world::{ConnectError, ConnectState, Event, Ready, World};

/// Events of connections after which what the proxy asks for is done: more at a time crowd the
/// bytes out of the cache again (bench/README.md, scenario h1).
const EVENTS_TOGETHER: usize = 32;

/// How often memory is given back, clocks are compared and gauges are reported.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Upkeeps between two trims of the buffer slab.
const TRIM_EVERY: u32 = 10;

/// Connections described for one message.
const DESCRIBED_MAX: u32 = 256;

/// Options of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether the clock is read at every stage of an exchange, or once a turn.
    pub stage_times: bool,
    /// Connections of a group that move in a turn, and as many exchanges. A larger group takes several turns.
    pub group_part_max: usize,
    /// Whether new connections are accepted from the beginning. Otherwise `Message::AcceptAgain` begins that.
    pub accepts: bool,
}

/// Usual [`Settings::group_part_max`].
pub const GROUP_PART_MAX: usize = 64;

/// Why a worker cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// The world cannot wait for events any more.
    #[error("cannot wait for events: {0}")]
    Wait(io::Error),
}

/// One thread's loop.
#[derive(Debug)]
pub struct Worker<W: World> {
    pub(crate) world: W,
    pub(crate) proxy: Proxy,
    pub(crate) sockets: Sockets<W::Socket>,
    listeners: Vec<Listening<W::Listener>>,
    /// The places of those that have a socket.
    listener_places: BTreeMap<ListenerId, Vec<u32>>,
    /// The places of those that have none any more.
    listeners_closed: Vec<u32>,
    pub(crate) mailbox: Mailbox<W::Listener, W::Socket>,
    /// Whether connections were given away in this turn.
    pub(crate) has_given: bool,
    /// Whether connections left or arrived in this turn.
    pub(crate) has_moved: bool,
    /// Until when they may, once that was asked in this turn.
    pub(crate) moving_until: Option<Time>,
    /// A large group that leaves or arrives.
    pub(crate) under_way: Option<UnderWay<W::Socket>>,
    /// Whether messages wait for the next turn, as this one has moved connections for long enough.
    mail_waits: bool,
    /// The keys of connections that came back from another process and stay, as bits.
    pub(crate) returned: BTreeSet<u64>,
    /// Whether another process has some of the sockets, too: to close one is no end to its peer then.
    pub(crate) shares_sockets: bool,
    /// Whether it has said that nothing is left.
    has_reported_end: bool,
    /// When this worker began to accept connections, for the first time or again.
    accepts_since: Time,
    /// Events of this turn; kept for its room.
    events: Vec<Event>,
    /// Connections with more to read than was read.
    again: Vec<ConnKey>,
    scratch: Box<[u8]>,
    pub(crate) settings: Settings,
    /// When this turn began.
    pub(crate) now: Time,
    /// When the last turn began in which a socket had an event.
    pub(crate) served_at: Option<Time>,
    upkeep_at: Time,
    upkeeps: u32,
    turns: u64,
    /// How long turns have been at work, ns.
    busy: u64,
    events_total: u64,
    state: State,
    /// Whether another process takes new connections, if not from all sockets.
    leaves_accepting: bool,
}

/// One listening socket of a worker.
#[derive(Debug)]
struct Listening<L> {
    id: ListenerId,
    /// None once it is closed; its place and token wait for another.
    socket: Option<L>,
    /// When accepting resumes after running out of descriptors.
    paused_until: Option<Time>,
    /// Whether another process accepts from it.
    is_left: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Draining,
    Stopped,
}

impl<W: World> Worker<W> {
    /// A worker before its first turn.
    ///
    /// # Errors
    ///
    /// A listener cannot be watched.
    pub fn new(
        mut world: W,
        proxy: Proxy,
        listeners: Vec<(ListenerId, W::Listener)>,
        mailbox: Mailbox<W::Listener, W::Socket>,
        settings: Settings,
    ) -> io::Result<Self> {
        let now = world.now();
        let mut worker = Self {
            world,
            proxy,
            sockets: Sockets::default(),
            listeners: Vec::new(),
            listener_places: BTreeMap::new(),
            listeners_closed: Vec::new(),
            mailbox,
            has_given: false,
            has_moved: false,
            moving_until: None,
            under_way: None,
            mail_waits: false,
            returned: BTreeSet::new(),
            shares_sockets: false,
            has_reported_end: false,
            accepts_since: now,
            events: Vec::new(),
            again: Vec::new(),
            scratch: vec![0; SPLICE_BYTES].into_boxed_slice(),
            settings,
            now,
            served_at: None,
            upkeep_at: now,
            upkeeps: 0,
            turns: 0,
            busy: 0,
            events_total: 0,
            state: State::Running,
            leaves_accepting: !settings.accepts,
        };
        for (id, listener) in listeners {
            worker.add_listener(id, listener)?;
        }
        worker.upkeep();
        Ok(worker)
    }

    /// Turns until a message asks it to stop. All reports have been sent then.
    ///
    /// # Errors
    ///
    /// The world is broken.
    pub fn run(&mut self) -> Result<(), TurnError> {
        let result = loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.mailbox.finish();
        result
    }

    /// One pass of the loop; returns whether there is to be another.
    ///
    /// # Errors
    ///
    /// The world is broken.
    pub fn turn(&mut self) -> Result<bool, TurnError> {
        let until = self.next_deadline();
        self.world.wait(until, &mut self.events).map_err(TurnError::Wait)?;
        self.now = self.world.now();
        self.moving_until = None;
        self.turns += 1;
        self.events_total += self.events.len() as u64;
        let had_nothing_to_do = self.events.is_empty() && self.again.is_empty();
        let held = self.proxy.begin_turn();
        self.proxy.admit_handshakes();
        let mut events = std::mem::take(&mut self.events);
        for (place, event) in events.drain(..).enumerate() {
            if place % EVENTS_TOGETHER == 0 {
                self.proxy.bound_growth(self.now);
                self.perform();
            }
            self.on_event(event);
        }
        self.perform();
        self.events = events;
        // Those that wait since an earlier turn do not wait behind newer ones.
        self.proxy.admit_handshakes();
        self.read_again();
        for _ in 0..held {
            self.proxy.resume_held(self.now);
            self.perform();
        }
        self.proxy.on_deadlines(self.now);
        self.perform();
        self.proxy.on_signatures(had_nothing_to_do, self.now);
        self.perform();
        if self.has_more_to_move() {
            self.move_on();
            // It may have been reported while the group was under way.
            self.open_mail();
        }
        self.resume_listeners();
        if self.upkeep_at <= self.now {
            self.upkeep();
        }
        if self.state == State::Draining && !self.has_more_to_move() && self.proxy.is_drained() {
            self.report_drained();
            self.state = State::Stopped;
        }
        if std::mem::take(&mut self.has_moved) {
            self.mailbox.note_progress();
            // Clients and services may wait for this processor, and what a turn moves keeps it for as long as some requests take.
            self.world.give_way();
        }
        if std::mem::take(&mut self.has_given) {
            // From here, where all that a turn calls begins.
            self.proxy.wipe_stacks();
        }
        self.mailbox.end_turn(self.now);
        self.busy += self.world.now().nanos_since(self.now);
        self.proxy.tell_busy(self.busy);
        Ok(self.state != State::Stopped)
    }

    /// The world, for a simulation that plays its other side.
    pub const fn world(&mut self) -> &mut W {
        &mut self.world
    }

    /// The proxy, for a test that looks at it.
    pub const fn proxy(&mut self) -> &mut Proxy {
        &mut self.proxy
    }

    /// When the next turn has something to do even if nothing happens.
    pub fn next_deadline(&self) -> Option<Time> {
        if !self.again.is_empty() || self.proxy.has_held() || self.has_more_to_move() {
            return Some(Time::from_nanos(0));
        }
        let resumes = self.listeners.iter().filter_map(|listening| listening.paused_until);
        let signatures = self.proxy.signatures_deadline();
        let reports = self.mailbox.deadline();
        let others = signatures.into_iter().chain(reports).chain([self.upkeep_at]);
        resumes.chain(self.proxy.next_deadline()).chain(others).min()
    }

    const fn has_more_to_move(&self) -> bool {
        self.under_way.is_some() || self.mail_waits
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Socket { key, ready } => self.on_ready(key, ready),
            Event::Accept(token) => {
                self.served_at = Some(self.now);
                // A new connection may take the place of one that is still to be closed.
                self.perform();
                self.accept(token as usize, ACCEPTS_MAX);
            }
            Event::Mail => {
                self.perform();
                self.open_mail();
            }
        }
    }

    /// The time for an event: read from the clock if stage times are wanted, else that of the turn.
    fn stamp(&mut self) -> Time {
        if self.settings.stage_times { self.world.now() } else { self.now }
    }

    // Connections.

    pub(crate) fn on_ready(&mut self, key: ConnKey, ready: Ready) {
        // One that was given to another process may still be reported.
        let Some((socket, flags)) = self.sockets.get(key) else { return };
        self.served_at = Some(self.now);
        if ready.is_readable {
            flags.set(Flags::READABLE);
        }
        if ready.is_writable {
            flags.set(Flags::WRITABLE);
        }
        if ready.is_ending {
            flags.set(Flags::ENDING);
        }
        if ready.is_closed {
            flags.set(Flags::CLOSED);
        }
        if self.proxy.is_leaving(key) {
            return;
        }
        if flags.has(Flags::CONNECTING) {
            if !flags.has(Flags::WRITABLE) {
                return;
            }
            flags.clear(Flags::CONNECTING);
            let result = self.world.take_error(socket).map_err(|error| ConnectFailure {
                cause: Cause::ConnectFailed,
                errno: ::io::errno_name(&error),
            });
            let now = self.stamp();
            self.proxy.on_connected(key, result, now);
            self.perform();
        }
        if ready.is_writable && self.proxy.has_unsent(key) {
            self.send(key);
            self.perform();
        }
        if ready.is_readable {
            self.read(key);
        }
    }

    fn send(&mut self, key: ConnKey) {
        loop {
            let began = self.stamp();
            let Some((socket, flags)) = self.sockets.get(key) else { return };
            if !flags.has(Flags::WRITABLE) || flags.has(Flags::CONNECTING) {
                return;
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.proxy.unsent(key, &mut slices);
            let slices = slices.get(..count).unwrap_or_default();
            let waiting = slices.iter().map(|slice| slice.len()).sum::<usize>();
            if waiting == 0 {
                return;
            }
            match self.world.send(socket, slices) {
                Ok(n) => {
                    if n < waiting {
                        self.on_full(key);
                    }
                    let now = self.stamp();
                    self.proxy.on_sent(key, n, began, now);
                    if n < waiting || !self.proxy.has_unsent(key) {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.on_full(key);
                    self.proxy.on_sent(key, 0, began, began);
                    return;
                }
                Err(error) => {
                    self.proxy.on_send_failed(key, ::io::errno_name(&error), began);
                    return;
                }
            }
        }
    }

    /// A socket took less than was to be written: what is left waits for the event that it takes more.
    fn on_full(&mut self, key: ConnKey) {
        let Some((socket, flags)) = self.sockets.get(key) else { return };
        flags.clear(Flags::WRITABLE);
        if flags.has(Flags::READS_ONLY) {
            flags.clear(Flags::READS_ONLY);
            if let Err(error) = self.world.watch_writes(socket, key) {
                let now = self.stamp();
                self.proxy.on_broken(key, ::io::errno_name(&error), now);
            }
        }
    }

    /// Does what the proxy asks for.
    pub(crate) fn perform(&mut self) {
        while let Some(op) = self.proxy.poll_op(self.now) {
            match op {
                Op::Send(key) if self.proxy.is_leaving(key) => {}
                Op::Send(key) => self.send(key),
                Op::Read(key) => {
                    if let Some((_, flags)) = self.sockets.get(key)
                        && flags.has(Flags::READABLE)
                        && !flags.has(Flags::QUEUED)
                    {
                        flags.set(Flags::QUEUED);
                        self.again.push(key);
                    }
                }
                Op::Connect { connection, address, options } => {
                    self.connect(connection, &address, &options);
                }
                Op::SendNow(key, bytes) => {
                    if let Some((socket, _)) = self.sockets.get(key) {
                        // A peer that does not take it is gone.
                        let _ = self.world.send(socket, &[IoSlice::new(&bytes)]);
                    }
                }
                Op::Undelivered(key) => {
                    let bytes = match self.sockets.peek(key) {
                        Some((socket, _)) => self.world.undelivered(socket),
                        None => 0,
                    };
                    let now = self.now;
                    self.proxy.on_undelivered(key, bytes, now);
                }
                Op::ShutdownWrite(key) => {
                    if let Some((socket, _)) = self.sockets.get(key) {
                        self.world.shutdown_write(socket);
                    }
                }
                Op::Close(key) => self.close(key),
                Op::Reset(key) => {
                    if let Some(socket) = self.sockets.remove(key) {
                        if self.shares_sockets {
                            self.world.abort(&socket);
                        }
                        self.world.reset(socket);
                    }
                }
                Op::CloseListener(id) => self.close_listener(id),
                Op::Ask { exchange, question } => {
                    self.mailbox.report(ReportBody::Question { exchange, question });
                }
                Op::BufferedOverflow { listener, closed } => {
                    self.mailbox.report(ReportBody::BufferedOverflow { listener, closed });
                }
                Op::OutlierFound { cluster, endpoint, kind } => {
                    self.mailbox.report(ReportBody::OutlierFound { cluster, endpoint, kind });
                }
                Op::Checked { number, result: result @ CheckResult::Passed } => {
                    self.mailbox.report_later(ReportBody::Checked { number, result }, self.now);
                }
                Op::Checked { number, result } => {
                    self.mailbox.report(ReportBody::Checked { number, result });
                }
                Op::FailedItself { cluster, endpoint } => {
                    self.mailbox.report(ReportBody::FailedItself { cluster, endpoint });
                }
                Op::Wake(workers) => self.world.wake(workers),
                Op::Retire(snapshot) => self.mailbox.report(ReportBody::Retired(snapshot)),
            }
        }
    }

    fn close(&mut self, key: ConnKey) {
        let Some(socket) = self.sockets.remove(key) else { return };
        if self.shares_sockets {
            self.world.shutdown(&socket);
        }
    }

    fn connect(
        &mut self,
        key: ConnKey,
        address: &config::snapshot::Address,
        options: &proxy::ConnectOptions,
    ) {
        let began = self.stamp();
        self.proxy.on_connecting(key, began);
        let connected = self.world.connect(address, options).and_then(|(socket, state)| {
            let watched = self.world.watch(&socket, key);
            watched
                .map(|()| (socket, state))
                .map_err(|error| ConnectError::Failed(::io::errno_name(&error)))
        });
        match connected {
            Ok((socket, ConnectState::Connected)) => {
                self.sockets.insert(key, socket, Flags::WRITABLE);
                let now = self.stamp();
                self.proxy.on_connected(key, Ok(()), now);
            }
            Ok((socket, ConnectState::Connecting)) => {
                self.sockets.insert(key, socket, Flags::CONNECTING);
            }
            Err(error) => {
                let (cause, errno) = match error {
                    ConnectError::OutOfDescriptors => (Cause::OutOfDescriptors, ""),
                    ConnectError::Failed(errno) => (Cause::ConnectFailed, errno),
                };
                let failure = ConnectFailure { cause, errno };
                self.proxy.on_connected(key, Err(failure), began);
            }
        }
    }

    // Control.

    fn open_mail(&mut self) {
        self.proxy.on_woken(self.now);
        self.perform();
        let mut moves = Moves::default();
        self.mail_waits = false;
        while self.under_way.is_none()
            && let Some(message) = self.mailbox.next()
        {
            match &message {
                Message::Give(_) => moves.begin_give(),
                Message::Take(take) => moves.begin_take(take.moving.sockets.len()),
                _ => {}
            }
            match message {
                Message::Snapshot { snapshot, listeners, inherited } => {
                    inherited.iter().for_each(|socket| self.inherit(socket));
                    for id in &snapshot.changes.listeners_removed {
                        self.empty_queue(*id);
                    }
                    self.settings.stage_times = snapshot.access_log.stage_times;
                    let version = snapshot.version;
                    self.proxy.on_snapshot(snapshot, self.now);
                    for (id, listener) in listeners {
                        if let Err(error) = self.add_listener(id, listener) {
                            let errno = ::io::errno_name(&error);
                            self.mailbox.report(ReportBody::ListenerBroken { listener: id, errno });
                        }
                    }
                    self.mailbox.report(ReportBody::TakenUp(version));
                }
                Message::Replace(sockets) => {
                    sockets.into_iter().for_each(|socket| self.replace_listener(socket));
                }
                Message::Answer { exchange, payload } => {
                    self.proxy.on_answer(exchange, &payload, self.now);
                }
                Message::Check(tasks) => {
                    tasks.iter().for_each(|task| self.proxy.on_check(*task, self.now));
                }
                Message::Warmed(clusters) => self.proxy.on_warmed(&clusters, self.now),
                Message::Memory(memory) => self.proxy.set_memory(memory, self.now),
                Message::Describe { first, request } => {
                    let connections = self.proxy.describe(first, DESCRIBED_MAX, self.now);
                    self.mailbox.report(ReportBody::Described { request, connections });
                }
                Message::Give(give) => {
                    self.give(give);
                    self.has_given = true;
                }
                Message::Take(take) => self.take(take),
                Message::Ping(ping) => self.answer_ping(&ping),
                Message::Weigh(weigh) => self.weigh(&weigh),
                Message::SetApart(connection) => self.proxy.set_apart(connection, self.now),
                Message::SaveBalancing(SaveBalancing { from, reply }) => {
                    // Who asked may have given up.
                    let _ = reply.send(self.proxy.save_balancing(from, self.now));
                }
                Message::RestoreBalancing(saved) => self.proxy.restore_balancing(&saved, self.now),
                Message::Differing(differing) => self.proxy.set_differing(differing),
                Message::StopAccepting { but } => self.stop_accepting(&but),
                Message::AcceptAgain => self.accept_again(),
                Message::SocketsAreOwn => {
                    self.shares_sockets = false;
                    self.proxy.set_differing(Arc::default());
                    self.proxy.end_surplus(self.accepts_since, self.now);
                }
                Message::Drain => self.drain(),
                // What another process has, too, may go on there.
                Message::EndNow if self.shares_sockets => {}
                Message::EndNow => {
                    self.proxy.end_now(self.now);
                    self.report_drained();
                }
                Message::Stop => self.state = State::Stopped,
            }
            self.perform();
            self.mail_waits = moves.have_begun()
                && moves.are_enough(self.settings.group_part_max, || self.has_moved_enough());
            if self.mail_waits {
                break;
            }
        }
        self.has_moved |= moves.have_begun();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.state == State::Draining
    }

    fn drain(&mut self) {
        if self.state != State::Running {
            return;
        }
        self.state = State::Draining;
        let ids: Vec<_> = self.listener_places.keys().copied().collect();
        for id in ids {
            self.empty_queue(id);
            self.close_listener(id);
        }
        self.proxy.drain(self.now);
    }

    /// Says once that nothing is left, and what was cut off for that.
    fn report_drained(&mut self) {
        if !std::mem::replace(&mut self.has_reported_end, true) {
            self.mailbox.report(ReportBody::Drained { cut_off: self.proxy.cut_off() });
        }
    }

    fn upkeep(&mut self) {
        self.upkeep_at = self.now + UPKEEP_INTERVAL;
        self.upkeeps = self.upkeeps.wrapping_add(1);
        let zero = self.world.wall_clock().saturating_sub(self.world.now().as_nanos());
        self.proxy.on_wall_clock(zero);
        self.proxy.tell_gauges(self.turns, self.events_total);
        self.proxy.cool_down();
        self.proxy.end_aged(self.now);
        self.perform();
        if self.upkeeps.is_multiple_of(TRIM_EVERY) {
            self.proxy.on_quiet();
            self.sockets.shrink(self.proxy.connection_slots());
        }
    }
}
