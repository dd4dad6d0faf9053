//! Latencies of one run: every one is kept, so that percentiles are exact.

/// Latencies in nanoseconds.
#[derive(Debug, Default)]
pub struct Latencies {
    samples: Vec<u64>,
}

impl Latencies {
    /// Makes room for `count` samples, so that a run does not stop to grow.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self { samples: Vec::with_capacity(count) }
    }

    /// Adds one.
    pub fn push(&mut self, nanoseconds: u64) {
        self.samples.push(nanoseconds);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The smallest sample that at least `per_mille` thousandths of all samples do not exceed
    /// (nearest rank), for each of `per_milles`. 0 if there are no samples.
    #[must_use]
    pub fn quantiles<const N: usize>(&mut self, per_milles: [usize; N]) -> [u64; N] {
        self.samples.sort_unstable();
        per_milles.map(|per_mille| {
            let rank = self.samples.len().saturating_mul(per_mille).div_ceil(1000);
            self.samples.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_by_nearest_rank() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantiles([500]), [0]);
        for sample in (1..=100).rev() {
            latencies.push(sample);
        }
        assert_eq!(latencies.quantiles([0, 500, 990, 999, 1000]), [1, 50, 99, 100, 100]);
    }
}
