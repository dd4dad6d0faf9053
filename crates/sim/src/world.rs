//! The [`World`] of a simulated worker.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

use config::snapshot::Address;
use proxy::time::Time;
use proxy::{ConnKey, ConnectOptions};
use worker::{AcceptError, Accepted, ConnectError, ConnectState, Event, Spliced, World};

use crate::network::{EndId, ListenerSocket, Owner, Shared};

/// Wall-clock time of the clock's zero: the morning of 2026-01-01.
const WALL_CLOCK_ZERO: u64 = 1_767_250_800_000_000_000;

/// A worker's side of the network.
#[derive(Debug)]
pub struct SimWorld {
    network: Shared,
    worker: usize,
    /// All workers of its process.
    process_workers: Range<usize>,
}

/// A worker's end of a connection; closed when it is dropped, and every [duplicate](Self::duplicate) of it.
#[derive(Debug)]
pub struct SimSocket(Rc<OpenEnd>);

/// An end that some process has open.
#[derive(Debug)]
struct OpenEnd {
    network: Shared,
    end: EndId,
    /// Whether to close it resets the connection.
    resets: Cell<bool>,
}

/// A worker's listening socket; closed when it is dropped, and every [duplicate](Self::duplicate) of it.
#[derive(Debug)]
pub struct SimListener(Rc<OpenListener>);

#[derive(Debug)]
struct OpenListener {
    network: Shared,
    socket: ListenerSocket,
}

impl SimWorld {
    /// The world of the worker with this number, whose process has the workers of `process_workers`.
    #[must_use]
    pub const fn new(network: Shared, worker: usize, process_workers: Range<usize>) -> Self {
        Self { network, worker, process_workers }
    }
}

impl SimListener {
    /// A socket of the worker with this number, listening on `address`.
    #[must_use]
    pub fn new(network: &Shared, worker: usize, address: &Address, backlog: u32) -> Self {
        let owner = Owner::Worker(worker);
        let backlog = usize::try_from(backlog).expect("32 bits");
        let socket = network.borrow_mut().listen(owner, address.clone(), backlog);
        Self(Rc::new(OpenListener { network: Rc::clone(network), socket }))
    }

    /// The same socket for another process.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl World for SimWorld {
    // Within what the buffers of a simulated network hold.
    const SPLICE_BYTES_MIN: usize = 1 << 10;

    type Socket = SimSocket;
    type Listener = SimListener;

    fn now(&mut self) -> Time {
        self.network.borrow_mut().read_clock()
    }

    fn wall_clock(&mut self) -> u64 {
        self.network.borrow_mut().read_clock().as_nanos() + WALL_CLOCK_ZERO
    }

    /// Never waits: the simulation runs a worker's turn when its time has come.
    fn wait(&mut self, _until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        self.network.borrow_mut().events(self.worker, events);
        Ok(())
    }

    fn give_way(&mut self) {}

    fn wake(&mut self, workers: u64) {
        self.network.borrow_mut().wake_others(self.worker, self.process_workers.clone(), workers);
    }

    fn watch_listener(&mut self, listener: &SimListener, token: u32) -> io::Result<()> {
        self.network.borrow_mut().watch_listener(listener.0.socket, self.worker, token);
        Ok(())
    }

    fn unwatch_listener(&mut self, listener: &SimListener) {
        self.network.borrow_mut().unwatch_listener(listener.0.socket, self.worker);
    }

    fn listens_at(&self, listener: &SimListener, address: &Address) -> bool {
        self.network.borrow().listens_at(listener.0.socket, address)
    }

    fn accept(
        &mut self,
        listener: &SimListener,
    ) -> Result<Option<Accepted<SimSocket>>, AcceptError> {
        let accepted = self.network.borrow_mut().accept(listener.0.socket)?;
        Ok(accepted.map(|(end, peer, local)| Accepted {
            socket: SimSocket::new(&self.network, end),
            peer: Some(peer),
            local: Some(local),
            original: None,
        }))
    }

