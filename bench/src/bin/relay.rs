//! The bare relay: the floor for any proxy on this machine.
//!
//! `relay --listen 127.0.0.1:0 --upstream 127.0.0.1:9000` opens one upstream connection for each
//! downstream connection and copies bytes both ways. Nothing is parsed, no connection is shared,
//! nothing is timed. It uses the same `io` crate as Strait in the same way: one edge-triggered
//! registration per socket, one scratch buffer, no second read after a short one. A request and its
//! response therefore cost two reads, two writes, and their share of two waits.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;

use ::io::{
    AcceptError, Address, ConnectOptions, ConnectState, Events, ListenOptions, Listener, Poller,
    Readiness, Socket,
};
use bench::arguments::Arguments;

const LISTENER: u64 = u64::MAX;
const SCRATCH_BYTES: usize = 64 << 10;

/// One socket of a pair.
struct End {
    socket: Socket,
    is_connected: bool,
    /// Bytes may wait to be read: the last edge was not followed to its end.
    is_readable: bool,
    /// The peer sends no more, so a short read does not end the reading.
    is_ending: bool,
    /// The end was read and passed on.
    has_ended: bool,
    /// Bytes for this socket that the kernel did not take yet. While there are any, the other
    /// socket is not read.
    unsent: Vec<u8>,
}

/// A downstream connection (0) and its upstream connection (1).
struct Pair {
    ends: [End; 2],
}

struct Relay {
    poller: Poller,
    listener: Listener,
    upstream: SocketAddr,
    /// Two tokens for each slot, see [`Relay::run`].
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
    scratch: Vec<u8>,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1), &["listen", "upstream"])?;
    ::io::limits::raise_open_files()?;
    let address = Address::Tcp(arguments.require::<SocketAddr>("listen")?);
    let listener = Listener::bind(address, &ListenOptions::default()).map_err(io::Error::other)?;
    if let Some(bound) = listener.local_address()? {
        writeln!(io::stdout(), "{bound}")?;
    }
    let poller = Poller::new()?;
    poller.add_listener(&listener, LISTENER)?;
    let relay = Relay {
        poller,
        listener,
        upstream: arguments.require("upstream")?,
        pairs: Vec::new(),
        free: Vec::new(),
        scratch: vec![0; SCRATCH_BYTES],
    };
    relay.run()
}

impl Relay {
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
                let index = usize::try_from(event.token >> 1).map_err(io::Error::other)?;
                let is_upstream = event.token & 1 == 1;
                let Some(slot) = self.pairs.get_mut(index) else { continue };
                let Some(pair) = slot else { continue };
                let is_over = pair.on_event(is_upstream, event.readiness, &mut self.scratch);
                if is_over.unwrap_or(true) {
                    *slot = None;
                    closed.push(index);
                }
            }
            // Only now: a later event of this batch may still name the closed pair.
            self.free.append(&mut closed);
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok(Some((socket, _))) => self.open(socket)?,
                Ok(None) => return Ok(()),
                Err(AcceptError::Transient(_)) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    /// Connects to the upstream for a new downstream connection, which is closed if that fails.
    fn open(&mut self, downstream: Socket) -> io::Result<()> {
        let target = Address::Tcp(self.upstream);
        let Ok((upstream, state)) = Socket::connect(target, &ConnectOptions::default()) else {
            return Ok(());
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            self.pairs.len() - 1
        });
        self.poller.add(&downstream, (index as u64) << 1)?;
        self.poller.add(&upstream, ((index as u64) << 1) | 1)?;
        let is_connected = state == ConnectState::Connected;
        let ends = [End::new(downstream, true), End::new(upstream, is_connected)];
        if let Some(slot) = self.pairs.get_mut(index) {
            *slot = Some(Pair { ends });
        }
        Ok(())
    }
}

impl Pair {
    /// Moves what can be moved. Returns whether both directions are over; an error ends both.
    fn on_event(
        &mut self,
        is_upstream: bool,
        readiness: Readiness,
        scratch: &mut [u8],
    ) -> io::Result<bool> {
        let [downstream, upstream] = &mut self.ends;
        let (end, other) =
            if is_upstream { (upstream, downstream) } else { (downstream, upstream) };
        end.is_ending |= !readiness.is_open();
        end.is_readable |= readiness.is_readable();
        if readiness.is_writable() {
            end.on_writable(other, scratch)?;
        }
        if end.is_readable {
            end.copy_to(other, scratch)?;
        }
        Ok(end.has_ended && other.has_ended && end.unsent.is_empty() && other.unsent.is_empty())
    }
}

impl End {
    fn new(socket: Socket, is_connected: bool) -> Self {
        Self {
            socket,
            is_connected,
            is_readable: false,
            is_ending: false,
            has_ended: false,
            unsent: Vec::new(),
        }
    }

    /// Takes up what waited for this end: to be connected, or to be written to. Every event of an
    /// open connection says writable, so this is on the path of each request.
    #[inline]
    fn on_writable(&mut self, source: &mut Self, scratch: &mut [u8]) -> io::Result<()> {
        if self.is_connected && self.unsent.is_empty() {
            return Ok(());
        }
        if !self.is_connected {
            self.socket.take_error()?;
            self.is_connected = true;
        }
        if !self.unsent.is_empty() {
            let sent = sent_of(self.socket.send_slice(&self.unsent))?;
            self.unsent.drain(..sent);
        }
        source.copy_to(self, scratch)
    }

    /// Copies from this end to `other` until nothing is left here or `other` takes no more.
    fn copy_to(&mut self, other: &mut Self, scratch: &mut [u8]) -> io::Result<()> {
        while self.is_readable && !self.has_ended && other.is_connected && other.unsent.is_empty() {
            let read = match self.socket.recv(scratch) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_readable = false;
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if read == 0 {
                self.has_ended = true;
                other.socket.shutdown_write()?;
                return Ok(());
            }
            if read < scratch.len() && !self.is_ending {
                self.is_readable = false;
            }
            let bytes = scratch.get(..read).unwrap_or_default();
            let sent = sent_of(other.socket.send_slice(bytes))?;
            if sent < read {
                other.unsent.extend_from_slice(bytes.get(sent..).unwrap_or_default());
            }
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
