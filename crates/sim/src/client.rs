//! Scripted clients, here one of HTTP/1: one connection that sends some requests and checks the
//! responses.

mod calls;
mod http2;
mod link;
mod pieces;
mod relay;

use std::io::ErrorKind;
use std::time::Duration;

use config::snapshot::Address;
use proxy::fault::consequence;
use proxy::time::Time;
use telemetry::cause::Cause;

use crate::http::{Body, Head, Inbound};
use crate::ledger::{Ledger, Outcome};
use crate::network::{EndId, Network, PeerId};
use crate::plan::is_response;
use crate::plan::{RequestPlan, ResponseFraming, ResponsePlan};
use crate::random::Random;

pub use calls::CallsClient;
pub use http2::Http2Client;
use link::{Dialogue, Link, Quit};
use pieces::pieces;
pub use relay::RelayClient;

/// How long a client waits for a `100 Continue` before it sends the body without one.
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

/// How a client behaves besides sending requests.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Requests that it sends before an earlier one is answered.
    pub pipelined_max: usize,
    /// How it leaves.
    pub leave: Leave,
    /// Bytes that it reads at a time, and how long it pauses after them.
    pub slow_reading: Option<(usize, Duration)>,
    /// How likely it pauses between two pieces, in thousandths, and how long at most.
    pub pauses: (u32, Duration),
    /// How long it waits between requests at most.
    pub thinks: Duration,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It closes when everything is answered.
    Answered,
    /// It half-closes when everything is sent, and reads on.
    HalfClose,
    /// It closes when so many bytes are sent.
    CloseAfter(usize),
    /// It resets when so many bytes are sent.
    ResetAfter(usize),
    /// It stops reading when so many responses are there, and stays.
    StopsReading(usize),
}

/// A piece of what a client sends.
#[derive(Debug)]
struct Piece {
    gate: Gate,
    bytes: Vec<u8>,
    /// The request that it belongs to.
    request: usize,
}

/// The condition that a piece waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// So many responses.
    Answers(usize),
    /// So many responses, and then a while.
    Think(usize),
    /// A `100 Continue`, a response, or [`CONTINUE_PATIENCE`].
    Continue,
    /// The tunnel.
    Tunnel,
}

/// Where a client stands in what it reads.
#[derive(Debug)]
enum Reading {
    Head,
    Body { body: Body, at: u64, ends_connection: bool },
    Tunnel { at: u64 },
}

/// A scripted client.
#[derive(Debug)]
pub struct Client {
    link: Link,
    requests: Vec<RequestPlan>,
    pieces: Vec<Piece>,
    /// The piece to send, and how much of it is sent.
    sending: (usize, usize),
    /// Since when the current gate has been closed.
    waits_since: Option<Time>,
    inbound: Inbound,
    reading: Reading,
    trailers: Vec<String>,
    /// Status and body of the reply that is read, if Strait made it.
    own_status: Option<u16>,
    own_body: Vec<u8>,
    answered: usize,
    may_continue: bool,
    has_tunnel: bool,
    /// The connection ends with the response that was read last.
    is_last: bool,
    has_half_closed: bool,
    /// Response bytes read, for a test of back-pressure.
    read_total: u64,
}

impl Client {
    /// A client that connects to `address` after `delay`.
    pub fn new(
        peer: PeerId,
        address: Address,
        requests: Vec<RequestPlan>,
        behaviour: Behaviour,
        delay: Duration,
        mut random: Random,
        network: &mut Network,
    ) -> Self {
        let pieces = pieces(&requests, &behaviour, &mut random);
        Self {
            link: Link::new(peer, address, behaviour, delay, random, network),
            requests,
            pieces,
            sending: (0, 0),
            waits_since: None,
            inbound: Inbound::default(),
            reading: Reading::Head,
            trailers: Vec::new(),
            own_status: None,
            own_body: Vec::new(),
            answered: 0,
            may_continue: false,
            has_tunnel: false,
            is_last: false,
            has_half_closed: false,
            read_total: 0,
        }
    }

    // Reading.

