//! A service that answers at once: `upstream --listen 127.0.0.1:0 [--protocol http1]`.
//!
//! It shares a core with the load, so what it saves is what the load can ask. What it answers in
//! which protocol is up to `bench::service`; all that one read brings is answered in one write.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;

use ::io::{Address, Events, ListenOptions, Listener, Poller, Readiness, Socket};
use bench::arguments::Arguments;
use bench::service::{Protocol, Service};

const LISTENER: u64 = u64::MAX;
const SCRATCH_BYTES: usize = 64 << 10;

struct Connection {
    socket: Socket,
    service: Service,
    /// Response bytes that the kernel did not take yet.
    unsent: Vec<u8>,
    /// The client sends no more, so a short read does not end the reading.
    is_ending: bool,
}

struct Upstream {
    poller: Poller,
    listener: Listener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    scratch: Vec<u8>,
    protocol: Protocol,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1), &["listen", "protocol"])?;
    ::io::limits::raise_open_files()?;
    let address = Address::Tcp(arguments.require::<SocketAddr>("listen")?);
    let listener = Listener::bind(address, &ListenOptions::default()).map_err(io::Error::other)?;
    if let Some(bound) = listener.local_address()? {
        writeln!(io::stdout(), "{bound}")?;
    }
    let poller = Poller::new()?;
    poller.add_listener(&listener, LISTENER)?;
    let upstream = Upstream {
        poller,
        listener,
        connections: Vec::new(),
        free: Vec::new(),
        scratch: vec![0; SCRATCH_BYTES],
        protocol: arguments.find("protocol")?.unwrap_or(Protocol::Http1),
    };
    upstream.run()
}

impl Upstream {
    fn run(mut self) -> io::Result<()> {
        let mut events = Events::new();
        let mut closed = Vec::new();
        loop {
            self.poller.wait(None, &mut events)?;
            for event in events.iter() {
                if event.token == LISTENER {
                    self.accept()?;
                    continue;
                }
                let index = usize::try_from(event.token).map_err(io::Error::other)?;
                let Some(Some(connection)) = self.connections.get_mut(index) else { continue };
                if connection.on_event(event.readiness, &mut self.scratch).is_err() {
                    closed.push(index);
                    if let Some(slot) = self.connections.get_mut(index) {
                        *slot = None;
                    }
                }
            }
            // Only now: a later event of this batch may still name the closed connection.
            self.free.append(&mut closed);
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Some((socket, _)) = self.listener.accept().map_err(io::Error::other)? {
            let index = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.poller.add(&socket, index as u64)?;
            let connection = Connection {
                socket,
                service: Service::new(self.protocol),
                unsent: Vec::new(),
                is_ending: false,
            };
            if let Some(slot) = self.connections.get_mut(index) {
                *slot = Some(connection);
            }
        }
        Ok(())
    }
}

impl Connection {
    /// Answers what can be answered. An error is the end of the connection.
    fn on_event(&mut self, readiness: Readiness, scratch: &mut [u8]) -> io::Result<()> {
        self.is_ending |= !readiness.is_open();
        if readiness.is_writable() && !self.unsent.is_empty() {
            self.send()?;
        }
        if !readiness.is_readable() {
            return Ok(());
        }
        loop {
            let read = match self.socket.recv(scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let bytes = scratch.get(..read).unwrap_or_default();
            self.service.feed(bytes, &mut self.unsent).map_err(|_| ErrorKind::InvalidData)?;
            self.send()?;
            if read < scratch.len() && !self.is_ending {
                return Ok(());
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.unsent.is_empty() {
            let sent = sent_of(self.socket.send_slice(&self.unsent))?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }
}

/// The bytes sent; 0 if the kernel took nothing.
fn sent_of(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}
