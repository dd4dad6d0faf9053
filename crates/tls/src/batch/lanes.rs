//! Arithmetic on eight numbers at once, modulo eight numbers, in AVX-512 IFMA instructions.
//!
//! The instructions multiply limbs of 52 bits and add the low or the high half of the product to a
//! 64-bit sum, which has room for 4,096 such halves before it must be carried. So a product is
//! added up whole, reduced whole, and carried once.
//!
//! Numbers are *almost* reduced between multiplications. `R` is two to the power of all bits of a
//! number's limbs, and every modulus leaves at least 16 of them unused: `m < R / 2^16`. For
//! `x, y < 256 m`, Montgomery's reduction gives `(xy + (R - 1) m) / R < 2m`. Nothing is subtracted
//! until a result is taken out, and there it happens by mask.
//!
//! Nothing here branches on what a number holds, or chooses an address by it: loops run over limbs.

#![expect(clippy::indexing_slicing, reason = "indices are constants, or loops over fixed lengths")]

use std::arch::x86_64::{
    __m512i, _mm256_extract_epi64, _mm512_add_epi64, _mm512_and_si512, _mm512_andnot_si512,
    _mm512_extracti64x4_epi64, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64, _mm512_or_si512,
    _mm512_set_epi64, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_shuffle_i64x2,
    _mm512_srai_epi64, _mm512_srli_epi64, _mm512_sub_epi64, _mm512_xor_si512,
};

use std::array;
use std::hint::black_box;

use zeroize::Zeroize;

use super::columns::{self, BLOCK_LIMBS, Column, LIMB_MASK};

/// Bits of a limb, as the instructions want a number of bits.
const LIMB_BITS: u32 = LIMB_MASK.count_ones();

/// Five limbs of each lane, in registers.
pub(super) type Block = [__m512i; BLOCK_LIMBS];

/// Two blocks side by side, while products are added to them.
type Columns = [__m512i; 2 * BLOCK_LIMBS];

/// A number of `B` blocks in each lane. Every limb is less than 2^52.
pub(super) type Number<const B: usize> = [Block; B];

/// A modulus in each lane, and the room to work. Wiped when it goes.
pub(super) struct Field<const B: usize> {
    modulus: Number<B>,
    /// `-1 / modulus`, modulo a limb.
    inverse: __m512i,
    /// A product while it is added up: limbs that are not carried yet.
    sum: [Number<B>; 2],
    /// Twice what is squared.
    doubled: Number<B>,
}

impl<const B: usize> Field<B> {
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn new(modulus: &columns::Columns<B>, inverse: &Column) -> Self {
        Self {
            modulus: load(modulus),
            inverse: load_column(inverse),
            sum: [zero(); 2],
            doubled: zero(),
        }
    }

    /// The moduli.
    pub(super) fn modulus(&self) -> &Number<B> {
        &self.modulus
    }

