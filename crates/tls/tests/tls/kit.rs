//! Both sides of a handshake, and of the connection after it.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tls::{
    CipherSuite, ClientAuth, ClientContext, ClientOptions, Established, Group, Handshake,
    HandshakeError, HandshakeFacts, Resumption, ServerContext, ServerOptions, Verify, Version,
};
use wire::buffer::Buffer;
use wire::tls::record::Opened;

use crate::authority::{Authority, Pair as Files};

/// The servers' options, unless a test changes them.
pub(crate) fn server_options(certificate: &Arc<tls::Certificate>) -> ServerOptions {
    ServerOptions {
        certificates: vec![Arc::clone(certificate)],
        versions: Version::Tls12..=Version::Tls13,
        cipher_suites: Vec::new(),
        groups: vec![Group::X25519],
        alpn: Vec::new(),
        client_auth: ClientAuth::Off,
        client_names: Vec::new(),
        resumption: Resumption::Tickets,
    }
}

/// The clients' options, unless a test changes them.
pub(crate) fn client_options(verify: Verify) -> ClientOptions {
    ClientOptions {
        verify,
        certificate: None,
        versions: Version::Tls12..=Version::Tls13,
        cipher_suites: Vec::new(),
        groups: vec![Group::X25519],
        alpn: Vec::new(),
        names: Vec::new(),
    }
}

pub(crate) fn server(options: ServerOptions) -> Arc<ServerContext> {
    Arc::new(ServerContext::new(options).unwrap())
}

pub(crate) fn client(options: ClientOptions) -> Arc<ClientContext> {
    Arc::new(ClientContext::new(options).unwrap())
}

/// Only this suite, and only its version.
pub(crate) fn only(options: &mut ServerOptions, suite: CipherSuite) {
    options.versions = suite.version()..=suite.version();
    options.cipher_suites = vec![suite];
}

/// A client that is nothing but rustls.
pub(crate) fn rustls_client(authority: &Authority) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let pem = authority.pem();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// A server that is nothing but rustls.
pub(crate) fn rustls_server(files: &Files) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(files.chain.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(files.key.as_bytes()).unwrap();
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap()
}

pub(crate) fn rustls_client_side(config: ClientConfig) -> Side {
    let name = "a.example".try_into().unwrap();
    Side::Rustls(Box::new(ClientConnection::new(Arc::new(config), name).unwrap().into()))
}

pub(crate) fn rustls_server_side(config: ServerConfig) -> Side {
    Side::Rustls(Box::new(ServerConnection::new(Arc::new(config)).unwrap().into()))
}

/// One side. What it gets it is given again with more behind it until it takes it.
pub(crate) enum Side {
    Ours { handshake: Box<Handshake>, unread: Vec<u8> },
    Rustls(Box<Connection>),
}

/// How a side ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failed {
    Ours(HandshakeError),
    Rustls(rustls::Error),
}

impl Side {
    pub(crate) fn accept(context: &Arc<ServerContext>) -> Self {
        Self::Ours { handshake: Box::new(Handshake::accept(context)), unread: Vec::new() }
    }

    pub(crate) fn connect(context: &Arc<ClientContext>, name: &str) -> Self {
        let handshake = Box::new(Handshake::connect(context, name).unwrap());
        Self::Ours { handshake, unread: Vec::new() }
    }

    fn take_output(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Ours { handshake, .. } => handshake.poll_output(out),
            Self::Rustls(connection) => {
                while connection.wants_write() {
                    connection.write_tls(out).unwrap();
                }
            }
        }
    }

    fn on_bytes(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        match self {
            Self::Ours { handshake, unread } => {
                unread.extend_from_slice(bytes);
                let consumed = handshake.on_bytes(unread).map_err(Failed::Ours)?;
                unread.drain(..consumed);
            }
            Self::Rustls(connection) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    connection.read_tls(&mut rest).unwrap();
                    connection.process_new_packets().map_err(Failed::Rustls)?;
                }
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Ours { handshake, .. } => handshake.is_done(),
            Self::Rustls(connection) => !connection.is_handshaking(),
        }
    }

    /// The connection, and what came that is its own.
    pub(crate) fn finish(self) -> Result<End, HandshakeError> {
        Ok(match self {
            Self::Ours { handshake, unread } => {
                End::Ours { established: Box::new(handshake.finish()?), unread }
            }
            Self::Rustls(connection) => End::Rustls(connection),
        })
    }
}

