//! States of TLS, on either side. The keys are those of this file: handshakes are behind these connections, and their records are
//! the same each time.

use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::tls13::OkmBlock;
use wire::buffer::Buffer;
use wire::tls::record::{
    Cipher, DirectionSecrets, KEY_RECORDS_MAX, Protocol, RecordLayer, Secrets, Sizing, Suite,
    TlsRole,
};

use super::{GET, Kept, OK, keep};
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk};
use crate::tls::opened;

pub(super) const SUITES: [(&str, Suite); 3] = [
    ("tls12", Suite { protocol: Protocol::Tls12, cipher: Cipher::Aes128Gcm }),
    ("tls13", Suite { protocol: Protocol::Tls13, cipher: Cipher::Aes256Gcm }),
    ("chacha", Suite { protocol: Protocol::Tls13, cipher: Cipher::Chacha20Poly1305 }),
];

/// A peer behind its handshake.
struct Sealed {
    peer: Peer,
    records: RecordLayer,
    unread: Vec<u8>,
}

impl Sealed {
    fn client(talk: &mut Talk<'_>, suite: Suite) -> Self {
        Self::client_that_has_sent(talk, suite, 1)
    }

    fn client_that_has_sent(talk: &mut Talk<'_>, suite: Suite, count: u64) -> Self {
        let peer = talk.client_behind(records(suite, TlsRole::Server, count));
        Self { peer, records: records(suite, TlsRole::Client, count), unread: Vec::new() }
    }

    fn upstream(talk: &mut Talk<'_>, suite: Suite) -> Self {
        let peer = talk.upstream_behind(records(suite, TlsRole::Client, 1));
        Self { peer, records: records(suite, TlsRole::Server, 1), unread: Vec::new() }
    }

    /// A record, as its peer sends it.
    fn sealed(&mut self, data: &str) -> Vec<u8> {
        let mut out = Buffer::new(self.records.sealed_len(data.len()));
        self.records.seal(&[data.as_bytes()], &mut out).unwrap();
        out.filled().to_vec()
    }

    fn says(&mut self, talk: &mut Talk<'_>, data: &str) {
        let record = self.sealed(data);
        talk.says(self.peer, record);
    }

    fn hears(&mut self, talk: &mut Talk<'_>) -> String {
        self.unread.extend(talk.heard_bytes(self.peer));
        String::from_utf8(opened(&mut self.records, &mut self.unread)).unwrap()
    }
}

/// What one side has of a connection whose client has sent so many records.
fn records(suite: Suite, role: TlsRole, client_sent: u64) -> RecordLayer {
    let (client, server) = (keys(suite, 1), keys(suite, 2));
    let (client, server) = (client.secrets(client_sent), server.secrets(1));
    let (receive, send) = match role {
        TlsRole::Server => (client, server),
        TlsRole::Client => (server, client),
    };
    RecordLayer::new(role, &Secrets { suite, receive, send }, Sizing::Adaptive).unwrap()
}

/// The keys of a direction.
struct Keys {
    key: Vec<u8>,
    iv: Vec<u8>,
    /// None in TLS 1.2.
    traffic_secret: Vec<u8>,
}

impl Keys {
    fn secrets(&self, sequence: u64) -> DirectionSecrets<'_> {
        let Self { key, iv, traffic_secret } = self;
        DirectionSecrets { sequence, key, iv, traffic_secret }
    }
}

/// Throw-away keys. In TLS 1.3 they come from the traffic secret (RFC 8446, section 7.3).
fn keys(suite: Suite, octet: u8) -> Keys {
    let tls13 = match suite.cipher {
        Cipher::Aes128Gcm => {
            return Keys { key: vec![octet; 16], iv: vec![octet; 12], traffic_secret: Vec::new() };
        }
        Cipher::Aes256Gcm => TLS13_AES_256_GCM_SHA384,
        Cipher::Chacha20Poly1305 => TLS13_CHACHA20_POLY1305_SHA256,
    };
    let secret = vec![octet; if suite.cipher == Cipher::Aes256Gcm { 48 } else { 32 }];
    let expander = tls13.tls13().unwrap().hkdf_provider.expander_for_okm(&OkmBlock::new(&secret));
    let expand = |label: &[u8], len: u8| {
        let mut out = vec![0; usize::from(len)];
        let label_len = [6 + u8::try_from(label.len()).unwrap()];
        expander.expand_slice(&[&[0, len], &label_len, b"tls13 ", label, &[0]], &mut out).unwrap();
        out
    };
    Keys { key: expand(b"key", 32), iv: expand(b"iv", 12), traffic_secret: secret }
}