    /// `x = x * y / R`.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn multiply(&mut self, x: &mut Number<B>, y: &Number<B>) {
        let Self { modulus, inverse, sum, .. } = self;
        let sum = sum.as_flattened_mut();
        add_row(sum, 0, x, &y[0]);
        for place in 0..B {
            let quotients = clear_block(&mut sum[place..], &modulus[0], *inverse);
            // The next row does not need the quotients, and is something to do until they are there.
            if let Some(factor) = y.get(place + 1) {
                add_row(&mut sum[place + 1..], B, x, factor);
            }
            add_row(&mut sum[place + 1..], B, &modulus[1..], &quotients);
        }
        carry(x, &sum[B..]);
    }

    /// `x = x * x / R`, in three quarters of the instructions.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn square(&mut self, x: &mut Number<B>) {
        let Self { modulus, inverse, sum, doubled } = self;
        let sum = sum.as_flattened_mut();
        double(doubled, x);
        add_square_row(sum, 0, &x[0], doubled_behind(doubled, 0));
        for place in 0..B {
            let quotients = clear_block(&mut sum[place..], &modulus[0], *inverse);
            let next = place + 1;
            if let Some(factor) = x.get(next) {
                let doubled = doubled_behind(doubled, next);
                add_square_row(&mut sum[2 * next..], B - next, factor, doubled);
            }
            add_row(&mut sum[next..], B, &modulus[1..], &quotients);
        }
        carry(x, &sum[B..]);
    }

    /// `x = x / R`, out of Montgomery's form and wholly reduced.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn take_out(&mut self, x: &mut Number<B>) {
        // Of x < 2m, (x + (R - 1) m) / R is at most m.
        self.multiply(x, &one());
        self.subtract_once(x);
    }

    /// Less than the modulus, out of less than twice the modulus.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn subtract_once(&self, x: &mut Number<B>) {
        let mut difference = *x;
        let mut borrow = _mm512_setzero_si512();
        let pairs = difference.as_flattened_mut().iter_mut().zip(self.modulus.as_flattened());
        for (limb, taken) in pairs {
            borrow = settle(limb, _mm512_add_epi64(_mm512_sub_epi64(*limb, *taken), borrow));
        }
        // All ones in lanes that were less than their modulus already, zero in the others.
        let keep = borrow;
        let pairs = x.as_flattened_mut().iter_mut().zip(difference.as_flattened());
        for (limb, difference) in pairs {
            *limb = choose(keep, *limb, *difference);
        }
        difference.zeroize();
    }
}

impl<const B: usize> Drop for Field<B> {
    fn drop(&mut self) {
        self.modulus.zeroize();
        self.inverse.zeroize();
        self.sum.zeroize();
        self.doubled.zeroize();
    }
}

/// Reads eight numbers.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn load<const B: usize>(columns: &columns::Columns<B>) -> Number<B> {
    let mut number = zero();
    let pairs = number.as_flattened_mut().iter_mut().zip(columns.as_flattened());
    for (limb, column) in pairs {
        *limb = load_column(column);
    }
    number
}

/// Reads one limb of each lane.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn load_column(column: &Column) -> __m512i {
    let [a, b, c, d, e, f, g, h] = column.0.map(u64::cast_signed);
    _mm512_set_epi64(h, g, f, e, d, c, b, a)
}

/// Writes eight numbers.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn store<const B: usize>(number: &Number<B>) -> columns::Columns<B> {
    let mut columns = columns::zero();
    let pairs = columns.as_flattened_mut().iter_mut().zip(number.as_flattened());
    for (column, limb) in pairs {
        let low = _mm512_extracti64x4_epi64::<0>(*limb);
        let high = _mm512_extracti64x4_epi64::<1>(*limb);
        let words = [
            _mm256_extract_epi64::<0>(low),
            _mm256_extract_epi64::<1>(low),
            _mm256_extract_epi64::<2>(low),
            _mm256_extract_epi64::<3>(low),
            _mm256_extract_epi64::<0>(high),
            _mm256_extract_epi64::<1>(high),
            _mm256_extract_epi64::<2>(high),
            _mm256_extract_epi64::<3>(high),
        ];
        column.0 = words.map(i64::cast_unsigned);
    }
    columns
}

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn zero_block() -> Block {
    [_mm512_setzero_si512(); BLOCK_LIMBS]
}

/// Zero in each lane.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn zero<const B: usize>() -> Number<B> {
    [[_mm512_setzero_si512(); BLOCK_LIMBS]; B]
}

/// One in each lane.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn one<const B: usize>() -> Number<B> {
    let mut number = zero();
    number[0][0] = _mm512_set1_epi64(1);
    number
}

/// `x + y`.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn add<const B: usize>(x: &mut Number<B>, y: &Number<B>) {
    let mut carried = _mm512_setzero_si512();
    for (limb, added) in x.as_flattened_mut().iter_mut().zip(y.as_flattened()) {
        carried = settle(limb, _mm512_add_epi64(_mm512_add_epi64(*limb, *added), carried));
    }
}

