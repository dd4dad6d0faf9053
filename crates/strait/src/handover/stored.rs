//! Continues connections that the process before this one left with the service manager.
//!
//! Everything is read and compared before the first connection is continued. What is not whole, or not ours, is refused as
//! a whole: its sockets are reset, so that their peers know, and none is served by halves.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use ::handover::{
    ALIVE_INTERVAL, Left, STORED_FILE_BYTES_MAX, STORED_PACKET_BYTES_MAX, StoredConnections,
    StoredError, StoredPacket, StoredQueue, StoredStates,
};
use ::io::Socket;
use ::io::packets::{PacketError, Packets, Received};
use ::io::sealed::{SealedError, read_sealed, sealed_len};
use control::{
    FormerState, HandoverChange, HandoverFact, HandoverNews, HandoverResult, HandoverStep,
};
use proxy::Snapshot;
use proxy::save::{Differing, VERSION as FORM};
use telemetry::FormerTotals;
use tls::ProcessSessions;
use tokio::sync::mpsc::Sender;
use wiped::Wiped;
use worker::{Message as Mail, Moving, Origin, Take, Taken};

use super::differences::Comparison;
use super::taking::moving;
use super::timeouts::WORKER_TIMEOUT;
use super::topics::Topic;
use super::{balancing, parts, spawn};
use crate::data_path::{Contacts, DataPath};

/// Packets of a queue, at most: several times as many as are ever sent.
const PACKETS_MAX: usize = 1024;

/// Groups that are given to workers before their answers are waited for.
const GROUPS_AT_ONCE: usize = 64;

/// Connections to be continued.
#[derive(Debug)]
pub(crate) struct Stored {
    connections: StoredConnections,
    sockets: Vec<OwnedFd>,
    states: StoredStates,
    differing: Differing,
    /// How many handovers led to this process.
    pub(crate) generation: u64,
}

