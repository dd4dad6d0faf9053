//! That the simulated network behaves as the kernel does, where workers depend on it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

use std::io::{ErrorKind, IoSlice};

use config::snapshot::Address;
use proxy::ConnKey;
use sim::{EndId, Faults, ListenerSocket, Network, Owner, PeerId, Random};
use worker::{AcceptError, Event, Ready};

const WORKER: Owner = Owner::Worker(0);
const PEER: Owner = Owner::Peer(PeerId(0));

fn address() -> Address {
    Address::Tcp("10.0.0.1:80".parse().unwrap())
}

fn network(faults: Faults) -> (Network, ListenerSocket) {
    let mut network = Network::new(Random::new(1), faults, 1);
    let listener = network.listen(WORKER, address(), 16);
    (network, listener)
}

/// A network with a connection: the worker's end, which is watched, and the peer's.
fn connection(faults: Faults) -> (Network, EndId, EndId) {
    let (mut network, listener) = network(faults);
    let (peer, _) = network.connect(PEER, &address()).unwrap();
    settle(&mut network);
    let (end, ..) = network.accept(listener).unwrap().unwrap();
    network.watch(end, 0, ConnKey::from_bits(1));
    (network, end, peer)
}

/// Lets everything happen that is on its way.
fn settle(network: &mut Network) {
    while network.next_time().is_some() {
        network.step();
    }
}

/// The event that a wait returns for the one end that is watched.
fn event(network: &mut Network) -> Option<Ready> {
    let mut events = Vec::new();
    network.events(0, &mut events);
    assert!(events.len() <= 1, "{events:?}");
    events.pop().map(|event| match event {
        Event::Socket { ready, .. } => ready,
        other => panic!("{other:?}"),
    })
}

fn send(network: &mut Network, end: EndId, bytes: &[u8]) -> usize {
    network.send(end, &[IoSlice::new(bytes)]).unwrap()
}

