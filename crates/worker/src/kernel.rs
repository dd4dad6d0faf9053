//! The [`World`] of production: epoll, sockets, the kernel's clocks.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ::io::inherited::Inherited;
use ::io::{BindError, Events, ListenOptions, Pipe, Poller, Socket, Waker, Yielding, clock};
use config::file_mode::FileMode;
use config::snapshot::{Address, Keepalive, ListenSocket, OriginalDestination};
use proxy::time::Time;
use proxy::{ConnKey, ConnectOptions};

use crate::world::{
    AcceptError, Accepted, ConnectError, ConnectState, Event, Ready, Spliced, World,
};

/// Linux's numbers for what `std::io::ErrorKind` has no names for.
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;

/// Tokens of connections are below this: a key's generation has 31 bits.
const LISTENER_TOKENS: u64 = 1 << 63;
/// The waker's token.
const MAIL: u64 = u64::MAX;

/// One worker's epoll instance and clocks.
#[derive(Debug)]
pub struct Kernel {
    poller: Poller,
    waker: Waker,
    events: Events,
    /// The pipe for bytes that pass through; none if the system has no more. Empty between
    /// two calls, so that one is enough and a connection never has bytes in it.
    pipe: Option<Pipe>,
    descriptors: DescriptorBounds,
    /// The number of its worker, and what wakes each worker of the process.
    crew: (u32, Arc<[Waker]>),
    yielding: Yielding,
}

/// How far the descriptors of the process may be used for connections, so that some are left for
/// everything else. The kernel gives out the lowest number that is free, so a number at a bound says
/// that as many are in use, in all threads, without a count that they would share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorBounds {
    /// Accepted sockets have numbers below this.
    pub accept_max: u64,
    /// Sockets to upstreams have numbers below this.
    pub connect_max: u64,
}

impl DescriptorBounds {
    /// As many as the system gives.
    pub const NONE: Self = Self { accept_max: u64::MAX, connect_max: u64::MAX };
}

/// Whether a socket's number is below a bound.
fn is_within(socket: &Socket, max: u64) -> bool {
    u64::try_from(socket.as_fd().as_raw_fd()).is_ok_and(|number| number < max)
}

/// A listening socket and the address that its connections came to, where that is one.
#[derive(Debug)]
pub struct Listener {
    socket: ::io::Listener,
    /// The bound address with its actual port, or none for a unix socket.
    bound: Option<SocketAddr>,
    original_destination: OriginalDestination,
}

impl Listener {
    /// The bound address with its actual port, or none for a unix socket.
    ///
    /// # Errors
    ///
    /// Errors of `getsockname`.
    pub fn local_address(&self) -> io::Result<Option<SocketAddr>> {
        self.socket.local_address()
    }

    /// Whether it has a file that is this process's own, and goes with the last listener.
    #[must_use]
    pub const fn owns_file(&self) -> bool {
        self.socket.owns_file()
    }

    /// Whether it listens at `address`.
    fn is_at(&self, address: &Address) -> bool {
        match (address, self.bound) {
            (Address::Tcp(address), Some(bound)) => *address == bound,
            (Address::Unix(path), None) => {
                self.socket.path().is_ok_and(|bound| bound.as_deref() == Some(&**path))
            }
            (Address::Tcp(_), None) | (Address::Unix(_), Some(_)) => false,
        }
    }

    /// Another handle on the same queue.
    ///
    /// # Errors
    ///
    /// Out of descriptors.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// The local address of a connection. The socket is asked if the listener has several.
    fn local_of(&self, socket: &Socket) -> Option<SocketAddr> {
        let bound = self.bound?;
        if bound.ip().is_unspecified() || self.original_destination == OriginalDestination::Tproxy {
            socket.local_address().ok().flatten()
        } else {
            Some(bound)
        }
    }

    /// Where a connection was going that came to `local`, if not here.
    fn original_of(&self, socket: &Socket, local: Option<SocketAddr>) -> Option<SocketAddr> {
        let original = match self.original_destination {
            OriginalDestination::Off => None,
            OriginalDestination::Redirect => socket.original_destination().ok().flatten(),
            OriginalDestination::Tproxy => local,
        };
        let is_ours = |address: SocketAddr| {
            let bound = self.bound.map(Address::Tcp);
            bound.is_some_and(|bound| bound.overlaps(&Address::Tcp(address)))
        };
        original.filter(|address| !is_ours(*address))
    }
}

