//! Keys and records of TLS as the scripted peers have them.
//!
//! A simulated connection of TLS begins where its handshake ends: both ends have keys that follow
//! from the seed. The peers open what they get with `wire`'s record layer, and what cannot be
//! opened is a broken promise. They seal by themselves, so that they can do what Strait never does:
//! pad, send empty records, cut messages in two, ask for a KeyUpdate.

use aws_lc_rs::{aead, hkdf};
use wire::tls::record::{
    Cipher, DirectionSecrets, FRAGMENT_LEN_MAX, IDLE_RECORDS_MAX, KEY_RECORDS_MAX, Protocol,
    RecordLayer, Secrets, Sizing, Suite, TlsRole,
};

use crate::random::Random;

/// Types of records (RFC 8446, section 5.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Records before a key of TLS 1.2 is used up at which Strait says so.
const NEAR_LIMIT_BEFORE: u64 = 1 << 20;

/// Alerts, with their levels, that mean nothing: `user_canceled` in TLS 1.3, and in TLS 1.2
/// `no_renegotiation`.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
const USER_CANCELED: [u8; 2] = [1, 90];
const NO_RENEGOTIATION: [u8; 2] = [1, 100];

/// Records of one connection that Strait answers; the answers are records without data, too.
const ASKED_MAX: usize = 20;

/// Records of a few bytes that are made of one write; the rest is in large ones.
const SMALL_RECORDS_MAX: usize = 6;

/// The secrets of a connection whose handshake is over.
pub(crate) struct Session {
    suite: Suite,
    client: Keys,
    server: Keys,
}

/// The secrets of one direction.
#[derive(Debug)]
struct Keys {
    suite: Suite,
    traffic_secret: Vec<u8>,
    key: Vec<u8>,
    iv: Vec<u8>,
    sequence: u64,
}

impl Session {
    /// The session of a connection whose random numbers these are. `is_old` allows for keys that
    /// Strait cannot use to the end of its connection.
    pub(crate) fn of(mut random: Random, strait: TlsRole, is_old: bool) -> Self {
        let protocol = *random.pick(&[Protocol::Tls12, Protocol::Tls13, Protocol::Tls13]);
        let cipher = *random.pick(&[
            Cipher::Aes128Gcm,
            Cipher::Aes128Gcm,
            Cipher::Aes256Gcm,
            Cipher::Chacha20Poly1305,
        ]);
        let suite = Suite { protocol, cipher };
        // So many were sealed already.
        let peers = if random.chance(300) { random.below(1 << 40) } else { 0 };
        let few = random.below(60);
        let straits = match protocol {
            _ if random.chance(700) => 0,
            Protocol::Tls13 => KEY_RECORDS_MAX - few,
            Protocol::Tls12 if is_old && random.chance(500) => KEY_RECORDS_MAX - few,
            Protocol::Tls12 => KEY_RECORDS_MAX - NEAR_LIMIT_BEFORE - few,
        };
        let [client, server] = match strait {
            TlsRole::Client => [straits, peers],
            TlsRole::Server => [peers, straits],
        };
        Self {
            suite,
            client: Keys::some(suite, client, &mut random),
            server: Keys::some(suite, server, &mut random),
        }
    }

    /// The record layer of one side.
    pub(crate) fn records(&self, role: TlsRole) -> RecordLayer {
        let (send, receive, sizing) = match role {
            TlsRole::Client => (&self.client, &self.server, Sizing::Full),
            TlsRole::Server => (&self.server, &self.client, Sizing::Adaptive),
        };
        let (send, receive) = (send.secrets(), receive.secrets());
        let secrets = Secrets { suite: self.suite, receive, send };
        RecordLayer::new(role, &secrets, sizing).expect("the secrets are those of a connection")
    }

    /// The sealer of a peer on that side.
    pub(crate) fn sealer(self, role: TlsRole) -> Sealer {
        let keys = match role {
            TlsRole::Client => self.client,
            TlsRole::Server => self.server,
        };
        Sealer { keys, role, idle_records: 0, asked: 0 }
    }
}

/// Seals the records of a peer.
#[derive(Debug)]
pub(crate) struct Sealer {
    keys: Keys,
    role: TlsRole,
    /// Records that were no data, less what data has made up for, as Strait counts them.
    idle_records: usize,
    /// How many records were sent that Strait answers.
    asked: usize,
}

/// How data is put into records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// How likely a record is one of few bytes, in thousandths.
    pub(crate) small: u32,
    /// How likely one is padded.
    pub(crate) padded: u32,
    /// How likely a record without data precedes one.
    pub(crate) talks: u32,
}

impl Habits {
    pub(crate) fn some(random: &mut Random) -> Self {
        let mut some = |max: u64| {
            let is_on = random.chance(500);
            let rate = u32::try_from(random.between(1, max)).expect("a small number");
            if is_on { rate } else { 0 }
        };
        Self { small: some(800), padded: some(500), talks: some(300) }
    }
}

