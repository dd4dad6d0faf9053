//! Connections of TLS, with rustls on their other side.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use config::checks::CheckResult;
use pki::{HOUR, Leaf};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme, SupportedProtocolVersion,
};

use wire::buffer::Buffer;
use wire::h1::{Scan, decode_request};
use wire::h2::{Element, ErrorCode, Http2, Limits, RequestForm, Scheme, Scratch};
use wire::head::HeadIndex;
use wire::tls::record::{
    Cipher, DirectionSecrets, KEY_RECORDS_MAX, Opened, Protocol, RecordLayer, Secrets, Sizing,
    Suite, TlsRole,
};

use crate::kit::{Files, Peer, Talk, Variant, hold_with_files};
use crate::relays::DETECTED;

pub(crate) const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

pub(crate) const CONFIG: &str = "
listeners:
- name: edge
  address: 127.0.0.1:8443
  tls: { certificates: [{ chain: a.pem, key: a.key }] }
  http: { forwarded: off, request_id: false }
  routes: all
routes:
- { name: all, rules: [{ match: { prefix: / }, cluster: web }] }
clusters:
- { name: web, endpoints: ['127.0.0.1:9000'] }
";

const TO_TLS: &str = "
listeners:
- name: edge
  address: 127.0.0.1:8080
  http: { forwarded: off, request_id: false }
  routes: all
routes:
- { name: all, rules: [{ match: { prefix: / }, cluster: web }] }
clusters:
- { name: web, endpoints: ['127.0.0.1:9000'], tls: { server_name: a.example, ca: a.pem } }
";

/// Seconds: files are read at a time that is always the same.
const DECADE: i64 = 10 * 365 * 24 * HOUR;

/// Certificates that sign themselves, for these names.
pub(crate) struct Pki {
    files: Files,
    pairs: Vec<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
}

impl Pki {
    fn new() -> Self {
        let mut this = Self { files: Files::default(), pairs: Vec::new() };
        for (name, hosts) in [
            ("a", &["a.example"][..]),
            ("b", &["b.example"]),
            ("c", &["127.0.0.1"]),
            ("d", &["d.example", "spiffe://x/edge"]),
            ("e", &["spiffe://x/e"]),
            ("rsa", &["rsa.example"]),
        ] {
            let algorithm = match name {
                "rsa" => &rcgen::PKCS_RSA_SHA256,
                _ => &rcgen::PKCS_ECDSA_P256_SHA256,
            };
            let validity = -DECADE..DECADE;
            let pair = Leaf { validity, ..Leaf::new(algorithm, hosts) }.self_signed();
            this.files.insert(&format!("{name}.pem"), pair.chain.as_bytes());
            this.files.insert(&format!("{name}.key"), pair.key.as_bytes());
            let certificate = CertificateDer::from_pem_slice(pair.chain.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            this.pairs.push((certificate, key));
        }
        this
    }

    pub(crate) fn client(&self, version: &'static SupportedProtocolVersion) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        for (certificate, _) in &self.pairs {
            roots.add(certificate.clone()).unwrap();
        }
        ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    /// One that shows a certificate.
    pub(crate) fn client_with(&self, place: usize) -> ClientConfig {
        let (certificate, key) = &self.pairs[place];
        let (provider, key) = (default_provider(), key.clone_key());
        let key = provider.key_provider.load_private_key(key).unwrap();
        let certified = CertifiedKey::new(vec![certificate.clone()], key);
        let mut config = self.client(&TLS13);
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        config
    }

    fn server(&self, place: usize) -> ServerConfig {
        let (certificate, key) = &self.pairs[place];
        ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.clone_key())
            .unwrap()
    }
}

/// A peer that speaks TLS.
pub(crate) struct Secure {
    pub(crate) peer: Peer,
    connection: Connection,
    heard: Vec<u8>,
    /// Whether the other side has said that nothing more comes.
    is_ended: bool,
    error: Option<rustls::Error>,
}

impl Secure {
    pub(crate) fn client(talk: &mut Talk<'_>, config: ClientConfig, name: &'static str) -> Self {
        let peer = talk.client();
        Self::client_at(peer, config, name)
    }

    fn client_at(peer: Peer, config: ClientConfig, name: &'static str) -> Self {
        let name = ServerName::try_from(name).unwrap();
        Self::new(peer, ClientConnection::new(Arc::new(config), name).unwrap().into())
    }

    fn server(peer: Peer, config: ServerConfig) -> Self {
        Self::new(peer, ServerConnection::new(Arc::new(config)).unwrap().into())
    }

    fn new(peer: Peer, connection: Connection) -> Self {
        Self { peer, connection, heard: Vec::new(), is_ended: false, error: None }
    }

    /// Lets records go to and fro until nothing more does.
    pub(crate) fn turn(&mut self, talk: &mut Talk<'_>) {
        loop {
            let mut out = Vec::new();
            while self.connection.wants_write() {
                self.connection.write_tls(&mut out).unwrap();
            }
            if !out.is_empty() && !talk.is_closed(self.peer) {
                talk.says(self.peer, &out);
            }
            let input = talk.heard_bytes(self.peer);
            if input.is_empty() && out.is_empty() {
                return;
            }
            let mut rest = &input[..];
            while !rest.is_empty() {
                self.connection.read_tls(&mut rest).unwrap();
                match self.connection.process_new_packets() {
                    Ok(state) => self.is_ended |= state.peer_has_closed(),
                    Err(error) => self.error = Some(error),
                }
                let _ = self.connection.reader().read_to_end(&mut self.heard);
                if self.error.is_some() {
                    break;
                }
            }
        }
    }

    pub(crate) fn says(&mut self, talk: &mut Talk<'_>, text: impl AsRef<[u8]>) {
        for piece in text.as_ref().chunks(10_000) {
            self.connection.writer().write_all(piece).unwrap();
            self.turn(talk);
        }
    }

    /// Says hello and this behind it, as a client that was here before, and waits.
    fn begins_early(&mut self, talk: &mut Talk<'_>, text: impl AsRef<[u8]>) -> Vec<u8> {
        let Connection::Client(client) = &mut self.connection else { panic!("a server") };
        client.early_data().expect("a ticket").write_all(text.as_ref()).unwrap();
        let mut hello = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut hello).unwrap();
        }
        talk.says(self.peer, &hello);
        hello
    }

    /// The bytes that it receives, of a binary protocol.
    pub(crate) fn hears_bytes(&mut self, talk: &mut Talk<'_>) -> Vec<u8> {
        self.turn(talk);
        std::mem::take(&mut self.heard)
    }

    pub(crate) fn hears(&mut self, talk: &mut Talk<'_>) -> String {
        self.turn(talk);
        String::from_utf8(std::mem::take(&mut self.heard)).unwrap()
    }

    /// Asks, and is answered by a new upstream.
    fn is_served(&mut self, talk: &mut Talk<'_>) -> Peer {
        self.says(talk, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        assert_eq!(self.hears(talk), OK);
        upstream
    }

    fn ends(&mut self, talk: &mut Talk<'_>) {
        self.connection.send_close_notify();
        self.turn(talk);
    }
}

pub(crate) fn hold(config: &str, script: impl Fn(&mut Talk<'_>, &Pki)) {
    let pki = Pki::new();
    hold_with_files(config, &pki.files, |talk| script(talk, &pki));
}

#[test]
fn requests_of_both_versions_are_answered_and_the_connection_is_kept() {
    for version in [&TLS12, &TLS13] {
        hold(CONFIG, |talk, pki| {
            let mut client = Secure::client(talk, pki.client(version), "a.example");
            let upstream = client.is_served(talk);
            client.says(talk, GET);
            talk.hears(upstream, GET);
            talk.says(upstream, OK);
            assert_eq!(client.hears(talk), OK);
            client.ends(talk);
            client.turn(talk);
            assert!(client.is_ended && talk.is_closed(client.peer));
        });
    }
}

#[test]
fn long_bodies_go_both_ways_and_a_slow_client_holds_up_its_upstream() {
    hold(CONFIG, |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
        let long = "0123456789".repeat(30_000);
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", long.len());
        client.says(talk, &head);
        let upstream = talk.upstream();
        client.says(talk, &long);
        assert_eq!(talk.heard(upstream), format!("{head}{long}"));
        talk.takes(client.peer, 1_000);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", long.len());
        talk.says(upstream, format!("{head}{long}"));
        assert!(talk.unread(upstream) > 100_000, "{}", talk.unread(upstream));
        let mut heard = client.hears(talk);
        while heard.len() < head.len() + long.len() {
            talk.takes(client.peer, 50_000);
            heard.push_str(&client.hears(talk));
        }
        assert!(heard == format!("{head}{long}"));
        talk.takes(client.peer, usize::MAX);
    });
}