/// Listens on `address`, once for each of several workers.
///
/// # Errors
///
/// Another process listens on `address`, in spite of `SO_REUSEPORT`; or the error of the kernel.
pub fn bind(
    address: &Address,
    options: &ListenSocket,
    workers: u32,
) -> Result<Vec<Listener>, BindError> {
    ::io::Listener::probe(borrow(address))?;
    bind_beside(address, options, workers)
}

/// As [`bind`], for an address that this process listens on already and will let go: a listener
/// with other options takes the place of a former one. Unix sockets cannot be shared like that.
///
/// # Errors
///
/// The kernel's error.
pub fn bind_beside(
    address: &Address,
    options: &ListenSocket,
    workers: u32,
) -> Result<Vec<Listener>, BindError> {
    let target = borrow(address);
    let original_destination = options.original_destination;
    let options = listen_options(options);
    let first = ::io::Listener::bind(target, &options)?;
    let bound = at_name(first.local_address())?;
    let mut sockets = vec![first];
    while let (Some(first), true) = (sockets.first(), sockets.len() < workers as usize) {
        let next = match bound {
            // The port may have been 0, and now is what the first socket got.
            Some(bound) => ::io::Listener::bind(::io::Address::Tcp(bound), &options)?,
            // Unix sockets have no SO_REUSEPORT: the workers share one queue.
            None => at_name(first.try_clone())?,
        };
        sockets.push(next);
    }
    let listener = |socket| Listener { socket, bound, original_destination };
    Ok(sockets.into_iter().map(listener).collect())
}

/// Accepts from a socket that listens already, in each of several workers: they share its queue.
///
/// # Errors
///
/// The kernel's error.
pub fn inherit(
    inherited: &Inherited,
    options: &ListenSocket,
    workers: u32,
) -> Result<Vec<Listener>, BindError> {
    let original_destination = options.original_destination;
    let first = ::io::Listener::inherit(inherited, &listen_options(options))?;
    let bound = at_name(first.local_address())?;
    let listener = |socket| Listener { socket, bound, original_destination };
    let others = (1..workers).map(|_| at_name(first.try_clone()).map(listener));
    let mut listeners: Vec<_> = others.collect::<Result<_, _>>()?;
    listeners.push(listener(first));
    Ok(listeners)
}

/// Accepts from sockets of a process that this one takes the place of. Each worker gets its part of them; where there
/// are more workers than sockets, several share a queue. The sockets come as one list for each worker.
///
/// # Errors
///
/// What the kernel refused.
pub fn take_over(
    inherited: &[Inherited],
    options: &ListenSocket,
    workers: u32,
) -> Result<Vec<Vec<Listener>>, BindError> {
    let original_destination = options.original_destination;
    let options = listen_options(options);
    let mut dealt: Vec<_> = (0..workers.max(1)).map(|_| Vec::new()).collect();
    let places = inherited.len().max(dealt.len());
    for (place, inherited) in inherited.iter().cycle().take(places).enumerate() {
        let socket = ::io::Listener::take_over(inherited, &options)?;
        let bound = at_name(socket.local_address())?;
        let worker = place % dealt.len();
        if let Some(list) = dealt.get_mut(worker) {
            list.push(Listener { socket, bound, original_destination });
        }
    }
    Ok(dealt)
}

/// Sets the options of a listening socket that was [taken over](take_over), once it is this process's own: until then the other process
/// may go on with it.
///
/// # Errors
///
/// What the kernel refused.
pub fn set_options(socket: &OwnedFd, options: &ListenSocket) -> Result<(), BindError> {
    ::io::Listener::set_options(socket, &listen_options(options))
}

fn listen_options(options: &ListenSocket) -> ListenOptions {
    ListenOptions {
        backlog: options.backlog.get(),
        fast_open: options.fast_open.map(u32::from),
        keepalive: options.keepalive.map(keepalive),
        reuse_port: true,
        transparent: options.original_destination == OriginalDestination::Tproxy,
        mode: options.mode.unwrap_or(FileMode::GROUP).bits(),
    }
}

