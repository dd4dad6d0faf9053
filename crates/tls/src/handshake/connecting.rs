//! The client's side, by the interface of rustls that leaves something which takes tickets behind.

use std::fmt;
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{ClientConfig, ExtractedSecrets};
use rustls_pki_types::ServerName;

use super::HandshakeError;
use crate::alert::Alert;

/// A client's handshake.
pub(super) struct Connecting {
    connection: UnbufferedClientConnection,
    /// Records that rustls has seen and wants to see again: those of a message that is not there
    /// whole.
    incoming: Vec<u8>,
}

/// Keeps the tickets of one connection, which come once its handshake is over, for later
/// connections to the same server.
///
/// It cannot be written down. A connection that is moved is none the worse for having lost it.
pub struct TicketKeeper {
    connection: KernelConnection<ClientConnectionData>,
}

impl Connecting {
    pub(super) fn new(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, HandshakeError> {
        let connection = UnbufferedClientConnection::new(config, name)?;
        Ok(Self { connection, incoming: Vec::new() })
    }

    pub(super) fn connection(&self) -> &UnbufferedClientConnection {
        &self.connection
    }

    /// Takes one record, and what is to be sent then, also when it fails.
    pub(super) fn on_record(
        &mut self,
        record: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        self.incoming.extend_from_slice(record);
        let result = self.turn(output);
        if result.is_err() {
            self.say_last(output);
        }
        result
    }

    /// Goes on until more is needed, or the handshake is done.
    fn turn(&mut self, output: &mut Vec<u8>) -> Result<(), HandshakeError> {
        loop {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut self.incoming);
            let is_over = match state? {
                ConnectionState::EncodeTlsData(data) => {
                    encode(data, output)?;
                    false
                }
                ConnectionState::TransmitTlsData(sent) => {
                    sent.done();
                    false
                }
                ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => true,
                ConnectionState::PeerClosed | ConnectionState::Closed => {
                    return Err(HandshakeError::AlertReceived(Alert::CLOSE_NOTIFY));
                }
                // Data is not given to it, and early data not asked for.
                _ => return Err(HandshakeError::MessageUnexpected),
            };
            self.incoming.drain(..discard);
            if is_over {
                return Ok(());
            }
        }
    }

    /// Takes what is to be sent after an error: the alert.
    ///
    /// Nothing else may be asked of rustls then, which would meet the error again.
    fn say_last(&mut self, output: &mut Vec<u8>) {
        while self.connection.wants_write() {
            let state = self.connection.process_tls_records(&mut self.incoming).state;
            let Ok(ConnectionState::EncodeTlsData(data)) = state else { return };
            if encode(data, output).is_err() {
                return;
            }
        }
    }

    pub(super) fn into_parts(self) -> Result<(ExtractedSecrets, TicketKeeper), HandshakeError> {
        let (secrets, connection) = self.connection.dangerous_into_kernel_connection()?;
        Ok((secrets, TicketKeeper { connection }))
    }
}

impl TicketKeeper {
    /// Takes a ticket, as [`Opened::Ticket`](wire::tls::record::Opened::Ticket) has it: whether it
    /// was one. Nothing else comes of it if it was not.
    pub fn keep(&mut self, ticket: &[u8]) -> bool {
        self.connection.handle_new_session_ticket(ticket).is_ok()
    }
}

impl fmt::Debug for TicketKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeeper").finish_non_exhaustive()
    }
}

/// Appends a record to `output`.
fn encode(
    mut data: EncodeTlsData<'_, ClientConnectionData>,
    output: &mut Vec<u8>,
) -> Result<(), HandshakeError> {
    let before = output.len();
    // How long it is, it only says when there is no room.
    let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) else {
        return Err(HandshakeError::Internal("a record of no length".into()));
    };
    output.resize(before + needed.required_size, 0);
    let room = output.get_mut(before..).unwrap_or_default();
    data.encode(room).map_err(|error| HandshakeError::Internal(error.to_string().into()))?;
    Ok(())
}
