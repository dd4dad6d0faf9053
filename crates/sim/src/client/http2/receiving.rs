//! What the client receives for its requests, and what is checked of each.
//!
//! A mistake is an `Err` that names the request; the ledger makes it the failure of the seed.

use wire::h2::ErrorCode;

use super::super::check_own_body;
use super::{Exchange, Http2Client, NOW_AND_THEN, Reading, Sending};
use crate::frames::Heard;
use crate::http::{Body, Head};
use crate::ledger::{Ledger, Outcome};
use crate::network::Network;
use crate::plan::{RequestPlan, ResponseFraming, ResponsePlan, is_request, is_response};

impl Http2Client {
    pub(super) fn digest(
        &mut self,
        ledger: &mut Ledger,
        network: &mut Network,
    ) -> Result<(), String> {
        while let Some(heard) = self.speaker.hear()? {
            match heard {
                Heard::Head { stream, head, is_end } => {
                    self.on_head(stream, &head)?;
                    let id = self.exchange(stream)?.plan.id;
                    ledger.check_versions(id, &head, network.now());
                    if is_end {
                        self.on_end(stream, &[], ledger)?;
                    }
                }
                Heard::Interim { stream, status } => self.on_interim(stream, status)?,
                Heard::Data { stream, bytes, is_end } => {
                    self.on_data(stream, bytes, network)?;
                    if is_end {
                        self.on_end(stream, &[], ledger)?;
                    }
                }
                Heard::End { stream } => self.on_end(stream, &[], ledger)?,
                Heard::Trailers { stream, lines } => self.on_end(stream, &lines, ledger)?,
                Heard::Reset { stream, code } => self.on_reset(stream, code, ledger)?,
                Heard::GoingAway { last_stream, code } => {
                    self.on_going_away(last_stream, code, ledger)?;
                }
                Heard::PingAnswered | Heard::Leave => {}
            }
        }
        Ok(())
    }

    pub(super) fn exchange(&mut self, stream: u32) -> Result<&mut Exchange, String> {
        let mut exchanges = self.exchanges.iter_mut();
        let exchange = exchanges.find(|exchange| exchange.stream == stream);
        exchange.ok_or_else(|| format!("stream {stream} has no request"))
    }

    fn on_interim(&mut self, stream: u32, status: u16) -> Result<(), String> {
        let exchange = self.exchange(stream)?;
        if !matches!(exchange.reading, Reading::Head) {
            return Err(format!("{status} behind the head of {:016x}", exchange.plan.id));
        }
        if status == 100 && matches!(exchange.sending, Sending::Waits(_)) {
            exchange.sending = Sending::Body;
        }
        Ok(())
    }

    pub(super) fn on_head(&mut self, stream: u32, head: &Head) -> Result<(), String> {
        let status = head.status()?;
        let exchange = self.exchange(stream)?;
        let request = &exchange.plan;
        let plan = ResponsePlan::of(request.id);
        let expected = format!("{:016x}", request.id);
        for field in ["connection", "transfer-encoding", "keep-alive", "upgrade"] {
            if head.field(field)?.is_some() {
                return Err(format!("{field} in HTTP/2: {head:?}"));
            }
        }
        let has_body = request.method != "HEAD" && !matches!(status, 204 | 304);
        exchange.reading = match head.field("x-id")? {
            Some(id) if id != expected => {
                return Err(format!("the response to {id} for {expected}"));
            }
            Some(_) if request.tunnel.is_some() && plan.switches && status == 200 => {
                exchange.sending = Sending::Body;
                Reading::Tunnel { at: 0 }
            }
            Some(_) if status != plan.status => {
                return Err(format!("status {status} instead of {}", plan.status));
            }
            Some(_) => {
                if let Some(Body::Length(length)) = head.body()?
                    && length != plan.length as u64
                    && has_body
                {
                    return Err(format!("length {length} instead of {}", plan.length));
                }
                Reading::Body { at: 0 }
            }
            None if head.field("server")? == Some("strait") => {
                // The ledger knows where 404 is right.
                if !matches!(status, 404 | 408 | 502 | 503 | 504) {
                    return Err(format!("Strait answers {status} to a good request"));
                }
                Reading::Own { status, body: Vec::new() }
            }
            None => return Err(format!("a response without a request: {head:?}")),
        };
        if matches!(exchange.sending, Sending::Waits(_)) {
            // There will be no 100; the body may be sent all the same.
            exchange.sending = Sending::Body;
        }
        if matches!(exchange.sending, Sending::WaitsForTunnel) {
            exchange.sending = Sending::Done;
        }
        Ok(())
    }

