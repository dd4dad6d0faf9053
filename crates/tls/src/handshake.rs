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
//! A server whose key somebody else signs with stops in the middle, and waits without keeping
//! anybody from other work: [`signing`](crate::signing) says how.

mod accepting;
mod connecting;
pub(crate) mod coroutine;
pub(crate) mod early;
mod error;
mod framing;

use std::fmt;
use std::sync::Arc;

use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, HandshakeKind, ServerConnection};
use rustls_pki_types::{ServerName, UnixTime};
use wire::tls::record::{
    Cipher, DirectionSecrets, Protocol, RecordLayer, Role, Secrets, Sizing, Suite,
};

pub use connecting::TicketKeeper;
pub use early::{EARLY_DATA_BYTES_MAX, EarlyHandshake};
pub use error::{CertificateFault, HandshakeError};

use crate::alert::Alert;
use crate::client::ClientContext;
use crate::facts::{Facts, PeerCertificate};
use crate::parameters::{CipherSuite, Group, Version};
use crate::secrets::{TrafficSecret, TrafficSecrets};
use crate::server::ServerContext;
use crate::signing::{SignError, SignJob, Signature};
use accepting::Accepting;
use connecting::Connecting;
use framing::next_record;

/// Bytes of a handshake that a peer may send. The most that is of use are chains of certificates,
/// of a few thousand bytes.
pub const HANDSHAKE_BYTES_MAX: usize = 128 << 10;

/// A handshake in progress. See the module's picture.
///
/// Made by [`Handshake::accept`] or [`Handshake::connect`]. Then, until it is done: what comes goes
/// to [`Handshake::on_bytes`], and what [`Handshake::poll_output`] gives is sent, also after an
/// error. A client has something to send right away.
///
/// On the accepting side it may have to wait for a signature, if its certificate is one for which
/// somebody else signs. Then [`Handshake::pending`] has a job, which is to be done by whoever it is
/// for, and [`Handshake::on_signature`] is told what came of it. Dropping it in between is fine. It
/// stays on the thread on which it began.
pub struct Handshake {
    side: Side,
    progress: Progress,
    /// What came of it so far.
    secrets: TrafficSecrets,
    /// What was not taken yet of what is to be sent.
    output: Vec<u8>,
    /// Bytes of the peer that were consumed.
    bytes: usize,
}

