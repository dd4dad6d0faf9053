//! Why a handshake comes to nothing.

use std::fmt;

use rustls::{InvalidMessage, PeerIncompatible};
use thiserror::Error;

use crate::alert::Alert;
use crate::signing::SignError;

/// Why a handshake came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// The peer has given up.
    #[error("the peer has sent alert {0}")]
    AlertReceived(Alert),
    /// A record that was not sealed with the key that it had to be sealed with.
    #[error("a record that is not authentic")]
    BadRecord,
    /// The peer's certificate is not accepted.
    #[error("the peer's certificate is not accepted: {0}")]
    CertificateRejected(CertificateFault),
    /// The peer has shown no certificate, and has to.
    #[error("the peer has shown no certificate")]
    CertificateRequired,
    /// The peer cannot do something that is asked of it.
    #[error("the peer is not compatible: {0}")]
    Incompatible(Box<str>),
    /// Something failed that is not the peer's fault.
    #[error("the handshake has failed here: {0}")]
    Internal(Box<str>),
    /// A message that cannot be decoded.
    #[error("a message that cannot be read: {0}")]
    MessageInvalid(Box<str>),
    /// A message that may not come now.
    #[error("a message that is not allowed now")]
    MessageUnexpected,
    /// The peer broke a rule.
    #[error("the peer broke a rule: {0}")]
    Misbehaved(Box<str>),
    /// The peer's certificate has other names: these.
    #[error("the peer's certificate is for other names: {0}")]
    NameMismatch(Box<str>),
    /// No application protocol in common.
    #[error("no application protocol in common")]
    NoApplicationProtocol,
    /// No cipher suite in common.
    #[error("no cipher suite in common")]
    NoCipherSuite,
    /// No group in common.
    #[error("no group for key exchange in common")]
    NoGroup,
    /// No signature scheme in common: there is no certificate that the peer can check.
    #[error("no signature scheme in common")]
    NoSignatureScheme,
    /// No version in common.
    #[error("no version in common")]
    NoVersion,
    /// The bytes are not TLS.
    #[error("the peer does not speak tls")]
    NotTls,
    /// A record that is longer than any may be.
    #[error("a record that is too long")]
    RecordTooLong,
    /// A name to connect to that is neither DNS name nor address.
    #[error("the name of the server is neither a dns name nor an address")]
    ServerNameInvalid,
    /// The provider that has the certificate's key made no signature.
    #[error("there is no signature: {0}")]
    SignatureMissing(SignError),
    /// More bytes than any handshake needs.
    #[error("the handshake is too long")]
    TooManyBytes,
    /// The handshake is not done, or what it has to say was not taken.
    #[error("the handshake is not complete")]
    Unfinished,
}

/// Faults of a peer's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CertificateFault {
    /// It cannot be parsed.
    #[error("it cannot be read")]
    BadEncoding,
    /// It is that of an authority, which is for signing others.
    #[error("it is a CA certificate (CA:TRUE), which no server or client may present")]
    OfAuthority,
    /// Its issuer did not sign it.
    #[error("its signature is wrong")]
    BadSignature,
    /// It has none of the names that are allowed here.
    #[error("it contains none of the expected names")]
    NotAccepted,
    /// It is not valid any more.
    #[error("it has expired")]
    Expired,
    /// It is not valid yet.
    #[error("it is not valid yet")]
    NotValidYet,
    /// Something else.
    #[error("it is refused")]
    Other,
    /// It is not for this side of connections, or that of an authority.
    #[error("it may not be used for this")]
    PurposeInvalid,
    /// It was revoked.
    #[error("it was revoked")]
    Revoked,
    /// No list that is current says whether it was revoked.
    #[error("its revocation status is not known")]
    RevocationUnknown,
    /// It is signed in a way that is not supported.
    #[error("its signature is of an unsupported kind")]
    SignatureUnsupported,
    /// It has a critical extension that is not known.
    #[error("it has a critical extension that is not known")]
    UnhandledExtension,
    /// No trusted CA has signed it.
    #[error("its issuer is not trusted")]
    UnknownIssuer,
}

