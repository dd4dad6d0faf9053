//! The edges that a reader and a writer can rely on.

use std::os::fd::AsFd as _;
use std::time::Duration;

use ::io::{ConnectOptions, EVENTS_MAX, Events, Poller, Readiness, Socket, Waker};

use crate::pair::{accept, listen, read_exactly, ready, tcp_pair, wait, wait_until};

#[test]
fn what_is_ready_before_registration_is_reported() {
    let (near, far) = tcp_pair().unwrap();
    far.send_slice(b"x").unwrap();
    read_exactly(&near, 1).unwrap();
    far.send_slice(b"y").unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&near, 42).unwrap();
    let readiness = wait_until(&poller, Readiness::is_readable).unwrap();
    assert!(readiness.is_writable() && readiness.is_open());
}

#[test]
fn a_socket_that_is_watched_for_reading_is_reported_as_writable_once_that_is_asked_for() {
    let (near, far) = tcp_pair().unwrap();
    let poller = Poller::new().unwrap();
    poller.add_reads(&near, 7).unwrap();
    assert_eq!(ready(&poller).unwrap(), [], "that it can be written to is no event");
    far.send_slice(b"x").unwrap();
    assert!(!wait_until(&poller, Readiness::is_readable).unwrap().is_writable());
    assert_eq!(read_exactly(&near, 1).unwrap(), b"x");
    // It takes more again before it is asked for, so that there would be no edge.
    poller.add_writes(&near, 8).unwrap();
    let events = wait(&poller).unwrap();
    assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [8]);
    assert!(events[0].readiness.is_writable());
    far.shutdown_write().unwrap();
    assert!(wait_until(&poller, Readiness::is_read_closed).unwrap().is_writable());
}

#[test]
fn a_socket_that_is_watched_already_is_watched_anew_and_is_forgotten_through_any_clone() {
    let (near, far) = tcp_pair().unwrap();
    let poller = Poller::new().unwrap();
    let token_of_next = || wait(&poller).unwrap().first().map(|event| event.token);
    poller.add_reads(&near, 1).unwrap();
    far.send_slice(b"x").unwrap();
    assert_eq!(token_of_next(), Some(1));
    // What was reported under the former token is reported once more.
    poller.add_reads(&near, 2).unwrap();
    assert_eq!(token_of_next(), Some(2));
    // Another process may keep it open.
    let kept = near.as_fd().try_clone_to_owned().unwrap();
    poller.clone().remove(&near).unwrap();
    drop(near);
    far.send_slice(b"y").unwrap();
    assert_eq!(ready(&poller).unwrap(), []);
    drop(kept);
}

#[test]
fn an_edge_is_reported_once_and_again_only_when_more_arrives() {
    let (near, far) = tcp_pair().unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&near, 7).unwrap();
    far.send_slice(b"first").unwrap();
    wait_until(&poller, Readiness::is_readable).unwrap();
    assert_eq!(ready(&poller).unwrap(), [], "unread bytes have no second edge");
    far.send_slice(b"second").unwrap();
    let events = wait(&poller).unwrap();
    assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [7]);
    assert_eq!(read_exactly(&near, 11).unwrap(), b"firstsecond");
}

#[test]
fn bytes_alone_leave_the_connection_open_so_that_a_short_read_is_the_last() {
    let (near, far) = tcp_pair().unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&near, 0).unwrap();
    far.send_slice(b"bytes").unwrap();
    assert!(wait_until(&poller, Readiness::is_readable).unwrap().is_open());
    assert_eq!(near.recv(&mut [0; 64]).unwrap(), 5);
    // The end comes later than the short read, and then has an edge of its own.
    far.shutdown_write().unwrap();
    let readiness = wait_until(&poller, Readiness::is_readable).unwrap();
    assert!(readiness.is_read_closed() && !readiness.is_open());
    assert_eq!(near.recv(&mut [0; 64]).unwrap(), 0);
}

#[test]
fn an_end_queued_behind_bytes_has_no_edge_of_its_own_but_shows_as_read_closed() {
    let (near, far) = tcp_pair().unwrap();
    far.send_slice(b"last words").unwrap();
    far.shutdown_write().unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&near, 0).unwrap();
    let readiness = wait_until(&poller, Readiness::is_read_closed).unwrap();
    assert!(!readiness.is_open(), "a short read must not end the reading");
    assert!(!readiness.is_closed(), "our direction is still open");
    assert_eq!(near.recv(&mut [0; 64]).unwrap(), 10);
    assert_eq!(ready(&poller).unwrap(), [], "a reader that stopped here would miss the end");
    assert_eq!(near.recv(&mut [0; 64]).unwrap(), 0);
    near.send_slice(b"answer").unwrap();
    assert_eq!(read_exactly(&far, 6).unwrap(), b"answer");
}

