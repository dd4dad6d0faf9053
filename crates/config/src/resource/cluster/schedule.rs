//! In which order a cluster's endpoints take turns: weighted, and a function of one running number.
//!
//! So a worker keeps eight bytes for a cluster of any size, and a changed endpoint costs it nothing.
//! What a turn costs depends neither on the number of endpoints nor on their weights:
//!
//! * endpoints of equal weights take turns one after the other;
//! * a few small weights have their whole cycle written down, each endpoint exactly as often in it as
//!   its weight says and as evenly as can be (smooth weighted round robin, as in nginx);
//! * otherwise turns are points on a line that the endpoints share by their weights, and each turn
//!   goes on by the golden ratio, which spreads points more evenly than any other step does. An
//!   endpoint is found by bisection, and over any number of turns it gets its share but for a few.

/// Turns of the longest cycle that is written down: 1 KiB for a cluster, and at most a quarter of a
/// million steps to make it.
pub const CYCLE_TURNS_MAX: u64 = 512;

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Which of a cluster's endpoints has which turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// So many endpoints, one after the other.
    Even(u32),
    /// The places of a cycle.
    Cycle(Box<[u16]>),
    /// Where the part of each endpoint ends on the line.
    Line(Box<[u64]>),
}

impl Schedule {
    /// The schedule of endpoints with these weights; one of 0 has no turn.
    #[must_use]
    pub fn new(weights: &[u16]) -> Self {
        let divisor = weights.iter().fold(0, |a, b| gcd(a, u64::from(*b))).max(1);
        let weights: Vec<u64> = weights.iter().map(|weight| u64::from(*weight) / divisor).collect();
        if weights.iter().all(|weight| *weight == 1) {
            return Self::Even(u32::try_from(weights.len()).unwrap_or(u32::MAX));
        }
        let total: u64 = weights.iter().sum();
        if total <= CYCLE_TURNS_MAX {
            return Self::Cycle(cycle(&weights, total));
        }
        let mut end = 0;
        let ends = weights.iter().map(|weight| {
            end += weight;
            end
        });
        Self::Line(ends.collect())
    }

    /// The place of the endpoint whose turn this is, or none if there are no endpoints.
    #[must_use]
    pub fn place(&self, turn: u64) -> Option<usize> {
        match self {
            Self::Even(count) => usize::try_from(turn.checked_rem(u64::from(*count))?).ok(),
            Self::Cycle(places) => {
                let turn = turn.checked_rem(u64::try_from(places.len()).ok()?)?;
                places.get(usize::try_from(turn).ok()?).map(|place| usize::from(*place))
            }
            Self::Line(ends) => {
                let point = point(turn, *ends.last()?);
                Some(ends.partition_point(|end| *end <= point))
            }
        }
    }
}

/// Where a turn lies on a line of this length.
fn point(turn: u64, length: u64) -> u64 {
    let part = u128::from(turn.wrapping_mul(GOLDEN)) * u128::from(length);
    u64::try_from(part >> 64).unwrap_or(0)
}

/// In each turn every endpoint is owed its weight more, and the one that is owed most is taken and
/// owed `total` less.
fn cycle(weights: &[u64], total: u64) -> Box<[u16]> {
    let weights: Vec<i64> = weights.iter().map(|w| i64::try_from(*w).unwrap_or(0)).collect();
    let total = i64::try_from(total).unwrap_or(0);
    let mut owed = vec![0; weights.len()];
    let turn = |_| {
        let mut most = 0;
        let mut taken = 0;
        for (place, (owed, weight)) in owed.iter_mut().zip(&weights).enumerate() {
            *owed += weight;
            if *owed > most {
                (most, taken) = (*owed, place);
            }
        }
        if let Some(owed) = owed.get_mut(taken) {
            *owed -= total;
        }
        u16::try_from(taken).unwrap_or(u16::MAX)
    };
    (0..total).map(turn).collect()
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(weights: &[u16], turns: std::ops::Range<u64>) -> Vec<usize> {
        let schedule = Schedule::new(weights);
        turns.map(|turn| schedule.place(turn).unwrap()).collect()
    }

    #[test]
    fn nothing_has_no_turn() {
        assert_eq!(Schedule::new(&[]).place(7), None);
    }

    #[test]
    fn a_weight_of_zero_has_no_turn() {
        assert_eq!(Schedule::new(&[0, 0]).place(7), None);
        assert_eq!(places(&[0, 1, 0, 1], 0..4), [1, 3, 1, 3]);
        let weights = [0, 60_000, 0, 1, 0];
        assert!(matches!(Schedule::new(&weights), Schedule::Line(_)));
        assert!(places(&weights, 0..100_000).iter().all(|place| [1, 3].contains(place)));
    }

    #[test]
    fn equal_weights_take_turns_in_their_order() {
        assert_eq!(places(&[1, 1, 1], 0..6), [0, 1, 2, 0, 1, 2]);
        assert_eq!(places(&[300, 300], 1..4), [1, 0, 1]);
    }

    #[test]
    fn small_weights_are_met_exactly_and_evenly() {
        assert_eq!(places(&[5, 1, 1], 0..7), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(places(&[2, 4], 0..6), [1, 0, 1, 1, 0, 1]);
        assert_eq!(places(&[3, 1, 1, 1], 0..6), [0, 1, 0, 2, 3, 0]);
    }

    /// 209 microseconds a turn where each turn asked every endpoint.
    #[test]
    fn a_turn_among_fifty_thousand_endpoints_looks_at_seventeen() {
        let mut weights = vec![1; 50_000];
        weights[25_000] = u16::MAX;
        let Schedule::Line(ends) = Schedule::new(&weights) else { panic!("a line is expected") };
        let total = *ends.last().unwrap();
        let mut heavy = 0;
        for turn in 0..100_000 {
            let mut looks = 0;
            let at = point(turn, total);
            let found = ends.partition_point(|end| {
                looks += 1;
                *end <= at
            });
            assert!(looks <= 17, "{looks}");
            heavy += u64::from(found == 25_000);
        }
        let share = 100_000 * u64::from(u16::MAX) / total;
        assert!(heavy.abs_diff(share) <= 5, "{heavy} of {share}");
    }

    proptest! {
        #[test]
        fn over_any_turns_an_endpoint_gets_its_share_but_for_a_few(
            weights in proptest::collection::vec(1..=u16::MAX, 1..40),
            start in any::<u32>(),
            count in 1..2_000u32,
        ) {
            let schedule = Schedule::new(&weights);
            let total: u32 = weights.iter().copied().map(u32::from).sum();
            let mut taken = vec![0.0; weights.len()];
            for turn in 0..u64::from(count) {
                taken[schedule.place(u64::from(start) + turn).unwrap()] += 1.0;
            }
            for (weight, taken) in weights.iter().zip(taken) {
                let share = f64::from(*weight) / f64::from(total) * f64::from(count);
                prop_assert!((taken - share).abs() < 6.0, "{} of {}", taken, share);
            }
        }

        #[test]
        fn a_cycle_has_each_endpoint_as_often_as_its_weight_says(
            weights in proptest::collection::vec(1..=12u16, 1..40),
        ) {
            let total: u16 = weights.iter().sum();
            let mut taken = vec![0; weights.len()];
            for place in places(&weights, 0..u64::from(total)) {
                taken[place] += 1;
            }
            prop_assert_eq!(taken, weights);
        }
    }
}
