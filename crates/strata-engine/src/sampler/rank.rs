//! The order of top-k and top-p, (l descending, id ascending), as integers, and selection by it without a full sort.

/// Sorts ascending as (logit descending, index ascending). `-0` is `+0`; the logit is not NaN.
#[inline(always)]
pub(super) fn key(logit: f32, index: u32) -> u64 {
    let bits = (logit + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 0x8000_0000 };
    u64::from(!ascending) << 32 | u64::from(index)
}

/// The index in a [`key`].
#[inline(always)]
pub(super) fn index(key: u64) -> usize {
    key as u32 as usize
}

/// Length of the shortest non-empty prefix, in key order, whose masses sum to at least `share / 2^32` of `total`. On return
/// that prefix is at the front of `keys`, in any order. `total` is the sum over all keys and `share` at most `2^32`.
///
/// Each step splits the range in which the prefix ends by a selection and keeps one side, so the time is linear in the number
/// of keys. The first splits are uneven, since most prefixes are short.
pub(super) fn mass_prefix(keys: &mut [u64], mass: &[u64], share: u64, total: u64) -> usize {
    let need = u128::from(share) * u128::from(total);
    let (mut low, mut high) = (0, keys.len());
    let mut sum = 0u64;
    let mut guess = 128;
    // the prefix ends in low..high, and `sum` is the mass of keys[..low]
    while high - low > 1 {
        let left = guess.min((high - low) / 2);
        keys[low..high].select_nth_unstable(left - 1);
        let part: u64 = keys[low..low + left].iter().map(|&k| mass[index(k)]).sum();
        if u128::from(sum + part) << 32 >= need {
            high = low + left;
        } else {
            sum += part;
            low += left;
        }
        guess = guess.saturating_mul(8);
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_by_logit_then_index() {
        let falling = [f32::MAX, 2.0, 1.0, f32::MIN_POSITIVE, 1e-45, 0.0, -1e-45, -1.0, -2.0, f32::MIN];
        for w in falling.windows(2) {
            assert!(key(w[0], 9) < key(w[1], 1), "{w:?}");
        }
        assert!(key(1.0, 1) < key(1.0, 2));
        assert_eq!(key(0.0, 3), key(-0.0, 3));
        assert_eq!(index(key(-7.5, 248_319)), 248_319);
    }

    #[test]
    fn the_prefix_is_the_shortest_that_reaches_the_share() {
        for n in [1usize, 2, 3, 127, 128, 129, 300, 5000] {
            let mass: Vec<u64> = (0..n as u64).map(|i| 1 + i * 7919 % 1000).collect();
            let logit = |i: usize| (i * 31 % 17) as f32;
            let mut order: Vec<u64> = (0..n).map(|i| key(logit(i), i as u32)).collect();
            order.sort_unstable();
            let total: u64 = mass.iter().sum();
            for share in (0..=64u64).map(|s| s << 26).chain([1, (1 << 32) - 1]) {
                let mut sum = 0u128;
                let reaches = |&k: &u64| {
                    sum += u128::from(mass[index(k)]);
                    sum << 32 >= u128::from(share) * u128::from(total)
                };
                let want = order.iter().position(reaches).unwrap() + 1;
                let mut keys: Vec<u64> = (0..n).map(|i| key(logit(i), i as u32)).collect();
                assert_eq!(mass_prefix(&mut keys, &mass, share, total), want, "n {n} share {share}");
                keys[..want].sort_unstable();
                assert_eq!(keys[..want], order[..want]);
            }
        }
    }
}
