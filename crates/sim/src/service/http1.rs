//! A service's connections of HTTP/1.

use std::time::Duration;

use super::{Host, IDLE_MAX, SLOWNESS, Timer, Verdict};
use crate::http::{Body, Head, Inbound};
use crate::ledger::Ledger;
use crate::network::{EndId, Network};
use crate::plan::{RequestBody, ResponseFraming, ResponsePlan, fill_response, is_request};
use crate::random::Random;

/// One connection of HTTP/1.
#[derive(Debug)]
pub(super) struct Connection {
    inbound: Inbound,
    state: State,
    /// The bytes to send, each piece after a pause.
    outbound: Vec<(Duration, Vec<u8>)>,
    /// The piece to send, and how much of it is sent.
    sending: (usize, usize),
    paused_until: proxy::time::Time,
    /// The action when all of it is sent.
    after: After,
    requests: u32,
    /// It began with its client's address (PROXY protocol), and so is for that client alone.
    is_personal: bool,
    stops_reading: bool,
    has_fin: bool,
}

#[derive(Debug)]
enum State {
    Idle,
    Request { id: u64, body: Body, at: u64, is_answered: bool, plan: ResponsePlan },
    Tunnel { id: u64, at: u64 },
}

/// The action on a connection when everything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// It is kept.
    Keep,
    /// It closes in order.
    Close,
    /// It breaks.
    Reset,
    /// It has closed in order, and reads on so that no reset overtakes what it sent.
    Linger,
    /// Nothing happens any more.
    Hang,
}

