//! Whole connections of an RPC protocol from a script of bytes: clients that call, services that answer, in
//! any order. Whatever they do, nothing panics, nothing is left behind, each service receives well-formed
//! frames, and each call is answered once or not at all, with nothing of another.
//!
//! A script is a sequence of steps: one byte for the kind and the peer, one for a number, and for what is
//! said raw that many bytes. The first step's highest bit says whether the listener detects the protocol
//! beside HTTP.
//!
//! The method of a call is a letter. Its body consists of that letter, and that of its answer of the letter
//! in upper case.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::rpc::{FrameKind, RpcProtocol};

use crate::kit::pico::{FIXED_BYTES, Pico};
use crate::kit::{Peer, Setting, Talk, Variant};

const CONFIG: &str = "
listeners:
  - name: calls
    address: 127.0.0.1:8080
    protocol: pico
    routes: calls
    rpc: { requests_max: 4, head_max: 1KiB, body_max: 16KiB }
routes:
  - name: calls
    rules:
      - { match: { prefix: /calls/ }, cluster: calls, timeout: 20s }
clusters:
  - name: calls
    protocol: pico
    endpoints: ['127.0.0.1:9001', '127.0.0.1:9002']
    connections_max: 2
    pending_max: 2
    rpc: { requests_max: 3, head_max: 1KiB, body_max: 16KiB }
";

/// The same listener, behind a look at the first bytes.
fn detecting() -> String {
    const OWN: &str = "    protocol: pico\n    routes: calls\n";
    const CHAIN: &str = "    routes: web\n    chains: [{ name: calls, match: { protocols: [pico] }, protocol: pico, routes: calls }]\n";
    let config = CONFIG.replace(OWN, CHAIN);
    assert_ne!(config, CONFIG);
    let web =
        "routes:\n  - { name: web, rules: [{ match: { prefix: / }, respond: { status: 200 } }] }\n";
    config.replace("routes:\n", web)
}

const CLIENTS_MAX: usize = 4;

/// Plays a script.
pub(crate) fn check(script: &[u8]) {
    // What is in use of a cluster's bounds is shared by all that have its snapshot.
    thread_local! {
        static PLAIN: &'static Setting = Box::leak(Box::new(Setting::of(CONFIG)));
        static DETECTING: &'static Setting = Box::leak(Box::new(Setting::of(&detecting())));
    }
    let setting = match script.first().is_some_and(|kind| kind & 0x80 != 0) {
        true => DETECTING.with(|it| *it),
        false => PLAIN.with(|it| *it),
    };
    let variant = if script.len().is_multiple_of(2) { Variant::Plain } else { Variant::Moving };
    let mut play = Play::new(Talk::new(setting, variant));
    play.add_client();
    let mut rest = script;
    while let [kind, number, behind @ ..] = rest {
        let length = if kind % 16 < 2 { usize::from(*number).min(behind.len()) } else { 0 };
        let (said, next) = behind.split_at(length);
        rest = next;
        play.step(kind % 16, usize::from(kind / 16 % 8), *number, said);
        play.listen();
    }
    play.end();
}

/// The peers of a script, and what they have received.
struct Play<'s> {
    talk: Talk<'s>,
    clients: Vec<Client>,
    services: Vec<Service>,
    /// Calls so far.
    asked: u8,
    /// A service said something that its script made up.
    is_garbled: bool,
}

#[derive(Debug)]
struct Client {
    peer: Peer,
    heard: Vec<u8>,
    /// The letters of calls without an answer, by number.
    asks: BTreeMap<u32, u8>,
    numbers: u32,
    /// It said something that its script made up, and is not listened to any more.
    is_raw: bool,
}

/// A connection to a service.
#[derive(Debug)]
struct Service {
    peer: Peer,
    heard: Vec<u8>,
    /// The numbers and letters of calls that it has not answered.
    calls: Vec<(u32, u8)>,
}

impl<'s> Play<'s> {
    fn new(talk: Talk<'s>) -> Self {
        Self { talk, clients: Vec::new(), services: Vec::new(), asked: 0, is_garbled: false }
    }

