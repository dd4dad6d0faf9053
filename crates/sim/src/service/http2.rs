//! A service's connections of HTTP/2: requests are answered in any order, and streams take turns
//! at random.

use std::time::Duration;

use proxy::time::Time;
use wire::h2::ErrorCode;

use super::http1::check_request;
use super::{Host, IDLE_MAX, SLOWNESS, Timer, Verdict};
use crate::frames::{Heard, Pulse, Speaker, some_limits};
use crate::http::{Body, Head};
use crate::ledger::Ledger;
use crate::network::{EndId, Network};
use crate::plan::{
    RequestBody, RequestPlan, ResponseFraming, ResponsePlan, fill_response, is_request,
};
use crate::random::Random;

/// How long a service that does something now and then waits in between, about.
const NOW_AND_THEN: Duration = Duration::from_millis(400);

/// One connection of HTTP/2.
#[derive(Debug)]
pub(super) struct Connection {
    speaker: Speaker,
    exchanges: Vec<Exchange>,
    requests: u32,
    /// How likely it gives a window back later, in thousandths.
    owes: u32,
    pays: Pulse,
    pings: Option<Pulse>,
    changes_settings: Option<Pulse>,
    /// Requests after which it sends GOAWAY.
    goaway_after: Option<u32>,
    after: After,
    stops_reading: bool,
    has_fin: bool,
    paused_until: Time,
}

/// The next action on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Keep,
    /// It breaks once everything is sent.
    Reset,
    /// Strait knows that it will end once it answers the ping.
    Goaway,
    /// It ends with the streams that it has.
    GoingAway,
    /// Everything is sent, and it reads on so that no reset overtakes that.
    Linger,
    /// Nothing happens any more.
    Hang,
}

/// A request on its stream.
#[derive(Debug)]
struct Exchange {
    stream: u32,
    id: u64,
    plan: ResponsePlan,
    is_head: bool,
    body: RequestBody,
    /// Bytes of the request's body that are there.
    at: u64,
    /// Its request is here to the end.
    is_whole: bool,
    is_tunnel: bool,
    /// Bytes of a tunnel that go back.
    echo: Vec<u8>,
    answers_at: Time,
    answer: Answer,
    fate: Fate,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Waits,
    Body { sent: usize },
    Done,
}

/// The faults of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Whole,
    /// The stream is reset when so many bytes of the body are sent.
    Reset(usize),
    /// It never goes on from there.
    Hangs(usize),
    /// It is no message of HTTP/2.
    Malformed,
}

impl Connection {
    pub(super) fn new(inbound: Vec<u8>, host: &mut Host) -> Self {
        let random = &mut host.random;
        let pulse = |is_on: bool| is_on.then(|| Pulse::every(NOW_AND_THEN));
        Self {
            speaker: Speaker::server(some_limits(random), inbound),
            exchanges: Vec::new(),
            requests: 0,
            owes: if random.chance(300) { random.below(1_000) as u32 } else { 0 },
            pays: Pulse::every(NOW_AND_THEN / 4),
            pings: pulse(random.chance(300)),
            changes_settings: pulse(random.chance(300)),
            goaway_after: random.chance(200).then(|| 1 + random.below(10) as u32),
            after: After::Keep,
            stops_reading: false,
            has_fin: false,
            paused_until: Time::default(),
        }
    }

    /// Whether nothing more will come of it by itself.
    pub(super) fn hangs(&self) -> bool {
        let hangs = |exchange: &Exchange| matches!(exchange.fate, Fate::Hangs(_));
        self.after == After::Hang || self.stops_reading || self.exchanges.iter().any(hangs)
    }

    /// Whether no request came since there were so many.
    pub(super) fn is_idle_since(&self, requests: u32) -> bool {
        self.exchanges.is_empty() && self.requests == requests
    }