impl Host {
    /// Reads, answers and writes as far as possible.
    pub(super) fn work(
        &mut self,
        end: EndId,
        connection: &mut Connection,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<Verdict, String> {
        let mut is_broken = false;
        if !connection.stops_reading {
            match network.recv_all(end, usize::MAX, connection.inbound.room()) {
                Ok(has_fin) => connection.has_fin |= has_fin,
                Err(_) => is_broken = true,
            }
        }
        if connection.requests == 0 && connection.begins_as_http2()? {
            return Ok(Verdict::Http2(connection.inbound.take_rest()));
        }
        self.read(end, connection, network, ledger)?;
        if is_broken || network.is_broken(end) {
            return Ok(Verdict::Close);
        }
        self.write(end, connection, network)
    }

    // Requests.

    fn read(
        &mut self,
        end: EndId,
        connection: &mut Connection,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        loop {
            match &mut connection.state {
                State::Idle => {
                    if connection.requests == 0 && !connection.take_proxy_header()? {
                        return Ok(());
                    }
                    let Some(head) = connection.inbound.take_head()? else { return Ok(()) };
                    self.on_head(end, connection, &head, network, ledger)?;
                }
                State::Request { id, body, at, is_answered, plan } => {
                    let (mut data, mut trailers) = (Vec::new(), Vec::new());
                    connection.inbound.take_body(body, &mut trailers, &mut data)?;
                    if !is_request(*id, *at, &data) {
                        return Err(format!("wrong bytes in the request {id:016x} at {at}"));
                    }
                    *at += data.len() as u64;
                    let expected = format!("x-check: {id:016x}");
                    if trailers.iter().any(|trailer| *trailer != expected) {
                        return Err(format!("wrong trailers in {id:016x}: {trailers:?}"));
                    }
                    if *body != Body::Done {
                        return Ok(());
                    }
                    let (id, at, is_answered, plan) = (*id, *at, *is_answered, *plan);
                    check_request(id, at, ledger)?;
                    if !is_answered {
                        if !connection.inbound.rest().is_empty() {
                            return Err("bytes behind a request that is not answered".to_owned());
                        }
                        self.answer(end, connection, id, plan, network, ledger);
                    }
                    if connection.is_sending() || connection.after != After::Keep {
                        return Ok(());
                    }
                    connection.state = State::Idle;
                }
                State::Tunnel { id, at } => {
                    let data = connection.inbound.take_rest();
                    if data.is_empty() {
                        return Ok(());
                    }
                    if !is_request(*id, *at, &data) {
                        return Err(format!("wrong bytes in the tunnel {id:016x} at {at}"));
                    }
                    *at += data.len() as u64;
                    let echo = data.iter().map(|byte| !byte).collect();
                    connection.outbound.push((Duration::ZERO, echo));
                }
            }
        }
    }

    fn on_head(
        &mut self,
        end: EndId,
        connection: &mut Connection,
        head: &Head,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let mut words = head.line.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if path == "/check" {
            self.answer_check(connection);
            return Ok(());
        }
        let id = path.rsplit('/').next().and_then(|id| u64::from_str_radix(id, 16).ok());
        let id = id.ok_or_else(|| format!("not a request of the simulation: {:?}", head.line))?;
        if connection.is_personal && connection.requests > 0 {
            return Err(format!("{id:016x} came on a connection of another client's"));
        }
        ledger.saw(id, end, network);
        connection.requests += 1;
        let Some(request) = ledger.plan(id) else { return Ok(()) };
        if request.method != method || !self.takes(head.field("host")?) {
            return Err(format!("{id:016x} was changed: {head:?}"));
        }
        let body = head.body()?.unwrap_or(Body::Done);
        let is_right = match (request.body, &body) {
            (RequestBody::None, body) => *body == Body::Done || *body == Body::Length(0),
            (RequestBody::Length(length), Body::Length(found)) => *found == length as u64,
            (RequestBody::Length(0), Body::Done) => true,
            (RequestBody::Chunked(..), body) => *body == Body::ChunkSize,
            _ => false,
        };
        if !is_right {
            return Err(format!("{id:016x} has another body: {head:?}"));
        }
        let expects_continue = head.field("expect")?.is_some();
        let mut plan = ResponsePlan::of(id);
        if self.random.chance(self.faults.close_on_request) {
            connection.after = if self.random.chance(500) { After::Close } else { After::Reset };
        } else if self.random.chance(self.faults.hang) {
            connection.after = After::Hang;
        }
        let is_mute = connection.after != After::Keep;
        connection.stops_reading = self.random.chance(self.faults.stop_reading);
        connection.outbound.clear();
        connection.sending = (0, 0);
        if expects_continue && plan.continues && !is_mute {
            let pause = self.random.span(SLOWNESS);
            connection.outbound.push((pause, b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()));
        }
        plan.is_early |= connection.stops_reading;
        let wants_tunnel = request.tunnel.is_some() && head.field("upgrade")?.is_some();
        if wants_tunnel && plan.switches && !is_mute {
            let head = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                 Upgrade: websocket\r\nx-id: {id:016x}\r\n\r\n"
            );
            connection.outbound.push((self.random.span(SLOWNESS), head.into_bytes()));
            connection.state = State::Tunnel { id, at: 0 };
            network.be_careful(end);
            return Ok(());
        }
        connection.state = State::Request { id, body, at: 0, is_answered: is_mute, plan };
        if plan.is_early && !is_mute {
            self.answer(end, connection, id, plan, network, ledger);
        }
        Ok(())
    }

    /// Answers a health check, well or not.
    fn answer_check(&mut self, connection: &mut Connection) {
        connection.requests += 1;
        connection.outbound.clear();
        connection.sending = (0, 0);
        if self.random.chance(self.faults.close_on_request) {
            connection.after = if self.random.chance(500) { After::Close } else { After::Reset };
        } else if self.random.chance(self.faults.hang) {
            connection.after = After::Hang;
        } else {
            let status = if self.random.chance(self.faults.truncate) { 503 } else { 200 };
            let head = format!("HTTP/1.1 {status} Whatever\r\nContent-Length: 2\r\n\r\nok");
            self.cut(connection, head.into_bytes());
        }
    }

