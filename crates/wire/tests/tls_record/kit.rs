//! rustls as the other side, and as what does the handshake.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, Connection, ConnectionTrafficSecrets, DigitallySignedStruct,
    Error, KeyLog, ServerConfig, ServerConnection, SignatureScheme, SupportedCipherSuite,
};
use wire::buffer::Buffer;
use wire::tls::record::{
    Cipher, DirectionSecrets, Opened, Protocol, RecordError, RecordLayer, Secrets, Sizing, Suite,
    TlsRole,
};

use super::checks::moved;

/// Every suite in both versions.
pub(crate) fn suites() -> Vec<Suite> {
    let ciphers = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305];
    let of = |protocol| ciphers.map(|cipher| Suite { protocol, cipher });
    [of(Protocol::Tls12), of(Protocol::Tls13)].concat()
}

/// Every suite with both roles.
pub(crate) fn suites_and_roles() -> impl Iterator<Item = (Suite, TlsRole)> {
    suites().into_iter().flat_map(|suite| [(suite, TlsRole::Client), (suite, TlsRole::Server)])
}

/// A connection between ours and theirs, after its handshake.
pub(crate) struct Pair {
    pub(crate) ours: RecordLayer,
    pub(crate) theirs: Connection,
    /// Bytes on their way to ours.
    pub(crate) unread: Vec<u8>,
    /// Ours moves after each thing that it does.
    pub(crate) is_moved: bool,
    pub(crate) tickets: Vec<Vec<u8>>,
}

impl Pair {
    pub(crate) fn new(suite: Suite, role: TlsRole) -> Self {
        Self::with(suite, role, Sizing::Adaptive)
    }

    pub(crate) fn with(suite: Suite, role: TlsRole, sizing: Sizing) -> Self {
        let key_log = Arc::new(Secrets0::default());
        let client = ClientConnection::new(client_config(suite, &key_log), name()).unwrap();
        let server = ServerConnection::new(server_config(suite, &key_log)).unwrap();
        let (mut ours, mut theirs) = match role {
            TlsRole::Client => (Connection::from(client), Connection::from(server)),
            TlsRole::Server => (Connection::from(server), Connection::from(client)),
        };
        let mut unread = Vec::new();
        while ours.is_handshaking() || ours.wants_write() || theirs.is_handshaking() {
            feed(&mut theirs, &drain(&mut ours));
            unread.extend(drain(&mut theirs));
            // A record at a time, and none behind the handshake.
            if ours.is_handshaking() && unread.len() >= 5 {
                let len = 5 + usize::from(u16::from_be_bytes([unread[3], unread[4]]));
                let record: Vec<u8> = unread.drain(..len).collect();
                feed(&mut ours, &record);
            }
        }
        let ours = layer(ours, role, suite, &key_log, sizing);
        Self { ours, theirs, unread, is_moved: false, tickets: Vec::new() }
    }

    /// What the peer sends when it is given this to send.
    pub(crate) fn theirs_says(&mut self, data: &[u8]) -> Vec<u8> {
        let mut said = Vec::new();
        let mut rest = data;
        while !rest.is_empty() {
            let n = self.theirs.writer().write(rest).unwrap();
            rest = &rest[n..];
            said.extend(drain(&mut self.theirs));
        }
        said.extend(drain(&mut self.theirs));
        said
    }

    /// Data in what comes.
    pub(crate) fn ours_hears(&mut self, bytes: &[u8]) -> Result<Vec<u8>, RecordError> {
        self.unread.extend_from_slice(bytes);
        let mut data = Vec::new();
        let mut at = 0;
        let result = loop {
            let (n, opened) = match self.ours.open(&mut self.unread[at..]) {
                Ok(found) => found,
                Err(error) => break Err(error),
            };
            at += n;
            match opened {
                Opened::NeedMore { .. } | Opened::End => break Ok(data),
                Opened::Data { bytes, .. } => data.extend_from_slice(bytes),
                Opened::Ticket(ticket) => self.tickets.push(ticket),
            }
            self.move_if_so();
        };
        self.unread.drain(..at);
        self.move_if_so();
        result
    }

    /// What ours sends when it is given this to send.
    pub(crate) fn ours_says(&mut self, data: &[u8]) -> Vec<u8> {
        let room = self.ours.sealed_len(data.len());
        let mut out = Buffer::new(room);
        let sealed = self.ours.seal(&[data], &mut out).unwrap();
        assert_eq!((sealed.taken, sealed.written), (data.len(), room));
        self.move_if_so();
        out.filled().to_vec()
    }

