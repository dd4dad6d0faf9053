//! A handshake in progress: bytes in, bytes out.
//!
//! ```text
//!              ┌─────────────── Handshake ───────────────┐
//!  input ────► │ framing ─► one record ─► rustls ─► done? │
//!              │                            │            │
//!  output ◄─── │◄── flights, tickets, alert ┘            │ ──► Established
//!              └─────────────────────────────────────────┘
//! ```
//!
//! rustls is fed one record at a time, and none once the handshake is done: what comes right
//! behind it, often in the same segment, is the record layer's. Nothing here reads a socket. The
//! clock that rustls looks at is the system's, for the dates of certificates and tickets.
//!
//! A handshake whose signature comes from a provider stops in the middle and waits for it, while
//! its thread does other work: [`signing`](crate::signing) says how.

mod accepting;
mod connecting;
pub(crate) mod coroutine;
pub(crate) mod early;
mod error;
mod framing;
mod refused;
use std::fmt;
use std::sync::Arc;

use accepting::Accepting;
use connecting::Connecting;
use framing::next_record;
use refused::RefusedEarlyData;
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, HandshakeKind, ServerConnection};
use rustls_pki_types::ServerName;
use wire::buffer::Buffer;
use wire::tls::record::{
    Cipher, DirectionSecrets, Protocol, RecordLayer, Secrets, Sizing, Suite, TlsRole,
};

use crate::alert::Alert;
use crate::client::ClientContext;
use crate::facts::{HandshakeFacts, PeerCertificate};
use crate::handshake::framing::plain_alert;
use crate::parameters::{CipherSuite, Group, Version};
use crate::residue;
use crate::secrets::{TrafficSecret, TrafficSecrets};
use crate::server::ServerContext;
use crate::signing::{SignError, SignJob, Signature};

pub use connecting::TicketKeeper;
pub use early::{EARLY_DATA_BYTES_MAX, EarlyHandshake};
pub use error::{CertificateFault, HandshakeError};
pub use framing::HANDSHAKE_BYTES_MAX;

/// A handshake in progress. See the module's picture.
///
/// Made by [`Handshake::accept`] or [`Handshake::connect`]. Then, until it is done: received bytes
/// go to [`Handshake::on_bytes`], and what [`Handshake::poll_output`] gives is sent, also after an
/// error. A client has something to send right away.
///
/// A server's handshake may have to wait for a signature, if a provider signs for its certificate.
/// Then [`Handshake::pending`] has a job for that provider, and [`Handshake::on_signature`] takes
/// the result. The handshake may be dropped in between. It stays on the thread on which it began.
pub struct Handshake {
    side: Side,
    progress: Progress,
    /// Traffic secrets that were caught so far.
    secrets: TrafficSecrets,
    /// Bytes to send that `poll_output` has not taken yet.
    output: Vec<u8>,
    /// Bytes of the peer that were consumed, without those that were skipped.
    bytes: usize,
    /// Early data of the client that is skipped.
    refused: RefusedEarlyData,
}

/// An established connection, after the handshake.
#[derive(Debug)]
pub struct Established {
    /// The connection. It stays in one place: a move would leave its keys behind.
    pub records: Box<RecordLayer>,
    /// What the handshake negotiated.
    pub facts: HandshakeFacts,
    /// On the client's side of TLS 1.3: keeps the tickets that come later.
    pub tickets: Option<TicketKeeper>,
}

enum Side {
    Accepting(Accepting),
    Connecting(Box<Connecting>),
}

#[derive(Clone, Debug)]
enum Progress {
    Going,
    Done,
    Failed(HandshakeError),
}

impl Handshake {
    /// Takes a connection.
    #[must_use]
    pub fn accept(context: &Arc<ServerContext>) -> Self {
        Self::new(Side::Accepting(Accepting::new(context)))
    }

    /// Asks for a connection. `server_name` is a DNS name or an address.
    ///
    /// # Errors
    ///
    /// When the name is neither.
    pub fn connect(
        context: &Arc<ClientContext>,
        server_name: &str,
    ) -> Result<Self, HandshakeError> {
        let name =
            ServerName::try_from(server_name).map_err(|_| HandshakeError::ServerNameInvalid)?;
        let connecting = Connecting::new(Arc::clone(context.config()), name.to_owned())?;
        let mut handshake = Self::new(Side::Connecting(Box::new(connecting)));
        handshake.feed(&[])?;
        Ok(handshake)
    }