#[test]
fn the_last_response_ends_with_a_word_that_it_was() {
    hold(CONFIG, |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
        client.says(talk, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\n\r\nuntil the end");
        talk.ends(upstream);
        let heard = client.hears(talk);
        assert!(heard.ends_with("0\r\n\r\n"), "{heard}");
        assert!(client.is_ended && talk.is_shut(client.peer));
    });
}

#[test]
fn the_last_word_waits_until_there_is_room_for_it() {
    hold(CONFIG, |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
        client.says(talk, "GET / HTTP/1.0\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.takes(client.peer, 0);
        talk.says(upstream, "HTTP/1.1 200 OK\r\n\r\nuntil the end");
        talk.ends(upstream);
        let mut heard = String::new();
        while !talk.is_shut(client.peer) {
            talk.takes(client.peer, 1);
            heard.push_str(&client.hears(talk));
        }
        assert!(heard.ends_with("until the end"), "{heard}");
        assert!(client.is_ended, "without close_notify it could be a part");
    });
}

#[test]
fn a_last_word_is_heard_behind_what_it_follows() {
    hold(CONFIG, |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
        client.turn(talk);
        // In one piece, before the upstream is connected.
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n";
        client.connection.writer().write_all(head.as_bytes()).unwrap();
        client.connection.writer().write_all(b"body").unwrap();
        client.ends(talk);
        let upstream = talk.upstream();
        talk.hears(upstream, &format!("{head}body"));
        talk.says(upstream, OK);
        assert_eq!(client.hears(talk), OK);
        assert!(client.is_ended && talk.is_closed(client.peer));
    });
}

#[test]
fn a_tunnel_ends_with_a_word_that_was_said_before_it_stood() {
    hold(CONFIG, |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
        client.turn(talk);
        client.connection.writer().write_all(UPGRADE.as_bytes()).unwrap();
        client.ends(talk);
        let upstream = talk.upstream();
        talk.says(upstream, SWITCHED);
        assert!(talk.is_shut(upstream));
        talk.says(upstream, "goodbye");
        talk.ends(upstream);
        assert!(client.hears(talk).ends_with("goodbye"));
        assert!(client.is_ended && talk.is_closed(client.peer));
    });
}

#[test]
fn an_answered_client_is_not_reset_for_records_without_data() {
    hold(CONFIG, |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
        client.says(talk, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let upstream = talk.upstream();
        client.connection.refresh_traffic_keys().unwrap();
        client.turn(talk);
        assert!(talk.unread(client.peer) > 0, "nothing more is read of such a client");
        talk.says(upstream, OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
        assert!(client.hears(talk).ends_with("ok"));
        // To close with bytes unread would be a reset.
        assert_eq!(talk.unread(client.peer), 0);
        assert!(client.is_ended && talk.is_shut(client.peer) && !talk.is_closed(client.peer));
        client.ends(talk);
        assert!(talk.is_closed(client.peer));
    });
}

/// How a side of TLS ends what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    AmidRecord,
    WithoutCloseNotify,
    WithCloseNotify,
}

#[test]
fn what_is_cut_off_on_one_side_of_a_tunnel_is_reset_on_the_other() {
    let config = CONFIG.replace("routes: all\nroutes", "protocol: tcp\n  cluster: web\nroutes");
    let config = config
        .replace("routes:\n- { name: all, rules: [{ match: { prefix: / }, cluster: web }] }\n", "");
    for end in [End::AmidRecord, End::WithoutCloseNotify, End::WithCloseNotify] {
        hold(&config, |talk, pki| {
            let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
            client.says(talk, "some");
            let upstream = talk.upstream();
            client.connection.writer().write_all(b"thing").unwrap();
            if end == End::WithCloseNotify {
                client.connection.send_close_notify();
            }
            let mut records = Vec::new();
            while client.connection.wants_write() {
                client.connection.write_tls(&mut records).unwrap();
            }
            let cut = usize::from(end == End::AmidRecord);
            talk.says(client.peer, &records[..records.len() - cut]);
            talk.ends(client.peer);
            talk.hears(upstream, if cut == 0 { "something" } else { "some" });
            assert!(talk.is_shut(upstream), "{end:?}");
            assert_eq!(talk.is_reset(upstream), end != End::WithCloseNotify, "{end:?}");
            assert_eq!(talk.is_closed(upstream), end != End::WithCloseNotify, "{end:?}");
        });
    }
    // The other way round, and with a tunnel that HTTP began.
    for end in [End::WithoutCloseNotify, End::WithCloseNotify] {
        hold(TO_TLS, |talk, pki| {
            let client = talk.client();
            talk.says(client, UPGRADE);
            let mut upstream = Secure::server(talk.upstream(), pki.server(0));
            upstream.turn(talk);
            upstream.says(talk, SWITCHED);
            upstream.says(talk, "some");
            if end == End::WithCloseNotify {
                upstream.ends(talk);
            }
            talk.ends(upstream.peer);
            assert!(talk.heard(client).ends_with("some"));
            assert!(talk.is_shut(client), "{end:?}");
            assert_eq!(talk.is_reset(client), end == End::WithoutCloseNotify, "{end:?}");
        });
    }
}

#[test]
fn a_client_that_is_cut_off_before_its_protocol_is_known_gets_no_end_from_its_service() {
    let config = CONFIG
        .replace("  routes: all\nroutes", "  protocol: auto\n  cluster: web\n  routes: all\nroutes")
        .replace("address: 127.0.0.1:8443", "address: 127.0.0.1:8443\n  timeouts: { detect: 10s }");
    hold(&config, |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
        client.turn(talk);
        client.connection.writer().write_all(b"\0something").unwrap();
        let mut records = Vec::new();
        while client.connection.wants_write() {
            client.connection.write_tls(&mut records).unwrap();
        }
        talk.says(client.peer, &records[..records.len() - 1]);
        talk.ends(client.peer);
        assert!(talk.is_reset(client.peer));
        assert!(!talk.is_connecting());
    });
}

#[test]
fn a_client_that_is_cut_off_is_gone_and_one_that_ends_is_answered() {
    hold(CONFIG, |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
        client.says(talk, GET);
        let upstream = talk.upstream();
        client.ends(talk);
        talk.says(upstream, OK);
        assert_eq!(client.hears(talk), OK);
        let mut cut = Secure::client(talk, pki.client(&TLS13), "a.example");
        cut.says(talk, "GET / HTTP/1.1\r\nHost: x\r\n");
        talk.ends(cut.peer);
        cut.turn(talk);
        assert!(talk.is_closed(cut.peer));
    });
}

#[test]
fn a_handshake_that_fails_gets_an_alert_and_is_counted() {
    hold(CONFIG, |talk, pki| {
        let plain = talk.client();
        talk.says(plain, GET);
        let lines = ["content-length: 40\r\n", "\r\n\r\nThis port speaks HTTPS: ask by https://\n"];
        talk.hears_about(plain, "HTTP/1.1 400 Bad Request\r\n", &lines);
        assert!(talk.is_shut(plain));
        let unknown = talk.client();
        talk.says(unknown, "\x01\x02");
        talk.hears(unknown, "");
        assert!(talk.is_shut(unknown));
        let garbage = talk.client();
        talk.says(garbage, [22, 3, 1, 0, 4, 1, 0, 0, 9]);
        talk.says(garbage, [22, 3, 1, 255, 255]);
        assert!(talk.is_shut(garbage));
        let mut stranger =
            Secure::client(talk, ClientConfig::clone(&trusting_without_certificate()), "a.example");
        stranger.turn(talk);
        assert!(stranger.error.is_some());
        stranger.turn(talk);
        assert!(talk.is_closed(stranger.peer));
        let mut other = pki.client(&TLS13);
        other.alpn_protocols = vec![b"smtp".to_vec()];
        let mut other = Secure::client(talk, other, "a.example");
        other.turn(talk);
        assert_eq!(
            other.error,
            Some(rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol))
        );
        let log = talk.log().to_owned();
        let octets = match talk.variant() {
            Variant::ByteByByte => "the client does not speak TLS: \\u0001",
            Variant::Plain | Variant::Moving => "the client does not speak TLS: \\u0001\\u0002",
        };
        let details = log.lines().map(|line| {
            assert!(line.contains("\"cause\":\"tls_handshake_failed\""), "{line}");
            assert!(line.contains("\"client\":\"192.0.2.7\""), "{line}");
            line.split("\"cause_detail\":\"").nth(1).and_then(|rest| rest.split('"').next())
        });
        assert_eq!(
            details.collect::<Vec<_>>(),
            [
                Some("the client speaks HTTP/1"),
                Some(octets),
                Some("a record that is too long"),
                Some("the peer has sent alert unknown_ca"),
                Some("no application protocol in common"),
            ]
        );
    });
}