/// What a handshake leaves behind.
#[derive(Debug)]
pub struct Established {
    /// The connection.
    pub records: RecordLayer,
    /// What was found out.
    pub facts: Facts,
    /// On the client's side of TLS 1.3, what keeps the tickets that come later.
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
        let config = Arc::clone(context.config());
        Self::new(Side::Accepting(Accepting::new(config, context.may_wait())))
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
        Self { side, progress: Progress::Going, secrets, output: Vec::new(), bytes: 0 }
    }

    /// Reads on: how many bytes of `input` are done with.
    ///
    /// Only those of the handshake are, in whole records: what stays has to come again, with more
    /// behind it, or is for the connection after the handshake. A record has at most
    /// [`RECORD_LEN_MAX`](wire::tls::record::RECORD_LEN_MAX) bytes. Whatever happens, there may be
    /// something to be sent then.
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
            self.feed(record)?;
            self.bytes += record.len();
            consumed += record.len();
        }
    }

    /// The signature that has to be made before anything goes on, once: later calls find nothing.
    pub fn pending(&mut self) -> Option<SignJob> {
        match &mut self.side {
            Side::Accepting(accepting) => accepting.take_job(),
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

    /// Appends what is to be sent.
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
    /// When it has failed, is not done, or its output was not polled. A client that goes on from an
    /// earlier connection is refused here if its certificate has expired since.
    pub fn finish(self) -> Result<Established, HandshakeError> {
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
                let records = records(Role::Server, &facts, &extracted, secrets)?;
                Ok(Established { records, facts, tickets: None })
            }
            Side::Connecting(connecting) => {
                let facts = client_facts(connecting.connection())?;
                let (extracted, tickets) = connecting.into_parts()?;
                let secrets = [&self.secrets.server, &self.secrets.client];
                let records = records(Role::Client, &facts, &extracted, secrets)?;
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
    }

    /// The connection, before the handshake is over, and what remains of that.
    ///
    /// # Errors
    ///
    /// When it may not begin yet, or its output was not polled; and as [`Handshake::finish`].
    pub fn into_early(mut self) -> Result<(Established, EarlyHandshake), HandshakeError> {
        if !self.may_begin_early() || !self.output.is_empty() {
            return Err(HandshakeError::Unfinished);
        }
        let Side::Accepting(accepting) = self.side else { return Err(HandshakeError::Unfinished) };
        let connection = accepting.into_connection().ok_or(HandshakeError::Unfinished)?;
        let facts = server_facts(&connection)?;
        let cipher = facts.cipher_suite.cipher();
        let secrets = [self.secrets.client.octets(), self.secrets.server.octets()];
        let records =
            RecordLayer::of_traffic_secrets(Role::Server, cipher, secrets, Sizing::Adaptive)
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

    /// Looks at how far it came.
    fn settle(
        &mut self,
        result: Result<(), HandshakeError>,
        said_before: usize,
    ) -> Result<(), HandshakeError> {
        match result {
            Ok(()) if self.side.is_handshaking() => Ok(()),
            Ok(()) => {
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
            // It has said so itself.
            Err(error) if self.output.len() > said_before => Err(self.fail(error)),
            Err(error) => Err(self.refuse(error)),
        }
    }

    /// Fails for a reason that rustls does not say, and says so to the peer while that can be said
    /// in the clear.
    fn refuse(&mut self, error: HandshakeError) -> HandshakeError {
        if let Some(alert) = error.alert()
            && self.side.is_in_the_clear()
        {
            self.output.extend(plain_alert(alert));
        }
        self.fail(error)
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

    /// Whether no version was agreed on yet, so that nothing can be under a key.
    fn is_in_the_clear(&self) -> bool {
        match self {
            Self::Accepting(accepting) => {
                accepting.connection().and_then(|connection| connection.protocol_version())
            }
            Self::Connecting(connecting) => connecting.connection().protocol_version(),
        }
        .is_none()
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.side {
            Side::Accepting(_) => Role::Server,
            Side::Connecting(_) => Role::Client,
        };
        f.debug_struct("Handshake")
            .field("role", &role)
            .field("progress", &self.progress)
            .field("output_len", &self.output.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

fn server_facts(connection: &ServerConnection) -> Result<Facts, HandshakeError> {
    let peer = match connection.peer_certificates() {
        None => None,
        Some(chain) => {
            // Rules may be about whom it is, so that one which cannot be told is refused.
            let unreadable = HandshakeError::CertificateRejected(CertificateFault::BadEncoding);
            Some(PeerCertificate::read(chain).ok_or(unreadable)?)
        }
    };
    let facts = facts(connection, connection.handshake_kind(), peer)?;
    // Nobody looked at its dates this time.
    if let (true, Some(peer)) = (facts.is_resumed, &facts.peer)
        && UnixTime::now().as_secs() > peer.not_after
    {
        return Err(HandshakeError::CertificateRejected(CertificateFault::Expired));
    }
    Ok(Facts { server_name: connection.server_name().map(Box::from), ..facts })
}

fn client_facts(
    connection: &rustls::client::UnbufferedClientConnection,
) -> Result<Facts, HandshakeError> {
    let chain = connection.peer_certificates().unwrap_or_default();
    let peer = PeerCertificate::read(chain).or_else(|| PeerCertificate::unread(chain));
    facts(connection, connection.handshake_kind(), peer)
}

/// What both sides know.
fn facts(
    connection: &rustls::CommonState,
    kind: Option<HandshakeKind>,
    peer: Option<PeerCertificate>,
) -> Result<Facts, HandshakeError> {
    let version = connection.protocol_version().and_then(Version::of);
    let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
    let group = connection.negotiated_key_exchange_group().map(|group| group.name());
    Ok(Facts {
        version: version.ok_or(HandshakeError::Unfinished)?,
        cipher_suite: suite.and_then(CipherSuite::of).ok_or(HandshakeError::Unfinished)?,
        group: group.and_then(Group::of),
        alpn: connection.alpn_protocol().map(Box::from),
        server_name: None,
        is_resumed: kind == Some(HandshakeKind::Resumed),
        peer: peer.map(Box::new),
    })
}

/// The record layer that goes on. The traffic secrets are the peer's, then ours.
fn records(
    role: Role,
    facts: &Facts,
    extracted: &ExtractedSecrets,
    [theirs, ours]: [&TrafficSecret; 2],
) -> Result<RecordLayer, HandshakeError> {
    let protocol = match facts.version {
        Version::Tls12 => Protocol::Tls12,
        Version::Tls13 => Protocol::Tls13,
    };
    let (cipher, receive) = direction(&extracted.rx, theirs)?;
    let (_, send) = direction(&extracted.tx, ours)?;
    let secrets = Secrets { suite: Suite { protocol, cipher }, receive, send };
    // Clients may be far away; services are near.
    let sizing = match role {
        Role::Client => Sizing::Full,
        Role::Server => Sizing::Adaptive,
    };
    RecordLayer::new(role, &secrets, sizing)
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

/// A record with an alert, under no key.
fn plain_alert(alert: Alert) -> [u8; 7] {
    const ALERT: u8 = 21;
    const FATAL: u8 = 2;
    [ALERT, 3, 3, 0, 2, FATAL, alert.code()]
}