    fn add_client(&mut self) {
        if self.clients.len() < CLIENTS_MAX
            && let Some(peer) = self.talk.try_client()
        {
            let (heard, asks) = (Vec::new(), BTreeMap::new());
            self.clients.push(Client { peer, heard, asks, numbers: 0, is_raw: false });
        }
    }

    fn step(&mut self, kind: u8, peer_index: usize, number: u8, said: &[u8]) {
        let (client, service) = (self.client(peer_index), self.service(peer_index));
        let talk = &mut self.talk;
        match kind {
            0 => self.say_raw(peer_index, said),
            1 => self.garble(peer_index, said),
            2..6 => self.call(peer_index, kind, number),
            6 | 7 => self.answer(peer_index, number),
            8 => service.into_iter().for_each(|peer| {
                // An answer to nothing, or a heartbeat.
                let kind = if number < 128 { 3 } else { 4 };
                talk.says(peer, frame(kind, u32::from(number), b"", b""));
            }),
            9 => service.into_iter().for_each(|peer| match number % 3 {
                0 => talk.ends(peer),
                1 => talk.breaks(peer),
                _ => talk.says(peer, frame(6, 0, b"", b"")),
            }),
            10 => client.into_iter().for_each(|peer| match number % 2 {
                0 => talk.ends(peer),
                _ => talk.breaks(peer),
            }),
            11 => client.into_iter().for_each(|peer| match number {
                255 => talk.takes(peer, usize::MAX),
                _ => talk.takes(peer, usize::from(number) * 50),
            }),
            12 => service.into_iter().for_each(|peer| match number {
                255 => talk.takes(peer, usize::MAX),
                _ => talk.takes(peer, usize::from(number) * 50),
            }),
            13 => talk.passes(Duration::from_millis(u64::from(number) * 100)),
            14 if number == 0 => talk.drains(),
            14 => talk.cuts(usize::from(number)),
            _ if number.is_multiple_of(2) => self.add_client(),
            _ if talk.is_connecting() => talk.refuse(talk.connecting()),
            _ => {}
        }
        // Connecting may go on while other things happen.
        if kind < 8 && number % 4 != 3 {
            while self.talk.is_connecting() {
                let peer = self.talk.upstream();
                self.services.push(Service { peer, heard: Vec::new(), calls: Vec::new() });
            }
        }
    }

    fn client(&self, index: usize) -> Option<Peer> {
        self.clients.get(index % self.clients.len().max(1)).map(|client| client.peer)
    }

    fn service(&self, index: usize) -> Option<Peer> {
        self.services.get(index % self.services.len().max(1)).map(|service| service.peer)
    }

    fn say_raw(&mut self, index: usize, said: &[u8]) {
        let count = self.clients.len().max(1);
        if let Some(client) = self.clients.get_mut(index % count) {
            client.is_raw = true;
            self.talk.says(client.peer, said);
        }
    }

    fn garble(&mut self, index: usize, said: &[u8]) {
        if let Some(peer) = self.service(index) {
            self.is_garbled = true;
            self.talk.says(peer, said);
        }
    }

    fn call(&mut self, index: usize, kind: u8, number: u8) {
        let count = self.clients.len().max(1);
        let Some(client) = self.clients.get_mut(index % count) else { return };
        if client.is_raw || self.talk.is_closed(client.peer) {
            return;
        }
        let letter = b'a' + self.asked % 26;
        self.asked = self.asked.wrapping_add(1);
        client.numbers += 1 + u32::from(number % 8);
        let body = vec![letter; usize::from(number).pow(2) % 20_000];
        let is_one_way = kind == 5;
        if !is_one_way {
            client.asks.insert(client.numbers, letter);
        }
        let call = frame(if is_one_way { 2 } else { 1 }, client.numbers, &[letter], &body);
        self.talk.says(client.peer, call);
    }

