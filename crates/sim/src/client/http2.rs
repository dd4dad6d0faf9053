//! A scripted client that speaks HTTP/2 from its first byte: one connection with some requests at
//! a time, each on a stream of its own.

mod receiving;

use std::time::Duration;

use config::snapshot::Address;
use proxy::time::Time;
use wire::h2::{ErrorCode, RequestForm};

use super::link::{Dialogue, Link, Quit};
use super::{Behaviour, Leave};
use crate::frames::{Pulse, Speaker, some_limits};
use crate::ledger::{Ledger, Outcome};
use crate::network::{EndId, Network, PeerId};
use crate::plan::fill_request;
use crate::plan::{RequestBody, RequestPlan};
use crate::random::Random;

/// How long a body waits for a `100 Continue` before it is sent without one.
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

/// How long a client that does something now and then waits in between, about.
const NOW_AND_THEN: Duration = Duration::from_millis(400);

/// The beginning of the preface. A client that sends no more of it in time is taken for one of
/// HTTP/1 (RFC 9113, section 3.4).
const PREFACE_METHOD: &[u8] = b"PRI";

/// A scripted client of HTTP/2.
#[derive(Debug)]
pub struct Http2Client {
    link: Link,
    habits: Habits,
    requests: Vec<RequestPlan>,
    /// How many of the requests were begun.
    begun: usize,
    /// How many have ended, one way or another.
    ended: usize,
    exchanges: Vec<Exchange>,
    speaker: Speaker,
    opens_after: Time,
    /// Strait takes no more streams.
    is_going_away: bool,
    /// It has sent GOAWAY.
    has_left: bool,
    read_total: u64,
}

/// How a client behaves besides sending requests.
#[derive(Debug)]
struct Habits {
    /// How likely it gives a window back later, in thousandths.
    owes: u32,
    pays: Pulse,
    pings: Option<Pulse>,
    changes_settings: Option<Pulse>,
    /// How likely it resets a stream in the middle.
    cancels: u32,
    /// It sends GOAWAY before it leaves, and waits until Strait closes.
    sends_goaway: bool,
}

/// A request on its stream.
#[derive(Debug)]
struct Exchange {
    plan: RequestPlan,
    stream: u32,
    sending: Sending,
    /// Bytes of the body that were sent.
    sent: usize,
    reading: Reading,
    /// When it is given up.
    cancelled_at: Option<Time>,
    /// It was opened before Strait's SETTINGS limited the streams.
    is_guessed: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Sending {
    /// Waits for a `100 Continue` since then.
    Waits(Time),
    /// Waits for the tunnel.
    WaitsForTunnel,
    Body,
    Done,
}

#[derive(Debug)]
enum Reading {
    Head,
    Body {
        at: u64,
    },
    Tunnel {
        at: u64,
    },
    /// A reply that Strait made itself.
    Own {
        status: u16,
        body: Vec<u8>,
    },
    Done,
}

impl Http2Client {
    /// A client that connects to `address` after `delay`. As many requests are under way at a time
    /// as `behaviour` says may be pipelined, and one more.
    pub fn new(
        peer: PeerId,
        address: Address,
        requests: Vec<RequestPlan>,
        behaviour: Behaviour,
        delay: Duration,
        mut random: Random,
        network: &mut Network,
    ) -> Self {
        let speaker = Speaker::client(some_limits(&mut random));
        let habits = Habits::some(&mut random);
        Self {
            link: Link::new(peer, address, behaviour, delay, random, network),
            habits,
            requests,
            begun: 0,
            ended: 0,
            exchanges: Vec::new(),
            speaker,
            opens_after: Time::default(),
            is_going_away: false,
            has_left: false,
            read_total: 0,
        }
    }

    // Reading.

    /// An exchange is over.
    fn forget(&mut self, stream: u32) {
        let before = self.exchanges.len();
        self.exchanges.retain(|exchange| exchange.stream != stream);
        self.ended += before - self.exchanges.len();
    }

    // Writing.

    /// Random disturbances: pings, settings, cancelled streams.
    fn act_up(&mut self, now: Time, network: &mut Network) {
        let random = &mut self.link.random;
        if self.habits.pays.is_due(now, random) {
            self.speaker.pay();
        }
        if self.exchanges.is_empty() {
            return;
        }
        let mut pulses = [&mut self.habits.pings, &mut self.habits.changes_settings];
        let due = pulses
            .each_mut()
            .map(|pulse| pulse.as_mut().is_some_and(|pulse| pulse.is_due(now, random)));
        if due[0] {
            self.speaker.codec.ping(*b"how now?");
        }
        if due[1] {
            self.speaker.change_settings(random);
        }
        if due.contains(&true) {
            self.link.wake_after(NOW_AND_THEN * 2, network);
        }
    }