/// `x - y + 2 z`, which must not be less than zero.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn subtract_within<const B: usize>(x: &mut Number<B>, y: &Number<B>, z: &Number<B>) {
    let mut carried = _mm512_setzero_si512();
    let others = y.as_flattened().iter().zip(z.as_flattened());
    for (limb, (taken, added)) in x.as_flattened_mut().iter_mut().zip(others) {
        let raised = _mm512_add_epi64(*limb, _mm512_add_epi64(*added, *added));
        carried = settle(limb, _mm512_add_epi64(_mm512_sub_epi64(raised, *taken), carried));
    }
}

/// `x * y + z`, with twice the blocks.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn multiply_whole<const H: usize, const F: usize>(
    x: &Number<H>,
    y: &Number<H>,
    z: &Number<H>,
) -> Number<F> {
    const { assert!(F == 2 * H) };
    let mut sum: Number<F> = zero();
    sum[..H].copy_from_slice(z);
    for (place, factor) in y.iter().enumerate() {
        add_row(&mut sum[place..], H, x, factor);
    }
    let mut product = zero();
    carry(&mut product, &sum);
    sum.zeroize();
    product
}

/// Swaps the upper and the lower half of the lanes.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn swap_halves<const B: usize>(x: &Number<B>) -> Number<B> {
    let mut swapped = *x;
    for limb in swapped.as_flattened_mut() {
        *limb = _mm512_shuffle_i64x2::<0b01_00_11_10>(*limb, *limb);
    }
    swapped
}

/// The entry of `table` at each lane's own index: all of them are read, and all but one masked out.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn select<const B: usize, const N: usize>(
    table: &[Number<B>; N],
    index: __m512i,
) -> Number<B> {
    // The compiler is not to know what an index can be, and so cannot be clever with it.
    let index = black_box(index);
    let mut masks = [_mm512_setzero_si512(); N];
    let mut entry = _mm512_setzero_si512();
    for mask in &mut masks {
        *mask = is_equal(index, entry);
        entry = _mm512_add_epi64(entry, _mm512_set1_epi64(1));
    }
    let mut selected: Number<B> = zero();
    for (place, block) in selected.iter_mut().enumerate() {
        for (entry, mask) in table.iter().zip(&masks) {
            for (limb, candidate) in block.iter_mut().zip(&entry[place]) {
                *limb = _mm512_or_si512(*limb, _mm512_and_si512(*candidate, *mask));
            }
        }
    }
    selected
}

/// `x` where `mask` is all ones, `y` where it is zero.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn choose(mask: __m512i, x: __m512i, y: __m512i) -> __m512i {
    _mm512_or_si512(_mm512_and_si512(mask, x), _mm512_andnot_si512(mask, y))
}

/// All ones where `x` and `y`, both less than 2^63, are equal.
///
/// Arithmetic, not a comparison: a mask register would let the compiler turn the reading of a table
/// into masked loads, and a processor need not touch memory that is masked out.
#[target_feature(enable = "avx512f,avx512ifma")]
fn is_equal(x: __m512i, y: __m512i) -> __m512i {
    let less_one = _mm512_sub_epi64(_mm512_xor_si512(x, y), _mm512_set1_epi64(1));
    _mm512_srai_epi64::<63>(less_one)
}

/// Adds a row of a product, `x * factor`, to `row`, whose first `held` blocks hold sums; what lies
/// behind them is not read, but set.
#[target_feature(enable = "avx512f,avx512ifma")]
fn add_row(row: &mut [Block], held: usize, x: &[Block], factor: &Block) {
    let first = if held > 0 { row[0] } else { zero_block() };
    add_tiles(row, held, first, x, factor);
}

/// Adds a row of a square: `factor` times itself, and times the doubled blocks that follow it.
#[target_feature(enable = "avx512f,avx512ifma")]
fn add_square_row(row: &mut [Block], held: usize, factor: &Block, doubled: &[Block]) {
    let mut low = if held > 0 { row[0] } else { zero_block() };
    let mut high = if held > 1 { row[1] } else { zero_block() };
    add_block_square(&mut low, &mut high, factor);
    row[0] = low;
    add_tiles(&mut row[1..], held.saturating_sub(1), high, doubled, factor);
}

