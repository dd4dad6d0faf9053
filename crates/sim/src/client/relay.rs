//! A scripted client whose bytes are relayed: it sends its id and its bytes, and receives the
//! service's bytes at the same time. Each side ends independently.

use std::io::ErrorKind;
use std::time::Duration;

use config::snapshot::Address;
use proxy::time::Time;

use super::{Leave, Manners, Quit};
use crate::ledger::{Ledger, Outcome};
use crate::network::{EndId, Network, Owner, PeerId, Wake};
use crate::plan::{RelayPlan, RequestPlan, fill_request, is_response};
use crate::random::Random;
use crate::simulation::Asker;

/// Timers.
const START: u64 = 0;
const GO_ON: u64 = 1;

/// A scripted client of relayed TCP.
#[derive(Debug)]
pub struct RelayClient {
    peer: PeerId,
    address: Address,
    random: Random,
    manners: Manners,
    request: RequestPlan,
    plan: RelayPlan,
    stage: Stage,
    end: Option<EndId>,
    outbound: Vec<u8>,
    sent: usize,
    has_shut: bool,
    got: usize,
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

impl RelayClient {
    /// A client that connects to `address` after `delay`, for one `request`.
    pub fn new(
        peer: PeerId,
        address: Address,
        request: RequestPlan,
        manners: Manners,
        delay: Duration,
        random: Random,
        network: &mut Network,
    ) -> Self {
        let mut body = vec![0; request.body.len()];
        fill_request(request.id, 0, &mut body);
        let mut outbound = RelayPlan::introduction(request.id).to_vec();
        outbound.extend(body);
        network.wake_after(peer, START, delay);
        Self {
            peer,
            address,
            random,
            manners,
            plan: RelayPlan::of(request.id),
            request,
            stage: Stage::Waiting,
            end: None,
            outbound,
            sent: 0,
            has_shut: false,
            got: 0,
            paused_until: Time::default(),
            reads_after: Time::default(),
        }
    }

    fn go_on(&mut self, network: &mut Network, ledger: &mut Ledger) {
        let Some(end) = self.end else { return };
        if self.stage == Stage::Connecting {
            match network.connected(end) {
                None => return,
                Some(true) => self.stage = Stage::Open,
                Some(false) => {
                    return self.finish(Outcome::Unanswered, Quit::Close, network, ledger);
                }
            }
        }
        if matches!(self.manners.leave, Leave::StopsReading(_)) && self.got > 0 {
            if network.is_broken(end) {
                self.finish(Outcome::Abandoned, Quit::Close, network, ledger);
            }
            return;
        }
        // Its end is that of what it says.
        network.be_careful(end);
        if network.now() >= self.reads_after {
            self.read(end, network, ledger);
        }
        if self.stage == Stage::Open {
            self.write(end, network, ledger);
        }
    }

    fn read(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        let bytes_max = self.manners.slow_reading.map_or(usize::MAX, |(bytes, _)| bytes);
        let mut data = Vec::new();
        let result = network.recv_all(end, bytes_max, &mut data);
        if let Some((bytes, pause)) = self.manners.slow_reading
            && !data.is_empty()
        {
            let pause = pause.mul_f64(data.len() as f64 / bytes as f64);
            self.reads_after = network.now() + pause;
            network.wake_after(self.peer, GO_ON, pause);
        }
        let begun = self.got;
        self.got += data.len();
        if !self.is_right(begun, &data) {
            ledger.violate(format!("wrong bytes at {begun}: {}", self.describe()));
            return self.finish(Outcome::Abandoned, Quit::Reset, network, ledger);
        }
        let is_whole = self.got == self.plan.greeted_length();
        match result {
            Ok(false) => {}
            Ok(true) if is_whole && self.sent == self.outbound.len() => {
                self.finish(Outcome::Answered, Quit::Close, network, ledger);
            }
            Ok(true) if is_whole => {
                // The service has sent everything, and reads on.
            }
            Ok(true) if !network.is_broken(end) && !ledger.has_broken_off(self.request.id) => {
                ledger.violate(format!("ended in order before its time: {}", self.describe()));
                self.finish(Outcome::Truncated, Quit::Close, network, ledger);
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                // Whatever was cut off is reset.
                ledger.violate(format!("ended without close_notify: {}", self.describe()));
                self.finish(Outcome::Truncated, Quit::Close, network, ledger);
            }
            Ok(true) | Err(_) => {
                let is_begun = self.got > 0;
                let outcome = if is_begun { Outcome::Truncated } else { Outcome::Unanswered };
                self.finish(outcome, Quit::Close, network, ledger);
            }
        }
    }