impl Sealer {
    /// How many bytes of the front of `data` go into the next record, and the record.
    pub(crate) fn seal(
        &mut self,
        data: &[u8],
        habits: Habits,
        records: usize,
        random: &mut Random,
    ) -> (usize, Vec<u8>) {
        let whole = data.len().min(FRAGMENT_LEN_MAX);
        let is_small = records < SMALL_RECORDS_MAX && random.chance(habits.small);
        let n = if is_small && whole > 1 { 1 + random.size(whole - 2) } else { whole };
        let content = data.get(..n).unwrap_or_default();
        let padding = if random.chance(habits.padded) { padding(n, random) } else { 0 };
        self.idle_records = self.idle_records.saturating_sub(1 + n / 128);
        (n, self.keys.record(DATA, content, padding))
    }

    /// Whether an answer to something may come.
    pub(crate) const fn has_asked(&self) -> bool {
        self.asked > 0
    }

    /// A record without data that Strait has to accept; nothing if there were too many of them.
    pub(crate) fn talk(&mut self, random: &mut Random) -> Vec<u8> {
        // The longest of them takes two.
        if self.idle_records + 2 > usize::from(IDLE_RECORDS_MAX) {
            return Vec::new();
        }
        let may_ask = self.asked < ASKED_MAX;
        self.idle_records += 1;
        let is_server = self.role == TlsRole::Server;
        match (self.keys.suite.protocol, random.below(4)) {
            (_, 0) => {
                let padding = if random.chance(300) { padding(0, random) } else { 0 };
                self.keys.record(DATA, &[], padding)
            }
            (Protocol::Tls13, 1) => self.keys.record(ALERT, &USER_CANCELED, 0),
            (Protocol::Tls13, 2) if is_server => {
                let mut ticket = vec![0; 1 + random.size(2_000)];
                ticket.fill(0xaa);
                let [_, high, middle, low] =
                    u32::try_from(ticket.len()).expect("a short ticket").to_be_bytes();
                let message = [&[4, high, middle, low][..], &ticket].concat();
                // In two pieces, each in a record.
                let cut = random.length_below(message.len());
                let (front, behind) = message.split_at(cut);
                let mut records = Vec::new();
                if !front.is_empty() {
                    self.idle_records += 1;
                    records = self.keys.record(HANDSHAKE, front, 0);
                }
                records.extend(self.keys.record(HANDSHAKE, behind, 0));
                records
            }
            (Protocol::Tls13, _) => {
                let asks = may_ask && random.chance(500);
                self.asked += usize::from(asks);
                let record = self.keys.record(HANDSHAKE, &[24, 0, 0, 1, u8::from(asks)], 0);
                self.keys.update();
                record
            }
            // A HelloRequest, which is answered by a warning.
            (Protocol::Tls12, 1) if is_server && may_ask => {
                self.asked += 1;
                self.keys.record(HANDSHAKE, &[0, 0, 0, 0], 0)
            }
            (Protocol::Tls12, _) => self.keys.record(ALERT, &NO_RENEGOTIATION, 0),
        }
    }

    /// Seals a close_notify.
    pub(crate) fn close(&mut self) -> Vec<u8> {
        self.keys.record(ALERT, &CLOSE_NOTIFY, 0)
    }
}

/// How much a record with so much data is padded: rarely as much as it may be.
fn padding(n: usize, random: &mut Random) -> usize {
    let padding_max = FRAGMENT_LEN_MAX - n;
    let is_much = random.chance(50);
    random.size(if is_much { padding_max } else { padding_max.min(200) })
}

impl Keys {
    fn some(suite: Suite, sequence: u64, random: &mut Random) -> Self {
        let mut octets = |n: usize| -> Vec<u8> {
            std::iter::repeat_with(|| random.next().to_le_bytes()).flatten().take(n).collect()
        };
        match suite.protocol {
            Protocol::Tls12 => Self {
                suite,
                traffic_secret: Vec::new(),
                key: octets(algorithm(suite).key_len()),
                iv: octets(12),
                sequence,
            },
            Protocol::Tls13 => Self { sequence, ..Self::of(suite, octets(hash_len(suite))) },
        }
    }

    /// RFC 8446, section 7.3.
    fn of(suite: Suite, traffic_secret: Vec<u8>) -> Self {
        let key = expand(suite, &traffic_secret, b"key", algorithm(suite).key_len());
        let iv = expand(suite, &traffic_secret, b"iv", 12);
        Self { suite, traffic_secret, key, iv, sequence: 0 }
    }

    /// RFC 8446, section 7.2.
    fn update(&mut self) {
        let len = self.traffic_secret.len();
        *self = Self::of(self.suite, expand(self.suite, &self.traffic_secret, b"traffic upd", len));
    }

