//! The constants of the hashed n-gram module, by the published rules.

use strata_quant::testing::SplitMix64;

/// Odd multipliers of the `n` context slots of the first n-gram layer.
pub(crate) fn multipliers(seed: u64, vocab: u64, n: usize) -> Vec<u64> {
    let half = (i64::MAX as u64 / vocab / 2).max(1);
    (1..=n as u64).map(|i| 2 * (SplitMix64::word(seed, i) % half) + 1).collect()
}

/// The first `n` primes from `base` on.
pub(crate) fn primes(base: u64, n: usize) -> Vec<u64> {
    let prime = |x: &u64| *x > 1 && (2..).take_while(|d| d * d <= *x).all(|d| !x.is_multiple_of(d));
    (base..).filter(prime).take(n).collect()
}

/// Exclusive sums.
pub(crate) fn offsets(sizes: &[u64]) -> Vec<u64> {
    sizes
        .iter()
        .scan(0, |at, s| {
            let here = *at;
            *at += s;
            Some(here)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_constants() {
        assert_eq!(multipliers(1234, 248_320, 3), [23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071]);
        let sizes = primes(20_000_000, 16);
        assert_eq!((sizes[0], sizes[7], sizes[8], sizes[15]), (20_000_003, 20_000_077, 20_000_081, 20_000_171));
        assert_eq!(offsets(&sizes)[15], 300_001_275);
    }

    #[test]
    fn reference_model_constants() {
        assert_eq!(multipliers(1234, 4096, 3), [2_043_359_076_095_531, 1_677_619_451_946_387, 1_270_917_961_443_223]);
        assert_eq!(primes(1500, 16)[..4], [1511, 1523, 1531, 1543]);
    }
}
