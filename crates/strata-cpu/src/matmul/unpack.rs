//! Blocks of the 256-wide formats taken apart with AVX2, for the products in `wide`.

use std::arch::x86_64::*;
use strata_quant::formats::{IQ4_VALUES, IQ4_XS};
use strata_quant::half_at;

/// Rows unpacked together.
pub(super) const ROWS: usize = 8;

/// A block of each of [`ROWS`] rows.
#[repr(C, align(64))]
pub(super) struct Unpacked {
    /// Codes, unsigned or signed as the format says.
    pub codes: [[u8; 256]; ROWS],
    /// Sub-scales, each as often as a vector of pairs of codes needs it: value i is for codes 2i and 2i + 1.
    pub scales: [[i16; 128]; ROWS],
    /// Factors of the activation sums of 16 codes each.
    pub sum_factors: [[i16; 16]; ROWS],
    pub d: [f32; ROWS],
    pub dmin: [f32; ROWS],
}

impl Unpacked {
    pub fn new() -> Unpacked {
        Unpacked { codes: [[0; 256]; ROWS], scales: [[0; 128]; ROWS], sum_factors: [[0; 16]; ROWS], d: [0.0; ROWS], dmin: [0.0; ROWS] }
    }
}

/// A 256-wide format.
pub(super) trait Wide {
    /// Bytes of a block.
    const BYTES: usize;
    /// Codes are signed bytes, else unsigned.
    const SIGNED: bool;
    /// The sum factors belong to the codes (an offset of the codes): their products are part of the main sum.
    const OFFSET: bool;
    /// The sum factors are minima, with a scale of their own.
    const MINIMA: bool;

    /// Takes a block apart as row `r`.
    ///
    /// # Safety
    /// AVX2.
    unsafe fn unpack(block: &[u8], r: usize, to: &mut Unpacked);
}

pub(super) struct Q4K;
pub(super) struct Q5K;
pub(super) struct Q6K;
pub(super) struct Iq4Xs;

/// # Safety
/// AVX2; 32 bytes at `from`.
#[inline(always)]
unsafe fn load(from: &[u8], at: usize) -> __m256i {
    // SAFETY: the slice has the bytes; AVX2 by the caller's promise.
    unsafe { _mm256_loadu_si256(from[at..at + 32].as_ptr().cast()) }
}

/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn store<T>(to: &mut [T], at: usize, v: __m256i) {
    let to = &mut to[at..at + 32 / size_of::<T>()];
    // SAFETY: the slice has 32 bytes; AVX2 by the caller's promise.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), v) }
}

/// Spreads eight sub-scales, one for every 32 codes.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn spread8(scales: __m128i, to: &mut [i16; 128]) {
    // SAFETY: AVX2 by the caller's promise.
    unsafe {
        let scales = _mm256_broadcastsi128_si256(scales);
        for j in 0..8 {
            store(to, j * 16, _mm256_shuffle_epi8(scales, _mm256_set1_epi16(((2 * j) | ((2 * j + 1) << 8)) as i16)));
        }
    }
}

/// Spreads sixteen sub-scales, one for every 16 codes.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn spread16(scales: __m256i, to: &mut [i16; 128]) {
    // SAFETY: AVX2 by the caller's promise.
    unsafe {
        let halves = [_mm256_permute4x64_epi64(scales, 0x44), _mm256_permute4x64_epi64(scales, 0xee)];
        for j in 0..8 {
            let at = j % 4 * 4;
            let first = (at | ((at + 1) << 8)) as i16;
            let second = ((at + 2) | ((at + 3) << 8)) as i16;
            let pick = _mm256_set_m128i(_mm_set1_epi16(second), _mm_set1_epi16(first));
            store(to, j * 16, _mm256_shuffle_epi8(halves[j / 4], pick));
        }
    }
}

/// Scales and minima of Q4_K and Q5_K.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn k_head(block: &[u8], r: usize, to: &mut Unpacked) {
    to.d[r] = half_at(block, 0);
    to.dmin[r] = half_at(block, 2);
    let word = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    let (a, b, c) = (word(4), word(8), word(12));
    let two = |x: u32| (x >> 6 & 0x0303_0303) << 4;
    let scales = u64::from(a & 0x3f3f_3f3f) | u64::from(c & 0x0f0f_0f0f | two(a)) << 32;
    let mins = u64::from(b & 0x3f3f_3f3f) | u64::from(c >> 4 & 0x0f0f_0f0f | two(b)) << 32;
    // SAFETY: AVX2 by the caller's promise.
    unsafe {
        spread8(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(scales as i64)), &mut to.scales[r]);
        let mins = _mm_cvtepu8_epi16(_mm_cvtsi64_si128(mins as i64));
        // a minimum covers two of the sums
        store(&mut to.sum_factors[r], 0, _mm256_set_m128i(_mm_unpackhi_epi16(mins, mins), _mm_unpacklo_epi16(mins, mins)));
    }
}

