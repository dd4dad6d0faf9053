//! Up to eight RSA signatures in one pass of AVX-512 IFMA instructions.
//!
//! For servers with RSA certificates that do many handshakes at once: the caller submits what each
//! handshake has to sign, runs the batch when it is full or when nothing else is to be done, and
//! continues each handshake. This module does not depend on handshakes, and the caller decides how
//! long to wait. Where [`Batch::new`] gives `None`, or a key is refused, or a
//! signature does not verify, sign in the usual way.
//!
//! # Costs
//!
//! Median microseconds on an AMD EPYC of the fifth generation, `cargo bench -p tls`, PSS, SHA-256:
//!
//! | | RSA-2048 | RSA-3072 | RSA-4096 |
//! |---|---|---|---|
//! | one signature by aws-lc-rs, itself in these instructions | 232 | 666 | 1,454 |
//! | a batch of one to four | 298 | 930 | 2,220 |
//! | a batch of five to eight | 583 | 1,840 | 4,405 |
//! | each of eight | 73 | 230 | 551 |
//!
//! Unused lanes cost the same as used ones. From four operations down, the two halves of each
//! (the key's two primes) stand side by side, which takes half the time. So two operations are
//! worth a batch already ([`Batch::OPERATIONS_WORTHWHILE`]) and one is not. Five are best done as
//! four in a batch and one alone, by little; six, seven or eight in one batch.
//!
//! A run keeps its thread busy for 0.6, 1.8 or 4.4 ms, in which no other event is served.
//!
//! # Side channels
//!
//! The kernel is constant in time: which instructions run and which memory they touch depends on the
//! size of the keys, the number of operations and the public exponents. Exponents are read in fixed
//! windows, powers by reading the whole table and masking, reductions have no conditional
//! subtraction but one by mask. This was checked in the compiled code (no value of a vector register
//! reaches a flag, a mask register or an address, but for public exponents), and
//! `tests/constant_time.rs` measures it.
//!
//! Every signature is verified with the public exponent before it leaves, because a wrong result of
//! one prime gives the key away (Boneh, DeMillo and Lipton, 1997).
//!
//! Messages are not blinded. Blinding hides the base from an attacker who measures time, which does
//! not depend on the base here; against an attacker who measures power or fields at the machine,
//! the exponents would need blinding too. The input, moreover, is not the peer's
//! choice: it is a hash, with PSS a salted one. docs/THREAT_MODEL.md says what remains.

mod columns;
#[cfg(test)]
mod crypto_mb;
#[cfg(target_arch = "x86_64")]
mod kernel;
mod key;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod limbs;
mod operands;
mod padding;
mod processor;
#[cfg(test)]
mod tests;

use std::fmt;

pub use key::{KeyError, KeySize, PrivateKey};
pub use padding::{NoRandomness, Scheme};

use columns::LANES;
use limbs::Limbs;
use operands::{Answer, Operands};
use processor::Avx512Ifma;

/// Operations that wait for each other. `Id` is whatever the caller knows them by.
pub struct Batch<Id> {
    processor: Avx512Ifma,
    size: KeySize,
    operands: SizedOperands,
    ids: Vec<Id>,
    answers: [Answer; LANES],
}

/// Operands of one size.
enum SizedOperands {
    Rsa2048(Box<Operands<4, 8>>),
    Rsa3072(Box<Operands<6, 12>>),
    Rsa4096(Box<Operands<8, 16>>),
}

/// Why an operation did not join a batch. The batch is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Run it first.
    #[error("is full")]
    Full,
    /// There were no random bytes for a salt.
    #[error("has no random bytes for a salt")]
    NoRandomness,
    /// The key has another size than the batch.
    #[error("is for keys of {expected:?}, not {found:?}")]
    Size {
        /// That of the batch.
        expected: KeySize,
        /// That of the key.
        found: KeySize,
    },
}

/// A signature did not verify and was not let out. Sign in another way; if it happens again, the
/// key in memory or the processor is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signature did not verify")]
pub struct Fault;