    fn secrets(&self) -> DirectionSecrets<'_> {
        DirectionSecrets {
            sequence: self.sequence,
            key: &self.key,
            iv: &self.iv,
            traffic_secret: &self.traffic_secret,
        }
    }

    /// A record of this type. There is no padding in TLS 1.2.
    fn record(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let (outer, mut sealed) = match self.suite.protocol {
            Protocol::Tls12 => (kind, content.to_vec()),
            Protocol::Tls13 => (DATA, [content, &[kind], &vec![0; padding]].concat()),
        };
        let mut nonce = <[u8; 12]>::try_from(&self.iv[..]).expect("a vector of 12 octets");
        for (octet, other) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *octet ^= other;
        }
        let has_explicit_nonce =
            self.suite.protocol == Protocol::Tls12 && self.suite.cipher != Cipher::Chacha20Poly1305;
        let explicit = if has_explicit_nonce { &nonce[4..] } else { &[] };
        let length = |n: usize| u16::try_from(n).expect("a record is short").to_be_bytes();
        let [high, low] = length(explicit.len() + sealed.len() + 16);
        let header = [outer, 3, 3, high, low];
        let additional = match self.suite.protocol {
            Protocol::Tls13 => header.to_vec(),
            Protocol::Tls12 => {
                [&self.sequence.to_be_bytes()[..], &header[..3], &length(sealed.len())].concat()
            }
        };
        let key = aead::UnboundKey::new(algorithm(self.suite), &self.key);
        let unique = aead::Nonce::assume_unique_for_key(nonce);
        aead::LessSafeKey::new(key.expect("a key of the right length"))
            .seal_in_place_append_tag(unique, aead::Aad::from(additional), &mut sealed)
            .expect("a record can be sealed");
        self.sequence += 1;
        [&header[..], explicit, &sealed].concat()
    }
}

fn algorithm(suite: Suite) -> &'static aead::Algorithm {
    match suite.cipher {
        Cipher::Aes128Gcm => &aead::AES_128_GCM,
        Cipher::Aes256Gcm => &aead::AES_256_GCM,
        Cipher::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
    }
}

const fn hash_len(suite: Suite) -> usize {
    match suite.cipher {
        Cipher::Aes256Gcm => 48,
        Cipher::Aes128Gcm | Cipher::Chacha20Poly1305 => 32,
    }
}

/// HKDF-Expand-Label without a context (RFC 8446, section 7.1).
fn expand(suite: Suite, secret: &[u8], label: &[u8], len: usize) -> Vec<u8> {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let hash = match suite.cipher {
        Cipher::Aes256Gcm => hkdf::HKDF_SHA384,
        Cipher::Aes128Gcm | Cipher::Chacha20Poly1305 => hkdf::HKDF_SHA256,
    };
    let octet = |n: usize| u8::try_from(n).expect("lengths are short");
    let info: [&[u8]; 4] = [&[0, octet(len), octet(6 + label.len())], b"tls13 ", label, &[0]];
    let mut out = vec![0; len];
    let prk = hkdf::Prk::new_less_safe(hash, secret);
    prk.expand(&info, Length(len))
        .and_then(|expanded| expanded.fill(&mut out))
        .expect("a hash or two can be expanded to");
    out
}

#[cfg(test)]
mod tests {
    use wire::tls::record::Opened;

    use super::*;

    #[test]
    fn whatever_a_peer_says_can_be_taken() {
        for seed in 0..200 {
            let random = Random::new(seed);
            let peer = *random.clone().pick(&[TlsRole::Client, TlsRole::Server]);
            let strait = if peer == TlsRole::Client { TlsRole::Server } else { TlsRole::Client };
            let session = Session::of(random.clone(), strait, true);
            let mut records = session.records(strait);
            let mut sealer = session.sealer(peer);
            let mut random = random.split("talk", 0);
            let habits = Habits { small: 500, padded: 300, talks: 0 };
            let said: Vec<u8> = (0..40_000).map(|at: u32| at.to_le_bytes()[0]).collect();
            let (mut input, mut at) = (Vec::new(), 0);
            while at < said.len() {
                for _ in 0..3 {
                    input.extend(sealer.talk(&mut random));
                }
                let end = said.len().min(at + 5_000);
                let (n, record) = sealer.seal(&said[at..end], habits, 0, &mut random);
                input.extend(record);
                at += n;
            }
            input.extend(sealer.close());
            let (mut heard, mut at) = (Vec::new(), 0);
            loop {
                let (n, opened) = records.open(&mut input[at..]).expect("seed {seed}");
                match opened {
                    Opened::Data { bytes, .. } => heard.extend_from_slice(bytes),
                    Opened::Ticket(_) => {}
                    Opened::End => break,
                    Opened::NeedMore { .. } => panic!("seed {seed}: the end is missing"),
                }
                at += n;
            }
            assert!(heard == said, "seed {seed}");
        }
    }
}
