//! The [`World`] of a simulated worker.

use std::io::{self, IoSlice};
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
}

/// A worker's end of a connection; closed when dropped.
#[derive(Debug)]
pub struct SimSocket {
    network: Shared,
    end: Option<EndId>,
}

/// A worker's listening socket; closed when dropped.
#[derive(Debug)]
pub struct SimListener {
    network: Shared,
    socket: ListenerSocket,
}

impl SimWorld {
    /// The world of the worker with this number.
    #[must_use]
    pub const fn new(network: Shared, worker: usize) -> Self {
        Self { network, worker }
    }
}

impl SimListener {
    /// A socket of the worker with this number, listening on `address`.
    #[must_use]
    pub fn new(network: &Shared, worker: usize, address: &Address, backlog: u32) -> Self {
        let owner = Owner::Worker(worker);
        let backlog = usize::try_from(backlog).expect("32 bits");
        let socket = network.borrow_mut().listen(owner, address.clone(), backlog);
        Self { network: Rc::clone(network), socket }
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

    fn wake(&mut self, workers: u64) {
        self.network.borrow_mut().wake_others(self.worker, workers);
    }

    fn watch_listener(&mut self, listener: &SimListener, token: u32) -> io::Result<()> {
        self.network.borrow_mut().watch_listener(listener.socket, token);
        Ok(())
    }

    fn unwatch_listener(&mut self, listener: &SimListener) {
        self.network.borrow_mut().unwatch_listener(listener.socket);
    }

    fn accept(
        &mut self,
        listener: &SimListener,
    ) -> Result<Option<Accepted<SimSocket>>, AcceptError> {
        let accepted = self.network.borrow_mut().accept(listener.socket)?;
        Ok(accepted.map(|(end, peer, local)| Accepted {
            socket: SimSocket { network: Rc::clone(&self.network), end: Some(end) },
            peer: Some(peer),
            local: Some(local),
            original: None,
        }))
    }

    fn connect(
        &mut self,
        address: &Address,
        _options: &ConnectOptions,
    ) -> Result<(SimSocket, ConnectState), ConnectError> {
        let owner = Owner::Worker(self.worker);
        let (end, state) = self.network.borrow_mut().connect(owner, address)?;
        Ok((SimSocket { network: Rc::clone(&self.network), end: Some(end) }, state))
    }

    fn watch(&mut self, socket: &SimSocket, key: ConnKey) -> io::Result<()> {
        if let Some(end) = socket.end {
            self.network.borrow_mut().watch(end, self.worker, key);
        }
        Ok(())
    }

    fn unwatch(&mut self, socket: &SimSocket) {
        if let Some(end) = socket.end {
            self.network.borrow_mut().unwatch(end);
        }
    }

    fn take_error(&mut self, socket: &SimSocket) -> io::Result<()> {
        self.network.borrow_mut().take_error(socket.end()?)
    }

    fn recv(&mut self, socket: &SimSocket, buffer: &mut [u8]) -> io::Result<usize> {
        self.network.borrow_mut().recv(socket.end()?, buffer)
    }

    fn send(&mut self, socket: &SimSocket, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.network.borrow_mut().send(socket.end()?, slices)
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
        socket.end.map_or(0, |end| self.network.borrow().undelivered(end))
    }

    fn shutdown_write(&mut self, socket: &SimSocket) {
        if let Some(end) = socket.end {
            self.network.borrow_mut().shutdown_write(end);
        }
    }

    fn reset(&mut self, mut socket: SimSocket) {
        if let Some(end) = socket.end.take() {
            self.network.borrow_mut().reset(end);
        }
    }
}

impl SimSocket {
    fn end(&self) -> io::Result<EndId> {
        self.end.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.network.borrow_mut().close(end);
        }
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.network.borrow_mut().close_listener(self.socket);
    }
}