    pub(super) fn on_data(
        &mut self,
        stream: u32,
        data: Vec<u8>,
        network: &mut Network,
    ) -> Result<(), String> {
        let exchange = self.exchange(stream)?;
        let id = exchange.plan.id;
        let length = data.len() as u64;
        match &mut exchange.reading {
            Reading::Body { at } => {
                if !is_response(id, *at, &data) {
                    return Err(format!("wrong bytes in the body of {id:016x} at {at}"));
                }
                *at += length;
            }
            Reading::Tunnel { at } => {
                let echo: Vec<u8> = data.iter().map(|byte| !byte).collect();
                if !is_request(id, *at, &echo) || *at + length > exchange.sent as u64 {
                    return Err(format!("wrong bytes in the tunnel {id:016x} at {at}"));
                }
                *at += length;
            }
            Reading::Own { body, .. } => body.extend_from_slice(&data),
            Reading::Head | Reading::Done => return Err(format!("data on {id:016x}")),
        }
        self.read_total += length;
        let is_later = self.link.random.chance(self.habits.owes);
        self.speaker.take(stream, data.len(), is_later);
        if is_later {
            self.link.wake_after(NOW_AND_THEN, network);
        }
        Ok(())
    }

    pub(super) fn on_end(
        &mut self,
        stream: u32,
        trailers: &[String],
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let gives_up = self.link.random.chance(300);
        let exchange = self.exchange(stream)?;
        let request = &exchange.plan;
        let reading = std::mem::replace(&mut exchange.reading, Reading::Done);
        let outcome = match reading {
            Reading::Body { at } => {
                check_body(request, at, trailers)?;
                Outcome::Answered
            }
            Reading::Own { status, body } => {
                if request.method != "HEAD" {
                    check_own_body(status, &body)?;
                }
                Outcome::Refused(status)
            }
            Reading::Tunnel { at } if at == request.tunnel.unwrap_or_default() as u64 => {
                Outcome::Answered
            }
            Reading::Tunnel { at } => return Err(format!("the tunnel ended in order at {at}")),
            Reading::Head | Reading::Done => {
                return Err(format!("an end of nothing on {:016x}", request.id));
            }
        };
        ledger.settle(request.id, outcome);
        if exchange.sending == Sending::Done || gives_up {
            self.speaker.codec.reset(stream, ErrorCode::CANCEL);
            self.forget(stream);
        }
        Ok(())
    }

    pub(super) fn on_reset(
        &mut self,
        stream: u32,
        code: ErrorCode,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let is_going_away = self.is_going_away;
        let exchange = self.exchange(stream)?;
        let id = exchange.plan.id;
        let outcome = match (&exchange.reading, code) {
            (Reading::Done, ErrorCode::NO_ERROR | ErrorCode::CANCEL) => Outcome::Answered,
            (Reading::Head, ErrorCode::REFUSED_STREAM) if exchange.is_guessed || is_going_away => {
                Outcome::Declined
            }
            (Reading::Head, ErrorCode::CANCEL | ErrorCode::INTERNAL_ERROR) => Outcome::Unanswered,
            (Reading::Tunnel { at }, _) if *at == exchange.plan.tunnel.unwrap_or(0) as u64 => {
                Outcome::Answered
            }
            (_, ErrorCode::CANCEL | ErrorCode::INTERNAL_ERROR | ErrorCode::CONNECT_ERROR) => {
                Outcome::Truncated
            }
            (reading, code) => return Err(format!("{id:016x} is reset, {code:?} in {reading:?}")),
        };
        ledger.settle(id, outcome);
        self.forget(stream);
        Ok(())
    }

    fn on_going_away(
        &mut self,
        last_stream: u32,
        code: ErrorCode,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        if code != ErrorCode::NO_ERROR {
            return Err(format!("Strait goes away: {code:?}"));
        }
        self.is_going_away = true;
        let before = self.exchanges.len();
        self.exchanges.retain(|exchange| {
            let is_lost = exchange.stream > last_stream;
            if is_lost {
                ledger.settle(exchange.plan.id, Outcome::Declined);
            }
            !is_lost
        });
        self.ended += before - self.exchanges.len();
        Ok(())
    }
}

pub(super) fn check_body(
    request: &RequestPlan,
    length: u64,
    trailers: &[String],
) -> Result<(), String> {
    let (id, plan) = (request.id, ResponsePlan::of(request.id));
    let expected = if request.method == "HEAD" { 0 } else { plan.length as u64 };
    if length != expected {
        return Err(format!("a body of {length} bytes instead of {expected} for {id:016x}"));
    }
    let line = format!("x-check: {id:016x}");
    if trailers.iter().any(|trailer| *trailer != line) {
        return Err(format!("wrong trailers for {id:016x}: {trailers:?}"));
    }
    let wants_trailers = plan.has_trailers
        && plan.framing == ResponseFraming::Chunked
        && request.method != "HEAD"
        && !matches!(plan.status, 204 | 304);
    if wants_trailers && trailers.is_empty() {
        return Err(format!("the trailers of {id:016x} are missing"));
    }
    Ok(())
}
