//! Many bytes on one connection, and how fast they come.
//!
//! ```text
//! stream --listen 127.0.0.1:0
//! stream --target 127.0.0.1:8080 --mib 1024 --seconds 4
//! stream --listen 127.0.0.1:0 --http yes
//! stream --target 127.0.0.1:8443 --mib 1024 --seconds 4 --tls yes
//! ```
//!
//! The first form is the service: it reads a number of MiB from each connection and sends as many.
//! The second asks for them on one connection after another until the seconds are over; a stream
//! that began is read to its end. In the third and fourth the stream is the response to a request
//! of HTTP/1.1 for `/N`, within TLS 1.3 where it is asked for. Each block of 64 KiB begins with its number, so that bytes that
//! are missing, doubled or out of order are noticed without reading them all.
//!
//! The result is one line of JSON, in which a request is 1 MiB.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use ::io::clock;
use bench::arguments::Arguments;
use bench::requests::is_success;
use bench::tls::{Context, Version};
use memchr::memmem;

const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS_PER_MIB: u64 = 16;
/// Taken from the kernel at a time where TLS lies between: some records.
const SCRATCH_BYTES: usize = 256 << 10;
/// Longest head that is waited for.
const HEAD_BYTES_MAX: usize = 16 << 10;
const SECOND: u64 = 1_000_000_000;

fn main() -> io::Result<()> {
    let names = ["listen", "target", "mib", "seconds", "http", "tls"];
    let arguments = Arguments::read(std::env::args().skip(1), &names)?;
    let is_yes = |name| -> io::Result<bool> {
        Ok(arguments.find::<String>(name)?.is_some_and(|value| value == "yes"))
    };
    if let Some(listen) = arguments.find::<SocketAddr>("listen")? {
        return serve(&TcpListener::bind(listen)?, is_yes("http")?);
    }
    let (target, mib) = (arguments.require::<SocketAddr>("target")?, arguments.require("mib")?);
    let seconds = arguments.require::<u64>("seconds")?;
    if is_yes("tls")? {
        let context = Context::new(Version::Tls13, false)?;
        ask(mib, seconds, || receive_secret(target, mib, &context))
    } else {
        ask(mib, seconds, || receive(target, mib))
    }
}

fn serve(listener: &TcpListener, is_http: bool) -> io::Result<()> {
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    loop {
        let (connection, _) = listener.accept()?;
        // The asking side reports a connection that ends early.
        thread::spawn(move || _ = send(connection, is_http));
    }
}

/// Sends as many MiB as are asked for.
fn send(mut connection: TcpStream, is_http: bool) -> io::Result<()> {
    let mib = if is_http {
        let mib = requested(&mut connection)?;
        let length = mib.saturating_mul(1 << 20);
        write!(
            connection,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        )?;
        mib
    } else {
        let mut mib = [0; 8];
        connection.read_exact(&mut mib)?;
        u64::from_be_bytes(mib)
    };
    let mut block = vec![b'a'; BLOCK_BYTES];
    for number in 0..mib.saturating_mul(BLOCKS_PER_MIB) {
        if let Some(mark) = block.first_chunk_mut() {
            *mark = number.to_be_bytes();
        }
        connection.write_all(&block)?;
    }
    connection.shutdown(Shutdown::Write)
}

/// How many MiB are asked for in a request of HTTP/1.1, which is read to its end.
fn requested(connection: &mut TcpStream) -> io::Result<u64> {
    let mut head = Vec::new();
    let mut scratch = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        let read = connection.read(&mut scratch)?;
        head.extend_from_slice(scratch.get(..read).unwrap_or_default());
        if read == 0 || head.len() > HEAD_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    let head = String::from_utf8(head).map_err(io::Error::other)?;
    let path = head.strip_prefix("GET /").and_then(|rest| rest.split(' ').next());
    path.and_then(|mib| mib.parse().ok()).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Receives streams until the seconds are over.
fn ask(mib: u64, seconds: u64, receive: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let begin = clock::monotonic_ns();
    let (mut received, mut errors) = (0, 0);
    let mut elapsed = 0;
    while elapsed < seconds.saturating_mul(SECOND) {
        match receive() {
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

/// The same of a response within TLS.
fn receive_secret(target: SocketAddr, mib: u64, context: &Context) -> io::Result<()> {
    let request = format!("GET /{mib} HTTP/1.1\r\nHost: bench.test\r\nConnection: close\r\n\r\n");
    let (mut client, mut out) = context.connect(request.as_bytes())?;
    let mut connection = TcpStream::connect(target)?;
    let mut scratch = vec![0; SCRATCH_BYTES];
    let mut stream = Stream { head: Some(Vec::new()), block: Vec::new(), number: 0 };
    while stream.number < mib.saturating_mul(BLOCKS_PER_MIB) {
        if !out.is_empty() {
            connection.write_all(&out)?;
            out.clear();
        }
        let read = connection.read(&mut scratch)?;
        let mut outcome = Ok(());
        client.feed(scratch.get(..read).unwrap_or_default(), &mut out, |text| {
            if outcome.is_ok() {
                outcome = stream.feed(text);
            }
        })?;
        outcome?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    if stream.block.is_empty() { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
}

/// A stream behind the head of its response, cut anywhere.
struct Stream {
    /// The head, as far as it has come, until it is whole.
    head: Option<Vec<u8>>,
    /// The block that is not whole yet.
    block: Vec<u8>,
    /// Which one that is.
    number: u64,
}

impl Stream {
    fn feed(&mut self, mut text: &[u8]) -> io::Result<()> {
        if let Some(head) = &mut self.head {
            let before = head.len();
            head.extend_from_slice(text);
            let Some(end) = memmem::find(head, b"\r\n\r\n").map(|at| at + 4) else {
                let is_short = head.len() <= HEAD_BYTES_MAX;
                return if is_short { Ok(()) } else { Err(ErrorKind::InvalidData.into()) };
            };
            if !is_success(head) {
                return Err(ErrorKind::InvalidData.into());
            }
            text = text.get(end.saturating_sub(before)..).unwrap_or_default();
            self.head = None;
        }
        while !text.is_empty() {
            let missing = BLOCK_BYTES.saturating_sub(self.block.len()).min(text.len());
            let (part, rest) = text.split_at(missing);
            self.block.extend_from_slice(part);
            text = rest;
            if self.block.len() == BLOCK_BYTES {
                if self.block.first_chunk() != Some(&self.number.to_be_bytes()) {
                    return Err(ErrorKind::InvalidData.into());
                }
                self.block.clear();
                self.number += 1;
            }
        }
        Ok(())
    }
}