    fn peer_address(&self, socket: &SimSocket) -> io::Result<Option<SocketAddr>> {
        let peer = self.network.borrow().peer_address(socket.0.end);
        peer.map(Some).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn connect(
        &mut self,
        address: &Address,
        _options: &ConnectOptions,
    ) -> Result<(SimSocket, ConnectState), ConnectError> {
        let owner = Owner::Worker(self.worker);
        let (end, state) = self.network.borrow_mut().connect(owner, address)?;
        Ok((SimSocket::new(&self.network, end), state))
    }

    fn watch(&mut self, socket: &SimSocket, key: ConnKey) -> io::Result<()> {
        self.network.borrow_mut().watch(socket.end(), self.worker, key);
        Ok(())
    }

    fn watch_reads(&mut self, socket: &SimSocket, key: ConnKey) -> io::Result<()> {
        self.network.borrow_mut().watch_reads(socket.end(), self.worker, key);
        Ok(())
    }

    fn watch_writes(&mut self, socket: &SimSocket, _key: ConnKey) -> io::Result<()> {
        self.network.borrow_mut().watch_writes(socket.end());
        Ok(())
    }

    fn unwatch(&mut self, socket: &SimSocket) {
        self.network.borrow_mut().unwatch(socket.end());
    }

    fn take_error(&mut self, socket: &SimSocket) -> io::Result<()> {
        self.network.borrow_mut().take_error(socket.end())
    }

    fn recv(&mut self, socket: &SimSocket, buffer: &mut [u8]) -> io::Result<usize> {
        self.network.borrow_mut().note_use(socket.end(), self.worker);
        self.network.borrow_mut().recv(socket.end(), buffer)
    }

    fn send(&mut self, socket: &SimSocket, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.network.borrow_mut().note_use(socket.end(), self.worker);
        self.network.borrow_mut().send(socket.end(), slices)
    }

    fn splice(&mut self, from: &SimSocket, to: &SimSocket, rest: &mut [u8]) -> io::Result<Spliced> {
        let received = self.recv(from, rest)?;
        let bytes = rest.get(..received).unwrap_or_default();
        // Nothing is written at an end, which would take an error with it.
        let sent = match received {
            0 => 0,
            _ => self.send(to, &[IoSlice::new(bytes)]).unwrap_or_default(),
        };
        rest.copy_within(sent..received, 0);
        self.network.borrow_mut().spliced_total += received as u64;
        Ok(Spliced { received, sent })
    }

    fn undelivered(&mut self, socket: &SimSocket) -> usize {
        self.network.borrow().undelivered(socket.end())
    }

    fn shutdown_write(&mut self, socket: &SimSocket) {
        self.network.borrow_mut().shutdown_write(socket.end());
    }

    fn shutdown(&mut self, socket: &SimSocket) {
        self.network.borrow_mut().shutdown_write(socket.end());
    }

    fn abort(&mut self, socket: &SimSocket) {
        self.network.borrow_mut().reset(socket.end());
    }

    fn reset(&mut self, socket: SimSocket) {
        socket.0.resets.set(true);
    }
}

impl SimSocket {
    fn new(network: &Shared, end: EndId) -> Self {
        Self(Rc::new(OpenEnd { network: Rc::clone(network), end, resets: Cell::new(false) }))
    }

    /// The end that it is.
    #[must_use]
    pub fn end(&self) -> EndId {
        self.0.end
    }

    /// The same end for another process.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl Drop for OpenEnd {
    fn drop(&mut self) {
        let network = &mut self.network.borrow_mut();
        if self.resets.get() || network.is_killing {
            network.reset(self.end);
        } else {
            network.close(self.end);
        }
    }
}

impl Drop for OpenListener {
    fn drop(&mut self) {
        self.network.borrow_mut().close_listener(self.socket);
    }
}
