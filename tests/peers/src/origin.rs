//! An upstream inside this program, for claims that need one that is not a peer.
//!
//! A thread a connection and no cleverness. What it does is in the path:
//!
//! | path | does |
//! |---|---|
//! | `/bytes/N` | N bytes of the [`pattern`], with their length |
//! | `/chunked/N` | the same, in chunks |
//! | `/echo` | sends the request's body back |
//! | `/check/N` | reads the body and says whether it is N bytes of the pattern |
//! | `/hold…` | reads the head, waits for [`Origin::release`], goes on with what follows `/hold` |
//! | anything | the request's line and fields as text |
//!
//! A request to upgrade is accepted; whatever comes afterwards is sent back.

use std::io::{BufReader, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, bail};

use crate::client;
use crate::pattern::{self, Pattern};

/// The upstream; it stops accepting when dropped.
#[derive(Debug)]
pub(crate) struct Origin {
    address: SocketAddr,
    gate: Arc<Gate>,
    acceptor: Option<JoinHandle<()>>,
}

/// Where requests to `/hold` wait.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    opened: Condvar,
    waiting: AtomicUsize,
    connections: AtomicUsize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum GateState {
    #[default]
    Closed,
    Open,
    /// The origin is gone.
    Over,
}

impl Origin {
    pub(crate) fn start() -> Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    pub(crate) fn start_at(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let gate = Arc::new(Gate::default());
        let acceptor = {
            let gate = Arc::clone(&gate);
            std::thread::spawn(move || accept(&listener, &gate))
        };
        Ok(Self { address, gate, acceptor: Some(acceptor) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests that wait at the gate.
    pub(crate) fn waiting(&self) -> usize {
        self.gate.waiting.load(Ordering::Relaxed)
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.gate.connections.load(Ordering::Relaxed)
    }

    /// Lets through what waits and what will come.
    pub(crate) fn release(&self) {
        self.gate.set(GateState::Open);
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.gate.set(GateState::Over);
        // Wakes the acceptor, which then sees that it is over.
        _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            _ = acceptor.join();
        }
    }
}

impl Gate {
    fn set(&self, state: GateState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.opened.notify_all();
    }

    fn state(&self) -> GateState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = |state: &mut GateState| *state == GateState::Closed;
        drop(self.opened.wait_while(state, closed).unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, gate: &Arc<Gate>) {
    for stream in listener.incoming() {
        if gate.state() == GateState::Over {
            return;
        }
        let Ok(stream) = stream else { continue };
        gate.connections.fetch_add(1, Ordering::Relaxed);
        let gate = Arc::clone(gate);
        // An error is the end of one connection, which the claim sees from the other side.
        std::thread::spawn(move || _ = Connection { gate, stream: BufReader::new(stream) }.serve());
    }
}

struct Connection {
    gate: Arc<Gate>,
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn serve(mut self) -> Result<()> {
        self.stream.get_ref().set_nodelay(true)?;
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if client::read_line(&mut self.stream, &mut head)? == 0 {
                    return Ok(());
                }
            }
            let line = head.lines().next().unwrap_or_default();
            let mut words = line.split(' ');
            let method = words.next().unwrap_or_default();
            let path = words.next().context("a request line has a target")?;
            if client::field(&head, "upgrade").is_some() {
                return self.upgrade();
            }
            let held = path.strip_prefix("/hold");
            if held.is_some() {
                self.gate.pass();
            }
            let path = held.unwrap_or(path);
            if let Some(len) = number(path, "/check/") {
                let verdict = match self.check(&head, len) {
                    Ok(()) => "as sent".to_owned(),
                    Err(error) => format!("{error:#}"),
                };
                self.respond(method, verdict.as_bytes())?;
                continue;
            }
            let body = self.body(&head)?;
            if let Some(len) = number(path, "/bytes/") {
                self.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n"))?;
                if method != "HEAD" {
                    Pattern::new().write(self.stream.get_mut(), len)?;
                }
            } else if let Some(len) = number(path, "/chunked/") {
                self.chunked(len)?;
            } else if path == "/echo" {
                self.respond(method, &body)?;
            } else {
                self.respond(method, head.as_bytes())?;
            }
        }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes.as_ref())?)
    }

    fn respond(&mut self, method: &str, body: &[u8]) -> Result<()> {
        let mut bytes =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
        if method != "HEAD" {
            bytes.extend_from_slice(body);
        }
        self.send(bytes)
    }

    fn chunked(&mut self, len: usize) -> Result<()> {
        self.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        let mut pattern = Pattern::new();
        let mut left = len;
        while left > 0 {
            let piece = left.min(10_000);
            self.send(format!("{piece:x}\r\n"))?;
            pattern.write(self.stream.get_mut(), piece)?;
            self.send("\r\n")?;
            left -= piece;
        }
        self.send("0\r\n\r\n")
    }

    fn body(&mut self, head: &str) -> Result<Vec<u8>> {
        self.ask_for_body(head)?;
        if client::field(head, "transfer-encoding").is_some() {
            return client::chunked(&mut self.stream);
        }
        let len = client::field(head, "content-length").unwrap_or("0").parse()?;
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    /// Checks a body as it comes, so that a large one is not kept.
    fn check(&mut self, head: &str, len: usize) -> Result<()> {
        if client::field(head, "transfer-encoding").is_some() {
            return pattern::check(&*self.body(head)?, len);
        }
        self.ask_for_body(head)?;
        let announced: u64 = client::field(head, "content-length").context("no length")?.parse()?;
        pattern::check(self.stream.by_ref().take(announced), len)
    }

    fn ask_for_body(&mut self, head: &str) -> Result<()> {
        if client::field(head, "expect").is_some() {
            self.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        Ok(())
    }

    fn upgrade(mut self) -> Result<()> {
        self.send(SWITCHING)?;
        let mut to = self.stream.get_ref().try_clone()?;
        std::io::copy(&mut self.stream, &mut to)?;
        // All that came was sent back, and nothing more will come.
        to.shutdown(std::net::Shutdown::Write).or_else(|error| bail!(error))
    }
}

/// The answer to a handshake with the example key of RFC 6455, section 1.3.
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\n\
connection: Upgrade\r\n\
upgrade: websocket\r\n\
sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn number(path: &str, prefix: &str) -> Option<usize> {
    path.strip_prefix(prefix)?.parse().ok()
}