    fn new(side: Side) -> Self {
        let secrets = TrafficSecrets::default();
        let refused = RefusedEarlyData::new();
        Self { side, progress: Progress::Going, secrets, output: Vec::new(), bytes: 0, refused }
    }

    /// Consumes records, and returns how many bytes of `input` were consumed.
    ///
    /// Only those of the handshake are, in whole records: what stays has to come again, with more
    /// behind it, or is for the connection after the handshake. A record has at most
    /// [`RECORD_LEN_MAX`](wire::tls::record::RECORD_LEN_MAX) bytes. Afterwards, also after an
    /// error, there may be output to send.
    ///
    /// While it waits for a signature, nothing is taken, so that what has come stays where it is
    /// until [`Handshake::on_signature`] was called and this is called again.
    ///
    /// # Errors
    ///
    /// When the handshake has failed. What [`Handshake::poll_output`] then has is the alert.
    pub fn on_bytes(&mut self, input: &[u8]) -> Result<usize, HandshakeError> {
        let mut consumed = 0;
        loop {
            match &self.progress {
                Progress::Going => {}
                Progress::Done => return Ok(consumed),
                Progress::Failed(error) => return Err(error.clone()),
            }
            if self.is_waiting() {
                return Ok(consumed);
            }
            let rest = input.get(consumed..).unwrap_or_default();
            let record = match next_record(rest, self.bytes) {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(consumed),
                Err(error) => return Err(self.refuse(error)),
            };
            match self.sort(record) {
                Sorted::Handshake => {
                    self.feed(record)?;
                    self.bytes += record.len();
                }
                Sorted::RefusedEarlyData => {
                    if !self.refused.skip(record) {
                        return Err(self.refuse(HandshakeError::MessageUnexpected));
                    }
                }
            }
            consumed += record.len();
        }
    }

    /// Whether a record is one of the handshake, or early data that is refused.
    fn sort(&mut self, record: &[u8]) -> Sorted {
        let Side::Accepting(accepting) = &mut self.side else { return Sorted::Handshake };
        let is_data = record.first() == Some(&APPLICATION_DATA);
        if !is_data {
            self.refused.on_hello_record(record);
        }
        let Some(connection) = accepting.connection_mut() else { return Sorted::Handshake };
        if !is_data || !self.refused.is_possible() || connection.early_data().is_some() {
            return Sorted::Handshake;
        }
        let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
        let is_refused = match connection.protocol_version().and_then(Version::of) {
            // The client was asked for another hello.
            None => true,
            Some(Version::Tls12) => false,
            Some(Version::Tls13) => {
                let cipher = suite.and_then(CipherSuite::of).map(CipherSuite::cipher);
                !cipher.is_some_and(|it| refused::is_of_handshake(record, it, &self.secrets))
            }
        };
        if is_refused {
            return Sorted::RefusedEarlyData;
        }
        self.refused.end();
        Sorted::Handshake
    }

    /// The signature that has to be made before anything goes on, once: later calls find nothing.
    pub fn pending(&mut self) -> Option<SignJob> {
        match &mut self.side {
            Side::Accepting(accepting) => accepting.take_job(),
            Side::Connecting(_) => None,
        }
    }

