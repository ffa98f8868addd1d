//! The block scorer.

use super::{BLOCK, INDEX_DIM};
use crate::math::butterfly;

/// Added to the score of an incomplete tail, so that it is always selected.
pub const TAIL_BONUS: f32 = 1e9;

/// Score of one block: for every indexer head `d` = the dot of key and query in 32 lanes of four neighbouring
/// values (`fma(k3, q3, fma(k2, q2, fma(k1, q1, k0 * q0)))`) and an xor butterfly, then `score += d > 0 ? d : 0` in head
/// order from 0. `q` is `[heads, 128]`, normed and rotated. NaN counts as 0.
#[inline(always)]
pub fn score_block(key: &[f32; INDEX_DIM], q: &[f32]) -> f32 {
    let mut score = 0.0f32;
    for q in q.as_chunks::<INDEX_DIM>().0 {
        let mut p = [0.0f32; 32];
        for (l, p) in p.iter_mut().enumerate() {
            let (k, q) = (&key[4 * l..4 * l + 4], &q[4 * l..4 * l + 4]);
            *p = k[3].mul_add(q[3], k[2].mul_add(q[2], k[1].mul_add(q[1], k[0] * q[0])));
        }
        let d = butterfly(p);
        score += if d > 0.0 { d } else { 0.0 };
    }
    score
}

/// Scores of blocks `0..=n_kv / 4` for one query, the last one the tail's: scored with `dead`, plus [`TAIL_BONUS`] if
/// any cell is in it. `pooled` is `[blocks, 128]`, `out` has at least `n_kv / 4 + 1` entries.
#[inline(always)]
pub fn scores(pooled: &[f32], dead: &[f32; INDEX_DIM], q: &[f32], n_kv: usize, out: &mut [f32]) {
    let n_bid = n_kv / BLOCK;
    for (key, o) in pooled.as_chunks::<INDEX_DIM>().0[..n_bid].iter().zip(&mut out[..n_bid]) {
        *o = score_block(key, q);
    }
    out[n_bid] = tail_score(dead, q, n_kv);
}

/// The tail's entry of [`scores`].
#[inline(always)]
pub fn tail_score(dead: &[f32; INDEX_DIM], q: &[f32], n_kv: usize) -> f32 {
    let s = score_block(dead, q);
    if n_kv.is_multiple_of(BLOCK) { s } else { s + TAIL_BONUS }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize, mul: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * mul % 101) as f32 - 50.0) * 0.037).collect()
    }

    /// The closed form of lane 0's tree, with two levels exchangeable.
    fn closed(key: &[f32], q: &[f32], swapped: bool) -> f32 {
        let p: Vec<f32> = (0..32).map(|l| (1..4).fold(key[4 * l] * q[4 * l], |d, j| key[4 * l + j].mul_add(q[4 * l + j], d))).collect();
        let (a, b) = if swapped { (8, 16) } else { (16, 8) };
        let c: Vec<f32> = (0..4)
            .map(|j| ((p[j] + p[j + a]) + (p[j + b] + p[j + a + b])) + ((p[j + 4] + p[j + 4 + a]) + (p[j + 4 + b] + p[j + 4 + a + b])))
            .collect();
        (c[0] + c[2]) + (c[1] + c[3])
    }

    #[test]
    fn follows_the_closed_form() {
        let (keys, q) = (values(64 * 128, 37), values(4 * 128, 59));
        let mut differing = 0;
        for key in keys.as_chunks::<128>().0 {
            let sum = |swapped| {
                q.chunks(128).fold(0.0f32, |s, q| {
                    let d = closed(key, q, swapped);
                    s + if d > 0.0 { d } else { 0.0 }
                })
            };
            assert_eq!(score_block(key, &q).to_bits(), sum(false).to_bits());
            differing += u32::from(sum(true).to_bits() != sum(false).to_bits());
        }
        // the control: two levels of the tree exchanged are another function
        assert!(differing > 5, "{differing}");
    }

    #[test]
    fn tail_relu_and_nan() {
        let (pooled, q) = (values(8 * 128, 31), values(4 * 128, 43));
        let dead: [f32; 128] = values(128, 17).try_into().unwrap();
        for n_kv in [1usize, 4, 6, 31, 32] {
            let mut out = [f32::NAN; 10];
            scores(&pooled, &dead, &q, n_kv, &mut out);
            let n = n_kv / 4;
            assert!(out[n + 1].is_nan() && out[..n].iter().all(|s| *s >= 0.0 && *s < 1e9));
            assert_eq!(out[n] >= 1e9, n_kv % 4 != 0);
        }
        let minus: Vec<f32> = pooled[..128].iter().map(|v| -v).collect();
        let mut one = [0.0f32; 512];
        one[..128].copy_from_slice(&minus);
        assert_eq!(score_block(pooled[..128].try_into().unwrap(), &one).to_bits(), 0);
        one[0] = f32::NAN;
        assert_eq!(score_block(pooled[..128].try_into().unwrap(), &one).to_bits(), 0);
    }
}