/// As [`add_row`], with `first` as the first block of `row`, whatever it holds in memory.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn add_tiles(row: &mut [Block], held: usize, first: Block, x: &[Block], factor: &Block) {
    let Some((mut place, rest)) = row.split_first_mut() else { return };
    let mut low = first;
    for (index, (block, next)) in (1..).zip(x.iter().zip(rest)) {
        let mut high = if index < held { *next } else { zero_block() };
        add_tile(&mut low, &mut high, block, factor);
        *place = low;
        (place, low) = (next, high);
    }
    *place = low;
}

/// Adds `x * y` to ten columns: 50 multiplications in 29 registers. Most of the time is spent here.
///
/// Low and high halves have sums of their own. A column gets up to nine halves, one after the other
/// at four cycles each, which is more than the 25 cycles that the tile should take.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn add_tile(low: &mut Block, high: &mut Block, x: &Block, y: &Block) {
    let mut lows = join(low, high);
    let mut highs = [_mm512_setzero_si512(); 10];
    add_limb::<0>(&mut lows, &mut highs, x, y[0]);
    add_limb::<1>(&mut lows, &mut highs, x, y[1]);
    add_limb::<2>(&mut lows, &mut highs, x, y[2]);
    add_limb::<3>(&mut lows, &mut highs, x, y[3]);
    add_limb::<4>(&mut lows, &mut highs, x, y[4]);
    (*low, *high) = split(&sum(&lows, &highs));
}

/// Adds `x * y`, `y` at the place `SHIFT`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn add_limb<const SHIFT: usize>(lows: &mut Columns, highs: &mut Columns, x: &Block, y: __m512i) {
    for (place, limb) in x.iter().enumerate() {
        let low = &mut lows[SHIFT + place];
        *low = _mm512_madd52lo_epu64(*low, *limb, y);
        let high = &mut highs[SHIFT + place + 1];
        *high = _mm512_madd52hi_epu64(*high, *limb, y);
    }
}

/// Adds `x * x` to ten columns, in 30 multiplications.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn add_block_square(low: &mut Block, high: &mut Block, x: &Block) {
    let zero = [_mm512_setzero_si512(); 10];
    let (mut lows, mut highs) = (zero, zero);
    for (first, x_first) in x.iter().enumerate() {
        for (second, x_second) in x.iter().enumerate().skip(first + 1) {
            let low = &mut lows[first + second];
            *low = _mm512_madd52lo_epu64(*low, *x_first, *x_second);
            let high = &mut highs[first + second + 1];
            *high = _mm512_madd52hi_epu64(*high, *x_first, *x_second);
        }
    }
    let pairs = sum(&lows, &highs);
    let mut columns = sum(&join(low, high), &sum(&pairs, &pairs));
    for (place, limb) in x.iter().enumerate() {
        columns[2 * place] = _mm512_madd52lo_epu64(columns[2 * place], *limb, *limb);
        columns[2 * place + 1] = _mm512_madd52hi_epu64(columns[2 * place + 1], *limb, *limb);
    }
    (*low, *high) = split(&columns);
}

/// The five quotients that clear the first block of `row` when the modulus times them is added. The
/// modulus' first block, times them, is added here, and what the block held is carried to the next.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn clear_block(row: &mut [Block], modulus: &Block, inverse: __m512i) -> Block {
    let zero = _mm512_setzero_si512();
    let mut quotients = [zero; BLOCK_LIMBS];
    let [low, high, ..] = row else { return quotients };
    let mut lows = join(low, high);
    let mut highs = [zero; 10];
    for (place, quotient) in quotients.iter_mut().enumerate() {
        let column = _mm512_add_epi64(lows[place], highs[place]);
        *quotient = _mm512_madd52lo_epu64(zero, column, inverse);
        // What would be added to the column makes its low bits zero, that is, rounds it up. So
        // what there is to carry is known before it is multiplied out.
        let rounded = _mm512_add_epi64(column, _mm512_set1_epi64(LIMB_MASK.cast_signed()));
        lows[place + 1] = _mm512_add_epi64(lows[place + 1], limbs_above(rounded));
        for (offset, limb) in modulus.iter().enumerate() {
            if offset > 0 {
                let low = &mut lows[place + offset];
                *low = _mm512_madd52lo_epu64(*low, *limb, *quotient);
            }
            let high = &mut highs[place + offset + 1];
            *high = _mm512_madd52hi_epu64(*high, *limb, *quotient);
        }
    }
    (_, *high) = split(&sum(&lows, &highs));
    quotients
}

