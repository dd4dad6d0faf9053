//! What the new process's side has its caller do.

use std::collections::BTreeMap;

use wiped::Wiped;

use crate::deadlines::Phase;
use crate::failure::Failure;
use crate::message::{Downstream, ListedConnections, Part, SocketKey, Welcome};

/// What the taker's caller is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakerAction {
    /// Log and report that a phase began.
    Enter(Phase),
    /// Send a frame.
    Send(Wiped),
    /// Something before this process listens.
    Opening(OpeningAction),
    /// Something while connections move.
    Moving(MovingAction),
    /// Something once this process is the one that serves.
    Following(FollowingAction),
    /// The giver has ended, as it should.
    Finished,
    /// This process does not take over: it is to let everything go and end.
    Stop(Failure),
}

/// What is to be done until this process listens. Descriptors are counted out of those that came, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpeningAction {
    /// The giver says who it is.
    Welcomed(Welcome),
    /// The configuration of the giver has this version: that of this process goes on from there.
    ContinueVersions(u64),
    /// The giver has these connections: a process without room for more does not take over.
    NoteDownstream(Downstream),
    /// Begin with what sources have delivered to the giver, and say so by [`Taker::begun`](crate::Taker::begun): the next descriptor is a file of so
    /// many bytes.
    Begin(u64),
    /// Compare with what this process is configured to do, and say where it differs by
    /// [`Taker::compared`](crate::Taker::compared).
    Compare(Vec<Part>),
    /// Listen on these sockets, the next descriptors, and say so by [`Taker::serving`](crate::Taker::serving).
    Listen(Vec<SocketKey>),
}

/// What is to be done while connections move, until this process takes the place of the other one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MovingAction {
    /// Serve these groups, whose descriptors are the next ones, and say which cannot be by [`Taker::taken`](crate::Taker::taken).
    Take {
        /// The batch.
        batch: u32,
        /// Its groups.
        groups: Vec<ReceivedGroup>,
    },
    /// The giver has said what it knows of this topic, for the first time or something else than before: [`Taker::state`](crate::Taker::state) has it.
    Learned(String),
    /// Take over what the giver knew, and say so by [`Taker::committed`](crate::Taker::committed).
    Commit {
        /// By topic.
        states: BTreeMap<String, Wiped>,
        /// Whether the giver ended before it said all.
        is_alone: bool,
    },
    /// The giver is silent: end it, then [`Taker::on_closed`](crate::Taker::on_closed), or [`Taker::stop_for_silence`](crate::Taker::stop_for_silence) if it cannot be ended.
    EndSilent,
}

/// What the giver says that still has connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowingAction {
    /// It knows more by now.
    Update {
        /// The name of what is known, such as `totals`.
        topic: String,
        /// The newer value.
        bytes: Wiped,
    },
    /// Probation is over, and the service manager knows this process as the main one of its service.
    IsMainProcess,
    /// Some of its connections, as [`Message::ListConnections`](crate::Message::ListConnections) asked.
    Listed(ListedConnections),
}

/// A group that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedGroup {
    /// Its number.
    pub group: u32,
    /// What is written of it.
    pub bytes: Wiped,
    /// How many descriptors of those that came are its own.
    pub sockets: u32,
}