/// Whether clusters may have a `mark`: this process may put marks on its sockets.
///
/// # Errors
///
/// `PermissionDenied` if not, or out of descriptors.
pub fn probe_mark() -> io::Result<()> {
    Socket::probe_mark()
}

fn at_name<T>(result: io::Result<T>) -> Result<T, BindError> {
    result.map_err(|source| BindError::System { step: "getsockname", source })
}

impl Kernel {
    /// A world that waits with `poller`, woken through `waker`.
    ///
    /// # Errors
    ///
    /// Out of descriptors or memory.
    pub fn new(poller: Poller, waker: Waker) -> io::Result<Self> {
        poller.add_waker(&waker, MAIL)?;
        let descriptors = DescriptorBounds::NONE;
        let (events, pipe) = (Events::new(), Pipe::new().ok());
        let (crew, yielding) = ((0, Arc::default()), Yielding::default());
        Ok(Self { poller, waker, events, pipe, descriptors, crew, yielding })
    }

    /// It is the world of this worker, and each worker of the process is woken by one of these.
    pub fn set_crew(&mut self, worker: u32, wakers: Arc<[Waker]>) {
        self.crew = (worker, wakers);
    }

    /// Leaves descriptors beyond these bounds to others.
    pub const fn set_descriptor_bounds(&mut self, bounds: DescriptorBounds) {
        self.descriptors = bounds;
    }
}

impl World for Kernel {
    type Socket = Socket;
    type Listener = Listener;

    // Fewer are cheaper to read and write: `::io::Pipe`.
    const SPLICE_BYTES_MIN: usize = 64 << 10;

    #[inline]
    fn now(&mut self) -> Time {
        Time::from_nanos(clock::monotonic_ns())
    }

    fn wall_clock(&mut self) -> u64 {
        clock::realtime_ns()
    }

    fn wait(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        let timeout = match until {
            Some(until) if until <= Time::from_nanos(0) => Some(Duration::ZERO),
            Some(until) => Some(until - self.now()),
            None => None,
        };
        self.poller.wait(timeout, &mut self.events)?;
        for event in self.events.iter() {
            events.push(match event.token {
                MAIL => {
                    self.waker.drain();
                    Event::Mail
                }
                token if token >= LISTENER_TOKENS => {
                    let index = u32::try_from(token - LISTENER_TOKENS);
                    Event::Accept(index.expect("tokens are made of 32 bits"))
                }
                token => {
                    let ready = Ready {
                        is_readable: event.readiness.is_readable(),
                        is_writable: event.readiness.is_writable(),
                        is_ending: !event.readiness.is_open(),
                        is_closed: event.readiness.is_closed(),
                    };
                    Event::Socket { key: ConnKey::from_bits(token), ready }
                }
            });
        }
        Ok(())
    }

    fn give_way(&mut self) {
        self.yielding.give_way();
    }

    fn wake(&mut self, workers: u64) {
        let (own, wakers) = &self.crew;
        let others = (0_u32..).zip(&**wakers).filter(|(worker, _)| worker != own);
        let is_in = |worker: u32| workers >> (worker % u64::BITS) & 1 == 1;
        others.filter(|(worker, _)| is_in(*worker)).for_each(|(_, waker)| waker.wake());
    }

    fn watch_listener(&mut self, listener: &Listener, token: u32) -> io::Result<()> {
        self.poller.add_listener(&listener.socket, LISTENER_TOKENS | u64::from(token))
    }

    fn unwatch_listener(&mut self, listener: &Listener) {
        // Fails only if it is not watched, which is what is wanted.
        let _ = self.poller.remove_listener(&listener.socket);
    }

    fn listens_at(&self, listener: &Listener, address: &Address) -> bool {
        listener.is_at(address)
    }