    fn cancel(&mut self, now: Time, ledger: &mut Ledger) {
        let is_due = |exchange: &&Exchange| exchange.cancelled_at.is_some_and(|at| at <= now);
        while let Some(exchange) = self.exchanges.iter().find(is_due) {
            let stream = exchange.stream;
            ledger.settle(exchange.plan.id, Outcome::Cancelled);
            self.speaker.codec.reset(stream, ErrorCode::CANCEL);
            self.forget(stream);
        }
    }

    /// Sends the requests that may be sent; returns whether it sent any.
    fn open(&mut self, now: Time, network: &mut Network, ledger: &mut Ledger) -> bool {
        let Some(request) = self.requests.get(self.begun).cloned() else { return false };
        let codec = &self.speaker.codec;
        let is_ready = request.tunnel.is_none() || codec.has_peer_settings();
        if now < self.opens_after
            || self.exchanges.len() > self.link.behaviour.pipelined_max
            || codec.free_slots() == 0
            || !is_ready
        {
            return false;
        }
        let is_guessed = !codec.has_peer_settings();
        let form = if request.tunnel.is_some() { RequestForm::Upgrade } else { RequestForm::Same };
        let is_end = match request.body {
            RequestBody::Length(0) => self.link.random.chance(500),
            body => body == RequestBody::None && request.tunnel.is_none(),
        };
        let stream = self.speaker.ask(&head(&request), form, is_end);
        let stream = stream.expect("there is a slot");
        let sending = match request.body {
            _ if is_end => Sending::Done,
            _ if request.tunnel.is_some() => Sending::WaitsForTunnel,
            _ if request.expects_continue => {
                self.link.wake_after(CONTINUE_PATIENCE, network);
                Sending::Waits(now)
            }
            _ => Sending::Body,
        };
        let cancelled_at = self.link.random.chance(self.habits.cancels).then(|| {
            let span = self.link.random.span(Duration::from_secs(2));
            self.link.wake_after(span, network);
            now + span
        });
        ledger.begin(request.id, now);
        self.exchanges.push(Exchange {
            plan: request,
            stream,
            sending,
            sent: 0,
            reading: Reading::Head,
            cancelled_at,
            is_guessed,
        });
        self.begun += 1;
        if self.link.random.chance(300) {
            let span = self.link.random.span(self.link.behaviour.thinks);
            self.opens_after = now + span;
            self.link.wake_after(span, network);
        }
        true
    }

    /// Sends a piece of each body that may be sent; returns whether it sent any.
    fn send_bodies(&mut self, now: Time, network: &mut Network) -> bool {
        let mut has_said = false;
        let first = self.link.random.length_below(self.exchanges.len().max(1));
        for place in 0..self.exchanges.len() {
            let place = (place + first) % self.exchanges.len();
            let Some(exchange) = self.exchanges.get_mut(place) else { continue };
            if matches!(exchange.sending, Sending::Waits(since) if now >= since + CONTINUE_PATIENCE)
            {
                exchange.sending = Sending::Body;
            }
            if exchange.sending == Sending::Body {
                has_said |= send_body(exchange, &mut self.speaker, &mut self.link.random);
            }
            if self.link.may_pause(network) {
                break;
            }
        }
        let is_over = |exchange: &&Exchange| {
            matches!((&exchange.sending, &exchange.reading), (Sending::Done, Reading::Done))
        };
        while let Some(stream) = self.exchanges.iter().find(is_over).map(|over| over.stream) {
            self.forget(stream);
        }
        has_said
    }
}

impl Dialogue for Http2Client {
    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn has_stopped_reading(&self) -> bool {
        matches!(self.link.behaviour.leave, Leave::StopsReading(after) if self.ended >= after)
    }

    fn read(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        let (got, result) = self.speaker.receive(end, self.link.read_bytes_max(), network);
        self.link.on_read(got, network);
        if let Err(what) = self.digest(ledger, network) {
            // A preface that came late, or in a record that was spoiled: what was read of it may begin a
            // method of HTTP/1, in which the client is answered when its time is over.
            let read = network.read_before_answer(end);
            let is_told = read >= PREFACE_METHOD.len() as u64;
            if is_told || self.speaker.codec.has_peer_settings() {
                ledger.violate(format!("{what}: {}", self.describe()));
            }
            return self.finish(Outcome::Abandoned, Quit::Reset, network, ledger);
        }
        if !matches!(result, Ok(false)) {
            self.finish(Outcome::Unanswered, Quit::Close, network, ledger);
        }
    }

