//! Q8_0, Q4_0 and IQ4_NL with AVX2: eight interleaved rows at a time.

use super::Matrix;
use super::kernel::{Kernel, Tile};
use super::narrow::{Narrow, four, opaque, run};
use std::arch::x86_64::*;
use strata_quant::DType;
use strata_quant::formats::IQ4_VALUES;

/// Rows of a group.
pub(super) const LANES: usize = 8;

/// The kernel of a 32-wide format.
pub(super) fn pick(dtype: DType) -> Kernel {
    match dtype {
        DType::Q8_0 => q8_0,
        DType::Q4_0 => q4_0,
        _ => iq4_nl,
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q8_0(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: the features are enabled here; the rest is the promise of whoever calls a kernel.
    unsafe { run::<Q8>(w, tile) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q4_0(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { run::<Q4>(w, tile) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn iq4_nl(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { run::<Iq4>(w, tile) }
}

/// Sums of pairs of adjacent 16-bit integers.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn add_pairs(x: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_madd_epi16(x, _mm256_set1_epi16(1)) }
}

/// Four signed codes in every lane, ready for products with unsigned-times-signed instructions.
#[derive(Clone, Copy)]
struct Signed {
    code: __m256i,
    magnitude: __m256i,
    negative: __m256i,
}

impl Signed {
    /// # Safety
    /// AVX2.
    #[inline(always)]
    unsafe fn new(code: __m256i) -> Signed {
        // SAFETY: the caller's promise.
        unsafe { Signed { code, magnitude: _mm256_abs_epi8(code), negative: _mm256_cmpgt_epi8(_mm256_setzero_si256(), code) } }
    }

    /// `sum` plus the dot product with `a`, if `MANY` less the magnitudes of the negative codes.
    ///
    /// w a = |w| (-a) = |w| (!a) + |w| for negative w, and the last term is the same for every activation row: one
    /// exclusive or in place of the slower sign instruction. Exact either way: |w| <= 128 and -128 <= !a, a <= 127, so
    /// a pair of products fits 16 bits.
    ///
    /// # Safety
    /// AVX2.
    #[inline(always)]
    unsafe fn dot<const MANY: bool>(self, sum: __m256i, a: __m256i) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let a = if MANY { _mm256_xor_si256(a, self.negative) } else { _mm256_sign_epi8(a, self.code) };
            _mm256_add_epi32(sum, add_pairs(_mm256_maddubs_epi16(self.magnitude, a)))
        }
    }
}

/// What sums of [`Signed::dot`] start at.
///
/// # Safety
/// AVX2; `negatives` has [`LANES`] values.
#[inline(always)]
unsafe fn signed_start<const T: usize>(negatives: *const i16) -> [__m256i; T] {
    // SAFETY: the caller's promise.
    unsafe { [if T > 1 { _mm256_cvtepi16_epi32(_mm_loadu_si128(negatives.cast())) } else { _mm256_setzero_si256() }; T] }
}

/// What all formats have in common.
macro_rules! floats {
    () => {
        const LANES: usize = LANES;
        const ITEMS: usize = 4;
        type Floats = __m256;
        type Ints = __m256i;

        #[inline(always)]
        unsafe fn zero() -> __m256 {
            // SAFETY: AVX by the caller's promise.
            unsafe { _mm256_setzero_ps() }
        }

        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            // SAFETY: AVX by the caller's promise.
            unsafe { _mm256_add_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn scales(from: *const u16) -> __m256 {
            // SAFETY: F16C and 8 scales by the caller's promise.
            unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
        }

        #[inline(always)]
        unsafe fn step(chain: __m256, d: __m256, a: f32, isum: __m256i) -> __m256 {
            // SAFETY: FMA by the caller's promise.
            unsafe { _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(a)), _mm256_cvtepi32_ps(isum), chain) }
        }

        #[inline(always)]
        unsafe fn store(y: __m256, to: &mut [f32; 16]) {
            // SAFETY: AVX by the caller's promise; there is space for 16.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), y) }
        }
    };
}

struct Q8;

impl Narrow for Q8 {
    const CODE_BYTES: usize = 32;
    floats!();

    #[inline(always)]
    unsafe fn dots<const T: usize>(codes: *const u8, negatives: *const i16, acts: [*const i8; T], _sums: [*const i32; T]) -> [__m256i; T] {
        // SAFETY: the caller's promise covers the 8 steps of a block.
        unsafe {
            let mut isum = signed_start(negatives);
            for pair in 0..opaque::<T>(4) {
                for step in [2 * pair, 2 * pair + 1] {
                    let w = Signed::new(_mm256_load_si256(codes.cast::<__m256i>().add(step)));
                    for t in 0..T {
                        let a = _mm256_set1_epi32(four(acts[t], step));
                        isum[t] = if T > 1 { w.dot::<true>(isum[t], a) } else { w.dot::<false>(isum[t], a) };
                    }
                }
            }
            isum
        }
    }
}

struct Q4;

impl Narrow for Q4 {
    const CODE_BYTES: usize = 16;
    floats!();

    #[inline(always)]
    unsafe fn dots<const T: usize>(codes: *const u8, _negatives: *const i16, acts: [*const i8; T], sums: [*const i32; T]) -> [__m256i; T] {
        // SAFETY: the caller's promise covers the 4 steps of a block.
        unsafe {
            // a pair of products is at most 2 * 15 * 127, so eight of them fit 16 bits
            let mut pairs = [_mm256_setzero_si256(); T];
            let low = _mm256_set1_epi8(15);
            for step in 0..opaque::<T>(4) {
                let w = _mm256_load_si256(codes.cast::<__m256i>().add(step));
                let (w_low, w_high) = (_mm256_and_si256(w, low), _mm256_and_si256(_mm256_srli_epi16(w, 4), low));
                for t in 0..T {
                    let (a_low, a_high) = (_mm256_set1_epi32(four(acts[t], step)), _mm256_set1_epi32(four(acts[t], step + 4)));
                    pairs[t] = _mm256_add_epi16(pairs[t], _mm256_maddubs_epi16(w_low, a_low));
                    pairs[t] = _mm256_add_epi16(pairs[t], _mm256_maddubs_epi16(w_high, a_high));
                }
            }
            let mut isum = pairs;
            for t in 0..T {
                // codes stand for code - 8
                isum[t] = _mm256_add_epi32(add_pairs(pairs[t]), _mm256_set1_epi32(-8 * *sums[t]));
            }
            isum
        }
    }
}

struct Iq4;

impl Narrow for Iq4 {
    const CODE_BYTES: usize = 16;
    floats!();

    #[inline(always)]
    unsafe fn dots<const T: usize>(codes: *const u8, negatives: *const i16, acts: [*const i8; T], _sums: [*const i32; T]) -> [__m256i; T] {
        // SAFETY: the caller's promise covers the 4 steps of a block.
        unsafe {
            let mut isum = signed_start(negatives);
            let low = _mm256_set1_epi8(15);
            let values = _mm256_broadcastsi128_si256(_mm_loadu_si128(IQ4_VALUES.as_ptr().cast()));
            for step in 0..opaque::<T>(4) {
                let w = _mm256_load_si256(codes.cast::<__m256i>().add(step));
                for (nibbles, step) in [(w, step), (_mm256_srli_epi16(w, 4), step + 4)] {
                    let w = Signed::new(_mm256_shuffle_epi8(values, _mm256_and_si256(nibbles, low)));
                    for t in 0..T {
                        let a = _mm256_set1_epi32(four(acts[t], step));
                        isum[t] = if T > 1 { w.dot::<true>(isum[t], a) } else { w.dot::<false>(isum[t], a) };
                    }
                }
            }
            isum
        }
    }
}