    fn digest(
        &mut self,
        end: EndId,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        while self.link.is_open() {
            match &mut self.reading {
                Reading::Head => {
                    let Some(head) = self.inbound.take_head()? else { return Ok(()) };
                    self.on_head(&head)?;
                    if let Some(request) = self.requests.get(self.answered) {
                        ledger.check_versions(request.id, &head, network.now());
                    }
                }
                Reading::Body { body, at, .. } => {
                    let mut data = Vec::new();
                    self.inbound.take_body(body, &mut self.trailers, &mut data)?;
                    let (is_done, offset) = (*body == Body::Done, *at);
                    *at += data.len() as u64;
                    self.read_total += data.len() as u64;
                    self.check_data(&data, offset)?;
                    if !is_done {
                        return Ok(());
                    }
                    self.on_answered(network, ledger)?;
                }
                Reading::Tunnel { at } => {
                    let data = self.inbound.take_rest();
                    let offset = *at;
                    *at += data.len() as u64;
                    let Some(request) = self.requests.get(self.answered) else {
                        return Err("a tunnel without a request".to_owned());
                    };
                    let echo: Vec<u8> = data.iter().map(|byte| !byte).collect();
                    if !crate::plan::is_request(request.id, offset, &echo) {
                        return Err(format!("wrong bytes in the tunnel at {offset}"));
                    }
                    if *at == request.tunnel.unwrap_or_default() as u64 && !self.has_half_closed {
                        // Everything came back: nothing more is to be said.
                        self.has_half_closed = true;
                        network.be_careful(end);
                        network.shutdown_write(end);
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn on_head(&mut self, head: &Head) -> Result<(), String> {
        let status = head.status()?;
        let Some(request) = self.requests.get(self.answered).cloned() else {
            return Err(format!("a response without a request: {head:?}"));
        };
        let plan = ResponsePlan::of(request.id);
        if (100..200).contains(&status) && status != 101 {
            if !request.is_http11 {
                return Err(format!("{status} to an HTTP/1.0 client"));
            }
            self.may_continue |= status == 100;
            return Ok(());
        }
        let (is_sent, _) = self.progress();
        if !is_sent {
            return Err(format!("an answer to a request that was not sent: {head:?}"));
        }
        let id = head.field("x-id")?;
        let is_own = head.field("server")? == Some("strait");
        let closes = head.field("connection")?.is_some_and(|value| value.contains("close"));
        let has_body = request.method != "HEAD" && !matches!(status, 204 | 304 | 101);
        let body = head.body()?;
        let ends_connection = closes
            || (has_body && body.is_none())
            || (head.line.starts_with("HTTP/1.0") || !request.is_http11)
                && head.field("connection")?.is_none_or(|value| !value.contains("keep-alive"));
        let expected = format!("{:016x}", request.id);
        match id {
            Some(id) if id == expected => {
                if status == 101 {
                    if request.tunnel.is_none() || !plan.switches {
                        return Err("101 to a request that asked for none".to_owned());
                    }
                    self.has_tunnel = true;
                    self.reading = Reading::Tunnel { at: 0 };
                    return Ok(());
                }
                if status != plan.status {
                    return Err(format!("status {status} instead of {}", plan.status));
                }
                if let Some(Body::Length(length)) = body
                    && length != plan.length as u64
                    && status != 304
                {
                    return Err(format!("length {length} instead of {}", plan.length));
                }
            }
            Some(id) => return Err(format!("the response to {id} for {expected}")),
            None if is_own => self.check_reply(status)?,
            None => return Err(format!("a response without a request: {head:?}")),
        }
        let body = if has_body { body.unwrap_or(Body::UntilClose) } else { Body::Done };
        self.reading = Reading::Body { body, at: 0, ends_connection };
        self.trailers.clear();
        self.own_status = is_own.then_some(status);
        self.own_body.clear();
        Ok(())
    }

    /// A reply that Strait made itself, to a request that has nothing wrong with it. The ledger knows where 404 is right.
    fn check_reply(&self, status: u16) -> Result<(), String> {
        if matches!(status, 404 | 408 | 502 | 503 | 504) {
            Ok(())
        } else {
            Err(format!("Strait answers {status} to a good request"))
        }
    }

    fn check_data(&mut self, data: &[u8], offset: u64) -> Result<(), String> {
        if self.own_status.is_some() {
            self.own_body.extend_from_slice(data);
            return Ok(());
        }
        let Some(request) = self.requests.get(self.answered) else {
            return Err("a body without a request".to_owned());
        };
        if is_response(request.id, offset, data) {
            Ok(())
        } else {
            Err(format!("wrong bytes in the body at {offset}"))
        }
    }

    fn on_answered(&mut self, network: &mut Network, ledger: &mut Ledger) -> Result<(), String> {
        let Reading::Body { at, ends_connection, .. } = self.reading else { return Ok(()) };
        let Some(request) = self.requests.get(self.answered) else { return Ok(()) };
        let plan = ResponsePlan::of(request.id);
        if let Some(status) = self.own_status.take() {
            if request.method != "HEAD" {
                check_own_body(status, &self.own_body)?;
            }
            ledger.settle(request.id, Outcome::Refused(status));
        } else {
            let length = if request.method == "HEAD" { 0 } else { plan.length as u64 };
            if at != length {
                return Err(format!("a body of {at} bytes instead of {length}"));
            }
            let expected = format!("x-check: {:016x}", request.id);
            if self.trailers.iter().any(|trailer| *trailer != expected) {
                return Err(format!("wrong trailers: {:?}", self.trailers));
            }
            let wants_trailers = plan.has_trailers
                && plan.framing == ResponseFraming::Chunked
                && request.method != "HEAD"
                && !matches!(plan.status, 204 | 304)
                && request.is_http11;
            if wants_trailers && self.trailers.is_empty() {
                return Err("the trailers are missing".to_owned());
            }
            ledger.settle(request.id, Outcome::Answered);
        }
        self.answered += 1;
        self.may_continue = false;
        self.waits_since = None;
        self.reading = Reading::Head;
        let (_, is_whole) = self.progress_of(self.answered - 1);
        self.is_last = ends_connection;
        if ends_connection || !is_whole && self.link.random.chance(300) {
            // Either way nothing more is to be had here.
            self.finish(Outcome::Declined, Quit::Close, network, ledger);
        }
        Ok(())
    }

    /// Whether the message that is read ends with the connection.
    const fn ends_with_connection(&self) -> bool {
        matches!(
            self.reading,
            Reading::Body { body: Body::UntilClose, .. } | Reading::Tunnel { .. }
        )
    }

    /// The connection ended, in order or broken.
    fn on_end(&mut self, network: &mut Network, ledger: &mut Ledger, is_orderly: bool) {
        let Some(request) = self.requests.get(self.answered).cloned() else {
            return self.finish(Outcome::Declined, Quit::Close, network, ledger);
        };
        match &mut self.reading {
            Reading::Head if !self.inbound.rest().is_empty() => {
                // A head that breaks off is no response at all, and cannot be taken for one.
                self.settle(ledger, Outcome::Truncated);
            }
            Reading::Head => self.settle(ledger, Outcome::Unanswered),
            Reading::Body { body, .. } if *body == Body::UntilClose && is_orderly => {
                *body = Body::Done;
                if let Err(what) = self.on_answered(network, ledger) {
                    ledger.violate(format!("{}: {what}", self.describe()));
                }
            }
            Reading::Body { .. } => self.settle(ledger, Outcome::Truncated),
            Reading::Tunnel { at } => {
                let is_whole = *at == request.tunnel.unwrap_or_default() as u64;
                if is_orderly && !is_whole {
                    let what = "the tunnel ended in order before its time";
                    ledger.violate(format!("{}: {what}", self.describe()));
                }
                let outcome = if is_whole { Outcome::Answered } else { Outcome::Truncated };
                self.settle(ledger, outcome);
                self.answered += usize::from(is_whole);
            }
        }
        self.finish(Outcome::Unanswered, Quit::Close, network, ledger);
    }

    fn settle(&self, ledger: &mut Ledger, outcome: Outcome) {
        if let Some(request) = self.requests.get(self.answered) {
            ledger.settle(request.id, outcome);
        }
    }

    // Sending.

    fn on_send_failed(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        self.sending = (self.pieces.len(), 0);
        self.link.reads_on();
        let mut result = Ok(false);
        while matches!(result, Ok(false)) && self.link.is_open() {
            let before = self.inbound.rest().len();
            result = network.recv_all(end, 4096, self.inbound.room());
            if matches!(result, Ok(false)) && self.inbound.rest().len() == before {
                return;
            }
            if let Err(what) = self.digest(end, network, ledger) {
                ledger.violate(format!("{}: {what}", self.describe()));
                return self.finish(Outcome::Abandoned, Quit::Reset, network, ledger);
            }
        }
        if self.link.is_open() {
            // The write took the reset's error with it, and a read says no more than the end.
            let is_orderly = matches!(result, Ok(true)) && !network.is_broken(end);
            self.on_end(network, ledger, is_orderly);
        }
    }

    fn is_gate_open(&mut self, now: Time, network: &mut Network) -> bool {
        let Some(piece) = self.pieces.get(self.sending.0) else { return true };
        let (gate, request) = (piece.gate, piece.request);
        let is_open = match gate {
            Gate::Open => true,
            Gate::Answers(count) => self.answered >= count,
            Gate::Think(count) if self.answered >= count => {
                let pause = self.link.random.span(self.link.behaviour.thinks);
                if let Some(piece) = self.pieces.get_mut(self.sending.0) {
                    piece.gate = Gate::Open;
                }
                self.link.pause(pause, network);
                false
            }
            Gate::Think(_) => false,
            Gate::Continue => {
                let since = *self.waits_since.get_or_insert(now);
                let is_over = now >= since + CONTINUE_PATIENCE;
                if since == now {
                    self.link.wake_after(CONTINUE_PATIENCE, network);
                }
                (self.may_continue && self.answered == request)
                    || self.answered > request
                    || is_over
            }
            Gate::Tunnel => {
                if self.answered > request {
                    // There will be no 100: the rest is not sent.
                    self.sending = (self.pieces.len(), 0);
                    return true;
                }
                self.has_tunnel
            }
        };
        if is_open {
            self.waits_since = None;
            if let Some(piece) = self.pieces.get_mut(self.sending.0) {
                piece.gate = Gate::Open;
            }
        }
        is_open
    }

    /// Whether the request that is to be answered next was begun, and whether it is sent whole.
    fn progress(&self) -> (bool, bool) {
        self.progress_of(self.answered)
    }

    fn progress_of(&self, request: usize) -> (bool, bool) {
        let (at, within) = self.sending;
        let first = self.pieces.iter().position(|piece| piece.request == request);
        let last = self.pieces.iter().rposition(|piece| piece.request == request);
        let is_begun = first.is_some_and(|first| first < at || (first == at && within > 0));
        (is_begun, last.is_some_and(|last| last < at))
    }
}

impl Dialogue for Client {
    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn has_stopped_reading(&self) -> bool {
        matches!(self.link.behaviour.leave, Leave::StopsReading(after) if self.answered >= after)
    }

    fn read(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        if self.has_stopped_reading() {
            if network.is_broken(end) {
                self.finish(Outcome::Abandoned, Quit::Close, network, ledger);
            }
            return;
        }
        if !self.link.may_read(network.now()) {
            return;
        }
        let before = self.inbound.rest().len();
        let result = network.recv_all(end, self.link.read_bytes_max(), self.inbound.room());
        let got = self.inbound.rest().len() - before;
        self.link.on_read(got, network);
        if let Err(what) = self.digest(end, network, ledger) {
            ledger.violate(format!("{}: {what}", self.describe()));
            return self.finish(Outcome::Abandoned, Quit::Reset, network, ledger);
        }
        if !self.link.is_open() {
            return;
        }
        match result {
            Ok(false) => {}
            Ok(true) => self.on_end(network, ledger, true),
            Err(error)
                if error.kind() == ErrorKind::UnexpectedEof && self.ends_with_connection() =>
            {
                // Whatever was cut off is reset.
                ledger.violate(format!("{}: ended without close_notify", self.describe()));
                self.on_end(network, ledger, false);
            }
            Err(_) => self.on_end(network, ledger, false),
        }
    }

    fn write(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        loop {
            let now = network.now();
            if !self.link.may_send(now) {
                return;
            }
            let bytes_max = self.link.send_bytes_max();
            if bytes_max == 0 {
                return self.finish(Outcome::Abandoned, self.link.quit_early(), network, ledger);
            }
            if !self.is_gate_open(now, network) {
                return;
            }
            let Some(piece) = self.pieces.get(self.sending.0) else {
                if self.link.behaviour.leave == Leave::HalfClose
                    && !self.has_half_closed
                    && !self.has_tunnel
                {
                    self.has_half_closed = true;
                    // With the answer to come, it is the end of a tunnel.
                    if self.requests.last().is_some_and(|request| request.tunnel.is_some()) {
                        network.be_careful(end);
                    }
                    network.shutdown_write(end);
                }
                return;
            };
            let rest = piece.bytes.get(self.sending.1..).unwrap_or_default();
            let wanted = rest.len().min(bytes_max);
            let bytes = rest.get(..wanted).unwrap_or_default();
            match network.send_some(end, bytes) {
                Ok(n) => {
                    if let Some(request) = self.requests.get(piece.request) {
                        ledger.begin(request.id, now);
                    }
                    self.link.sent += n;
                    self.sending.1 += n;
                    if self.sending.1 == piece.bytes.len() {
                        self.sending = (self.sending.0 + 1, 0);
                    } else if n < wanted {
                        // An event reports when there is room.
                        return;
                    }
                }
                // What the other side sent before is still to be read.
                Err(_) => return self.on_send_failed(end, network, ledger),
            }
            self.link.may_pause(network);
        }
    }

    fn leave(&mut self, _: EndId, network: &mut Network, ledger: &mut Ledger) {
        if self.answered == self.requests.len()
            && self.sending.0 == self.pieces.len()
            && self.link.behaviour.leave != Leave::HalfClose
        {
            self.finish(Outcome::Answered, Quit::Close, network, ledger);
        }
    }

    /// The connection is over. What is still open of the requests ended with `outcome`.
    fn finish(&mut self, outcome: Outcome, quit: Quit, network: &mut Network, ledger: &mut Ledger) {
        for (place, request) in self.requests.iter().enumerate() {
            let (is_begun, _) = self.progress_of(place);
            ledger.settle(
                request.id,
                match outcome {
                    _ if place < self.answered => Outcome::Answered,
                    Outcome::Abandoned | Outcome::Declined => outcome,
                    _ if self.is_last => Outcome::Declined,
                    _ if is_begun => outcome,
                    _ => Outcome::Unsent,
                },
            );
        }
        self.link.end(quit, network);
    }

    fn moved_total(&self) -> u64 {
        self.read_total
    }

    fn describe(&self) -> String {
        let request = self.requests.get(self.answered);
        format!(
            "HTTP/1 on {:?}: {} of {} answered, piece {:?} of {}, half closed: {}, reading {:?}, request {:?}",
            self.link,
            self.answered,
            self.requests.len(),
            self.sending,
            self.pieces.len(),
            self.has_half_closed,
            self.reading,
            request
        )
    }

    /// One that has stopped reading goes on to send.
    fn go_on(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        self.read(end, network, ledger);
        if self.link.is_open() {
            self.write(end, network, ledger);
        }
        if self.link.is_open() {
            self.leave(end, network, ledger);
        }
    }
}

/// The body of a reply of Strait's says its cause, and the cause fits the status.
fn check_own_body(status: u16, body: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(body);
    let is_told = |cause: &&Cause| {
        consequence(**cause).status == Some(status) && text.contains(cause.as_str())
    };
    if Cause::ALL.iter().any(|cause| is_told(&cause)) {
        Ok(())
    } else {
        Err(format!("a reply of {status} that says {text:?}"))
    }
}
