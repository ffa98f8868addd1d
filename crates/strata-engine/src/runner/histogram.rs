//! Durations, counted by size.

use std::time::Duration;

/// Buckets for each doubling, and doublings.
const EACH: usize = 4;
const DOUBLINGS: usize = 32;
/// Buckets of a histogram.
const BUCKETS: usize = 1 + EACH * DOUBLINGS;

/// Counts of durations, in buckets that grow by a fourth root of 2 from a microsecond to over an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], count: 0, sum: Duration::ZERO, max: Duration::ZERO }
    }
}

impl Histogram {
    /// Counts a duration.
    pub fn add(&mut self, d: Duration) {
        let (mut low, mut high) = (0, BUCKETS - 1);
        while low < high {
            let middle = (low + high) / 2;
            if bound(middle) < d {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.counts[low] += 1;
        self.count += 1;
        self.sum += d;
        self.max = self.max.max(d);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// How many were at most `d`, as far as buckets tell: those of whole buckets up to it.
    pub fn at_most(&self, d: Duration) -> u64 {
        self.counts.iter().enumerate().take_while(|(i, _)| bound(*i) <= d).map(|(_, n)| n).sum()
    }

    /// A duration that `share` of those counted do not exceed, at most 19% (the width of a bucket) above the least one; zero before
    /// any was counted.
    pub fn quantile(&self, share: f64) -> Duration {
        let need = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        let at = self.counts.iter().position(|n| {
            sum += n;
            sum >= need
        });
        at.map_or(Duration::ZERO, |i| bound(i).min(self.max))
    }
}

/// The longest duration of a bucket.
fn bound(i: usize) -> Duration {
    if i + 1 >= BUCKETS { Duration::MAX } else { Duration::from_secs_f64(1e-6 * 2f64.powf(i as f64 / EACH as f64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_a_sorted_list() {
        let mut h = Histogram::default();
        assert_eq!((h.quantile(0.99), h.count()), (Duration::ZERO, 0));
        let mut all: Vec<Duration> = (0..1000u64).map(|i| Duration::from_nanos(100 + i * i * i * 7919 % 3_000_000_007)).collect();
        all.iter().for_each(|d| h.add(*d));
        all.sort_unstable();
        for share in [0.0, 0.001, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = all[((share * 1000.0f64).ceil() as usize).max(1) - 1];
            let found = h.quantile(share);
            let least = exact.max(Duration::from_micros(1));
            assert!(found >= exact && found.as_secs_f64() <= least.as_secs_f64() * 1.19, "{share}: {found:?}, expected {exact:?}");
        }
        assert_eq!((h.max(), h.quantile(1.0), h.count()), (all[999], all[999], 1000));
        assert_eq!(h.sum(), all.iter().sum());
        assert_eq!((h.at_most(Duration::MAX), h.at_most(Duration::ZERO)), (1000, 0));
        let one = h.at_most(Duration::from_secs(1)) as i64;
        let exact = all.iter().filter(|d| **d <= Duration::from_secs(1)).count() as i64;
        assert!((one - exact).abs() <= 100, "{one} {exact}");
    }

    #[test]
    fn no_duration_is_too_long() {
        let mut h = Histogram::default();
        [Duration::ZERO, Duration::from_secs(1 << 40), Duration::from_secs(3600)].into_iter().for_each(|d| h.add(d));
        assert_eq!((h.count(), h.quantile(1.0)), (3, Duration::from_secs(1 << 40)));
    }
}
