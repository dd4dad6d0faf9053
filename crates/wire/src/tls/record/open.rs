//! Opening records of the peer, and the messages and alerts in them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::control::{Writing, level};
use super::error::RecordError;
use super::keys::{LEGACY_VERSION, kind};
use super::layer::{RecordLayer, TlsRole};
use super::secrets::{Protocol, Suite};
use super::{HEADER_LEN, IDLE_RECORDS_MAX, MESSAGE_BYTES_MAX, TICKETS_MAX};
use crate::tls::Alert;

/// The result of a step of [`RecordLayer::open`].
#[derive(Debug)]
pub enum Opened<'b> {
    /// Nothing more; the caller still consumes the bytes that were returned as consumed.
    NeedMore {
        /// How long the record is that the rest begins with, its header included: only that of a
        /// header where not even that is there. At most
        /// [`RECORD_LEN_MAX`](super::RECORD_LEN_MAX).
        record_len: usize,
    },
    /// A piece of data; never empty.
    Data {
        /// Where in the input it stands.
        start: usize,
        /// The piece, in that place.
        bytes: &'b [u8],
    },
    /// A NewSessionTicket of TLS 1.3, without the message header, for a cache of tickets.
    Ticket(Vec<u8>),
    /// The peer has said that nothing more comes, and it is so: what follows is consumed and
    /// ignored. Sending goes on (RFC 8446, section 6.1).
    End,
}

/// Whether more can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reading {
    Open,
    /// The peer has said that nothing more comes.
    Ended,
    Failed(RecordError),
}

/// The content of a record, without the bytes.
enum Found {
    NeedMore { record_len: usize },
    Data { range: Range<usize> },
    Ticket(Vec<u8>),
    End,
}

/// Types of messages (RFC 8446, section 4; RFC 5246, section 7.4).
pub(super) mod message {
    pub(crate) const HELLO_REQUEST: u8 = 0;
    pub(crate) const CLIENT_HELLO: u8 = 1;
    pub(crate) const NEW_SESSION_TICKET: u8 = 4;
    pub(crate) const KEY_UPDATE: u8 = 24;
}

/// Octets of a message's header.
pub(super) const MESSAGE_HEADER_LEN: usize = 4;

/// Bytes of data that make up for one idle record, as each record of data does.
const BYTES_EARNING_ONE: usize = 128;