    pub(super) fn work(
        &mut self,
        end: EndId,
        host: &mut Host,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<Verdict, String> {
        if self.after == After::Hang {
            return Ok(if network.is_broken(end) { Verdict::Close } else { Verdict::Keep });
        }
        let mut is_broken = false;
        if !self.stops_reading {
            match self.speaker.receive(end, usize::MAX, network).1 {
                Ok(has_fin) => self.has_fin |= has_fin,
                Err(_) => is_broken = true,
            }
            while let Some(heard) = self.speaker.hear()? {
                self.on_heard(end, heard, host, network, ledger)?;
            }
        }
        if is_broken || network.is_broken(end) {
            return Ok(Verdict::Close);
        }
        if self.after == After::Linger {
            return Ok(if self.has_fin { Verdict::Close } else { Verdict::Keep });
        }
        self.act_up(end, host, network);
        self.write(end, host, network, ledger)
    }

    // Hearing.

    fn on_heard(
        &mut self,
        end: EndId,
        heard: Heard,
        host: &mut Host,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        match heard {
            Heard::Head { stream, head, is_end } => {
                self.on_head(end, stream, &head, is_end, host, network, ledger)?;
                if is_end {
                    self.on_end(stream, &[], ledger)?;
                }
            }
            Heard::Data { stream, bytes, is_end } => {
                self.on_data(end, stream, &bytes, host, network)?;
                if is_end {
                    self.on_end(stream, &[], ledger)?;
                }
            }
            Heard::End { stream } => self.on_end(stream, &[], ledger)?,
            Heard::Trailers { stream, lines } => self.on_end(stream, &lines, ledger)?,
            Heard::Reset { stream, code } => {
                if !matches!(code, ErrorCode::CANCEL | ErrorCode::NO_ERROR) && !self.is_odd(stream)
                {
                    return Err(format!("stream {stream} is reset: {code:?}"));
                }
                self.exchanges.retain(|exchange| exchange.stream != stream);
            }
            Heard::GoingAway { code, .. } => {
                if code != ErrorCode::NO_ERROR && self.after == After::Keep {
                    return Err(format!("Strait goes away: {code:?}"));
                }
            }
            Heard::PingAnswered if self.after == After::Goaway => {
                self.after = After::GoingAway;
                self.speaker.codec.go_away(ErrorCode::NO_ERROR);
            }
            Heard::PingAnswered | Heard::Leave => {}
            Heard::Interim { status, .. } => {
                return Err(format!("an answer from Strait: {status}"));
            }
        }
        Ok(())
    }

    /// Whether Strait may reset a stream because of what it received.
    fn is_odd(&self, stream: u32) -> bool {
        let mut exchanges = self.exchanges.iter();
        exchanges.any(|found| found.stream == stream && found.fate == Fate::Malformed)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a request, its stream, and the parts that handle it"
    )]
    fn on_head(
        &mut self,
        end: EndId,
        stream: u32,
        head: &Head,
        is_end: bool,
        host: &mut Host,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let path = head.line.split(' ').nth(1).unwrap_or_default();
        if path == "/check" {
            self.answer_check(stream, host);
            return Ok(());
        }
        let id = path.rsplit('/').next().and_then(|id| u64::from_str_radix(id, 16).ok());
        let id = id.ok_or_else(|| format!("not a request of the simulation: {:?}", head.line))?;
        ledger.saw_stream(id, end, network);
        self.requests += 1;
        let Some(request) = ledger.plan(id).cloned() else { return Ok(()) };
        let is_tunnel = check_head(&request, head, is_end, host)?;
        if host.random.chance(host.faults.refuse) {
            self.speaker.codec.reset(stream, ErrorCode::REFUSED_STREAM);
            ledger.refused(id);
            return Ok(());
        }
        self.begin_fault(host);
        let mut plan = ResponsePlan::of(id);
        let fate = Fate::of(&plan, host);
        plan.is_early |= self.stops_reading;
        if head.field("expect")?.is_some() && plan.continues {
            self.speaker.answer_for_now(stream, 100);
            ledger.answered_at(id, self.speaker.queued_total);
        }
        let pause = host.random.span(SLOWNESS * 3);
        host.wake_after(end, Timer::Pause, pause, network);
        self.exchanges.push(Exchange {
            stream,
            id,
            plan,
            is_head: request.method == "HEAD",
            body: request.body,
            at: 0,
            is_whole: false,
            is_tunnel,
            echo: Vec::new(),
            answers_at: network.now() + pause,
            answer: Answer::Waits,
            fate,
        });
        self.end_after_requests();
        if host.random.chance(host.faults.close_idle) {
            let span = host.random.span(IDLE_MAX);
            host.wake_after(end, Timer::Idle(self.requests), span, network);
        }
        Ok(())
    }

