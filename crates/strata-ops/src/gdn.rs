//! Gated delta rule (Gated DeltaNet), token by token, in prompts too.
//!
//! A head's state is `[key_dim, value_dim]`. Its value columns are independent, so it is stored in blocks of
//! [`COLUMNS`] columns, `[value_dim / COLUMNS][key_dim][COLUMNS]`, and a block is carried through all the rows of a
//! chunk while it sits in the first-level cache.

use crate::math::{butterfly, exp, sigmoid, softplus, sum_squares};
use crate::norm::rsqrt;

/// Value columns in one block of a state.
pub const COLUMNS: usize = 16;
/// Lanes of the dots over the key dimension.
pub const LANES: usize = 8;

/// Decay and write strength of each value head: `decay = exp(a * softplus(alpha + dt))`, `beta = sigmoid(b)`.
///
/// `a` holds `-exp(A_log)` (as GGUF stores it). All `[heads]`.
#[inline(always)]
pub fn gates(alpha: &[f32], b: &[f32], a: &[f32], dt: &[f32], decay: &mut [f32], beta: &mut [f32]) {
    for h in 0..a.len() {
        decay[h] = exp(a[h] * softplus(alpha[h] + dt[h]));
        beta[h] = sigmoid(b[h]);
    }
}

/// One chunk of rows for one block of columns of one value head.
pub struct Scan<'a> {
    /// Rows `[n, stride]`: normalised queries, keys and the values, wherever `q`, `k`, `v` say they start.
    pub qkv: &'a [f32],
    pub stride: usize,
    /// Offset in a row of this head's query, key (`[key_dim]`) and of this block's values (`[COLUMNS]`).
    pub q: usize,
    pub k: usize,
    pub v: usize,
    pub key_dim: usize,
    /// Gates `[n, heads]`; this head's column is `head`.
    pub decay: &'a [f32],
    pub beta: &'a [f32],
    pub heads: usize,
    pub head: usize,
    pub rows: usize,
}

/// Where a block's outputs go: [`COLUMNS`] columns of an array `[rows, stride]` whose other columns belong to others.
#[derive(Clone, Copy)]
pub struct Columns {
    at: *mut f32,
    stride: usize,
    rows: usize,
}

impl Columns {
    /// Columns `first..first + COLUMNS` of the array at `at`.
    ///
    /// # Safety
    /// The array has `rows * stride` values, `first + COLUMNS <= stride`, and while this is in use nothing else
    /// touches these columns.
    pub unsafe fn new(at: *mut f32, stride: usize, rows: usize, first: usize) -> Columns {
        // SAFETY: inside the array by the caller's promise.
        Columns { at: unsafe { at.add(first) }, stride, rows }
    }

    /// Writes `N` values of a row from column `first` of the block on.
    #[inline(always)]
    pub fn write<const N: usize>(&self, row: usize, first: usize, values: &[f32; N]) {
        assert!(row < self.rows && first + N <= COLUMNS, "a scan writes outside its columns");
        // SAFETY: inside the block's columns by the assertion; ours alone by the promise of `new`.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.at.add(row * self.stride + first), N) };
    }
}

/// Carries `state` (`[key_dim, COLUMNS]`) over the rows of `s` and writes the outputs, if they are wanted.
///
/// For each row: `S = decay * S`; `e = beta * (v - S^T k)`; `S = fma(k, e, S)`; `o = S^T q`. Dots over the key
/// dimension are lane trees of 8. `N` columns are worked at a time: it divides `COLUMNS` and changes no bit.
#[inline(always)]
pub fn scan_block<const N: usize>(s: &Scan<'_>, state: &mut [f32], out: Option<Columns>) {
    for first in (0..COLUMNS).step_by(N) {
        for t in 0..s.rows {
            let row = &s.qkv[t * s.stride..(t + 1) * s.stride];
            let k = &row[s.k..s.k + s.key_dim];
            let q = &row[s.q..s.q + s.key_dim];
            let v = &row[s.v + first..s.v + first + N];
            let decay = s.decay[t * s.heads + s.head];
            let beta = s.beta[t * s.heads + s.head];

            let mut p = [[0.0f32; N]; LANES];
            let (groups, _) = state.as_chunks_mut::<{ COLUMNS * LANES }>();
            let (key_groups, _) = k.as_chunks::<LANES>();
            for (g, k) in groups.iter_mut().zip(key_groups) {
                for l in 0..LANES {
                    let srow = &mut g[l * COLUMNS + first..l * COLUMNS + first + N];
                    for j in 0..N {
                        let x = decay * srow[j];
                        srow[j] = x;
                        p[l][j] = x.mul_add(k[l], p[l][j]);
                    }
                }
            }
            let dot = column_tree(&p);
            let mut e = [0.0f32; N];
            for j in 0..N {
                e[j] = beta * (v[j] - dot[j]);
            }

            let mut p = [[0.0f32; N]; LANES];
            let (query_groups, _) = q.as_chunks::<LANES>();
            for ((g, k), q) in groups.iter_mut().zip(key_groups).zip(query_groups) {
                for l in 0..LANES {
                    let srow = &mut g[l * COLUMNS + first..l * COLUMNS + first + N];
                    for j in 0..N {
                        let x = k[l].mul_add(e[j], srow[j]);
                        srow[j] = x;
                        p[l][j] = x.mul_add(q[l], p[l][j]);
                    }
                }
            }
            if let Some(o) = &out {
                o.write(t, first, &column_tree(&p));
            }
        }
    }
}