impl RecordLayer {
    /// Opens records at the front of `input`, in place, up to the first that holds something: how
    /// many bytes of `input` are done with, and what that is.
    ///
    /// Call again with what follows them until more bytes are needed. What is not consumed was
    /// not touched either, and has to come again: a record is opened when all of it is there.
    ///
    /// # Errors
    ///
    /// When the connection cannot be read on. [`RecordLayer::send_control`] then writes the alert
    /// that says why, if one does, and nothing else is sent any more.
    pub fn open<'b>(&mut self, input: &'b mut [u8]) -> Result<(usize, Opened<'b>), RecordError> {
        match self.reading {
            Reading::Open => {}
            Reading::Ended => return Ok((input.len(), Opened::End)),
            Reading::Failed(error) => return Err(error),
        }
        match self.read(input) {
            Ok((n, found)) => Ok((n, found.opened(input))),
            Err(error) => {
                self.fail(error);
                Err(error)
            }
        }
    }

    fn read(&mut self, input: &mut [u8]) -> Result<(usize, Found), RecordError> {
        let mut at = 0;
        loop {
            // Messages come first: they may change the keys of what follows.
            if let Some(found) = self.read_messages()? {
                return Ok((at, found));
            }
            let rest = input.get_mut(at..).unwrap_or_default();
            let record_len = record_len(rest, self.suite)?;
            let Some(record) = rest.get_mut(..record_len).filter(|_| record_len > HEADER_LEN)
            else {
                return Ok((at, Found::NeedMore { record_len }));
            };
            let start = at;
            at += record_len;
            let (kind, range) = self.receive.open(self.suite, record)?;
            let content = record.get(range.clone()).unwrap_or_default();
            match kind {
                kind::APPLICATION_DATA => {
                    if self.on_data(content)? {
                        let range = start + range.start..start + range.end;
                        return Ok((at, Found::Data { range }));
                    }
                }
                kind::HANDSHAKE => self.on_fragment(content)?,
                kind::ALERT => {
                    if let Some(found) = self.on_alert(content)? {
                        return Ok((at, found));
                    }
                }
                other => return Err(RecordError::RecordUnexpected(other)),
            }
        }
    }

    /// Whether there is any data in a record of it.
    fn on_data(&mut self, content: &[u8]) -> Result<bool, RecordError> {
        self.check_no_message()?;
        if content.is_empty() {
            // Nothing is wrong with them (RFC 8446, section 5.1), but for their number.
            self.on_idle_record()?;
            return Ok(false);
        }
        let earned = u8::try_from(1 + content.len() / BYTES_EARNING_ONE).unwrap_or(u8::MAX);
        self.idle_records = self.idle_records.saturating_sub(earned);
        Ok(true)
    }

    /// A record of an alert: exactly one, whatever TLS 1.2 would allow (RFC 8446, section 5.1).
    fn on_alert(&mut self, content: &[u8]) -> Result<Option<Found>, RecordError> {
        if content.is_empty() {
            return Err(RecordError::RecordEmpty);
        }
        let &[level, code] = content else { return Err(RecordError::AlertInvalid) };
        if !matches!(level, level::WARNING | level::FATAL) {
            return Err(RecordError::AlertInvalid);
        }
        if code == Alert::CloseNotify.code() {
            self.reading = Reading::Ended;
            self.message = Vec::new();
            return Ok(Some(Found::End));
        }
        // In TLS 1.3 the level says nothing (RFC 8446, section 6).
        let is_harmless = match self.suite.protocol {
            Protocol::Tls12 => level == level::WARNING,
            Protocol::Tls13 => code == Alert::UserCanceled.code(),
        };
        if !is_harmless {
            return Err(RecordError::AlertReceived(code));
        }
        self.check_no_message()?;
        self.on_idle_record()?;
        Ok(None)
    }

    /// A record of messages, or of a piece of one.
    fn on_fragment(&mut self, content: &[u8]) -> Result<(), RecordError> {
        if content.is_empty() {
            return Err(RecordError::RecordEmpty);
        }
        self.on_idle_record()?;
        self.message.extend_from_slice(content);
        Ok(())
    }

    /// RFC 8446, section 5.1: nothing stands between the pieces of a message.
    fn check_no_message(&self) -> Result<(), RecordError> {
        if self.message.is_empty() { Ok(()) } else { Err(RecordError::MessageInterrupted) }
    }

    /// Something came that took work and is no data.
    fn on_idle_record(&mut self) -> Result<(), RecordError> {
        if self.idle_records >= IDLE_RECORDS_MAX {
            return Err(RecordError::TooManyIdleRecords);
        }
        self.idle_records += 1;
        Ok(())
    }

    fn fail(&mut self, error: RecordError) {
        self.reading = Reading::Failed(error);
        self.message = Vec::new();
        self.pending = super::control::Pending::default();
        self.writing = match (self.writing, error.alert()) {
            // Nothing follows what was said to be the last.
            (Writing::Closed, _) | (_, None) => Writing::Closed,
            (_, Some(alert)) => Writing::Closing(alert),
        };
    }
}

