//! Whole connections of HTTP/2 from a script of bytes: clients that speak it, services that speak
//! it or HTTP/1, in any order. Whatever they do, nothing panics, nothing is left behind, every rule
//! of HTTP/2 is kept towards them, every request is answered once or not at all, and no byte of
//! one exchange is heard in another.
//!
//! A script is a sequence of steps: one byte for the kind and the peer, one for a number, and
//! for what is said raw that many bytes. A client is either *spoken*, with the codec of its side,
//! which notices every broken rule, or *raw*, and says whatever the script has. The first step's
//! highest bit says which the first client is.
//!
//! The path of a spoken request ends with a letter. Its body consists of that letter, and that of
//! its response of the letter in upper case.

use std::time::Duration;

use config::snapshot::Address;
use wire::h1::{BodyDecoder, BodyElement, BodyLimits, HeadLimits, Scan, decode_request};
use wire::h2::{ErrorCode, Http2, Limits, RequestForm};
use wire::head::HeadIndex;

use crate::frames::Speaker;
use crate::kit::{Peer, Setting, Talk, Variant};
use wire::path::Slashes;

const CONFIG: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: all
    http: { body_max: 64KiB, head_max: 2KiB, request_line_max: 1KiB }
    http2: { streams_max: 4, stream_window_max: 2KiB, connection_window_max: 64KiB, ping: { interval: 9s, timeout: 1s } }
    timeouts: { tunnel_idle: 30s }
routes:
  - name: all
    hosts: ['*']
    rules:
      - match: { path: /here }
        respond: { status: 200, body: here }
      - { match: { prefix: /2 }, cluster: two, timeout: 20s, upgrades: [websocket] }
      - { match: { prefix: / }, cluster: one, timeout: 20s, upgrades: [websocket] }
clusters:
  - name: one
    endpoints: ['127.0.0.1:9001']
    connections_max: 2
    pending_max: 2
  - name: two
    protocol: http2
    endpoints: ['127.0.0.1:9002', '127.0.0.1:9003']
    connections_max: 2
    pending_max: 3
    http2: { stream_window_max: 3KiB, connection_window_max: 64KiB, ping: { interval: 7s, timeout: 1s } }
";

/// The endpoint that speaks HTTP/1.
const ONE: &str = "127.0.0.1:9001";

const CLIENTS_MAX: usize = 4;

/// Plays a script.
pub(crate) fn check(script: &[u8]) {
    // What is in use of a cluster's bounds is shared by all that have its snapshot.
    thread_local!(static SETTING: &'static Setting = Box::leak(Box::new(Setting::of(CONFIG))));
    let setting = SETTING.with(|it| *it);
    let variant = if script.len().is_multiple_of(2) { Variant::Plain } else { Variant::Moving };
    let is_raw = script.first().is_some_and(|kind| kind & 0x80 != 0);
    let mut play = Play::new(Talk::new(setting, variant));
    play.add_client(is_raw);
    let mut rest = script;
    while let [kind, number, behind @ ..] = rest {
        let is_said_raw = kind % 32 < 5;
        let length = if is_said_raw { usize::from(*number).min(behind.len()) } else { 0 };
        let (said, next) = behind.split_at(length);
        rest = next;
        play.step(kind % 32, usize::from(kind / 32), *number, said);
        play.listen();
    }
    play.end();
}

/// The peers of a script, and what they have received.
struct Play<'s> {
    talk: Talk<'s>,
    clients: Vec<Client>,
    services: Vec<Service>,
    /// Requests of spoken clients so far.
    asked: u8,
    /// A service said something that its script made up.
    is_garbled: bool,
}

enum Client {
    Spoken { speaker: Box<Speaker>, asks: Vec<Ask> },
    Raw { peer: Peer, frames: Frames },
}

/// A request of a spoken client.
struct Ask {
    stream: u32,
    letter: u8,
    is_tunnel: bool,
    answer: Answer,
}

/// The received part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    /// Of the service's, to this point.
    Begun,
    /// Of the proxy's own.
    Own,
    /// To its end, or to its reset.
    Over,
}

/// A connection to a service.
struct Service {
    peer: Peer,
    speech: Speech,
    requests: Vec<Request>,
}

enum Speech {
    Http1 {
        heard: Vec<u8>,
        reading: Option<BodyDecoder>,
    },
    Http2(Box<Speaker>),
    /// Said something that its script made up, and is not listened to any more.
    Garbled,
}