#[test]
fn a_handshake_has_its_time() {
    hold(CONFIG, |talk, pki| {
        let mut slow = Secure::client(talk, pki.client(&TLS13), "a.example");
        let mut hello = Vec::new();
        slow.connection.write_tls(&mut hello).unwrap();
        talk.says(slow.peer, &hello[..hello.len() - 1]);
        talk.passes(Duration::from_secs(9));
        assert!(!talk.is_closed(slow.peer));
        talk.passes(Duration::from_secs(2));
        assert!(talk.is_closed(slow.peer));
    });
}

/// How far a client goes that does not finish its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unfinished {
    Silent,
    HalfHello,
    Hello,
}

impl Unfinished {
    /// Such a client of a listener.
    fn client(self, talk: &mut Talk<'_>, pki: &Pki, listener: usize) -> Peer {
        let peer = talk.client_of(listener);
        let mut client = Secure::client_at(peer, pki.client(&TLS13), "a.example");
        let mut hello = Vec::new();
        client.connection.write_tls(&mut hello).unwrap();
        let said = match self {
            Self::Silent => 0,
            Self::HalfHello => hello.len() / 2,
            Self::Hello => hello.len(),
        };
        talk.says(peer, &hello[..said]);
        peer
    }
}

/// Eight handshakes at a time, on two listeners.
fn few_handshakes() -> String {
    let second = "
- name: other
  address: 127.0.0.1:8444
  tls: { certificates: [{ chain: a.pem, key: a.key }] }
  http: { forwarded: off, request_id: false }
  routes: all
routes:
";
    format!("{}limits: {{ handshakes_max: 8 }}\n", CONFIG.replacen("\nroutes:\n", second, 1))
}

#[test]
fn clients_that_do_not_finish_keep_without_certificate_from_a_handshake() {
    for unfinished in [Unfinished::Silent, Unfinished::HalfHello, Unfinished::Hello] {
        hold(&few_handshakes(), |talk, pki| {
            let attackers: Vec<_> = (0..40).map(|_| unfinished.client(talk, pki, 0)).collect();
            for listener in [0, 1] {
                let peer = talk.client_of(listener);
                let mut client = Secure::client_at(peer, pki.client(&TLS13), "a.example");
                client.turn(talk);
                assert!(!client.connection.is_handshaking(), "{unfinished:?} {listener}");
            }
            // A silent connection is not a handshake; of the others, those without progress for
            // longest are closed.
            let open = attackers.iter().filter(|peer| !talk.is_closed(**peer)).count();
            let expected = if unfinished == Unfinished::Silent { 40 } else { 6 };
            assert!((expected..=40).contains(&open) && (open == 40 || open < 8), "{open}");
            assert!(attackers[34..].iter().all(|peer| !talk.is_closed(*peer)));
            talk.passes(Duration::from_secs(11));
            assert!(attackers.iter().all(|peer| talk.is_closed(*peer)));
        });
    }
}

/// A record for each byte is no progress: the next to give way is not who waits for our answer to come across a network.
#[test]
fn clients_that_send_a_hello_in_pieces_keep_their_places_no_longer_than_others() {
    hold(&few_handshakes(), |talk, pki| {
        let mut hello = Vec::new();
        let begins = |talk: &mut Talk<'_>, hello: &mut Vec<u8>| {
            let peer = talk.client();
            let mut client = Secure::client_at(peer, pki.client(&TLS13), "a.example");
            hello.clear();
            client.connection.write_tls(hello).unwrap();
            talk.says(peer, [&hello[..3], &[0, 1], &hello[5..6]].concat());
            peer
        };
        let mut slow: Vec<_> = (0..7).map(|_| begins(talk, &mut hello)).collect();
        let mut client = Secure::client_at(talk.client(), pki.client(&TLS13), "a.example");
        let mut whole = Vec::new();
        client.connection.write_tls(&mut whole).unwrap();
        talk.says(client.peer, whole);
        for place in 6..12 {
            for peer in &slow {
                if !talk.is_closed(*peer) {
                    talk.says(*peer, [&hello[..3], &[0, 1], &hello[place..=place]].concat());
                }
            }
            slow.push(begins(talk, &mut hello));
        }
        client.turn(talk);
        assert!(!client.connection.is_handshaking());
        let closed: Vec<_> = slow.iter().map(|peer| talk.is_closed(*peer)).collect();
        assert!(closed[..4].iter().all(|is_closed| *is_closed), "{:?} {closed:?}", talk.variant());
    });
}

#[test]
fn a_handshake_that_gives_way_is_counted_with_its_cause() {
    hold(&few_handshakes(), |talk, pki| {
        talk.keeps_counts();
        for _ in 0..10 {
            Unfinished::Hello.client(talk, pki, 0);
        }
        let failed = talk.counted("strait_tls_handshakes_failed_total");
        assert_eq!(failed.get("edge overflow"), Some(&2), "{failed:?}");
        let closed = talk.counted("strait_downstream_connections_ended_total");
        assert_eq!(closed.get("handshakes_overflow"), Some(&2), "{closed:?}");
    });
}

#[test]
fn a_listener_under_attack_takes_no_handshakes_from_another() {
    hold(&few_handshakes(), |talk, pki| {
        // Three clients of the other listener take their time.
        let slow: Vec<_> = (0..3).map(|_| Unfinished::Hello.client(talk, pki, 1)).collect();
        for _ in 0..40 {
            Unfinished::Hello.client(talk, pki, 0);
        }
        assert!(slow.iter().all(|peer| !talk.is_closed(*peer)));
        // And at most half of all can be the other's.
        let more: Vec<_> = (0..3).map(|_| Unfinished::Hello.client(talk, pki, 1)).collect();
        assert!(slow[..2].iter().all(|peer| talk.is_closed(*peer)));
        assert!(!talk.is_closed(slow[2]) && more.iter().all(|peer| !talk.is_closed(*peer)));
    });
}

fn two_chains() -> String {
    CONFIG.replace(
        "  routes: all\n",
        "  routes: all\n  chains:\n  - { name: b, match: { server_names: [b.example] }, routes: all, tls: { certificates: [{ chain: b.pem, key: b.key }] } }\n",
    )
}

#[test]
fn a_hello_that_comes_slowly_meets_the_chain_that_it_names() {
    hold(&two_chains(), |talk, pki| {
        for cut in [1, 3, 5, 60] {
            let mut client = Secure::client(talk, pki.client(&TLS13), "b.example");
            let mut hello = Vec::new();
            client.connection.write_tls(&mut hello).unwrap();
            talk.says(client.peer, &hello[..cut]);
            // `timeouts.detect` is for clients that send nothing.
            talk.passes(Duration::from_secs(7));
            talk.says(client.peer, &hello[cut..]);
            client.turn(talk);
            assert!(!client.connection.is_handshaking(), "{cut}: {:?}", client.error);
            let certificates = client.connection.peer_certificates().unwrap();
            assert_eq!(certificates, [pki.pairs[1].0.clone()], "{cut}");
        }
    });
}

#[test]
fn a_hello_that_does_not_come_whole_ends_with_the_time_of_handshakes() {
    hold(&two_chains(), |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "b.example");
        let mut hello = Vec::new();
        client.connection.write_tls(&mut hello).unwrap();
        talk.says(client.peer, &hello[..60]);
        talk.passes(Duration::from_secs(9));
        // More of it is no reason to wait for longer, and a handshake has no time of its own then.
        talk.says(client.peer, &hello[60..61]);
        assert!(!talk.is_closed(client.peer));
        talk.passes(Duration::from_secs(2));
        assert!(talk.is_closed(client.peer));
        assert_eq!(talk.heard(client.peer), "");

        let ended = talk.client();
        talk.says(ended, &hello[..60]);
        talk.ends(ended);
        assert!(talk.is_closed(ended));
    });
}

