//! Binding, sharing, probing, accepting.

use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io, process};

use ::io::{Address, BindError, ConnectOptions, Keepalive, ListenOptions, Listener, Socket};

use crate::pair::{LOOPBACK, accept, failure, listen, read_exactly};

/// A path for one test, in a directory that goes with it.
struct Place {
    directory: PathBuf,
    path: PathBuf,
}

impl Place {
    fn new(name: &str) -> io::Result<Self> {
        let directory = std::env::temp_dir().join(format!("io-{}-{name}", process::id()));
        fs::create_dir(&directory)?;
        let path = directory.join("socket");
        Ok(Self { directory, path })
    }

    fn address(&self) -> Address<'_> {
        Address::Unix(&self.path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Leaves a stale socket file, as a killed process does.
fn leave_stale_socket(place: &Place) -> io::Result<()> {
    drop(std::os::unix::net::UnixListener::bind(&place.path)?);
    if place.path.exists() { Ok(()) } else { Err(failure("the file went with its socket")) }
}

#[test]
fn accepted_sockets_inherit_nodelay_and_keepalive_from_the_listener() {
    let keepalive =
        Keepalive { idle: Duration::from_secs(33), interval: Duration::from_secs(7), probes: 4 };
    let options = ListenOptions { keepalive: Some(keepalive), ..ListenOptions::default() };
    let listener = Listener::bind(LOOPBACK, &options).unwrap();
    let address = Address::Tcp(listener.local_address().unwrap().unwrap());
    let (near, _) = Socket::connect(address, &ConnectOptions::default()).unwrap();
    let (far, peer) = accept(&listener).unwrap();
    assert!(far.is_nodelay().unwrap());
    assert_eq!(far.keepalive().unwrap(), Some(keepalive));
    assert_eq!(peer, near.local_address().unwrap());
    let blocking = far.recv(&mut [0; 1]).unwrap_err();
    assert_eq!(blocking.kind(), io::ErrorKind::WouldBlock, "accepted non-blocking");
}

#[test]
fn workers_share_an_address_and_each_connection_goes_to_one_of_them() {
    let (first, address) = listen().unwrap();
    let second = Listener::bind(address, &ListenOptions::default()).unwrap();
    let mut sockets = Vec::new();
    for _ in 0..64 {
        sockets.push(Socket::connect(address, &ConnectOptions::default()).unwrap());
    }
    // Loopback has queued a connection by the time that connect returns.
    let drain = |listener: &Listener| std::iter::from_fn(|| listener.accept().unwrap()).count();
    let (mine, theirs) = (drain(&first), drain(&second));
    assert_eq!(mine + theirs, sockets.len());
    assert!(mine > 0 && theirs > 0, "{mine} and {theirs}");
}

#[test]
fn a_probe_finds_a_listener_in_spite_of_a_shared_port() {
    let (listener, address) = listen().unwrap();
    assert!(matches!(Listener::probe(address), Err(BindError::InUse)));
    Listener::bind(address, &ListenOptions::default()).expect("sharing works all the same");
    drop(listener);
    Listener::probe(address).unwrap();
}

#[test]
fn a_probe_is_not_misled_by_connections_of_a_former_listener() {
    let (listener, address) = listen().unwrap();
    let (near, _) = Socket::connect(address, &ConnectOptions::default()).unwrap();
    let (far, _) = accept(&listener).unwrap();
    drop(listener);
    Listener::probe(address).expect("an established connection does not hold the port");
    // Closed from the listener's side first, so that TIME_WAIT is on its port.
    drop(far);
    assert_eq!(read_exactly(&near, 1).unwrap(), b"");
    drop(near);
    Listener::probe(address).expect("TIME_WAIT does not hold the port");
    Listener::bind(address, &ListenOptions::default()).unwrap();
}

#[test]
fn an_address_that_is_not_ours_is_the_systems_error() {
    let elsewhere: SocketAddr = "192.0.2.1:80".parse().unwrap();
    let error = Listener::bind(Address::Tcp(elsewhere), &ListenOptions::default()).unwrap_err();
    let BindError::System { step: "bind", source } = error else { panic!("{error}") };
    assert_eq!(source.kind(), io::ErrorKind::AddrNotAvailable);
}

#[test]
fn ipv6_and_ipv4_wildcards_of_one_port_are_two_addresses() {
    let six = Address::Tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)));
    let alone = ListenOptions { reuse_port: false, ..ListenOptions::default() };
    // Another program may have the port over IPv4: then the next one is tried, while those before are
    // kept, so that the kernel chooses others.
    let mut kept = Vec::new();
    let found = (0..50).any(|_| {
        let Ok(six) = Listener::bind(six, &ListenOptions::default()) else {
            return true; // A machine without IPv6 has only one family.
        };
        let port = six.local_address().unwrap().unwrap().port();
        kept.push(six);
        let four = Address::Tcp(SocketAddr::from(([0, 0, 0, 0], port)));
        match Listener::bind(four, &alone) {
            Ok(_) => true,
            Err(BindError::InUse) => false,
            Err(error) => panic!("{error}"),
        }
    });
    assert!(found, "no port of {} was free over IPv4, too", kept.len());
}