/// A request as its service heard it.
struct Request {
    /// 0 where there are none.
    stream: u32,
    letter: u8,
    is_tunnel: bool,
    is_answered: bool,
}

impl<'s> Play<'s> {
    fn new(talk: Talk<'s>) -> Self {
        Self { talk, clients: Vec::new(), services: Vec::new(), asked: 0, is_garbled: false }
    }

    fn add_client(&mut self, is_raw: bool) {
        if self.clients.len() == CLIENTS_MAX {
            return;
        }
        let Some(peer) = self.talk.try_client() else { return };
        if is_raw {
            return self.clients.push(Client::Raw { peer, frames: Frames::default() });
        }
        let limits = Limits::default();
        let mut speaker = Speaker::new(peer, Http2::client(&limits), limits);
        speaker.greet(&mut self.talk);
        self.clients.push(Client::Spoken { speaker: Box::new(speaker), asks: Vec::new() });
    }

    fn step(&mut self, kind: u8, peer_index: usize, number: u8, said: &[u8]) {
        let client = self.clients.get(peer_index % self.clients.len().max(1)).map(Client::peer);
        let place = peer_index % self.services.len().max(1);
        let service = self.services.get(place).map(|service| service.peer);
        let talk = &mut self.talk;
        match kind {
            0..4 => self.say_raw(peer_index, said),
            4 => self.garble(place, said),
            5..13 => self.act_client(kind, peer_index, number),
            13 => client.into_iter().for_each(|peer| talk.ends(peer)),
            14 => client.into_iter().for_each(|peer| talk.breaks(peer)),
            15 => client.into_iter().for_each(|peer| talk.takes(peer, usize::from(number) * 50)),
            16 => client.into_iter().for_each(|peer| talk.takes(peer, usize::MAX)),
            17 => self.add_client(number % 2 == 1),
            18..24 => self.act_service(kind, place, number),
            24 => service.into_iter().for_each(|peer| talk.ends(peer)),
            25 => service.into_iter().for_each(|peer| talk.breaks(peer)),
            26 if talk.is_connecting() => talk.refuse(talk.connecting()),
            27 => talk.passes(Duration::from_millis(u64::from(number) * 100)),
            28 => service.into_iter().for_each(|peer| talk.takes(peer, usize::from(number) * 50)),
            29 => service.into_iter().for_each(|peer| talk.takes(peer, usize::MAX)),
            30 if number == 0 => talk.drains(),
            31 => talk.cuts(usize::from(number)),
            _ => {}
        }
        // Connecting may go on while other things happen.
        if kind < 24 && number % 4 != 3 {
            self.establish();
        }
    }

    fn establish(&mut self) {
        while self.talk.is_connecting() {
            let peer = self.talk.upstream();
            let is_http1 = *self.talk.address(peer) == Address::Tcp(ONE.parse().unwrap());
            let speech = if is_http1 {
                Speech::Http1 { heard: Vec::new(), reading: None }
            } else {
                // Clients that reset without end may do so through all of them.
                let limits = Limits { work_max: u32::MAX, ..Limits::default() };
                let mut speaker = Speaker::new(peer, Http2::server(&limits), limits);
                speaker.greet(&mut self.talk);
                Speech::Http2(Box::new(speaker))
            };
            self.services.push(Service { peer, speech, requests: Vec::new() });
        }
    }

    fn say_raw(&mut self, peer_index: usize, said: &[u8]) {
        let raw = self.clients.iter().filter_map(|client| match client {
            Client::Raw { peer, .. } => Some(*peer),
            Client::Spoken { .. } => None,
        });
        let raw: Vec<_> = raw.collect();
        if let Some(peer) = raw.get(peer_index % raw.len().max(1)) {
            self.talk.says(*peer, said);
        }
    }

    fn garble(&mut self, place: usize, said: &[u8]) {
        if let Some(service) = self.services.get_mut(place) {
            service.speech = Speech::Garbled;
            service.requests.clear();
            self.is_garbled = true;
            self.talk.says(service.peer, said);
        }
    }

    // Actions of clients.