#[test]
fn chains_have_certificates_of_their_own() {
    hold(&two_chains(), |talk, pki| {
        for (place, name) in [(0, "a.example"), (1, "b.example")] {
            let mut client = Secure::client(talk, pki.client(&TLS13), name);
            client.says(talk, GET);
            let certificates = client.connection.peer_certificates().unwrap();
            assert_eq!(certificates, [pki.pairs[place].0.clone()]);
            let upstream = talk.upstream();
            talk.breaks(upstream);
            assert!(client.hears(talk).starts_with("HTTP/1.1 50"));
        }
    });
}

/// A client of TLS 1.2 behind its handshake.
struct Sealed {
    peer: Peer,
    records: RecordLayer,
    unread: Vec<u8>,
}

impl Sealed {
    /// One whose connection is old: the key that the proxy seals with is near its limit.
    fn old_client(talk: &mut Talk<'_>) -> Self {
        Self::client(talk, KEY_RECORDS_MAX - (1 << 20))
    }

    /// One that the proxy has sent so many records.
    fn client(talk: &mut Talk<'_>, sequence: u64) -> Self {
        let suite = Suite { protocol: Protocol::Tls12, cipher: Cipher::Aes128Gcm };
        let (theirs, ours) = ([1; 16], [2; 16]);
        let secrets =
            |key, sequence| DirectionSecrets { key, iv: &[7; 12], sequence, traffic_secret: &[] };
        let from_client = || secrets(&theirs, 0);
        let from_proxy = || secrets(&ours, sequence);
        let of_proxy = Secrets { suite, receive: from_client(), send: from_proxy() };
        let of_client = Secrets { suite, receive: from_proxy(), send: from_client() };
        // Sized as those of all downstream connections are.
        let layer = |role, secrets| RecordLayer::new(role, secrets, Sizing::Adaptive).unwrap();
        let peer = talk.client_behind(layer(TlsRole::Server, &of_proxy));
        Self { peer, records: layer(TlsRole::Client, &of_client), unread: Vec::new() }
    }

    fn says(&mut self, talk: &mut Talk<'_>, data: &[u8]) {
        let mut out = Buffer::new(self.records.sealed_len(data.len()));
        self.records.seal(&[data], &mut out).unwrap();
        talk.says(self.peer, out.filled());
    }

    /// Begins with HTTP/2, and asks for something on stream 1.
    fn gets_on_stream(&mut self, talk: &mut Talk<'_>, limits: &Limits) {
        let (mut codec, mut index) = (Http2::client(limits), HeadIndex::default());
        let mut out = Buffer::new(4096);
        codec.send_control(&mut out);
        let decoded =
            decode_request(GET.as_bytes(), &mut Scan::default(), &limits.head, &mut index);
        let (head, _) = decoded.unwrap().unwrap();
        codec.send_request(&head, Scheme::Https, RequestForm::Same, true, &mut out).unwrap();
        self.says(talk, out.filled());
    }

    fn hears(&mut self, talk: &mut Talk<'_>) -> Vec<u8> {
        self.unread.extend(talk.heard_bytes(self.peer));
        opened(&mut self.records, &mut self.unread)
    }
}

#[test]
fn a_connection_whose_key_is_near_its_limit_ends_in_good_order() {
    let plain = CONFIG.replace("  tls: { certificates: [{ chain: a.pem, key: a.key }] }\n", "");
    hold(&plain, |talk, _| {
        let mut client = Sealed::old_client(talk);
        client.says(talk, GET.as_bytes());
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        let heard = String::from_utf8(client.hears(talk)).unwrap();
        assert!(heard.contains("connection: close\r\n") && heard.ends_with("ok"), "{heard}");
        assert!(client.records.is_ended() && talk.is_shut(client.peer));

        let mut client = Sealed::old_client(talk);
        client.gets_on_stream(talk, &Limits::default());
        talk.says(upstream, OK);
        let heard = client.hears(talk);
        let kinds: Vec<_> = frames(&heard).iter().map(|(kind, _)| *kind).collect();
        let going_away = 7;
        assert!(kinds.contains(&DATA) && kinds.contains(&going_away), "{kinds:?}");
    });
}

/// The type of DATA frames (RFC 9113, section 6.1).
const DATA: u8 = 0;

/// Types and lengths of frames.
fn frames(mut bytes: &[u8]) -> Vec<(u8, usize)> {
    let mut frames = Vec::new();
    while let [high, middle, low, kind, ..] = *bytes {
        let len = u32::from_be_bytes([0, high, middle, low]) as usize;
        frames.push((kind, len));
        bytes = &bytes[9 + len..];
    }
    frames
}

#[test]
fn what_waited_for_a_window_is_sealed_to_its_end() {
    const BODY_LEN: usize = 120_000;
    let plain = CONFIG.replace("  tls: { certificates: [{ chain: a.pem, key: a.key }] }\n", "");
    hold(&plain, |talk, _| {
        if talk.variant() == Variant::ByteByByte {
            return talk.leave_out();
        }
        let mut client = Sealed::client(talk, 0);
        let limits = Limits { stream_window_bytes_max: 100, ..Limits::default() };
        client.gets_on_stream(talk, &limits);
        let upstream = talk.upstream();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_LEN}\r\n\r\n");
        talk.says(upstream, [head.into_bytes(), vec![b'x'; BODY_LEN]].concat());
        let data_len = |heard: &[u8]| -> usize {
            let data = frames(heard).into_iter().filter(|(kind, _)| *kind == DATA);
            data.map(|(_, len)| len).sum()
        };
        let before = data_len(&client.hears(talk));
        assert_eq!(before, 100);
        // All that is left has been read by now, and goes when the client lets it.
        client.says(talk, &[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0x10, 0, 0]);
        assert_eq!(data_len(&client.hears(talk)), BODY_LEN - before);
    });
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

const POST: &str = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";

/// With a listener that takes early data, and nowhere else: it remembers sessions itself.
fn hold_early(script: impl Fn(&mut Talk<'_>, &Pki)) {
    hold(&CONFIG.replace("a.key }]", "a.key }], early_data: true"), |talk, pki| {
        if talk.variant() != Variant::Moving {
            script(talk, pki);
        }
    });
}

fn early_client(pki: &Pki) -> ClientConfig {
    let mut config = pki.client(&TLS13);
    config.enable_early_data = true;
    config
}

#[test]
fn safe_requests_that_come_with_the_hello_are_answered_at_once() {
    hold_early(|talk, pki| {
        let config = early_client(pki);
        let mut first = Secure::client(talk, config.clone(), "a.example");
        let upstream = first.is_served(talk);
        // Each time it is given a ticket for the next.
        for _ in 0..2 {
            let mut back = Secure::client(talk, config.clone(), "a.example");
            back.begins_early(talk, GET);
            // The service is asked before the client has finished its handshake.
            talk.hears(upstream, "GET / HTTP/1.1\r\nHost: x\r\nearly-data: 1\r\n\r\n");
            talk.says(upstream, OK);
            assert_eq!(back.hears(talk), OK);
            back.says(talk, GET);
            talk.hears(upstream, GET);
            talk.says(upstream, OK);
            assert_eq!(back.hears(talk), OK);
            back.ends(talk);
        }
    });
}

#[test]
fn requests_that_are_not_safe_have_to_come_again_after_the_handshake() {
    hold_early(|talk, pki| {
        let config = early_client(pki);
        let upstream = Secure::client(talk, config.clone(), "a.example").is_served(talk);
        for request in [
            "DELETE / HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        ] {
            let mut back = Secure::client(talk, config.clone(), "a.example");
            back.begins_early(talk, request);
            let heard = back.hears(talk);
            assert!(heard.starts_with("HTTP/1.1 425 Too Early\r\n"), "{heard}");
            assert!(heard.ends_with("request_too_early\n"), "{heard}");
            back.says(talk, POST);
            talk.hears(upstream, POST);
            talk.says(upstream, OK);
            assert_eq!(back.hears(talk), OK);
        }
    });
}

#[test]
fn a_hello_that_somebody_else_sends_again_asks_for_nothing() {
    hold_early(|talk, pki| {
        let config = early_client(pki);
        let upstream = Secure::client(talk, config.clone(), "a.example").is_served(talk);
        let mut back = Secure::client(talk, config, "a.example");
        let hello = back.begins_early(talk, GET);
        talk.hears(upstream, "GET / HTTP/1.1\r\nHost: x\r\nearly-data: 1\r\n\r\n");
        talk.says(upstream, OK);
        assert_eq!(back.hears(talk), OK);
        let thief = talk.client();
        talk.says(thief, &hello);
        assert_eq!(talk.heard(upstream), "");
        talk.passes(Duration::from_secs(11));
        assert!(talk.is_closed(thief));
    });
}

/// Who holds the hello back does not choose where the request goes.
#[test]
fn a_session_of_one_listener_begins_early_at_no_other() {
    let second = "
- name: other
  address: 127.0.0.1:8444
  tls: { certificates: [{ chain: a.pem, key: a.key }] }
  http: { forwarded: off, request_id: false }
  routes: all
routes:
";
    let config = CONFIG.replacen("\nroutes:\n", second, 1);
    hold(&config.replace("a.key }]", "a.key }], early_data: true"), |talk, pki| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let config = early_client(pki);
        let upstream = Secure::client(talk, config.clone(), "a.example").is_served(talk);
        let mut back = Secure::client_at(talk.client_of(1), config, "a.example");
        back.begins_early(talk, GET);
        assert_eq!(talk.heard(upstream), "");
        back.says(talk, GET);
        talk.hears(upstream, GET);
    });
}

