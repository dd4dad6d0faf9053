//! TLS as a client whose own work is small: it offers one suite and one group, and believes any
//! certificate, without looking at its signature.
//!
//! Pure, like what it stands on: bytes in, bytes out. That the suite and the group are what was
//! meant needs no check, as there is nothing else that the server could choose.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientConnectionData, ClientSessionMemoryCache, Resumption, UnbufferedClientConnection,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{
    ClientConfig, DigitallySignedStruct, HandshakeKind, SignatureScheme, SupportedProtocolVersion,
};

/// A version of TLS, with the suites that it is spoken with: AES-128-GCM, and X25519 where there is
/// a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Not a version of TLS that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownVersion;

/// The configuration that all connections share.
#[derive(Clone, Debug)]
pub struct Context {
    config: Arc<ClientConfig>,
}

/// One connection.
pub struct Client {
    connection: UnbufferedClientConnection,
    /// Bytes of records that are not whole yet.
    incoming: Vec<u8>,
    /// Data to send once the handshake is over.
    waiting: Vec<u8>,
    has_ended: bool,
}

/// Servers of which tickets are kept: there is one.
const SERVERS: usize = 1;

impl Context {
    /// Of `version`, with or without the tickets of earlier connections.
    ///
    /// # Errors
    ///
    /// If the library has no such version.
    pub fn new(version: Version, is_resuming: bool) -> io::Result<Self> {
        let provider = CryptoProvider {
            cipher_suites: vec![
                aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
                aws_lc_rs::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            ],
            kx_groups: vec![aws_lc_rs::kx_group::X25519],
            ..aws_lc_rs::default_provider()
        };
        let schemes = provider.signature_verification_algorithms.supported_schemes();
        let mut config = ClientConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&[version.known_to_the_library()])
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Believer { schemes }))
            .with_no_client_auth();
        config.resumption = if is_resuming {
            Resumption::store(Arc::new(ClientSessionMemoryCache::new(SERVERS)))
        } else {
            Resumption::disabled()
        };
        Ok(Self { config: Arc::new(config) })
    }

    /// A connection that says `opening` as soon as it can be said, and the bytes that it begins
    /// with.
    ///
    /// # Errors
    ///
    /// If the library fails.
    pub fn connect(&self, opening: &[u8]) -> io::Result<(Client, Vec<u8>)> {
        let name = ServerName::try_from("bench.test").map_err(io::Error::other)?;
        let connection = UnbufferedClientConnection::new(Arc::clone(&self.config), name);
        let mut client = Client {
            connection: connection.map_err(io::Error::other)?,
            incoming: Vec::new(),
            waiting: opening.to_vec(),
            has_ended: false,
        };
        let mut hello = Vec::new();
        client.feed(&[], &mut hello, |_| {})?;
        Ok((client, hello))
    }
}

impl Version {
    fn known_to_the_library(self) -> &'static SupportedProtocolVersion {
        match self {
            Self::Tls12 => &rustls::version::TLS12,
            Self::Tls13 => &rustls::version::TLS13,
        }
    }
}

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        match text {
            "1.2" => Ok(Self::Tls12),
            "1.3" => Ok(Self::Tls13),
            _ => Err(UnknownVersion),
        }
    }
}

impl fmt::Display for UnknownVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("neither 1.2 nor 1.3")
    }
}

impl Client {
    /// Takes the next `bytes`, calls `on_text` with the data in them, and appends what is to be
    /// sent to `out`.
    ///
    /// # Errors
    ///
    /// The other side broke the protocol, or sent a fatal alert.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        mut on_text: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.incoming.extend_from_slice(bytes);
        let mut used = 0;
        loop {
            let left = self.incoming.get_mut(used..).unwrap_or_default();
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(left);
            let mut wants_more = false;
            match state.map_err(invalid)? {
                ConnectionState::EncodeTlsData(data) => encode(data, out)?,
                ConnectionState::TransmitTlsData(sent) => sent.done(),
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        on_text(record.map_err(invalid)?.payload);
                    }
                }
                ConnectionState::WriteTraffic(traffic) => {
                    if !self.waiting.is_empty() {
                        encrypt(traffic, &self.waiting, out)?;
                        self.waiting.clear();
                    }
                    wants_more = true;
                }
                ConnectionState::PeerClosed => self.has_ended = true,
                ConnectionState::BlockedHandshake | ConnectionState::Closed => wants_more = true,
                _ => return Err(invalid("a state that a client never comes to")),
            }
            used += discard;
            if wants_more {
                self.incoming.drain(..used);
                return Ok(());
            }
        }
    }

    /// Whether the other side has sent close_notify.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether a session went on, or none if that is not known yet.
    #[must_use]
    pub fn is_resumed(&self) -> Option<bool> {
        self.connection.handshake_kind().map(|kind| kind == HandshakeKind::Resumed)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

/// Appends a record of the handshake to `out`.
fn encode(mut data: EncodeTlsData<'_, ClientConnectionData>, out: &mut Vec<u8>) -> io::Result<()> {
    let before = out.len();
    // How long it is, it only says when there is no room.
    let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) else {
        return Err(invalid("a record of no length"));
    };
    out.resize(before + needed.required_size, 0);
    data.encode(out.get_mut(before..).unwrap_or_default()).map_err(invalid)?;
    Ok(())
}

/// Appends the records of `text` to `out`.
fn encrypt(
    mut traffic: WriteTraffic<'_, ClientConnectionData>,
    text: &[u8],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let before = out.len();
    let Err(EncryptError::InsufficientSize(needed)) = traffic.encrypt(text, &mut []) else {
        return Err(invalid("a record of no length"));
    };
    out.resize(before + needed.required_size, 0);
    traffic.encrypt(text, out.get_mut(before..).unwrap_or_default()).map_err(invalid)?;
    Ok(())
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Accepts every certificate. For a client that only makes work for servers.
#[derive(Debug)]
struct Believer {
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
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
        self.schemes.clone()
    }
}
