//! The connection to the other process: frames and descriptors, with deadlines of the process's clock.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use ::handover::{FRAME_BYTES_MAX, Message};
use io::Yielding;
use io::packets::{PacketError, Packets, Peer, PeerProcess, ProcessHandle, Received};
use wiped::{Wiped, wipe};

use super::timeouts::PROCESS_END_TIMEOUT;

/// How long a frame may wait for room in the socket.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// Between two looks at other things while nothing comes.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The same while frames wait for room.
pub(super) const FLUSH_INTERVAL: Duration = Duration::from_millis(2);

/// How much longer, ns, than asked a wait takes at least if this process was stopped: on a machine that is busy it is some ms.
const STOPPED_MIN: u64 = 500_000_000;

/// How long a process may take to end once it was killed.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// One connection, from either side.
#[derive(Debug)]
pub(crate) struct Line {
    packets: Packets,
    pub(crate) peer: Peer,
    buffer: Vec<u8>,
    /// Descriptors that came and are not taken yet, in their order.
    pub(crate) descriptors: VecDeque<OwnedFd>,
    /// Frames that wait for room in the socket, once this process may not wait for the other one: the rest of one report, and what is
    /// said once.
    queued: VecDeque<Wiped>,
    /// How long this process was stopped while it waited, ns.
    stopped: u64,
    yielding: Yielding,
}

/// What came.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A frame, with so many descriptors.
    Frame(Wiped, usize),
    /// The other side's end.
    End,
    /// Nothing for a moment.
    Nothing,
}

impl Line {
    pub(crate) fn new(packets: Packets) -> std::io::Result<Self> {
        let peer = packets.peer()?;
        // A byte more than a frame has, so that one that is too long is seen.
        let buffer = vec![0; FRAME_BYTES_MAX + 1];
        let (descriptors, queued) = (VecDeque::new(), VecDeque::new());
        let yielding = Yielding::default();
        Ok(Self { packets, peer, buffer, descriptors, queued, stopped: 0, yielding })
    }

    /// Another handle on the connection.
    pub(crate) fn try_clone(&self) -> std::io::Result<Packets> {
        self.packets.try_clone()
    }

    pub(crate) fn send(
        &mut self,
        frame: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> std::io::Result<()> {
        let began = now();
        let result = self.packets.send(frame, descriptors, SEND_TIMEOUT);
        self.note_wait(began, SEND_TIMEOUT);
        result
    }

    /// A wait is over that was to take so long at most.
    fn note_wait(&mut self, began: u64, timeout: Duration) {
        let late = now().saturating_sub(began.saturating_add(nanos(timeout)));
        self.stopped += if late < STOPPED_MIN { 0 } else { late };
    }

    pub(crate) fn send_message(&mut self, message: &Message) -> std::io::Result<()> {
        self.send(&message.encode(), &[])
    }

    /// Says why this process does not go on with the other one, which does not have to read it.
    pub(crate) fn refuse(&self, reason: String) {
        let frame = Message::GiveUp { reason }.encode();
        // It may be gone.
        let _ = self.packets.send(&frame, &[], Duration::ZERO);
        self.packets.finish();
    }

    /// Sends a frame as soon as there is room in the socket, behind those that wait. The other process may be stopped, and this one
    /// does not wait for it.
    pub(crate) fn queue(&mut self, frame: Wiped) {
        self.queued.push_back(frame);
        self.flush();
    }

    /// Whether frames wait.
    pub(crate) fn is_full(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Whether the other process has read all that was sent to it.
    pub(crate) fn is_read(&self) -> bool {
        !self.is_full() && self.packets.is_read()
    }

    /// Sends what waits and has room.
    pub(crate) fn flush(&mut self) {
        while let Some(frame) = self.queued.front() {
            match self.packets.send(frame, &[], Duration::ZERO) {
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return,
                // Its end shows when it is read from.
                Ok(()) | Err(_) => drop(self.queued.pop_front()),
            }
        }
    }

    /// Lets workers, clients and services run that wait for this processor. A thread of a handover has work for milliseconds, and the
    /// kernel lets a thread that is woken wait for about as long, even where another processor is idle.
    ///
    /// A lower priority (`nice`) would do without, but has handovers fail where the processors are busy with other work.
    pub(crate) fn give_way(&mut self) {
        self.yielding.give_way();
    }

    /// How long this process was stopped while it waited here, ns, since this was asked last.
    pub(crate) const fn take_stopped(&mut self) -> u64 {
        std::mem::replace(&mut self.stopped, 0)
    }

    /// Waits until something comes, `until` is over, or a moment.
    pub(crate) fn receive(&mut self, until: Option<u64>) -> Result<Incoming, PacketError> {
        self.flush();
        let most = if self.is_full() { FLUSH_INTERVAL } else { LOOK_INTERVAL };
        let left = until.map_or(most, |until| Duration::from_nanos(until.saturating_sub(now())));
        let (timeout, began) = (left.min(most), now());
        let received = self.packets.receive(&mut self.buffer, timeout);
        self.note_wait(began, timeout);
        match received? {
            Received::Packet(length, descriptors) => {
                let count = descriptors.len();
                self.descriptors.extend(descriptors);
                let frame = self.buffer.get(..length).unwrap_or_default().to_vec().into();
                // Keys of connections were in it.
                wipe(self.buffer.get_mut(..length).unwrap_or_default());
                Ok(Incoming::Frame(frame, count))
            }
            Received::End => Ok(Incoming::End),
            Received::Nothing => Ok(Incoming::Nothing),
        }
    }
}

impl Line {
    /// The process at the other end; none where it cannot be known, as in a container that does not see it.
    ///
    /// # Errors
    ///
    /// [`PeerGone`]: it has ended.
    pub(super) fn peer_process(&self) -> Result<Option<ProcessHandle>, PeerGone> {
        match self.packets.peer_process() {
            Ok(PeerProcess::Running(process)) => Ok(Some(process)),
            Ok(PeerProcess::Unknown) | Err(_) => Ok(None),
            Ok(PeerProcess::Ended) if self.packets.is_closed() => Err(PeerGone::Closed),
            Ok(PeerProcess::Ended) => Err(PeerGone::Passed),
        }
    }

    /// Kills the process at the other end, and says whether it is over. Where its connection is still open then, a child of it has that, and
    /// all else that it was given.
    pub(super) fn ends(&self, process: Option<&ProcessHandle>) -> bool {
        let ends = |process: &ProcessHandle| {
            process.kill().is_ok() && process.wait(KILL_TIMEOUT).unwrap_or(false)
        };
        process.is_some_and(ends) && self.packets.is_closed()
    }
}

/// The process that connected has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum PeerGone {
    /// And with it its connection.
    Closed,
    /// Another process has its connection.
    Passed,
}

impl PeerGone {
    /// What to say of it.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Closed => "the process that connected has ended",
            Self::Passed => {
                "the process that connected has ended, and another one has its connection"
            }
        }
    }
}

/// Whether the process at the other end is seen to run on, whose connection is over. That is how the end of a process shows, which takes a
/// moment.
pub(super) fn runs_on(process: Option<&ProcessHandle>) -> bool {
    process.is_some_and(|process| !process.wait(PROCESS_END_TIMEOUT).unwrap_or(false))
}

/// Monotonic time, ns.
pub(crate) fn now() -> u64 {
    io::clock::monotonic_ns()
}

/// As many ns, or as many as there can be.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