#[test]
fn a_client_that_does_not_finish_its_handshake_well_is_cut_off() {
    hold_early(|talk, pki| {
        let config = early_client(pki);
        let mut first = Secure::client(talk, config.clone(), "a.example");
        let upstream = first.is_served(talk);
        let mut back = Secure::client(talk, config, "a.example");
        back.begins_early(talk, GET);
        talk.hears(upstream, "GET / HTTP/1.1\r\nHost: x\r\nearly-data: 1\r\n\r\n");
        talk.says(upstream, OK);
        let answer = talk.heard_bytes(back.peer);
        assert!(!answer.is_empty());
        talk.says(
            back.peer,
            [23, 3, 3, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        assert!(talk.is_closed(back.peer));
        // No other connection is touched.
        first.says(talk, GET);
        talk.hears(upstream, GET);
    });
}

#[test]
fn a_client_that_began_early_has_the_time_of_a_handshake_to_finish_it() {
    for alpn in [&b"http/1.1"[..], b"h2"] {
        hold_early(|talk, pki| {
            talk.keeps_counts();
            let mut config = early_client(pki);
            config.alpn_protocols = vec![alpn.to_vec()];
            let mut first = Secure::client(talk, config.clone(), "a.example");
            first.turn(talk);
            let mut back = Secure::client(talk, config, "a.example");
            let mut said = Buffer::new(4096);
            match alpn {
                b"h2" => {
                    let limits = Limits::default();
                    let mut codec = Http2::client(&limits);
                    codec.send_control(&mut said);
                    let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
                    let decoded =
                        decode_request(GET.as_bytes(), &mut scan, &limits.head, &mut index);
                    let (head, _) = decoded.unwrap().unwrap();
                    codec
                        .send_request(&head, Scheme::Https, RequestForm::Same, true, &mut said)
                        .unwrap();
                }
                _ => said.push(GET.as_bytes()),
            }
            back.begins_early(talk, said.filled());
            // Its request is under way, and it is read from as long as that lasts.
            let upstream = talk.upstream();
            assert!(talk.heard(upstream).starts_with("GET / HTTP/1.1\r\n"));
            talk.passes(Duration::from_secs(9));
            assert!(!talk.is_closed(back.peer));
            talk.passes(Duration::from_secs(2));
            assert!(talk.is_closed(back.peer) && talk.is_closed(upstream));
            assert_eq!(talk.proxy().load().handshakes, 0);
            let failed = talk.counted("strait_tls_handshakes_failed_total");
            assert_eq!(failed.get("edge tls_timeout"), Some(&1), "{failed:?}");
            assert!(talk.log().contains("tls_handshake_timeout"), "{}", talk.log());
        });
    }
}

#[test]
fn streams_may_begin_early_too() {
    hold_early(|talk, pki| {
        let mut config = early_client(pki);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let mut first = Secure::client(talk, config.clone(), "a.example");
        first.turn(talk);
        let mut back = Secure::client(talk, config, "a.example");
        let (limits, mut index) = (Limits::default(), HeadIndex::default());
        let mut codec = Http2::client(&limits);
        let mut out = Buffer::new(4096);
        codec.send_control(&mut out);
        for request in [GET, POST] {
            let decoded =
                decode_request(request.as_bytes(), &mut Scan::default(), &limits.head, &mut index);
            let (head, _) = decoded.unwrap().unwrap();
            codec
                .send_request(&head, Scheme::Https, RequestForm::Same, request == GET, &mut out)
                .unwrap();
        }
        back.begins_early(talk, out.filled());
        let upstream = talk.upstream();
        talk.hears(upstream, "GET / HTTP/1.1\r\nhost: x\r\nearly-data: 1\r\n\r\n");
        talk.says(upstream, OK);
        back.turn(talk);
        let (mut heard, mut at, mut scratch, mut received) =
            (std::mem::take(&mut back.heard), 0, Scratch::default(), Vec::new());
        loop {
            let (n, element) = codec.decode(&heard[at..], &limits, &mut scratch).unwrap();
            at += n;
            match element {
                Element::NeedMore => break,
                Element::Response { head, .. } => received.push(head.status()),
                _ => {}
            }
        }
        heard.drain(..at);
        received.sort_unstable();
        assert_eq!(received, [200, 425]);
    });
}

#[test]
fn a_connection_ends_when_the_records_behind_its_last_frame_are_sent() {
    hold(CONFIG, |talk, pki| {
        let mut config = pki.client(&TLS13);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let mut client = Secure::client(talk, config, "a.example");
        let mut codec = Http2::client(&Limits::default());
        let mut out = Buffer::new(4096);
        codec.send_control(&mut out);
        client.says(talk, out.filled());
        // The answer to a KeyUpdate holds no data, and waits.
        talk.takes(client.peer, 0);
        client.connection.refresh_traffic_keys().unwrap();
        client.turn(talk);
        codec.go_away(ErrorCode::NO_ERROR);
        let mut out = Buffer::new(4096);
        codec.send_control(&mut out);
        client.says(talk, out.filled());
        assert!(!talk.is_shut(client.peer));
        talk.takes(client.peer, usize::MAX);
        client.turn(talk);
        assert!(client.is_ended && talk.is_shut(client.peer));
    });
}

const XFCC: &str = "x-forwarded-client-cert";

/// The value of `x-forwarded-client-cert` that a service got, if any.
fn client_cert(heard: &str) -> Option<&str> {
    let mut lines = heard.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(name, _)| name.eq_ignore_ascii_case(XFCC)).map(|(_, value)| value)
}

#[test]
fn services_get_of_client_certificates_what_the_listener_forwards() {
    let element = |said: &str| format!("{said},By=");
    for (mode, from_client, without) in [
        ("sanitize", None, None),
        ("forward_only", Some("Hash=1".to_owned()), None),
        ("append_forward", Some(element("Hash=1")), None),
        ("sanitize_set", Some("By=spiffe://x/edge;Hash=".to_owned()), None),
        ("always_forward_only", Some("Hash=1".to_owned()), Some("Hash=1")),
    ] {
        let config = CONFIG
            .replace("forwarded: off", &format!("forwarded: off, forward_client_cert: {mode}"))
            .replace(
                "chain: a.pem, key: a.key }]",
                "chain: d.pem, key: d.key }], client: { ca: e.pem, mode: optional }",
            );
        hold(&config, |talk, pki| {
            let request = format!("GET / HTTP/1.1\r\nHost: x\r\n{XFCC}: Hash=1\r\n\r\n");
            let mut client = Secure::client(talk, pki.client_with(4), "d.example");
            client.says(talk, &request);
            let upstream = talk.upstream();
            let heard = talk.heard(upstream);
            match &from_client {
                Some(said) => {
                    assert!(
                        client_cert(&heard).is_some_and(|got| got.starts_with(said)),
                        "{heard}"
                    );
                }
                None => assert_eq!(client_cert(&heard), None, "{heard}"),
            }
            if mode == "sanitize_set" {
                let subject = r#";Subject="O=Example\, Inc.,CN=a service";URI=spiffe://x/e"#;
                assert!(heard.contains(subject), "{heard}");
            }
            talk.says(upstream, OK);
            assert_eq!(client.hears(talk), OK);
            let log = talk.log().to_owned();
            for said in [
                "\"server_name\":\"d.example\"",
                "\"tls_version\":\"TLSv1.3\"",
                "\"peer_identity\":\"spiffe://x/e\"",
            ] {
                assert!(log.contains(said), "{said} in {log}");
            }
            let mut without_certificate = Secure::client(talk, pki.client(&TLS13), "d.example");
            without_certificate.says(talk, &request);
            let heard = talk.heard(upstream);
            assert_eq!(client_cert(&heard), without, "{heard}");
        });
    }
}

#[test]
fn header_fields_may_have_the_names_of_the_clients_certificate() {
    let edits = "cluster: web, headers: { request: { set: {
        x-uri: '%DOWNSTREAM_PEER_URI_SAN%', x-subject: '%DOWNSTREAM_PEER_SUBJECT%', x-by: '%DOWNSTREAM_LOCAL_URI_SAN%',
        x-tls: '%DOWNSTREAM_TLS_VERSION% %REQUESTED_SERVER_NAME% %REQ(:scheme)%' } } } }]";
    let config = CONFIG.replace("cluster: web }]", edits).replace(
        "chain: a.pem, key: a.key }]",
        "chain: d.pem, key: d.key }], client: { ca: e.pem, mode: optional }",
    );
    hold(&config, |talk, pki| {
        let request = "GET / HTTP/1.1\r\nHost: x\r\nx-uri: spiffe://x/admin\r\n\r\n";
        let mut client = Secure::client(talk, pki.client_with(4), "d.example");
        client.says(talk, request);
        let upstream = talk.upstream();
        let heard = talk.heard(upstream);
        for field in [
            "x-uri: spiffe://x/e\r\n",
            "x-subject: O=Example\\, Inc.,CN=a service\r\n",
            "x-by: spiffe://x/edge\r\n",
            "x-tls: TLSv1.3 d.example https\r\n",
        ] {
            assert!(heard.contains(field), "{heard}");
        }
        talk.says(upstream, OK);
        assert_eq!(client.hears(talk), OK);
        let mut without_certificate = Secure::client(talk, pki.client(&TLS13), "d.example");
        without_certificate.says(talk, request);
        let heard = talk.heard(upstream);
        assert!(!heard.contains("x-uri") && !heard.contains("x-subject"), "{heard}");
    });
}

