//! The server's side, which may have to wait for its signature.

use std::sync::Arc;

use rustls::server::danger::ClientCertVerifier;
use rustls::{HandshakeKind, ServerConnection};
use rustls_pki_types::UnixTime;

use super::coroutine::{self, Step, Waiting};
use super::error::HandshakeError;
use super::framing::plain_alert;
use crate::alert::Alert;
use crate::server::ServerContext;
use crate::signing::{SignError, SignJob, Signature};

/// A server's handshake.
pub(super) struct Accepting {
    state: State,
    /// Whether a record may lead to a signature that has to be waited for: not after there was one.
    may_wait: bool,
    /// Verifies clients' certificates, if clients are asked for one.
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

enum State {
    /// The handshake takes records.
    Ready(Box<ServerConnection>),
    /// The handshake waits for a signature.
    Waiting(Box<Stopped>),
    /// The handshake is in a call, or was when the call panicked.
    Moved,
}

/// A call that waits, apart so that handshakes that do not wait are small.
struct Stopped {
    call: Waiting<Fed>,
    /// There until it is taken.
    job: Option<SignJob>,
}

/// The result of giving rustls a record.
struct Fed {
    connection: Box<ServerConnection>,
    output: Vec<u8>,
    result: Result<(), HandshakeError>,
}

impl Accepting {
    pub(super) fn new(context: &ServerContext) -> Self {
        let connection = ServerConnection::new(Arc::clone(context.config()));
        let connection = connection.expect("no size of fragments is set, the one thing refused");
        Self {
            state: State::Ready(Box::new(connection)),
            may_wait: context.may_wait(),
            clients: context.clients().cloned(),
        }
    }

    /// Why a client that goes on from an earlier connection is refused. rustls takes its certificate
    /// from the ticket and does not verify it again: that it, or its issuer, has expired since, was
    /// revoked, or that the list which would say so has expired is only seen here.
    pub(super) fn rejection(&self) -> Option<HandshakeError> {
        let connection = self.connection()?;
        if connection.handshake_kind() != Some(HandshakeKind::Resumed) {
            return None;
        }
        let (end_entity, intermediates) = connection.peer_certificates()?.split_first()?;
        let verified =
            self.clients.as_ref()?.verify_client_cert(end_entity, intermediates, UnixTime::now());
        verified.err().map(HandshakeError::from)
    }

    /// rustls' side of it, but while it waits.
    pub(super) fn connection(&self) -> Option<&ServerConnection> {
        match &self.state {
            State::Ready(connection) => Some(connection),
            State::Waiting(_) | State::Moved => None,
        }
    }

    pub(super) fn connection_mut(&mut self) -> Option<&mut ServerConnection> {
        match &mut self.state {
            State::Ready(connection) => Some(connection),
            State::Waiting(_) | State::Moved => None,
        }
    }

    /// Takes rustls' side out, of a handshake that comes to nothing in the end.
    pub(super) fn take_connection(&mut self) -> Option<Box<ServerConnection>> {
        match std::mem::replace(&mut self.state, State::Moved) {
            State::Ready(connection) => Some(connection),
            State::Waiting(_) | State::Moved => None,
        }
    }

    pub(super) fn into_connection(self) -> Option<Box<ServerConnection>> {
        match self.state {
            State::Ready(connection) => Some(connection),
            State::Waiting(_) | State::Moved => None,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    pub(super) fn take_job(&mut self) -> Option<SignJob> {
        match &mut self.state {
            State::Waiting(stopped) => stopped.job.take(),
            State::Ready(_) | State::Moved => None,
        }
    }

    /// Takes one record, and what is to be sent then, also when it fails. It may be waiting then.
    pub(super) fn on_record(
        &mut self,
        record: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        if let (State::Ready(connection), false) = (&mut self.state, self.may_wait) {
            return feed(connection, record, output);
        }
        match std::mem::replace(&mut self.state, State::Moved) {
            State::Ready(mut connection) => {
                let record = Vec::from(record);
                let body = move || {
                    let mut output = Vec::new();
                    let result = feed(&mut connection, &record, &mut output);
                    Fed { connection, output, result }
                };
                // Without a stack, it does not wait.
                let step = coroutine::call(body).unwrap_or_else(|body| Step::Done(body()));
                self.on_step(step, output)
            }
            State::Waiting(_) | State::Moved => Err(HandshakeError::Unfinished),
        }
    }

    /// Goes on with what it waited for.
    pub(super) fn on_signature(
        &mut self,
        result: Result<Signature, SignError>,
        output: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        match std::mem::replace(&mut self.state, State::Moved) {
            State::Waiting(stopped) => {
                self.may_wait = false;
                let step = stopped.call.resume(result);
                self.on_step(step, output)
            }
            state @ (State::Ready(_) | State::Moved) => {
                self.state = state;
                Ok(())
            }
        }
    }

    fn on_step(&mut self, step: Step<Fed>, output: &mut Vec<u8>) -> Result<(), HandshakeError> {
        match step {
            Step::Done(Fed { connection, output: sent, result }) => {
                output.extend_from_slice(&sent);
                self.state = State::Ready(connection);
                result
            }
            Step::Waits(call, job) => {
                self.state = State::Waiting(Box::new(Stopped { call, job: Some(job) }));
                Ok(())
            }
        }
    }
}

/// Gives one record to rustls, and takes what it wants to have sent, also when it fails.
pub(super) fn feed(
    connection: &mut ServerConnection,
    record: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), HandshakeError> {
    let result = read_record(connection, record);
    if matches!(result, Err(HandshakeError::Incompatible(_))) && is_outdated_hello(record) {
        output.extend(plain_alert(Alert::PROTOCOL_VERSION));
        return Err(HandshakeError::NoVersion);
    }
    while connection.wants_write() {
        connection.write_tls(output).expect("memory can be written to");
    }
    result
}

/// Whether this begins a hello of a version before TLS 1.2. rustls first looks for an extension that
/// they lack, and would report that; the alert has to name the version (RFC 5246, appendix E.1).
const fn is_outdated_hello(record: &[u8]) -> bool {
    const CLIENT_HELLO: u8 = 1;
    matches!(record, [_, _, _, _, _, CLIENT_HELLO, _, _, _, 3, 0..=2, ..])
}

fn read_record(connection: &mut ServerConnection, record: &[u8]) -> Result<(), HandshakeError> {
    let mut rest = record;
    while !rest.is_empty() {
        // It takes some 4 KiB at a time, and refuses when what it keeps is longer than a message
        // may be.
        match connection.read_tls(&mut rest) {
            Ok(0) | Err(_) => return Err(HandshakeError::TooManyBytes),
            Ok(_) => {}
        }
        connection.process_new_packets()?;
    }
    Ok(())
}
