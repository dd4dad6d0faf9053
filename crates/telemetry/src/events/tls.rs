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
    /// Why it failed, if it did: a word of those that failures to connect have.
    pub failure: Option<&'static str>,
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
