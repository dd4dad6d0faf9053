//! The half of a client that no protocol is about: its connection to Strait, when it reads and writes, and
//! how it leaves.

use std::time::Duration;
use std::{fmt, io};

use config::snapshot::Address;
use proxy::time::Time;

use super::{Behaviour, Leave};
use crate::ledger::{Ledger, Outcome};
use crate::network::{EndId, Network, Owner, PeerId, Wake};
use crate::random::Random;
use crate::simulation::Asker;

/// Timers: it connects, or goes on with what it waits for.
const START: u64 = 0;
const GO_ON: u64 = 1;

/// A client's connection, and what it is like to be at its other end.
#[derive(Debug)]
pub(super) struct Link {
    peer: PeerId,
    address: Address,
    pub(super) random: Random,
    pub(super) behaviour: Behaviour,
    stage: Stage,
    end: Option<EndId>,
    /// Bytes that were sent.
    pub(super) sent: usize,
    /// It sends nothing before this time.
    paused_until: Time,
    reads_after: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Connecting,
    Open,
    Over,
}

/// What a client does when it wakes up.
#[derive(Clone, Copy, Debug)]
enum Step {
    Nothing,
    /// It reads and writes.
    GoOn(EndId),
    /// There is no connection to be had.
    Lost,
}

/// How a connection is given up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Quit {
    Close,
    BreakOff,
    Reset,
}

impl Link {
    /// A connection to `address` that is asked for after `delay`.
    pub(super) fn new(
        peer: PeerId,
        address: Address,
        behaviour: Behaviour,
        delay: Duration,
        random: Random,
        network: &mut Network,
    ) -> Self {
        network.wake_after(peer, START, delay);
        Self {
            peer,
            address,
            random,
            behaviour,
            stage: Stage::Waiting,
            end: None,
            sent: 0,
            paused_until: Time::default(),
            reads_after: Time::default(),
        }
    }

    fn on_wake(&mut self, wake: Wake, network: &mut Network) -> Step {
        match (self.stage, wake) {
            (Stage::Waiting, Wake::Timer(START)) => {
                match network.connect(Owner::Peer(self.peer), &self.address) {
                    Ok((end, _)) => {
                        self.end = Some(end);
                        self.stage = Stage::Connecting;
                        self.step(network)
                    }
                    Err(_) => Step::Lost,
                }
            }
            (Stage::Connecting | Stage::Open, Wake::Timer(_)) => self.step(network),
            (Stage::Connecting | Stage::Open, Wake::End(end)) if self.end == Some(end) => {
                self.step(network)
            }
            _ => Step::Nothing,
        }
    }

    fn step(&mut self, network: &Network) -> Step {
        let Some(end) = self.end else { return Step::Nothing };
        if self.stage == Stage::Connecting {
            match network.connected(end) {
                None => return Step::Nothing,
                Some(true) => self.stage = Stage::Open,
                Some(false) => return Step::Lost,
            }
        }
        Step::GoOn(end)
    }

    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Whether Strait has to see to its end.
    fn is_owed(&self) -> bool {
        self.stage != Stage::Over && !matches!(self.behaviour.leave, Leave::StopsReading(_))
    }

    // Reading.

    /// Whether it reads, rather than pauses.
    pub(super) fn may_read(&self, now: Time) -> bool {
        now >= self.reads_after
    }

    /// Bytes that it reads at a time.
    pub(super) fn read_bytes_max(&self) -> usize {
        self.behaviour.slow_reading.map_or(usize::MAX, |(bytes, _)| bytes)
    }

    /// It has read so many: one that is slow pauses. Where buffers are tiny it gets less, and pauses less.
    pub(super) fn on_read(&mut self, n: usize, network: &mut Network) {
        if let Some((bytes, pause)) = self.behaviour.slow_reading
            && n > 0
        {
            let pause = pause.mul_f64(n as f64 / bytes as f64);
            self.reads_after = network.now() + pause;
            self.wake_after(pause, network);
        }
    }

    /// It reads all that is there, and pauses no more: a write has failed, and what Strait sent before is
    /// still to be read.
    pub(super) fn reads_on(&mut self) {
        self.behaviour.slow_reading = None;
        self.reads_after = Time::default();
    }

    // Writing.

    /// Whether it sends, rather than pauses.
    pub(super) fn may_send(&self, now: Time) -> bool {
        now >= self.paused_until
    }

