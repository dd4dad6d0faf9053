//! One number as limbs of 52 bits: what happens to a key once, when it is loaded.
//!
//! Plain and slow. It takes the same steps for all numbers, although an attacker cannot make it run
//! repeatedly.

use zeroize::Zeroizing;

use super::columns::{LIMB_BITS, LIMB_MASK};

/// A number, the least significant limb first. Wiped when it goes.
pub(super) type Limbs = Zeroizing<Vec<u64>>;

/// An odd modulus, and what Montgomery's way of multiplying needs to know of it. `R` stands for
/// two to the power of as many bits as its limbs have.
pub(super) struct Modulus {
    pub(super) limbs: Limbs,
    /// The factor by which the modulus gives -1, modulo a limb.
    pub(super) inverse: u64,
    /// `R²`, reduced.
    pub(super) square: Limbs,
}

impl Modulus {
    /// Takes a number that is odd and has at least one bit less than its limbs could hold.
    pub(super) fn new(limbs: Limbs) -> Self {
        let inverse = negative_inverse(limbs.first().copied().unwrap_or_default());
        let square = shift(&one(limbs.len()), 2 * limbs.len() * LIMB_BITS, &limbs);
        Self { limbs, inverse, square }
    }

    /// `number` times `R`, reduced; `number` is less than the modulus.
    pub(super) fn to_montgomery(&self, number: &Limbs) -> Limbs {
        shift(number, self.limbs.len() * LIMB_BITS, &self.limbs)
    }
}

/// Reads a big-endian number, unless it needs more limbs than `len`.
pub(super) fn from_be_bytes(bytes: &[u8], len: usize) -> Option<Limbs> {
    let mut limbs: Limbs = Zeroizing::new(vec![0; len]);
    for (index, byte) in bytes.iter().rev().enumerate() {
        let (limb, offset) = (index * 8 / LIMB_BITS, index * 8 % LIMB_BITS);
        let bits = u128::from(*byte) << offset;
        let low = u64::try_from(bits & u128::from(LIMB_MASK)).ok()?;
        let high = u64::try_from(bits >> LIMB_BITS).ok()?;
        add_to(&mut limbs, limb, low)?;
        add_to(&mut limbs, limb + 1, high)?;
    }
    Some(limbs)
}

/// Sets bits of a limb. One that is not there takes nothing but zero.
fn add_to(limbs: &mut Limbs, index: usize, bits: u64) -> Option<()> {
    match limbs.get_mut(index) {
        Some(limb) => *limb |= bits,
        None if bits == 0 => {}
        None => return None,
    }
    Some(())
}

/// Writes the number's last bytes, big-endian.
pub(super) fn to_be_bytes(limbs: impl Iterator<Item = u64>, bytes: &mut [u8]) {
    let (mut pending, mut pending_bits) = (0_u128, 0);
    let mut limbs = limbs.fuse();
    for byte in bytes.iter_mut().rev() {
        if pending_bits < 8 {
            pending |= u128::from(limbs.next().unwrap_or_default()) << pending_bits;
            pending_bits += LIMB_BITS;
        }
        *byte = u8::try_from(pending & 0xff).unwrap_or_default();
        pending >>= 8;
        pending_bits -= 8;
    }
}

/// One, in `len` limbs.
pub(super) fn one(len: usize) -> Limbs {
    let mut limbs = Zeroizing::new(vec![0; len]);
    limbs.iter_mut().take(1).for_each(|limb| *limb = 1);
    limbs
}

/// `number` times two to the power of `bits`, modulo `modulus`. `number` is less than it.
fn shift(number: &Limbs, bits: usize, modulus: &Limbs) -> Limbs {
    let mut shifted = number.clone();
    for _ in 0..bits {
        double(&mut shifted, modulus);
    }
    shifted
}

/// Doubles `number` and takes the modulus away once if it is in there.
fn double(number: &mut Limbs, modulus: &Limbs) {
    let mut carry = 0;
    for limb in number.iter_mut() {
        let doubled = (*limb << 1) | carry;
        *limb = doubled & LIMB_MASK;
        carry = doubled >> LIMB_BITS;
    }
    // First only the borrow, so that nothing has to be put back.
    let borrow = number.iter().zip(modulus.iter()).fold(0, |borrow, (limb, taken)| {
        limb.wrapping_sub(*taken).wrapping_sub(borrow) >> (u64::BITS - 1)
    });
    let is_in_there = borrow.wrapping_sub(1);
    let mut borrow = 0;
    for (limb, taken) in number.iter_mut().zip(modulus.iter()) {
        let difference = limb.wrapping_sub(taken & is_in_there).wrapping_sub(borrow);
        borrow = difference >> (u64::BITS - 1);
        *limb = difference & LIMB_MASK;
    }
}

/// Newton's iteration: each step doubles the bits that are right, of which an odd number has three.
fn negative_inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
    }
    inverse.wrapping_neg() & LIMB_MASK
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn big(limbs: &Limbs) -> BigUint {
        limbs.iter().rev().fold(BigUint::ZERO, |number, limb| (number << LIMB_BITS) + limb)
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in vec(any::<u8>(), 0..70)) {
            let limbs = from_be_bytes(&bytes, 11).unwrap();
            prop_assert_eq!(big(&limbs), BigUint::from_bytes_be(&bytes));
            let mut written = vec![0xaa; bytes.len()];
            to_be_bytes(limbs.iter().copied(), &mut written);
            prop_assert_eq!(written, bytes);
        }

        #[test]
        fn constants_are_what_they_are_said_to_be(
            mut bytes in vec(any::<u8>(), 31..32),
            other in vec(any::<u8>(), 31..32),
        ) {
            bytes[30] |= 1;
            bytes[0] |= 0x80;
            let modulus = Modulus::new(from_be_bytes(&bytes, 5).unwrap());
            let n = big(&modulus.limbs);
            let r = BigUint::from(1_u8) << (5 * LIMB_BITS);
            prop_assert_eq!(big(&modulus.square), (&r * &r) % &n);
            let negative_one = modulus.limbs[0].wrapping_mul(modulus.inverse) & LIMB_MASK;
            prop_assert_eq!(negative_one, LIMB_MASK);
            let other = BigUint::from_bytes_be(&other) % &n;
            let limbs = from_be_bytes(&other.to_bytes_be(), 5).unwrap();
            prop_assert_eq!(big(&modulus.to_montgomery(&limbs)), (other * r) % n);
        }
    }

    #[test]
    fn a_number_that_is_too_long_is_refused() {
        assert!(from_be_bytes(&[0xff; 13], 2).is_some());
        assert!(from_be_bytes(&[0x01; 14], 2).is_none());
        assert!(from_be_bytes(&[0; 20], 2).is_some(), "zeros in front do not count");
        assert!(from_be_bytes(&[0xff; 27], 4).is_none());
        assert!(from_be_bytes(&[0xff; 26], 4).is_some());
    }
}
