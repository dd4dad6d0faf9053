//! A service's connections that are relayed.

use std::io::ErrorKind;
use std::time::Duration;

use super::{Host, SLOWNESS, Timer, Verdict};
use crate::ledger::Ledger;
use crate::network::{EndId, Network};
use crate::plan::{RelayPlan, fill_response, is_request};

/// One relayed connection.
#[derive(Debug)]
pub(super) struct Connection {
    inbound: Vec<u8>,
    client: Option<Known>,
    outbound: Vec<u8>,
    sent: usize,
    paused_until: proxy::time::Time,
    /// Bytes to send before it breaks, if it is to.
    breaks_after: Option<usize>,
    stops_reading: bool,
    has_fin: bool,
    has_shut: bool,
}

/// What is known of the client.
#[derive(Debug)]
struct Known {
    id: u64,
    at: u64,
}

impl Connection {
    pub(super) fn new() -> Self {
        Self {
            inbound: Vec::new(),
            client: None,
            outbound: RelayPlan::GREETING.to_vec(),
            sent: 0,
            paused_until: proxy::time::Time::default(),
            breaks_after: None,
            stops_reading: false,
            has_fin: false,
            has_shut: false,
        }
    }

    /// Whether nothing more will come of it by itself.
    pub(super) const fn hangs(&self) -> bool {
        self.stops_reading
    }

    pub(super) fn work(
        &mut self,
        end: EndId,
        host: &mut Host,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<Verdict, String> {
        // Its end is that of what it says.
        network.be_careful(end);
        if !self.stops_reading {
            match network.recv_all(end, usize::MAX, &mut self.inbound) {
                Ok(has_fin) => self.has_fin |= has_fin,
                // A health check says nothing, and may end with what it was sent unread.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && self.client.is_none() => {
                    return Ok(Verdict::Close);
                }
                // Whatever was cut off is reset.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(format!("{:?} ended without close_notify", self.client));
                }
                Err(_) => return Ok(Verdict::Close),
            }
        }
        if network.is_broken(end) {
            return Ok(Verdict::Close);
        }
        if let Some(verdict) = self.read(end, host, network, ledger)? {
            return Ok(verdict);
        }
        self.write(end, host, network, ledger)
    }

    fn read(
        &mut self,
        end: EndId,
        host: &mut Host,
        network: &Network,
        ledger: &mut Ledger,
    ) -> Result<Option<Verdict>, String> {
        if self.client.is_none() {
            if !self.take_proxy_header()? {
                return Ok(self.has_fin.then_some(Verdict::Close));
            }
            let Some((introduction, _)) = self.inbound.split_first_chunk::<9>() else {
                // A client that leaves at once has sent nothing.
                return Ok(self.has_fin.then_some(Verdict::Close));
            };
            let [0, id @ ..] = *introduction else {
                // Detection timed out before the bytes showed HTTP.
                return Ok(Some(Verdict::Reset));
            };
            let id = u64::from_be_bytes(id);
            self.inbound.drain(..9);
            ledger.saw(id, end, network);
            let mut body = vec![0; RelayPlan::of(id).length];
            fill_response(id, 0, &mut body);
            self.outbound.extend(body);
            self.client = Some(Known { id, at: 0 });
            let faults = &host.faults;
            if host.random.chance(faults.close_on_request.max(faults.truncate)) {
                self.breaks_after = Some(host.random.length_below(self.outbound.len()));
            }
            self.stops_reading =
                host.random.chance(faults.stop_reading) || host.random.chance(faults.hang);
        }
        let Some(Known { id, at }) = &mut self.client else { return Ok(None) };
        if !is_request(*id, *at, &self.inbound) {
            return Err(format!("wrong bytes of the relay {id:016x} at {at}"));
        }
        *at += self.inbound.len() as u64;
        self.inbound.clear();
        let expected = ledger.plan(*id).map_or(0, |plan| plan.body.len() as u64);
        if *at > expected || (self.has_fin && *at < expected && !ledger.may_leave_early(*id)) {
            return Err(format!("the relay {id:016x} has {at} bytes instead of {expected}"));
        }
        Ok(None)
    }

    /// Takes the PROXY protocol's line, if there is one; says whether what follows may be read.
    fn take_proxy_header(&mut self) -> Result<bool, String> {
        if self.inbound.first() != Some(&b'P') {
            return Ok(true);
        }
        let Some(end) = self.inbound.iter().position(|byte| *byte == b'\n') else {
            return if self.inbound.len() < 110 { Ok(false) } else { Err("no PROXY line".into()) };
        };
        if self.inbound.starts_with(b"PROXY ") {
            self.inbound.drain(..=end);
        }
        Ok(true)
    }

    fn write(
        &mut self,
        end: EndId,
        host: &mut Host,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<Verdict, String> {
        loop {
            if network.now() < self.paused_until {
                return Ok(Verdict::Keep);
            }
            if self.breaks_after.is_some_and(|after| self.sent >= after) {
                if let Some(Known { id, .. }) = self.client
                    && network.is_secure(end)
                {
                    ledger.may_break_off(id);
                }
                return Ok(Verdict::Reset);
            }
            let rest = self.outbound.get(self.sent..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            let n = 1 + host.random.size(rest.len() - 1);
            match network.send_some(end, rest.get(..n).unwrap_or_default()) {
                Ok(0) => return Ok(Verdict::Keep),
                Ok(n) => self.sent += n,
                Err(_) => return Ok(Verdict::Close),
            }
            let pause =
                if host.random.chance(100) { host.random.span(SLOWNESS) } else { Duration::ZERO };
            if !pause.is_zero() {
                self.paused_until = network.now() + pause;
                host.wake_after(end, Timer::Pause, pause, network);
            }
        }
        if self.has_fin {
            return Ok(Verdict::Close);
        }
        let is_early = self.client.as_ref().is_some_and(|client| client.id % 2 == 0);
        if is_early && !self.has_shut {
            // It has sent everything, and reads on.
            self.has_shut = true;
            network.shutdown_write(end);
        }
        Ok(Verdict::Keep)
    }
}