    fn act_client(&mut self, kind: u8, peer_index: usize, number: u8) {
        let talk = &mut self.talk;
        let count = self.clients.len().max(1);
        let Some(Client::Spoken { speaker, asks }) = self.clients.get_mut(peer_index % count)
        else {
            return;
        };
        if talk.is_closed(speaker.peer) {
            return;
        }
        if kind == 5 {
            if speaker.codec.free_slots() > 0 {
                let letter = b'a' + self.asked % 26;
                self.asked = self.asked.wrapping_add(1);
                asks.push(ask(talk, speaker, letter, number));
            }
            return;
        }
        let open = asks.iter().filter(|ask| speaker.codec.is_open(ask.stream));
        let open: Vec<_> = open.map(|ask| (ask.stream, ask.letter)).collect();
        let chosen = open.get(usize::from(number / 16) % open.len().max(1)).copied();
        match (kind, chosen) {
            (6, Some((stream, letter))) => {
                let n = usize::from(number).pow(2).min(speaker.codec.sendable(stream));
                if n > 0 && may_send(&speaker.codec, stream) {
                    speaker.sends(talk, stream, &vec![letter; n], number % 4 == 1);
                }
            }
            (7, Some((stream, _))) if may_send(&speaker.codec, stream) => match number % 2 {
                0 => speaker.sends(talk, stream, b"", true),
                _ => speaker.ends_with(talk, stream, "x-sum: 1\r\n"),
            },
            (8, Some((stream, _))) => {
                asks.retain(|ask| ask.stream != stream);
                speaker.resets(talk, stream, ErrorCode::CANCEL);
            }
            (9, _) => speaker.does(talk, |codec| codec.ping([number; 8])),
            (10, _) => talk.says(speaker.peer, setting(4, u32::from(number) * 16)),
            (11, _) => speaker.takes = number.is_multiple_of(2),
            (12, _) => speaker.does(talk, |codec| match number % 2 {
                0 => codec.drain(),
                _ => codec.go_away(ErrorCode::NO_ERROR),
            }),
            _ => {}
        }
    }

    // Actions of services.

    fn act_service(&mut self, kind: u8, place: usize, number: u8) {
        let talk = &mut self.talk;
        let Some(service) = self.services.get_mut(place) else { return };
        let count = service.requests.len().max(1);
        let chosen = usize::from(number / 16) % count;
        let peer = service.peer;
        let request = service.requests.get_mut(chosen);
        match (&mut service.speech, request) {
            (Speech::Http1 { .. }, Some(request)) => {
                if answer_http1(talk, peer, request, kind, number) {
                    service.requests.remove(chosen);
                }
            }
            (Speech::Http2(speaker), request) => {
                if answer_http2(talk, speaker, request, kind, number) {
                    service.requests.remove(chosen);
                }
            }
            (Speech::Http1 { .. } | Speech::Garbled, _) => {}
        }
    }

    // Checks of what peers receive.

    fn listen(&mut self) {
        let has_raw = self.clients.iter().any(|client| matches!(client, Client::Raw { .. }));
        for service in &mut self.services {
            let printed = match &mut service.speech {
                Speech::Http1 { heard, .. } => {
                    heard.extend(self.talk.heard_bytes(service.peer));
                    String::new()
                }
                Speech::Http2(speaker) => speaker.hears(&mut self.talk),
                Speech::Garbled => {
                    self.talk.heard_bytes(service.peer);
                    continue;
                }
            };
            match &mut service.speech {
                Speech::Http1 { heard, reading } => {
                    hear_http1(heard, reading, &mut service.requests, !has_raw);
                }
                _ => hear_http2(&printed, &mut service.requests, !has_raw),
            }
        }
        for client in &mut self.clients {
            match client {
                Client::Spoken { speaker, asks } => {
                    let printed = speaker.hears(&mut self.talk);
                    printed.lines().for_each(|line| hear_answer(line, asks, !self.is_garbled));
                }
                Client::Raw { peer, frames } => frames.on_heard(&self.talk.heard_bytes(*peer)),
            }
        }
    }

    /// All peers read everything and send nothing, and time passes: every request ends.
    fn end(mut self) {
        for client in &mut self.clients {
            if let Client::Spoken { speaker, .. } = client {
                speaker.takes = true;
            }
            self.talk.takes(client.peer(), usize::MAX);
        }
        self.listen();
        self.talk.passes(Duration::from_secs(3_600));
        self.listen();
        for client in &self.clients {
            let Client::Spoken { speaker, asks } = client else { continue };
            let mut asks = asks.iter();
            let waits = asks.find(|ask| ask.answer != Answer::Over);
            if let Some(Ask { stream, answer, .. }) = waits {
                let is_closed = self.talk.is_shut(speaker.peer);
                assert!(is_closed, "stream {stream} waits for ever: {answer:?}");
            }
        }
        self.talk.assert_at_rest();
    }
}

