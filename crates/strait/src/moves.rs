//! Moves connections between the workers of this process, from a thread that may wait for them: one gives, the other
//! takes, and what it refuses returns.

use std::iter::once;
use std::sync::mpsc::{channel, sync_channel};
use std::time::Duration;

use control::{ConnectionId, ConnectionWork, GroupMax, Moved, Mover, NotMoved};
use io::Socket;
use proxy::ConnKey;
use proxy::save::Unmovable;
use worker::{Message as Mail, Moving, Origin, Take, Wanted, Weigh, Work};

use crate::data_path::Contacts;
use crate::handover::asking::{AskedWorkers, Silent, put_back, return_if_refused};

/// How long a worker may take to answer that it takes messages.
const PING_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a worker may take to give or to take connections. It does so in its next turn, but for large groups.
const WORKER_TIMEOUT: Duration = Duration::from_secs(10);

/// What is given and taken by way of the workers' mailboxes.
#[derive(Debug)]
pub(crate) struct Moves(pub(crate) Contacts);

impl Mover for Moves {
    fn move_group(
        &self,
        connection: ConnectionId,
        to: u32,
        max: GroupMax,
    ) -> Result<Moved, NotMoved> {
        // What is in a mailbox stands still until its worker looks there, and reloads wait for what moves.
        for worker in [to, connection.worker] {
            let is_there = self.0.ping(once(worker as usize), PING_TIMEOUT);
            is_there.map_err(|_| NotMoved::NoAnswer(worker))?;
        }
        let moving = self.give(connection, max)?;
        let (reason, moving) =
            match self.take(to, connection.worker, moving, Origin::AnotherWorker)? {
                Ok(keys) => {
                    return arrived(to, &keys).ok_or(NotMoved::UnknownConnection(connection));
                }
                Err(refused) => refused,
            };
        let from = connection.worker;
        match self.take(from, from, moving, Origin::Worker)? {
            Ok(keys) => {
                let back = arrived(from, &keys);
                let connection = back.map_or(connection, |moved| moved.connection);
                Err(NotMoved::Refused { worker: to, reason, connection })
            }
            Err((again, moving)) => {
                tracing::error!(
                    from,
                    to,
                    "connections that no worker accepts return to theirs, which may end them: {reason}; {again}"
                );
                put_back(&self.0, from as usize, moving, Origin::Worker);
                Err(NotMoved::Late(from))
            }
        }
    }

    fn set_apart(&self, connection: ConnectionId) {
        let ConnectionId { worker, slot, generation } = connection;
        let message = Mail::SetApart(ConnKey::new(slot, generation));
        // One that takes no message has other troubles, and gives nothing when it is asked.
        let _ = self.0.post(worker as usize, message);
    }

    fn work(&self, worker: u32) -> Vec<ConnectionWork> {
        let mut all = Vec::new();
        let mut next = Some(0);
        while let Some(first) = next {
            let (reply, answer) = channel();
            if self.0.post(worker as usize, Mail::Weigh(Weigh { first, reply })).is_err() {
                break;
            }
            let Ok(weighed) = answer.recv_timeout(WORKER_TIMEOUT) else { break };
            let work = |Work { connection, operations, requests }| ConnectionWork {
                connection: named(worker, connection),
                operations: operations.into(),
                requests,
            };
            all.extend(weighed.connections.into_iter().map(work));
            next = weighed.next;
        }
        all
    }
}

impl Moves {
    /// Takes a connection out of its worker, with all that belongs to it.
    fn give(&self, connection: ConnectionId, max: GroupMax) -> Result<Moving<Socket>, NotMoved> {
        let ConnectionId { worker, slot, generation } = connection;
        let key = ConnKey::new(slot, generation);
        let GroupMax { connections, clients } = max;
        let max = proxy::save::GroupMax { connections, clients };
        let wanted = Wanted::One { connection: key, max };
        let mut asked = AskedWorkers::none(1);
        let no_answer = |_: Silent| NotMoved::NoAnswer(worker);
        asked.ask(worker as usize, wanted, &self.0).map_err(no_answer)?;
        let given = match asked.next_within(WORKER_TIMEOUT) {
            Ok(given) => given.ok_or(NotMoved::NoAnswer(worker))?,
            Err(silent) => {
                asked.return_late(self.0.clone());
                return Err(no_answer(silent));
            }
        };
        given.groups.into_iter().next().ok_or(match given.kept {
            Some(Unmovable::NotYet) => NotMoved::Handshake,
            Some(Unmovable::Stays) => NotMoved::Stays,
            Some(Unmovable::WithDraining) => NotMoved::WithDraining,
            Some(Unmovable::TooLarge) => NotMoved::TooLarge(connections),
            Some(Unmovable::Unknown) | None => NotMoved::UnknownConnection(connection),
        })
    }

    /// Has a worker go on with connections; or says why it does not, with them. If it refuses them when this waits no longer, they
    /// return to the worker that they came `from`.
    fn take(
        &self,
        worker: u32,
        from: u32,
        moving: Moving<Socket>,
        origin: Origin,
    ) -> Result<Answer, NotMoved> {
        let (reply, answer) = sync_channel(1);
        let take = Take { moving, origin, number: 0, reply };
        match self.0.post(worker as usize, Mail::Take(take)) {
            Ok(()) => {
                let Ok(taken) = answer.recv_timeout(WORKER_TIMEOUT) else {
                    return_if_refused(answer, from, self.0.clone());
                    return Err(NotMoved::Late(worker));
                };
                Ok(taken.result.map_err(|(error, moving)| (error.to_string(), moving)))
            }
            Err(Mail::Take(take)) => Ok(Err(("it accepts no message".to_owned(), take.moving))),
            Err(_) => Ok(Ok(Vec::new())),
        }
    }
}

/// The connections as a worker has them now; or why it refused them, with them.
type Answer = Result<Vec<ConnKey>, (String, Moving<Socket>)>;

/// The first of the connections that a worker took, by which they were asked for.
fn arrived(worker: u32, keys: &[ConnKey]) -> Option<Moved> {
    keys.first().map(|key| Moved { connection: named(worker, *key), group: keys.len() })
}

fn named(worker: u32, key: ConnKey) -> ConnectionId {
    ConnectionId { worker, slot: key.index(), generation: key.generation() }
}
