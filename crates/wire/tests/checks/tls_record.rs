//! Properties of records after a handshake, whatever the peer sends.
//!
//! Shared by the fuzz target of the same name, by the replay of its corpus, and by the tests of
//! rules: no input panics, no cut into pieces changes what is found or said, also when the
//! connection is written down and read back between two pieces, nothing comes out that was not
//! sealed as data by the peer, in order, and all that is said can be read by it.

use aws_lc_rs::{aead, hkdf};
use wire::buffer::Buffer;
use wire::tls::record::{
    Cipher, DirectionSecrets, Opened, Protocol, RECORD_LEN_MAX, RecordError, RecordLayer, Secrets,
    Sizing, Suite, TlsRole,
};

pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const DATA: u8 = 23;

/// A peer that seals whatever the test asks for, with fixed keys. It has nothing in
/// common with what it talks to.
pub(crate) struct RawPeer {
    pub(crate) suite: Suite,
    pub(crate) send: RawKeys,
    pub(crate) receive: RawKeys,
}

pub(crate) struct RawKeys {
    suite: Suite,
    traffic_secret: Vec<u8>,
    key: Vec<u8>,
    iv: Vec<u8>,
    pub(crate) sequence: u64,
}

impl RawKeys {
    fn new(suite: Suite, seed: u8, sequence: u64) -> Self {
        match suite.protocol {
            Protocol::Tls12 => Self {
                suite,
                traffic_secret: Vec::new(),
                key: vec![seed; algorithm(suite).key_len()],
                iv: (seed..seed + 12).collect(),
                sequence,
            },
            Protocol::Tls13 => Self { sequence, ..Self::of(suite, vec![seed; hash_len(suite)]) },
        }
    }

    fn of(suite: Suite, traffic_secret: Vec<u8>) -> Self {
        let key = expand(suite, &traffic_secret, b"key", algorithm(suite).key_len());
        let iv = expand(suite, &traffic_secret, b"iv", 12);
        Self { suite, traffic_secret, key, iv, sequence: 0 }
    }

    pub(crate) fn secrets(&self) -> DirectionSecrets<'_> {
        DirectionSecrets {
            sequence: self.sequence,
            key: &self.key,
            iv: &self.iv,
            traffic_secret: &self.traffic_secret,
        }
    }

    pub(crate) fn update(&mut self) {
        let len = self.traffic_secret.len();
        *self = Self::of(self.suite, expand(self.suite, &self.traffic_secret, b"traffic upd", len));
    }

    fn context(&self) -> aead::LessSafeKey {
        aead::LessSafeKey::new(aead::UnboundKey::new(algorithm(self.suite), &self.key).unwrap())
    }

    fn has_explicit_nonce(&self) -> bool {
        self.suite.protocol == Protocol::Tls12 && self.suite.cipher != Cipher::Chacha20Poly1305
    }

    fn nonce(&self) -> [u8; 12] {
        let mut nonce: [u8; 12] = self.iv.as_slice().try_into().unwrap();
        for (octet, other) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *octet ^= other;
        }
        nonce
    }

    /// Seals `inner` as it is, with this type outside.
    pub(crate) fn seal(&mut self, kind: u8, inner: &[u8]) -> Vec<u8> {
        let nonce = self.nonce();
        let explicit: &[u8] = if self.has_explicit_nonce() { &nonce[4..] } else { &[] };
        let len = u16::try_from(explicit.len() + inner.len() + 16).unwrap().to_be_bytes();
        let header = [kind, 3, 3, len[0], len[1]];
        let aad = self.aad(header, inner.len());
        let mut sealed = inner.to_vec();
        let unique = aead::Nonce::assume_unique_for_key(nonce);
        self.context()
            .seal_in_place_append_tag(unique, aead::Aad::from(&aad), &mut sealed)
            .unwrap();
        self.sequence += 1;
        [&header[..], explicit, &sealed].concat()
    }

    fn aad(&self, header: [u8; 5], len: usize) -> Vec<u8> {
        match self.suite.protocol {
            Protocol::Tls13 => header.to_vec(),
            Protocol::Tls12 => {
                let len = u16::try_from(len).unwrap().to_be_bytes();
                [&self.sequence.to_be_bytes()[..], &header[..3], &len].concat()
            }
        }
    }

    /// Opens the record at the front: what it is about, what it holds, and how long it is.
    fn open(&mut self, input: &[u8]) -> (u8, Vec<u8>, usize) {
        let header: [u8; 5] = input[..5].try_into().unwrap();
        let end = 5 + usize::from(u16::from_be_bytes([header[3], header[4]]));
        assert!(end <= RECORD_LEN_MAX && header[1..3] == [3, 3], "{header:?}");
        let mut nonce = self.nonce();
        let mut at = 5;
        if self.has_explicit_nonce() {
            // The number is what is left of it, so no two are the same.
            assert_eq!(nonce[4..], input[5..13]);
            nonce[4..].copy_from_slice(&input[5..13]);
            at = 13;
        }
        let mut sealed = input[at..end].to_vec();
        let aad = self.aad(header, sealed.len() - 16);
        let unique = aead::Nonce::assume_unique_for_key(nonce);
        let inner = self
            .context()
            .open_in_place(unique, aead::Aad::from(&aad), &mut sealed)
            .expect("what is said is authentic");
        self.sequence += 1;
        match self.suite.protocol {
            Protocol::Tls12 => (header[0], inner.to_vec(), end),
            Protocol::Tls13 => {
                assert_eq!(header[0], DATA);
                let (&mut kind, content) = inner.split_last_mut().expect("there is a type");
                (kind, content.to_vec(), end)
            }
        }
    }
}

