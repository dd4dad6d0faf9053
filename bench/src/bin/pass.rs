//! The floor of a handover: `pass --connections 9000` passes so many connected sockets from one process to another, and prints
//! how long that took.
//!
//! The one takes each out of its epoll and sends it (`SCM_RIGHTS`) in batches of 64, of which four are under way; the other,
//! which it has started (`--receive yes`, with one end of the pair as its input), puts each into its own epoll and acknowledges
//! the batch, upon which the first closes its own handles. Nothing else goes along.
//!
//! With `--wait yes` it prints `ready` once the sockets are connected, and begins when it has read a line.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use ::io::packets::{Packets, Received};
use ::io::{Poller, Socket};
use bench::arguments::Arguments;

const BATCH: usize = 64;
const UNDER_WAY_MAX: usize = 4;
/// Longer than any batch takes.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> io::Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1), &["connections", "receive", "wait"])?;
    ::io::limits::raise_open_files()?;
    let count = arguments.require::<usize>("connections")?;
    if arguments.find::<String>("receive")?.is_some() {
        let taker = Packets::from(io::stdin().as_fd().try_clone_to_owned()?);
        return receive(&taker, count);
    }
    // The clients stay: what a connection that has ended costs is something else.
    let (mut sockets, _clients) = connected(count)?;
    let from = Poller::new()?;
    for (token, socket) in (0..).zip(&sockets) {
        from.add(socket, token)?;
    }
    if arguments.find::<String>("wait")?.is_some() {
        writeln!(io::stdout(), "ready")?;
        io::stdin().read_line(&mut String::new())?;
    }
    let (giver, taker) = Packets::pair()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--connections", &count.to_string(), "--receive", "yes"]);
    let mut receiving = command.stdin(taker.as_fd().try_clone_to_owned()?).spawn()?;
    drop(taker);
    // It says that it is there.
    acknowledged(&giver)?;
    let began = now();
    let mut under_way = VecDeque::new();
    while !sockets.is_empty() {
        if under_way.len() == UNDER_WAY_MAX {
            acknowledged(&giver)?;
            under_way.pop_front();
        }
        let batch = sockets.split_off(sockets.len().saturating_sub(BATCH));
        batch.iter().try_for_each(|socket| from.remove(socket))?;
        let descriptors: Vec<_> = batch.iter().map(Socket::as_fd).collect();
        giver.send(b"batch", &descriptors, PATIENCE)?;
        under_way.push_back(batch);
    }
    while under_way.pop_front().is_some() {
        acknowledged(&giver)?;
    }
    let nanos = began.elapsed().as_nanos();
    if !receiving.wait()?.success() {
        return Err(io::Error::other("the taker has failed"));
    }
    writeln!(io::stdout(), "passed {count} in {nanos} ns")
}

/// Connections of this process with itself: both ends of each.
fn connected(count: usize) -> io::Result<(Vec<Socket>, Vec<TcpStream>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (mut sockets, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..count {
        clients.push(TcpStream::connect(address)?);
        let (socket, _) = listener.accept()?;
        socket.set_nonblocking(true)?;
        sockets.push(Socket::from(OwnedFd::from(socket)));
    }
    Ok((sockets, clients))
}

fn receive(taker: &Packets, count: usize) -> io::Result<()> {
    let (poller, mut sockets) = (Poller::new()?, Vec::with_capacity(count));
    let mut buffer = [0; 16];
    taker.send(b"here", &[], PATIENCE)?;
    while sockets.len() < count {
        let Ok(Received::Packet(_, descriptors)) = taker.receive(&mut buffer, PATIENCE) else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        for descriptor in descriptors {
            let socket = Socket::from(descriptor);
            poller.add(&socket, sockets.len() as u64)?;
            sockets.push(socket);
        }
        taker.send(b"taken", &[], PATIENCE)?;
    }
    Ok(())
}

fn acknowledged(giver: &Packets) -> io::Result<()> {
    match giver.receive(&mut [0; 16], PATIENCE) {
        Ok(Received::Packet(..)) => Ok(()),
        _ => Err(ErrorKind::TimedOut.into()),
    }
}

#[expect(clippy::disallowed_methods, reason = "it is what is measured")]
fn now() -> Instant {
    Instant::now()
}
