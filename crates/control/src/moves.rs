//! Connections that move between the workers of this process: what is asked, and what comes of it.
//!
//! A connection goes with all that belongs to it, as at a handover to another process. No configuration is taken up
//! while one is on its way, so that both workers know the same listeners, chains and clusters.

use std::fmt;
use std::str::FromStr;

/// What moves together between workers, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMax {
    /// Connections, of clients and upstreams.
    pub connections: usize,
    /// Connections of clients.
    pub clients: usize,
}

/// Where an operator says so.
pub(crate) const ASKED_MAX: GroupMax = GroupMax { connections: 65_536, clients: 65_536 };

/// Where `rebalance` does: several clients may be all that a worker is busy with, so that the other one would be instead.
pub(crate) const REBALANCED_MAX: GroupMax = GroupMax { connections: 1_024, clients: 1 };

/// Names a connection until it is closed or moves: `/connections` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    /// Its worker, from 0.
    pub worker: u32,
    /// Its slot there.
    pub slot: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.worker, self.slot, self.generation)
    }
}

impl FromStr for ConnectionId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let mut numbers = text.split('.').map(str::parse);
            let id = Self {
                worker: numbers.next()?.ok()?,
                slot: numbers.next()?.ok()?,
                generation: numbers.next()?.ok()?,
            };
            numbers.next().is_none().then_some(id)
        };
        read().ok_or("what `id` of /connections says, such as 0.17.2")
    }
}

/// A connection that has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// What it is named by now.
    pub connection: ConnectionId,
    /// How many moved together, this one among them.
    pub group: usize,
}

/// Why a connection did not move.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMoved {
    /// A TLS handshake is finished where it began, and so are two attempts beside each other.
    #[error("a TLS handshake or a hedged attempt has to end first: try again")]
    Handshake,
    /// A worker was to take it, and has not said within seconds whether it did.
    #[error("worker {0} does not respond: the connection continues there if that worker does")]
    Late(u32),
    /// A worker does not look at its messages; nothing has moved.
    #[error("worker {0} does not respond: try again")]
    NoAnswer(u32),
    /// The process is at something that connections have to wait for.
    #[error("connections cannot move now: {0}")]
    NotNow(String),
    /// It is of the process whose place this one took.
    #[error(
        "connection {connection} belongs to process {pid}, which was replaced: it stays there until it ends"
    )]
    OfOldProcess {
        /// That process.
        pid: u32,
        /// The connection there.
        connection: ConnectionId,
    },
    /// The other worker refused it.
    #[error("worker {worker} refused the connection: {reason}; its id is now {connection}")]
    Refused {
        /// The other worker.
        worker: u32,
        /// Why.
        reason: String,
        /// What it is named by now, where it was.
        connection: ConnectionId,
    },
    /// It is where it is to go.
    #[error("the connection is on worker {0} already")]
    SameWorker(u32),
    /// Elsewhere it would meet what its listener has now.
    #[error(
        "a reload has removed its listener or filter chain, or asks more of connections there: it drains, and cannot move"
    )]
    Stays,
    /// The connections that belong together are more than move at once.
    #[error("more than {0} connections would have to move together")]
    TooLarge(usize),
    /// There is none of this name.
    #[error("there is no connection {0}: it was closed, or has moved since")]
    UnknownConnection(ConnectionId),
    /// There is no such process beside this one.
    #[error("process {0} has ended, or this one did not replace it")]
    UnknownProcess(u32),
    /// Another connection of its group stays.
    #[error("a connection of its group drains after a reload: try again once that has ended")]
    WithDraining,
    /// There is no such worker.
    #[error("there is no worker {worker}: the last is {last}")]
    UnknownWorker {
        /// The one that was asked for.
        worker: u32,
        /// The last that there is.
        last: u32,
    },
}

impl NotMoved {
    /// The status of an answer with it.
    pub(crate) const fn status(&self) -> u16 {
        match self {
            Self::UnknownConnection(_) | Self::UnknownProcess(_) | Self::UnknownWorker { .. } => {
                404
            }
            Self::Handshake | Self::Refused { .. } | Self::SameWorker(_) => 409,
            Self::NotNow(_) | Self::OfOldProcess { .. } | Self::TooLarge(_) => 409,
            Self::Stays | Self::WithDraining => 409,
            Self::Late(_) | Self::NoAnswer(_) => 503,
        }
    }
}

/// What a connection of a client has had done for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionWork {
    /// The connection of the client.
    pub connection: ConnectionId,
    /// Reads, writes and events since its worker was asked last.
    pub operations: u32,
    /// Requests since it was accepted.
    pub requests: u32,
}

/// Moves connections. Its methods wait for workers: control calls them on a thread that may.
pub trait Mover: Send + 'static {
    /// Moves a connection with all that belongs to it to another worker, if these are no more than `max`.
    ///
    /// # Errors
    ///
    /// Why it did not; it goes on where it was.
    fn move_group(
        &self,
        connection: ConnectionId,
        to: u32,
        max: GroupMax,
    ) -> Result<Moved, NotMoved>;

    /// Has the next requests of a client's connection go on upstream connections of its own, so that its group becomes small.
    fn set_apart(&self, connection: ConnectionId);

    /// The clients' connections of a worker for which something was done since this was asked last.
    fn work(&self, worker: u32) -> Vec<ConnectionWork>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_shown_and_nothing_else_is() {
        let id = ConnectionId { worker: 1, slot: 17, generation: 4_294_967_295 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in
            ["", "1", "1.2", "1.2.", "1.2.3.", "1.2.3.4", "-1.2.3", "a.b.c", "1.2.4294967296"]
        {
            assert!(text.parse::<ConnectionId>().is_err(), "{text}");
        }
    }
}