/// `doubled = 2 x`. No carry goes further than to the next limb.
#[target_feature(enable = "avx512f,avx512ifma")]
fn double<const B: usize>(doubled: &mut Number<B>, x: &Number<B>) {
    let mut carried = _mm512_setzero_si512();
    for (limb, x) in doubled.as_flattened_mut().iter_mut().zip(x.as_flattened()) {
        let sum = _mm512_or_si512(_mm512_add_epi64(*x, *x), carried);
        *limb = _mm512_and_si512(sum, _mm512_set1_epi64(LIMB_MASK.cast_signed()));
        carried = _mm512_srli_epi64::<{ LIMB_BITS - 1 }>(*x);
    }
}

/// Twice the blocks behind the one at `place`, out of twice the whole number: without the bit that
/// was carried out of that block. The blocks before them are not used again.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn doubled_behind<const B: usize>(doubled: &mut Number<B>, place: usize) -> &[Block] {
    let behind = &mut doubled[place + 1..];
    if let Some([limb, ..]) = behind.first_mut() {
        *limb = _mm512_andnot_si512(_mm512_set1_epi64(1), *limb);
    }
    behind
}

/// Carries the sums of columns to the next, so that every limb is less than 2^52 again.
#[target_feature(enable = "avx512f,avx512ifma")]
fn carry<const B: usize>(x: &mut Number<B>, sums: &[Block]) {
    let mut carried = _mm512_setzero_si512();
    for (limb, sum) in x.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
        let sum = _mm512_add_epi64(*sum, carried);
        *limb = _mm512_and_si512(sum, _mm512_set1_epi64(LIMB_MASK.cast_signed()));
        carried = limbs_above(sum);
    }
}

/// Keeps the low bits of `sum`, which may be negative, in `limb`; gives what is to be carried.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn settle(limb: &mut __m512i, sum: __m512i) -> __m512i {
    *limb = _mm512_and_si512(sum, _mm512_set1_epi64(LIMB_MASK.cast_signed()));
    _mm512_srai_epi64::<LIMB_BITS>(sum)
}

/// The bits of `sum`, which is not negative, above a limb.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn limbs_above(sum: __m512i) -> __m512i {
    _mm512_srli_epi64::<LIMB_BITS>(sum)
}

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn sum(x: &Columns, y: &Columns) -> Columns {
    array::from_fn(|place| _mm512_add_epi64(x[place], y[place]))
}

#[inline]
fn join(low: &Block, high: &Block) -> Columns {
    let ([a, b, c, d, e], [f, g, h, i, j]) = (*low, *high);
    [a, b, c, d, e, f, g, h, i, j]
}

#[inline]
fn split(columns: &Columns) -> (Block, Block) {
    let [a, b, c, d, e, f, g, h, i, j] = *columns;
    ([a, b, c, d, e], [f, g, h, i, j])
}

#[cfg(test)]
pub(super) mod tests {
    use num_bigint::BigUint;
    use proptest::prelude::*;

    use super::super::limbs::{self, Modulus};
    use super::super::processor::Avx512Ifma;
    use super::*;

    /// The input of [`arithmetic`]; its output is below.
    pub(in super::super) struct Question<const B: usize> {
        pub(in super::super) modulus: columns::Columns<B>,
        pub(in super::super) inverse: Column,
        pub(in super::super) x: columns::Columns<B>,
        pub(in super::super) y: columns::Columns<B>,
    }