impl Wide for Q4K {
    const BYTES: usize = 144;
    const SIGNED: bool = false;
    const OFFSET: bool = false;
    const MINIMA: bool = true;

    #[inline(always)]
    unsafe fn unpack(block: &[u8], r: usize, to: &mut Unpacked) {
        // SAFETY: AVX2 by the caller's promise.
        unsafe {
            k_head(block, r, to);
            let low = _mm256_set1_epi8(15);
            for k in 0..4 {
                let q = load(block, 16 + k * 32);
                store(&mut to.codes[r], k * 64, _mm256_and_si256(q, low));
                store(&mut to.codes[r], k * 64 + 32, _mm256_and_si256(_mm256_srli_epi16(q, 4), low));
            }
        }
    }
}

impl Wide for Q5K {
    const BYTES: usize = 176;
    const SIGNED: bool = false;
    const OFFSET: bool = false;
    const MINIMA: bool = true;

    #[inline(always)]
    unsafe fn unpack(block: &[u8], r: usize, to: &mut Unpacked) {
        // SAFETY: AVX2 by the caller's promise.
        unsafe {
            k_head(block, r, to);
            let (low, high) = (_mm256_set1_epi8(15), _mm256_set1_epi8(16));
            // the fifth bit of sub-block j is bit j of these bytes
            let fifth = load(block, 16);
            for k in 0..4 {
                let q = load(block, 48 + k * 32);
                for (j, q) in [(2 * k, q), (2 * k + 1, _mm256_srli_epi16(q, 4))] {
                    let bit = _mm256_set1_epi8((1u8 << j) as i8);
                    let set = _mm256_cmpeq_epi8(_mm256_and_si256(fifth, bit), bit);
                    store(&mut to.codes[r], j * 32, _mm256_or_si256(_mm256_and_si256(q, low), _mm256_and_si256(set, high)));
                }
            }
        }
    }
}

impl Wide for Q6K {
    const BYTES: usize = 210;
    const SIGNED: bool = false;
    const OFFSET: bool = true;
    const MINIMA: bool = false;

    #[inline(always)]
    unsafe fn unpack(block: &[u8], r: usize, to: &mut Unpacked) {
        to.d[r] = half_at(block, 208);
        // SAFETY: AVX2 by the caller's promise.
        unsafe {
            let (low, high) = (_mm256_set1_epi8(15), _mm256_set1_epi8(0x30));
            for half in 0..2 {
                let (q0, q1) = (load(block, half * 64), load(block, half * 64 + 32));
                let h = load(block, 128 + half * 32);
                let quarters = [
                    (q0, _mm256_slli_epi16(h, 4)),
                    (q1, _mm256_slli_epi16(h, 2)),
                    (_mm256_srli_epi16(q0, 4), h),
                    (_mm256_srli_epi16(q1, 4), _mm256_srli_epi16(h, 2)),
                ];
                for (k, (q, h)) in quarters.into_iter().enumerate() {
                    let code = _mm256_or_si256(_mm256_and_si256(q, low), _mm256_and_si256(h, high));
                    store(&mut to.codes[r], half * 128 + k * 32, code);
                }
            }
            let scales = _mm256_cvtepi8_epi16(_mm_loadu_si128(block[192..208].as_ptr().cast()));
            spread16(scales, &mut to.scales[r]);
            // codes stand for code - 32; 32 * 128 fits 16 bits
            store(&mut to.sum_factors[r], 0, _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(scales, 5)));
        }
    }
}

impl Wide for Iq4Xs {
    const BYTES: usize = 136;
    const SIGNED: bool = true;
    const OFFSET: bool = false;
    const MINIMA: bool = false;

    #[inline(always)]
    unsafe fn unpack(block: &[u8], r: usize, to: &mut Unpacked) {
        to.d[r] = half_at(block, 0);
        let scales = IQ4_XS::sub_scales(block.first_chunk().expect("a whole block"));
        // SAFETY: AVX2 by the caller's promise; the pointers are to arrays of the sizes read.
        unsafe {
            spread8(_mm_cvtepi8_epi16(_mm_loadl_epi64(scales.as_ptr().cast())), &mut to.scales[r]);
            let low = _mm256_set1_epi8(15);
            let values = _mm256_broadcastsi128_si256(_mm_loadu_si128(IQ4_VALUES.as_ptr().cast()));
            for k in 0..4 {
                // two sub-blocks of 16 bytes each: low nibbles, then high nibbles
                let q = load(block, 8 + k * 32);
                let first = _mm256_shuffle_epi8(values, _mm256_and_si256(q, low));
                let second = _mm256_shuffle_epi8(values, _mm256_and_si256(_mm256_srli_epi16(q, 4), low));
                store(&mut to.codes[r], k * 64, _mm256_permute2x128_si256(first, second, 0x20));
                store(&mut to.codes[r], k * 64 + 32, _mm256_permute2x128_si256(first, second, 0x31));
            }
        }
    }
}