    /// Answers a health check, well or not.
    fn answer_check(&mut self, stream: u32, host: &mut Host) {
        self.requests += 1;
        if !host.random.chance(host.faults.hang) {
            let status = if host.random.chance(host.faults.truncate) { 503 } else { 200 };
            let head = format!("HTTP/1.1 {status} Whatever\r\n\r\n");
            self.speaker.answer(stream, &head, true);
        }
    }

    /// What goes wrong with the connection from this request on, if anything does.
    fn begin_fault(&mut self, host: &mut Host) {
        let (faults, random) = (&host.faults, &mut host.random);
        if random.chance(faults.close_on_request) {
            self.after = After::Reset;
        } else if random.chance(faults.hang) && random.chance(300) {
            self.after = After::Hang;
        } else if random.chance(faults.go_away) {
            // Whatever came before is answered, and nothing behind it.
            self.after = After::GoingAway;
            self.speaker.codec.go_away(ErrorCode::NO_ERROR);
        }
        self.stops_reading |= random.chance(faults.stop_reading) && random.chance(300);
    }

    /// Some connections end in order after so many requests.
    fn end_after_requests(&mut self) {
        if self.goaway_after.is_some_and(|after| self.requests >= after) {
            self.goaway_after = None;
            if self.after == After::Keep {
                self.after = After::Goaway;
                self.speaker.codec.drain();
                self.speaker.codec.ping(*b"goodbye!");
            }
        }
    }

    fn on_data(
        &mut self,
        end: EndId,
        stream: u32,
        data: &[u8],
        host: &mut Host,
        network: &mut Network,
    ) -> Result<(), String> {
        let is_later = host.random.chance(self.owes);
        self.speaker.take(stream, data.len(), is_later);
        if is_later {
            host.wake_after(end, Timer::Pause, NOW_AND_THEN, network);
        }
        let mut exchanges = self.exchanges.iter_mut();
        let Some(exchange) = exchanges.find(|exchange| exchange.stream == stream) else {
            return Err(format!("data on {stream}, which has no request"));
        };
        let Exchange { id, at, echo, is_tunnel, .. } = exchange;
        if !is_request(*id, *at, data) {
            return Err(format!("wrong bytes in the request {id:016x} at {at}"));
        }
        *at += data.len() as u64;
        if *is_tunnel {
            echo.extend(data.iter().map(|byte| !byte));
        }
        Ok(())
    }

    fn on_end(&mut self, stream: u32, trailers: &[String], ledger: &Ledger) -> Result<(), String> {
        let mut exchanges = self.exchanges.iter_mut();
        let Some(exchange) = exchanges.find(|exchange| exchange.stream == stream) else {
            return Ok(());
        };
        let Exchange { id, at, .. } = *exchange;
        exchange.is_whole = true;
        if exchange.is_tunnel {
            return Ok(());
        }
        let expected = format!("x-check: {id:016x}");
        if trailers.iter().any(|trailer| *trailer != expected) {
            return Err(format!("wrong trailers in {id:016x}: {trailers:?}"));
        }
        if matches!(exchange.body, RequestBody::Chunked(_, true)) && trailers.is_empty() {
            return Err(format!("the trailers of {id:016x} are missing"));
        }
        check_request(id, at, ledger)
    }

    // Saying.

    /// Random disturbances: pings, settings, GOAWAY.
    fn act_up(&mut self, end: EndId, host: &mut Host, network: &mut Network) {
        let now = network.now();
        if self.pays.is_due(now, &mut host.random) {
            self.speaker.pay();
        }
        if self.exchanges.is_empty() {
            return;
        }
        let random = &mut host.random;
        let pings = self.pings.as_mut().is_some_and(|pulse| pulse.is_due(now, random));
        let changes = self.changes_settings.as_mut();
        let changes = changes.is_some_and(|pulse| pulse.is_due(now, random));
        if pings && self.after == After::Keep {
            self.speaker.codec.ping(*b"how now?");
        }
        if changes {
            self.speaker.change_settings(random);
        }
        if pings || changes {
            host.wake_after(end, Timer::Pause, NOW_AND_THEN * 2, network);
        }
    }

