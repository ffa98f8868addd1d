//! Formats of blocks of 32 and 64 values with VNNI: two rows a vector.

use super::super::unpack::{ROWS, Unpack, each, load};
use super::chains::{Chains, pair_sums};
use super::{Items, Panel};
use std::arch::x86_64::*;

impl Panel<'_> {
    /// # Safety
    /// As [`super::Job::multiply`], with AVX-512 F, BW, DQ, VL and VNNI.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "items and units count through several arrays")]
    pub(super) unsafe fn pairs<F: Unpack, const T: usize>(&self, items: &Items<T>) -> [__m256; T] {
        let Items { codes, sums32: sums, scales, .. } = items;
        let units = F::LEN / 32;
        // SAFETY: the caller's promise: rows and activations have the blocks that are counted.
        unsafe {
            let zero = _mm256_setzero_si256();
            let up = _mm256_set1_epi8(F::UP as i8);
            let mut chains = Chains::<__m256, T>::new(self.ends);
            for s in 0..self.blocks {
                let blocks = self.rows.after(s * size_of::<F::Bytes>());
                self.send_for_all::<F>(s);
                let d = F::d(blocks, 0);
                let dmin = if F::MAX_MIN > 0 { F::dmin(blocks) } else { d };
                each!(U < units => {
                    let (mut a, mut rest) = ([_mm512_setzero_si512(); T], [_mm512_setzero_si512(); T]);
                    for t in 0..T {
                        let codes = load(codes[t].add((s * units + U) * 32));
                        a[t] = twice512(codes);
                        if F::UP != 0 {
                            // what the codes are raised by is taken away from the sums to begin with
                            rest[t] = twice512(_mm256_sub_epi32(zero, _mm256_dpbusd_epi32(zero, up, codes)));
                        }
                    }
                    let mut isums = [[_mm512_setzero_si512(); ROWS / 2]; T];
                    each!(K < 4 => {
                        let u = F::pair::<U>(blocks.of(K), blocks.of(K + ROWS / 2));
                        for t in 0..T {
                            isums[t][K % 4] = _mm512_dpbusd_epi32(rest[t], u, a[t]);
                        }
                    });
                    for t in 0..T {
                        let scale = _mm256_set1_ps(*scales[t].add(s * units + U));
                        let chain = &mut chains.chain[t];
                        let [first, second] = pair_sums(&isums[t]);
                        if F::SPAN == 16 {
                            for (term, isum) in [first, second].into_iter().enumerate() {
                                let d = F::d(blocks, 2 * U + term);
                                *chain = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), _mm256_cvtepi32_ps(isum), *chain);
                            }
                            continue;
                        }
                        let isum = _mm256_cvtepi32_ps(_mm256_add_epi32(first, second));
                        *chain = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), isum, *chain);
                        if F::MAX_MIN > 0 {
                            let sum = _mm256_set1_ps(*sums[t].add(s * units + U) as f32);
                            *chain = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, scale), sum, *chain);
                        }
                    }
                });
                chains.after(s);
            }
            chains.total
        }
    }
}

/// The same in both halves.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
unsafe fn twice512(x: __m256i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_broadcast_i64x4(x) }
}