#[test]
fn a_connection_closed_both_ways_is_closed_but_its_bytes_can_be_read() {
    let (near, far) = tcp_pair().unwrap();
    near.shutdown_write().unwrap();
    far.send_slice(b"rest").unwrap();
    drop(far);
    let poller = Poller::new().unwrap();
    poller.add(&near, 0).unwrap();
    let readiness = wait_until(&poller, Readiness::is_closed).unwrap();
    assert!(readiness.is_readable() && readiness.is_read_closed());
    assert_eq!(near.recv(&mut [0; 64]).unwrap(), 4);
}

#[test]
fn closing_a_socket_ends_its_registration_and_removing_it_keeps_it_open() {
    let (near, far) = tcp_pair().unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&near, 0).unwrap();
    wait(&poller).unwrap();
    poller.remove(&near).unwrap();
    far.send_slice(b"x").unwrap();
    assert_eq!(read_exactly(&near, 1).unwrap(), b"x");
    assert_eq!(ready(&poller).unwrap(), []);
    poller.add(&far, 1).unwrap();
    drop(far);
    assert_eq!(ready(&poller).unwrap(), []);
}

#[test]
fn a_listener_is_reported_while_its_queue_holds_a_connection_and_not_while_removed() {
    let (listener, address) = listen().unwrap();
    let poller = Poller::new().unwrap();
    poller.add_listener(&listener, 3).unwrap();
    let (_first, _) = Socket::connect(address, &ConnectOptions::default()).unwrap();
    assert_eq!(wait(&poller).unwrap()[0].token, 3);
    assert_eq!(ready(&poller).unwrap().len(), 1, "level-triggered: reported again");
    poller.remove_listener(&listener).unwrap();
    let (_second, _) = Socket::connect(address, &ConnectOptions::default()).unwrap();
    assert_eq!(ready(&poller).unwrap(), []);
    poller.add_listener(&listener, 4).unwrap();
    assert_eq!(wait(&poller).unwrap()[0].token, 4);
    accept(&listener).unwrap();
    accept(&listener).unwrap();
    assert_eq!(ready(&poller).unwrap(), []);
}

#[test]
fn a_waker_wakes_from_another_thread_until_it_is_drained() {
    let poller = Poller::new().unwrap();
    let waker = Waker::new().unwrap();
    poller.add_waker(&waker, 9).unwrap();
    assert_eq!(ready(&poller).unwrap(), []);
    let other = waker.clone();
    let thread = std::thread::spawn(move || {
        other.wake();
        other.wake();
    });
    assert_eq!(wait(&poller).unwrap()[0].token, 9);
    thread.join().unwrap();
    waker.drain();
    assert_eq!(ready(&poller).unwrap(), [], "two wakes were one");
    waker.drain();
    waker.wake();
    assert_eq!(ready(&poller).unwrap()[0].token, 9);
}

#[test]
fn a_wait_takes_at_most_its_bound_and_leaves_the_rest_for_the_next() {
    let poller = Poller::new().unwrap();
    let wakers: Vec<_> = (0..EVENTS_MAX + 10).map(|_| Waker::new().unwrap()).collect();
    for (token, waker) in (0..).zip(&wakers) {
        poller.add_waker(waker, token).unwrap();
        waker.wake();
    }
    let mut events = Events::new();
    let mut seen = std::collections::BTreeSet::new();
    poller.wait(None, &mut events).unwrap();
    assert_eq!(events.len(), EVENTS_MAX);
    seen.extend(events.iter().map(|event| event.token));
    poller.wait(None, &mut events).unwrap();
    seen.extend((0..events.len()).map(|index| events.nth(index).unwrap().token));
    assert_eq!(seen.len(), wakers.len(), "no waker starves behind the first batch");
}

#[test]
fn a_wait_ends_without_events_when_its_time_is_over() {
    let poller = Poller::new().unwrap();
    let mut events = Events::new();
    let before = io::clock::monotonic_ns();
    poller.wait(Some(Duration::from_micros(300)), &mut events).unwrap();
    assert!(events.is_empty());
    assert!(io::clock::monotonic_ns() - before >= 300_000, "rounded up, never short");
}