    fn write(
        &mut self,
        end: EndId,
        host: &mut Host,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> Result<Verdict, String> {
        loop {
            let has_said = self.answer(end, host, network, ledger);
            match self.speaker.flush(end, usize::MAX, network) {
                Err(_) => return Ok(Verdict::Close),
                Ok(0) if !has_said => break,
                Ok(_) => {}
            }
        }
        if self.exchanges.is_empty() {
            // Restore the settings, so that the next disturbance begins from the originals.
            self.speaker.restore_settings();
            if self.speaker.flush(end, usize::MAX, network).is_err() {
                return Ok(Verdict::Close);
            }
        }
        let is_flushed = self.speaker.is_flushed();
        Ok(match self.after {
            After::Reset if is_flushed => Verdict::Reset,
            After::GoingAway if is_flushed && self.exchanges.is_empty() && !self.has_fin => {
                self.after = After::Linger;
                network.shutdown_write(end);
                Verdict::Keep
            }
            _ if self.has_fin && is_flushed => Verdict::Close,
            _ => Verdict::Keep,
        })
    }

    /// Sends a piece of each response that may be sent; returns whether it sent any.
    fn answer(
        &mut self,
        end: EndId,
        host: &mut Host,
        network: &mut Network,
        ledger: &mut Ledger,
    ) -> bool {
        let now = network.now();
        if now < self.paused_until || self.after == After::Reset {
            return false;
        }
        let mut has_said = false;
        let first = host.random.length_below(self.exchanges.len().max(1));
        for place in 0..self.exchanges.len() {
            let place = (place + first) % self.exchanges.len();
            let Some(exchange) = self.exchanges.get_mut(place) else { continue };
            if now < exchange.answers_at {
                continue;
            }
            has_said |= match exchange.answer {
                Answer::Waits if exchange.may_answer() => {
                    exchange.begin(&mut self.speaker, &mut host.random);
                    ledger.answered_at(exchange.id, self.speaker.queued_total);
                    true
                }
                Answer::Body { sent } if exchange.is_tunnel => {
                    exchange.send_back(&mut self.speaker, sent)
                }
                Answer::Body { sent } => exchange.go_on(sent, &mut self.speaker, &mut host.random),
                Answer::Waits | Answer::Done => false,
            };
            if host.random.chance(50) {
                let pause = host.random.span(SLOWNESS);
                self.paused_until = now + pause;
                host.wake_after(end, Timer::Pause, pause, network);
                break;
            }
        }
        self.forget(&mut host.random);
        has_said
    }

    /// Forgets answered streams. A client that still sends gets a reset, or is read to its end.
    fn forget(&mut self, random: &mut Random) {
        let stops = random.chance(300);
        let codec = &mut self.speaker.codec;
        self.exchanges.retain(|exchange| {
            if exchange.answer == Answer::Done && !exchange.is_whole && stops {
                codec.reset(exchange.stream, ErrorCode::NO_ERROR);
            }
            codec.is_open(exchange.stream)
        });
    }
}

impl Exchange {
    fn may_answer(&self) -> bool {
        self.is_whole || self.plan.is_early || self.is_tunnel
    }

    fn begin(&mut self, speaker: &mut Speaker, random: &mut Random) {
        let Self { id, plan, stream, .. } = *self;
        let has_body = !self.is_head && !matches!(plan.status, 204 | 304);
        // Nothing can be wrong with the length of what answers a CONNECT (RFC 9110, section 9.3.6).
        if self.fate == Fate::Malformed && has_body && !self.is_tunnel {
            let head = match random.below(2) {
                0 => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_owned(),
                _ => format!(
                    "HTTP/1.1 {} OK\r\nx-id: {id:016x}\r\nContent-Length: 1\r\n\r\n",
                    plan.status
                ),
            };
            speaker.answer(stream, &head, true);
            self.answer = Answer::Done;
            return;
        }
        for _ in 0..plan.interim {
            speaker.answer_for_now(stream, 103);
        }
        if self.is_tunnel && plan.switches {
            let head =
                format!("HTTP/1.1 200 OK\r\nx-id: {id:016x}\r\nTransfer-Encoding: chunked\r\n\r\n");
            speaker.answer(stream, &head, false);
            self.answer = Answer::Body { sent: 0 };
            return;
        }
        self.is_tunnel = false;
        let is_end = !has_body || plan.length == 0 && plan.framing == ResponseFraming::Length;
        let framing = match plan.framing {
            _ if matches!(plan.status, 204 | 304) => String::new(),
            ResponseFraming::Length => format!("Content-Length: {}\r\n", plan.length),
            _ if is_end => String::new(),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => {
                "Transfer-Encoding: chunked\r\n".to_owned()
            }
        };
        let head = format!("HTTP/1.1 {} OK\r\nx-id: {id:016x}\r\n{framing}\r\n", plan.status);
        speaker.answer(stream, &head, is_end);
        self.answer = if is_end { Answer::Done } else { Answer::Body { sent: 0 } };
    }

