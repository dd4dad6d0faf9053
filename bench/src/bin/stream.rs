//! Many bytes on one connection, and how fast they come.
//!
//! ```text
//! stream --listen 127.0.0.1:0
//! stream --target 127.0.0.1:8080 --mib 1024 --seconds 4
//! ```
//!
//! The first form is the service: it reads a number of MiB from each connection and sends as many.
//! The second asks for them on one connection after another until the seconds are over; a stream
//! that began is read to its end. Each block of 64 KiB begins with its number, so that bytes that
//! are missing, doubled or out of order are noticed without reading them all.
//!
//! The result is one line of JSON, in which a request is 1 MiB.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use ::io::clock;
use bench::arguments::Arguments;

const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS_PER_MIB: u64 = 16;
const SECOND: u64 = 1_000_000_000;

fn main() -> io::Result<()> {
    let names = ["listen", "target", "mib", "seconds"];
    let arguments = Arguments::read(std::env::args().skip(1), &names)?;
    match arguments.find::<SocketAddr>("listen")? {
        Some(listen) => serve(&TcpListener::bind(listen)?),
        None => ask(
            arguments.require("target")?,
            arguments.require("mib")?,
            arguments.require::<u64>("seconds")?,
        ),
    }
}

fn serve(listener: &TcpListener) -> io::Result<()> {
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    loop {
        let (connection, _) = listener.accept()?;
        // Whoever hangs up early is told of by the asking side.
        thread::spawn(move || _ = send(connection));
    }
}

/// Sends as many MiB as are asked for.
fn send(mut connection: TcpStream) -> io::Result<()> {
    let mut mib = [0; 8];
    connection.read_exact(&mut mib)?;
    let mut block = vec![b'a'; BLOCK_BYTES];
    for number in 0..u64::from_be_bytes(mib).saturating_mul(BLOCKS_PER_MIB) {
        if let Some(mark) = block.first_chunk_mut() {
            *mark = number.to_be_bytes();
        }
        connection.write_all(&block)?;
    }
    connection.shutdown(Shutdown::Write)
}

fn ask(target: SocketAddr, mib: u64, seconds: u64) -> io::Result<()> {
    let begin = clock::monotonic_ns();
    let (mut received, mut errors) = (0, 0);
    let mut elapsed = 0;
    while elapsed < seconds.saturating_mul(SECOND) {
        match receive(target, mib) {
            Ok(()) => received += mib,
            Err(_) => errors += 1,
        }
        elapsed = clock::monotonic_ns().saturating_sub(begin);
    }
    let (whole, rest) = (elapsed / SECOND, elapsed % SECOND);
    writeln!(
        io::stdout(),
        "{{\"requests\":{received},\"seconds\":{whole}.{rest:09},\"errors\":{errors}}}"
    )
}

/// Reads one stream of `mib` and its end.
fn receive(target: SocketAddr, mib: u64) -> io::Result<()> {
    let mut connection = TcpStream::connect(target)?;
    connection.write_all(&mib.to_be_bytes())?;
    let mut block = vec![0; BLOCK_BYTES];
    for number in 0..mib.saturating_mul(BLOCKS_PER_MIB) {
        connection.read_exact(&mut block)?;
        if block.first_chunk() != Some(&number.to_be_bytes()) {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    match connection.read(&mut block)? {
        0 => Ok(()),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}
