//! What the old process's side has its caller do.

use std::collections::VecDeque;

use wiped::Wiped;

use crate::deadlines::Phase;
use crate::failure::Failure;
use crate::message::{Difference, Message, Refused, SocketKey, UnusedSocket};
use crate::pace::Collect;
use crate::pieces::{GroupFrame, GroupPack, GroupPiece};

/// What the giver's caller is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GiverAction {
    /// Log and report that a phase began.
    Enter(Phase),
    /// Send a frame without descriptors.
    Send(Wiped),
    /// Send a frame with the file of what sources have delivered.
    SendResources(Wiped),
    /// Send a frame with the listening sockets of these keys.
    SendListening(Wiped, Vec<SocketKey>),
    /// Send the frame of this piece of a group, with its sockets.
    SendPiece(GroupPiece),
    /// Send the frame of these groups, with all their sockets.
    SendPack(GroupPack),
    /// Say what this process is configured to do, by [`Giver::describe`](crate::Giver::describe).
    Describe,
    /// The taker differs there, and goes on. Its connections stay where they are.
    Compared(Vec<Difference>),
    /// The taker only wanted to compare: both are done, and nothing has changed.
    Checked,
    /// Name the listening sockets, by [`Giver::listen`](crate::Giver::listen).
    Listen,
    /// The taker accepts: this process stops to, but on these sockets, which the taker does not use.
    StopAccepting {
        /// The sockets from which it still accepts.
        but: Vec<UnusedSocket>,
    },
    /// Take connections out of the workers and name them, by [`Giver::give`](crate::Giver::give).
    Collect(Collect),
    /// The taker does not take this group: it goes on here.
    TakeBack(Refused),
    /// The taker has these groups, and serves them.
    Taken {
        /// How many.
        groups: u32,
        /// Since when they have stood still, which [`Collected`](crate::Collected) says.
        asked_at: u64,
    },
    /// Write down, by [`Giver::inform`](crate::Giver::inform), what the process knows and may say before it is certain that the taker becomes the
    /// process: counts alone, or, the first time, also what the taker needs to serve as this one did.
    Inform {
        /// Whether it is the first time.
        is_first: bool,
    },
    /// Write down what the process knows, by [`Giver::commit`](crate::Giver::commit).
    Summarize,
    /// The taker is the process.
    Committed,
    /// The handover does not take place, or is over early in probation: everything is this process's
    /// own again, once the other cannot use it any more.
    RollBack {
        /// Why.
        failure: Failure,
        /// Whether the other process may still use what it was given.
        peer: PeerLife,
    },
    /// The taker was asked to commit, and this failure leaves open whether it does: end it, then
    /// [`Giver::on_ended`](crate::Giver::on_ended) with the failure; if that cannot be done,
    /// [`Giver::on_not_ended`](crate::Giver::on_not_ended).
    EndCommitting(Failure),
    /// The taker ended in its probation: this process accepts again.
    AcceptAgain,
    /// The taker is silent in its probation: end it, then [`Giver::on_closed`](crate::Giver::on_closed).
    EndSilent,
    /// It is silent, and could not be ended: this process accepts, too, until it is heard again.
    StandIn,
    /// The taker that was silent runs again, and this process accepts no more: the probation goes on.
    StandBack,
    /// Probation is over: this process ends what it still has, and itself.
    Finish,
    /// The taker knows this of a topic by now, for the case that it ends.
    Learned {
        /// The name of what is known, such as `totals`.
        topic: String,
        /// In the place of what it knew before.
        bytes: Wiped,
    },
    /// The taker in its probation asks this process to take everything back, for this reason. It stays in its probation
    /// until then.
    BecomeTaker(String),
    /// The taker has handed over in its turn: the process whose place this one took is to end what it still has.
    EndFormer,
    /// Two younger processes live: this one ends what it still has at once.
    EndRemaining,
    /// Name the connections that this process still has, from there on, by [`Giver::list`](crate::Giver::list).
    List {
        /// A number for the answer.
        request: u32,
        /// The worker to begin with.
        worker: u32,
        /// The slot there.
        slot: u32,
    },
}

impl GiverAction {
    /// Whether it sends something.
    const fn is_frame(&self) -> bool {
        match self {
            Self::Send(_)
            | Self::SendResources(_)
            | Self::SendListening(..)
            | Self::SendPiece(_)
            | Self::SendPack(_) => true,
            Self::Enter(_)
            | Self::Describe
            | Self::Compared(_)
            | Self::Checked
            | Self::Listen
            | Self::StopAccepting { .. }
            | Self::Collect(_)
            | Self::TakeBack(_)
            | Self::Taken { .. }
            | Self::Inform { .. }
            | Self::Summarize
            | Self::Committed
            | Self::RollBack { .. }
            | Self::EndCommitting(_)
            | Self::AcceptAgain
            | Self::EndSilent
            | Self::StandIn
            | Self::StandBack
            | Self::Finish
            | Self::Learned { .. }
            | Self::BecomeTaker(_)
            | Self::EndFormer
            | Self::EndRemaining
            | Self::List { .. } => false,
        }
    }
}

/// Whether the other process may still use what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerLife {
    /// It ended, or says that it uses nothing.
    Over,
    /// It has closed its connection, as its end does: unless it is seen to run on, it ended.
    Closed,
    /// It has to be ended first.
    InDoubt,
}

impl From<GroupFrame> for GiverAction {
    fn from(frame: GroupFrame) -> Self {
        match frame {
            GroupFrame::Several(pack) => Self::SendPack(pack),
            GroupFrame::OfOne(piece) => Self::SendPiece(piece),
        }
    }
}

/// What is to be done next, first things first.
#[derive(Debug, Default)]
pub(super) struct Actions(VecDeque<GiverAction>);

impl Actions {
    pub(super) fn push(&mut self, action: GiverAction) {
        self.0.push_back(action);
    }

    pub(super) fn send(&mut self, message: &Message) {
        self.push(GiverAction::Send(message.encode()));
    }

    pub(super) fn poll(&mut self) -> Option<GiverAction> {
        self.0.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something is to be sent.
    pub(super) fn have_frame(&self) -> bool {
        self.0.iter().any(GiverAction::is_frame)
    }

    /// What was not sent yet is not: a process that does not read would have each frame wait. Returns whether there was anything.
    pub(super) fn drop_unsent(&mut self) -> bool {
        let before = self.0.len();
        self.0.retain(|action| !action.is_frame());
        self.0.len() < before
    }
}