    /// Puts together the response to a request, or what stands in for it.
    fn answer(
        &mut self,
        end: EndId,
        connection: &mut Connection,
        id: u64,
        plan: ResponsePlan,
        network: &mut Network,
        ledger: &Ledger,
    ) {
        if let State::Request { is_answered, .. } = &mut connection.state {
            *is_answered = true;
        }
        let is_head = ledger.plan(id).is_some_and(|plan| plan.method == "HEAD");
        let mut bytes = Vec::new();
        for _ in 0..plan.interim {
            bytes.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n");
        }
        let closes = self.random.chance(100);
        bytes.extend(response_head(id, plan, closes).into_bytes());
        if closes || plan.framing == ResponseFraming::UntilClose {
            connection.after = After::Close;
        }
        if plan.framing == ResponseFraming::UntilClose {
            network.be_careful(end);
        }
        let has_body = !is_head && !matches!(plan.status, 204 | 304);
        if has_body {
            self.body(id, plan, &mut bytes);
        }
        if self.random.chance(self.faults.garbage) {
            spoil(&mut bytes, id, plan.status, has_body, &mut self.random);
            connection.after = After::Close;
        } else if self.random.chance(self.faults.truncate) {
            bytes.truncate(self.random.length_below(bytes.len()));
            // Without a length an orderly end would be the body's.
            let is_open = plan.framing == ResponseFraming::UntilClose;
            let is_orderly = !is_open && self.random.chance(500);
            connection.after = if is_orderly { After::Close } else { After::Reset };
        } else if self.random.chance(self.faults.hang) {
            bytes.truncate(self.random.length_below(bytes.len()));
            connection.after = After::Hang;
        }
        let is_kept = connection.after == After::Keep;
        if is_kept && self.random.chance(self.faults.unsolicited) {
            bytes.extend_from_slice(b"\0nobody asked for this\r\n\r\n");
        }
        self.cut(connection, bytes);
        if is_kept && self.random.chance(self.faults.close_idle) {
            let span = self.random.span(IDLE_MAX);
            self.wake_after(end, Timer::Idle(connection.requests), span, network);
        }
    }