impl Client {
    fn peer(&self) -> Peer {
        match self {
            Self::Spoken { speaker, .. } => speaker.peer,
            Self::Raw { peer, .. } => *peer,
        }
    }
}

/// Whether a body may be sent on this stream now, or its end.
fn may_send(codec: &Http2, stream: u32) -> bool {
    codec.clone().begin_data(stream, 0, true).is_some()
}

fn setting(key: u8, value: u32) -> Vec<u8> {
    [&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, key][..], &value.to_be_bytes()].concat()
}

fn ask(talk: &mut Talk<'_>, speaker: &mut Speaker, letter: u8, number: u8) -> Ask {
    let cluster = 1 + number % 2;
    let has_body = number & 2 != 0;
    let is_tunnel = number & 4 != 0;
    let method = if has_body && !is_tunnel { "POST" } else { "GET" };
    let mut head = format!("{method} /{cluster}/{} HTTP/1.1\r\nHost: x\r\n", char::from(letter));
    if number & 8 != 0 {
        head += "Expect: 100-continue\r\n";
    }
    if number & 16 != 0 {
        head += "TE: trailers\r\nTrailer: x-sum\r\n";
    }
    if number & 32 != 0 && !is_tunnel {
        head += "X-Long: ";
        head.extend(std::iter::repeat_n('l', usize::from(number) * 4));
        head += "\r\n";
    }
    let form = if is_tunnel {
        head += "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
        RequestForm::Upgrade
    } else {
        RequestForm::Same
    };
    head += "\r\n";
    let stream = speaker.asks_as(talk, &head, !has_body && !is_tunnel, form);
    Ask { stream, letter, is_tunnel, answer: Answer::Nothing }
}