    /// The server name in the client's hello, once that was read; also of a handshake that has failed.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        match &self.side {
            Side::Accepting(accepting) => accepting.connection()?.server_name(),
            Side::Connecting(_) => None,
        }
    }

    /// Whether it waits for a signature.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(&self.side, Side::Accepting(accepting) if accepting.is_waiting())
    }

    /// Goes on with the signature that it waits for; nothing happens if it waits for none. As after
    /// bytes, there may be something to be sent then, and it may be done.
    ///
    /// # Errors
    ///
    /// When there is no signature, or a wrong one, or rustls refuses to go on with it. Of what it
    /// wanted to say before the signature nothing is said then but an alert.
    pub fn on_signature(
        &mut self,
        result: Result<Signature, SignError>,
    ) -> Result<(), HandshakeError> {
        let Side::Accepting(accepting) = &mut self.side else { return Ok(()) };
        if !accepting.is_waiting() {
            return Ok(());
        }
        let (said_before, output) = (self.output.len(), &mut self.output);
        let result = self.secrets.during(|| accepting.on_signature(result, output));
        self.settle(result, said_before)
    }

    /// Appends the output to `out`.
    pub fn poll_output(&mut self, out: &mut Vec<u8>) {
        if out.is_empty() {
            std::mem::swap(out, &mut self.output);
        } else {
            out.append(&mut self.output);
        }
    }

    /// Whether nothing more has to come.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.progress, Progress::Done)
    }

    /// The connection after it, once it is done and its output was polled.
    ///
    /// # Errors
    ///
    /// When it has failed, is not done, or its output was not polled.
    pub fn finish(self) -> Result<Established, HandshakeError> {
        let result = self.established();
        residue::overwrite_handshake();
        result
    }

    // Of a frame of its own, which is below the caller's.
    #[inline(never)]
    fn established(self) -> Result<Established, HandshakeError> {
        match self.progress {
            Progress::Failed(error) => return Err(error),
            Progress::Done if self.output.is_empty() => {}
            Progress::Done | Progress::Going => return Err(HandshakeError::Unfinished),
        }
        match self.side {
            Side::Accepting(accepting) => {
                let connection = accepting.into_connection().ok_or(HandshakeError::Unfinished)?;
                let facts = server_facts(&connection)?;
                let extracted = connection.dangerous_extract_secrets()?;
                let secrets = [&self.secrets.client, &self.secrets.server];
                let records = records(TlsRole::Server, &facts, &extracted, secrets)?;
                Ok(Established { records, facts, tickets: None })
            }
            Side::Connecting(connecting) => {
                let facts = client_facts(connecting.connection())?;
                let (extracted, tickets) = connecting.into_parts()?;
                let secrets = [&self.secrets.server, &self.secrets.client];
                let records = records(TlsRole::Client, &facts, &extracted, secrets)?;
                let tickets = (facts.version == Version::Tls13).then_some(tickets);
                Ok(Established { records, facts, tickets })
            }
        }
    }

    /// Whether the client has sent data along with its hello, and is known well enough for it: then
    /// the connection begins with [`Handshake::into_early`], once the output was polled.
    pub fn may_begin_early(&mut self) -> bool {
        let Side::Accepting(accepting) = &mut self.side else { return false };
        matches!(self.progress, Progress::Going)
            && accepting.connection_mut().is_some_and(|it| it.early_data().is_some())
            // A client that is refused has the reason at the handshake's end.
            && accepting.rejection().is_none()
    }

    /// The connection, before the handshake is over, and what remains of that.
    ///
    /// # Errors
    ///
    /// When it may not begin yet, or its output was not polled; and as [`Handshake::finish`].
    pub fn into_early(self) -> Result<(Established, EarlyHandshake), HandshakeError> {
        let result = self.begun();
        residue::overwrite_handshake();
        result
    }

    #[inline(never)]
    fn begun(mut self) -> Result<(Established, EarlyHandshake), HandshakeError> {
        if !self.may_begin_early() || !self.output.is_empty() {
            return Err(HandshakeError::Unfinished);
        }
        let Side::Accepting(accepting) = self.side else { return Err(HandshakeError::Unfinished) };
        let connection = accepting.into_connection().ok_or(HandshakeError::Unfinished)?;
        let facts = server_facts(&connection)?;
        let cipher = facts.cipher_suite.cipher();
        let secrets = [self.secrets.client.octets(), self.secrets.server.octets()];
        let records =
            RecordLayer::of_traffic_secrets(TlsRole::Server, cipher, secrets, Sizing::Adaptive)
                .map(Box::new)
                .map_err(|error| HandshakeError::Internal(error.to_string().into()))?;
        let early = EarlyHandshake::new(connection, cipher, self.secrets, self.bytes);
        Ok((Established { records, facts, tickets: None }, early))
    }

    /// Gives one record to rustls, and takes what it wants to have sent.
    fn feed(&mut self, record: &[u8]) -> Result<(), HandshakeError> {
        let (side, output) = (&mut self.side, &mut self.output);
        let said_before = output.len();
        let result = self.secrets.during(|| match side {
            Side::Accepting(accepting) => accepting.on_record(record, output),
            Side::Connecting(connecting) => connecting.on_record(record, output),
        });
        self.settle(result, said_before)
    }

    /// Takes the result of a step: done, waiting, or failed.
    fn settle(
        &mut self,
        result: Result<(), HandshakeError>,
        said_before: usize,
    ) -> Result<(), HandshakeError> {
        match result {
            Ok(()) if self.side.is_handshaking() => Ok(()),
            Ok(()) => {
                if let Some(error) = self.side.rejection() {
                    return Err(self.refuse_at_end(error));
                }
                self.progress = Progress::Done;
                Ok(())
            }
            // The flight that was to be signed was not sent, and must not be, so that what the peer
            // expects next is still in the clear.
            Err(error @ HandshakeError::SignatureMissing(_)) => {
                self.output.truncate(said_before);
                self.output.extend(error.alert().map(plain_alert).into_iter().flatten());
                Err(self.fail(error))
            }
            // rustls has written the alert itself.
            Err(error) if self.output.len() > said_before => Err(self.fail(error)),
            Err(error) => Err(self.refuse(error)),
        }
    }

    /// Fails for a reason that rustls does not say, and says so to the peer: in the clear, or under
    /// the key that the peer expects.
    fn refuse(&mut self, error: HandshakeError) -> HandshakeError {
        if let Some(alert) = error.alert() {
            if self.is_in_the_clear() {
                self.output.extend(plain_alert(alert));
            } else {
                let sealed =
                    self.first_records().map(|mut records| sealed_alert(&mut records, alert));
                self.output.extend(sealed.into_iter().flatten());
            }
        }
        self.fail(error)
    }

    /// Fails where rustls is done, so that it is for the connection to say why.
    fn refuse_at_end(&mut self, error: HandshakeError) -> HandshakeError {
        if let Side::Accepting(accepting) = &mut self.side
            && let Some(alert) = error.alert()
            && let Some(connection) = accepting.take_connection()
            && let Ok(facts) = facts(&connection, connection.handshake_kind(), None)
            && let Ok(extracted) = connection.dangerous_extract_secrets()
        {
            let secrets = [&self.secrets.client, &self.secrets.server];
            if let Ok(mut records) = records(TlsRole::Server, &facts, &extracted, secrets) {
                self.output.extend(sealed_alert(&mut records, alert));
            }
        }
        self.fail(error)
    }

    /// Whether what is said next is under no key: before there is one, and in TLS 1.2 until a server ends
    /// a whole handshake.
    fn is_in_the_clear(&self) -> bool {
        let (common, secret): (&rustls::CommonState, _) = match &self.side {
            Side::Accepting(accepting) => match accepting.connection() {
                Some(connection) => (connection, &self.secrets.server),
                None => return true,
            },
            Side::Connecting(connecting) => {
                (connecting.connection(), &self.secrets.client_handshake)
            }
        };
        match common.protocol_version().and_then(Version::of) {
            None => true,
            Some(Version::Tls12) => {
                let is_server = matches!(self.side, Side::Accepting(_));
                is_server && common.handshake_kind() != Some(HandshakeKind::Resumed)
            }
            Some(Version::Tls13) => secret.octets().is_empty(),
        }
    }

    /// The records of ours that are next while a handshake of TLS 1.3 goes on, none of which has
    /// been sent: a server has sent its flight and seals with its last key, a client with that of the
    /// handshake. rustls seals nothing more with it once this is used.
    fn first_records(&self) -> Option<RecordLayer> {
        let (common, role, secret): (&rustls::CommonState, _, _) = match &self.side {
            Side::Accepting(accepting) => {
                (accepting.connection()?, TlsRole::Server, &self.secrets.server)
            }
            Side::Connecting(connecting) => {
                (connecting.connection(), TlsRole::Client, &self.secrets.client_handshake)
            }
        };
        let is_latest = common.protocol_version().and_then(Version::of) == Some(Version::Tls13);
        let suite = common.negotiated_cipher_suite().map(|suite| suite.suite());
        let cipher = suite.and_then(CipherSuite::of).filter(|_| is_latest)?.cipher();
        let secrets = [secret.octets(), secret.octets()];
        RecordLayer::of_traffic_secrets(role, cipher, secrets, Sizing::Full).ok()
    }

    fn fail(&mut self, error: HandshakeError) -> HandshakeError {
        self.progress = Progress::Failed(error.clone());
        error
    }
}

