//! Leaves connections with the service manager when the process is asked to end (`handover.fd_store: connections`).
//!
//! The service manager gets the receiving end of a queue before anything is in it: that this end is still there when the
//! service manager has read its messages proves that it is kept. Then the queue gets the connections' state, in a sealed file
//! that has no path and no descriptor of any process, and their sockets. Until the last packet is in the queue all of it is this
//! process's, too, and returns to the workers if something fails.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use ::handover::{
    Collect, DESCRIPTORS_MAX, GROUP_BYTES_MAX, Part, STORED_BYTES_MAX, STORED_SOCKETS_MAX,
    StoredConnections, StoredGroup, StoredPacket, StoredStates,
};
use ::io::Socket;
use ::io::packets::{Barrier, Packets};
use config::Agreed;
use control::{OwnState, StoredCounts, Storer};
use proxy::save::VERSION as FORM;
use tls::ProcessSessions;
use wiped::Wiped;
use worker::{Message as Mail, Origin};

use super::asking::put_back;
use super::collecting::{Collecting, Round};
use super::groups::GivenAway;
use super::line::now;
use super::timeouts::MAILBOX_TIMEOUT;
use super::topics::{Sent, Topic};
use super::totals::Totals;
use super::{balancing, part};
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
        state: OwnState,
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
                queue.add_states(self.states(state));
                Ok(counts)
            }
            Err(reason) => {
                for given in collected.given {
                    let worker = given.worker;
                    put_back(&self.contacts, worker, given.into_moving(), Origin::Worker);
                }
                self.contacts.deliver_to_all(|| Mail::AcceptAgain);
                self.contacts.flush(MAILBOX_TIMEOUT);
                Err(reason)
            }
        }
    }

    fn states(&self, mut state: OwnState) -> StoredStates {
        let totals = Totals::bounded(state.readings.write_totals());
        totals.report();
        let written = Topic::written(Sent::Stored, |topic| {
            Some(match topic {
                Topic::Totals => totals.bytes.to_vec(),
                Topic::Health => std::mem::take(&mut state.health),
                Topic::Slow => std::mem::take(&mut state.slow),
                Topic::TicketKeys => self.sessions.ring.write().to_vec(),
                Topic::EarlySessions => self.early.to_vec(),
                Topic::Balancing => self.balancing.clone(),
                // There is no other process.
                Topic::Summary => Vec::new(),
            })
        });
        StoredStates(written.unwrap_or_default())
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
        state: OwnState,
        generation: u64,
    ) -> Result<StoredCounts, String> {
        let Some(queue) = self.queue.take() else { return Err("there is no queue".to_owned()) };
        let result = self.store_all(&queue, agreed, state, generation);
        self.queue = Some(queue);
        result
    }

    fn finish(&mut self, state: OwnState) {
        if let Some(queue) = &self.queue {
            queue.add_states(self.states(state));
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
                "the service manager does not keep them: raise FileDescriptorStoreMax= of the unit, unless a warning says that it cannot be \
                 reached, or it hears another process alone (NotifyAccess=)"
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
            let sockets = given.sockets().count().try_into().unwrap_or(u32::MAX);
            StoredGroup { bytes: given.envelope(), sockets }
        };
        let groups = given.iter().map(group).collect();
        let program = VERSION.to_owned();
        let stored = StoredConnections { program, form: FORM, generation, parts, groups };
        // What the next process would refuse stays here, and drains.
        stored.check().map_err(|error| error.to_string())?;
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
    let mut collecting = Collecting::for_storing(contacts.clone());
    let workers = u32::try_from(contacts.count()).unwrap_or(u32::MAX);
    let wanted = Collect {
        groups_max: GROUPS_MAX.saturating_mul(workers),
        of_worker_max: GROUPS_MAX,
        is_ahead: false,
        is_probe: false,
    };
    let (mut given, mut sockets, mut bytes) = (Vec::new(), 0, 0);
    let until = now().saturating_add(HANDSHAKES_MAX);
    // Groups of this round that are too large for the queue.
    let mut too_large = 0;
    let result = loop {
        let batch = collecting.next(wanted, &mut || true);
        let (is_round_over, is_cut) = (batch.groups.is_empty(), batch.is_cut);
        for group in batch.groups {
            let (of_group, len) = (group.sockets().count() as u64, group.bytes_len() as u64);
            if sockets + of_group > STORED_SOCKETS_MAX
                || bytes + len > STORED_BYTES_MAX
                || len > u64::from(GROUP_BYTES_MAX)
            {
                // It is not asked for once more, and drains.
                too_large += 1;
                put_back(contacts, group.worker, group.into_moving(), Origin::Returned);
            } else {
                (sockets, bytes) = (sockets + of_group, bytes + len);
                given.push(group);
            }
        }
        if is_cut {
            break Err("a worker does not answer".to_owned());
        }
        if !is_round_over {
            continue;
        }
        let Round { pending, too_large: larger, staying, returned } = collecting.round_before();
        if pending == 0 || now() >= until {
            let staying = [staying, returned, larger].into_iter().map(u64::from).sum::<u64>();
            break Ok(StoredCounts {
                groups: given.len() as u64,
                staying: staying + too_large,
                handshakes: u64::from(pending),
            });
        }
        too_large = 0;
        pause();
    };
    Collected { given, result }
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own waits for handshakes")]
fn pause() {
    thread::sleep(LOOK_INTERVAL);
}