    fn answer(&mut self, index: usize, number: u8) {
        let count = self.services.len().max(1);
        let Some(service) = self.services.get_mut(index % count) else { return };
        if service.calls.is_empty() {
            return;
        }
        let (id, letter) = service.calls.remove(usize::from(number / 8) % service.calls.len());
        let body = vec![letter.to_ascii_uppercase(); usize::from(number).pow(2) % 20_000];
        self.talk.says(service.peer, frame(3, id, b"", &body));
    }

    // Checks of what peers receive.

    fn listen(&mut self) {
        let has_raw = self.clients.iter().any(|client| client.is_raw);
        for service in &mut self.services {
            service.heard.extend(self.talk.heard_bytes(service.peer));
            while let Some((kind, id, whole)) = take_frame(&mut service.heard) {
                let letter = whole.letter();
                assert!(
                    has_raw || whole.body.iter().all(|octet| *octet == letter),
                    "a body of another call"
                );
                match kind {
                    FrameKind::Request => service.calls.push((id, letter)),
                    FrameKind::OneWay | FrameKind::Heartbeat | FrameKind::HeartbeatAnswer => {}
                    FrameKind::Response | FrameKind::GoAway => panic!("{kind:?} of a client"),
                }
            }
        }
        for client in &mut self.clients {
            let bytes = self.talk.heard_bytes(client.peer);
            if client.is_raw {
                continue;
            }
            client.heard.extend(bytes);
            while let Some((kind, id, whole)) = take_frame(&mut client.heard) {
                assert_eq!(kind, FrameKind::Response, "clients get answers only");
                let letter = client.asks.remove(&id).expect("an answer is to a call that waits");
                let letter = letter.to_ascii_uppercase();
                let is_its = whole.status != 0 || whole.body.iter().all(|octet| *octet == letter);
                assert!(is_its || self.is_garbled, "an answer of another call");
            }
        }
    }

    /// All peers read everything and send nothing, and time passes: every call ends.
    fn end(mut self) {
        for peer in self.clients.iter().map(|client| client.peer) {
            self.talk.takes(peer, usize::MAX);
        }
        self.listen();
        self.talk.passes(Duration::from_secs(3_600));
        self.listen();
        for client in self.clients.iter().filter(|client| !client.is_raw) {
            let is_over = client.asks.is_empty() || self.talk.is_shut(client.peer);
            assert!(is_over, "calls wait for ever: {:?}", client.asks);
        }
        self.talk.assert_at_rest();
    }
}

/// A frame of Pico, with a service and this method if it has one.
fn frame(kind: u8, id: u32, method: &[u8], body: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    if !method.is_empty() {
        for (name, value) in [(&b"service"[..], &b"calls"[..]), (b"method", method)] {
            fields.push(u8::try_from(name.len()).expect("short names"));
            fields.extend(u16::try_from(value.len()).expect("short values").to_be_bytes());
            fields.extend([name, value].concat());
        }
    }
    let mut frame = vec![kind, 0];
    frame.extend(u16::try_from(fields.len()).expect("few fields").to_be_bytes());
    frame.extend(id.to_be_bytes());
    frame.extend(u32::try_from(body.len()).expect("a short body").to_be_bytes());
    [frame, fields, body.to_vec()].concat()
}

/// What a frame has beside its kind and number.
struct Whole {
    status: u8,
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Whole {
    /// The method, which is the last of its fields; 0 if it has none.
    fn letter(&self) -> u8 {
        self.head.get(FIXED_BYTES..).and_then(<[u8]>::last).copied().unwrap_or_default()
    }
}

/// Takes the next frame, if all of it is here.
fn take_frame(heard: &mut Vec<u8>) -> Option<(FrameKind, u32, Whole)> {
    let frame = Pico.frame(heard).expect("well-formed frames")?;
    let length = frame.head_len + usize::try_from(frame.body_len).expect("a short body");
    if heard.len() < length {
        return None;
    }
    let whole: Vec<u8> = heard.drain(..length).collect();
    let (head, body) = whole.split_at(frame.head_len);
    let status = head.get(1).copied().unwrap_or_default();
    let id = u32::try_from(frame.asked.id).expect("four octets");
    Some((frame.kind, id, Whole { status, head: head.to_vec(), body: body.to_vec() }))
}
