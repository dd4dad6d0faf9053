//! Connecting, sending, receiving, closing.

use std::io::{ErrorKind, IoSlice};
use std::time::Duration;

use ::io::{Address, ConnectOptions, ConnectState, Keepalive, ListenOptions, Listener, Poller};
use ::io::{Readiness, Socket};

use crate::pair::{LOOPBACK, accept, listen, read_exactly, tcp_pair, wait_until};

#[test]
fn slices_arrive_in_order_as_one_stream() {
    let (near, far) = tcp_pair().unwrap();
    let slices = [IoSlice::new(b"head "), IoSlice::new(b""), IoSlice::new(b"body")];
    assert_eq!(near.send(&slices).unwrap(), 9);
    assert_eq!(near.send(&[IoSlice::new(b" more")]).unwrap(), 5);
    assert_eq!(near.send_slice(b" still").unwrap(), 6);
    assert_eq!(read_exactly(&far, 20).unwrap(), b"head body more still");
}

#[test]
fn nothing_to_read_would_block_and_the_peers_end_reads_as_zero() {
    let (near, far) = tcp_pair().unwrap();
    assert_eq!(far.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    near.shutdown_write().unwrap();
    assert_eq!(read_exactly(&far, 1).unwrap(), b"");
}

#[test]
fn a_full_peer_takes_part_of_a_send_then_would_block_and_writable_again_has_an_edge() {
    let (near, far) = tcp_pair().unwrap();
    let block = vec![7; 1 << 24];
    let mut sent = near.send_slice(&block).unwrap();
    assert!(sent < block.len(), "loopback took {sent} bytes at once");
    loop {
        match near.send_slice(&block) {
            Ok(more) => sent += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    let poller = Poller::new().unwrap();
    poller.add(&near, 0).unwrap();
    assert_eq!(read_exactly(&far, sent).unwrap().len(), sent);
    wait_until(&poller, Readiness::is_writable).unwrap();
    assert!(near.send_slice(b"x").is_ok());
}

#[test]
fn what_the_peers_kernel_has_not_taken_is_counted() {
    let (near, far) = tcp_pair().unwrap();
    assert_eq!(near.unacknowledged().unwrap(), 0);
    let block = vec![7; 1 << 24];
    let mut sent = 0;
    while let Ok(more) = near.send_slice(&block) {
        sent += more;
    }
    let left = near.unacknowledged().unwrap();
    assert!(left > 0 && left < sent, "{left} of {sent}: the rest is in the peer's buffer");
    read_exactly(&far, sent).unwrap();
    // What the peer says now acknowledges all that it has received.
    far.send_slice(b"x").unwrap();
    read_exactly(&near, 1).unwrap();
    assert_eq!(near.unacknowledged().unwrap(), 0);
}

#[test]
fn a_send_after_the_peer_reset_fails_without_a_signal() {
    let (near, far) = tcp_pair().unwrap();
    far.reset();
    let poller = Poller::new().unwrap();
    poller.add(&near, 0).unwrap();
    wait_until(&poller, Readiness::is_closed).unwrap();
    assert_eq!(near.take_error().unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(near.send_slice(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let slices = [IoSlice::new(b"x"), IoSlice::new(b"y")];
    assert_eq!(near.send(&slices).unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn a_refused_connection_shows_as_closed_and_in_take_error() {
    let (listener, address) = listen().unwrap();
    drop(listener);
    // Loopback may refuse at once or a moment later.
    match Socket::connect(address, &ConnectOptions::default()) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        Ok((socket, state)) => {
            assert_eq!(state, ConnectState::Connecting);
            let poller = Poller::new().unwrap();
            poller.add(&socket, 0).unwrap();
            assert!(wait_until(&poller, Readiness::is_closed).unwrap().is_writable());
            let error = socket.take_error().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            socket.take_error().expect("taken before");
        }
    }
}

#[test]
fn connect_options_reach_the_kernel_and_keepalive_is_rounded_up_to_seconds() {
    let (_listener, address) = listen().unwrap();
    let keepalive =
        Keepalive { idle: Duration::from_millis(1500), interval: Duration::ZERO, probes: u32::MAX };
    let options = ConnectOptions { keepalive: Some(keepalive), ..ConnectOptions::default() };
    let (socket, _) = Socket::connect(address, &options).unwrap();
    assert!(socket.is_nodelay().unwrap());
    let kept = socket.keepalive().unwrap().unwrap();
    assert_eq!(kept.idle, Duration::from_secs(2));
    assert_eq!(kept.interval, Duration::from_secs(1));
    assert_eq!(kept.probes, 127);
    let (plain, _) = Socket::connect(address, &ConnectOptions::default()).unwrap();
    assert_eq!(plain.keepalive().unwrap(), None);
}

#[test]
fn fast_open_on_both_sides_carries_bytes_with_or_without_a_cookie() {
    let options = ListenOptions { fast_open: Some(16), ..ListenOptions::default() };
    let listener = Listener::bind(LOOPBACK, &options).unwrap();
    let address = Address::Tcp(listener.local_address().unwrap().unwrap());
    let options = ConnectOptions { fast_open: true, ..ConnectOptions::default() };
    // The first connection fetches a cookie where the machine's settings hand them out.
    for _ in 0..2 {
        let (near, _) = Socket::connect(address, &options).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&near, 0).unwrap();
        wait_until(&poller, Readiness::is_writable).unwrap();
        near.take_error().unwrap();
        assert_eq!(near.send_slice(b"early").unwrap(), 5);
        let (far, _) = accept(&listener).unwrap();
        assert_eq!(read_exactly(&far, 5).unwrap(), b"early");
    }
}

#[test]
fn a_socket_survives_as_a_bare_descriptor() {
    let (near, far) = tcp_pair().unwrap();
    let bare = std::os::fd::OwnedFd::from(near);
    let near = Socket::from(bare);
    near.send_slice(b"moved").unwrap();
    assert_eq!(read_exactly(&far, 5).unwrap(), b"moved");
    assert_eq!(near.peer_address().unwrap(), far.local_address().unwrap());
    assert_eq!(near.local_address().unwrap(), far.peer_address().unwrap());
}
