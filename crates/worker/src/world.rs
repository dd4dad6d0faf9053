//! Everything that a worker needs from outside, behind one trait: the kernel, or a simulation.
//!
//! Sockets are edge-triggered in both directions from the moment they are registered: an event
//! comes when something becomes possible, not while it is. Those that were moved here are registered
//! for reading alone until a write took no more. Listeners are level-triggered.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use config::snapshot::Address;
use proxy::time::Time;
use proxy::{ConnKey, ConnectOptions};

/// Sockets, clock and waiting.
pub trait World {
    /// One connection. Closed when dropped.
    type Socket;
    /// One listening socket. Closed when dropped.
    type Listener;

    /// After a read of so many bytes, what follows is worth a [`World::splice`]; until one moves
    /// less. No more than a worker's one read takes, which is 64 KiB.
    const SPLICE_BYTES_MIN: usize;

    /// The monotonic clock, read now.
    fn now(&mut self) -> Time;

    /// The wall clock, read now: ns since the Unix epoch.
    fn wall_clock(&mut self) -> u64;

    /// Waits until something happens, or `until` has come, and appends what happened.
    ///
    /// # Errors
    ///
    /// The world is broken; nothing can go on.
    fn wait(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()>;

    /// Lets other threads run that wait for this processor.
    fn give_way(&mut self);

    /// Wakes the workers of the process whose numbers, modulo 64, are in this set, but not this one: each gets an
    /// [`Event::Mail`].
    fn wake(&mut self, workers: u64);

    /// Starts to report connections that wait on `listener`, as [`Event::Accept`] with `token`.
    ///
    /// # Errors
    ///
    /// The world has no room for it.
    fn watch_listener(&mut self, listener: &Self::Listener, token: u32) -> io::Result<()>;

    /// Stops reporting connections that wait on `listener`.
    fn unwatch_listener(&mut self, listener: &Self::Listener);

    /// Whether `listener` listens at `address`.
    fn listens_at(&self, listener: &Self::Listener, address: &Address) -> bool;

    /// The next connection that waits, if any.
    ///
    /// # Errors
    ///
    /// [`AcceptError`] says what to do.
    fn accept(
        &mut self,
        listener: &Self::Listener,
    ) -> Result<Option<Accepted<Self::Socket>>, AcceptError>;

    /// The address of the peer of a connection; none for unix sockets.
    ///
    /// # Errors
    ///
    /// It is not connected any more.
    fn peer_address(&self, socket: &Self::Socket) -> io::Result<Option<SocketAddr>>;

    /// Begins to connect.
    ///
    /// # Errors
    ///
    /// Errors that are known at once.
    fn connect(
        &mut self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<(Self::Socket, ConnectState), ConnectError>;

    /// Starts to report what is possible on `socket` and becomes so, as [`Event::Socket`] with `key`. One that is watched already is
    /// from now on watched like this.
    ///
    /// # Errors
    ///
    /// The world has no room for it.
    fn watch(&mut self, socket: &Self::Socket, key: ConnKey) -> io::Result<()>;

    /// As [`World::watch`], without saying when something can be written: most connections that are moved are idle and can be
    /// written to, and an event for each of them would say nothing new.
    ///
    /// # Errors
    ///
    /// The world has no room for it.
    fn watch_reads(&mut self, socket: &Self::Socket, key: ConnKey) -> io::Result<()>;

    /// Reports from now on when something can be written, too, and whether it can be by now.
    ///
    /// # Errors
    ///
    /// The world has no room for it.
    fn watch_writes(&mut self, socket: &Self::Socket, key: ConnKey) -> io::Result<()>;

    /// Stops reporting events of a socket that is moved elsewhere. Dropping the socket does it too, unless another process has it.
    fn unwatch(&mut self, socket: &Self::Socket);

    /// How a connection attempt ended.
    ///
    /// # Errors
    ///
    /// The error with which the attempt failed.
    fn take_error(&mut self, socket: &Self::Socket) -> io::Result<()>;

    /// Reads; 0 is the peer's end.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing; others mean that the connection is broken.
    fn recv(&mut self, socket: &Self::Socket, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as much as the socket takes.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if that is nothing; others mean that the connection is broken.
    fn send(&mut self, socket: &Self::Socket, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Moves up to as many bytes as `rest` can hold from one socket to the other, passed through. Bytes that
    /// were received and not taken by the other are in `rest`; the next send reports why it took no
    /// more.
    ///
    /// # Errors
    ///
    /// As [`World::recv`], and then nothing was moved. `Unsupported` if this world cannot do it.
    fn splice(
        &mut self,
        from: &Self::Socket,
        to: &Self::Socket,
        rest: &mut [u8],
    ) -> io::Result<Spliced>;

    /// Bytes that were sent and that the peer has not acknowledged. An end that was sent counts as one.
    fn undelivered(&mut self, socket: &Self::Socket) -> usize;

    /// Ends our direction (FIN).
    fn shutdown_write(&mut self, socket: &Self::Socket);

    /// Ends both directions of a connection whose socket another process has, too: our end (FIN) is sent, and what the peer still sends is
    /// answered with a reset, as if the socket were closed.
    fn shutdown(&mut self, socket: &Self::Socket);

    /// Resets a connection whose socket another process has, too: the peer is not to wait until that one closes its own.
    fn abort(&mut self, socket: &Self::Socket);

    /// Closes so that the peer sees a reset.
    fn reset(&mut self, socket: Self::Socket);
}

/// The result of [`World::splice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spliced {
    /// Bytes received; 0 is the peer's end.
    pub received: usize,
    /// Bytes of them that the other socket took.
    pub sent: usize,
}

/// Something became possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something became possible on a connection.
    Socket {
        /// The connection.
        key: ConnKey,
        /// What is possible on it.
        ready: Ready,
    },
    /// Connections wait on the listener with this token.
    Accept(u32),
    /// There is something in the mailbox, or another worker has left something.
    Mail,
}

/// What is possible on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// There are bytes, an end or an error to read.
    pub is_readable: bool,
    /// Bytes can be written, or a connection attempt ended.
    pub is_writable: bool,
    /// The peer's end, or the connection's, is behind the bytes that can be read, so that a short
    /// read does not mean that nothing is left.
    pub is_ending: bool,
    /// Both directions are over, or the connection is broken.
    pub is_closed: bool,
}

/// A connection that was accepted.
#[derive(Debug)]
pub struct Accepted<S> {
    /// The connection.
    pub socket: S,
    /// The peer's address; none for unix sockets.
    pub peer: Option<SocketAddr>,
    /// Our address; none for unix sockets.
    pub local: Option<SocketAddr>,
    /// The original destination, if it differs from our address and the listener asks for it.
    pub original: Option<SocketAddr>,
}

/// Whether a connection is established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectState {
    /// The connection is established.
    Connected,
    /// A writable event reports the result.
    Connecting,
}

/// Why a connection could not begin to be established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// No descriptor or memory is left here.
    OutOfDescriptors,
    /// Refused, no route, no port left: the name of the kernel's error, empty if it is not the kernel's.
    Failed(&'static str),
}

/// Why no connection was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptError {
    /// No descriptor or memory is left: try again later, not at once. The name of the kernel's error, empty if the process keeps what
    /// is left for others.
    OutOfDescriptors(&'static str),
    /// The connection went away before it was accepted: go on with the next.
    Transient,
    /// The listener is broken: the name of the kernel's error.
    Fatal(&'static str),
}
