//! Log-linear histograms of times, with decimal edges.
//!
//! A decade is cut as 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8 (four linear steps for
//! each doubling, the last reaching to 10), from 1 µs to 4,000 s. The edges are decimal so that
//! the bounds that Prometheus is given (0.0025, 0.5, 10) are edges, and the cumulative counts at
//! them exact. A bucket is at most a quarter wider than its lower edge, which bounds the error
//! of a quantile at one eighth.
//!
//! Finding the bucket takes no search: the value's power of two and next three bits name a place
//! that holds at most one edge, and one comparison settles on which side of it the value lies.

use crate::cell::Counter;

/// Lower edges of the buckets within a decade, in hundredths.
const STEPS: [u64; 13] = [100, 125, 150, 175, 200, 250, 300, 350, 400, 500, 600, 700, 800];
/// Decades that are covered whole, from 1 µs on.
const DECADES: usize = 9;
/// Further edges, in the tenth decade: 1,000 s to 4,000 s.
const EDGES_LAST: usize = 9;
/// Number of edges. Bucket `i` counts values above edge `i - 1` up to and including edge `i`.
const EDGES_LEN: usize = STEPS.len() * DECADES + EDGES_LAST;
/// Number of buckets: one an edge, and one for what is above the last.
pub(crate) const BUCKETS: usize = EDGES_LEN + 1;
/// The upper edges of the buckets, ns.
pub(crate) const EDGES: [u64; EDGES_LEN] = edges();
/// Bits behind the first one that pick a place.
const PLACE_BITS: u32 = 3;
/// Power of two of the lowest edge, rounded down: 1,000 ns is above 2^9.
const EXPONENT_MIN: u32 = 9;
/// Power of two of the highest edge, rounded down: 4,000 s is above 2^41 ns.
const EXPONENT_MAX: u32 = 41;
/// Number of places.
const PLACES_LEN: usize = ((EXPONENT_MAX - EXPONENT_MIN + 1) << PLACE_BITS) as usize;
/// For each place, the bucket of the lowest value in it.
static PLACES: [u8; PLACES_LEN] = places();

/// Times recorded by one writer.
#[derive(Debug)]
pub(crate) struct Histogram {
    sum: Counter,
    buckets: [Counter; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { sum: Counter::default(), buckets: std::array::from_fn(|_| Counter::default()) }
    }
}

impl Histogram {
    /// Counts a time in ns. Only the one writer may call this.
    pub(crate) fn record(&self, value: u64) {
        self.sum.add(value);
        if let Some(bucket) = self.buckets.get(bucket_of(value)) {
            bucket.increment();
        }
    }
}

/// Histograms added up.
#[derive(Clone, Debug)]
pub(crate) struct HistogramTotals {
    /// Sum of all values, ns.
    pub(crate) sum: u64,
    buckets: [u64; BUCKETS],
}

impl Default for HistogramTotals {
    fn default() -> Self {
        Self { sum: 0, buckets: [0; BUCKETS] }
    }
}