#[test]
fn an_event_comes_for_what_arrives_and_not_for_what_is_still_there() {
    let (mut network, end, peer) = connection(Faults::none());
    // Registration reports what is possible already.
    let writable = Ready { is_writable: true, ..Ready::default() };
    assert_eq!(event(&mut network), Some(writable));
    assert_eq!(event(&mut network), None);
    send(&mut network, peer, b"abc");
    settle(&mut network);
    // An event reports all that is possible, not only what is new.
    let both = Ready { is_readable: true, ..writable };
    assert_eq!(event(&mut network), Some(both));
    assert_eq!(event(&mut network), None, "the bytes are still there, but nothing is new");
    send(&mut network, peer, b"d");
    settle(&mut network);
    assert_eq!(event(&mut network), Some(both));
    let mut buffer = [0; 10];
    assert_eq!(network.recv(end, &mut buffer).unwrap(), 4);
    assert_eq!(network.recv(end, &mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn what_a_short_read_leaves_arrives_with_an_event_of_its_own() {
    let (mut network, end, peer) = connection(Faults { short_read: 1_000, ..Faults::none() });
    event(&mut network);
    let sent: Vec<u8> = (0..200).collect();
    send(&mut network, peer, &sent);
    settle(&mut network);
    let (mut got, mut reads) = (Vec::new(), 0);
    while let Some(ready) = event(&mut network) {
        assert!(ready.is_readable);
        let mut buffer = [0; 1_000];
        let n = network.recv(end, &mut buffer).unwrap();
        got.extend_from_slice(buffer.get(..n).unwrap());
        reads += 1;
        settle(&mut network);
    }
    assert_eq!(got, sent);
    assert!(reads > 2, "{reads} reads");
}

#[test]
fn a_write_that_was_cut_short_is_followed_by_an_event() {
    let (mut network, end, peer) = connection(Faults { partial_write: 500, ..Faults::none() });
    let sent: Vec<u8> = (0..200).collect();
    let mut rest = &sent[..];
    while !rest.is_empty() {
        assert!(event(&mut network).is_some_and(|ready| ready.is_writable), "{} left", rest.len());
        match network.send(end, &[IoSlice::new(rest)]) {
            Ok(n) => rest = rest.get(n..).unwrap(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        settle(&mut network);
    }
    let mut got = Vec::new();
    network.recv_all(peer, 1_000, &mut got).unwrap();
    assert_eq!(got, sent);
}

#[test]
fn a_full_connection_takes_nothing_until_the_other_end_reads() {
    let (mut network, end, peer) = connection(Faults::none());
    let mut sent = 0;
    loop {
        match network.send(end, &[IoSlice::new(&[b'x'; 10_000])]) {
            Ok(n) => sent += n,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                settle(&mut network);
                if event(&mut network).is_none_or(|ready| !ready.is_writable) {
                    break;
                }
            }
        }
    }
    assert!((4 << 10..=256 << 10).contains(&sent), "{sent} bytes fit");
    let mut got = Vec::new();
    network.recv_all(peer, sent / 2 + 1, &mut got).unwrap();
    settle(&mut network);
    assert!(event(&mut network).is_some_and(|ready| ready.is_writable));
}

#[test]
fn what_a_worker_had_read_when_it_began_to_answer_is_kept() {
    let (mut network, end, peer) = connection(Faults::none());
    let mut buffer = [0; 10];
    for (bytes, known) in [("PR", 2), ("I *", 2)] {
        send(&mut network, peer, bytes.as_bytes());
        settle(&mut network);
        assert_eq!(network.recv(end, &mut buffer).unwrap(), bytes.len());
        assert_eq!(network.read_before_answer(peer), known);
        send(&mut network, end, b"408");
    }
    assert_eq!(network.read_by_other(peer, peer), 5);
}

#[test]
fn an_end_is_read_behind_the_bytes_before_it() {
    let (mut network, end, peer) = connection(Faults::none());
    event(&mut network);
    send(&mut network, peer, b"abc");
    network.shutdown_write(peer);
    settle(&mut network);
    let ready = event(&mut network).unwrap();
    assert!(ready.is_readable && ready.is_ending && !ready.is_closed);
    let mut buffer = [0; 10];
    assert_eq!(network.recv(end, &mut buffer).unwrap(), 3);
    assert_eq!(network.recv(end, &mut buffer).unwrap(), 0);
    // The other direction still works.
    assert_eq!(send(&mut network, end, b"x"), 1);
    network.shutdown_write(end);
    settle(&mut network);
    assert!(event(&mut network).is_some_and(|ready| ready.is_closed), "now both are over");
}

#[test]
fn closing_with_bytes_unread_is_a_reset() {
    let (mut network, end, peer) = connection(Faults::none());
    event(&mut network);
    send(&mut network, end, b"unread");
    settle(&mut network);
    network.close(peer);
    settle(&mut network);
    assert!(event(&mut network).is_some_and(|ready| ready.is_closed && ready.is_ending));
    let error = network.recv(end, &mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn bytes_that_arrive_at_a_closed_socket_are_answered_with_a_reset() {
    let (mut network, end, peer) = connection(Faults::none());
    network.close(peer);
    settle(&mut network);
    assert_eq!(network.recv(end, &mut [0; 10]).unwrap(), 0, "closed in order");
    assert_eq!(send(&mut network, end, b"too late"), 8);
    settle(&mut network);
    let error = network.send(end, &[IoSlice::new(b"x")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_failed_write_takes_the_error_of_a_reset_with_it() {
    let (mut network, end, peer) = connection(Faults::none());
    send(&mut network, peer, b"before");
    settle(&mut network);
    network.reset(peer);
    settle(&mut network);
    let error = network.send(end, &[IoSlice::new(b"x")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let mut buffer = [0; 10];
    assert_eq!(network.recv(end, &mut buffer).unwrap(), 6, "what came before can be read");
    assert_eq!(network.recv(end, &mut buffer).unwrap(), 0, "and then it looks like an end");
    let error = network.send(end, &[IoSlice::new(b"x")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
}

#[test]
fn a_listener_that_closes_resets_the_connections_in_its_queue() {
    let (mut network, listener) = network(Faults::none());
    let (peer, _) = network.connect(PEER, &address()).unwrap();
    settle(&mut network);
    network.close_listener(listener);
    settle(&mut network);
    assert!(network.is_broken(peer));
    let (refused, _) = network.connect(PEER, &address()).unwrap();
    settle(&mut network);
    assert_eq!(network.connected(refused), Some(false));
}

#[test]
fn without_descriptors_nothing_is_accepted_for_a_while() {
    let (mut network, listener) = network(Faults { descriptors: 1_000, ..Faults::none() });
    network.connect(PEER, &address()).unwrap();
    network.step();
    assert_eq!(network.accept(listener).unwrap_err(), AcceptError::OutOfDescriptors("EMFILE"));
    network.heal();
    assert!(network.accept(listener).unwrap().is_some());
}

#[test]
fn a_connection_that_moves_to_another_worker_is_reported_there() {
    let mut network = Network::new(Random::new(1), Faults::none(), 2);
    let listener = network.listen(WORKER, address(), 16);
    let (peer, _) = network.connect(PEER, &address()).unwrap();
    settle(&mut network);
    let (end, ..) = network.accept(listener).unwrap().unwrap();
    network.watch(end, 0, ConnKey::from_bits(1));
    send(&mut network, peer, b"abc");
    settle(&mut network);
    network.unwatch(end);
    network.watch(end, 1, ConnKey::from_bits(2));
    assert_eq!(event(&mut network), None, "nothing is left at the first");
    let mut events = Vec::new();
    network.events(1, &mut events);
    let ready = Ready { is_readable: true, is_writable: true, ..Ready::default() };
    assert_eq!(events, [Event::Socket { key: ConnKey::from_bits(2), ready }]);
}