impl HandshakeError {
    /// The alert that is sent, if any. For some errors of a peer, rustls sends a more exact one.
    #[must_use]
    pub fn alert(&self) -> Option<Alert> {
        Some(match self {
            Self::AlertReceived(_) | Self::NotTls | Self::ServerNameInvalid | Self::Unfinished => {
                return None;
            }
            Self::BadRecord => Alert::BAD_RECORD_MAC,
            Self::CertificateRejected(fault) => fault.alert(),
            Self::CertificateRequired => Alert::CERTIFICATE_REQUIRED,
            Self::Incompatible(_)
            | Self::NoCipherSuite
            | Self::NoGroup
            | Self::NoSignatureScheme => Alert::HANDSHAKE_FAILURE,
            Self::Internal(_) | Self::SignatureMissing(_) => Alert::INTERNAL_ERROR,
            Self::MessageInvalid(_) | Self::TooManyBytes => Alert::DECODE_ERROR,
            Self::MessageUnexpected => Alert::UNEXPECTED_MESSAGE,
            Self::Misbehaved(_) => Alert::ILLEGAL_PARAMETER,
            Self::NameMismatch(_) => Alert::BAD_CERTIFICATE,
            Self::NoApplicationProtocol => Alert::NO_APPLICATION_PROTOCOL,
            Self::NoVersion => Alert::PROTOCOL_VERSION,
            Self::RecordTooLong => Alert::RECORD_OVERFLOW,
        })
    }

    /// The error's label in metrics, of a closed set.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::AlertReceived(_) => "alert_received",
            Self::BadRecord => "bad_record",
            Self::CertificateRejected(fault) => fault.word(),
            Self::CertificateRequired => "certificate_required",
            Self::Incompatible(_) => "incompatible",
            Self::Internal(_) => "internal",
            Self::MessageInvalid(_) => "message_invalid",
            Self::MessageUnexpected => "message_unexpected",
            Self::Misbehaved(_) => "misbehaved",
            Self::NameMismatch(_) => "name_mismatch",
            Self::NoApplicationProtocol => "no_application_protocol",
            Self::NoCipherSuite => "no_cipher_suite",
            Self::NoGroup => "no_group",
            Self::NoSignatureScheme => "no_signature_scheme",
            Self::NoVersion => "no_version",
            Self::NotTls => "not_tls",
            Self::RecordTooLong => "record_too_long",
            Self::ServerNameInvalid => "server_name_invalid",
            Self::SignatureMissing(error) => error.word(),
            Self::TooManyBytes => "too_many_bytes",
            Self::Unfinished => "unfinished",
        }
    }
}

impl CertificateFault {
    /// The alert that is sent.
    #[must_use]
    pub fn alert(self) -> Alert {
        match self {
            Self::BadEncoding | Self::UnhandledExtension => Alert::BAD_CERTIFICATE,
            Self::BadSignature | Self::SignatureUnsupported => Alert::DECRYPT_ERROR,
            Self::Expired | Self::NotValidYet => Alert::CERTIFICATE_EXPIRED,
            Self::NotAccepted => Alert::ACCESS_DENIED,
            Self::OfAuthority | Self::Other | Self::RevocationUnknown => Alert::CERTIFICATE_UNKNOWN,
            Self::PurposeInvalid => Alert::UNSUPPORTED_CERTIFICATE,
            Self::Revoked => Alert::CERTIFICATE_REVOKED,
            Self::UnknownIssuer => Alert::UNKNOWN_CA,
        }
    }

    /// The fault's label in metrics, of a closed set.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::BadEncoding => "certificate_bad_encoding",
            Self::BadSignature => "certificate_bad_signature",
            Self::Expired => "certificate_expired",
            Self::NotAccepted => "certificate_not_accepted",
            Self::NotValidYet => "certificate_not_valid_yet",
            Self::OfAuthority => "certificate_of_authority",
            Self::Other => "certificate_refused",
            Self::PurposeInvalid => "certificate_purpose_invalid",
            Self::Revoked => "certificate_revoked",
            Self::RevocationUnknown => "certificate_revocation_unknown",
            Self::SignatureUnsupported => "certificate_signature_unsupported",
            Self::UnhandledExtension => "certificate_unhandled_extension",
            Self::UnknownIssuer => "certificate_unknown_issuer",
        }
    }
}

/// Bytes that are kept of a text about a peer.
const TEXT_LEN_MAX: usize = 256;