/// The lane tree of every column.
#[inline(always)]
fn column_tree<const N: usize>(p: &[[f32; N]; LANES]) -> [f32; N] {
    let mut o = [0.0f32; N];
    for j in 0..N {
        let lanes = [p[0][j], p[1][j], p[2][j], p[3][j], p[4][j], p[5][j], p[6][j], p[7][j]];
        o[j] = butterfly(lanes);
    }
    o
}

/// Output norm and gate of one head, in place: `o = ((o * r) * gain) * sigmoid(z)`, `r = 1 / sqrt(mean(o^2) + eps)`.
#[inline(always)]
pub fn gated_norm(o: &mut [f32], z: &[f32], gain: &[f32], eps: f32) {
    let r = rsqrt(sum_squares(o) / o.len() as f32 + eps);
    for ((o, z), g) in o.iter_mut().zip(z).zip(gain) {
        *o = ((*o * r) * g) * sigmoid(*z);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::dot;

    fn noise(seed: u32, n: usize, scale: f32) -> Vec<f32> {
        let mut s = seed;
        (0..n)
            .map(|_| {
                s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((s >> 8) as f32 / (1 << 24) as f32 - 0.5) * 2.0 * scale
            })
            .collect()
    }

    /// The recurrence as the page states it: a plain `[key_dim][value_dim]` state, one token after another.
    fn naive(qkv: &[f32], decay: &[f32], beta: &[f32], dk: usize, dv: usize, n: usize) -> (Vec<f32>, Vec<f32>) {
        let mut st = vec![vec![0.0f32; dv]; dk];
        let mut out = Vec::new();
        let stride = 2 * dk + dv;
        for t in 0..n {
            let row = &qkv[t * stride..(t + 1) * stride];
            let (q, k, v) = (&row[..dk], &row[dk..2 * dk], &row[2 * dk..]);
            for r in st.iter_mut() {
                r.iter_mut().for_each(|x| *x *= decay[t]);
            }
            for j in 0..dv {
                let column: Vec<f32> = (0..dk).map(|i| st[i][j]).collect();
                let e = beta[t] * (v[j] - dot::<8>(&column, k));
                for i in 0..dk {
                    st[i][j] = k[i].mul_add(e, st[i][j]);
                }
                let column: Vec<f32> = (0..dk).map(|i| st[i][j]).collect();
                out.push(dot::<8>(&column, q));
            }
        }
        (out, st.concat())
    }

    #[test]
    fn blocks_equal_the_plain_recurrence() {
        let (dk, dv, n) = (24, 32, 9);
        let qkv = noise(1, n * (2 * dk + dv), 1.0);
        let decay = noise(2, n, 0.5).iter().map(|x| x + 0.5).collect::<Vec<_>>();
        let beta = noise(3, n, 0.5).iter().map(|x| x + 0.5).collect::<Vec<_>>();
        let (want, want_state) = naive(&qkv, &decay, &beta, dk, dv, n);
        let mut out = vec![0.0; n * dv];
        let mut state = vec![0.0; dk * dv];
        for b in 0..dv / COLUMNS {
            let s = Scan {
                qkv: &qkv,
                stride: 2 * dk + dv,
                q: 0,
                k: dk,
                v: 2 * dk + b * COLUMNS,
                key_dim: dk,
                decay: &decay,
                beta: &beta,
                heads: 1,
                head: 0,
                rows: n,
            };
            let st = &mut state[b * dk * COLUMNS..(b + 1) * dk * COLUMNS];
            // SAFETY: the array has n rows of dv, and nothing else uses it now.
            let columns = unsafe { Columns::new(out.as_mut_ptr(), dv, n, b * COLUMNS) };
            if b == 0 { scan_block::<8>(&s, st, Some(columns)) } else { scan_block::<16>(&s, st, Some(columns)) }
        }
        assert!(out.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits()));
        for i in 0..dk {
            for j in 0..dv {
                let got = state[(j / COLUMNS) * dk * COLUMNS + i * COLUMNS + j % COLUMNS];
                assert_eq!(got.to_bits(), want_state[i * dv + j].to_bits());
            }
        }
    }
}