/// Why there are no connections to be continued.
#[derive(Debug, thiserror::Error)]
enum NotRead {
    #[error("{0}")]
    Content(#[from] StoredError),
    #[error("form {0}, and this program reads form {FORM}")]
    Form(u16),
    #[error("{0}")]
    Packet(#[from] PacketError),
    #[error("{0}")]
    Sealed(#[from] SealedError),
    #[error("it has {has} sockets, and {wanted} belong to it")]
    Sockets { has: usize, wanted: u64 },
}

impl From<std::io::Error> for NotRead {
    fn from(error: std::io::Error) -> Self {
        Self::Sealed(SealedError::System(error))
    }
}

/// What a queue had in it.
#[derive(Debug, Default)]
struct Content {
    connections: Option<OwnedFd>,
    sockets: Vec<OwnedFd>,
    states: Option<OwnedFd>,
}

impl Stored {
    /// What the queues have in them, which are one as a rule. What cannot be continued is reset.
    pub(crate) fn read(queues: Vec<OwnedFd>, snapshot: &Snapshot) -> Option<Self> {
        let mut stored = None;
        for queue in queues {
            let mut content = Content::default();
            let result = content.read(&Packets::from(queue)).and_then(|()| content.open());
            match result {
                Ok((connections, states)) if stored.is_none() => {
                    stored = Some(Self::new(connections, content.sockets, states, snapshot));
                }
                Ok((connections, _)) => {
                    let sockets = content.sockets.len();
                    reset(content.sockets);
                    let program = &connections.program;
                    tracing::error!(
                        sockets,
                        program,
                        "two processes stored connections: those of the second are closed"
                    );
                }
                Err(error) => {
                    let sockets = content.sockets.len();
                    reset(content.sockets);
                    tracing::error!(
                        sockets,
                        "connections that the service manager kept are refused and closed: {error}"
                    );
                }
            }
        }
        stored
    }

    fn new(
        connections: StoredConnections,
        sockets: Vec<OwnedFd>,
        states: StoredStates,
        snapshot: &Snapshot,
    ) -> Self {
        let compared = Comparison::new(&parts(snapshot), &connections.parts);
        compared.report("stored connections that it concerns are closed");
        let differing = compared.differing();
        let generation = connections.generation.saturating_add(1);
        Self { connections, sockets, states, differing, generation }
    }

    /// Some listeners have other addresses than what had their names in the former process.
    pub(crate) fn note_moved(&mut self, listeners: BTreeSet<String>) {
        for listener in &listeners {
            tracing::warn!(
                "handover: listener {listener} has other addresses here: stored connections of the former ones are closed"
            );
        }
        self.differing.moved = listeners;
    }

    /// Takes over what decides on handshakes. To be called before workers accept.
    pub(crate) fn adopt(&self, sessions: &ProcessSessions) {
        if let Some(keys) = self.states.get(Topic::TicketKeys.name()) {
            sessions.ring.adopt(keys);
        }
        // Without that, the process that had it was ended: its sessions are forgotten with it.
        sessions.early.adopt(self.states.get(Topic::EarlySessions.name()).unwrap_or_default());
    }

    /// Has workers continue them, which run.
    pub(crate) fn restore(self, contacts: &Contacts, control: &Sender<HandoverStep<DataPath>>) {
        let Self { mut connections, sockets, states, differing, generation } = self;
        let said = |topic: Topic| states.get(topic.name()).map(<[u8]>::to_vec).unwrap_or_default();
        let totals = FormerTotals::read(states.get(Topic::Totals.name()).unwrap_or_default());
        let state = FormerState { totals, health: said(Topic::Health), slow: said(Topic::Slow) };
        // Control ends with the process; the same below.
        let step = |step| drop(control.blocking_send(step));
        step(HandoverStep::Became(HandoverChange::Restored { state, generation }));
        let version = connections.program.clone();
        step(HandoverStep::Heard(HandoverFact::News(HandoverNews::Began {
            is_giver: false,
            pid: 0,
            version,
        })));
        let differing = Arc::new(differing);
        contacts.deliver_to_all(|| Mail::Differing(Arc::clone(&differing)));
        balancing::restore(states.get(Topic::Balancing.name()).unwrap_or_default(), contacts);
        let mut sockets = sockets.into_iter();
        let groups = std::mem::take(&mut connections.groups).into_iter().map(|mut group| {
            let bytes = std::mem::take(&mut group.bytes);
            moving(bytes, sockets.by_ref().take(group.sockets as usize).collect())
        });
        let mut restoring = Restoring { contacts, next: 0, moved: 0, left: Vec::new() };
        let mut some = Vec::new();
        for group in groups {
            match group {
                Some(moving) => some.push(moving),
                None => restoring.refuse("the group is damaged"),
            }
            if some.len() == GROUPS_AT_ONCE {
                restoring.take(std::mem::take(&mut some));
            }
        }
        restoring.take(some);
        // No other process has them any more.
        contacts.deliver_to_all(|| Mail::SocketsAreOwn);
        let Restoring { moved, left, .. } = restoring;
        let closed: u32 = left.iter().map(|left| left.count).sum();
        tracing::info!(groups = moved, closed, "continuing stored connections");
        for Left { reason, count } in &left {
            tracing::warn!(groups = count, "stored connections were closed: {reason}");
        }
        let left = left.into_iter().map(|left| (left.reason, left.count)).collect();
        step(HandoverStep::Heard(HandoverFact::News(HandoverNews::Counted { moved, left })));
        let ended = HandoverNews::Ended(HandoverResult::Restored, String::new());
        step(HandoverStep::Heard(HandoverFact::News(ended)));
    }
}

impl Content {
    /// Reads a queue to its end, which is all that there will ever be in it.
    fn read(&mut self, queue: &Packets) -> Result<(), NotRead> {
        let mut packets = StoredQueue::default();
        let mut buffer = [0; STORED_PACKET_BYTES_MAX];
        // A failure is the end of the packets that make sense; sockets may follow, which have to be reset, too.
        let mut result = Ok(());
        for _ in 0..PACKETS_MAX {
            match queue.receive(&mut buffer, Duration::ZERO) {
                Ok(Received::Packet(len, descriptors)) => {
                    let bytes = buffer.get(..len).unwrap_or_default();
                    let packet = packets.on_packet(bytes, descriptors.len());
                    self.note(packet.as_ref().ok(), descriptors);
                    result = result.and_then(|()| Ok(packet.map(drop)?));
                }
                Ok(Received::End | Received::Nothing) => {
                    return result.and_then(|()| Ok(packets.end()?));
                }
                Err(PacketError::System(error)) => return result.and_then(|()| Err(error.into())),
                // Others follow.
                Err(error) => result = result.and_then(|()| Err(error.into())),
            }
        }
        Err(StoredError::TooLarge.into())
    }

    fn note(&mut self, packet: Option<&StoredPacket>, mut descriptors: Vec<OwnedFd>) {
        match packet {
            Some(StoredPacket::Connections) => self.connections = descriptors.pop(),
            Some(StoredPacket::State) => self.states = descriptors.pop(),
            _ => self.sockets.extend(descriptors),
        }
    }

    /// What the files say.
    fn open(&mut self) -> Result<(StoredConnections, StoredStates), NotRead> {
        let file = self.connections.take().ok_or(StoredError::Incomplete)?;
        let connections = StoredConnections::decode(&read_file(file)?)?;
        let (has, wanted) = (self.sockets.len(), connections.sockets());
        if has as u64 != wanted {
            return Err(NotRead::Sockets { has, wanted });
        }
        if connections.form != FORM {
            return Err(NotRead::Form(connections.form));
        }
        // Counters are worth less than connections.
        let states = self.states.take().map(|file| Ok(StoredStates::decode(&read_file(file)?)?));
        let states = states.transpose().unwrap_or_else(|error: NotRead| {
            tracing::warn!("counters that the service manager kept are refused: {error}");
            None
        });
        Ok((connections, states.unwrap_or_default()))
    }
}

fn read_file(file: OwnedFd) -> Result<Wiped, NotRead> {
    let file = File::from(file);
    let len = sealed_len(&file, STORED_FILE_BYTES_MAX)?;
    let mut bytes = Wiped::from(vec![0; usize::try_from(len).unwrap_or(usize::MAX)]);
    read_sealed(&file, &mut bytes)?;
    Ok(bytes)
}

/// Ends connections that are not continued.
fn reset(sockets: Vec<OwnedFd>) {
    sockets.into_iter().for_each(|socket| Socket::from(socket).reset());
}

/// Groups on their way to the workers, one worker after the other.
struct Restoring<'c> {
    contacts: &'c Contacts,
    next: usize,
    moved: u64,
    left: Vec<Left>,
}

impl Restoring<'_> {
    fn refuse(&mut self, reason: &str) {
        Left::add(&mut self.left, reason, 1);
    }

    fn take(&mut self, groups: Vec<Moving<Socket>>) {
        let (reply, answers) = sync_channel(groups.len());
        let mut workers = BTreeSet::new();
        for moving in groups {
            let worker = self.next % self.contacts.count().max(1);
            self.next += 1;
            workers.insert(worker);
            let take = Take { moving, origin: Origin::Process, number: 0, reply: reply.clone() };
            self.contacts.deliver(worker, Mail::Take(take));
        }
        drop(reply);
        let workers = || workers.iter().copied();
        let mut patience = self.contacts.patience(workers());
        loop {
            match answers.recv_timeout(ALIVE_INTERVAL) {
                Ok(Taken { result: Ok(_), .. }) => self.moved += 1,
                Ok(Taken { result: Err((error, moving)), .. }) => {
                    reset_group(moving);
                    self.refuse(&error.to_string());
                }
                Err(RecvTimeoutError::Timeout)
                    if !patience.is_over(self.contacts, workers(), WORKER_TIMEOUT) => {}
                // The worker has them all the same.
                Err(RecvTimeoutError::Timeout) => return reset_if_refused(answers),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Waits for workers that have not said in time whether they take groups: what they refuse is reset.
fn reset_if_refused(answers: Receiver<Taken<Socket>>) {
    spawn("strait-late", move || {
        for taken in answers {
            if let Err((error, moving)) = taken.result {
                tracing::warn!("stored connections were closed late: {error}");
                reset_group(moving);
            }
        }
    });
}

fn reset_group(moving: Moving<Socket>) {
    moving.sockets.into_iter().flatten().for_each(Socket::reset);
}