impl From<rustls::Error> for HandshakeError {
    fn from(error: rustls::Error) -> Self {
        use rustls::Error;
        match error {
            Error::AlertReceived(alert) => Self::AlertReceived(Alert::from_code(alert.into())),
            Error::DecryptError => Self::BadRecord,
            Error::InappropriateHandshakeMessage { .. } | Error::InappropriateMessage { .. } => {
                Self::MessageUnexpected
            }
            Error::InvalidCertificate(error) => of_certificate(error),
            Error::InvalidMessage(InvalidMessage::MessageTooLarge)
            | Error::PeerSentOversizedRecord => Self::RecordTooLong,
            Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge) => Self::TooManyBytes,
            Error::InvalidMessage(error) => Self::MessageInvalid(words(&error)),
            Error::NoApplicationProtocol => Self::NoApplicationProtocol,
            Error::NoCertificatesPresented => Self::CertificateRequired,
            Error::PeerIncompatible(error) => of_incompatible(&error),
            // An error of our own signing keys, which passes through rustls as `Other`.
            Error::Other(other) if other.0.is::<SignError>() => {
                let error = other.0.downcast_ref().copied().unwrap_or(SignError::Failed);
                Self::SignatureMissing(error)
            }
            Error::PeerMisbehaved(error) => Self::Misbehaved(words(&error)),
            other => Self::Internal(bounded(other.to_string())),
        }
    }
}

fn of_certificate(error: rustls::CertificateError) -> HandshakeError {
    use rustls::CertificateError;
    HandshakeError::CertificateRejected(match error {
        CertificateError::ApplicationVerificationFailure => CertificateFault::NotAccepted,
        CertificateError::BadEncoding => CertificateFault::BadEncoding,
        CertificateError::BadSignature => CertificateFault::BadSignature,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            CertificateFault::Expired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            CertificateFault::NotValidYet
        }
        CertificateError::NotValidForName => return HandshakeError::NameMismatch(Box::default()),
        CertificateError::NotValidForNameContext { presented, .. } => {
            return HandshakeError::NameMismatch(bounded(names(&presented)));
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            CertificateFault::PurposeInvalid
        }
        CertificateError::Revoked => CertificateFault::Revoked,
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            CertificateFault::SignatureUnsupported
        }
        CertificateError::UnhandledCriticalExtension => CertificateFault::UnhandledExtension,
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. }
        | CertificateError::UnknownRevocationStatus => CertificateFault::RevocationUnknown,
        CertificateError::UnknownIssuer => CertificateFault::UnknownIssuer,
        CertificateError::Other(other) if is_of_authority(&other) => CertificateFault::OfAuthority,
        // Of version 1, or with a rule that is broken.
        _ => CertificateFault::Other,
    })
}

/// `openssl req -x509` makes such certificates unless it is asked not to.
fn is_of_authority(error: &rustls::OtherError) -> bool {
    error.0.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
}

fn of_incompatible(error: &PeerIncompatible) -> HandshakeError {
    match error {
        PeerIncompatible::NoCipherSuitesInCommon => HandshakeError::NoCipherSuite,
        PeerIncompatible::NoKxGroupsInCommon => HandshakeError::NoGroup,
        PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon
        | PeerIncompatible::NoSignatureSchemesInCommon => HandshakeError::NoSignatureScheme,
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled => HandshakeError::NoVersion,
        // Every client has to offer null compression (RFC 8446, section 4.1.2).
        PeerIncompatible::NullCompressionRequired => HandshakeError::Misbehaved(words(error)),
        other => HandshakeError::Incompatible(words(other)),
    }
}

/// The name of a variant as words: `MissingKeyShare` as `missing key share`.
fn words(variant: &impl fmt::Debug) -> Box<str> {
    let name = format!("{variant:?}");
    let mut text = String::with_capacity(name.len() + 8);
    let mut before = ' ';
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && before.is_ascii_lowercase() {
            text.push(' ');
        }
        text.push(letter.to_ascii_lowercase());
        before = letter;
    }
    bounded(text)
}

/// Names as webpki gives them, `DnsName("a.example")`, without what is around them.
fn names(presented: &[String]) -> String {
    let bare = |name: &String| name.split('"').nth(1).unwrap_or(name).to_owned();
    let bare: Vec<String> = presented.iter().map(bare).collect();
    bare.join(", ")
}

/// Cut where it is too long to be kept.
fn bounded(mut text: String) -> Box<str> {
    if text.len() > TEXT_LEN_MAX {
        text.truncate(text.floor_char_boundary(TEXT_LEN_MAX));
    }
    text.into()
}
