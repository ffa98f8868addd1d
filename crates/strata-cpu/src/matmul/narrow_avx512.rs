//! Q8_0, Q4_0 and IQ4_NL with AVX-512, with and without VNNI: sixteen interleaved rows at a time.

use super::Matrix;
use super::kernel::{Kernel, Tile};
use super::narrow::{Narrow, four, opaque, run};
use std::arch::x86_64::*;
use strata_quant::DType;
use strata_quant::formats::IQ4_VALUES;

/// Rows of a group.
pub(super) const LANES: usize = 16;

/// The kernel of a 32-wide format.
pub(super) fn pick(dtype: DType, vnni: bool) -> Kernel {
    match (dtype, vnni) {
        (DType::Q8_0, false) => q8_0,
        (DType::Q8_0, true) => q8_0_vnni,
        (DType::Q4_0, false) => q4_0,
        (DType::Q4_0, true) => q4_0_vnni,
        (_, false) => iq4_nl,
        (_, true) => iq4_nl_vnni,
    }
}

macro_rules! kernels {
    ($($plain:ident, $vnni:ident: $format:ident;)*) => {$(
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        unsafe fn $plain(w: &Matrix, tile: &Tile<'_>) {
            // SAFETY: the features are enabled here; the rest is the promise of whoever calls a kernel.
            unsafe { run::<$format<false>>(w, tile) }
        }

        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn $vnni(w: &Matrix, tile: &Tile<'_>) {
            // SAFETY: as above.
            unsafe { run::<$format<true>>(w, tile) }
        }
    )*};
}

kernels! {
    q8_0, q8_0_vnni: Q8;
    q4_0, q4_0_vnni: Q4;
    iq4_nl, iq4_nl_vnni: Iq4;
}

/// Sums of pairs of adjacent 16-bit integers.
///
/// # Safety
/// AVX-512 BW.
#[inline(always)]
unsafe fn add_pairs(x: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_madd_epi16(x, _mm512_set1_epi16(1)) }
}

/// Four signed codes in every lane, for products without VNNI; see the AVX2 kernels for why this is exact.
#[derive(Clone, Copy)]
struct Signed {
    magnitude: __m512i,
    negative: __m512i,
}

impl Signed {
    /// # Safety
    /// AVX-512 BW.
    #[inline(always)]
    unsafe fn new(code: __m512i) -> Signed {
        // SAFETY: the caller's promise.
        unsafe { Signed { magnitude: _mm512_abs_epi8(code), negative: _mm512_movm_epi8(_mm512_movepi8_mask(code)) } }
    }

    /// `sum` plus the dot product with `a` less the magnitudes of the negative codes.
    ///
    /// # Safety
    /// AVX-512 BW.
    #[inline(always)]
    unsafe fn dot(self, sum: __m512i, a: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_add_epi32(sum, add_pairs(_mm512_maddubs_epi16(self.magnitude, _mm512_xor_si512(a, self.negative)))) }
    }
}

/// What sums of [`Signed::dot`] start at.
///
/// # Safety
/// AVX-512; `negatives` has [`LANES`] values.
#[inline(always)]
unsafe fn signed_start<const T: usize>(negatives: *const i16) -> [__m512i; T] {
    // SAFETY: the caller's promise.
    unsafe { [_mm512_cvtepi16_epi32(_mm256_loadu_si256(negatives.cast())); T] }
}

/// What sums of products with codes raised by `offset` start at.
///
/// # Safety
/// AVX-512; an integer behind each of `sums`.
#[inline(always)]
unsafe fn offset_start<const T: usize>(sums: [*const i32; T], offset: i32) -> [__m512i; T] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut start = [_mm512_setzero_si512(); T];
        for t in 0..T {
            start[t] = _mm512_set1_epi32(-offset * *sums[t]);
        }
        start
    }
}

/// What all formats have in common.
macro_rules! floats {
    () => {
        const LANES: usize = LANES;
        const ITEMS: usize = 8;
        type Floats = __m512;
        type Ints = __m512i;

        #[inline(always)]
        unsafe fn zero() -> __m512 {
            // SAFETY: AVX-512 by the caller's promise.
            unsafe { _mm512_setzero_ps() }
        }

        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            // SAFETY: AVX-512 by the caller's promise.
            unsafe { _mm512_add_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn scales(from: *const u16) -> __m512 {
            // SAFETY: AVX-512 and 16 scales by the caller's promise.
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
        }

        #[inline(always)]
        unsafe fn step(chain: __m512, d: __m512, a: f32, isum: __m512i) -> __m512 {
            // SAFETY: AVX-512 by the caller's promise.
            unsafe { _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(a)), _mm512_cvtepi32_ps(isum), chain) }
        }

        #[inline(always)]
        unsafe fn store(y: __m512, to: &mut [f32; 16]) {
            // SAFETY: AVX-512 by the caller's promise; there is space for 16.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), y) }
        }
    };
}

