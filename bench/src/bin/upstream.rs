//! A service that answers every request with the same 1 KiB: `upstream --listen 127.0.0.1:0`.
//!
//! It shares a core with the load, so what it saves is what the load can ask. It reads a request's
//! head only for its length.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;

use ::io::{Address, Events, ListenOptions, Listener, Poller, Readiness, Socket};
use bench::arguments::Arguments;
use bench::messages::Messages;
use bench::requests::response;

const LISTENER: u64 = u64::MAX;
const SCRATCH_BYTES: usize = 64 << 10;

struct Connection {
    socket: Socket,
    requests: Messages,
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
    response: Vec<u8>,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1), &["listen"])?;
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
        response: response(),
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
                if connection.on_event(event.readiness, &mut self.scratch, &self.response).is_err()
                {
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
                requests: Messages::default(),
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
    fn on_event(
        &mut self,
        readiness: Readiness,
        scratch: &mut [u8],
        response: &[u8],
    ) -> io::Result<()> {
        self.is_ending |= !readiness.is_open();
        if readiness.is_writable() && !self.unsent.is_empty() {
            let sent = sent_of(self.socket.send_slice(&self.unsent))?;
            self.unsent.drain(..sent);
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
            let ended = self.requests.feed(bytes, |_| true).map_err(|_| ErrorKind::InvalidData)?;
            for _ in 0..ended {
                self.respond(response)?;
            }
            if read < scratch.len() && !self.is_ending {
                return Ok(());
            }
        }
    }

    fn respond(&mut self, response: &[u8]) -> io::Result<()> {
        let is_in_turn = self.unsent.is_empty();
        let sent = if is_in_turn { sent_of(self.socket.send_slice(response))? } else { 0 };
        self.unsent.extend_from_slice(response.get(sent..).unwrap_or_default());
        Ok(())
    }
}

/// What was sent, which is nothing if the kernel took nothing.
fn sent_of(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}