    fn body(&mut self, id: u64, plan: ResponsePlan, bytes: &mut Vec<u8>) {
        let mut body = vec![0; plan.length];
        fill_response(id, 0, &mut body);
        if plan.framing != ResponseFraming::Chunked {
            return bytes.extend(body);
        }
        let mut rest = &body[..];
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(1 + self.random.size(rest.len() - 1));
            bytes.extend(format!("{:X}\r\n", chunk.len()).into_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
            rest = behind;
        }
        bytes.extend_from_slice(b"0\r\n");
        if plan.has_trailers {
            bytes.extend(format!("x-check: {id:016x}\r\n").into_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
    }

    /// Sends `bytes` in a few pieces, with pauses.
    fn cut(&mut self, connection: &mut Connection, bytes: Vec<u8>) {
        let mut rest = &bytes[..];
        let is_whole = self.random.chance(500);
        while !rest.is_empty() {
            let length = if is_whole { rest.len() } else { 1 + self.random.size(rest.len() - 1) };
            let (piece, behind) = rest.split_at(length);
            let is_slow = self.random.chance(100);
            let span = if is_slow { self.random.span(SLOWNESS) } else { Duration::ZERO };
            connection.outbound.push((span, piece.to_vec()));
            rest = behind;
        }
    }

    // Responses.

    fn write(
        &mut self,
        end: EndId,
        connection: &mut Connection,
        network: &mut Network,
    ) -> Result<Verdict, String> {
        let now = network.now();
        while let Some((pause, bytes)) = connection.outbound.get_mut(connection.sending.0) {
            if now < connection.paused_until {
                return Ok(Verdict::Keep);
            }
            let span = std::mem::take(pause);
            if !span.is_zero() {
                connection.paused_until = now + span;
                self.wake_after(end, Timer::Pause, span, network);
                return Ok(Verdict::Keep);
            }
            let left = bytes.get(connection.sending.1..).unwrap_or_default();
            match network.send_some(end, left) {
                Ok(n) if n < left.len() => {
                    connection.sending.1 += n;
                    return Ok(Verdict::Keep);
                }
                Ok(_) => connection.sending = (connection.sending.0 + 1, 0),
                Err(_) => return Ok(Verdict::Close),
            }
        }
        connection.outbound.clear();
        connection.sending = (0, 0);
        match (&connection.state, connection.after) {
            (State::Request { body, .. }, After::Close)
                if *body != Body::Done && !connection.has_fin =>
            {
                network.shutdown_write(end);
                connection.after = After::Linger;
            }
            (_, After::Close) => return Ok(Verdict::Close),
            (_, After::Reset) => return Ok(Verdict::Reset),
            (_, After::Hang) => return Ok(Verdict::Keep),
            (State::Request { body: Body::Done, is_answered: true, .. }, After::Keep) => {
                connection.state = State::Idle;
            }
            _ => {}
        }
        Ok(if connection.has_fin { Verdict::Close } else { Verdict::Keep })
    }
}

impl Connection {
    pub(super) fn new() -> Self {
        Self {
            inbound: Inbound::default(),
            state: State::Idle,
            outbound: Vec::new(),
            sending: (0, 0),
            paused_until: proxy::time::Time::default(),
            after: After::Keep,
            requests: 0,
            is_personal: false,
            stops_reading: false,
            has_fin: false,
        }
    }

    /// Whether nothing more will come of it by itself.
    pub(super) fn hangs(&self) -> bool {
        self.after == After::Hang || self.stops_reading
    }

    /// Whether no request came since there were so many.
    pub(super) fn is_idle_since(&self, requests: u32) -> bool {
        self.is_idle() && self.requests == requests
    }

    /// Whether its first bytes are those of HTTP/2.
    fn begins_as_http2(&mut self) -> Result<bool, String> {
        Ok(self.take_proxy_header()? && self.inbound.rest().starts_with(b"PRI * HTTP/2"))
    }

    /// Takes the PROXY protocol's line, if there is one; says whether what follows is there.
    fn take_proxy_header(&mut self) -> Result<bool, String> {
        let start = self.inbound.rest();
        if start.first().is_none_or(|byte| *byte != b'P') {
            return Ok(!start.is_empty());
        }
        // It may still become `POST`, `PUT`, `PRI` or `PROXY`.
        if start.len() < 12 {
            return Ok(false);
        }
        if start.starts_with(b"PROXY") {
            let is_whole = self.inbound.take_line()?.is_some();
            self.is_personal |= is_whole;
            return Ok(is_whole);
        }
        Ok(true)
    }

    const fn is_sending(&self) -> bool {
        self.sending.0 < self.outbound.len()
    }

    const fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle) && !self.is_sending()
    }
}

pub(super) fn check_request(id: u64, length: u64, ledger: &Ledger) -> Result<(), String> {
    let expected = ledger.plan(id).map_or(0, |plan| plan.body.len() as u64);
    if length == expected {
        Ok(())
    } else {
        Err(format!("the request {id:016x} has {length} bytes instead of {expected}"))
    }
}

fn response_head(id: u64, plan: ResponsePlan, closes: bool) -> String {
    let mut head = format!("HTTP/1.1 {} Whatever\r\nx-id: {id:016x}\r\n", plan.status);
    if !matches!(plan.status, 204 | 304) {
        match plan.framing {
            ResponseFraming::Length => head += &format!("Content-Length: {}\r\n", plan.length),
            ResponseFraming::Chunked => head += "Transfer-Encoding: chunked\r\n",
            ResponseFraming::UntilClose => {}
        }
    }
    if closes || plan.framing == ResponseFraming::UntilClose {
        head += "Connection: close\r\n";
    }
    head + "\r\n"
}

/// Turns a response into something that is none.
fn spoil(bytes: &mut Vec<u8>, id: u64, status: u16, has_body: bool, random: &mut Random) {
    let spoiled = match random.below(4) {
        0 => "This is not HTTP at all\r\n\r\n".to_owned(),
        1 => {
            format!("HTTP/1.1 {status} OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")
        }
        // The head is good, and may be on its way before the rest is seen.
        2 if has_body => format!(
            "HTTP/1.1 {status} OK\r\nx-id: {id:016x}\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"
        ),
        _ => format!("HTTP/1.1 {status} OK\r\nX-Field: a\nb\r\n\r\n"),
    };
    *bytes = spoiled.into_bytes();
}
