//! Formats of blocks of 32 and 64 values with several activation rows: the eight weight rows are turned once, so that a lane is a
//! row, and every activation row meets them with no lanes left to add up.

use super::super::inner::opaque;
use super::super::unpack::{ROWS, Unpack, each, transposed};
use super::chains::Chains;
use super::{Items, Panel};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Steps of four columns whose pairs of products sum in 16 bits.
const fn together<F: Unpack>() -> usize {
    let largest = F::MAX_CODE + F::OFFSET as i32 - (F::OFFSET > 0) as i32;
    let fit = 32_767 / (2 * 127 * largest) as usize;
    if fit >= 8 && F::SPAN != 16 {
        8
    } else if fit >= 4 {
        4
    } else {
        1
    }
}

impl Panel<'_> {
    /// # Safety
    /// As [`super::Job::multiply`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "items count through several arrays")]
    pub(super) unsafe fn turned<F: Unpack, const T: usize, const VNNI: bool>(&self, items: &Items<T>) -> [__m256; T] {
        let Items { codes, sums32: sums, scales, .. } = items;
        let units = F::LEN / 32;
        let terms = 32 / F::SPAN.min(32);
        // an instruction for four products takes any bytes: signed codes are raised by 128 for it, which the sums of the
        // activations make up for, where there is one for the term
        let raised = VNNI && F::SIGNED && terms == 1;
        let signed = F::SIGNED && !raised;
        let offset = if raised { 128 } else { i32::from(F::OFFSET) };
        // SAFETY: the caller's promise: rows and activations have the blocks that are counted.
        unsafe {
            let zero = _mm256_setzero_si256();
            let ones = _mm256_set1_epi16(1);
            let mut head = MaybeUninit::<F::Head>::uninit();
            let head = &mut *head.as_mut_ptr();
            let mut chains = Chains::<__m256, T>::new(self.ends);
            for s in 0..self.blocks {
                let blocks = self.rows.after(s * size_of::<F::Bytes>());
                self.send_for_all::<F>(s);
                let mut rows = [[zero; ROWS]; 2];
                each!(K < 8 => {
                    let b = blocks.of(K);
                    F::head(b, head);
                    each!(U < units => {
                        let (u, code) = F::unit::<U>(b, head);
                        rows[U % 2][K] = match (F::SIGNED, raised) {
                            (true, true) => _mm256_xor_si256(code, _mm256_set1_epi8(-128)),
                            (true, false) => code,
                            _ => u,
                        };
                    });
                });
                let d = F::d(blocks, 0);
                let dmin = if F::MAX_MIN > 0 { F::dmin(blocks) } else { d };
                for u in 0..units {
                    let steps = transposed(&rows[u]);
                    let of_step = |t: usize, step: usize| {
                        _mm256_set1_epi32(codes[t].add((s * units + u) * 32 + 4 * step).cast::<i32>().read_unaligned())
                    };
                    for term in 0..terms {
                        let mut isum = [zero; T];
                        let mut pairs = [zero; T];
                        for step in term * 8 / terms..opaque((term + 1) * 8 / terms) {
                            let w = steps[step];
                            let magnitude = if signed { _mm256_abs_epi8(w) } else { w };
                            for t in 0..T {
                                let mut a = of_step(t, step);
                                if signed {
                                    a = _mm256_sign_epi8(a, w);
                                }
                                if VNNI {
                                    isum[t] = _mm256_dpbusd_epi32(isum[t], magnitude, a);
                                    continue;
                                }
                                let p = _mm256_maddubs_epi16(magnitude, a);
                                pairs[t] = if step % together::<F>() == 0 { p } else { _mm256_add_epi16(pairs[t], p) };
                                if (step + 1) % together::<F>() == 0 {
                                    isum[t] = _mm256_add_epi32(isum[t], _mm256_madd_epi16(pairs[t], ones));
                                }
                            }
                        }
                        let d = if terms > 1 { F::d(blocks, u * terms + term) } else { d };
                        for t in 0..T {
                            let scale = _mm256_set1_ps(*scales[t].add(s * units + u));
                            let chain = &mut chains.chain[t];
                            let sum = *sums[t].add(s * units + u);
                            let mut isum = isum[t];
                            if offset != 0 {
                                isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(offset * sum));
                            }
                            *chain = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), _mm256_cvtepi32_ps(isum), *chain);
                            if F::MAX_MIN > 0 {
                                *chain = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, scale), _mm256_set1_ps(sum as f32), *chain);
                            }
                        }
                    }
                }
                chains.after(s);
            }
            chains.total
        }
    }
}