/// Whether the processor has the instructions.
#[must_use]
pub fn is_available() -> bool {
    Avx512Ifma::detect().is_some()
}

impl<Id> Batch<Id> {
    /// Operations that a batch takes.
    pub const OPERATIONS_MAX: usize = LANES;

    /// Fewer are better signed one by one. By the table above it is the same for all sizes.
    pub const OPERATIONS_WORTHWHILE: usize = 2;

    /// An empty batch for keys of a size, or `None` where the processor lacks the instructions.
    #[must_use]
    pub fn new(size: KeySize) -> Option<Self> {
        let answer = || Answer { bytes: vec![0; size.bytes()], is_verified: false };
        Some(Self {
            processor: Avx512Ifma::detect()?,
            size,
            operands: SizedOperands::new(size),
            ids: Vec::with_capacity(LANES),
            answers: std::array::from_fn(|_| answer()),
        })
    }

    /// The size of keys that it takes.
    #[must_use]
    pub fn size(&self) -> KeySize {
        self.size
    }

    /// Operations that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no operation waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether the next operation has to wait for a run.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() == Self::OPERATIONS_MAX
    }

    /// Adds the signing of `message`. What it needs of the key is copied, and wiped with the run.
    ///
    /// # Errors
    ///
    /// When the batch is full, the key has another size, or there is no salt to be had.
    pub fn submit(
        &mut self,
        id: Id,
        key: &PrivateKey,
        scheme: Scheme,
        message: &[u8],
    ) -> Result<(), SubmitError> {
        if self.is_full() {
            return Err(SubmitError::Full);
        }
        if key.size() != self.size {
            return Err(SubmitError::Size { expected: self.size, found: key.size() });
        }
        let mut encoded = vec![0; self.size.bytes()];
        scheme.encode(message, &mut encoded).map_err(|NoRandomness| SubmitError::NoRandomness)?;
        self.push(id, key, &encoded);
        Ok(())
    }

    /// Works out what waits and leaves the batch empty. Answers come in the order of submission;
    /// a signature that is there is right, and stays until the next run.
    pub fn run(&mut self) -> impl ExactSizeIterator<Item = (Id, Result<&[u8], Fault>)> {
        let (answers, _) = self.answers.split_at_mut(self.ids.len());
        if !answers.is_empty() {
            self.operands.run(self.processor, answers);
        }
        self.ids.drain(..).zip(answers.iter().map(Answer::signature))
    }

    /// Adds an operation on an encoded message that is less than the modulus, where there is room.
    fn push(&mut self, id: Id, key: &PrivateKey, encoded: &[u8]) {
        let Some(message) = limbs::from_be_bytes(encoded, self.size.limbs()) else { return };
        self.operands.set(self.ids.len(), key, &message);
        self.ids.push(id);
    }
}

/// Without the operands, which are secret.
impl<Id: fmt::Debug> fmt::Debug for Batch<Id> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Batch");
        shown.field("size", &self.size).field("ids", &self.ids).finish_non_exhaustive()
    }
}

impl SizedOperands {
    fn new(size: KeySize) -> Self {
        match size {
            KeySize::Rsa2048 => Self::Rsa2048(Box::new(Operands::new())),
            KeySize::Rsa3072 => Self::Rsa3072(Box::new(Operands::new())),
            KeySize::Rsa4096 => Self::Rsa4096(Box::new(Operands::new())),
        }
    }

    fn set(&mut self, lane: usize, key: &PrivateKey, message: &Limbs) {
        match self {
            Self::Rsa2048(operands) => operands.set(lane, key, message),
            Self::Rsa3072(operands) => operands.set(lane, key, message),
            Self::Rsa4096(operands) => operands.set(lane, key, message),
        }
    }

    fn run(&mut self, processor: Avx512Ifma, answers: &mut [Answer]) {
        match self {
            Self::Rsa2048(operands) => operands.run(processor, answers),
            Self::Rsa3072(operands) => operands.run(processor, answers),
            Self::Rsa4096(operands) => operands.run(processor, answers),
        }
    }
}
