//! Events of TLS.

use super::LabelId;

/// The handshake of a downstream connection is over.
#[derive(Clone, Copy, Debug)]
pub struct TlsHandshakeFinished {
    /// The listener.
    pub listener: LabelId,
    /// Whether it was full, resumed, or with early data.
    pub kind: TlsHandshakeKind,
    /// How long it took, ns, waiting for the client included.
    pub duration: u64,
    /// Why it failed, if it did.
    pub failure: Option<TlsFailure>,
}

/// Kinds of handshakes, by what they cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TlsHandshakeKind {
    /// All of it, with a signature.
    Full,
    /// A session was resumed.
    Resumed,
    /// A session was resumed, and requests came as early data.
    Early,
}

impl TlsHandshakeKind {
    /// The words for them, in their order.
    pub const NAMES: [&'static str; 3] = ["full", "resumed", "early"];
}

/// Signatures were made for handshakes that waited for them.
#[derive(Clone, Copy, Debug)]
pub struct SignaturesMade {
    /// One by one.
    pub inline: u64,
    /// In batches.
    pub batched: u64,
    /// Signatures that could not be made.
    pub failed: u64,
    /// Batches by the number of signatures in them; at 1 are signatures that waited and remained
    /// alone.
    pub sizes: [u64; Self::SIZES],
}

impl SignaturesMade {
    /// Sizes of batches, 0 included.
    pub const SIZES: usize = 9;
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TlsFailure {
    /// The peer closed or reset the connection.
    PeerGone,
    /// It took too long.
    Timeout,
    /// The first bytes were none of TLS.
    NotTls,
    /// No version, suite, group or signature scheme is known to both sides.
    NothingInCommon,
    /// No application protocol is known to both sides.
    NoApplicationProtocol,
    /// The peer has no certificate, and needs one.
    CertificateMissing,
    /// The peer's certificate is not trusted, or is not its own.
    CertificateInvalid,
    /// The peer gave up, with an alert: mostly because it does not trust our certificate.
    AlertReceived,
    /// The peer broke a rule of TLS.
    ProtocolViolation,
    /// An error on our side.
    Internal,
    /// It had made no progress for longest when `limits.handshakes_max` was reached.
    Overflow,
}

impl TlsFailure {
    /// The words for them, in their order.
    pub const NAMES: [&'static str; 11] = [
        "peer_gone",
        "timeout",
        "not_tls",
        "nothing_in_common",
        "no_application_protocol",
        "certificate_missing",
        "certificate_invalid",
        "alert_received",
        "protocol_violation",
        "internal",
        "overflow",
    ];
}
