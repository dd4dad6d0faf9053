//! A scripted client of an RPC protocol: it has several calls under way at a time, which are answered in
//! any order, and checks that each answer is that of its call.

use std::collections::BTreeMap;
use std::time::Duration;

use config::snapshot::Address;
use wire::rpc::{FrameKind, RpcProtocol};

use super::link::{Dialogue, Link, Quit};
use super::{Behaviour, Leave};
use crate::calls::call;
use crate::ledger::{Ledger, Outcome};
use crate::network::{EndId, Network, PeerId};
use crate::pico::Pico;
use crate::plan::{RequestPlan, ResponsePlan, fill_request, is_response};
use crate::random::Random;
use crate::service::status_of;

/// A scripted client of an RPC protocol.
#[derive(Debug)]
pub struct CallsClient {
    link: Link,
    /// Those that are still to be sent, the last first.
    requests: Vec<RequestPlan>,
    /// Those that wait for their answers, by number.
    asked: BTreeMap<u32, RequestPlan>,
    numbers: u32,
    outbound: Vec<u8>,
    inbound: Vec<u8>,
    answers: usize,
    got: u64,
}

impl CallsClient {
    /// A client that connects to `address` after `delay`, for these `requests`.
    pub fn new(
        peer: PeerId,
        address: Address,
        mut requests: Vec<RequestPlan>,
        behaviour: Behaviour,
        delay: Duration,
        random: Random,
        network: &mut Network,
    ) -> Self {
        requests.reverse();
        Self {
            link: Link::new(peer, address, behaviour, delay, random, network),
            requests,
            asked: BTreeMap::new(),
            numbers: 0,
            outbound: Vec::new(),
            inbound: Vec::new(),
            answers: 0,
            got: 0,
        }
    }

    /// Whether a call has no answer: every client says so of the same ones.
    const fn is_one_way(request: &RequestPlan) -> bool {
        request.id.is_multiple_of(8)
    }

    /// The next frame, with its number, if all of it is here.
    fn take_answer(&mut self) -> Option<Result<(u32, Vec<u8>), String>> {
        let frame = match Pico.frame(&self.inbound) {
            Ok(frame) => frame?,
            Err(error) => return Some(Err(error.to_string())),
        };
        let length = frame.head_len + usize::try_from(frame.body_len).expect("a small body");
        if self.inbound.len() < length {
            return None;
        }
        let whole = self.inbound.drain(..length).collect();
        if frame.kind != FrameKind::Response {
            return Some(Err(format!("a frame of another kind: {frame:?}")));
        }
        Some(Ok((u32::try_from(frame.asked.id).expect("four octets"), whole)))
    }

    /// Whether this answers a call that waits, with what belongs to it.
    fn judge(&mut self, number: u32, whole: &[u8], ledger: &mut Ledger) -> Result<(), String> {
        let request = self.asked.remove(&number);
        let request = request.ok_or_else(|| format!("an answer to nothing: {number}"))?;
        self.answers += 1;
        let plan = ResponsePlan::of(request.id);
        let [_, status, f0, f1, ..] = *whole else { return Err("no frame".to_owned()) };
        let body_at = 12 + usize::from(u16::from_be_bytes([f0, f1]));
        let body = whole.get(body_at..).unwrap_or_default();
        let is_its = status == status_of(&plan)
            && body.len() == plan.length
            && is_response(request.id, 0, body);
        // Strait's own say why, in words.
        let is_reply = status != 0 && body.len() < 300 && body.is_ascii() && !body.is_empty();
        let outcome = match (is_its, is_reply) {
            (true, _) => Outcome::Answered,
            (false, true) => Outcome::Refused(u16::from(status)),
            (false, false) => return Err(format!("another answer to {:016x}", request.id)),
        };
        ledger.settle(request.id, outcome);
        Ok(())
    }

    /// Begins the next call, unless there is none or enough are under way.
    fn ask(&mut self, ledger: &mut Ledger) -> bool {
        if self.asked.len() > self.link.behaviour.pipelined_max {
            return false;
        }
        let Some(request) = self.requests.pop() else { return false };
        self.numbers += 1 + u32::from(self.link.random.chance(100)) * 1_000;
        let mut body = vec![0; request.body.len()];
        fill_request(request.id, 0, &mut body);
        let is_one_way = Self::is_one_way(&request);
        self.outbound.extend(call(is_one_way, self.numbers, request.id, &body));
        if is_one_way {
            ledger.settle(request.id, Outcome::Answered);
        } else {
            self.asked.insert(self.numbers, request);
        }
        true
    }
}

impl Dialogue for CallsClient {
    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn has_stopped_reading(&self) -> bool {
        matches!(self.link.behaviour.leave, Leave::StopsReading(after) if self.answers >= after)
    }

    fn read(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        let before = self.inbound.len();
        let result = network.recv_all(end, self.link.read_bytes_max(), &mut self.inbound);
        let read = self.inbound.len() - before;
        self.got += read as u64;
        self.link.on_read(read, network);
        while let Some(answer) = self.take_answer() {
            if let Err(what) = answer.and_then(|(number, whole)| self.judge(number, &whole, ledger))
            {
                ledger.violate(format!("{what}: {}", self.describe()));
                return self.finish(Outcome::Abandoned, Quit::Reset, network, ledger);
            }
        }
        if !matches!(result, Ok(false)) {
            let outcome =
                if self.inbound.is_empty() { Outcome::Unanswered } else { Outcome::Truncated };
            self.finish(outcome, Quit::Close, network, ledger);
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
            if self.link.sent == self.outbound.len() && !self.ask(ledger) {
                return;
            }
            match self.link.send_piece(end, &self.outbound, network) {
                Ok(0) => return,
                Ok(_) => {}
                Err(_) => {
                    self.link.reads_on();
                    self.read(end, network, ledger);
                    if self.link.is_open() {
                        self.finish(Outcome::Unanswered, Quit::Close, network, ledger);
                    }
                    return;
                }
            }
        }
    }

    fn leave(&mut self, _: EndId, network: &mut Network, ledger: &mut Ledger) {
        if self.requests.is_empty()
            && self.asked.is_empty()
            && self.link.sent == self.outbound.len()
        {
            self.finish(Outcome::Answered, Quit::Close, network, ledger);
        }
    }

    fn finish(&mut self, outcome: Outcome, quit: Quit, network: &mut Network, ledger: &mut Ledger) {
        for request in self.asked.values() {
            ledger.settle(request.id, outcome);
        }
        for request in &self.requests {
            ledger.settle(request.id, Outcome::Unsent);
        }
        self.link.end(quit, network);
    }

    fn moved_total(&self) -> u64 {
        self.got + self.link.sent as u64
    }

    fn describe(&self) -> String {
        let Self { link, asked, requests, inbound, .. } = self;
        format!(
            "calls on {link:?}: {asked:?} under way, {} to come, {} to send, {} octets of an answer",
            requests.len(),
            self.outbound.len(),
            inbound.len(),
        )
    }
}
