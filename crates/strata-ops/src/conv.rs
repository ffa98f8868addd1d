//! Depthwise causal convolution over time, with a state of the rows before the first.

use crate::math::silu;

/// Rows of state that `taps` taps at `dilation` need.
pub const fn state_rows(taps: usize, dilation: usize) -> usize {
    (taps - 1) * dilation
}

/// Row `t` of `silu(conv(x))`: `sum_k w[k][c] * x[t - dilation * (taps - 1 - k)][c]`, an FMA chain in tap order from
/// +0; the last tap is the current row.
///
/// `x`: `[rows, channels]`, `state`: `[state_rows, channels]` oldest first (rows before row 0), `w`: `[taps, channels]`
/// (one tap after another), `out`: `[channels]`.
#[inline(always)]
pub fn conv_silu_row(x: &[f32], state: &[f32], w: &[f32], dilation: usize, t: usize, out: &mut [f32]) {
    let c = out.len();
    let taps = w.len() / c;
    let back = state_rows(taps, dilation);
    out.fill(0.0);
    for k in 0..taps {
        // position in the sequence [state, x]
        let at = t + k * dilation;
        let row = if at < back { &state[at * c..(at + 1) * c] } else { &x[(at - back) * c..(at - back + 1) * c] };
        for ((o, v), w) in out.iter_mut().zip(row).zip(&w[k * c..(k + 1) * c]) {
            *o = w.mul_add(*v, *o);
        }
    }
    for o in out.iter_mut() {
        *o = silu(*o);
    }
}

/// Advances the state past the first `rows` rows of `x`: it becomes the last rows of `[state, x[..rows]]`.
pub fn advance_state(state: &mut [f32], x: &[f32], channels: usize, rows: usize) {
    let keep = state.len() / channels;
    if rows >= keep {
        state.copy_from_slice(&x[(rows - keep) * channels..rows * channels]);
    } else {
        state.copy_within(rows * channels.., 0);
        state[(keep - rows) * channels..].copy_from_slice(&x[..rows * channels]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition over a zero-padded sequence.
    fn naive(x: &[Vec<f32>], w: &[f32], c: usize, taps: usize, dilation: usize, t: usize) -> Vec<f32> {
        (0..c)
            .map(|ch| {
                let mut acc = 0.0f32;
                for k in 0..taps {
                    let at = t as isize - (dilation * (taps - 1 - k)) as isize;
                    let v = if at < 0 { 0.0 } else { x[at as usize][ch] };
                    acc = w[k * c + ch].mul_add(v, acc);
                }
                silu(acc)
            })
            .collect()
    }

    #[test]
    fn chunks_of_any_size_give_the_whole_convolution() {
        let (c, n) = (5, 23);
        for (taps, dilation) in [(4, 1), (4, 3), (2, 1), (1, 1)] {
            let x: Vec<Vec<f32>> = (0..n).map(|t| (0..c).map(|i| ((t * 31 + i * 7) % 17) as f32 - 8.0).collect()).collect();
            let w: Vec<f32> = (0..taps * c).map(|i| ((i * 13 % 11) as f32 - 5.0) * 0.25).collect();
            for chunk in [1, 2, 5, 23] {
                let mut state = vec![0.0; state_rows(taps, dilation) * c];
                let mut t = 0;
                while t < n {
                    let rows = chunk.min(n - t);
                    let flat: Vec<f32> = x[t..t + rows].concat();
                    for r in 0..rows {
                        let mut out = vec![0.0; c];
                        conv_silu_row(&flat, &state, &w, dilation, r, &mut out);
                        assert_eq!(out, naive(&x, &w, c, taps, dilation, t + r), "taps {taps} row {}", t + r);
                    }
                    advance_state(&mut state, &flat, c, rows);
                    t += rows;
                }
            }
        }
    }
}
