//! A client of TLS that is nothing but rustls: its secrets are known to the test, and it may send early data.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, DigitallySignedStruct, KeyLog,
    SignatureScheme, SupportedProtocolVersion,
};

use crate::kit::{text, until};

/// The traffic secrets of all clients of a configuration.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<Vec<u8>>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label.ends_with("_TRAFFIC_SECRET_0") {
            self.0.lock().unwrap().push(secret.to_vec());
        }
    }
}

/// Takes every certificate.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// What clients share that resume each other's sessions.
pub(crate) struct Context {
    config: Arc<ClientConfig>,
    secrets: Arc<Secrets>,
}

impl Context {
    pub(crate) fn new(version: &'static SupportedProtocolVersion) -> Self {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(&[version]).unwrap();
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Trusting));
        let mut config = builder.with_no_client_auth();
        let secrets = Arc::<Secrets>::default();
        config.key_log = Arc::clone(&secrets) as _;
        config.enable_secret_extraction = true;
        config.enable_early_data = true;
        config.resumption = Resumption::in_memory_sessions(64);
        Self { config: Arc::new(config), secrets }
    }

    /// The traffic secrets of all connections so far.
    pub(crate) fn traffic_secrets(&self) -> Vec<Vec<u8>> {
        self.secrets.0.lock().unwrap().clone()
    }
}

/// A connection.
pub(crate) struct RustlsClient {
    socket: Option<TcpStream>,
    connection: ClientConnection,
}

impl RustlsClient {
    /// Begins what is to be a connection, with `early` behind its hello if that may be.
    pub(crate) fn begin(context: &Context, early: &str) -> Self {
        let name = "shop.example.com".try_into().unwrap();
        let mut connection = ClientConnection::new(Arc::clone(&context.config), name).unwrap();
        if let Some(mut writer) = connection.early_data() {
            writer.write_all(early.as_bytes()).unwrap();
        }
        Self { socket: None, connection }
    }

    /// Gives it a socket.
    pub(crate) fn connect_to(&mut self, to: SocketAddr) {
        self.socket = Some(TcpStream::connect(to).unwrap());
    }

    fn exchange(&mut self) {
        let socket = self.socket.as_mut().expect("it was connected");
        self.connection.complete_io(socket).unwrap();
    }

    pub(crate) fn connect(to: SocketAddr, context: &Context) -> Self {
        let mut client = Self::begin(context, "");
        client.connect_to(to);
        client.finish_handshake();
        client
    }

    /// What it sends first: its hello, and early data.
    pub(crate) fn first_flight(&mut self) -> Vec<u8> {
        let mut flight = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut flight).unwrap();
        }
        flight
    }

    pub(crate) fn finish_handshake(&mut self) {
        while self.connection.is_handshaking() {
            self.exchange();
        }
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.as_mut().expect("it was connected").write_all(bytes).unwrap();
    }

    /// Asks, and says what came back.
    pub(crate) fn get(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: shop.example.com\r\n\r\n");
        self.connection.writer().write_all(request.as_bytes()).unwrap();
        self.receive()
    }

    /// What comes, up to the end of a body of the length that its head names.
    pub(crate) fn receive(&mut self) -> String {
        let mut heard = Vec::new();
        until("a response", || {
            self.exchange();
            // Fails where nothing has come.
            let _ = self.connection.reader().read_to_end(&mut heard);
            is_whole(&heard).then_some(())
        });
        text(&heard)
    }

    pub(crate) fn is_early_data_accepted(&self) -> bool {
        self.connection.is_early_data_accepted()
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// The keys of both directions, and the socket, which stays open.
    pub(crate) fn into_keys(self) -> (Vec<Vec<u8>>, Option<TcpStream>) {
        let secrets = self.connection.dangerous_extract_secrets().unwrap();
        let key = |secrets| match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, .. }
            | ConnectionTrafficSecrets::Aes256Gcm { key, .. }
            | ConnectionTrafficSecrets::Chacha20Poly1305 { key, .. } => key.as_ref().to_vec(),
            _ => panic!("a suite without a key"),
        };
        ([secrets.tx.1, secrets.rx.1].map(key).to_vec(), self.socket)
    }
}

fn is_whole(heard: &[u8]) -> bool {
    let heard = String::from_utf8_lossy(heard);
    let Some((head, body)) = heard.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}