#[test]
fn unix_sockets_carry_bytes_and_have_no_ip_addresses() {
    let place = Place::new("bytes").unwrap();
    let listener = Listener::bind(place.address(), &ListenOptions::default()).unwrap();
    let (near, _) = Socket::connect(place.address(), &ConnectOptions::default()).unwrap();
    let (far, peer) = accept(&listener).unwrap();
    assert_eq!(peer, None);
    assert_eq!(far.local_address().unwrap(), None);
    near.send_slice(b"over a file").unwrap();
    assert_eq!(read_exactly(&far, 11).unwrap(), b"over a file");
}

#[test]
fn a_unix_socket_is_for_owner_and_group_and_its_file_goes_with_the_last_listener() {
    let place = Place::new("file").unwrap();
    let listener = Listener::bind(place.address(), &ListenOptions::default()).unwrap();
    assert_eq!(fs::metadata(&place.path).unwrap().permissions().mode() & 0o777, 0o660);
    let shared = listener.try_clone().unwrap();
    drop(listener);
    let (_near, _) = Socket::connect(place.address(), &ConnectOptions::default()).unwrap();
    accept(&shared).unwrap();
    drop(shared);
    assert!(!place.path.exists());
}

#[test]
fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() {
    let place = Place::new("stale").unwrap();
    leave_stale_socket(&place).unwrap();
    Listener::probe(place.address()).unwrap();
    assert!(place.path.exists(), "a probe changes nothing");
    let listener = Listener::bind(place.address(), &ListenOptions::default()).unwrap();
    assert!(matches!(Listener::probe(place.address()), Err(BindError::InUse)));
    let again = Listener::bind(place.address(), &ListenOptions::default());
    assert!(matches!(again, Err(BindError::InUse)));
    drop(listener);
}

#[test]
fn a_live_unix_socket_with_a_full_queue_is_still_in_use() {
    let place = Place::new("full").unwrap();
    let options = ListenOptions { backlog: 0, ..ListenOptions::default() };
    let _listener = Listener::bind(place.address(), &options).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match Socket::connect(place.address(), &ConnectOptions::default()) {
            Ok(connection) => waiting.push(connection),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(matches!(Listener::probe(place.address()), Err(BindError::InUse)));
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let place = Place::new("other").unwrap();
    fs::write(&place.path, "precious").unwrap();
    let error = Listener::bind(place.address(), &ListenOptions::default()).unwrap_err();
    assert!(matches!(error, BindError::NotASocket));
    assert_eq!(fs::read(&place.path).unwrap(), b"precious");
}

#[test]
fn a_successors_socket_file_survives_its_predecessor() {
    let place = Place::new("successor").unwrap();
    let old = Listener::bind(place.address(), &ListenOptions::default()).unwrap();
    fs::remove_file(&place.path).unwrap();
    let _new = Listener::bind(place.address(), &ListenOptions::default()).unwrap();
    drop(old);
    Socket::connect(place.address(), &ConnectOptions::default()).unwrap();
}

#[test]
fn a_path_that_is_too_long_is_an_error_and_not_cut() {
    let path = PathBuf::from("/tmp").join("x".repeat(120));
    let error = Listener::bind(Address::Unix(&path), &ListenOptions::default()).unwrap_err();
    assert!(matches!(error, BindError::System { step: "address", .. }), "{error}");
    assert!(Socket::connect(Address::Unix(&path), &ConnectOptions::default()).is_err());
}
