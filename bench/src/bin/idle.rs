//! Many connections that do nothing: `idle --target 127.0.0.1:8080 --connections 10000`, the same
//! with `--tls yes`, or `idle --target 127.0.0.1:8080 --connections 100 --streams 100`.
//!
//! In the first two forms, each has made one request of HTTP/1.1. In the third, each speaks HTTP/2
//! and has so many open streams, whose requests the service behind the proxy must not answer.
//!
//! Prints `open N` once every connection has had its answer (of a PING behind all requests, in the
//! third form), waits for the end of its input, and then prints `closed N`: how many were closed
//! by the peer meanwhile, or had anything said to them.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use ::io::{Address, ConnectOptions, Events, Poller, Socket};
use bench::arguments::Arguments;
use bench::frames::{ACK, END_HEADERS, END_STREAM, Frame, Frames, PREFACE, kind};
use bench::messages::{Malformed, Messages};
use bench::requests::{is_success, request};
use bench::tls::{Client, Context, Version};

/// Connections that wait for their answer at a time: few, so that the proxy needs few upstream
/// connections and its queue of new ones does not overflow.
const AT_A_TIME: usize = 32;
/// The same for connections with streams, whose requests wait for upstream connections.
const WITH_STREAMS_AT_A_TIME: usize = 2;
const SCRATCH_BYTES: usize = 64 << 10;
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> io::Result<()> {
    let names = ["target", "connections", "streams", "tls"];
    let arguments = Arguments::read(std::env::args().skip(1), &names)?;
    ::io::limits::raise_open_files()?;
    let target = Address::Tcp(arguments.require::<SocketAddr>("target")?);
    let count = arguments.require::<usize>("connections")?;
    let streams = arguments.find::<u32>("streams")?;
    let has_tls = arguments.find::<String>("tls")?.is_some_and(|value| value == "yes");
    let context = has_tls.then(|| Context::new(Version::Tls13, false)).transpose()?;
    let at_a_time = if streams.is_some() { WITH_STREAMS_AT_A_TIME } else { AT_A_TIME };
    let mut sockets = Vec::with_capacity(count);
    while sockets.len() < count {
        let batch = at_a_time.min(count - sockets.len());
        let asked = || Asked::new(streams, context.as_ref());
        sockets.extend(answered(target, (0..batch).map(|_| asked()).collect::<Result<_, _>>()?)?);
    }
    let mut stdout = io::stdout();
    writeln!(stdout, "open {}", sockets.len())?;
    stdout.flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    writeln!(stdout, "closed {}", sockets.iter().filter(|socket| is_closed(socket)).count())
}

/// The bytes to send on a connection, and the answer to wait for.
struct Asked {
    opening: Vec<u8>,
    expected: Expected,
}

impl Asked {
    fn new(streams: Option<u32>, context: Option<&Context>) -> io::Result<Self> {
        let (opening, expected) = match (streams, context) {
            (Some(streams), _) => (streams_opened(streams), Expected::Pong(Frames::default())),
            (None, None) => (request(false), Expected::Response(Messages::default())),
            (None, Some(context)) => {
                let (client, hello) = context.connect(&request(false))?;
                (hello, Expected::Secret(Box::new(client), Messages::default()))
            }
        };
        Ok(Self { opening, expected })
    }
}

/// What a connection waits for.
enum Expected {
    /// The response to a request of HTTP/1.1.
    Response(Messages),
    /// The same within TLS.
    Secret(Box<Client>, Messages),
    /// The answer to a PING of HTTP/2.
    Pong(Frames),
}

impl Expected {
    /// Takes the next `bytes` and appends what they have to be answered with to `out`. Returns
    /// whether what was waited for has come.
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, Malformed> {
        let frames = match self {
            Self::Response(messages) => return Ok(messages.feed(bytes, is_success)? > 0),
            Self::Secret(client, messages) => return feed_secret(client, messages, bytes, out),
            Self::Pong(frames) => frames,
        };
        let mut has_come = false;
        frames.feed(bytes, |frame| {
            match frame.kind {
                kind::SETTINGS if !frame.has(ACK) => {
                    Frame { kind: kind::SETTINGS, flags: ACK, stream: 0, payload: b"" }.push(out);
                }
                kind::PING if frame.has(ACK) => has_come = true,
                kind::SETTINGS | kind::WINDOW_UPDATE => {}
                _ => return Err(Malformed),
            }
            Ok(())
        })?;
        Ok(has_come)
    }
}

/// As [`Expected::feed`], of a response within TLS.
fn feed_secret(
    client: &mut Client,
    messages: &mut Messages,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    let mut ended = Ok(0);
    let outcome = client.feed(bytes, out, |text| {
        let more = messages.feed(text, is_success);
        ended = ended.and_then(|ended| Ok(ended + more?));
    });
    outcome.map_err(|_| Malformed)?;
    Ok(ended? > 0)
}

/// A connection of HTTP/2 from its first byte on: so many requests, and a PING behind them.
fn streams_opened(streams: u32) -> Vec<u8> {
    // GET, http, and two literal fields that enter no table (RFC 7541, appendix A).
    let block = b"\x82\x86\x04\x06/bench\x01\x0abench.test";
    let mut bytes = PREFACE.to_vec();
    Frame { kind: kind::SETTINGS, flags: 0, stream: 0, payload: b"" }.push(&mut bytes);
    for n in 0..streams {
        let flags = END_HEADERS | END_STREAM;
        Frame { kind: kind::HEADERS, flags, stream: 2 * n + 1, payload: block }.push(&mut bytes);
    }
    Frame { kind: kind::PING, flags: 0, stream: 0, payload: b"are open" }.push(&mut bytes);
    bytes
}

/// Opens a connection for each of `asked`, says what it has to, and waits for all answers.
fn answered(target: Address<'_>, mut asked: Vec<Asked>) -> io::Result<Vec<Socket>> {
    let poller = Poller::new()?;
    let count = asked.len();
    let mut sockets = Vec::with_capacity(count);
    for token in 0..count {
        let (socket, _) = Socket::connect(target, &ConnectOptions::default())?;
        poller.add(&socket, token as u64)?;
        sockets.push(socket);
    }
    let mut is_asked = vec![false; count];
    let mut answers = 0;
    let mut events = Events::new();
    let mut scratch = vec![0; SCRATCH_BYTES];
    while answers < count {
        poller.wait(Some(PATIENCE), &mut events)?;
        if events.is_empty() {
            return Err(ErrorKind::TimedOut.into());
        }
        for event in events.iter() {
            let index = usize::try_from(event.token).map_err(io::Error::other)?;
            let state = (sockets.get(index), asked.get_mut(index), is_asked.get_mut(index));
            let (Some(socket), Some(asked), Some(is_asked)) = state else { continue };
            if event.readiness.is_writable() && !*is_asked {
                socket.take_error()?;
                socket.send_slice(&asked.opening)?;
                *is_asked = true;
            }
            match socket.recv(&mut scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    let bytes = scratch.get(..read).unwrap_or_default();
                    let mut out = Vec::new();
                    let has_come = asked.expected.feed(bytes, &mut out).map_err(|_| {
                        io::Error::new(ErrorKind::InvalidData, "not the expected answer")
                    })?;
                    answers += usize::from(has_come);
                    if !out.is_empty() {
                        socket.send_slice(&out)?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(sockets)
}

/// Whether an idle connection has anything to say, which can only be its end.
fn is_closed(socket: &Socket) -> bool {
    !matches!(socket.recv(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}