/// Messages.
impl RecordLayer {
    /// Goes through the messages that are there whole, up to one that is for the caller.
    fn read_messages(&mut self) -> Result<Option<Found>, RecordError> {
        while let Some(&kind) = self.message.first() {
            self.check_message_kind(kind)?;
            let Some(len) = message_len(&self.message)? else { break };
            let end = MESSAGE_HEADER_LEN + len;
            if self.message.len() < end {
                break;
            }
            // The vector of an idle connection has no storage.
            let rest = self.message.split_off(end);
            let mut message = std::mem::replace(&mut self.message, rest);
            if !self.message.is_empty() {
                // Several messages in one record count as as many records, since each takes work.
                self.on_idle_record()?;
            }
            let body = message.split_off(MESSAGE_HEADER_LEN);
            if let Some(found) = self.on_message(kind, body)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Which messages may come at all, before they are gathered.
    fn check_message_kind(&self, kind: u8) -> Result<(), RecordError> {
        use message::{CLIENT_HELLO, HELLO_REQUEST, KEY_UPDATE, NEW_SESSION_TICKET};
        match (self.suite.protocol, self.role, kind) {
            (Protocol::Tls13, _, KEY_UPDATE)
            | (Protocol::Tls13, TlsRole::Client, NEW_SESSION_TICKET)
            | (Protocol::Tls12, TlsRole::Client, HELLO_REQUEST) => Ok(()),
            (Protocol::Tls12, TlsRole::Server, CLIENT_HELLO) => {
                Err(RecordError::RenegotiationRefused)
            }
            // Authentication after the handshake would have to be offered (RFC 8446, section
            // 4.6.2), and in TLS 1.3 there is no renegotiation (section 4.1.2).
            _ => Err(RecordError::MessageUnexpected(kind)),
        }
    }

    fn on_message(&mut self, kind: u8, body: Vec<u8>) -> Result<Option<Found>, RecordError> {
        match kind {
            message::KEY_UPDATE => self.on_key_update(&body)?,
            message::HELLO_REQUEST => self.on_hello_request(&body)?,
            // Nothing else has passed the check.
            _ => return Ok(self.on_ticket(body)),
        }
        Ok(None)
    }

    /// RFC 8446, section 4.6.3.
    fn on_key_update(&mut self, body: &[u8]) -> Result<(), RecordError> {
        let &[request] = body else { return Err(RecordError::MessageLenInvalid) };
        if request > 1 {
            return Err(RecordError::KeyUpdateInvalid);
        }
        if !self.message.is_empty() {
            return Err(RecordError::KeyUpdateNotLast);
        }
        self.receive.update(self.suite.cipher);
        if request == 1 && self.writing == Writing::Open {
            self.pending.key_update = true;
        }
        Ok(())
    }

    /// A server of TLS 1.2 asks for a renegotiation. A `no_renegotiation` alert refuses it; the
    /// server may continue or close (RFC 5246, section 7.2.2).
    fn on_hello_request(&mut self, body: &[u8]) -> Result<(), RecordError> {
        if !body.is_empty() {
            return Err(RecordError::MessageLenInvalid);
        }
        self.pending.no_renegotiation = self.writing == Writing::Open;
        Ok(())
    }

    fn on_ticket(&mut self, body: Vec<u8>) -> Option<Found> {
        if self.tickets >= TICKETS_MAX {
            return None;
        }
        self.tickets += 1;
        Some(Found::Ticket(body))
    }
}

impl Found {
    fn opened(self, input: &[u8]) -> Opened<'_> {
        match self {
            Self::NeedMore { record_len } => Opened::NeedMore { record_len },
            Self::Data { range } => {
                let start = range.start;
                Opened::Data { start, bytes: input.get(range).unwrap_or_default() }
            }
            Self::Ticket(body) => Opened::Ticket(body),
            Self::End => Opened::End,
        }
    }
}

/// How long the record at the front of `rest` is with its header, or the length of a header if
/// that is not there.
fn record_len(rest: &[u8], suite: Suite) -> Result<usize, RecordError> {
    let Some(&[outer_kind, major, minor, high, low]) = rest.first_chunk() else {
        return Ok(HEADER_LEN);
    };
    match (suite.protocol, outer_kind) {
        (_, kind::APPLICATION_DATA) | (Protocol::Tls12, kind::ALERT | kind::HANDSHAKE) => {}
        // ChangeCipherSpec too: it may come up to the handshake's end (RFC 8446, section 5).
        _ => return Err(RecordError::RecordUnexpected(outer_kind)),
    }
    if [major, minor] != LEGACY_VERSION {
        return Err(RecordError::VersionInvalid);
    }
    match usize::from(u16::from_be_bytes([high, low])) {
        // No cipher seals anything into nothing.
        0 => Err(RecordError::BadRecord),
        len if len > suite.body_len_max() => Err(RecordError::RecordTooLong),
        len => Ok(HEADER_LEN + len),
    }
}

/// How long the body of the message is whose header stands at the front, if it is there.
fn message_len(message: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some(&[_, high, middle, low]) = message.first_chunk() else { return Ok(None) };
    let len = u32::from_be_bytes([0, high, middle, low]);
    match usize::try_from(len) {
        Ok(len) if len <= MESSAGE_BYTES_MAX => Ok(Some(len)),
        _ => Err(RecordError::MessageTooLong),
    }
}
