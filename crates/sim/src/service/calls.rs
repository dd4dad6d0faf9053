//! A service's connections of an RPC protocol: calls are answered in any order.

use std::time::Duration;

use proxy::time::Time;
use wire::rpc::{FrameKind, RpcProtocol};

use super::{Host, IDLE_MAX, SLOWNESS, Timer, Verdict};
use crate::calls::{frame, id_of};
use crate::ledger::Ledger;
use crate::network::{EndId, Network};
use crate::pico::Pico;
use crate::plan::{ResponsePlan, fill_response, is_request};

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    sent: usize,
    /// Calls that wait for their answers: their numbers, ids, and when these come.
    calls: Vec<(u32, u64, Time)>,
    requests: u32,
    /// It breaks when so many bytes are sent.
    breaks_after: Option<usize>,
    hangs: bool,
    is_going_away: bool,
    has_fin: bool,
    paused_until: Time,
}

impl Connection {
    pub(super) fn new() -> Self {
        Self {
            inbound: Vec::new(),
            outbound: Vec::new(),
            sent: 0,
            calls: Vec::new(),
            requests: 0,
            breaks_after: None,
            hangs: false,
            is_going_away: false,
            has_fin: false,
            paused_until: Time::default(),
        }
    }

    /// Whether nothing more will come of it by itself.
    pub(super) const fn hangs(&self) -> bool {
        self.hangs
    }

    /// Whether no call came since there were so many.
    pub(super) const fn is_idle_since(&self, requests: u32) -> bool {
        self.calls.is_empty() && self.requests == requests
    }

    pub(super) fn work(
        &mut self,
        end: EndId,
        host: &mut Host,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<Verdict, String> {
        match network.recv_all(end, usize::MAX, &mut self.inbound) {
            Ok(has_fin) => self.has_fin |= has_fin,
            Err(_) => return Ok(Verdict::Close),
        }
        if network.is_broken(end) || self.has_fin {
            return Ok(Verdict::Close);
        }
        while !self.hangs {
            match self.take_frame(end, host, network, ledger)? {
                Some(Verdict::Keep) => {}
                Some(verdict) => return Ok(verdict),
                None => break,
            }
        }
        self.answer(end, host, network);
        self.write(end, host, network)
    }

    /// Reads one frame, if all of it is here.
    fn take_frame(
        &mut self,
        end: EndId,
        host: &mut Host,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<Option<Verdict>, String> {
        let found = Pico.frame(&self.inbound).map_err(|error| format!("no frame: {error}"))?;
        let Some(found) = found else { return Ok(None) };
        let body_len = usize::try_from(found.body_len).expect("small bodies");
        if self.inbound.len() < found.head_len + body_len {
            return Ok(None);
        }
        let whole: Vec<u8> = self.inbound.drain(..found.head_len + body_len).collect();
        let (head, body) = whole.split_at(found.head_len);
        let number = u32::try_from(found.asked.id).expect("four octets");
        match found.kind {
            FrameKind::Request | FrameKind::OneWay => {}
            FrameKind::HeartbeatAnswer => return Ok(Some(Verdict::Keep)),
            other => return Err(format!("Strait sends {other:?}")),
        }
        let id = id_of(head).ok_or_else(|| format!("not a call of the simulation: {head:?}"))?;
        ledger.saw_stream(id, end, network);
        self.requests += 1;
        let Some(plan) = ledger.plan(id) else { return Ok(Some(Verdict::Keep)) };
        if body.len() != plan.body.len() || !is_request(id, 0, body) {
            return Err(format!("the call {id:016x} has other bytes: {} of them", body.len()));
        }
        let (faults, random) = (&host.faults, &mut host.random);
        if random.chance(faults.close_on_request) {
            return Ok(Some(Verdict::Reset));
        }
        if random.chance(faults.hang) {
            self.hangs = true;
            return Ok(Some(Verdict::Keep));
        }
        if random.chance(faults.truncate) {
            self.breaks_after = Some(self.outbound.len() + random.size(2_000));
        }
        if random.chance(faults.go_away) && !self.is_going_away {
            self.is_going_away = true;
            self.outbound.extend(frame(6, 0, 0, &[], b""));
        }
        if random.chance(50) {
            self.outbound.extend(frame(4, 0, 9, &[], b""));
        }
        if found.kind == FrameKind::Request {
            let pause = random.span(SLOWNESS);
            self.calls.push((number, id, network.now() + pause));
            host.wake_after(end, Timer::Pause, pause, network);
        }
        Ok(Some(Verdict::Keep))
    }

    /// Queues the answers whose time has come.
    fn answer(&mut self, end: EndId, host: &mut Host, network: &mut Network) {
        let now = network.now();
        let is_due = |(_, _, at): &(u32, u64, Time)| *at <= now;
        while let Some(place) = self.calls.iter().position(is_due) {
            let (number, id, _) = self.calls.swap_remove(place);
            let plan = ResponsePlan::of(id);
            let mut body = vec![0; plan.length];
            fill_response(id, 0, &mut body);
            self.outbound.extend(frame(3, status_of(&plan), number, &[], &body));
            if self.calls.is_empty() && host.random.chance(host.faults.close_idle) {
                host.wake_after(end, Timer::Idle(self.requests), IDLE_MAX, network);
            }
        }
    }

    fn write(
        &mut self,
        end: EndId,
        host: &mut Host,
        network: &mut Network,
    ) -> Result<Verdict, String> {
        loop {
            if network.now() < self.paused_until {
                return Ok(Verdict::Keep);
            }
            if self.breaks_after.is_some_and(|after| self.sent >= after) {
                return Ok(Verdict::Reset);
            }
            let left = self.breaks_after.map_or(usize::MAX, |after| after - self.sent);
            let rest = self.outbound.get(self.sent..).unwrap_or_default();
            let rest = rest.get(..left.min(rest.len())).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            let n = 1 + host.random.size(rest.len() - 1);
            match network.send_some(end, rest.get(..n).unwrap_or_default()) {
                Ok(0) => return Ok(Verdict::Keep),
                Ok(n) => self.sent += n,
                Err(_) => return Ok(Verdict::Close),
            }
            if host.random.chance(100) {
                let pause = host.random.span(SLOWNESS).max(Duration::from_nanos(1));
                self.paused_until = network.now() + pause;
                host.wake_after(end, Timer::Pause, pause, network);
            }
        }
        Ok(Verdict::Keep)
    }
}

/// The protocol's status of a response.
pub(crate) const fn status_of(plan: &ResponsePlan) -> u8 {
    match plan.status {
        404 => 3,
        500 => 1,
        _ => 0,
    }
}