impl Side {
    fn is_handshaking(&self) -> bool {
        match self {
            Self::Accepting(accepting) => {
                accepting.connection().is_none_or(|connection| connection.is_handshaking())
            }
            Self::Connecting(connecting) => connecting.connection().is_handshaking(),
        }
    }

    /// Why a client is refused whose handshake is done: it goes on from an earlier connection, and would
    /// not be let in now.
    fn rejection(&self) -> Option<HandshakeError> {
        match self {
            Self::Accepting(accepting) => accepting.rejection(),
            Self::Connecting(_) => None,
        }
    }
}

/// The classes of incoming records.
enum Sorted {
    Handshake,
    RefusedEarlyData,
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.side {
            Side::Accepting(_) => TlsRole::Server,
            Side::Connecting(_) => TlsRole::Client,
        };
        f.debug_struct("Handshake")
            .field("role", &role)
            .field("progress", &self.progress)
            .field("output_len", &self.output.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

fn server_facts(connection: &ServerConnection) -> Result<HandshakeFacts, HandshakeError> {
    let peer = match connection.peer_certificates() {
        None => None,
        Some(chain) => {
            // Rules may depend on the subject, so a certificate that cannot be parsed is refused.
            let unreadable = HandshakeError::CertificateRejected(CertificateFault::BadEncoding);
            Some(PeerCertificate::read(chain).ok_or(unreadable)?)
        }
    };
    let facts = facts(connection, connection.handshake_kind(), peer)?;
    Ok(HandshakeFacts { server_name: connection.server_name().map(Box::from), ..facts })
}

fn client_facts(
    connection: &rustls::client::UnbufferedClientConnection,
) -> Result<HandshakeFacts, HandshakeError> {
    let chain = connection.peer_certificates().unwrap_or_default();
    let peer = PeerCertificate::read(chain).or_else(|| PeerCertificate::unread(chain));
    facts(connection, connection.handshake_kind(), peer)
}

/// What the handshake negotiated, as both sides know it.
fn facts(
    connection: &rustls::CommonState,
    kind: Option<HandshakeKind>,
    peer: Option<PeerCertificate>,
) -> Result<HandshakeFacts, HandshakeError> {
    let version = connection.protocol_version().and_then(Version::of);
    let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
    let group = connection.negotiated_key_exchange_group().map(|group| group.name());
    Ok(HandshakeFacts {
        version: version.ok_or(HandshakeError::Unfinished)?,
        cipher_suite: suite.and_then(CipherSuite::of).ok_or(HandshakeError::Unfinished)?,
        group: group.and_then(Group::of),
        alpn: connection.alpn_protocol().map(Box::from),
        server_name: None,
        is_resumed: kind == Some(HandshakeKind::Resumed),
        peer: peer.map(Box::new),
    })
}

/// The record layer that takes over. The traffic secrets are the peer's, then ours.
fn records(
    role: TlsRole,
    facts: &HandshakeFacts,
    extracted: &ExtractedSecrets,
    [theirs, ours]: [&TrafficSecret; 2],
) -> Result<Box<RecordLayer>, HandshakeError> {
    let protocol = match facts.version {
        Version::Tls12 => Protocol::Tls12,
        Version::Tls13 => Protocol::Tls13,
    };
    let (cipher, receive) = direction(&extracted.rx, theirs)?;
    let (_, send) = direction(&extracted.tx, ours)?;
    let secrets = Secrets { suite: Suite { protocol, cipher }, receive, send };
    // Clients may be far away; services are near.
    let sizing = match role {
        TlsRole::Client => Sizing::Full,
        TlsRole::Server => Sizing::Adaptive,
    };
    RecordLayer::new(role, &secrets, sizing)
        .map(Box::new)
        .map_err(|error| HandshakeError::Internal(error.to_string().into()))
}

fn direction<'a>(
    (sequence, secrets): &'a (u64, ConnectionTrafficSecrets),
    traffic_secret: &'a TrafficSecret,
) -> Result<(Cipher, DirectionSecrets<'a>), HandshakeError> {
    let (cipher, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (Cipher::Chacha20Poly1305, key, iv)
        }
        _ => return Err(HandshakeError::Internal("a cipher that is not known".into())),
    };
    let secrets = DirectionSecrets {
        sequence: *sequence,
        key: key.as_ref(),
        iv: iv.as_ref(),
        traffic_secret: traffic_secret.octets(),
    };
    Ok((cipher, secrets))
}

/// ContentType `application_data` (RFC 8446, section 5.1).
const APPLICATION_DATA: u8 = 23;

/// A record with an alert, under the next key.
fn sealed_alert(records: &mut RecordLayer, alert: Alert) -> Vec<u8> {
    records.send_failure(alert.of_record());
    let mut out = Buffer::new(records.sealed_len(0));
    records.send_control(&mut out);
    out.filled().to_vec()
}
