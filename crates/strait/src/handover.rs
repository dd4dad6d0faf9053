//! The admin addresses of a process that drains, for its successor.
//!
//! A process that drains keeps its admin interface, so that one can see what it waits for; with
//! `POST /release` its successor asks for the addresses.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use config::snapshot::Address;
use control::AdminSocket;

/// How long the other process may take to connect, to read and to answer, each.
const PATIENCE: Duration = Duration::from_secs(1);

const REQUEST: &[u8] =
    b"POST /release HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// The beginning of the answer by which a process releases its addresses.
const RELEASED: &[u8] = b"HTTP/1.1 200 ";

/// Binds an address of the admin interface, from a process that drains if it is taken.
///
/// # Errors
///
/// It is taken by another process, or what the kernel refused.
pub(crate) fn bind(address: &Address) -> io::Result<AdminSocket> {
    match AdminSocket::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_released(address) => {
            tracing::info!("a process that drains let the admin address go");
            AdminSocket::bind(address)
        }
        result => result,
    }
}

fn is_released(address: &Address) -> bool {
    match address {
        Address::Tcp(address) => TcpStream::connect_timeout(address, PATIENCE).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            ask(stream)
        }),
        Address::Unix(path) => UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            ask(stream)
        }),
    }
    .unwrap_or(false)
}

fn ask(mut stream: impl Read + Write) -> io::Result<bool> {
    stream.write_all(REQUEST)?;
    let mut answer = [0; RELEASED.len()];
    stream.read_exact(&mut answer)?;
    Ok(answer == RELEASED)
}