#[test]
fn rules_are_for_clients_with_these_names() {
    let config = CONFIG
        .replace(
            "chain: a.pem, key: a.key }]",
            "chain: a.pem, key: a.key }], client: { ca: e.pem, mode: optional }",
        )
        .replace(
            "rules: [{ match: { prefix: / }, cluster: web }]",
            "rules: [
              { match: { prefix: /, client: ['spiffe://x/f', 'spiffe://y/*'] }, respond: { status: 204 } },
              { match: { prefix: /e, client: ['spiffe://x/*'] }, respond: { status: 202 } },
              { match: { path: /e }, respond: { status: 403 } },
              { match: { prefix: /, client: ['*'] }, respond: { status: 201 } }]",
        );
    hold(&config, |talk, pki| {
        for (client, path, status) in [
            (pki.client_with(4), "/e", "202 Accepted"),
            (pki.client_with(4), "/", "201 Created"),
            (pki.client(&TLS13), "/e", "403 Forbidden"),
            (pki.client(&TLS13), "/", "404 Not Found"),
        ] {
            let mut client = Secure::client(talk, client, "a.example");
            client.says(talk, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let heard = client.hears(talk);
            assert!(heard.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{path}: {heard}");
        }
    });
}

#[test]
fn a_client_without_the_certificate_that_it_needs_is_refused() {
    let config = CONFIG.replace(
        "chain: a.pem, key: a.key }]",
        "chain: a.pem, key: a.key }], client: { ca: e.pem }",
    );
    hold(&config, |talk, pki| {
        for version in [&TLS12, &TLS13] {
            let mut client = Secure::client(talk, pki.client(version), "a.example");
            client.turn(talk);
            client.turn(talk);
            assert!(matches!(client.error, Some(rustls::Error::AlertReceived(_))));
            assert!(talk.is_shut(client.peer));
            talk.ends(client.peer);
            assert!(talk.is_closed(client.peer));
        }
        let mut client = Secure::client(talk, pki.client_with(4), "a.example");
        client.says(talk, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
    });
}

#[test]
fn what_a_refused_client_still_sends_does_not_take_the_reason_from_it() {
    let config = CONFIG.replace(
        "chain: a.pem, key: a.key }]",
        "chain: a.pem, key: a.key }], min_version: \"1.3\"",
    );
    hold(&config, |talk, pki| {
        for ends in [true, false] {
            let mut client = Secure::client(talk, pki.client(&TLS12), "a.example");
            client.turn(talk);
            assert!(matches!(client.error, Some(rustls::Error::AlertReceived(_))));
            assert_eq!(talk.proxy().load().handshakes, 0);
            talk.says(client.peer, "what was on its way");
            assert!(talk.is_shut(client.peer) && !talk.is_closed(client.peer));
            match ends {
                true => talk.ends(client.peer),
                false => talk.passes(Duration::from_secs(3)),
            }
            assert!(talk.is_closed(client.peer));
        }
    });
}

#[test]
fn a_permissive_listener_takes_both() {
    let config = CONFIG.replace("a.key }]", "a.key }], mode: permissive");
    hold(&config, |talk, pki| {
        let plain = talk.client();
        talk.says(plain, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(plain, OK);
        let mut client = Secure::client(talk, pki.client(&TLS12), "a.example");
        client.says(talk, GET);
        talk.heard(upstream);
        talk.says(upstream, OK);
        assert_eq!(client.hears(talk), OK);
    });
}

#[test]
fn the_upgrade_of_clear_connections_is_ignored_inside() {
    hold(CONFIG, |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
        let upgrade =
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
        client.says(talk, GET.replace("\r\n\r\n", &format!("\r\n{upgrade}\r\n")));
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        assert_eq!(client.hears(talk), OK);
        // The connection goes on as it was.
        client.says(talk, GET);
        talk.hears(upstream, GET);
    });
}

#[test]
fn what_is_spoken_inside_is_counted_once_it_is_known() {
    let permissive = CONFIG.replace("a.key }]", "a.key }], mode: permissive");
    for (config, alpn, expected) in [
        (CONFIG, Some("h2"), "edge http2"),
        (CONFIG, Some("http/1.1"), "edge http1"),
        (CONFIG, None, "edge http1"),
        (&permissive, Some("h2"), "edge tls"),
    ] {
        hold(config, |talk, pki| {
            talk.keeps_counts();
            let mut config = pki.client(&TLS13);
            config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
            let mut client = Secure::client(talk, config, "a.example");
            client.turn(talk);
            if alpn != Some("h2") {
                client.is_served(talk);
            }
            let counted = talk.counted(DETECTED).into_iter().filter(|(_, count)| *count > 0);
            assert_eq!(counted.collect::<Vec<_>>(), [(expected.to_owned(), 1)]);
        });
    }
}

#[test]
fn a_proxy_header_comes_before_the_handshake() {
    let config =
        CONFIG.replace("  routes: all\nroutes", "  proxy_protocol: true\n  routes: all\nroutes");
    hold(&config, |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
        let mut hello = b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 443\r\n".to_vec();
        client.connection.write_tls(&mut hello).unwrap();
        talk.says(client.peer, hello);
        client.is_served(talk);
        assert!(talk.log().contains("192.0.2.7"));
    });
}

#[test]
fn bytes_are_relayed_out_of_tls() {
    let config = CONFIG.replace("routes: all\nroutes", "protocol: tcp\n  cluster: web\nroutes");
    hold(
        &config
            .replace("- { name: all, rules: [{ match: { prefix: / }, cluster: web }] }\n", "[]\n")
            .replace("routes:\n[]\n", ""),
        |talk, pki| {
            let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
            client.says(talk, "anything");
            let upstream = talk.upstream();
            talk.hears(upstream, "anything");
            talk.says(upstream, "something");
            assert_eq!(client.hears(talk), "something");
            client.ends(talk);
            assert!(talk.is_shut(upstream) && !talk.is_closed(upstream));
            talk.says(upstream, " more");
            assert_eq!(client.hears(talk), " more");
            talk.ends(upstream);
            client.turn(talk);
            assert!(client.is_ended);
        },
    );
}

#[test]
fn an_upstream_is_asked_over_tls_and_kept() {
    hold(TO_TLS, |talk, pki| {
        let client = talk.client();
        talk.says(client, GET);
        let mut upstream = Secure::server(talk.upstream(), pki.server(0));
        assert_eq!(upstream.hears(talk), GET);
        upstream.says(talk, OK);
        talk.hears(client, OK);
        talk.says(client, GET);
        assert_eq!(upstream.hears(talk), GET);
        upstream.says(talk, OK);
        talk.hears(client, OK);
        upstream.ends(talk);
        assert!(talk.is_closed(upstream.peer));
    });
}

#[test]
fn an_upstream_learns_that_the_client_was_secure() {
    let config = CONFIG.replace("forwarded: off", "forwarded: both");
    hold(&config, |talk, pki| {
        let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
        client.says(talk, GET);
        let upstream = talk.upstream();
        let heard = talk.heard(upstream);
        assert!(heard.contains("\r\nx-forwarded-proto: https\r\n"), "{heard}");
        assert!(heard.contains(";proto=https\r\n"), "{heard}");
    });
}

#[test]
fn the_scheme_of_http2_is_that_of_its_connection() {
    let config = TO_TLS.replace("tls: {", "protocol: http2, tls: {");
    hold(&config, |talk, pki| {
        let client = talk.client();
        talk.says(client, GET);
        let mut upstream = Secure::server(talk.upstream(), pki.server(0));
        upstream.turn(talk);
        let mut frames = upstream.heard.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let fields = loop {
            let (&[a, b, c, kind, ..], rest) = frames.split_first_chunk::<9>().unwrap();
            let (payload, rest) = rest.split_at(u32::from_be_bytes([0, a, b, c]) as usize);
            if kind == 1 {
                break payload;
            }
            frames = rest;
        };
        // HPACK's index of `:scheme: https`; that of `http` is 0x86.
        assert!(fields[..4].contains(&0x87), "{}", fields.escape_ascii());
    });
}

/// A cluster one of whose endpoints is in a mesh.
const MIXED: &str = "
listeners:
- name: edge
  address: 127.0.0.1:8080
  http: { forwarded: off, request_id: false }
  routes: all
routes:
- { name: all, rules: [{ match: { prefix: / }, cluster: web }] }
clusters:
- name: web
  endpoints: ['127.0.0.1:9000', { address: '127.0.0.1:9001', metadata: { mesh: 'on' } }]
  transports: [{ name: mesh, match: { mesh: 'on' }, tls: { server_name: a.example, ca: a.pem } }]
";

#[test]
fn each_endpoint_is_spoken_to_as_its_metadata_says() {
    hold(MIXED, |talk, pki| {
        let client = talk.client();
        let (mut plain, mut secure) = (None, None);
        // Where the turns begin is random.
        for turn in 0..6 {
            talk.says(client, GET);
            if turn < 2 {
                let upstream = talk.upstream();
                match &*talk.address(upstream).to_string() {
                    "127.0.0.1:9000" => plain = Some(upstream),
                    _ => secure = Some(Secure::server(upstream, pki.server(0))),
                }
            }
            let heard = plain.map(|plain| talk.heard(plain)).unwrap_or_default();
            if heard.is_empty() {
                let secure = secure.as_mut().unwrap();
                assert_eq!(secure.hears(talk), GET, "{:?}", secure.error);
                secure.says(talk, OK);
            } else {
                assert_eq!(heard, GET);
                talk.says(plain.unwrap(), OK);
            }
            talk.hears(client, OK);
        }
        assert!(plain.is_some() && secure.is_some(), "connections of both are kept");
    });
}

#[test]
fn an_endpoint_that_joins_a_mesh_loses_its_connections_and_no_other_does() {
    hold(MIXED, |talk, pki| {
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        let client = talk.client();
        let mut plain = None;
        let mut secure = None;
        for _ in 0..2 {
            talk.says(client, GET);
            let upstream = talk.upstream();
            if talk.address(upstream).to_string() == "127.0.0.1:9000" {
                talk.hears(upstream, GET);
                talk.says(upstream, OK);
                plain = Some(upstream);
            } else {
                let mut server = Secure::server(upstream, pki.server(0));
                assert_eq!(server.hears(talk), GET);
                server.says(talk, OK);
                secure = Some(server);
            }
            talk.hears(client, OK);
        }
        let (plain, mut secure) = (plain.unwrap(), secure.unwrap());
        let joined = "{ address: '127.0.0.1:9000', metadata: { mesh: 'on' } }";
        talk.reconfigures(&MIXED.replace("'127.0.0.1:9000'", joined));
        assert!(talk.is_closed(plain));
        assert!(!talk.is_closed(secure.peer));
        let mut joined = None;
        for _ in 0..2 {
            talk.says(client, GET);
            let server = if talk.is_connecting() {
                joined.insert(Secure::server(talk.upstream(), pki.server(0)))
            } else {
                &mut secure
            };
            assert_eq!(server.hears(talk), GET);
            server.says(talk, OK);
            talk.hears(client, OK);
        }
        assert!(joined.is_some());
    });
}

#[test]
fn each_endpoint_is_checked_as_it_is_spoken_to() {
    let config =
        MIXED.replace("  transports", "  checks: [{ http: { path: /healthz } }]\n  transports");
    for is_right in [true, false] {
        hold(&config, |talk, pki| {
            if talk.variant() == Variant::Moving {
                // A check does not move.
                return talk.leave_out();
            }
            talk.checks(1, 0, 0);
            let plain = talk.upstream();
            assert!(talk.heard(plain).starts_with("GET /healthz "));
            talk.says(plain, OK);
            assert_eq!(talk.checked(), [(1, CheckResult::Passed)]);
            talk.checks(2, 1, 0);
            let mut secure = Secure::server(talk.upstream(), pki.server(usize::from(!is_right)));
            let heard = secure.hears(talk);
            if is_right {
                assert!(heard.starts_with("GET /healthz "), "{heard}");
                secure.says(talk, OK);
                assert_eq!(talk.checked(), [(2, CheckResult::Passed)]);
                return;
            }
            assert_eq!(heard, "");
            let checked = talk.checked();
            let [(2, CheckResult::Failed { reason, .. })] = &checked[..] else {
                panic!("{checked:?}")
            };
            let said = "upstream_tls_failed: the peer's certificate is not accepted: ";
            assert!(reason.starts_with(said), "{reason}");
        });
    }
}

#[test]
fn an_upstream_that_is_somebody_else_is_not_asked() {
    hold(TO_TLS, |talk, pki| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, GET);
        for _ in 0..3 {
            let mut upstream = Secure::server(talk.upstream(), pki.server(1));
            upstream.turn(talk);
            assert!(talk.is_closed(upstream.peer));
            assert_eq!(upstream.heard, b"");
        }
        let heard = talk.heard(client);
        assert!(heard.starts_with("HTTP/1.1 503 "), "{heard}");
        let log = talk.log();
        let detail = "\"cause_detail\":\"the peer's certificate is not accepted: ";
        assert!(log.contains("upstream_tls_failed") && log.contains(detail), "{log}");
        let reasons = talk.counted("strait_upstream_connect_failure_reasons_total");
        assert_eq!(reasons.values().sum::<u64>(), 3, "{reasons:?}");
        assert!(reasons.keys().all(|labels| labels.contains(" certificate_")), "{reasons:?}");
    });
}