    fn write(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        loop {
            let now = network.now();
            self.act_up(now, network);
            self.cancel(now, ledger);
            let has_said = self.link.may_send(now)
                && (self.open(now, network, ledger) | self.send_bodies(now, network));
            match self.speaker.flush(end, self.link.send_bytes_max(), network) {
                Ok(n) => {
                    self.link.sent += n;
                    if self.link.send_bytes_max() == 0 {
                        let quit = self.link.quit_early();
                        return self.finish(Outcome::Abandoned, quit, network, ledger);
                    }
                    if !has_said && n == 0 {
                        return;
                    }
                }
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

    fn leave(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        let is_all = self.begun == self.requests.len() || self.is_going_away;
        if !is_all || !self.exchanges.is_empty() || self.has_left {
            return;
        }
        if !self.speaker.is_flushed() && !self.is_going_away {
            return;
        }
        self.has_left = true;
        if self.link.behaviour.leave == Leave::HalfClose {
            network.shutdown_write(end);
        } else if self.habits.sends_goaway {
            self.speaker.restore_settings();
            self.speaker.codec.go_away(ErrorCode::NO_ERROR);
            self.write(end, network, ledger);
        } else {
            self.finish(Outcome::Answered, Quit::Close, network, ledger);
        }
    }

    /// The connection is over, and with it what is still open: `outcome`, or cut off.
    fn finish(&mut self, outcome: Outcome, quit: Quit, network: &mut Network, ledger: &mut Ledger) {
        for exchange in std::mem::take(&mut self.exchanges) {
            let is_begun = !matches!(exchange.reading, Reading::Head);
            let outcome = match (outcome, &exchange.reading) {
                (Outcome::Unanswered, Reading::Tunnel { at })
                    if *at == exchange.plan.tunnel.unwrap_or(0) as u64 =>
                {
                    Outcome::Answered
                }
                (Outcome::Unanswered, _) if is_begun => Outcome::Truncated,
                _ => outcome,
            };
            ledger.settle(exchange.plan.id, outcome);
        }
        for request in self.requests.iter().skip(self.begun) {
            let is_left = outcome == Outcome::Abandoned;
            ledger.settle(request.id, if is_left { outcome } else { Outcome::Unsent });
        }
        self.link.end(quit, network);
    }

    fn moved_total(&self) -> u64 {
        self.read_total
    }

    fn describe(&self) -> String {
        let Self { link, begun, ended, habits, exchanges, .. } = self;
        let windows = exchanges.iter().map(|exchange| self.speaker.room(exchange.stream));
        let windows: Vec<_> = windows.collect();
        format!(
            "HTTP/2 on {link:?}: {begun} of {} begun, {ended} ended, flushed: {}, left: {}, goes away: {}, \
             may send {windows:?}, {habits:?}, {exchanges:?}",
            self.requests.len(),
            self.speaker.is_flushed(),
            self.has_left,
            self.is_going_away,
        )
    }
}

impl Habits {
    fn some(random: &mut Random) -> Self {
        let pulse = |is_on: bool| is_on.then(|| Pulse::every(NOW_AND_THEN));
        Self {
            owes: if random.chance(300) { random.below(1_000) as u32 } else { 0 },
            pays: Pulse::every(NOW_AND_THEN / 4),
            pings: pulse(random.chance(300)),
            changes_settings: pulse(random.chance(300)),
            cancels: if random.chance(300) { random.below(500) as u32 } else { 0 },
            sends_goaway: random.chance(500),
        }
    }
}

/// Sends a piece of a body; returns whether it did.
fn send_body(exchange: &mut Exchange, speaker: &mut Speaker, random: &mut Random) -> bool {
    let Exchange { plan, stream, .. } = exchange;
    let (id, stream) = (plan.id, *stream);
    let length = plan.tunnel.unwrap_or(plan.body.len());
    let left = length - exchange.sent;
    if left > 0 {
        let room = speaker.room(stream).min(left);
        if room == 0 {
            return false;
        }
        let n = if random.chance(500) { room } else { 1 + random.size(room - 1) };
        let mut data = vec![0; n];
        fill_request(id, exchange.sent as u64, &mut data);
        let is_last = n == left
            && matches!(plan.body, RequestBody::Length(_))
            && plan.tunnel.is_none()
            && random.chance(500);
        speaker.send(stream, &data, is_last);
        exchange.sent += n;
        if is_last {
            exchange.sending = Sending::Done;
        }
        return true;
    }
    match (&exchange.reading, plan.body) {
        // Everything has to come back first.
        (Reading::Tunnel { at }, _) if *at < length as u64 => return false,
        (_, RequestBody::Chunked(_, true)) => {
            speaker.end_with(stream, &format!("x-check: {id:016x}\r\n"));
        }
        _ => speaker.send(stream, &[], true),
    }
    exchange.sending = Sending::Done;
    true
}

/// The head, in the words of HTTP/1.
fn head(request: &RequestPlan) -> String {
    let RequestPlan { id, method, cluster, .. } = request;
    let mut head = format!("{method} /{cluster}/{id:016x} HTTP/1.1\r\nHost: sim.example\r\n");
    match request.body {
        RequestBody::None => {}
        RequestBody::Length(length) => head += &format!("Content-Length: {length}\r\n"),
        RequestBody::Chunked(..) => head += "Transfer-Encoding: chunked\r\n",
    }
    if request.expects_continue {
        head += "Expect: 100-continue\r\n";
    }
    if request.tunnel.is_some() {
        head += "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    }
    head + "\r\n"
}