impl RawPeer {
    /// A peer, and what it talks to.
    pub(crate) fn pair(suite: Suite, role: TlsRole, sizing: Sizing) -> (RecordLayer, Self) {
        Self::pair_at(suite, role, sizing, 0)
    }

    /// The same, when so many records were sealed each way.
    pub(crate) fn pair_at(
        suite: Suite,
        role: TlsRole,
        sizing: Sizing,
        sequence: u64,
    ) -> (RecordLayer, Self) {
        let send = RawKeys::new(suite, 1, sequence);
        let receive = RawKeys::new(suite, 2, sequence);
        let secrets = Secrets { suite, receive: send.secrets(), send: receive.secrets() };
        let layer = RecordLayer::new(role, &secrets, sizing).expect("secrets of a connection");
        (layer, Self { suite, send, receive })
    }

    /// A record of this type.
    pub(crate) fn record(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        self.padded(kind, content, 0)
    }

    /// A record of this type, padded in TLS 1.3.
    pub(crate) fn padded(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        match self.suite.protocol {
            Protocol::Tls12 => self.send.seal(kind, content),
            Protocol::Tls13 => {
                let inner = [content, &[kind], &vec![0; padding]].concat();
                self.send.seal(DATA, &inner)
            }
        }
    }

    /// Types and contents of all records in `said`; changes keys at each KeyUpdate.
    pub(crate) fn read(&mut self, mut said: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut records = Vec::new();
        while !said.is_empty() {
            let (kind, content, len) = self.receive.open(said);
            if kind == HANDSHAKE {
                assert_eq!(content, [24, 0, 0, 1, 0], "nothing else is said");
                self.receive.update();
            }
            records.push((kind, content));
            said = &said[len..];
        }
        records
    }
}

fn algorithm(suite: Suite) -> &'static aead::Algorithm {
    match suite.cipher {
        Cipher::Aes128Gcm => &aead::AES_128_GCM,
        Cipher::Aes256Gcm => &aead::AES_256_GCM,
        Cipher::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
    }
}

fn hash_len(suite: Suite) -> usize {
    if suite.cipher == Cipher::Aes256Gcm { 48 } else { 32 }
}

fn expand(suite: Suite, secret: &[u8], label: &[u8], len: usize) -> Vec<u8> {
    struct Len(usize);
    impl hkdf::KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    let hash = if hash_len(suite) == 48 { hkdf::HKDF_SHA384 } else { hkdf::HKDF_SHA256 };
    let info = [
        &[0, u8::try_from(len).unwrap(), u8::try_from(6 + label.len()).unwrap()][..],
        b"tls13 ",
        label,
        &[0],
    ];
    let mut out = vec![0; len];
    hkdf::Prk::new_less_safe(hash, secret)
        .expand(&info, Len(len))
        .and_then(|okm| okm.fill(&mut out))
        .unwrap();
    out
}

/// The connection, after it was written down, dropped and read back.
pub(crate) fn moved(layer: RecordLayer) -> RecordLayer {
    let bytes = postcard::to_stdvec(&layer).expect("it can be written down");
    drop(layer);
    postcard::from_bytes(&bytes).expect("it can be read back")
}

/// The result of some input.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) data: Vec<u8>,
    pub(crate) tickets: Vec<Vec<u8>>,
    pub(crate) is_ended: bool,
    pub(crate) error: Option<RecordError>,
    /// All that was said.
    pub(crate) said: Vec<u8>,
}

/// One thing that happens.
enum Event {
    Bytes(Vec<u8>),
    Seal(Vec<u8>),
    Close,
    Idle,
}

/// Checks everything on `data`: an octet that says how, and then what happens, each with an octet
/// for what it is, one for a length, and so many that it is about.
pub(crate) fn check(data: &[u8]) {
    let Some((&how, script)) = data.split_first() else { return };
    let cipher = match (how >> 1) % 3 {
        0 => Cipher::Aes128Gcm,
        1 => Cipher::Aes256Gcm,
        _ => Cipher::Chacha20Poly1305,
    };
    let protocol = if how & 1 == 0 { Protocol::Tls13 } else { Protocol::Tls12 };
    let role = if how & 8 == 0 { TlsRole::Server } else { TlsRole::Client };
    let suite = Suite { protocol, cipher };
    // What is sent does not depend on what is heard.
    let (events, genuine, is_honest) = written(RawPeer::pair(suite, role, Sizing::Full).1, script);
    let run = |piece_len, is_moved| {
        let (layer, peer) = RawPeer::pair(suite, role, Sizing::Adaptive);
        run(layer, peer, &events, piece_len, is_moved)
    };
    let whole = run(usize::MAX, false);
    for piece_len in [1, 3, 40, 1_000] {
        assert_eq!(run(piece_len, true), whole, "by {piece_len}: {}", data.escape_ascii());
    }
    assert!(genuine.starts_with(&whole.data), "nothing else is data");
    if is_honest {
        assert_eq!((whole.data, whole.error), (genuine, None));
    }
}

