//! F32, F16 and BF16 with AVX-512 for several activation rows: the lanes of two rows' sums in one vector.

use super::super::Matrix;
use super::super::kernel::Tile;
use super::float::{self, Bf16, F16, F32, Float};
use std::arch::x86_64::*;
use strata_ops::matmul::FLOAT_LANES;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn f32_rows(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: the features are enabled here; the rest is the promise of whoever calls a kernel.
    unsafe { run::<F32>(w, tile) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn f16_rows(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { run::<F16>(w, tile) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn bf16_rows(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { run::<Bf16>(w, tile) }
}

/// Rows that are worked on together, and pairs of them: row k goes with row k + 4.
const ROWS: usize = 8;
const PAIRS: usize = ROWS / 2;

/// # Safety
/// AVX-512 F, BW, DQ and VL, AVX2, FMA and F16C; otherwise as a [`super::super::kernel::Kernel`].
#[inline(always)]
unsafe fn run<F: Float>(w: &Matrix, tile: &Tile<'_>) {
    let mut r = tile.rows.start;
    // SAFETY: the caller's promise, here and below.
    unsafe {
        if tile.items.len() > 1 {
            while tile.rows.end - r >= ROWS {
                items::<F>(w, tile, r);
                r += ROWS;
            }
        }
        if r < tile.rows.end {
            float::run::<F>(w, &Tile { rows: r..tile.rows.end, ..tile.clone() });
        }
    }
}

/// All items of the tile for eight rows from `r` on.
///
/// # Safety
/// As [`run`]; the tile has these rows.
#[inline(always)]
unsafe fn items<F: Float>(w: &Matrix, tile: &Tile<'_>, r: usize) {
    let mut i = tile.items.start;
    while i < tile.items.end {
        // SAFETY: the caller's promise.
        unsafe {
            i += match tile.items.end - i {
                4.. => panel::<F, 4>(w, tile, r, i),
                2.. => panel::<F, 2>(w, tile, r, i),
                _ => panel::<F, 1>(w, tile, r, i),
            };
        }
    }
}

/// Outputs of eight rows from `r` on for items `i..i + T`; gives `T`.
///
/// # Safety
/// As [`run`]; the tile has these rows and items.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "pairs and items count through several arrays")]
unsafe fn panel<F: Float, const T: usize>(w: &Matrix, tile: &Tile<'_>, r: usize, i: usize) -> usize {
    let rows: [[*const u8; 2]; PAIRS] = std::array::from_fn(|k| [w.row(r + k).as_ptr(), w.row(r + PAIRS + k).as_ptr()]);
    let acts: [*const f32; T] = std::array::from_fn(|t| tile.acts.f32_row(tile.act_rows.get(i + t)).as_ptr());
    let body = w.cols / FLOAT_LANES * FLOAT_LANES;
    let ahead = i == tile.items.start && r + ROWS < tile.rows.end;
    // SAFETY: rows have `cols` values by the slices above, activation rows by the caller's promise; a prefetch may name any address.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); T]; PAIRS];
        let mut at = 0;
        while at < body {
            let mut a = [_mm512_setzero_ps(); T];
            for t in 0..T {
                a[t] = _mm512_broadcast_f32x8(_mm256_loadu_ps(acts[t].add(at)));
            }
            for k in 0..PAIRS {
                let [first, second] = rows[k].map(|row| row.add(at * F::BYTES));
                // the next rows, which lie behind these, once for all items
                if ahead && (at * F::BYTES).is_multiple_of(64) {
                    _mm_prefetch(first.wrapping_add(ROWS * w.row_bytes).cast(), _MM_HINT_T0);
                    _mm_prefetch(second.wrapping_add(ROWS * w.row_bytes).cast(), _MM_HINT_T0);
                }
                let w = F::two_eights(first, second);
                for t in 0..T {
                    sums[k][t] = _mm512_fmadd_ps(w, a[t], sums[k][t]);
                }
            }
            at += FLOAT_LANES;
        }
        if body < w.cols {
            let rest = w.cols - body;
            for k in 0..PAIRS {
                let mut tail = [[0.0f32; FLOAT_LANES]; 2];
                for (tail, row) in tail.iter_mut().zip(rows[k]) {
                    tail.iter_mut().take(rest).enumerate().for_each(|(l, v)| *v = F::one(row.add((body + l) * F::BYTES)));
                }
                let mask = ((1u16 << rest) - 1) * 0x0101;
                for t in 0..T {
                    let a = _mm512_broadcast_f32x8(_mm256_maskz_loadu_ps(mask as u8, acts[t].add(body)));
                    // lanes without a value keep their sums as they are
                    sums[k][t] = _mm512_mask3_fmadd_ps(_mm512_loadu_ps(tail.as_ptr().cast()), a, sums[k][t], mask);
                }
            }
        }
        for t in 0..T {
            let mut pairs = [sums[0][t]; PAIRS];
            for k in 1..PAIRS {
                pairs[k] = sums[k][t];
            }
            tile.store(i + t, r, &butterflies(&pairs));
        }
    }
    T
}

/// The halves of each row of two pairs added: a quarter for each row, the two of `a` first.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
unsafe fn folded(a: __m512, b: __m512) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b)) }
}

/// Lane 0 of the xor butterfly of each row: of the first rows of the pairs, then of the second ones.
///
/// # Safety
/// AVX-512 F and DQ.
#[inline(always)]
unsafe fn butterflies(pairs: &[__m512; PAIRS]) -> [f32; ROWS] {
    // SAFETY: the caller's promise; eight floats are a vector.
    unsafe {
        let (first, second) = (folded(pairs[0], pairs[1]), folded(pairs[2], pairs[3]));
        let two = _mm512_add_ps(_mm512_shuffle_ps::<0x44>(first, second), _mm512_shuffle_ps::<0xee>(first, second));
        let one = _mm512_add_ps(_mm512_shuffle_ps::<0x88>(two, two), _mm512_shuffle_ps::<0xdd>(two, two));
        // quarters of `one`: the first row of a pair, the second, those of the next pair; lanes 0 and 1 are of `first` and `second`
        let order = _mm512_setr_epi32(0, 8, 1, 9, 4, 12, 5, 13, 0, 0, 0, 0, 0, 0, 0, 0);
        let mut y = [0.0; ROWS];
        _mm256_storeu_ps(y.as_mut_ptr(), _mm512_castps512_ps256(_mm512_permutexvar_ps(order, one)));
        y
    }
}
