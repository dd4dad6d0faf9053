//! Many keep-alive connections that do nothing after one request each:
//! `idle --target 127.0.0.1:8080 --connections 10000`.
//!
//! Prints `open N` once every connection has had its answer, waits for the end of its input, and
//! then prints `closed N`: how many were closed by the peer meanwhile.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use ::io::{Address, ConnectOptions, Events, Poller, Socket};
use bench::arguments::Arguments;
use bench::messages::Messages;
use bench::requests::{is_success, request};

/// Connections that wait for their answer at a time: few, so that the proxy needs few upstream
/// connections and its queue of new ones does not overflow.
const AT_A_TIME: usize = 32;
const SCRATCH_BYTES: usize = 64 << 10;
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> io::Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1), &["target", "connections"])?;
    ::io::limits::raise_open_files()?;
    let target = Address::Tcp(arguments.require::<SocketAddr>("target")?);
    let count = arguments.require::<usize>("connections")?;
    let mut sockets = Vec::with_capacity(count);
    while sockets.len() < count {
        let batch = AT_A_TIME.min(count - sockets.len());
        sockets.extend(answered(target, batch)?);
    }
    let mut stdout = io::stdout();
    writeln!(stdout, "open {}", sockets.len())?;
    stdout.flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    writeln!(stdout, "closed {}", sockets.iter().filter(|socket| is_closed(socket)).count())
}

/// Opens `count` connections, sends a request on each, and waits for all answers.
fn answered(target: Address<'_>, count: usize) -> io::Result<Vec<Socket>> {
    let poller = Poller::new()?;
    let request = request(false);
    let mut sockets = Vec::with_capacity(count);
    for token in 0..count {
        let (socket, _) = Socket::connect(target, &ConnectOptions::default())?;
        poller.add(&socket, token as u64)?;
        sockets.push(socket);
    }
    let mut responses: Vec<Messages> = (0..count).map(|_| Messages::default()).collect();
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
            let state = (sockets.get(index), responses.get_mut(index), is_asked.get_mut(index));
            let (Some(socket), Some(messages), Some(is_asked)) = state else { continue };
            if event.readiness.is_writable() && !*is_asked {
                socket.take_error()?;
                socket.send_slice(&request)?;
                *is_asked = true;
            }
            match socket.recv(&mut scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    let bytes = scratch.get(..read).unwrap_or_default();
                    answers += messages.feed(bytes, is_success).map_err(|_| {
                        io::Error::new(ErrorKind::InvalidData, "not the expected response")
                    })?;
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
