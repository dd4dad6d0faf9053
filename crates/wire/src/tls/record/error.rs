//! Errors of a peer, and the alert that is sent for each.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::tls::{Alert, AlertName};

/// Why a connection cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum RecordError {
    /// An alert that is not two octets, or of a level that there is not.
    #[error("an alert that cannot be decoded")]
    AlertInvalid,
    /// The peer has sent a fatal alert with this code.
    #[error("the peer has sent alert {}", AlertName(*.0))]
    AlertReceived(u8),
    /// A record that was not sealed with the key that it had to be sealed with, or was changed.
    #[error("a record that is not authentic")]
    BadRecord,
    /// A record of TLS 1.3 that is nothing but padding.
    #[error("a record without a content type")]
    ContentMissing,
    /// A KeyUpdate whose request is neither 0 nor 1.
    #[error("a key update of an unknown kind")]
    KeyUpdateInvalid,
    /// Something behind a KeyUpdate in its record, which is under the old key and may not be.
    #[error("a message behind a key update in its record")]
    KeyUpdateNotLast,
    /// Another record between two that hold one message.
    #[error("another record inside a message")]
    MessageInterrupted,
    /// A message whose length is not that of its type.
    #[error("a message whose length is not that of its type")]
    MessageLenInvalid,
    /// A message longer than [`MESSAGE_BYTES_MAX`](super::MESSAGE_BYTES_MAX).
    #[error("a message that is too long")]
    MessageTooLong,
    /// A message of this type, which may not come from this side at this time.
    #[error("a handshake message of type {0} after the handshake")]
    MessageUnexpected(u8),
    /// A record of a kind that may not be empty.
    #[error("an empty record that is not application data")]
    RecordEmpty,
    /// A record longer than any may be.
    #[error("a record that is too long")]
    RecordTooLong,
    /// A record of this type, which may not come after the handshake.
    #[error("a record of type {0} after the handshake")]
    RecordUnexpected(u8),
    /// A client of TLS 1.2 wants other keys.
    #[error("a renegotiation, which is refused")]
    RenegotiationRefused,
    /// There are no more numbers for records under this key.
    #[error("no more records under this key")]
    SequenceExhausted,
    /// Records and messages that are no data, and no end of them.
    #[error("too many records without data")]
    TooManyIdleRecords,
    /// A record of another version.
    #[error("a record of another version")]
    VersionInvalid,
}

impl RecordError {
    /// The alert that is sent; none in answer to an alert (RFC 8446, section 6.2).
    #[must_use]
    pub fn alert(self) -> Option<Alert> {
        Some(match self {
            Self::AlertReceived(_) => return None,
            Self::AlertInvalid | Self::MessageLenInvalid => Alert::DecodeError,
            Self::BadRecord => Alert::BadRecordMac,
            Self::KeyUpdateInvalid | Self::MessageTooLong => Alert::IllegalParameter,
            Self::ContentMissing
            | Self::KeyUpdateNotLast
            | Self::MessageInterrupted
            | Self::MessageUnexpected(_)
            | Self::RecordEmpty
            | Self::RecordUnexpected(_)
            | Self::TooManyIdleRecords => Alert::UnexpectedMessage,
            Self::RecordTooLong => Alert::RecordOverflow,
            Self::RenegotiationRefused => Alert::NoRenegotiation,
            Self::SequenceExhausted => Alert::InternalError,
            Self::VersionInvalid => Alert::ProtocolVersion,
        })
    }
}

/// Why nothing can be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SealError {
    /// The end was said already, or there was an error.
    #[error("sending is over")]
    Closed,
    /// The key has sealed as much as it may, and TLS 1.2 has no next one.
    #[error("the key has sealed all that it may")]
    KeyExhausted,
}
