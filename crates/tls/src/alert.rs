//! Alerts, by their codes (RFC 8446, section 6; the registry of IANA has those of its extensions).

use std::fmt;

use serde::{Deserialize, Serialize};
use wire::tls::AlertName;

/// An alert: why one side ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Alert(u8);

impl Alert {
    /// Nothing more is sent.
    pub const CLOSE_NOTIFY: Self = Self(0);
    /// A message that may not come here.
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    /// A record is not authentic.
    pub const BAD_RECORD_MAC: Self = Self(20);
    /// A record is too long.
    pub const RECORD_OVERFLOW: Self = Self(22);
    /// Client and server have no parameters in common.
    pub const HANDSHAKE_FAILURE: Self = Self(40);
    /// A certificate that cannot be parsed, or has other names.
    pub const BAD_CERTIFICATE: Self = Self(42);
    /// A certificate that may not be used for this.
    pub const UNSUPPORTED_CERTIFICATE: Self = Self(43);
    /// A certificate was revoked.
    pub const CERTIFICATE_REVOKED: Self = Self(44);
    /// A certificate is not valid any more, or not yet.
    pub const CERTIFICATE_EXPIRED: Self = Self(45);
    /// A certificate is refused for another reason.
    pub const CERTIFICATE_UNKNOWN: Self = Self(46);
    /// A field is well formed, and wrong.
    pub const ILLEGAL_PARAMETER: Self = Self(47);
    /// No trusted CA signed the certificate.
    pub const UNKNOWN_CA: Self = Self(48);
    /// The certificate is valid, but its owner is not allowed here.
    pub const ACCESS_DENIED: Self = Self(49);
    /// A message cannot be decoded.
    pub const DECODE_ERROR: Self = Self(50);
    /// A signature is wrong.
    pub const DECRYPT_ERROR: Self = Self(51);
    /// No version in common.
    pub const PROTOCOL_VERSION: Self = Self(70);
    /// An error that is not the peer's.
    pub const INTERNAL_ERROR: Self = Self(80);
    /// No certificate was sent, and one has to be.
    pub const CERTIFICATE_REQUIRED: Self = Self(116);
    /// No application protocol in common.
    pub const NO_APPLICATION_PROTOCOL: Self = Self(120);

    /// The alert with this code, whether there is one or not.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        Self(code)
    }

    /// The alert as the record layer sends it, if it may end a handshake under keys. All other
    /// codes become `internal_error`: no peer would act differently on them.
    #[must_use]
    pub const fn of_record(self) -> wire::tls::Alert {
        use wire::tls::Alert;
        match self {
            Self::UNEXPECTED_MESSAGE => Alert::UnexpectedMessage,
            Self::BAD_RECORD_MAC => Alert::BadRecordMac,
            Self::RECORD_OVERFLOW => Alert::RecordOverflow,
            Self::BAD_CERTIFICATE => Alert::BadCertificate,
            Self::CERTIFICATE_REVOKED => Alert::CertificateRevoked,
            Self::CERTIFICATE_EXPIRED => Alert::CertificateExpired,
            Self::CERTIFICATE_UNKNOWN => Alert::CertificateUnknown,
            Self::ILLEGAL_PARAMETER => Alert::IllegalParameter,
            Self::UNKNOWN_CA => Alert::UnknownCa,
            Self::ACCESS_DENIED => Alert::AccessDenied,
            Self::DECODE_ERROR => Alert::DecodeError,
            Self::DECRYPT_ERROR => Alert::DecryptError,
            Self::PROTOCOL_VERSION => Alert::ProtocolVersion,
            _ => Alert::InternalError,
        }
    }

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Its name in the registry, or `unknown`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        AlertName(self.0).as_str()
    }
}

impl fmt::Display for Alert {
    /// The name, and the code where there is no name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        AlertName(self.0).fmt(f)
    }
}
