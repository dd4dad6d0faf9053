//! A new connection of TLS for each request, so many at a time.
//!
//! ```text
//! tls-load --target 127.0.0.1:8443 --connections 16 --seconds 4 [--version 1.3] [--resume yes] [--rate 800]
//! ```
//!
//! Each connection shakes hands, asks once with `Connection: close`, reads the response and
//! close_notify, and is closed; the next one takes its place. A request counts from
//! the call that opens its connection. Without `--resume` each handshake is a whole one. With it,
//! each goes on with the session of the one whose place it took: a whole handshake is an error,
//! where it is not the first in its place. So is a response that is cut off.
//!
//! With `--rate` connections have a schedule: one each 1/rate seconds, in whichever place is free,
//! later if none is. A request counts from the moment that it was due.
//!
//! When time is up no more are begun, and those on their way are waited for and counted. The
//! result is one line of JSON.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use ::io::{Address, ConnectOptions, Events, Poller, Readiness, Socket, clock};
use bench::arguments::Arguments;
use bench::latencies::Latencies;
use bench::messages::{Malformed, Messages};
use bench::requests::{is_success, last_request};
use bench::tls::{Client, Context, Version};

const NAMES: [&str; 6] = ["target", "connections", "seconds", "version", "resume", "rate"];
const SCRATCH_BYTES: usize = 64 << 10;
const SECOND: u64 = 1_000_000_000;
/// How long answers are waited for after the last request.
const GRACE: Duration = Duration::from_secs(2);

struct Connection {
    socket: Socket,
    client: Client,
    /// The ClientHello, sent when there is a connection.
    hello: Vec<u8>,
    response: Messages,
    is_answered: bool,
    began: u64,
}

/// Where connections follow each other.
struct Place {
    /// Holds the tickets of its connections, so that none runs out of them because of others.
    context: Context,
    connection: Option<Connection>,
    /// Whether an earlier connection left a ticket.
    may_resume: bool,
}

/// When connections are due.
struct Schedule {
    begin: u64,
    rate: u64,
    opened: u64,
}

struct Load {
    poller: Poller,
    target: SocketAddr,
    is_resuming: bool,
    request: Vec<u8>,
    places: Vec<Place>,
    schedule: Option<Schedule>,
    scratch: Vec<u8>,
    latencies: Latencies,
    resumed: u64,
    errors: u64,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1), &NAMES)?;
    ::io::limits::raise_open_files()?;
    let version = arguments.find("version")?.unwrap_or(Version::Tls13);
    let is_resuming = arguments.find::<String>("resume")?.is_some_and(|value| value == "yes");
    let place = || -> io::Result<Place> {
        let context = Context::new(version, is_resuming)?;
        Ok(Place { context, connection: None, may_resume: false })
    };
    let count = arguments.require::<usize>("connections")?;
    let begin = clock::monotonic_ns();
    let rate = arguments.find::<u64>("rate")?;
    if rate == Some(0) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "--rate 0 asks for nothing"));
    }
    let mut load = Load {
        poller: Poller::new()?,
        target: arguments.require("target")?,
        is_resuming,
        request: last_request(),
        places: (0..count).map(|_| place()).collect::<Result<_, _>>()?,
        schedule: rate.map(|rate| Schedule { begin, rate, opened: 0 }),
        scratch: vec![0; SCRATCH_BYTES],
        latencies: Latencies::default(),
        resumed: 0,
        errors: 0,
    };
    load.run(begin.saturating_add(arguments.require::<u64>("seconds")?.saturating_mul(SECOND)))?;
    load.report(clock::monotonic_ns().saturating_sub(begin))
}

impl Load {
    fn run(&mut self, end: u64) -> io::Result<()> {
        let mut events = Events::new();
        loop {
            let now = clock::monotonic_ns();
            let is_over = now >= end;
            let pause = if is_over { None } else { self.open_due(now)? };
            if is_over && self.places.iter().all(|place| place.connection.is_none()) {
                return Ok(());
            }
            let wait = pause.map_or(GRACE, |pause| pause.min(GRACE));
            self.poller.wait(Some(wait), &mut events)?;
            if events.is_empty() && pause.is_none() {
                let unanswered = self.places.iter().filter(|place| place.connection.is_some());
                self.errors += unanswered.count() as u64;
                return Ok(());
            }
            for event in events.iter() {
                let index = usize::try_from(event.token).map_err(io::Error::other)?;
                let is_over = self.on_event(index, event.readiness).unwrap_or_else(|_| {
                    self.errors += 1;
                    true
                });
                if is_over {
                    self.close(index);
                }
            }
        }
    }