/// What happens, what of it is data, and whether there is nothing in it to complain of.
fn written(mut peer: RawPeer, mut script: &[u8]) -> (Vec<Event>, Vec<u8>, bool) {
    let (mut events, mut genuine, mut is_honest) = (Vec::new(), Vec::new(), true);
    while let Some((&[op, len], rest)) = script.split_first_chunk() {
        let (content, rest) = rest.split_at(rest.len().min(usize::from(len)));
        script = rest;
        let more = op >> 3;
        is_honest &= matches!(op & 7, 1 | 7) && !(op & 7 == 1 && content.is_empty());
        events.push(match op & 7 {
            0 => Event::Bytes(content.to_vec()),
            1 => {
                genuine.extend_from_slice(content);
                Event::Bytes(peer.padded(DATA, content, usize::from(more)))
            }
            2 => Event::Bytes(peer.padded(HANDSHAKE, content, usize::from(more))),
            3 => Event::Bytes(peer.record(ALERT, content)),
            4 => {
                let kind = if more == DATA { 0 } else { more };
                if kind == 0 && peer.suite.protocol == Protocol::Tls13 {
                    genuine.extend_from_slice(data_in(content));
                }
                Event::Bytes(peer.record(kind, content))
            }
            5 => {
                let mut record = peer.record(DATA, content);
                let place = usize::from(more) * 7 % record.len();
                record[place] ^= 1 << (len & 7);
                Event::Bytes(record)
            }
            6 => {
                let record = peer.record(HANDSHAKE, &[24, 0, 0, 1, more & 1]);
                if peer.suite.protocol == Protocol::Tls13 {
                    peer.send.update();
                }
                Event::Bytes(record)
            }
            _ => match more {
                0 => Event::Close,
                1 => Event::Idle,
                // Enough for full records.
                2 => Event::Seal(content.repeat(400)),
                _ => Event::Seal(content.to_vec()),
            },
        });
    }
    (events, genuine, is_honest)
}

/// What is data in an `inner` plaintext of TLS 1.3, which ends with its type and padding.
fn data_in(inner: &[u8]) -> &[u8] {
    match inner.iter().rposition(|octet| *octet != 0) {
        Some(end) if inner[end] == DATA => &inner[..end],
        _ => &[],
    }
}

/// Lets it happen, with bytes in pieces of some length.
fn run(
    mut layer: RecordLayer,
    mut peer: RawPeer,
    events: &[Event],
    piece_len: usize,
    is_moved: bool,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut unread = Vec::new();
    let mut out = Buffer::new(1 << 18);
    for event in events {
        match event {
            Event::Bytes(bytes) => {
                for piece in bytes.chunks(piece_len) {
                    unread.extend_from_slice(piece);
                    hear(&mut layer, &mut unread, &mut outcome);
                    if is_moved {
                        layer = moved(layer);
                    }
                }
            }
            Event::Seal(bytes) => {
                let room = layer.sealed_len(bytes.len());
                let (front, back) = bytes.split_at(bytes.len() / 3);
                let before = out.len();
                if let Ok(sealed) = layer.seal(&[front, &[], back], &mut out) {
                    assert_eq!((sealed.taken, sealed.written), (bytes.len(), room));
                }
                assert!(out.len() - before <= room);
            }
            Event::Close => layer.send_close(),
            Event::Idle => {
                layer.on_idle();
                assert!(!layer.has_contexts());
            }
        }
        layer.send_control(&mut out);
        assert!(!layer.has_control(), "there was room");
        outcome.said.extend_from_slice(out.filled());
        peer.read(out.filled());
        out.clear();
    }
    assert_eq!(layer.failure(), outcome.error);
    outcome
}

/// Reads as far as it goes.
fn hear(layer: &mut RecordLayer, unread: &mut Vec<u8>, outcome: &mut Outcome) {
    let mut at = 0;
    loop {
        let rest = &mut unread[at..];
        let rest_len = rest.len();
        let (n, opened) = match layer.open(rest) {
            Ok(found) => found,
            Err(error) => {
                assert!(outcome.error.is_none_or(|before| before == error), "it stays");
                outcome.error = Some(error);
                return;
            }
        };
        at += n;
        match opened {
            Opened::NeedMore { record_len } => {
                assert!(rest_len - n < record_len && record_len <= RECORD_LEN_MAX);
                break;
            }
            Opened::Data { start, bytes } => {
                assert!(!bytes.is_empty() && start + bytes.len() <= n);
                outcome.data.extend_from_slice(bytes);
            }
            Opened::Ticket(ticket) => outcome.tickets.push(ticket),
            Opened::End => {
                outcome.is_ended = true;
                break;
            }
        }
    }
    unread.drain(..at);
}
