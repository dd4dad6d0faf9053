//! Eight private-key operations in one pass: `s = m^d mod n` by the Chinese remainder theorem, and
//! `s^e mod n` to see that it is right.
//!
//! In every lane: the message to the power of the first exponent modulo the first prime, the same
//! for the second, and the two put together by Garner's formula. The lanes take the same steps, so
//! that how long it takes depends on the size of the keys and on public exponents, nothing else.

use std::arch::x86_64::{
    __m512i, _mm_cvtsi64_si128, _mm512_and_si512, _mm512_reduce_or_epi64, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_srl_epi64, _mm512_sub_epi64,
};

use zeroize::{Zeroize, Zeroizing};

use super::columns::{BLOCK_LIMBS, LIMB_BITS};
use super::lanes::{
    Field, Number, add, choose, load, load_column, multiply_whole, one, select, store,
    subtract_within, swap_halves, zero,
};
use super::operands::{Arrangement, Operands, Outcome, PrimeOperands};

/// Bits of an exponent that are looked up at once. Five would save a multiplication for each twenty
/// bits and read a table of twice the size for each five, which cancels out, and do not divide a
/// limb.
const WINDOW_BITS: usize = 4;

/// Powers of the message that are kept.
const TABLE_LEN: usize = 1 << WINDOW_BITS;

/// Works out all lanes, or the lower half of them.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn run<const H: usize, const F: usize>(
    operands: &Operands<H, F>,
    arrangement: Arrangement,
) -> Outcome<F> {
    let message = load(&operands.message);
    let [p, q] = &operands.primes;
    let mut field = Field::new(&p.modulus, &p.inverse);
    let mut quotient = Zeroizing::new(power(&mut field, p, &message));
    let rest = Zeroizing::new(match arrangement {
        Arrangement::OneByOne => power(&mut Field::new(&q.modulus, &q.inverse), q, &message),
        Arrangement::SideBySide => swap_halves(&quotient),
    });

    // s = rest + q ((quotient - rest) / q mod p). Both primes have the same number of bits, so that
    // rest < q < 2p, and the difference is between 0 and 3p.
    subtract_within(&mut quotient, &rest, field.modulus());
    field.multiply(&mut quotient, &load(&operands.coefficient));
    field.subtract_once(&mut quotient);
    let signature: Zeroizing<Number<F>> =
        Zeroizing::new(multiply_whole(&quotient, &load(&q.modulus), &rest));

    Outcome { signature: store(&signature), message: store(&verify(operands, &signature)) }
}

/// The message to the power of the prime's exponent, modulo the prime.
#[target_feature(enable = "avx512f,avx512ifma")]
fn power<const H: usize, const F: usize>(
    field: &mut Field<H>,
    prime: &PrimeOperands<H>,
    message: &Number<F>,
) -> Number<H> {
    let square = load(&prime.square);
    let exponent = Zeroizing::new(load(&prime.exponent));
    let base = Zeroizing::new(reduce_message(field, prime, &square, message));
    let mut table = Zeroizing::new([zero::<H>(); TABLE_LEN]);
    fill_table(field, &mut table, &square, &base);

    let windows = half_bits(H) / WINDOW_BITS;
    let mut result = select(&table, window(&exponent, windows - 1));
    for place in (0..windows - 1).rev() {
        for _ in 0..WINDOW_BITS {
            field.square(&mut result);
        }
        field.multiply(&mut result, &select(&table, window(&exponent, place)));
    }
    field.take_out(&mut result);
    result
}

/// The message modulo the prime, in Montgomery's form, less than four times the prime.
#[target_feature(enable = "avx512f,avx512ifma")]
fn reduce_message<const H: usize, const F: usize>(
    field: &mut Field<H>,
    prime: &PrimeOperands<H>,
    square: &Number<H>,
    message: &Number<F>,
) -> Number<H> {
    const { assert!(F == 2 * H) };
    let mut halves = [zero::<H>(); 2];
    halves.as_flattened_mut().copy_from_slice(message);
    let [low, high] = &mut halves;
    // Each half is less than R, and what it is multiplied with less than the prime, so that each
    // product is less than (Rm + Rm) / R.
    field.multiply(low, square);
    field.multiply(high, &load(&prime.cube));
    add(low, high);
    let sum = *low;
    halves.zeroize();
    sum
}

/// Fills in the powers of `base` from the zeroth on, in Montgomery's form.
#[target_feature(enable = "avx512f,avx512ifma")]
fn fill_table<const H: usize>(
    field: &mut Field<H>,
    table: &mut [Number<H>; TABLE_LEN],
    square: &Number<H>,
    base: &Number<H>,
) {
    let mut power = *square;
    field.multiply(&mut power, &one());
    let [first, rest @ ..] = table;
    *first = power;
    for entry in rest {
        field.multiply(&mut power, base);
        *entry = power;
    }
    power.zeroize();
}

/// The window of each lane's exponent at a place, counted from the least significant.
#[target_feature(enable = "avx512f,avx512ifma")]
fn window<const H: usize>(exponent: &Number<H>, place: usize) -> __m512i {
    const { assert!(LIMB_BITS.is_multiple_of(WINDOW_BITS)) };
    let limbs = exponent.as_flattened();
    let bit = place * WINDOW_BITS;
    let Some(limb) = limbs.get(bit / LIMB_BITS) else { return _mm512_setzero_si512() };
    let below = i64::try_from(bit % LIMB_BITS).unwrap_or_default();
    let shifted = _mm512_srl_epi64(*limb, _mm_cvtsi64_si128(below));
    _mm512_and_si512(shifted, _mm512_set1_epi64((1 << WINDOW_BITS) - 1))
}

/// The signature to the power of the public exponent. Branches on public exponents only.
#[target_feature(enable = "avx512f,avx512ifma")]
fn verify<const H: usize, const F: usize>(
    operands: &Operands<H, F>,
    signature: &Number<F>,
) -> Number<F> {
    let exponents = load_column(&operands.public_exponent);
    let bits = u64::BITS - _mm512_reduce_or_epi64(exponents).leading_zeros();
    let mut field = Field::new(&operands.modulus, &operands.inverse);
    let square = load(&operands.square);
    let mut base = *signature;
    field.multiply(&mut base, &square);
    let mut result = square;
    field.multiply(&mut result, &one());
    for bit in (0..bits).rev() {
        field.square(&mut result);
        let shifted = _mm512_srl_epi64(exponents, _mm_cvtsi64_si128(i64::from(bit)));
        let digits = _mm512_and_si512(shifted, _mm512_set1_epi64(1));
        if _mm512_reduce_or_epi64(digits) == 0 {
            continue;
        }
        let mask = _mm512_sub_epi64(_mm512_setzero_si512(), digits);
        let mut multiplied = result;
        field.multiply(&mut multiplied, &base);
        let pairs = result.as_flattened_mut().iter_mut().zip(multiplied.as_flattened());
        for (limb, multiplied) in pairs {
            *limb = choose(mask, *multiplied, *limb);
        }
    }
    field.take_out(&mut result);
    result
}

/// Bits of a prime whose number has so many blocks: 1024 in four, 1536 in six, 2048 in eight.
const fn half_bits(blocks: usize) -> usize {
    blocks * (BLOCK_LIMBS * LIMB_BITS - 4)
}
