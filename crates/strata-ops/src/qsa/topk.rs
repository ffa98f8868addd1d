//! The block top-k: a radix select over score keys, weighted by the cells of each block.

use super::BLOCK;

/// Score as an integer that orders the same way: -0 and +0 are one key, NaN counts as 0.
#[inline(always)]
pub fn order_key(score: f32) -> u32 {
    let v = score + 0.0;
    let bits = if v.is_nan() { 0 } else { v.to_bits() };
    if bits >> 31 != 0 { !bits } else { bits | 0x8000_0000 }
}

/// Cells of a block of a sequence of `n_kv` cells; 0 for the tail of a sequence of whole blocks.
#[inline(always)]
fn weight(block: usize, n_kv: usize) -> u32 {
    (n_kv - block * BLOCK).min(BLOCK) as u32
}

/// The digit of one radix pass: the largest with at least `width` cells at or above it, of bins that hold the cells
/// of each digit, when `above` cells have larger keys already. Returns it and the new `above`.
#[inline(always)]
pub fn choose_digit(bins: &[u32; 256], above: u32, width: u32) -> (u32, u32) {
    let mut sum = above;
    for d in (0..256).rev() {
        if sum + bins[d] >= width || d == 0 {
            return (d as u32, sum);
        }
        sum += bins[d];
    }
    unreachable!("digit 0 ends the loop")
}

/// Appends cells of one block to `ids`.
#[inline(always)]
pub fn emit(ids: &mut [i32], at: &mut usize, block: usize, cells: u32) {
    for c in 0..cells as usize {
        ids[*at] = (block * BLOCK + c) as i32;
        *at += 1;
    }
}

/// Selects `min(width, n_kv)` cells of a sequence of `n_kv` by the scores of blocks `0..=n_kv / 4`, writes their ids
/// in ascending order and returns their number.
///
/// Blocks are taken by score, largest first; a tie is filled in ascending cell order and may cut a block.
#[inline(always)]
pub fn top_k(scores: &[f32], n_kv: usize, width: usize, ids: &mut [i32]) -> usize {
    if n_kv <= width {
        for (i, id) in ids[..n_kv].iter_mut().enumerate() {
            *id = i as i32;
        }
        return n_kv;
    }
    let scores = &scores[..n_kv / BLOCK + 1];
    let (mut prefix, mut above) = (0u32, 0u32);
    for shift in [24, 16, 8, 0] {
        let mut bins = [0u32; 256];
        for (b, s) in scores.iter().enumerate() {
            let key = order_key(*s);
            // the higher digits, all of them 0 in the first pass
            if (u64::from(key ^ prefix) >> (shift + 8)) == 0 {
                bins[(key >> shift & 255) as usize] += weight(b, n_kv);
            }
        }
        let (d, a) = choose_digit(&bins, above, width as u32);
        prefix |= d << shift;
        above = a;
    }
    let mut equal = width as u32 - above;
    let mut at = 0;
    for (b, s) in scores.iter().enumerate() {
        let key = order_key(*s);
        let cells = if key > prefix {
            weight(b, n_kv)
        } else if key == prefix {
            let c = weight(b, n_kv).min(equal);
            equal -= c;
            c
        } else {
            0
        };
        emit(ids, &mut at, b, cells);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The twin: sort the blocks by (key descending, index ascending) and take cells until the width is used.
    pub fn naive(scores: &[f32], n_kv: usize, width: usize) -> Vec<i32> {
        if n_kv <= width {
            return (0..n_kv as i32).collect();
        }
        let mut order: Vec<usize> = (0..=n_kv / 4).collect();
        let value = |b: usize| if scores[b].is_nan() { 0.0 } else { scores[b] };
        order.sort_by(|a, b| value(*b).partial_cmp(&value(*a)).unwrap().then(a.cmp(b)));
        let cells = order.into_iter().flat_map(|b| (4 * b..(4 * b + 4).min(n_kv)).map(|c| c as i32));
        let mut ids: Vec<i32> = cells.take(width).collect();
        ids.sort();
        ids
    }

    fn next(s: &mut u64) -> u64 {
        *s = s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *s >> 33
    }

    #[test]
    fn agrees_with_sorting() {
        let mut s = 1u64;
        for case in 0..3000 {
            let n_kv = 1 + (next(&mut s) % 400) as usize;
            let width = (next(&mut s) % 420) as usize;
            let special = [0.0, -0.0, f32::NAN, 1e9, -1.0, f32::INFINITY, f32::NEG_INFINITY, 1e-42, -1e-42, 2.0];
            let scores: Vec<f32> = (0..n_kv / 4 + 1)
                .map(|_| {
                    let r = next(&mut s);
                    match case % 3 {
                        0 => special[(r % 10) as usize],
                        1 => (r % 7) as f32,
                        _ => f32::from_bits((r as u32) << 1),
                    }
                })
                .collect();
            let mut ids = vec![-1; 420];
            let n = top_k(&scores, n_kv, width, &mut ids);
            assert_eq!(n, width.min(n_kv));
            assert_eq!(&ids[..n], naive(&scores, n_kv, width), "case {case} n_kv {n_kv} width {width}");
        }
    }

    #[test]
    fn keys_order_like_scores() {
        let v = [f32::NEG_INFINITY, -1.0, -1e-42, 0.0, 1e-42, 1.0, f32::INFINITY];
        assert!(v.windows(2).all(|w| order_key(w[0]) < order_key(w[1])));
        assert_eq!(order_key(-0.0), order_key(0.0));
        assert_eq!(order_key(-f32::NAN), order_key(0.0));
    }

    #[test]
    fn the_tail_costs_only_its_own_cells() {
        // 3 blocks and a tail of 2: a budget of one block and the tail
        let scores = [1.0, 5.0, 2.0, 1e9];
        let mut ids = [0; 8];
        assert_eq!(top_k(&scores, 14, 6, &mut ids), 6);
        assert_eq!(ids[..6], [4, 5, 6, 7, 12, 13]);
    }
}
