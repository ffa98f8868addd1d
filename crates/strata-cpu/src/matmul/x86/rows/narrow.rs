//! Formats of blocks of 32 and 64 values, without VNNI.

use super::super::unpack::{ROWS, Unpack, each, load};
use super::chains::{Chains, half_sums, half_sums16};
use super::{Items, Panel};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

impl Panel<'_> {
    /// # Safety
    /// As [`super::Job::multiply`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "items and units count through several arrays")]
    pub(super) unsafe fn narrow<F: Unpack, const T: usize>(&self, items: &Items<T>) -> [__m256; T] {
        let Items { codes, sums32: sums, scales, .. } = items;
        let units = F::LEN / 32;
        // SAFETY: the caller's promise: rows and activations have the blocks that are counted.
        unsafe {
            let zero = _mm256_setzero_si256();
            let mut head = MaybeUninit::<F::Head>::uninit();
            let head = &mut *head.as_mut_ptr();
            let mut chains = Chains::<__m256, T>::new(self.ends);
            // sums of four pairs of products fit 16 bits; an offset is for a negative code, which the largest is below
            let small = F::MAX_CODE + i32::from(F::OFFSET) - i32::from(F::OFFSET > 0) <= 31;
            for s in 0..self.blocks {
                let blocks = self.rows.after(s * size_of::<F::Bytes>());
                let mut isums = [[[zero; ROWS]; 2]; T];
                self.send_for_all::<F>(s);
                each!(K < 8 => {
                    let b = blocks.of(K);
                    F::head(b, head);
                    each!(U < units => {
                        let (u, signs) = F::unit::<U>(b, head);
                        for t in 0..T {
                            let mut a = load(codes[t].add((s * units + U) * 32));
                            if F::SIGNED {
                                a = _mm256_sign_epi8(a, signs);
                            }
                            isums[t][U % 2][K] = if small {
                                _mm256_maddubs_epi16(u, a)
                            } else {
                                _mm256_madd_epi16(_mm256_maddubs_epi16(u, a), _mm256_set1_epi16(1))
                            };
                        }
                    });
                });
                let d = F::d(blocks, 0);
                let dmin = if F::MAX_MIN > 0 { F::dmin(blocks) } else { d };
                for u in 0..units {
                    for t in 0..T {
                        let scale = _mm256_set1_ps(*scales[t].add(s * units + u));
                        let chain = &mut chains.chain[t];
                        let (first, second) = if small { half_sums16(&isums[t][u]) } else { half_sums(&isums[t][u]) };
                        if F::SPAN == 16 {
                            for (term, isum) in [first, second].into_iter().enumerate() {
                                let d = F::d(blocks, 2 * u + term);
                                *chain = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), _mm256_cvtepi32_ps(isum), *chain);
                            }
                            continue;
                        }
                        let mut isum = _mm256_add_epi32(first, second);
                        let sum = *sums[t].add(s * units + u);
                        if F::OFFSET != 0 {
                            isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(i32::from(F::OFFSET) * sum));
                        }
                        *chain = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), _mm256_cvtepi32_ps(isum), *chain);
                        if F::MAX_MIN > 0 {
                            *chain = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, scale), _mm256_set1_ps(sum as f32), *chain);
                        }
                    }
                }
                chains.after(s);
            }
            chains.total
        }
    }
}