/// Lets two sides talk, so many bytes at a time, until both are done. What either has still to say
/// to the other when it has failed is said.
pub(crate) fn talk(
    client: &mut Side,
    server: &mut Side,
    piece_len: usize,
) -> (Result<(), Failed>, Result<(), Failed>) {
    let (mut client_result, mut server_result) = (Ok(()), Ok(()));
    loop {
        let mut is_quiet = true;
        let mut flight = Vec::new();
        client.take_output(&mut flight);
        for piece in flight.chunks(piece_len) {
            is_quiet = false;
            if server_result.is_ok() {
                server_result = server.on_bytes(piece);
            }
        }
        let mut flight = Vec::new();
        server.take_output(&mut flight);
        for piece in flight.chunks(piece_len) {
            is_quiet = false;
            if client_result.is_ok() {
                client_result = client.on_bytes(piece);
            }
        }
        if is_quiet {
            return (client_result, server_result);
        }
    }
}

/// Both sides of a connection.
pub(crate) struct Pair {
    pub(crate) client: End,
    pub(crate) server: End,
}

/// One side of it.
pub(crate) enum End {
    Ours { established: Box<Established>, unread: Vec<u8> },
    Rustls(Box<Connection>),
}

/// Does a handshake that has to go well.
pub(crate) fn establish(mut client: Side, mut server: Side, piece_len: usize) -> Pair {
    let results = talk(&mut client, &mut server, piece_len);
    assert_eq!(results, (Ok(()), Ok(())));
    assert!(client.is_done() && server.is_done());
    Pair { client: client.finish().unwrap(), server: server.finish().unwrap() }
}

/// Does a handshake that must not go well: how each side ends.
pub(crate) fn fail(mut client: Side, mut server: Side) -> (Result<(), Failed>, Result<(), Failed>) {
    let results = talk(&mut client, &mut server, usize::MAX);
    assert_ne!(results, (Ok(()), Ok(())));
    results
}

impl Failed {
    pub(crate) fn ours(self) -> HandshakeError {
        match self {
            Self::Ours(error) => error,
            Self::Rustls(error) => panic!("{error:?} of rustls"),
        }
    }
}

impl End {
    pub(crate) fn facts(&self) -> &HandshakeFacts {
        match self {
            Self::Ours { established, .. } => &established.facts,
            Self::Rustls(_) => panic!("rustls has its own"),
        }
    }

    /// Bytes on the wire that say `data`.
    pub(crate) fn say(&mut self, data: &[u8]) -> Vec<u8> {
        let mut sent = Vec::new();
        match self {
            Self::Ours { established, .. } => {
                let records = &mut established.records;
                let mut out = Buffer::new(records.sealed_len(data.len()));
                let sealed = records.seal(&[data], &mut out).unwrap();
                assert_eq!(sealed.taken, data.len());
                sent.extend_from_slice(out.filled());
            }
            Self::Rustls(connection) => {
                connection.writer().write_all(data).unwrap();
                while connection.wants_write() {
                    connection.write_tls(&mut sent).unwrap();
                }
            }
        }
        sent
    }

    /// What is said by bytes on the wire. Tickets are kept.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut heard = Vec::new();
        match self {
            Self::Ours { established, unread } => {
                unread.extend_from_slice(bytes);
                loop {
                    let (consumed, opened) = established.records.open(unread).unwrap();
                    let is_over = match opened {
                        Opened::NeedMore { .. } | Opened::End => true,
                        Opened::Data { bytes, .. } => {
                            heard.extend_from_slice(bytes);
                            false
                        }
                        Opened::Ticket(ticket) => {
                            assert!(established.tickets.as_mut().unwrap().keep(&ticket));
                            false
                        }
                    };
                    unread.drain(..consumed);
                    if is_over {
                        return heard;
                    }
                }
            }
            Self::Rustls(connection) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    connection.read_tls(&mut rest).unwrap();
                    connection.process_new_packets().unwrap();
                    let _would_block = connection.reader().read_to_end(&mut heard);
                }
            }
        }
        heard
    }
}

impl Pair {
    /// Says something each way, twice, more than a record the second time.
    pub(crate) fn chat(&mut self) {
        let long = vec![7; 40_000];
        for data in [&b"ping"[..], &long] {
            let sent = self.client.say(data);
            assert_eq!(self.server.hear(&sent), data);
            let sent = self.server.say(data);
            assert_eq!(self.client.hear(&sent), data);
        }
    }
}

/// Believes everybody, for clients of which a test wants nothing but a limit.
#[derive(Debug)]
pub(crate) struct TrustingVerifier(rustls::crypto::WebPkiSupportedAlgorithms);

impl TrustingVerifier {
    pub(crate) fn new() -> Self {
        Self(default_provider().signature_verification_algorithms)
    }
}

impl rustls::client::danger::ServerCertVerifier for TrustingVerifier {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &rustls_pki_types::ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls_pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.supported_schemes()
    }
}