#[test]
fn an_upstream_without_a_name_has_to_show_its_address() {
    let config = TO_TLS.replace("server_name: a.example, ca: a.pem", "ca: c.pem");
    hold(&config, |talk, pki| {
        let client = talk.client();
        talk.says(client, GET);
        let mut upstream = Secure::server(talk.upstream(), pki.server(0));
        upstream.turn(talk);
        assert!(talk.is_closed(upstream.peer));
        let mut upstream = Secure::server(talk.upstream(), pki.server(2));
        assert_eq!(upstream.hears(talk), GET, "{:?}", upstream.error);
        upstream.says(talk, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_response_that_was_cut_off_is_not_taken_for_whole() {
    hold(TO_TLS, |talk, pki| {
        for is_whole in [true, false] {
            let client = talk.client();
            talk.says(client, GET);
            let mut upstream = Secure::server(talk.upstream(), pki.server(0));
            upstream.turn(talk);
            upstream.says(talk, "HTTP/1.1 200 OK\r\n\r\nuntil the end");
            if is_whole {
                upstream.ends(talk);
            }
            talk.ends(upstream.peer);
            assert!(talk.heard(client).contains("until the end"));
            assert_eq!(talk.log().contains("response_truncated"), !is_whole);
        }
    });
}

#[test]
fn a_proxy_header_goes_before_the_handshake() {
    let config = TO_TLS.replace("tls: {", "proxy_protocol: v1, tls: {");
    hold(&config, |talk, pki| {
        let client = talk.client();
        talk.says(client, GET);
        let peer = talk.upstream();
        let heard = talk.heard_bytes(peer);
        let end = heard.iter().position(|octet| *octet == b'\n').unwrap() + 1;
        assert!(heard.starts_with(b"PROXY TCP4 "), "{}", heard.escape_ascii());
        let mut upstream = Secure::server(peer, pki.server(0));
        upstream.connection.read_tls(&mut &heard[end..]).unwrap();
        upstream.connection.process_new_packets().unwrap();
        assert_eq!(upstream.hears(talk), GET);
        upstream.says(talk, OK);
        talk.hears(client, OK);
    });
}

/// Of an upstream that accepts no certificate.
fn trusting_without_certificate() -> ClientConfig {
    trusting(false)
}

/// Of a client that takes any certificate.
pub(crate) fn trusting_anybody() -> ClientConfig {
    trusting(true)
}

fn trusting(takes_any: bool) -> ClientConfig {
    #[derive(Debug)]
    struct Opinion {
        takes_any: bool,
    }

    impl ServerCertVerifier for Opinion {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            if self.takes_any {
                return Ok(ServerCertVerified::assertion());
            }
            Err(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer))
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ECDSA_NISTP256_SHA256]
        }
    }

    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Opinion { takes_any }))
        .with_no_client_auth()
}

