//! Formats with [`Unpack::FOURS`]: the activations are brought into the order of the codes' places in their bytes, once for all rows, which
//! is easier than the reverse.

use super::super::unpack::{Blocks, ROWS, Unpack, each, load, load16, twice};
use super::chains::Chains;
use super::{Items, Panel};
use std::arch::x86_64::*;

/// 64 activation codes by their number modulo four.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Places {
    /// Numbers 0, 2, 1 and 3.
    codes: [[u8; 16]; 4],
    /// The sums of every sixteen codes as they come, times what is added to the weights' codes, to be taken away.
    rest: [i32; 4],
}

/// The numbers of [`Places::codes`].
const NUMBERS: [usize; 4] = [0, 2, 1, 3];

impl Places {
    /// Those of 64 activation codes.
    ///
    /// # Safety
    /// AVX2; the codes exist.
    #[inline(always)]
    pub unsafe fn new<F: Unpack>(at: *const u8) -> Places {
        let mut places = Places { codes: [[0; 16]; 4], rest: [0; 4] };
        // SAFETY: the caller's promise.
        unsafe {
            let four = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
            let (x, y) = (_mm256_shuffle_epi8(load(at), four), _mm256_shuffle_epi8(load(at.add(32)), four));
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            let low = _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi32(x, y), order);
            let high = _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi32(x, y), order);
            let to = places.codes.as_mut_ptr().cast::<__m256i>();
            to.write(_mm256_permute2x128_si256(low, high, 0x20));
            to.add(1).write(_mm256_permute2x128_si256(low, high, 0x31));
            let offset = _mm256_set1_epi8(F::OFFSET);
            // four products of small offsets and codes, twice, and the halves, which are of other places of the same codes
            let pairs = _mm256_add_epi16(_mm256_maddubs_epi16(offset, to.read()), _mm256_maddubs_epi16(offset, to.add(1).read()));
            let sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(-1));
            let sums = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
            _mm_storeu_si128(places.rest.as_mut_ptr().cast(), sums);
        }
        places
    }

    /// The codes of places 0 and 2, and of 1 and 3.
    ///
    /// # Safety
    /// AVX2.
    #[inline(always)]
    unsafe fn halves(&self) -> [__m256i; 2] {
        let at = self.codes.as_ptr().cast::<__m256i>();
        // SAFETY: the caller's promise; 64 bytes.
        unsafe { [at.read(), at.add(1).read()] }
    }
}

impl Panel<'_> {
    /// # Safety
    /// As [`super::Job::multiply`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "items count through several arrays")]
    pub(super) unsafe fn fours<F: Unpack, const T: usize, const VNNI: bool>(&self, items: &Items<T>) -> [__m256; T] {
        let Items { codes, scales, .. } = items;
        // SAFETY: the caller's promise: rows and activations have the blocks that are counted.
        unsafe {
            let mut chains = Chains::<__m256, T>::new(self.ends);
            for s in 0..self.blocks {
                let blocks = self.rows.after(s * size_of::<F::Bytes>());
                self.send_for_all::<F>(s);
                let mut new = [const { std::mem::MaybeUninit::<Places>::uninit() }; T];
                let mut places = [self.places.wrapping_add(s); T];
                if T > 1 || self.places.is_null() {
                    for t in 0..T {
                        places[t] = new[t].write(Places::new::<F>(codes[t].add(64 * s)));
                    }
                }
                let places = places.map(|p| &*p);
                let terms = if VNNI { terms512(blocks, &places) } else { terms256(blocks, &places) };
                let d = F::d(blocks, 0);
                for t in 0..T {
                    for (u, isum) in terms[t].into_iter().enumerate() {
                        let scale = _mm256_set1_ps(*scales[t].add(2 * s + u));
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

/// The two terms of eight blocks with each of the activations: a lane is a row.
///
/// # Safety
/// AVX2; the blocks exist.
#[inline(always)]
unsafe fn terms256<const T: usize>(blocks: Blocks, a: &[&Places; T]) -> [[__m256i; 2]; T] {
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
                let [first, second] = a[t].halves();
                pairs[t][K] = _mm256_add_epi16(_mm256_maddubs_epi16(even, first), _mm256_maddubs_epi16(odd, second));
            }
        });
        let mut terms = [[three; 2]; T];
        for t in 0..T {
            let v = &pairs[t];
            let low = _mm256_hadd_epi16(_mm256_hadd_epi16(v[0], v[1]), _mm256_hadd_epi16(v[2], v[3]));
            let high = _mm256_hadd_epi16(_mm256_hadd_epi16(v[4], v[5]), _mm256_hadd_epi16(v[6], v[7]));
            let both = _mm256_add_epi16(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
            // the first term in the lower half of a lane, the second in the upper
            let rest = a[t].rest;
            terms[t] = [
                _mm256_add_epi32(_mm256_srai_epi32(_mm256_slli_epi32(both, 16), 16), _mm256_set1_epi32(rest[0] + rest[1])),
                _mm256_add_epi32(_mm256_srai_epi32(both, 16), _mm256_set1_epi32(rest[2] + rest[3])),
            ];
        }
        terms
    }
}

/// [`terms256`], four rows a vector.
///
/// # Safety
/// AVX-512 F, BW, DQ and VNNI; the blocks exist.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "items count through several arrays")]
unsafe fn terms512<const T: usize>(blocks: Blocks, a: &[&Places; T]) -> [[__m256i; 2]; T] {
    // SAFETY: the caller's promise.
    unsafe {
        let three = _mm512_set1_epi8(3);
        let mut sums = [[three; 2]; T];
        for t in 0..T {
            sums[t] = [_mm512_broadcast_i32x4(load16(a[t].rest.as_ptr().cast())); 2];
        }
        each!(H < 2 => {
            let row = |k: usize| load16(blocks.of(4 * H + k).add(2));
            let q = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(row(0)), 0x00f0, row(1));
            let q = _mm512_mask_broadcast_i32x4(_mm512_mask_broadcast_i32x4(q, 0x0f00, row(2)), 0xf000, row(3));
            each!(P < 4 => {
                let number = NUMBERS[P % 4] as u32;
                let u = _mm512_and_si512(_mm512_srl_epi16(q, _mm_cvtsi32_si128(2 * number as i32)), three);
                for t in 0..T {
                    let a = _mm512_broadcast_i32x4(load16(a[t].codes[P % 4].as_ptr()));
                    sums[t][H % 2] = _mm512_dpbusd_epi32(sums[t][H % 2], u, a);
                }
            });
        });
        // of each quarter, which is a row of both vectors: the first two lanes are the first term
        let order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15);
        let mut terms = [[_mm256_setzero_si256(); 2]; T];
        for t in 0..T {
            let [x, y] = sums[t].map(|v| _mm512_castsi512_ps(v));
            let (even, odd) = (_mm512_shuffle_ps::<0x88>(x, y), _mm512_shuffle_ps::<0xdd>(x, y));
            let both = _mm512_permutexvar_epi32(order, _mm512_add_epi32(_mm512_castps_si512(even), _mm512_castps_si512(odd)));
            terms[t] = [_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1)];
        }
        terms
    }
}
