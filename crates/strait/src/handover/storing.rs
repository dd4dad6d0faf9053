//! Leaves connections with the service manager when the process is asked to end (`handover.fd_store: connections`).
//!
//! The service manager gets the receiving end of a queue before anything is in it: that this end is still there when the
//! service manager has read its messages proves that it is kept. Then the queue gets the connections' state, in a sealed file
//! that has no path and no descriptor of any process, and their sockets. Until the last packet is in the queue all of it is this
//! process's, too, and returns to the workers if something fails.

use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use ::handover::{
    DESCRIPTORS_MAX, GROUP_BYTES_MAX, GROUP_SOCKETS_MAX, Part, STORED_SOCKETS_MAX,
    StoredConnections, StoredGroup, StoredPacket, StoredStates,
};
use ::io::Socket;
use ::io::packets::{Barrier, Packets};
use config::Agreed;
use control::{StoredCounts, Storer, Summary};
use proxy::save::VERSION as FORM;
use tls::ProcessSessions;
use wiped::Wiped;
use worker::{Given, Message as Mail, Moving, Origin, Wanted};

use super::asking::{Asked, Silent, put_back};
use super::groups::GivenAway;
use super::line::now;
use super::{BALANCING, EARLY_SESSIONS, HEALTH, SLOW, TICKET_KEYS, TOTALS, balancing, part};
use crate::VERSION;
use crate::data_path::Contacts;

/// How long the service manager may take to read its messages.
const MANAGER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long handshakes may take that hold connections back: others are silent meanwhile.
const HANDSHAKES_MAX: u64 = 1_000_000_000;

/// Between two looks at them.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Groups of a worker in one answer, at most.
const GROUPS_MAX: u32 = 256;

/// A queue, and what says that the service manager has its other end.
#[derive(Debug)]
struct Queue {
    packets: Packets,
    barrier: Barrier,
}

/// Carries out what control asks for.
#[derive(Debug)]
pub(crate) struct Storing {
    contacts: Contacts,
    sessions: ProcessSessions,
    queue: Option<Queue>,
    /// Sessions for early data: once given they are nowhere else.
    early: Wiped,
    /// What workers had learned when they gave their connections.
    balancing: Vec<u8>,
}

impl Storing {
    pub(crate) fn new(contacts: Contacts, sessions: ProcessSessions) -> Self {
        Self { contacts, sessions, queue: None, early: Wiped::default(), balancing: Vec::new() }
    }

    fn store_all(
        &mut self,
        queue: &Queue,
        agreed: Vec<Agreed>,
        summary: Summary,
        generation: u64,
    ) -> Result<StoredCounts, String> {
        queue.check_kept()?;
        self.contacts.deliver_to_all(|| Mail::StopAccepting { but: [].into() });
        let collected = collect(&self.contacts);
        let result = collected.result.and_then(|counts| {
            let parts = agreed.into_iter().map(part).collect();
            queue.fill(parts, generation, &collected.given)?;
            Ok(counts)
        });
        match result {
            Ok(counts) => {
                // Now the connections are the next process's: their sockets here close without a word.
                self.early = self.sessions.early.give().into();
                self.balancing = balancing::save(&self.contacts);
                queue.add_states(self.states(summary));
                Ok(counts)
            }
            Err(reason) => {
                for given in collected.given {
                    let worker = given.worker;
                    put_back(&self.contacts, worker, given.into_moving(), Origin::Worker);
                }
                self.contacts.deliver_to_all(|| Mail::AcceptAgain);
                Err(reason)
            }
        }
    }

    fn states(&self, summary: Summary) -> StoredStates {
        StoredStates(vec![
            (TOTALS.to_owned(), summary.totals),
            (HEALTH.to_owned(), summary.health),
            (SLOW.to_owned(), summary.slow),
            (TICKET_KEYS.to_owned(), self.sessions.ring.write().to_vec()),
            (EARLY_SESSIONS.to_owned(), self.early.to_vec()),
            (BALANCING.to_owned(), self.balancing.clone()),
        ])
    }
}

impl Storer for Storing {
    fn open(&mut self) -> io::Result<(OwnedFd, OwnedFd)> {
        let (packets, receiver) = Packets::queue()?;
        let (barrier, done) = ::io::packets::barrier()?;
        self.queue = Some(Queue { packets, barrier });
        Ok((receiver, done))
    }

    fn store(
        &mut self,
        agreed: Vec<Agreed>,
        summary: Summary,
        generation: u64,
    ) -> Result<StoredCounts, String> {
        let Some(queue) = self.queue.take() else { return Err("there is no queue".to_owned()) };
        let result = self.store_all(&queue, agreed, summary, generation);
        self.queue = Some(queue);
        result
    }

    fn finish(&mut self, summary: Summary) {
        if let Some(queue) = &self.queue {
            queue.add_states(self.states(summary));
        }
    }
}

