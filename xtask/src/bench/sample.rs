//! Numbers of one measurement, and what is made of several.

use serde::Serialize;

/// The result of one proxy in one round of one cell.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Sample {
    /// Which of the rounds, from 1.
    pub(crate) round: u32,
    /// Answered requests that the CPU time below was spent on.
    pub(crate) requests: u64,
    /// Answered requests each second.
    pub(crate) requests_per_second: f64,
    /// Failed connections, wrong answers, requests without an answer.
    pub(crate) errors: u64,
    /// Median latency in microseconds, if the generator reports it.
    pub(crate) p50_us: Option<f64>,
    /// 99th percentile of latency in microseconds, if the generator reports it.
    pub(crate) p99_us: Option<f64>,
    /// CPU time of the proxy in user mode, microseconds each request.
    pub(crate) user_us: f64,
    /// CPU time of the proxy in the kernel, microseconds each request.
    pub(crate) system_us: f64,
    /// Resident memory of the proxy at the end, KiB.
    pub(crate) rss_kib: u64,
}

impl Sample {
    /// CPU time of the proxy, microseconds each request.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.user_us + self.system_us
    }

    /// How much of its core the proxy used, in per cent: well below 100, it waited for the load.
    pub(crate) fn busy(&self) -> f64 {
        self.cpu_us() * self.requests_per_second / 1e4
    }
}

/// The middle of `values` (the mean of both middle ones), or none if there are none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    values.get(middle.checked_sub(1)?).map(|lower| f64::midpoint(*lower, upper))
}

/// The median of the rounds' ratios: each round compares what was measured side by side.
pub(crate) fn median_ratio(
    ours: &[Sample],
    theirs: &[Sample],
    value: impl Fn(&Sample) -> Option<f64>,
) -> Option<f64> {
    let ratios = ours.iter().filter_map(|our| {
        let their = theirs.iter().find(|their| their.round == our.round)?;
        Some(value(our)? / value(their)?).filter(|ratio| ratio.is_finite())
    });
    median(ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_both_middles() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let samples = |values: &[(u32, f64)]| -> Vec<Sample> {
            let of = |&(round, p99)| Sample { round, p99_us: Some(p99), ..Sample::default() };
            values.iter().map(of).collect()
        };
        // The machine was slow in round 2, for both.
        let ours = samples(&[(1, 10.0), (2, 90.0), (3, 12.0)]);
        let theirs = samples(&[(2, 100.0), (1, 20.0), (3, 20.0)]);
        let ratio = median_ratio(&ours, &theirs, |sample| sample.p99_us);
        assert_eq!(ratio, Some(0.6));
        assert_eq!(median_ratio(&ours, &[], |sample| sample.p99_us), None);
        let zero = samples(&[(1, 0.0)]);
        assert_eq!(median_ratio(&ours, &zero, |sample| sample.p99_us), None);
    }
}