struct Q8<const VNNI: bool>;

impl<const VNNI: bool> Narrow for Q8<VNNI> {
    const CODE_BYTES: usize = 32;
    floats!();

    #[inline(always)]
    unsafe fn dots<const T: usize>(codes: *const u8, negatives: *const i16, acts: [*const i8; T], sums: [*const i32; T]) -> [__m512i; T] {
        // SAFETY: the caller's promise covers the 8 steps of a block.
        unsafe {
            let mut isum = if VNNI { offset_start(sums, 128) } else { signed_start(negatives) };
            for pair in 0..opaque::<T>(4) {
                for step in [2 * pair, 2 * pair + 1] {
                    let w = _mm512_load_si512(codes.cast::<__m512i>().add(step));
                    if VNNI {
                        let w = _mm512_xor_si512(w, _mm512_set1_epi8(-128));
                        for t in 0..T {
                            isum[t] = _mm512_dpbusd_epi32(isum[t], w, _mm512_set1_epi32(four(acts[t], step)));
                        }
                    } else {
                        let w = Signed::new(w);
                        for t in 0..T {
                            isum[t] = w.dot(isum[t], _mm512_set1_epi32(four(acts[t], step)));
                        }
                    }
                }
            }
            isum
        }
    }
}

struct Q4<const VNNI: bool>;

impl<const VNNI: bool> Narrow for Q4<VNNI> {
    const CODE_BYTES: usize = 16;
    floats!();

    #[inline(always)]
    unsafe fn dots<const T: usize>(codes: *const u8, _negatives: *const i16, acts: [*const i8; T], sums: [*const i32; T]) -> [__m512i; T] {
        // SAFETY: the caller's promise covers the 4 steps of a block.
        unsafe {
            // codes stand for code - 8
            let mut isum = offset_start(sums, 8);
            // without VNNI: a pair of products is at most 2 * 15 * 127, so eight of them fit 16 bits
            let mut pairs = [_mm512_setzero_si512(); T];
            let low = _mm512_set1_epi8(15);
            for step in 0..opaque::<T>(4) {
                let w = _mm512_load_si512(codes.cast::<__m512i>().add(step));
                let (w_low, w_high) = (_mm512_and_si512(w, low), _mm512_and_si512(_mm512_srli_epi16(w, 4), low));
                for t in 0..T {
                    let (a_low, a_high) = (_mm512_set1_epi32(four(acts[t], step)), _mm512_set1_epi32(four(acts[t], step + 4)));
                    if VNNI {
                        isum[t] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(isum[t], w_low, a_low), w_high, a_high);
                    } else {
                        pairs[t] = _mm512_add_epi16(pairs[t], _mm512_maddubs_epi16(w_low, a_low));
                        pairs[t] = _mm512_add_epi16(pairs[t], _mm512_maddubs_epi16(w_high, a_high));
                    }
                }
            }
            if !VNNI {
                for t in 0..T {
                    isum[t] = _mm512_add_epi32(isum[t], add_pairs(pairs[t]));
                }
            }
            isum
        }
    }
}

struct Iq4<const VNNI: bool>;

impl<const VNNI: bool> Narrow for Iq4<VNNI> {
    const CODE_BYTES: usize = 16;
    floats!();

    #[inline(always)]
    unsafe fn dots<const T: usize>(codes: *const u8, negatives: *const i16, acts: [*const i8; T], sums: [*const i32; T]) -> [__m512i; T] {
        // SAFETY: the caller's promise covers the 4 steps of a block.
        unsafe {
            let mut isum = if VNNI { offset_start(sums, 128) } else { signed_start(negatives) };
            let low = _mm512_set1_epi8(15);
            let mut values = _mm512_broadcast_i32x4(_mm_loadu_si128(IQ4_VALUES.as_ptr().cast()));
            if VNNI {
                values = _mm512_xor_si512(values, _mm512_set1_epi8(-128));
            }
            for step in 0..opaque::<T>(4) {
                let w = _mm512_load_si512(codes.cast::<__m512i>().add(step));
                for (nibbles, step) in [(w, step), (_mm512_srli_epi16(w, 4), step + 4)] {
                    let w = _mm512_shuffle_epi8(values, _mm512_and_si512(nibbles, low));
                    if VNNI {
                        for t in 0..T {
                            isum[t] = _mm512_dpbusd_epi32(isum[t], w, _mm512_set1_epi32(four(acts[t], step)));
                        }
                    } else {
                        let w = Signed::new(w);
                        for t in 0..T {
                            isum[t] = w.dot(isum[t], _mm512_set1_epi32(four(acts[t], step)));
                        }
                    }
                }
            }
            isum
        }
    }
}