impl Queue {
    /// Finds out whether the service manager keeps the other end.
    fn check_kept(&self) -> Result<(), String> {
        if !self.barrier.wait(MANAGER_TIMEOUT).map_err(|error| error.to_string())? {
            return Err("the service manager does not read its messages".to_owned());
        }
        self.send(StoredPacket::opened(), &[]).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                "the service manager does not keep them: raise FileDescriptorStoreMax= of the unit"
                    .to_owned()
            }
            _ => error.to_string(),
        })
    }

    fn send(&self, packet: StoredPacket, descriptors: &[&Socket]) -> io::Result<()> {
        let descriptors: Vec<_> = descriptors.iter().map(|socket| socket.as_fd()).collect();
        // Nothing reads yet, so that there will be no more room.
        self.packets.send(&packet.encode(), &descriptors, Duration::ZERO)
    }

    fn send_file(&self, packet: StoredPacket, bytes: &[u8]) -> io::Result<()> {
        let file = ::io::sealed::seal("strait-stored", bytes)?;
        self.packets.send(&packet.encode(), &[file.as_fd()], Duration::ZERO)
    }

    /// Puts connections into the queue.
    fn fill(&self, parts: Vec<Part>, generation: u64, given: &[GivenAway]) -> Result<(), String> {
        let group = |given: &GivenAway| {
            let mut envelope = given.envelope();
            // Wiped by its new owner.
            let bytes = mem::take(&mut *envelope);
            StoredGroup { bytes, sockets: given.sockets().count().try_into().unwrap_or(u32::MAX) }
        };
        let groups = given.iter().map(group).collect();
        let program = VERSION.to_owned();
        let stored = StoredConnections { program, form: FORM, generation, parts, groups };
        let send = || -> io::Result<()> {
            self.send_file(StoredPacket::Connections, &stored.encode())?;
            let sockets: Vec<_> = given.iter().flat_map(GivenAway::sockets).collect();
            for some in sockets.chunks(DESCRIPTORS_MAX) {
                self.send(StoredPacket::Sockets, some)?;
            }
            self.send(StoredPacket::Whole, &[])
        };
        send().map_err(|error| format!("the queue for the next process: {error}"))
    }

    /// Adds what the process knows. Without it the next process has the connections all the same.
    fn add_states(&self, states: StoredStates) {
        if let Err(error) = self.send_file(StoredPacket::State, &states.encode()) {
            tracing::warn!("counters are not stored for the next process: {error}");
        }
    }
}

/// What workers gave.
struct Collected {
    given: Vec<GivenAway>,
    /// How many; or why they may not go, either.
    result: Result<StoredCounts, String>,
}

/// Takes all that can move out of the workers.
fn collect(contacts: &Contacts) -> Collected {
    let mut collecting =
        Collecting { contacts, given: Vec::new(), sockets: 0, staying: 0, pending: 0 };
    let until = now().saturating_add(HANDSHAKES_MAX);
    let result = loop {
        (collecting.staying, collecting.pending) = (0, 0);
        if let Err(Silent) = collecting.ask_all() {
            break Err("a worker does not answer".to_owned());
        }
        if collecting.pending == 0 || now() >= until {
            let groups = collecting.given.len() as u64;
            let (staying, handshakes) = (collecting.staying, collecting.pending);
            break Ok(StoredCounts { groups, staying, handshakes });
        }
        pause();
    };
    Collected { given: collecting.given, result }
}

struct Collecting<'c> {
    contacts: &'c Contacts,
    given: Vec<GivenAway>,
    sockets: u64,
    /// Connections that stay, and those that a handshake holds back, in this round.
    staying: u64,
    pending: u64,
}

impl Collecting<'_> {
    /// Asks each worker for all of its connections, a part at a time.
    fn ask_all(&mut self) -> Result<(), Silent> {
        let mut next: Vec<Option<u32>> = vec![Some(0); self.contacts.count()];
        while next.iter().any(Option::is_some) {
            let mut asked = Asked::none(self.contacts.count());
            let result = self.ask_some(&mut next, &mut asked);
            if result.is_err() {
                asked.return_late(self.contacts.clone());
                return result;
            }
        }
        Ok(())
    }

    fn ask_some(&mut self, next: &mut [Option<u32>], asked: &mut Asked) -> Result<(), Silent> {
        let from = next.iter().enumerate().filter_map(|(worker, next)| Some((worker, (*next)?)));
        for (worker, first) in from {
            let wanted = Wanted::From {
                first,
                groups_max: GROUPS_MAX,
                connections_max: GROUP_SOCKETS_MAX as usize,
                only_idle: false,
            };
            asked.ask(worker, wanted, self.contacts)?;
        }
        while let Some(given) = asked.next()? {
            if let Some(next) = next.get_mut(given.worker as usize) {
                *next = given.next;
            }
            self.note(given);
        }
        Ok(())
    }

    fn note(&mut self, given: Given<Socket>) {
        self.staying += u64::from(given.staying) + u64::from(given.too_large);
        self.pending += u64::from(given.pending);
        for moving in given.groups {
            self.note_group(given.worker as usize, moving);
        }
    }

    fn note_group(&mut self, worker: usize, moving: Moving<Socket>) {
        let sockets = moving.sockets.iter().flatten().count() as u64;
        let bytes = moving.bytes.bytes_len() + 4 + moving.sockets.len();
        let is_too_large = bytes > GROUP_BYTES_MAX as usize;
        if self.sockets + sockets > STORED_SOCKETS_MAX || is_too_large {
            // It is not asked for once more, and drains.
            self.staying += 1;
            return put_back(self.contacts, worker, moving, Origin::Returned);
        }
        self.sockets += sockets;
        self.given.push(GivenAway::new(worker, moving));
    }
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own waits for handshakes")]
fn pause() {
    thread::sleep(LOOK_INTERVAL);
}