/// A listener whose signatures wait for others, with a key of RSA.
fn batched() -> String {
    CONFIG.replace(
        "{ chain: a.pem, key: a.key }",
        "{ chain: rsa.pem, key: rsa.key, signing: batched }",
    )
}

/// Whether this processor has what batches need; without it, everybody signs at once.
fn has_batches() -> bool {
    tls::batch::Batch::<()>::new(tls::batch::KeySize::Rsa2048).is_some()
}

#[test]
fn handshakes_beyond_the_first_few_wait_for_requests() {
    hold(CONFIG, |talk, pki| {
        let mut served = Secure::client(talk, pki.client(&TLS13), "a.example");
        let upstream = served.is_served(talk);
        talk.is_one_turn(true);
        let mut burst: Vec<Secure> = Vec::new();
        for _ in 0..40 {
            let mut client = Secure::client(talk, pki.client(&TLS13), "a.example");
            let mut hello = Vec::new();
            client.connection.write_tls(&mut hello).unwrap();
            talk.says(client.peer, &hello);
            burst.push(client);
        }
        served.says(talk, GET);
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        assert_eq!(served.hears(talk), OK);
        let mut flights: Vec<_> = burst.iter().map(|it| talk.heard_bytes(it.peer)).collect();
        let answered = flights.iter().filter(|flight| !flight.is_empty()).count();
        assert!((1..=16).contains(&answered), "{answered}");
        talk.is_one_turn(false);
        for (client, flight) in burst.iter().zip(&mut flights) {
            flight.extend(talk.heard_bytes(client.peer));
            assert!(!flight.is_empty());
            talk.breaks(client.peer);
        }
    });
}

#[test]
fn a_lone_handshake_waits_for_without_certificate() {
    for version in [&TLS12, &TLS13] {
        hold(&batched(), |talk, pki| {
            let mut client = Secure::client(talk, pki.client(version), "rsa.example");
            client.is_served(talk);
        });
    }
}

#[test]
fn handshakes_that_wait_for_each_other_all_get_their_own() {
    hold(&batched(), |talk, pki| {
        talk.is_busy(true);
        let versions = [&TLS12, &TLS13];
        let configs = versions.iter().cycle().take(11).map(|version| pki.client(version));
        let mut clients: Vec<_> =
            configs.map(|config| Secure::client(talk, config, "rsa.example")).collect();
        for _ in 0..2 {
            clients.iter_mut().for_each(|client| client.turn(talk));
        }
        // Eight went together; the others wait until they have waited for long enough.
        let handshaking = clients.iter().filter(|client| client.connection.is_handshaking());
        assert_eq!(handshaking.count(), if has_batches() { 3 } else { 0 });
        talk.passes(Duration::from_millis(1));
        let mut upstream = None;
        for (number, client) in clients.iter_mut().enumerate() {
            client.says(talk, format!("GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let upstream = *upstream.get_or_insert_with(|| talk.upstream());
            talk.hears(upstream, &format!("GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n"));
            talk.says(upstream, OK);
            assert_eq!(client.hears(talk), OK);
        }
    });
}

#[test]
fn what_comes_while_a_signature_is_made_waits_and_clients_may_go() {
    hold(&batched(), |talk, pki| {
        talk.is_busy(true);
        let mut gone = Secure::client(talk, pki.client(&TLS13), "rsa.example");
        gone.turn(talk);
        talk.breaks(gone.peer);
        let mut ended = Secure::client(talk, pki.client(&TLS13), "rsa.example");
        ended.turn(talk);
        talk.ends(ended.peer);
        let mut hasty = Secure::client(talk, pki.client(&TLS13), "rsa.example");
        hasty.turn(talk);
        // No bytes may come here: they are refused when they are read.
        talk.says(hasty.peer, [23, 3, 3, 0, 1, 0]);
        assert_ne!(talk.is_shut(hasty.peer), has_batches());
        let mut slow = Secure::client(talk, pki.client(&TLS13), "rsa.example");
        slow.turn(talk);
        talk.passes(Duration::from_millis(1));
        assert!(talk.is_shut(hasty.peer) && talk.is_closed(ended.peer));
        slow.is_served(talk);
    });
}

#[test]
fn a_client_whose_handshake_fails_is_logged_with_the_name_it_asked_for_and_the_reason() {
    let strict = CONFIG.replace("a.key }]", "a.key }], min_version: '1.3', alpn: [http/1.1]");
    let client = CONFIG.replace("a.key }]", "a.key }], client: { ca: b.pem }");
    hold(&strict, |talk, pki| {
        talk.keeps_counts();
        // Refused by what its hello says.
        Secure::client(talk, pki.client(&TLS12), "old.example").turn(talk);
        is_failed(talk, "\"server_name\":\"old.example\"", "edge no_version");
        let mut other = pki.client(&TLS13);
        other.alpn_protocols = vec![b"imap".to_vec()];
        Secure::client(talk, other, "mail.example").turn(talk);
        is_failed(talk, "\"server_name\":\"mail.example\"", "edge no_application_protocol");
        // It knows another authority, and says so.
        let mut strange = Secure::client(talk, trusting_without_certificate(), "a.example");
        strange.turn(talk);
        if strange.error.is_some() {
            strange.turn(talk);
            is_failed(talk, "\"server_name\":\"a.example\"", "edge alert_received");
        }
        // It goes away, or does nothing more.
        let hello = Unfinished::Hello.client(talk, pki, 0);
        talk.ends(hello);
        is_failed(talk, "\"server_name\":\"a.example\"", "edge peer_gone");
        Unfinished::Hello.client(talk, pki, 0);
        talk.passes(Duration::from_secs(11));
        is_failed(talk, "\"server_name\":\"a.example\"", "edge tls_timeout");
        // What is no TLS names nothing.
        let plain = talk.client();
        talk.says(plain, GET);
        is_failed(talk, "\"cause_detail\":\"the client speaks HTTP/1\"", "edge not_tls");
    });
    hold(&client, |talk, pki| {
        talk.keeps_counts();
        Secure::client(talk, pki.client(&TLS13), "a.example").turn(talk);
        is_failed(talk, "\"server_name\":\"a.example\"", "edge certificate_required");
        Secure::client(talk, pki.client_with(3), "a.example").turn(talk);
        is_failed(talk, "\"server_name\":\"a.example\"", "edge certificate_bad_signature");
    });
}

/// Whether the last line of the log is about a handshake that failed, and the metric has the reason.
#[track_caller]
fn is_failed(talk: &mut Talk<'_>, part: &str, reason: &str) {
    let line = talk.log().lines().last().unwrap_or_default().to_owned();
    assert!(line.contains(part) && line.contains("tls_handshake"), "{part}: {line}");
    let failed = talk.counted("strait_tls_handshakes_failed_total");
    assert!(failed.get(reason).is_some_and(|count| *count > 0), "{reason}: {failed:?}");
}

/// The data in the records that have come, as far as they are whole.
pub(crate) fn opened(records: &mut RecordLayer, unread: &mut Vec<u8>) -> Vec<u8> {
    let mut heard = Vec::new();
    loop {
        let (n, opened) = records.open(unread).unwrap();
        let is_over = match opened {
            Opened::Data { bytes, .. } => {
                heard.extend_from_slice(bytes);
                false
            }
            Opened::NeedMore { .. } | Opened::End | Opened::Ticket(_) => true,
        };
        unread.drain(..n);
        if is_over {
            return heard;
        }
    }
}