impl HistogramTotals {
    /// Adds what `histogram` has counted so far.
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        self.sum = self.sum.wrapping_add(histogram.sum.value());
        for (total, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *total = total.wrapping_add(bucket.value());
        }
    }

    /// With this sum and these counts; none if there are more or fewer buckets.
    pub(crate) fn of(sum: u64, buckets: &[u64]) -> Option<Self> {
        Some(Self { sum, buckets: buckets.try_into().ok()? })
    }

    /// What each bucket has counted.
    pub(crate) const fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// Whether nothing was counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.sum == 0 && self.buckets.iter().all(|bucket| *bucket == 0)
    }

    /// Adds what others add up to.
    pub(crate) fn add_totals(&mut self, other: &Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        for (total, bucket) in self.buckets.iter_mut().zip(&other.buckets) {
            *total = total.wrapping_add(*bucket);
        }
    }

    /// Number of values.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Number of values up to and including `bound`, which must be an edge to be exact; from
    /// another bound it counts up to the edge below.
    pub(crate) fn count_up_to(&self, bound: u64) -> u64 {
        let whole = EDGES.partition_point(|edge| *edge <= bound);
        self.buckets.iter().take(whole).sum()
    }

    /// The value below which `share` (0 to 1) of the values lie, ns: the middle of its bucket.
    /// `None` without values.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank within a count, both far below 2^52 where the rounding would show"
    )]
    pub(crate) fn quantile(&self, share: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((share.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0u64;
        let place = self.buckets.iter().position(|bucket| {
            seen = seen.saturating_add(*bucket);
            seen >= rank
        })?;
        let below = place.checked_sub(1).and_then(|place| EDGES.get(place)).copied().unwrap_or(0);
        Some(EDGES.get(place).map_or(below, |above| below + (above - below) / 2))
    }
}

/// The bucket that counts `value`.
fn bucket_of(value: u64) -> usize {
    let exponent = (value | 1).ilog2();
    if exponent < EXPONENT_MIN {
        return 0;
    }
    let bits = (value >> (exponent - PLACE_BITS)) & ((1 << PLACE_BITS) - 1);
    let place =
        ((exponent - EXPONENT_MIN) << PLACE_BITS) as usize | usize::try_from(bits).unwrap_or(0);
    match PLACES.get(place) {
        Some(bucket) => {
            let bucket = usize::from(*bucket);
            bucket + usize::from(EDGES.get(bucket).is_some_and(|edge| value > *edge))
        }
        None => BUCKETS - 1,
    }
}

#[expect(clippy::indexing_slicing, reason = "evaluated at compile time only")]
const fn edges() -> [u64; EDGES_LEN] {
    let mut edges = [0; EDGES_LEN];
    let mut unit = 10; // A hundredth of 1 µs.
    let mut place = 0;
    while place < EDGES_LEN {
        edges[place] = STEPS[place % STEPS.len()] * unit;
        place += 1;
        if place.is_multiple_of(STEPS.len()) {
            unit *= 10;
        }
    }
    edges
}

#[expect(clippy::indexing_slicing, reason = "evaluated at compile time only")]
#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 256 buckets")]
const fn places() -> [u8; PLACES_LEN] {
    let mut places = [0; PLACES_LEN];
    let mut place = 0;
    let mut bucket = 0;
    while place < PLACES_LEN {
        let exponent = EXPONENT_MIN + (place as u32 >> PLACE_BITS);
        let step = place as u64 & ((1 << PLACE_BITS) - 1);
        let lowest = (1u64 << exponent) + (step << (exponent - PLACE_BITS));
        let highest = lowest + (1u64 << (exponent - PLACE_BITS)) - 1;
        while bucket < EDGES_LEN && EDGES[bucket] < lowest {
            bucket += 1;
        }
        // One comparison settles a place only if it holds at most one edge below its last value.
        assert!(bucket + 1 >= EDGES_LEN || EDGES[bucket + 1] >= highest);
        places[place] = bucket as u8;
        place += 1;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket_by_search(value: u64) -> usize {
        EDGES.iter().position(|edge| value <= *edge).unwrap_or(BUCKETS - 1)
    }

    fn totals_of(values: impl IntoIterator<Item = u64>) -> HistogramTotals {
        let histogram = Histogram::default();
        for value in values {
            histogram.record(value);
        }
        let mut totals = HistogramTotals::default();
        totals.add(&histogram);
        totals
    }

    #[test]
    fn every_edge_and_its_neighbours_fall_where_a_search_puts_them() {
        for edge in EDGES {
            for value in [edge - 1, edge, edge + 1] {
                assert_eq!(bucket_of(value), bucket_by_search(value), "{value}");
            }
        }
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                assert_eq!(bucket_of(value), bucket_by_search(value), "{value}");
            }
        }
    }

    #[test]
    fn the_ends_are_counted_and_not_lost() {
        let last = *EDGES.last().unwrap();
        assert_eq!((EDGES[0], last), (1_000, 4_000_000_000_000));
        for (value, bucket) in [
            (0, 0),
            (1, 0),
            (1_000, 0),
            (1_001, 1),
            (last, BUCKETS - 2),
            (last + 1, BUCKETS - 1),
            (u64::MAX, BUCKETS - 1),
        ] {
            assert_eq!(bucket_of(value), bucket, "{value}");
            assert_eq!(totals_of([value]).count(), 1, "{value}");
        }
    }

    #[test]
    fn counts_at_a_bound_are_exact() {
        let totals = totals_of([2_499_999, 2_500_000, 2_500_001, u64::MAX]);
        assert_eq!(totals.count_up_to(2_500_000), 2);
        assert_eq!(totals.count_up_to(2_500_001), 2);
        assert_eq!(totals.count(), 4);
    }

    #[test]
    fn a_quantile_is_off_by_one_eighth_at_most() {
        let mut value = 1_000u64;
        while value < 4_000_000_000_000 {
            let found = totals_of([value]).quantile(0.5).unwrap();
            assert!(found.abs_diff(value) <= value / 8 + 500, "{value} became {found}");
            value += value / 97 + 1;
        }
    }

    #[test]
    fn quantiles_pick_the_value_of_that_rank() {
        let totals = totals_of((0..90).map(|_| 1_100).chain((0..10).map(|_| 9_000_000)));
        assert_eq!(totals.quantile(0.0), totals.quantile(0.9));
        assert_eq!(totals.quantile(0.5), Some(1_125));
        assert_eq!(totals.quantile(0.91), Some(9_000_000));
        assert_eq!(HistogramTotals::default().quantile(0.5), None);
        assert_eq!(totals_of([u64::MAX]).quantile(1.0), EDGES.last().copied());
    }

    #[test]
    fn adding_up_two_writers_equals_one_writer() {
        let (left, right) = (Histogram::default(), Histogram::default());
        left.record(5_000);
        right.record(7_000);
        let mut totals = HistogramTotals::default();
        totals.add(&left);
        totals.add(&right);
        let one = totals_of([5_000, 7_000]);
        assert_eq!((totals.count(), totals.sum), (one.count(), one.sum));
        assert_eq!(totals.buckets, one.buckets);
    }
}