    fn accept(&mut self, listener: &Listener) -> Result<Option<Accepted<Socket>>, AcceptError> {
        match listener.socket.accept() {
            // Closed at once: it would take what connecting, the admin interface and files need.
            Ok(Some((socket, _))) if !is_within(&socket, self.descriptors.accept_max) => {
                Err(AcceptError::OutOfDescriptors(""))
            }
            Ok(Some((socket, peer))) => {
                let local = listener.local_of(&socket);
                let original = listener.original_of(&socket, local);
                Ok(Some(Accepted { socket, peer, local, original }))
            }
            Ok(None) => Ok(None),
            Err(::io::AcceptError::OutOfDescriptors(error)) => {
                Err(AcceptError::OutOfDescriptors(::io::errno_name(&error)))
            }
            Err(::io::AcceptError::Transient(_)) => Err(AcceptError::Transient),
            Err(::io::AcceptError::Fatal(error)) => {
                Err(AcceptError::Fatal(::io::errno_name(&error)))
            }
        }
    }

    fn peer_address(&self, socket: &Socket) -> io::Result<Option<SocketAddr>> {
        socket.peer_address()
    }

    fn connect(
        &mut self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<(Socket, ConnectState), ConnectError> {
        let options = ::io::ConnectOptions {
            fast_open: options.fast_open,
            keepalive: options.keepalive.map(keepalive),
            mark: options.mark,
        };
        let connected = Socket::connect(borrow(address), &options);
        let (socket, state) = connected.map_err(|error| match error.raw_os_error() {
            Some(ENFILE | EMFILE | ENOBUFS | ENOMEM) => ConnectError::OutOfDescriptors,
            _ => ConnectError::Failed(::io::errno_name(&error)),
        })?;
        if !is_within(&socket, self.descriptors.connect_max) {
            return Err(ConnectError::OutOfDescriptors);
        }
        let state = match state {
            ::io::ConnectState::Connected => ConnectState::Connected,
            ::io::ConnectState::Connecting => ConnectState::Connecting,
        };
        Ok((socket, state))
    }

    fn watch(&mut self, socket: &Socket, key: ConnKey) -> io::Result<()> {
        self.poller.add(socket, key.to_bits())
    }

    fn watch_reads(&mut self, socket: &Socket, key: ConnKey) -> io::Result<()> {
        self.poller.add_reads(socket, key.to_bits())
    }

    fn watch_writes(&mut self, socket: &Socket, key: ConnKey) -> io::Result<()> {
        self.poller.add_writes(socket, key.to_bits())
    }

    fn unwatch(&mut self, socket: &Socket) {
        // Fails only if it is not watched, which is what is wanted.
        let _ = self.poller.remove(socket);
    }

    fn take_error(&mut self, socket: &Socket) -> io::Result<()> {
        socket.take_error()
    }

    #[inline]
    fn recv(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        socket.recv(buffer)
    }

    #[inline]
    fn send(&mut self, socket: &Socket, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        socket.send(slices)
    }

    fn splice(&mut self, from: &Socket, to: &Socket, rest: &mut [u8]) -> io::Result<Spliced> {
        let Some(pipe) = &self.pipe else { return Err(io::ErrorKind::Unsupported.into()) };
        let received = pipe.fill(from, rest.len())?;
        let sent = pipe.pour(to, received);
        // Bytes that stayed in the pipe would go to the next connection.
        pipe.read(rest.get_mut(..received - sent).unwrap_or_default())
            .expect("the pipe holds what was received and not sent");
        Ok(Spliced { received, sent })
    }

    fn undelivered(&mut self, socket: &Socket) -> usize {
        // Fails if the connection has ended.
        socket.unacknowledged().unwrap_or(0)
    }

    fn shutdown_write(&mut self, socket: &Socket) {
        // Fails if the peer is gone, which the next event reports in detail.
        let _ = socket.shutdown_write();
    }

    fn shutdown(&mut self, socket: &Socket) {
        ::io::packets::shut(socket);
    }

    fn abort(&mut self, socket: &Socket) {
        socket.abort();
    }

    fn reset(&mut self, socket: Socket) {
        socket.reset();
    }
}

fn borrow(address: &Address) -> ::io::Address<'_> {
    match address {
        Address::Tcp(address) => ::io::Address::Tcp(*address),
        Address::Unix(path) => ::io::Address::Unix(path),
    }
}

fn keepalive(keepalive: Keepalive) -> ::io::Keepalive {
    ::io::Keepalive {
        idle: keepalive.idle,
        interval: keepalive.interval,
        probes: keepalive.probes.get(),
    }
}