    pub(in super::super) struct Answer<const B: usize> {
        product: columns::Columns<B>,
        square: columns::Columns<B>,
        taken_out: columns::Columns<B>,
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(in super::super) fn arithmetic<const B: usize>(asked: &Question<B>) -> Answer<B> {
        let mut field = Field::new(&asked.modulus, &asked.inverse);
        let x = load(&asked.x);
        let [mut product, mut square, mut taken_out] = [x; 3];
        field.multiply(&mut product, &load(&asked.y));
        field.square(&mut square);
        field.take_out(&mut taken_out);
        Answer { product: store(&product), square: store(&square), taken_out: store(&taken_out) }
    }

    /// Limbs that carry everything, or nothing, more often than chance has them.
    fn number() -> impl Strategy<Value = Vec<u64>> {
        let limb = prop_oneof![Just(0), Just(1), Just(LIMB_MASK), 0..=LIMB_MASK];
        proptest::collection::vec(limb, 80)
    }

    fn big(limbs: impl DoubleEndedIterator<Item = u64>) -> BigUint {
        limbs.rev().fold(BigUint::ZERO, |number, limb| (number << LIMB_BITS) + limb)
    }

    /// Eight numbers each, so that a lane that took from another would show.
    fn check<const B: usize>(numbers: &[[Vec<u64>; 3]; 8]) -> Result<(), TestCaseError> {
        let Some(processor) = Avx512Ifma::detect() else { return Ok(()) };
        let bits = 256 * B;
        let mut asked = Question {
            modulus: columns::zero::<B>(),
            inverse: Column::default(),
            x: columns::zero(),
            y: columns::zero(),
        };
        let limit = BigUint::from(1_u8) << bits;
        let limbs = |n: &BigUint| limbs::from_be_bytes(&n.to_bytes_be(), 5 * B).unwrap();
        let triples = numbers.each_ref().map(|triple| {
            let [m, x, y] = triple.each_ref().map(|limbs| big(limbs.iter().copied()) % &limit);
            (m | (&limit >> 1) | BigUint::from(1_u8), x, y)
        });
        for (lane, (m, x, y)) in triples.iter().enumerate() {
            let modulus = Modulus::new(limbs(m));
            columns::set_lane(&mut asked.modulus, lane, &modulus.limbs);
            asked.inverse.set(lane, modulus.inverse);
            columns::set_lane(&mut asked.x, lane, &limbs(x));
            columns::set_lane(&mut asked.y, lane, &limbs(y));
        }
        let answer = processor.arithmetic(&asked);
        for (lane, (m, x, y)) in triples.iter().enumerate() {
            let of_lane =
                |columns| big(columns::lane(columns, lane).collect::<Vec<_>>().into_iter());
            let product = of_lane(&answer.product);
            let square = of_lane(&answer.square);
            let r = BigUint::from(1_u8) << (5 * B * 52);
            prop_assert!(product < m * 2_u8 && square < m * 2_u8);
            prop_assert_eq!(product * &r % m, x * y % m);
            prop_assert_eq!(square * &r % m, x * x % m);
            let taken_out = of_lane(&answer.taken_out);
            prop_assert!(taken_out < *m);
            prop_assert_eq!(taken_out * &r % m, x % m);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn arithmetic_is_that_of_others(
            numbers in proptest::array::uniform8([number(), number(), number()]),
        ) {
            check::<4>(&numbers)?;
            check::<6>(&numbers)?;
            check::<8>(&numbers)?;
            check::<12>(&numbers)?;
            check::<16>(&numbers)?;
        }
    }

    #[test]
    fn the_greatest_numbers_overflow_nothing() {
        let greatest = || vec![LIMB_MASK; 80];
        let numbers = array::from_fn(|_| [greatest(), greatest(), greatest()]);
        check::<4>(&numbers).unwrap();
        check::<16>(&numbers).unwrap();
    }
}
