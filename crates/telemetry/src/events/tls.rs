//! Events of TLS.

use super::LabelId;

/// The handshake of a downstream connection is over.
#[derive(Clone, Copy, Debug)]
pub struct TlsHandshakeFinished {
    /// The listener.
    pub listener: LabelId,
    /// How much of one it was.
    pub kind: TlsHandshakeKind,
    /// How long it took, ns, waiting for the client included.
    pub duration: u64,
    /// Why it failed, if it did.
    pub failure: Option<TlsFailure>,
}

/// How much of a handshake it takes for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TlsHandshakeKind {
    /// All of it, with a signature.
    Full,
    /// It goes on from an earlier connection.
    Resumed,
    /// The same, and requests came along with the hello.
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
    /// None came of it.
    pub failed: u64,
    /// Batches by the number of signatures in them; at 1 are those that found no company.
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
    /// What the peer sent breaks the rules of TLS.
    ProtocolViolation,
    /// Something of our own failed.
    Internal,
    /// It was still for longest when `limits.handshakes_max` was reached.
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