    /// Data in what comes to the peer, or what it has to complain of.
    pub(crate) fn theirs_hears(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let mut data = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            self.theirs.read_tls(&mut rest).unwrap();
            self.theirs.process_new_packets()?;
            let mut room = [0; 16 << 10];
            while let Ok(n @ 1..) = self.theirs.reader().read(&mut room) {
                data.extend_from_slice(&room[..n]);
            }
        }
        Ok(data)
    }

    /// Data in both directions, checked.
    pub(crate) fn chat(&mut self, data: &[u8]) {
        let said = self.theirs_says(data);
        assert!(self.ours_hears(&said).unwrap() == data);
        let said = self.ours_says(data);
        assert!(self.theirs_hears(&said).unwrap() == data);
    }

    fn move_if_so(&mut self) {
        if self.is_moved {
            let (blank, _) =
                super::checks::RawPeer::pair(self.ours.suite(), self.ours.role(), Sizing::Full);
            self.ours = moved(std::mem::replace(&mut self.ours, blank));
        }
    }
}

/// All that a connection wants to have written.
fn drain(connection: &mut Connection) -> Vec<u8> {
    let mut said = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut said).unwrap();
    }
    said
}

fn feed(connection: &mut Connection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        connection.read_tls(&mut bytes).unwrap();
        connection.process_new_packets().unwrap();
    }
}

/// Takes the secrets out, as the documentation of `wire::tls::record` says.
fn layer(
    connection: Connection,
    role: TlsRole,
    suite: Suite,
    key_log: &Secrets0,
    sizing: Sizing,
) -> RecordLayer {
    let extracted = connection.dangerous_extract_secrets().unwrap();
    let (receive_label, send_label) = match role {
        TlsRole::Client => (SERVER, CLIENT),
        TlsRole::Server => (CLIENT, SERVER),
    };
    let (receive_secret, send_secret) = (key_log.find(receive_label), key_log.find(send_label));
    let secrets = Secrets {
        suite,
        receive: direction(suite, &extracted.rx, &receive_secret),
        send: direction(suite, &extracted.tx, &send_secret),
    };
    RecordLayer::new(role, &secrets, sizing).unwrap()
}

pub(crate) fn direction<'a>(
    suite: Suite,
    (sequence, secrets): &'a (u64, ConnectionTrafficSecrets),
    traffic_secret: &'a [u8],
) -> DirectionSecrets<'a> {
    use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
    let (cipher, key, iv) = match secrets {
        Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        Chacha20Poly1305 { key, iv } => (Cipher::Chacha20Poly1305, key, iv),
        _ => unreachable!("no other suite was offered"),
    };
    assert_eq!(cipher, suite.cipher);
    DirectionSecrets { sequence: *sequence, key: key.as_ref(), iv: iv.as_ref(), traffic_secret }
}

pub(crate) const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
pub(crate) const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

/// The first traffic secrets of one connection.
#[derive(Debug, Default)]
pub(crate) struct Secrets0(Mutex<Vec<(String, Vec<u8>)>>);

impl Secrets0 {
    /// Nothing in TLS 1.2.
    pub(crate) fn find(&self, label: &str) -> Vec<u8> {
        let secrets = self.0.lock().unwrap();
        secrets.iter().find(|(name, _)| name == label).map(|(_, s)| s.clone()).unwrap_or_default()
    }
}

impl KeyLog for Secrets0 {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        self.0.lock().unwrap().push((label.to_owned(), secret.to_vec()));
    }
}

pub(crate) fn name() -> ServerName<'static> {
    ServerName::try_from("shop.example").unwrap()
}

pub(crate) fn client_config(suite: Suite, key_log: &Arc<Secrets0>) -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(provider_with(suite))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    config.key_log = Arc::<Secrets0>::clone(key_log);
    Arc::new(config)
}

pub(crate) fn server_config(suite: Suite, key_log: &Arc<Secrets0>) -> Arc<ServerConfig> {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.as_ref().to_vec().into());
    let key = provider::sign::any_ecdsa_type(&key).unwrap();
    // The value is not checked.
    let certificate = CertificateDer::from(vec![0x30, 0]);
    let certified = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let mut config = ServerConfig::builder_with_provider(provider_with(suite))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certified));
    config.enable_secret_extraction = true;
    config.key_log = Arc::<Secrets0>::clone(key_log);
    Arc::new(config)
}

fn provider_with(suite: Suite) -> Arc<CryptoProvider> {
    use provider::cipher_suite as of;
    let only: SupportedCipherSuite = match (suite.protocol, suite.cipher) {
        (Protocol::Tls12, Cipher::Aes128Gcm) => of::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        (Protocol::Tls12, Cipher::Aes256Gcm) => of::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        (Protocol::Tls12, Cipher::Chacha20Poly1305) => {
            of::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        }
        (Protocol::Tls13, Cipher::Aes128Gcm) => of::TLS13_AES_128_GCM_SHA256,
        (Protocol::Tls13, Cipher::Aes256Gcm) => of::TLS13_AES_256_GCM_SHA384,
        (Protocol::Tls13, Cipher::Chacha20Poly1305) => of::TLS13_CHACHA20_POLY1305_SHA256,
    };
    Arc::new(CryptoProvider { cipher_suites: vec![only], ..provider::default_provider() })
}

/// Believes everybody.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
