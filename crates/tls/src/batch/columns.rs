//! Numbers of eight lanes as plain memory: how operations are laid out for the kernel.
//!
//! A number is a row of columns, the least significant first; a column holds one limb of 52 bits
//! for each lane. Columns come in blocks of five, because that is what the kernel's inner step
//! takes, and because every size of number that it knows has a multiple of five limbs.

use zeroize::DefaultIsZeroes;

/// Operations side by side: words of 64 bits in a register of 512.
pub(super) const LANES: usize = 8;

/// Bits of a limb: what the multiplier of the instructions takes.
pub(super) const LIMB_BITS: usize = 52;

/// The greatest limb.
pub(super) const LIMB_MASK: u64 = (1 << LIMB_BITS) - 1;

/// Columns of a block.
pub(super) const BLOCK_LIMBS: usize = 5;

/// One limb of each lane.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Column(pub(super) [u64; LANES]);

impl DefaultIsZeroes for Column {}

/// Five columns.
pub(super) type Block = [Column; BLOCK_LIMBS];

/// A number of `B` blocks in each lane.
pub(super) type Columns<const B: usize> = [Block; B];

/// Zero in each lane.
pub(super) fn zero<const B: usize>() -> Columns<B> {
    [[Column::default(); BLOCK_LIMBS]; B]
}

impl Column {
    pub(super) fn set(&mut self, lane: usize, limb: u64) {
        if let Some(place) = self.0.get_mut(lane) {
            *place = limb;
        }
    }

    /// Gives every lane from `used` on what the first has.
    pub(super) fn repeat_first(&mut self, used: usize) {
        let [first, ..] = self.0;
        self.0.iter_mut().skip(used).for_each(|limb| *limb = first);
    }

    /// Gives the upper half of the lanes what the lower half of `other` has.
    pub(super) fn set_upper_half(&mut self, other: &Self) {
        self.0.iter_mut().skip(LANES / 2).zip(other.0).for_each(|(limb, other)| *limb = other);
    }
}

/// Puts a number into one lane; limbs that it lacks become zero.
pub(super) fn set_lane(columns: &mut [Block], lane: usize, limbs: &[u64]) {
    let limbs = limbs.iter().copied().chain(std::iter::repeat(0));
    for (column, limb) in columns.as_flattened_mut().iter_mut().zip(limbs) {
        column.set(lane, limb);
    }
}

/// The limbs of one lane.
pub(super) fn lane(columns: &[Block], lane: usize) -> impl Iterator<Item = u64> {
    columns.as_flattened().iter().filter_map(move |column| column.0.get(lane).copied())
}

/// Gives every lane from `used` on what the first has.
pub(super) fn repeat_first(columns: &mut [Block], used: usize) {
    columns.as_flattened_mut().iter_mut().for_each(|column| column.repeat_first(used));
}

/// Gives the upper half of the lanes what the lower half of `other` has.
pub(super) fn set_upper_half(columns: &mut [Block], other: &[Block]) {
    let pairs = columns.as_flattened_mut().iter_mut().zip(other.as_flattened());
    pairs.for_each(|(column, other)| column.set_upper_half(other));
}
