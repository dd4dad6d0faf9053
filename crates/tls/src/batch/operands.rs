//! The operands of eight operations, and the verification that every signature has to pass.

use zeroize::Zeroize;

use super::Fault;
use super::columns::{self, Block, Column, Columns, LANES};
use super::key::{Prime, PrivateKey};
use super::limbs::{self, Limbs};
use super::processor::Avx512Ifma;

/// Eight keys and messages, in `H` blocks for what is as long as a prime and `F` for what is as
/// long as a modulus. Wiped when it goes.
pub(super) struct Operands<const H: usize, const F: usize> {
    pub(super) primes: [PrimeOperands<H>; 2],
    /// `R / q mod p`.
    pub(super) coefficient: Columns<H>,
    pub(super) modulus: Columns<F>,
    pub(super) inverse: Column,
    pub(super) square: Columns<F>,
    pub(super) public_exponent: Column,
    pub(super) message: Columns<F>,
}

/// The part of each lane's key that belongs to one of its primes.
pub(super) struct PrimeOperands<const H: usize> {
    pub(super) modulus: Columns<H>,
    pub(super) inverse: Column,
    /// `R²`, reduced.
    pub(super) square: Columns<H>,
    /// `R³`, reduced.
    pub(super) cube: Columns<H>,
    pub(super) exponent: Columns<H>,
}

/// How the two primes of a key are worked on. Which it is depends on the number of operations only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// The first primes of all lanes, then the second.
    OneByOne,
    /// At once: the first primes of four operations in the lower lanes, the second in the upper.
    /// In half the time.
    SideBySide,
}

/// The answer of one lane.
pub(super) struct Answer {
    /// As long as the modulus. Whatever was there before, unless the signature was verified.
    pub(super) bytes: Vec<u8>,
    pub(super) is_verified: bool,
}

impl Answer {
    /// The signature, if it was verified.
    pub(super) fn signature(&self) -> Result<&[u8], Fault> {
        self.is_verified.then_some(self.bytes.as_slice()).ok_or(Fault)
    }
}

/// The signatures, and their powers with the public exponent.
pub(super) struct Outcome<const F: usize> {
    pub(super) signature: Columns<F>,
    pub(super) message: Columns<F>,
}

impl<const H: usize, const F: usize> Operands<H, F> {
    pub(super) fn new() -> Self {
        Self {
            primes: [PrimeOperands::new(), PrimeOperands::new()],
            coefficient: columns::zero(),
            modulus: columns::zero(),
            inverse: Column::default(),
            square: columns::zero(),
            public_exponent: Column::default(),
            message: columns::zero(),
        }
    }

    /// Puts an operation into a lane. The key has the size that the blocks are for, and the message
    /// is less than its modulus.
    pub(super) fn set(&mut self, lane: usize, key: &PrivateKey, message: &Limbs) {
        for (operands, prime) in self.primes.iter_mut().zip(&key.primes) {
            operands.set(lane, prime);
        }
        columns::set_lane(&mut self.coefficient, lane, &key.coefficient);
        columns::set_lane(&mut self.modulus, lane, &key.modulus.limbs);
        self.inverse.set(lane, key.modulus.inverse);
        columns::set_lane(&mut self.square, lane, &key.modulus.square);
        self.public_exponent.set(lane, key.public_exponent);
        columns::set_lane(&mut self.message, lane, message);
    }

    /// Works out the lanes of `answers`, the first ones, and wipes the operands. Unfilled lanes
    /// repeat the first.
    pub(super) fn run(&mut self, processor: Avx512Ifma, answers: &mut [Answer]) {
        self.repeat_first(answers.len());
        let arrangement = if answers.len() > LANES / 2 {
            Arrangement::OneByOne
        } else {
            self.put_side_by_side();
            Arrangement::SideBySide
        };
        let outcome = processor.run(self, arrangement);
        for (lane, answer) in answers.iter_mut().enumerate() {
            answer.is_verified = is_same(&outcome.message, &self.message, lane);
            // A signature that does not verify may give a prime away (Boneh, DeMillo and Lipton,
            // 1997).
            if answer.is_verified {
                limbs::to_be_bytes(columns::lane(&outcome.signature, lane), &mut answer.bytes);
            }
        }
        self.zeroize();
    }