    fn go_on(&mut self, sent: usize, speaker: &mut Speaker, random: &mut Random) -> bool {
        let Self { id, plan, stream, .. } = *self;
        match self.fate {
            Fate::Reset(at) if sent >= at => {
                speaker.codec.reset(stream, ErrorCode::INTERNAL_ERROR);
                self.answer = Answer::Done;
                return true;
            }
            Fate::Hangs(at) if sent >= at => return false,
            _ => {}
        }
        let left = plan.length - sent;
        if left == 0 {
            if plan.framing == ResponseFraming::Chunked && plan.has_trailers {
                speaker.end_with(stream, &format!("x-check: {id:016x}\r\n"));
            } else {
                speaker.send(stream, &[], true);
            }
            self.answer = Answer::Done;
            return true;
        }
        let room = speaker.room(stream).min(left);
        if room == 0 {
            return false;
        }
        let n = if random.chance(500) { room } else { 1 + random.size(room - 1) };
        let mut data = vec![0; n];
        fill_response(id, sent as u64, &mut data);
        let has_trailers = plan.framing == ResponseFraming::Chunked && plan.has_trailers;
        let is_last = n == left && !has_trailers && random.chance(500);
        speaker.send(stream, &data, is_last);
        self.answer = if is_last { Answer::Done } else { Answer::Body { sent: sent + n } };
        true
    }

    /// A tunnel's bytes go back, inverted.
    fn send_back(&mut self, speaker: &mut Speaker, sent: usize) -> bool {
        let n = speaker.room(self.stream).min(self.echo.len());
        if n > 0 {
            let data: Vec<u8> = self.echo.drain(..n).collect();
            speaker.send(self.stream, &data, false);
            self.answer = Answer::Body { sent: sent + n };
            return true;
        }
        if self.is_whole && self.echo.is_empty() {
            speaker.send(self.stream, &[], true);
            self.answer = Answer::Done;
            return true;
        }
        false
    }
}

impl Fate {
    fn of(plan: &ResponsePlan, host: &mut Host) -> Self {
        let (faults, random) = (&host.faults, &mut host.random);
        match () {
            () if random.chance(faults.truncate) => Self::Reset(random.size(plan.length)),
            () if random.chance(faults.hang) => Self::Hangs(random.size(plan.length)),
            () if random.chance(faults.garbage) => Self::Malformed,
            () => Self::Whole,
        }
    }
}

/// Checks that a request came as it was sent. Returns whether it is one for a tunnel.
fn check_head(
    request: &RequestPlan,
    head: &Head,
    is_end: bool,
    host: &mut Host,
) -> Result<bool, String> {
    let id = request.id;
    let mut words = head.line.split(' ');
    let (method, _, is_tunnel) = (words.next(), words.next(), words.next() == Some("connect"));
    let is_right = match request.tunnel {
        Some(_) => is_tunnel || method == Some("GET"),
        None => method == Some(request.method) && !is_tunnel,
    };
    if !is_right || !host.takes(head.field("host")?) {
        return Err(format!("{id:016x} was changed: {head:?}"));
    }
    for field in ["connection", "transfer-encoding", "keep-alive", "upgrade"] {
        if head.field(field)?.is_some() {
            return Err(format!("{field} in HTTP/2: {head:?}"));
        }
    }
    let is_right = match (request.body, head.body()?) {
        (_, None) if is_tunnel => !is_end,
        (RequestBody::None, body) => is_end && matches!(body, None | Some(Body::Length(0))),
        (RequestBody::Length(0), None) => true,
        (RequestBody::Length(length), Some(Body::Length(found))) => found == length as u64,
        (RequestBody::Chunked(length, has_trailers), None) => {
            !is_end || length == 0 && !has_trailers
        }
        _ => false,
    };
    if !is_right {
        return Err(format!("{id:016x} has another body ({is_end}): {head:?}"));
    }
    Ok(is_tunnel)
}
