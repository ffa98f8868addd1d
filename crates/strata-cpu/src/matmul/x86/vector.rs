//! The two vector widths of products with panels.

use std::arch::x86_64::*;

/// A vector width.
///
/// # Safety
/// Every function needs the width's instructions (AVX2 and FMA, or AVX-512 F and BW; `dot` AVX-512 VNNI too) and the bytes behind
/// its pointer. They are `#[inline(always)]`, to be compiled inside a function that enables the features.
pub(super) trait Vector: 'static {
    /// Vectors that cover the sixteen lanes of a panel.
    const PARTS: usize;
    /// Integers.
    type I: Copy;
    /// Floats.
    type F: Copy;

    /// # Safety
    /// As the trait says, here and below.
    unsafe fn zero() -> Self::I;
    unsafe fn load(at: *const u8) -> Self::I;
    /// The four bytes at `at` in every 32-bit lane.
    unsafe fn four(at: *const u8) -> Self::I;
    /// Sums of pairs of products of unsigned with signed bytes.
    unsafe fn pairs(u: Self::I, s: Self::I) -> Self::I;
    /// Sums of pairs of products of 16-bit integers.
    unsafe fn pairs16(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn add16(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn add(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn xor(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn mul(a: Self::I, b: Self::I) -> Self::I;
    /// `sum` plus the sums of four products of unsigned with signed bytes.
    #[inline(always)]
    unsafe fn dot(_sum: Self::I, _u: Self::I, _s: Self::I) -> Self::I {
        unreachable!("the level has no such instruction")
    }
    unsafe fn ones16() -> Self::I;
    unsafe fn float(a: Self::I) -> Self::F;
    unsafe fn load_f(at: *const f32) -> Self::F;
    unsafe fn store_f(at: *mut f32, a: Self::F);
    unsafe fn all_f(a: f32) -> Self::F;
    unsafe fn add_f(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul_f(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `-a * b + c`, rounded once.
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
}

/// AVX2.
pub(super) struct V256;
/// AVX-512.
pub(super) struct V512;

macro_rules! vector {
    ($name:ident, $parts:literal, $i:ident, $f:ident, $($function:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $body:expr;)*) => {
        impl Vector for $name {
            const PARTS: usize = $parts;
            type I = $i;
            type F = $f;
            $(
                #[inline(always)]
                unsafe fn $function($($arg: $ty),*) -> $ret {
                    // SAFETY: the caller's promise.
                    unsafe { $body }
                }
            )*
        }
    };
}

vector! { V256, 2, __m256i, __m256,
    zero() -> __m256i = _mm256_setzero_si256();
    load(at: *const u8) -> __m256i = _mm256_load_si256(at.cast());
    four(at: *const u8) -> __m256i = _mm256_set1_epi32(at.cast::<i32>().read_unaligned());
    pairs(u: __m256i, s: __m256i) -> __m256i = _mm256_maddubs_epi16(u, s);
    pairs16(a: __m256i, b: __m256i) -> __m256i = _mm256_madd_epi16(a, b);
    add16(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi16(a, b);
    add(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
    xor(a: __m256i, b: __m256i) -> __m256i = _mm256_xor_si256(a, b);
    mul(a: __m256i, b: __m256i) -> __m256i = _mm256_mullo_epi32(a, b);
    ones16() -> __m256i = _mm256_set1_epi16(1);
    float(a: __m256i) -> __m256 = _mm256_cvtepi32_ps(a);
    load_f(at: *const f32) -> __m256 = _mm256_load_ps(at);
    store_f(at: *mut f32, a: __m256) -> () = _mm256_store_ps(at, a);
    all_f(a: f32) -> __m256 = _mm256_set1_ps(a);
    add_f(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
    mul_f(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
    fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
    fnma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fnmadd_ps(a, b, c);
}

vector! { V512, 1, __m512i, __m512,
    zero() -> __m512i = _mm512_setzero_si512();
    load(at: *const u8) -> __m512i = _mm512_load_si512(at.cast());
    four(at: *const u8) -> __m512i = _mm512_set1_epi32(at.cast::<i32>().read_unaligned());
    pairs(u: __m512i, s: __m512i) -> __m512i = _mm512_maddubs_epi16(u, s);
    pairs16(a: __m512i, b: __m512i) -> __m512i = _mm512_madd_epi16(a, b);
    add16(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi16(a, b);
    add(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
    xor(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
    mul(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
    dot(sum: __m512i, u: __m512i, s: __m512i) -> __m512i = _mm512_dpbusd_epi32(sum, u, s);
    ones16() -> __m512i = _mm512_set1_epi16(1);
    float(a: __m512i) -> __m512 = _mm512_cvtepi32_ps(a);
    load_f(at: *const f32) -> __m512 = _mm512_load_ps(at);
    store_f(at: *mut f32, a: __m512) -> () = _mm512_store_ps(at, a);
    all_f(a: f32) -> __m512 = _mm512_set1_ps(a);
    add_f(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
    mul_f(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
    fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
    fnma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
}
