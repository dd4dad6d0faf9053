//! Signing providers: signatures that a handshake waits for.
//!
//! A signature is most of what a handshake costs. It can be made at once, which is the default and
//! has nothing to do with this module. Or the handshake waits, as a value, while a provider makes
//! it: eight at a time ([`Batched`]), on another core ([`CryptoThread`]), in an accelerator or in
//! another machine that has the key and does not give it away (whatever implements
//! [`KeyOperations`], as `examples/remote_signer` does). The certificate names its provider when it
//! is read.
//!
//! ```text
//!              on_bytes                    pending                   submit(token, job)
//!  bytes ─────────────────► Handshake ────────────────► caller ─────────────────────────► provider
//!                                ▲                        │ ▲                                │
//!                                └────────────────────────┘ └────────────────────────────────┘
//!                                  on_signature(result)        poll: (token, result)
//! ```
//!
//! # How a loop drives it
//!
//! A worker owns its providers; nothing is shared and there is no lock. In a turn, it
//!
//! 1. gives each connection's bytes to [`Handshake::on_bytes`](crate::Handshake::on_bytes), and if
//!    [`Handshake::pending`](crate::Handshake::pending) then has a job, submits it under a token
//!    that finds the connection again, such as its key;
//! 2. when the events of the turn are done, polls until there is nothing more, and gives what comes
//!    to [`Handshake::on_signature`](crate::Handshake::on_signature) of the connection that the
//!    token stands for. It then goes on as after an event: there is output to be sent, and
//!    `on_bytes` takes the bytes that have been left lying;
//! 3. if there was nothing to do in this turn, or it would go to sleep, flushes and polls once more;
//! 4. sleeps no longer than to [`KeyOperations::next_deadline`]. A provider that works elsewhere
//!    wakes it.
//!
//! In step 3, a loop that has jobs waiting does best to look for events once more without waiting
//! for them, and to flush only if there are none: that is how batches become full under load, while
//! a lone handshake does not wait for others.
//!
//! A connection that closes drops its handshake and may cancel its job. A result that comes all the
//! same finds no connection under its token, if tokens are not used twice.
//!
//! # What leaves
//!
//! A signature that was made in this process comes from aws-lc, or was verified by
//! [`batch`](crate::batch). Any other is verified with the certificate's public key before it goes
//! to the peer, in the handshake's own thread: some 16 µs with RSA-2048, 40 with P-256.

mod batched;
mod inline;
mod key;
mod scheme;
mod thread;

use std::ops::AddAssign;

use thiserror::Error;

use crate::batch::Batch;

pub use batched::{Batched, COMPANY_WAIT_NANOS_MAX, WAIT_NANOS_MAX};
pub use inline::Inline;
pub use key::{KeyHandle, SignJob};
pub use scheme::SignatureScheme;
pub use thread::{CryptoThread, JOBS_MAX};

pub(crate) use key::{Deferred, Here};

/// A provider of signatures. See the module for how it is driven.
///
/// Time is in nanoseconds on any clock that does not go back.
pub trait KeyOperations {
    /// Takes a job. [`KeyOperations::poll`] gives its result under this token, once, also if the
    /// job was refused.
    fn submit(&mut self, token: u64, job: SignJob, now_nanos: u64);

    /// The next result that is there, in any order. What has waited for long enough is worked on.
    fn poll(&mut self, now_nanos: u64) -> Option<Signed>;

    /// The caller has nothing else to do, so no more jobs will come: works on those that are there.
    fn flush(&mut self, now_nanos: u64);

    /// When to poll, even if nothing happens before.
    fn next_deadline(&self) -> Option<u64>;

    /// The result under this token is not wanted any more. It may come all the same.
    fn cancel(&mut self, token: u64);

    /// Counts of jobs by result, since the last call.
    fn take_tally(&mut self) -> Tally;
}

/// How many jobs there were, by what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Signatures that were made one by one, or elsewhere.
    pub inline: u64,
    /// Signatures that were made in batches.
    pub batched: u64,
    /// Jobs of which no signature came.
    pub failed: u64,
    /// How many batches had so many signatures: the index is the number. At 1 are those that waited
    /// and remained alone, which were made without a batch. What never waited is not in here, so
    /// that nothing is at 0.
    pub sizes: [u64; Self::SIZES],
}

impl Tally {
    /// Sizes of batches, 0 included.
    pub const SIZES: usize = Batch::<()>::OPERATIONS_MAX + 1;

    /// Counts one that was not made in a batch.
    pub fn count(&mut self, result: &Result<Signature, SignError>) {
        match result {
            Ok(_) => self.inline += 1,
            Err(_) => self.failed += 1,
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.inline += other.inline;
        self.batched += other.batched;
        self.failed += other.failed;
        for (size, count) in self.sizes.iter_mut().zip(other.sizes) {
            *size += count;
        }
    }
}

/// The result of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The token under which it was submitted.
    pub token: u64,
    /// The signature, or why there is none.
    pub result: Result<Signature, SignError>,
}

/// A signature, in the form that TLS sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    octets: Vec<u8>,
    /// Whether it was made or verified here.
    is_trusted: bool,
}

/// Identifies a provider, by a number that the caller chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderId(pub u16);

/// Why there is no signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum SignError {
    /// The handshake that waited for it is gone.
    #[error("the handshake is gone")]
    Cancelled,
    /// The provider could not make it.
    #[error("it could not be made")]
    Failed,
    /// The key is elsewhere, and it was to be made here: too many handshakes wait already, or it is
    /// a client that would have to wait, which it cannot.
    #[error("the key is elsewhere, and the handshake cannot wait for it")]
    KeyElsewhere,
    /// The provider has too many jobs.
    #[error("too many are asked for")]
    Refused,
    /// It took too long.
    #[error("it took too long")]
    TimedOut,
    /// The provider's signature does not verify with the certificate's key. It was not sent.
    #[error("it is wrong")]
    Wrong,
}

impl SignError {
    /// The error's label in metrics, of a closed set.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Cancelled => "signature_cancelled",
            Self::Failed => "signature_failed",
            Self::KeyElsewhere => "signature_key_elsewhere",
            Self::Refused => "signature_refused",
            Self::TimedOut => "signature_timed_out",
            Self::Wrong => "signature_wrong",
        }
    }
}

impl Signature {
    /// A signature that was made elsewhere. It is verified before it is sent.
    #[must_use]
    pub fn from_elsewhere(octets: Vec<u8>) -> Self {
        Self { octets, is_trusted: false }
    }

    /// The signature's octets, as TLS sends them.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// A signature that was made here by aws-lc, or was verified.
    fn trusted(octets: Vec<u8>) -> Self {
        Self { octets, is_trusted: true }
    }
}