    /// Bytes that it sends yet before it leaves.
    pub(super) const fn send_bytes_max(&self) -> usize {
        match self.behaviour.leave {
            Leave::CloseAfter(bytes) | Leave::ResetAfter(bytes) => bytes.saturating_sub(self.sent),
            Leave::Answered | Leave::HalfClose | Leave::StopsReading(_) => usize::MAX,
        }
    }

    /// How it leaves once it has sent as much as it wanted to.
    pub(super) const fn quit_early(&self) -> Quit {
        match self.behaviour.leave {
            Leave::ResetAfter(_) => Quit::BreakOff,
            _ => Quit::Close,
        }
    }

    /// Sends a piece of what is left of `outbound`, of which something is; returns how much went.
    pub(super) fn send_piece(
        &mut self,
        end: EndId,
        outbound: &[u8],
        network: &mut Network,
    ) -> io::Result<usize> {
        let rest = outbound.get(self.sent..).unwrap_or_default();
        let wanted = 1 + self.random.size(rest.len().min(self.send_bytes_max()) - 1);
        let n = network.send_some(end, rest.get(..wanted).unwrap_or_default())?;
        self.sent += n;
        if n > 0 {
            self.may_pause(network);
        }
        Ok(n)
    }

    /// Pauses after a piece, or does not; returns whether it does.
    pub(super) fn may_pause(&mut self, network: &mut Network) -> bool {
        let (chance, pause_max) = self.behaviour.pauses;
        let pauses = self.random.chance(chance);
        if pauses {
            let pause = self.random.span(pause_max);
            self.pause(pause, network);
        }
        pauses
    }

    /// Sends nothing for a while.
    pub(super) fn pause(&mut self, span: Duration, network: &mut Network) {
        self.paused_until = network.now() + span;
        self.wake_after(span, network);
    }

    pub(super) fn wake_after(&self, span: Duration, network: &mut Network) {
        network.wake_after(self.peer, GO_ON, span);
    }

    /// The connection is over.
    pub(super) fn end(&mut self, quit: Quit, network: &mut Network) {
        self.stage = Stage::Over;
        match (self.end.take(), quit) {
            (Some(end), Quit::Close) => network.close(end),
            (Some(end), Quit::BreakOff) => network.break_off(end),
            (Some(end), Quit::Reset) => network.reset(end),
            (None, _) => {}
        }
    }
}

/// What is said over a link, by protocol.
pub(super) trait Dialogue: fmt::Debug {
    fn link(&self) -> &Link;

    fn link_mut(&mut self) -> &mut Link;

    /// Whether it reads no more, and stays.
    fn has_stopped_reading(&self) -> bool;

    /// Reads what is there.
    fn read(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger);

    /// Sends what may be sent.
    fn write(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger);

    /// Leaves, if all is said and heard.
    fn leave(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger);

    /// The connection is over. What is still open of its requests ended with `outcome`.
    fn finish(&mut self, outcome: Outcome, quit: Quit, network: &mut Network, ledger: &mut Ledger);

    fn moved_total(&self) -> u64;

    fn describe(&self) -> String;

    fn go_on(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        if self.has_stopped_reading() {
            if network.is_broken(end) {
                self.finish(Outcome::Abandoned, Quit::Close, network, ledger);
            }
            return;
        }
        if self.link().may_read(network.now()) {
            self.read(end, network, ledger);
        }
        if self.link().is_open() {
            self.write(end, network, ledger);
        }
        if self.link().is_open() {
            self.leave(end, network, ledger);
        }
    }
}

impl<D: Dialogue> Asker for D {
    fn on_wake(&mut self, wake: Wake, network: &mut Network, ledger: &mut Ledger) {
        match self.link_mut().on_wake(wake, network) {
            Step::Nothing => {}
            Step::GoOn(end) => self.go_on(end, network, ledger),
            Step::Lost => self.finish(Outcome::Unanswered, Quit::Close, network, ledger),
        }
    }

    fn is_over(&self) -> bool {
        self.link().is_over()
    }

    fn is_owed(&self) -> bool {
        self.link().is_owed()
    }

    fn moved_total(&self) -> u64 {
        Dialogue::moved_total(self)
    }

    fn describe(&self) -> String {
        Dialogue::describe(self)
    }

    fn quit(&mut self, network: &mut Network, ledger: &mut Ledger) {
        self.finish(Outcome::Abandoned, Quit::Reset, network, ledger);
    }
}
