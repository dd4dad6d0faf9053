//! Connected pairs and the waits that tests need.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ::io::{
    Address, ConnectOptions, Event, Events, ListenOptions, Listener, Poller, Readiness, Socket,
};
use io::ErrorKind;

/// Longer than any kernel needs; reached only when a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// An address of the loopback network that these tests have to themselves: a port that one of them has
/// left is not another program's the next moment.
pub(crate) const LOOPBACK: Address<'static> =
    Address::Tcp(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 83, 84, 1)), 0));

pub(crate) fn failure(text: &str) -> io::Error {
    io::Error::other(text.to_owned())
}

pub(crate) fn listen() -> io::Result<(Listener, Address<'static>)> {
    let listener = Listener::bind(LOOPBACK, &ListenOptions::default()).map_err(io::Error::other)?;
    let address = listener.local_address()?.ok_or_else(|| failure("not TCP"))?;
    Ok((listener, Address::Tcp(address)))
}

/// Waits for the first batch of events.
pub(crate) fn wait(poller: &Poller) -> io::Result<Vec<Event>> {
    let mut events = Events::new();
    poller.wait(Some(PATIENCE), &mut events)?;
    if events.is_empty() { Err(failure("nothing happened")) } else { Ok(events.iter().collect()) }
}

/// The events that are ready now, without waiting.
pub(crate) fn ready(poller: &Poller) -> io::Result<Vec<Event>> {
    let mut events = Events::new();
    poller.wait(Some(Duration::ZERO), &mut events)?;
    Ok(events.iter().collect())
}

/// Waits until an event satisfies `wanted`, for a poller that watches one socket.
pub(crate) fn wait_until(
    poller: &Poller,
    wanted: impl Fn(Readiness) -> bool,
) -> io::Result<Readiness> {
    loop {
        for event in wait(poller)? {
            if wanted(event.readiness) {
                return Ok(event.readiness);
            }
        }
    }
}

/// Takes the next connection, waiting for it if need be.
pub(crate) fn accept(listener: &Listener) -> io::Result<(Socket, Option<SocketAddr>)> {
    let poller = Poller::new()?;
    poller.add_listener(listener, 0)?;
    loop {
        if let Some(accepted) = listener.accept().map_err(io::Error::other)? {
            return Ok(accepted);
        }
        wait(&poller)?;
    }
}

/// Two ends of a TCP connection: the one that connected, the one that was accepted.
pub(crate) fn tcp_pair() -> io::Result<(Socket, Socket)> {
    let (listener, address) = listen()?;
    let (near, _) = Socket::connect(address, &ConnectOptions::default())?;
    let (far, _) = accept(&listener)?;
    let poller = Poller::new()?;
    poller.add(&near, 0)?;
    wait_until(&poller, Readiness::is_writable)?;
    near.take_error()?;
    Ok((near, far))
}

/// Reads until `length` bytes came or the end, waiting for them.
pub(crate) fn read_exactly(socket: &Socket, length: usize) -> io::Result<Vec<u8>> {
    let poller = Poller::new()?;
    poller.add(socket, 0)?;
    let mut bytes = Vec::new();
    let mut scratch = [0; 65536];
    while bytes.len() < length {
        match socket.recv(&mut scratch) {
            Ok(0) => break,
            Ok(read) => bytes.extend(scratch.iter().take(read)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(&poller)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}
