//! Formats of blocks of 256 values.

use super::super::unpack::{ROWS, Unpack, by_halves, each, in_memory, load, load512, spread, spread_two};
use super::chains::{Chains, lane_sums};
use super::{Items, Panel};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use strata_ops::matmul::SUM_SPAN;

impl Panel<'_> {
    /// # Safety
    /// As [`super::Job::multiply`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "items count through several arrays")]
    pub(super) unsafe fn wide<F: Unpack, const T: usize, const VNNI: bool>(&self, items: &Items<T>) -> [__m256; T] {
        let Items { codes, sums256: sums, scales, .. } = items;
        // SAFETY: the caller's promise: rows and activations have the blocks that are counted.
        unsafe {
            let mut chains = Chains::<__m256, T>::new(self.ends);
            let (mut isums, mut msums) = (MaybeUninit::<[[__m256i; ROWS]; T]>::uninit(), MaybeUninit::<[[__m256i; ROWS]; T]>::uninit());
            let mut heads = MaybeUninit::<[F::Head; ROWS]>::uninit();
            for s in 0..self.blocks {
                let blocks = self.rows.after(s * size_of::<F::Bytes>());
                self.send_for_all::<F>(s);
                // those of all rows first: what is written is read some time later, and nobody waits for it
                for k in 0..ROWS {
                    F::head(blocks.of(k), &mut (*heads.as_mut_ptr())[k]);
                }
                in_memory(&mut heads);
                let codes = codes.map(|c| c.add(s * 256));
                let sums = sums.map(|m| m.add(s * 256 / SUM_SPAN).cast::<u8>());
                for k in 0..ROWS {
                    let b = blocks.of(k);
                    let head = &(*heads.as_ptr())[k];
                    let subs = F::subs(b);
                    let mut isum = if VNNI { products512::<F, T>(b, head, subs, &codes) } else { products::<F, T>(b, head, subs, &codes) };
                    if F::OFFSET != 0 {
                        let rest = F::rest(b, subs);
                        for t in 0..T {
                            isum[t] = _mm256_add_epi32(isum[t], _mm256_madd_epi16(rest, load(sums[t])));
                        }
                    }
                    if F::MAX_MIN > 0 {
                        let mins = F::mins(b);
                        for t in 0..T {
                            (&raw mut (*msums.as_mut_ptr())[t][k]).write(_mm256_madd_epi16(mins, load(sums[t])));
                        }
                    }
                    for t in 0..T {
                        (&raw mut (*isums.as_mut_ptr())[t][k]).write(isum[t]);
                    }
                }
                let d = F::d(blocks, 0);
                let dmin = if F::MAX_MIN > 0 { F::dmin(blocks) } else { d };
                for t in 0..T {
                    let scale = _mm256_set1_ps(*scales[t].add(s));
                    let isum = _mm256_cvtepi32_ps(lane_sums(&(&raw const (*isums.as_ptr())[t]).read()));
                    let chain = &mut chains.chain[t];
                    *chain = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), isum, *chain);
                    if F::MAX_MIN > 0 {
                        // fnmadd is fma(-dmin, ..)
                        let msum = _mm256_cvtepi32_ps(lane_sums(&(&raw const (*msums.as_ptr())[t]).read()));
                        *chain = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, scale), msum, *chain);
                    }
                }
                chains.after(s);
            }
            chains.total
        }
    }
}

/// The products of a block with activations, but for what [`Unpack::rest`] says, in eight parts.
///
/// # Safety
/// As [`Unpack`]; the activations have 256 codes.
#[inline(always)]
unsafe fn products<F: Unpack, const T: usize>(b: *const u8, head: &F::Head, subs: __m256i, codes: &[*const u8; T]) -> [__m256i; T] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut isum = [_mm256_setzero_si256(); T];
        let halves = by_halves::<F>(subs);
        each!(J < 8 => {
            let (u, signs) = F::loose::<J>(b, head);
            let scale = spread::<J>(halves);
            for t in 0..T {
                let mut a = load(codes[t].add(J * 32));
                if F::SIGNED {
                    a = _mm256_sign_epi8(a, signs);
                }
                // a pair is at most 2 * 128 * 127
                isum[t] = _mm256_add_epi32(isum[t], _mm256_madd_epi16(_mm256_maddubs_epi16(u, a), scale));
            }
        });
        isum
    }
}

/// [`products`], two units at a time.
///
/// # Safety
/// As [`products`], and AVX-512 F, BW, DQ, VL and VNNI.
#[inline(always)]
unsafe fn products512<F: Unpack, const T: usize>(b: *const u8, head: &F::Head, subs: __m256i, codes: &[*const u8; T]) -> [__m256i; T] {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = _mm512_setzero_si512();
        let mut isum = [zero; T];
        each!(H < 4 => {
            let (u, signs) = match H {
                0 => F::two::<0, 1>(b, head),
                1 => F::two::<2, 3>(b, head),
                2 => F::two::<4, 5>(b, head),
                _ => F::two::<6, 7>(b, head),
            };
            let scale = spread_two::<F>(subs, 2 * H);
            for t in 0..T {
                let mut a = load512(codes[t].add(H * 64));
                if F::SIGNED {
                    a = _mm512_mask_sub_epi8(a, signs, zero, a);
                }
                isum[t] = _mm512_dpwssd_epi32(isum[t], _mm512_maddubs_epi16(u, a), scale);
            }
        });
        isum.map(|x| _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1)))
    }
}