/// Keeps a state for each of the suites.
fn keep_each(name: &str, script: impl Fn(&mut Talk<'_>, &Kept<'_>, Suite)) {
    for (version, suite) in SUITES {
        keep(&format!("{version}{name}"), CONFIG, |talk, kept| script(talk, kept, suite));
    }
}

#[test]
fn clients_behind_tls() {
    keep_each("-client-idle", |talk, kept, suite| {
        let mut client = Sealed::client(talk, suite);
        client.says(talk, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        client.hears(talk);
        talk.breaks(upstream);
        kept.here(talk, client.peer);
        client.says(talk, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        assert_eq!(client.hears(talk), OK);
    });
    // The record is cut within its header, and within its data.
    for (name, cut) in [("-client-header-half", 3), ("-client-record-half", 20)] {
        keep_each(name, |talk, kept, suite| {
            let mut client = Sealed::client(talk, suite);
            let record = client.sealed(GET);
            talk.says(client.peer, &record[..cut]);
            kept.here(talk, client.peer);
            talk.says(client.peer, &record[cut..]);
            let upstream = talk.upstream();
            talk.hears(upstream, GET);
            talk.says(upstream, OK);
            assert_eq!(client.hears(talk), OK);
        });
    }
    // A part of a record is sent, and the next one begins behind it.
    keep_each("-client-undelivered", |talk, kept, suite| {
        let mut client = Sealed::client(talk, suite);
        talk.takes(client.peer, 10);
        client.says(talk, GET);
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        kept.here(talk, client.peer);
        talk.says(upstream, "rest");
        talk.takes(client.peer, usize::MAX);
        assert!(client.hears(talk).ends_with("halfrest"));
    });
}

#[test]
fn a_client_with_its_next_key() {
    let ((version, suite), name) = (SUITES[1], "-client-key-update");
    keep(&format!("{version}{name}"), CONFIG, |talk, kept| {
        let mut client = Sealed::client_that_has_sent(talk, suite, KEY_RECORDS_MAX);
        client.says(talk, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        kept.here(talk, client.peer);
        talk.says(upstream, OK);
        assert_eq!(client.hears(talk), OK);
        client.says(talk, GET);
        talk.hears(upstream, GET);
    });
}

#[test]
fn upstreams_behind_tls() {
    keep_each("-upstream-idle", |talk, kept, suite| {
        let client = talk.client();
        talk.says(client, GET);
        let mut upstream = Sealed::upstream(talk, suite);
        assert_eq!(upstream.hears(talk), GET);
        upstream.says(talk, OK);
        talk.hears(client, OK);
        kept.here(talk, upstream.peer);
        talk.says(client, GET);
        assert_eq!(upstream.hears(talk), GET);
        upstream.says(talk, OK);
        talk.hears(client, OK);
    });
    keep_each("-upstream-record-half", |talk, kept, suite| {
        let client = talk.client();
        talk.says(client, GET);
        let mut upstream = Sealed::upstream(talk, suite);
        assert_eq!(upstream.hears(talk), GET);
        let record = upstream.sealed(OK);
        talk.says(upstream.peer, &record[..20]);
        kept.here(talk, client);
        talk.says(upstream.peer, &record[20..]);
        talk.hears(client, OK);
    });
    keep_each("-upstream-undelivered", |talk, kept, suite| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n");
        let mut upstream = Sealed::upstream(talk, suite);
        upstream.hears(talk);
        talk.takes(upstream.peer, 3);
        talk.says(client, "half");
        kept.here(talk, client);
        talk.says(client, "rest");
        talk.takes(upstream.peer, usize::MAX);
        assert_eq!(upstream.hears(talk), "halfrest");
    });
}