    /// Opens what is due, as far as places are free: how long until the next is, if it has one.
    fn open_due(&mut self, now: u64) -> io::Result<Option<Duration>> {
        for index in 0..self.places.len() {
            if self.places.get(index).is_some_and(|place| place.connection.is_some()) {
                continue;
            }
            let due = self.schedule.as_ref().map_or(now, Schedule::next);
            if due > now {
                return Ok(Some(Duration::from_nanos(due - now)));
            }
            if let Some(schedule) = &mut self.schedule {
                schedule.opened += 1;
            }
            self.open(index, due)?;
        }
        Ok(None)
    }

    fn open(&mut self, index: usize, began: u64) -> io::Result<()> {
        let place = self.places.get_mut(index).ok_or(ErrorKind::NotFound)?;
        let target = Address::Tcp(self.target);
        let (socket, _) = Socket::connect(target, &ConnectOptions::default())?;
        self.poller.add(&socket, index as u64)?;
        let (client, hello) = place.context.connect(&self.request)?;
        let response = Messages::default();
        let connection = Connection { socket, client, hello, response, is_answered: false, began };
        place.connection = Some(connection);
        Ok(())
    }

    fn close(&mut self, index: usize) {
        if let Some(place) = self.places.get_mut(index) {
            place.connection = None;
        }
    }

    /// Whether the connection is over, with its response counted.
    fn on_event(&mut self, index: usize, readiness: Readiness) -> io::Result<bool> {
        let place = self.places.get_mut(index).ok_or(ErrorKind::NotFound)?;
        let Some(connection) = &mut place.connection else { return Ok(false) };
        if readiness.is_writable() && !connection.hello.is_empty() {
            connection.socket.take_error()?;
            let hello = std::mem::take(&mut connection.hello);
            send(&connection.socket, &hello)?;
        }
        if !readiness.is_readable() || !connection.read(readiness.is_open(), &mut self.scratch)? {
            return Ok(false);
        }
        let is_resumed = connection.client.is_resumed() == Some(true);
        if is_resumed != place.may_resume {
            return Err(ErrorKind::InvalidData.into());
        }
        place.may_resume = self.is_resuming;
        self.resumed += u64::from(is_resumed);
        self.latencies.push(clock::monotonic_ns().saturating_sub(connection.began));
        Ok(true)
    }

    fn report(&mut self, elapsed: u64) -> io::Result<()> {
        let Self { latencies, resumed, errors, .. } = self;
        let requests = latencies.len();
        let (whole, rest) = (elapsed / SECOND, elapsed % SECOND);
        let [p50, p90, p99, max] = latencies.quantiles([500, 900, 990, 1000]);
        writeln!(
            io::stdout(),
            "{{\"requests\":{requests},\"seconds\":{whole}.{rest:09},\"resumed\":{resumed},\
             \"errors\":{errors},\"p50_ns\":{p50},\"p90_ns\":{p90},\"p99_ns\":{p99},\
             \"max_ns\":{max}}}"
        )
    }
}

impl Schedule {
    /// When the next connection is due.
    fn next(&self) -> u64 {
        let (seconds, rest) = (self.opened / self.rate, self.opened % self.rate);
        self.begin + seconds * SECOND + rest * SECOND / self.rate
    }
}

impl Connection {
    /// Whether the response has come, and behind it that nothing follows.
    fn read(&mut self, is_open: bool, scratch: &mut [u8]) -> io::Result<bool> {
        loop {
            let read = match self.socket.recv(scratch) {
                Ok(0) if self.is_answered => return Ok(true),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            let bytes = scratch.get(..read).unwrap_or_default();
            let mut out = Vec::new();
            let mut ended = Ok(0);
            self.client.feed(bytes, &mut out, |text| {
                let more = self.response.feed(text, is_success);
                ended = ended.and_then(|ended| Ok::<_, Malformed>(ended + more?));
            })?;
            self.is_answered |= ended.map_err(|_| ErrorKind::InvalidData)? > 0;
            if self.client.has_ended() {
                return if self.is_answered {
                    Ok(true)
                } else {
                    Err(ErrorKind::UnexpectedEof.into())
                };
            }
            if !out.is_empty() {
                send(&self.socket, &out)?;
            }
            if read < scratch.len() && is_open {
                return Ok(false);
            }
        }
    }
}

/// Sends a hello, or the end of a handshake with a request: a socket has room for either.
fn send(socket: &Socket, bytes: &[u8]) -> io::Result<()> {
    match socket.send_slice(bytes)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(ErrorKind::WriteZero.into()),
    }
}