    fn repeat_first(&mut self, used: usize) {
        self.primes.iter_mut().for_each(|prime| prime.repeat_first(used));
        columns::repeat_first(&mut self.coefficient, used);
        columns::repeat_first(&mut self.modulus, used);
        self.inverse.repeat_first(used);
        columns::repeat_first(&mut self.square, used);
        self.public_exponent.repeat_first(used);
        columns::repeat_first(&mut self.message, used);
    }

    /// Gives the upper lanes of the first prime what the lower lanes of the second have.
    fn put_side_by_side(&mut self) {
        let [first, second] = &mut self.primes;
        first.set_upper_half(second);
        let message = self.message;
        columns::set_upper_half(&mut self.message, &message);
    }
}

impl<const H: usize, const F: usize> Zeroize for Operands<H, F> {
    fn zeroize(&mut self) {
        let Self { primes, coefficient, modulus, inverse, square, public_exponent, message } = self;
        primes.zeroize();
        coefficient.zeroize();
        modulus.zeroize();
        inverse.zeroize();
        square.zeroize();
        public_exponent.zeroize();
        message.zeroize();
    }
}

impl<const H: usize, const F: usize> Drop for Operands<H, F> {
    fn drop(&mut self) {
        self.zeroize();
    }
}

/// Wipes the outcome: a signature that did not verify would give a prime away.
impl<const F: usize> Drop for Outcome<F> {
    fn drop(&mut self) {
        self.signature.zeroize();
    }
}

impl<const H: usize> PrimeOperands<H> {
    fn new() -> Self {
        Self {
            modulus: columns::zero(),
            inverse: Column::default(),
            square: columns::zero(),
            cube: columns::zero(),
            exponent: columns::zero(),
        }
    }

    fn set(&mut self, lane: usize, prime: &Prime) {
        columns::set_lane(&mut self.modulus, lane, &prime.modulus.limbs);
        self.inverse.set(lane, prime.modulus.inverse);
        columns::set_lane(&mut self.square, lane, &prime.modulus.square);
        columns::set_lane(&mut self.cube, lane, &prime.cube);
        columns::set_lane(&mut self.exponent, lane, &prime.exponent);
    }

    fn repeat_first(&mut self, used: usize) {
        columns::repeat_first(&mut self.modulus, used);
        self.inverse.repeat_first(used);
        columns::repeat_first(&mut self.square, used);
        columns::repeat_first(&mut self.cube, used);
        columns::repeat_first(&mut self.exponent, used);
    }

    fn set_upper_half(&mut self, other: &Self) {
        columns::set_upper_half(&mut self.modulus, &other.modulus);
        self.inverse.set_upper_half(&other.inverse);
        columns::set_upper_half(&mut self.square, &other.square);
        columns::set_upper_half(&mut self.cube, &other.cube);
        columns::set_upper_half(&mut self.exponent, &other.exponent);
    }
}

impl<const H: usize> Zeroize for PrimeOperands<H> {
    fn zeroize(&mut self) {
        let Self { modulus, inverse, square, cube, exponent } = self;
        modulus.zeroize();
        inverse.zeroize();
        square.zeroize();
        cube.zeroize();
        exponent.zeroize();
    }
}

/// Whether two numbers are the same in one lane, looking at all of them.
fn is_same(left: &[Block], right: &[Block], lane: usize) -> bool {
    let pairs = columns::lane(left, lane).zip(columns::lane(right, lane));
    pairs.fold(0, |differences, (left, right)| differences | (left ^ right)) == 0
}
