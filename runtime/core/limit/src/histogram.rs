//! Latencies in buckets of 1/64 of their size: constant memory, and quantiles good to 1.6 %.

use std::time::Duration;

/// Buckets per power of two.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Counts of durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let powers = u64::BITS - STEP_BITS + 1;
        Self { buckets: vec![0; (u64::from(powers) * STEPS) as usize], count: 0 }
    }
}

impl Histogram {
    /// Counts one duration.
    #[inline]
    pub fn add(&mut self, duration: Duration) {
        self.buckets[bucket(duration.as_nanos() as u64)] += 1;
        self.count += 1;
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest duration that a share of `quantile` of all does not exceed, rounded down to its bucket.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = ((self.count as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(floor(index));
            }
        }
        Duration::ZERO
    }
}

/// Values below [`STEPS`] have a bucket each; above, the leading bits after the first choose one of [`STEPS`].
fn bucket(ns: u64) -> usize {
    let power = (ns | STEPS).ilog2() - STEP_BITS;
    let step = if power == 0 && ns < STEPS { ns } else { (ns >> power) - STEPS + STEPS * (u64::from(power) + 1) };
    step as usize
}

fn floor(index: usize) -> u64 {
    let (row, step) = (index as u64 / STEPS, index as u64 % STEPS);
    if row == 0 { step } else { (STEPS + step) << (row - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say() {
        for ns in (0..10_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX]) {
            let low = floor(bucket(ns));
            assert!(low <= ns && ns - low <= ns / STEPS, "{ns} is in the bucket of {low}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.add(Duration::from_micros(us)));
        assert_eq!(histogram.count(), 1000);
        for (quantile, us) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = histogram.quantile(quantile).as_nanos() as f64 / 1000.0;
            assert!(found <= us && found > us * 0.98, "{quantile}: {found} for {us}");
        }
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }
}
