//! Formats of blocks of 32 and 64 values with VNNI and several activation rows: sixteen weight rows are turned once, so that a lane is a
//! row, and every activation row meets them with no lanes left to add up.

use super::super::unpack::{Blocks, Unpack, each};
use super::chains::Chains;
use super::{Items, Panel};
use std::arch::x86_64::*;

/// Weight rows of a panel.
pub(super) const SIXTEEN: usize = 16;

impl Panel<'_> {
    /// # Safety
    /// As [`super::Job::multiply`], with AVX-512 F, BW, DQ, VL and VNNI; there are sixteen rows. The format has a scale for 32 values.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "items count through several arrays")]
    pub(super) unsafe fn sixteen<F: Unpack, const T: usize>(&self, items: &Items<T>) -> [__m512; T] {
        let Items { codes, sums32: sums, scales, .. } = items;
        let units = F::LEN / 32;
        // SAFETY: the caller's promise: rows and activations have the blocks that are counted.
        unsafe {
            let mut chains = Chains::<__m512, T>::new(self.ends);
            for s in 0..self.blocks {
                let blocks = self.rows.after(s * size_of::<F::Bytes>());
                let upper = Blocks { first: blocks.of(SIXTEEN / 2), ..blocks };
                self.send_for_rows::<F, SIXTEEN>(s);
                let d = joined(F::d(blocks, 0), F::d(upper, 0));
                let dmin = if F::MAX_MIN > 0 { joined(F::dmin(blocks), F::dmin(upper)) } else { d };
                each!(U < units => {
                    let steps = turned(&rows::<F, U>(blocks));
                    let at = s * units + U;
                    let mut isum = [steps[0]; T];
                    for t in 0..T {
                        // what the codes are raised by is taken away to begin with
                        isum[t] = _mm512_set1_epi32(-i32::from(F::UP) * if F::UP != 0 { *sums[t].add(at) } else { 0 });
                    }
                    each!(S < 8 => {
                        for t in 0..T {
                            let four = codes[t].add(32 * at + 4 * S).cast::<i32>().read_unaligned();
                            isum[t] = _mm512_dpbusd_epi32(isum[t], steps[S], _mm512_set1_epi32(four));
                        }
                    });
                    for t in 0..T {
                        let scale = _mm512_set1_ps(*scales[t].add(at));
                        let chain = &mut chains.chain[t];
                        *chain = _mm512_fmadd_ps(_mm512_mul_ps(d, scale), _mm512_cvtepi32_ps(isum[t]), *chain);
                        if F::MAX_MIN > 0 {
                            let sum = _mm512_set1_ps(*sums[t].add(at) as f32);
                            *chain = _mm512_fnmadd_ps(_mm512_mul_ps(dmin, scale), sum, *chain);
                        }
                    }
                });
                chains.after(s);
            }
            chains.total
        }
    }
}

/// Unit `U` of sixteen rows, two a vector, so that [`turned`] gives them in order.
///
/// # Safety
/// As [`Unpack::pair`].
#[inline(always)]
unsafe fn rows<F: Unpack, const U: usize>(blocks: Blocks) -> [__m512i; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut rows = [_mm512_setzero_si512(); 8];
        each!(K < 8 => {
            let row = K % 4 + K / 4 * 8;
            rows[K] = F::pair::<U>(blocks.of(row), blocks.of(row + 4));
        });
        rows
    }
}

/// The transpose of 16 x 8 32-bit numbers: rows 0 and 4, 1 and 5, 2 and 6, 3 and 7, then 8 and 12, ... in one vector each.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
unsafe fn turned(v: &[__m512i; 8]) -> [__m512i; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let (low, high) = (quarters([v[0], v[1], v[2], v[3]]), quarters([v[4], v[5], v[6], v[7]]));
        let mut steps = [v[0]; 8];
        each!(J < 4 => {
            steps[J % 4] = _mm512_shuffle_i64x2::<0x88>(low[J % 4], high[J % 4]);
            steps[J % 4 + 4] = _mm512_shuffle_i64x2::<0xdd>(low[J % 4], high[J % 4]);
        });
        steps
    }
}

/// The transpose of 4 x 4 32-bit numbers in each quarter of four vectors.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
unsafe fn quarters([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (e0, e1) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (f0, f1) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        [_mm512_unpacklo_epi64(e0, f0), _mm512_unpackhi_epi64(e0, f0), _mm512_unpacklo_epi64(e1, f1), _mm512_unpackhi_epi64(e1, f1)]
    }
}

/// # Safety
/// AVX-512 DQ.
#[inline(always)]
unsafe fn joined(a: __m256, b: __m256) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1) }
}
