//! TLS, before a handshake and after it.
//!
//! [`client_hello`] reads what a client asks for before anything is decided about its connection,
//! whether TLS ends here or is passed through. [`record`] carries a connection on once its
//! handshake is done. The handshake itself is done by rustls, in the crate `tls`.

pub mod client_hello;
pub mod record;

mod alert_name;
mod server_name;

use serde::{Deserialize, Serialize};

pub use alert_name::AlertName;
pub use server_name::ServerName;

/// A version of the protocol, older ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// SSL 3.0, which RFC 7568 forbids.
    Ssl30,
    /// TLS 1.0.
    Tls10,
    /// TLS 1.1.
    Tls11,
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl Version {
    /// The version of a `ProtocolVersion`, unless it is a draft, GREASE or not known here.
    fn of(code: u16) -> Option<Self> {
        Some(match code {
            0x0300 => Self::Ssl30,
            0x0301 => Self::Tls10,
            0x0302 => Self::Tls11,
            0x0303 => Self::Tls12,
            0x0304 => Self::Tls13,
            _ => return None,
        })
    }
}

/// An alert that this side sends (RFC 8446, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Alert {
    /// Nothing more is sent.
    CloseNotify = 0,
    /// A message or record that may not come here.
    UnexpectedMessage = 10,
    /// A record was not sealed with the key that it had to be sealed with.
    BadRecordMac = 20,
    /// A record is longer than allowed.
    RecordOverflow = 22,
    /// A field is well formed, and wrong.
    IllegalParameter = 47,
    /// A message cannot be decoded.
    DecodeError = 50,
    /// A version that was not agreed on.
    ProtocolVersion = 70,
    /// An error that is not the peer's.
    InternalError = 80,
    /// A handshake is given up for a reason outside the protocol.
    UserCanceled = 90,
    /// Renegotiation is refused (RFC 5246, section 7.2.2).
    NoRenegotiation = 100,
    /// A certificate cannot be read, or is not for the peer's name.
    BadCertificate = 42,
    /// A certificate was revoked.
    CertificateRevoked = 44,
    /// A certificate has expired, or is not valid yet.
    CertificateExpired = 45,
    /// A certificate is refused for another reason.
    CertificateUnknown = 46,
    /// A certificate's issuer is not trusted.
    UnknownCa = 48,
    /// A certificate is valid, but its owner is not allowed here.
    AccessDenied = 49,
    /// A signature is wrong.
    DecryptError = 51,
}

impl Alert {
    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}
