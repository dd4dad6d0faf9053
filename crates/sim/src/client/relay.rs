//! A scripted client whose bytes are relayed: it sends its id and its bytes, and receives the
//! service's bytes at the same time. Each side ends independently.

use std::io::ErrorKind;
use std::time::Duration;

use config::snapshot::Address;

use super::link::{Dialogue, Link, Quit};
use super::{Behaviour, Leave};
use crate::ledger::{Ledger, Outcome};
use crate::network::{EndId, Network, PeerId};
use crate::plan::{RelayPlan, RequestPlan, fill_request, is_response};
use crate::random::Random;

/// A scripted client of relayed TCP.
#[derive(Debug)]
pub struct RelayClient {
    link: Link,
    request: RequestPlan,
    plan: RelayPlan,
    outbound: Vec<u8>,
    has_shut: bool,
    got: usize,
}

impl RelayClient {
    /// A client that connects to `address` after `delay`, for one `request`.
    pub fn new(
        peer: PeerId,
        address: Address,
        request: RequestPlan,
        behaviour: Behaviour,
        delay: Duration,
        random: Random,
        network: &mut Network,
    ) -> Self {
        let mut body = vec![0; request.body.len()];
        fill_request(request.id, 0, &mut body);
        let mut outbound = RelayPlan::introduction(request.id).to_vec();
        outbound.extend(body);
        Self {
            link: Link::new(peer, address, behaviour, delay, random, network),
            plan: RelayPlan::of(request.id),
            request,
            outbound,
            has_shut: false,
            got: 0,
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
}

impl Dialogue for RelayClient {
    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn has_stopped_reading(&self) -> bool {
        matches!(self.link.behaviour.leave, Leave::StopsReading(_)) && self.got > 0
    }

    fn read(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        // Its end is that of what it says.
        network.be_careful(end);
        let mut data = Vec::new();
        let result = network.recv_all(end, self.link.read_bytes_max(), &mut data);
        self.link.on_read(data.len(), network);
        let begun = self.got;
        self.got += data.len();
        if !self.is_right(begun, &data) {
            ledger.violate(format!("wrong bytes at {begun}: {}", self.describe()));
            return self.finish(Outcome::Abandoned, Quit::Reset, network, ledger);
        }
        let is_whole = self.got == self.plan.greeted_length();
        match result {
            Ok(false) => {}
            Ok(true) if is_whole && self.link.sent == self.outbound.len() => {
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

    fn write(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        loop {
            let bytes_max = self.link.send_bytes_max();
            if !self.link.may_send(network.now()) {
                return;
            }
            if bytes_max == 0 {
                return self.finish(Outcome::Abandoned, self.link.quit_early(), network, ledger);
            }
            if self.link.sent == self.outbound.len() {
                let is_said = self.link.behaviour.leave == Leave::HalfClose
                    || self.got == self.plan.greeted_length();
                if !self.has_shut && is_said {
                    self.has_shut = true;
                    network.shutdown_write(end);
                    // The other side may have been over before.
                    self.read(end, network, ledger);
                }
                return;
            }
            match self.link.send_piece(end, &self.outbound, network) {
                Ok(0) => return,
                Ok(_) => {}
                Err(_) => {
                    self.link.reads_on();
                    self.read(end, network, ledger);
                    if self.link.is_open() {
                        self.finish(Outcome::Truncated, Quit::Close, network, ledger);
                    }
                    return;
                }
            }
        }
    }

    fn leave(&mut self, _: EndId, _: &mut Network, _: &mut Ledger) {}

    fn finish(&mut self, outcome: Outcome, quit: Quit, network: &mut Network, ledger: &mut Ledger) {
        ledger.settle(self.request.id, outcome);
        self.link.end(quit, network);
    }

    fn moved_total(&self) -> u64 {
        (self.got + self.link.sent) as u64
    }

    fn describe(&self) -> String {
        let Self { link, got, plan, has_shut, request, .. } = self;
        format!(
            "a relay on {link:?}: {got} read, {} to send, shut: {has_shut}, {plan:?}, {request:?}",
            self.outbound.len(),
        )
    }
}