/// Lets a service of HTTP/1 do something; says whether its request is over.
fn answer_http1(
    talk: &mut Talk<'_>,
    peer: Peer,
    request: &mut Request,
    kind: u8,
    number: u8,
) -> bool {
    let data = vec![request.letter.to_ascii_uppercase(); usize::from(number % 16) * 100];
    let chunk = |data: &[u8]| [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat();
    match kind {
        18 if request.is_answered => return false,
        18 if request.is_tunnel && number % 4 != 3 => {
            request.is_answered = true;
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            talk.says(peer, [head.as_bytes(), &data].concat());
        }
        18 => {
            let head = match number % 4 {
                0 => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", data.len()),
                1 => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\n\r\n"
                    .to_owned(),
                2 => "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n".to_owned(),
                _ => "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
            };
            let is_over = matches!(number % 4, 0 | 2);
            let body = if number.is_multiple_of(4) { &data[..] } else { b"" };
            request.is_answered = number % 4 == 1;
            request.is_tunnel &= !request.is_answered;
            talk.says(peer, [head.as_bytes(), body].concat());
            return is_over;
        }
        19 if request.is_answered && request.is_tunnel => talk.says(peer, data),
        19 if request.is_answered && !data.is_empty() => talk.says(peer, chunk(&data)),
        20 if request.is_answered && request.is_tunnel => talk.ends(peer),
        20 if request.is_answered => {
            talk.says(
                peer,
                if number.is_multiple_of(2) { "0\r\n\r\n" } else { "0\r\nx-t: 1\r\n\r\n" },
            );
            return true;
        }
        _ => {}
    }
    false
}

/// Lets a service of HTTP/2 do something; says whether its request is over.
fn answer_http2(
    talk: &mut Talk<'_>,
    speaker: &mut Speaker,
    request: Option<&mut Request>,
    kind: u8,
    number: u8,
) -> bool {
    match kind {
        22 => {
            speaker.does(talk, |codec| match number % 3 {
                0 => codec.drain(),
                1 => codec.go_away(ErrorCode::NO_ERROR),
                _ => codec.ping([number; 8]),
            });
            return false;
        }
        23 => {
            let (key, value) = match number % 3 {
                0 => (3, u32::from(number / 3) % 3),
                1 => (4, u32::from(number) * 16),
                _ => (1, u32::from(number) * 16),
            };
            speaker.takes = number % 8 != 7;
            talk.says(speaker.peer, setting(key, value));
            return false;
        }
        _ => {}
    }
    let Some(request) = request.filter(|request| speaker.codec.is_open(request.stream)) else {
        return false;
    };
    let stream = request.stream;
    let letter = request.letter.to_ascii_uppercase();
    match kind {
        18 if request.is_answered => {}
        18 => match number % 4 {
            0 => {
                let n = usize::from(number % 16) * 100;
                let n = if request.is_tunnel { 0 } else { n.min(speaker.codec.sendable(stream)) };
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n");
                speaker.answers(talk, stream, &head, n == 0);
                if n > 0 {
                    speaker.sends(talk, stream, &vec![letter; n], true);
                }
                return true;
            }
            1 => {
                request.is_answered = true;
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                speaker.answers(talk, stream, head, false);
            }
            2 => {
                speaker.answers(talk, stream, "HTTP/1.1 204 No Content\r\n\r\n", true);
                return true;
            }
            _ => speaker.answers(talk, stream, "HTTP/1.1 103 Early Hints\r\n\r\n", false),
        },
        19 if request.is_answered => {
            let n = usize::from(number).pow(2).min(speaker.codec.sendable(stream));
            if n > 0 {
                speaker.sends(talk, stream, &vec![letter; n], false);
            }
        }
        20 if request.is_answered => {
            match number % 2 {
                0 => speaker.sends(talk, stream, b"", true),
                _ => speaker.ends_with(talk, stream, "x-t: 1\r\n"),
            }
            return true;
        }
        21 => {
            let codes = [
                ErrorCode::REFUSED_STREAM,
                ErrorCode::INTERNAL_ERROR,
                ErrorCode::NO_ERROR,
                ErrorCode::CANCEL,
            ];
            speaker.resets(talk, stream, codes[usize::from(number % 4)]);
            return true;
        }
        _ => {}
    }
    false
}

/// The letter that a path ends with.
fn letter_of(path: &[u8]) -> u8 {
    path.last().copied().filter(u8::is_ascii_lowercase).unwrap_or(b'?')
}

/// A service of HTTP/1 receives requests, one behind the other, each with its own body.
fn hear_http1(
    heard: &mut Vec<u8>,
    reading: &mut Option<BodyDecoder>,
    requests: &mut Vec<Request>,
    is_spoken: bool,
) {
    let limits = HeadLimits {
        request_line_bytes_max: 8 << 10,
        head_bytes_max: 60 << 10,
        fields_max: 200,
        slashes: Slashes::Keep,
    };
    let body_limits = BodyLimits {
        chunk_line_bytes_max: 256,
        trailers_bytes_max: 8 << 10,
        fields_max: 100,
        parsing: wire::h1::Parsing::Strict,
    };
    let mut index = HeadIndex::default();
    loop {
        if let Some(request) = requests.last().filter(|request| request.is_tunnel) {
            assert!(!is_spoken || heard.iter().all(|octet| *octet == request.letter));
            return heard.clear();
        }
        if let Some(body) = reading {
            let (n, element) = body.decode(heard, &body_limits).expect("a well-formed body");
            if let (BodyElement::Data(data), Some(request)) = (&element, requests.last()) {
                let is_own = data.iter().all(|octet| *octet == request.letter);
                assert!(!is_spoken || is_own, "a body of another request");
            }
            let needs_more = matches!(element, BodyElement::NeedMore);
            heard.drain(..n);
            if body.is_complete() {
                *reading = None;
            } else if needs_more {
                return;
            }
            continue;
        }
        let decoded = decode_request(heard, &mut Scan::default(), &limits, &mut index);
        let Some((head, n)) = decoded.expect("a well-formed request head") else { return };
        let letter = letter_of(head.path());
        let is_tunnel = head.upgrade().is_some();
        let body = BodyDecoder::new(head.framing());
        *reading = (!body.is_complete()).then_some(body);
        heard.drain(..n);
        // Whatever came before is over, or the connection would not be used again.
        requests.clear();
        requests.push(Request { stream: 0, letter, is_tunnel, is_answered: false });
    }
}

/// The same of HTTP/2, as its [`Speaker`] prints it.
fn hear_http2(printed: &str, requests: &mut Vec<Request>, is_spoken: bool) {
    for line in printed.lines() {
        let Some((stream, what)) = line.split_once(": ") else { continue };
        let Ok(stream) = stream.parse::<u32>() else { continue };
        let what = what.strip_suffix(" END").unwrap_or(what);
        if what.starts_with("reset ") {
            requests.retain(|request| request.stream != stream);
        } else if let Some(data) = what.strip_prefix("data ") {
            let request = requests.iter().find(|request| request.stream == stream);
            let is_own = |request: &Request| data.bytes().all(|octet| octet == request.letter);
            assert!(!is_spoken || request.is_none_or(is_own), "a body of another request");
        } else if what != "END" && !what.starts_with("trailers ") {
            let is_tunnel = what.starts_with("CONNECT ");
            let path = what.split([' ', ';']).nth(1).unwrap_or_default();
            let letter = letter_of(path.as_bytes());
            requests.push(Request { stream, letter, is_tunnel, is_answered: false });
        }
    }
}

/// A client receives answers to its own requests.
fn hear_answer(line: &str, asks: &mut [Ask], is_sound: bool) {
    let Some((stream, what)) = line.split_once(": ") else { return };
    let Ok(stream) = stream.parse::<u32>() else { return };
    let Some(ask) = asks.iter_mut().find(|ask| ask.stream == stream) else { return };
    let (what, is_end) = match what.strip_suffix("END") {
        Some(what) => (what.trim_end(), true),
        None => (what, false),
    };
    let letter = ask.letter.to_ascii_uppercase();
    if what.starts_with("reset ") {
        ask.answer = Answer::Over;
        return;
    }
    assert_ne!(ask.answer, Answer::Over, "{line} behind the end");
    if let Some(data) = what.strip_prefix("data ") {
        match ask.answer {
            Answer::Begun => {
                let is_own = data.bytes().all(|octet| octet == letter);
                assert!(!is_sound || is_own, "{line:?} on a stream of {}", char::from(letter));
            }
            answer => assert_eq!(answer, Answer::Own, "data before a head"),
        }
    } else if what.starts_with('1') {
        assert_eq!(ask.answer, Answer::Nothing, "{line} behind an answer");
        return;
    } else if !what.is_empty() && !what.starts_with("trailers ") {
        assert_eq!(ask.answer, Answer::Nothing, "{line} is a second answer");
        let is_own = what.contains("; server: strait");
        ask.answer = if is_own { Answer::Own } else { Answer::Begun };
        assert!(!ask.is_tunnel || !what.starts_with("101"), "there is no such thing in HTTP/2");
    }
    if is_end {
        ask.answer = Answer::Over;
    }
}

/// A raw client receives frames in a valid order, whatever it sent.
#[derive(Default)]
struct Frames {
    heard: Vec<u8>,
    /// Streams on which something was heard, and whether that was the end.
    streams: Vec<(u32, bool)>,
    /// It received bytes of HTTP/1.
    is_http1: bool,
}

impl Frames {
    fn on_heard(&mut self, bytes: &[u8]) {
        const SWITCHING: &[u8] =
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
        self.heard.extend_from_slice(bytes);
        if self.streams.is_empty() && self.heard.starts_with(SWITCHING) {
            self.heard.drain(..SWITCHING.len());
        }
        self.is_http1 |= self.heard.starts_with(b"HTTP");
        while let Some(&[a, b, c, kind, flags, s0, s1, s2, s3]) = self.heard.first_chunk::<9>() {
            if self.is_http1 {
                return self.heard.clear();
            }
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if self.heard.len() < 9 + length {
                return;
            }
            self.heard.drain(..9 + length);
            self.on_frame(kind, flags, u32::from_be_bytes([s0, s1, s2, s3]));
        }
    }

    fn on_frame(&mut self, kind: u8, flags: u8, stream: u32) {
        const DATA: u8 = 0;
        const HEADERS: u8 = 1;
        const RST_STREAM: u8 = 3;
        const END_STREAM: u8 = 1;
        let place = self.streams.iter().position(|(known, _)| *known == stream);
        match kind {
            DATA | HEADERS => {
                assert!(stream % 2 == 1, "a stream of the client's");
                let is_end = flags & END_STREAM != 0;
                match place.and_then(|place| self.streams.get_mut(place)) {
                    Some((_, is_over)) => {
                        assert!(!*is_over, "stream {stream} goes on behind its end");
                        *is_over = is_end;
                    }
                    None => {
                        assert_eq!(kind, HEADERS, "an answer begins with a head");
                        self.streams.push((stream, is_end));
                    }
                }
            }
            RST_STREAM => match place.and_then(|place| self.streams.get_mut(place)) {
                Some((_, is_over)) => *is_over = true,
                None => self.streams.push((stream, true)),
            },
            _ => {}
        }
    }
}
