//! Connections that the kernel has accepted for a worker, and that the worker has not: they are served
//! when the worker is about to stop listening.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;

use config::snapshot::Address;
use config::{FilterKinds, Loader};
use proxy::filter::Filter;
use proxy::{Bells, Proxy, Share, Snapshot};
use sim::{
    EndId, Faults, Network, Owner, PeerId, Random, Shared, SimListener, SimSocket, SimWorld,
};
use telemetry::{Emitter, LOG_QUEUE_BYTES};
use worker::{Mailboxes, Message, Worker};

/// More than a worker accepts in one turn.
const CLIENTS: usize = 200;

const CONFIGURATION: &str = "
listeners: [{ name: edge, address: '10.0.0.1:80', backlog: 1000, routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, respond: { status: 204 } }] }]
";

const ELSEWHERE: &str = "
listeners: [{ name: other, address: '10.0.0.1:81', routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, respond: { status: 204 } }] }]
";

fn loader() -> Loader<Box<dyn Filter>> {
    Loader::new(FilterKinds::new()).unwrap()
}

fn address() -> Address {
    Address::Tcp("10.0.0.1:80".parse().unwrap())
}

fn settle(network: &Shared) {
    while network.borrow().next_time().is_some() {
        network.borrow_mut().step();
    }
}

/// Posts `message` to a worker in whose queue clients wait with requests, and returns how many are
/// answered.
fn answered(message: impl FnOnce(Arc<Snapshot>) -> Message<SimListener, SimSocket>) -> usize {
    let network = Rc::new(RefCell::new(Network::new(Random::new(1), Faults::none(), 1)));
    let mut loader = loader();
    let snapshot = loader.load("queues.yaml", CONFIGURATION).unwrap_or_else(|e| panic!("{e}"));
    let next = loader.load("queues.yaml", ELSEWHERE).unwrap_or_else(|e| panic!("{e}"));
    let listener = snapshot.listeners.first().unwrap().id;
    let (emitter, _reports) = Emitter::new(LOG_QUEUE_BYTES);
    let share = Share { worker: 0, workers: 1 };
    let settings = proxy::Settings { share, seed: 1, bells: Bells::new(1) };
    let now = network.borrow().now();
    let proxy = Proxy::new(settings, snapshot, emitter, now);
    let (mut mailboxes, _reports) = Mailboxes::new(1);
    let mailbox = mailboxes.mailboxes.pop().unwrap();
    let world = SimWorld::new(Rc::clone(&network), 0, 0..1);
    let socket = SimListener::new(&network, 0, &address(), 1000);
    let settings = worker::Settings {
        stage_times: false,
        group_part_max: worker::GROUP_PART_MAX,
        accepts: true,
    };
    let mut worker =
        Worker::new(world, proxy, vec![(listener, socket)], mailbox, settings).unwrap();
    let clients: Vec<EndId> = (0..CLIENTS)
        .map(|_| network.borrow_mut().connect(Owner::Peer(PeerId(0)), &address()).unwrap().0)
        .collect();
    settle(&network);
    for client in &clients {
        let ask = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let _ = network.borrow_mut().send(*client, &[IoSlice::new(ask)]);
    }
    let sent = mailboxes.postboxes.first_mut().unwrap().post(message(next));
    assert!(sent.is_ok(), "the mailbox has room");
    network.borrow_mut().notify(0);
    for _ in 0..20 {
        let goes_on = worker.turn().unwrap();
        settle(&network);
        if !goes_on {
            break;
        }
    }
    let is_answered = |client: &&EndId| {
        let mut answer = [0; 256];
        let read = network.borrow_mut().recv(**client, &mut answer);
        read.is_ok() && answer.starts_with(b"HTTP/1.1 204")
    };
    clients.iter().filter(is_answered).count()
}

#[test]
fn a_drain_serves_those_that_wait_in_the_queue() {
    assert_eq!(answered(|_| Message::Drain), CLIENTS);
}

#[test]
fn a_listener_that_is_removed_serves_those_that_wait_in_its_queue() {
    let message =
        |snapshot| Message::Snapshot { snapshot, listeners: Vec::new(), inherited: Arc::default() };
    assert_eq!(answered(message), CLIENTS);
}
