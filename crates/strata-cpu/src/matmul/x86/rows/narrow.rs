//! Formats of blocks of 32 and 64 values, without VNNI, and [`Unpack::FOURS`].

use super::super::unpack::{Blocks, ROWS, Unpack, each, load, load16, twice};
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
            let mut chains = Chains::<T>::new(self.ends);
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

    /// Of formats with [`Unpack::FOURS`]: the activations are brought into the order of the codes' places in their bytes, once for
    /// eight rows, which is easier than the reverse.
    ///
    /// # Safety
    /// As [`super::Job::multiply`].
    #[inline(always)]
    pub(super) unsafe fn fours<F: Unpack, const T: usize, const VNNI: bool>(&self, items: &Items<T>) -> [__m256; T] {
        let Items { codes, sums32: sums, scales, .. } = items;
        // SAFETY: the caller's promise: rows and activations have the blocks that are counted.
        unsafe {
            let zero = _mm256_setzero_si256();
            let mut chains = Chains::<T>::new(self.ends);
            for s in 0..self.blocks {
                let blocks = self.rows.after(s * size_of::<F::Bytes>());
                self.send_for_all::<F>(s);
                let mut a = [(zero, zero); T];
                for t in 0..T {
                    a[t] = if T == 1 && !self.places.is_null() { *self.places.add(s) } else { by_places(codes[t].add(64 * s)) };
                }
                let terms = if VNNI { terms512(blocks, &a) } else { terms256(blocks, &a) };
                let d = F::d(blocks, 0);
                for t in 0..T {
                    let terms = [_mm256_srai_epi32(_mm256_slli_epi32(terms[t], 16), 16), _mm256_srai_epi32(terms[t], 16)];
                    for (u, isum) in terms.into_iter().enumerate() {
                        let scale = _mm256_set1_ps(*scales[t].add(2 * s + u));
                        let isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(i32::from(F::OFFSET) * *sums[t].add(2 * s + u)));
                        let chain = &mut chains.chain[t];
                        *chain = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), _mm256_cvtepi32_ps(isum), *chain);
                    }
                }
                chains.after(s);
            }
            chains.total
        }
    }
}

/// The products of eight blocks of [`Unpack::FOURS`] with each of the activations, without the offset: a lane is a row, its first
/// term in the lower half, its second in the upper.
///
/// # Safety
/// AVX2; the blocks exist.
#[inline(always)]
unsafe fn terms256<const T: usize>(blocks: Blocks, a: &[Places; T]) -> [__m256i; T] {
    // SAFETY: the caller's promise.
    unsafe {
        let three = _mm256_set1_epi8(3);
        let shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
        // pairs of products are at most 2 * 3 * 127: sixteen of them fit 16 bits
        let mut pairs = [[three; ROWS]; T];
        each!(K < 8 => {
            // first half of the vector: places 0 of the sixteen bytes, second half: places 2; then 1 and 3
            let q = _mm256_srlv_epi32(twice(blocks.of(K).add(2)), shift);
            let (even, odd) = (_mm256_and_si256(q, three), _mm256_and_si256(_mm256_srli_epi16(q, 2), three));
            for t in 0..T {
                pairs[t][K] = _mm256_add_epi16(_mm256_maddubs_epi16(even, a[t].0), _mm256_maddubs_epi16(odd, a[t].1));
            }
        });
        let mut all = [three; T];
        for t in 0..T {
            let v = &pairs[t];
            let low = _mm256_hadd_epi16(_mm256_hadd_epi16(v[0], v[1]), _mm256_hadd_epi16(v[2], v[3]));
            let high = _mm256_hadd_epi16(_mm256_hadd_epi16(v[4], v[5]), _mm256_hadd_epi16(v[6], v[7]));
            all[t] = _mm256_add_epi16(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
        }
        all
    }
}

/// [`terms256`] with all places of a row in one vector.
///
/// # Safety
/// AVX-512 F, BW, DQ and VNNI; the blocks exist.
#[inline(always)]
unsafe fn terms512<const T: usize>(blocks: Blocks, a: &[Places; T]) -> [__m256i; T] {
    // SAFETY: the caller's promise.
    unsafe {
        let (zero, ones, three) = (_mm512_setzero_si512(), _mm512_set1_epi16(1), _mm512_set1_epi8(3));
        // a quarter of the vector: places 0, 2, 1 and 3 of the sixteen bytes
        let shift = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 2, 2, 2, 2, 6, 6, 6, 6);
        let mut places = [zero; T];
        for t in 0..T {
            places[t] = _mm512_inserti64x4(_mm512_castsi256_si512(a[t].0), a[t].1, 1);
        }
        // of every two rows: in a quarter both terms of the first and both of the second
        let mut two = [[zero; 4]; T];
        each!(K < 4 => {
            let first = _mm512_broadcast_i32x4(load16(blocks.of(2 * K).add(2)));
            let second = _mm512_broadcast_i32x4(load16(blocks.of(2 * K + 1).add(2)));
            let first = _mm512_and_si512(_mm512_srlv_epi32(first, shift), three);
            let second = _mm512_and_si512(_mm512_srlv_epi32(second, shift), three);
            for t in 0..T {
                // a lane of four products is at most 4 * 3 * 127: all that is added here fits 16 bits
                let (first, second) = (_mm512_dpbusd_epi32(zero, first, places[t]), _mm512_dpbusd_epi32(zero, second, places[t]));
                two[t][K % 4] = _mm512_madd_epi16(_mm512_packs_epi32(first, second), ones);
            }
        });
        let mut all = [_mm256_setzero_si256(); T];
        for t in 0..T {
            let (low, high) = (_mm512_packs_epi32(two[t][0], two[t][1]), _mm512_packs_epi32(two[t][2], two[t][3]));
            let quarters = _mm512_add_epi16(_mm512_shuffle_i64x2(low, high, 0x44), _mm512_shuffle_i64x2(low, high, 0xee));
            let halves = _mm512_shuffle_i64x2(quarters, quarters, 0xd8);
            all[t] = _mm256_add_epi16(_mm512_castsi512_si256(halves), _mm512_extracti64x4_epi64(halves, 1));
        }
        all
    }
}

/// 64 activation codes by their number modulo four: 0 and 2 in the halves of the first vector, 1 and 3 in the second.
pub(super) type Places = (__m256i, __m256i);

/// The [`Places`] of 64 activation codes.
///
/// # Safety
/// AVX2; the codes exist.
#[inline(always)]
pub(super) unsafe fn by_places(at: *const u8) -> Places {
    // SAFETY: the caller's promise.
    unsafe {
        let four = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        let (x, y) = (_mm256_shuffle_epi8(load(at), four), _mm256_shuffle_epi8(load(at.add(32)), four));
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let low = _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi32(x, y), order);
        let high = _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi32(x, y), order);
        (_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31))
    }
}