    fn is_right(&self, at: usize, data: &[u8]) -> bool {
        let greeting = RelayPlan::GREETING.get(at..).unwrap_or_default();
        let (greeted, rest) = data.split_at(greeting.len().min(data.len()));
        let at = (at + greeted.len()).saturating_sub(RelayPlan::GREETING.len());
        greeting.starts_with(greeted)
            && is_response(self.request.id, at as u64, rest)
            && self.got <= self.plan.greeted_length()
    }

    fn write(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        let limit = match self.manners.leave {
            Leave::CloseAfter(bytes) | Leave::ResetAfter(bytes) => bytes,
            Leave::Answered | Leave::HalfClose | Leave::StopsReading(_) => usize::MAX,
        };
        loop {
            let now = network.now();
            if now < self.paused_until {
                return;
            }
            if self.sent >= limit {
                let is_reset = matches!(self.manners.leave, Leave::ResetAfter(_));
                let quit = if is_reset { Quit::BreakOff } else { Quit::Close };
                return self.finish(Outcome::Abandoned, quit, network, ledger);
            }
            let rest = self.outbound.get(self.sent..).unwrap_or_default();
            if rest.is_empty() {
                let is_said = self.manners.leave == Leave::HalfClose
                    || self.got == self.plan.greeted_length();
                if !self.has_shut && is_said {
                    self.has_shut = true;
                    network.shutdown_write(end);
                    // The other side may have been over before.
                    self.read(end, network, ledger);
                }
                return;
            }
            let wanted = 1 + self.random.size(rest.len().min(limit - self.sent) - 1);
            match network.send_some(end, rest.get(..wanted).unwrap_or_default()) {
                Ok(0) => return,
                Ok(n) => self.sent += n,
                Err(_) => {
                    self.manners.slow_reading = None;
                    self.read(end, network, ledger);
                    if self.stage == Stage::Open {
                        self.finish(Outcome::Truncated, Quit::Close, network, ledger);
                    }
                    return;
                }
            }
            let (chance, pause_max) = self.manners.pauses;
            if self.random.chance(chance) {
                let pause = self.random.span(pause_max);
                self.paused_until = now + pause;
                network.wake_after(self.peer, GO_ON, pause);
            }
        }
    }

    fn finish(&mut self, outcome: Outcome, quit: Quit, network: &mut Network, ledger: &mut Ledger) {
        ledger.settle(self.request.id, outcome);
        self.stage = Stage::Over;
        match (self.end.take(), quit) {
            (Some(end), Quit::Close) => network.close(end),
            (Some(end), Quit::BreakOff) => network.break_off(end),
            (Some(end), Quit::Reset) => network.reset(end),
            (None, _) => {}
        }
    }
}

impl Asker for RelayClient {
    fn on_wake(&mut self, wake: Wake, network: &mut Network, ledger: &mut Ledger) {
        match (self.stage, wake) {
            (Stage::Waiting, Wake::Timer(START)) => {
                match network.connect(Owner::Peer(self.peer), &self.address) {
                    Ok((end, _)) => {
                        self.end = Some(end);
                        self.stage = Stage::Connecting;
                        self.go_on(network, ledger);
                    }
                    Err(_) => self.finish(Outcome::Unanswered, Quit::Close, network, ledger),
                }
            }
            (Stage::Connecting | Stage::Open, Wake::Timer(_)) => self.go_on(network, ledger),
            (Stage::Connecting | Stage::Open, Wake::End(end)) if self.end == Some(end) => {
                self.go_on(network, ledger);
            }
            _ => {}
        }
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    fn is_owed(&self) -> bool {
        self.stage != Stage::Over && !matches!(self.manners.leave, Leave::StopsReading(_))
    }

    fn moved_total(&self) -> u64 {
        (self.got + self.sent) as u64
    }

    fn describe(&self) -> String {
        let Self { peer, end, stage, got, plan, sent, has_shut, manners, request, .. } = self;
        format!(
            "{peer:?} {end:?} {stage:?} of a relay: {got} read, {sent} of {} sent, shut: {has_shut}, \
             {plan:?}, {manners:?}, {request:?}",
            self.outbound.len(),
        )
    }

    fn quit(&mut self, network: &mut Network, ledger: &mut Ledger) {
        self.finish(Outcome::Abandoned, Quit::Reset, network, ledger);
    }
}
