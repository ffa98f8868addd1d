//! Groups of four or eight codes from a table.

use super::super::unpack::kept;
use crate::simd::Simd;
use std::arch::x86_64::*;
use strata_quant::formats::{IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID};

/// A table whose entries never lie in two cache lines.
#[repr(C, align(64))]
pub(super) struct Aligned<T>(pub T);

pub(super) static IQ3_S_CODES: Aligned<[[i8; 4]; 512]> = Aligned(IQ3_S_GRID);
pub(super) static IQ3_XXS_CODES: Aligned<[[i8; 4]; 256]> = Aligned(IQ3_XXS_GRID);
pub(super) static IQ2_S_CODES: Aligned<[[i8; 8]; 1024]> = Aligned(IQ2_S_GRID);
pub(super) static IQ2_XS_CODES: Aligned<[[i8; 8]; 512]> = Aligned(IQ2_XS_GRID);
pub(super) static IQ2_XXS_CODES: Aligned<[[i8; 8]; 256]> = Aligned(IQ2_XXS_GRID);
/// What [`IQ1_CODES`] are larger by.
pub(super) const IQ1_UP: i8 = 8;
/// The codes of IQ1 before they are moved, raised to be unsigned.
pub(super) static IQ1_CODES: Aligned<[[i8; 8]; 2048]> = {
    let mut up = IQ1_GRID;
    let mut i = 0;
    while i < up.len() * 8 {
        up[i / 8][i % 8] += IQ1_UP;
        i += 1;
    }
    Aligned(up)
};

/// Entries of a table for a unit of 32 codes, which is `[[i8; 4]; 8]` or `[[i8; 8]; 4]`.
pub(super) trait Entry: Sized + 'static {
    /// Entries of a unit.
    const EACH: usize;
    /// The table that look-ups are measured with.
    const MEASURED: &'static [Self; 512];

    /// A unit of the entries whose indices lie, in fours, where `at` says.
    ///
    /// # Safety
    /// AVX2; the table has the entries.
    unsafe fn unit<I: Index>(table: *const Self, at: impl Fn(usize) -> *const I) -> __m256i;

    /// Two units.
    ///
    /// # Safety
    /// AVX-512 F and VL; the table has the entries.
    unsafe fn two<I: Index>(table: *const Self, at: impl Fn(usize) -> *const I) -> __m512i;
}

impl Entry for [i8; 8] {
    const EACH: usize = 4;
    const MEASURED: &'static [Self; 512] = &IQ2_XS_CODES.0;

    #[inline(always)]
    unsafe fn unit<I: Index>(table: *const Self, at: impl Fn(usize) -> *const I) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let i = I::four(at(0));
            let e = |k: usize| broadcast8(table.add(i[k]));
            _mm256_blend_epi32(_mm256_blend_epi32(e(0), e(1), 0x0c), _mm256_blend_epi32(e(2), e(3), 0xc0), 0xf0)
        }
    }

    #[inline(always)]
    unsafe fn two<I: Index>(table: *const Self, at: impl Fn(usize) -> *const I) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let e = |k: usize| table.add(I::one(at(k))).cast::<i64>().read_unaligned();
            let two = _mm512_castsi128_si512(pair(table.add(I::one(at(0))), table.add(I::one(at(1)))));
            // loads that leave the other lanes as they are, which need no shuffle; six masks leave one for the signs
            let three = _mm512_mask_set1_epi64(two, lanes::<2>(), e(2));
            let four = _mm512_mask_set1_epi64(three, lanes::<3>(), e(3));
            let five = _mm512_mask_set1_epi64(four, lanes::<4>(), e(4));
            let six = _mm512_mask_set1_epi64(five, lanes::<5>(), e(5));
            let seven = _mm512_mask_set1_epi64(six, lanes::<6>(), e(6));
            _mm512_mask_set1_epi64(seven, lanes::<7>(), e(7))
        }
    }
}

impl Entry for [i8; 4] {
    const EACH: usize = 8;
    const MEASURED: &'static [Self; 512] = &IQ3_S_CODES.0;

    #[inline(always)]
    unsafe fn unit<I: Index>(table: *const Self, at: impl Fn(usize) -> *const I) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let (i, j) = (I::four(at(0)), I::four(at(4)));
            let e = |i: usize| table.add(i).cast::<i32>().read_unaligned();
            let [first, second] = [i, j].map(|i| _mm_setr_epi32(e(i[0]), e(i[1]), e(i[2]), e(i[3])));
            kept(_mm256_set_m128i(second, first))
        }
    }

    #[inline(always)]
    unsafe fn two<I: Index>(table: *const Self, at: impl Fn(usize) -> *const I) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let four = [four(table, &at, 0), four(table, &at, 4), four(table, &at, 8), four(table, &at, 12)];
            let low = _mm256_set_m128i(four[1], four[0]);
            _mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_set_m128i(four[3], four[2]), 1)
        }
    }
}

/// An entry in all places: a load and no shuffle.
///
/// # Safety
/// AVX2; the entry exists.
#[inline(always)]
unsafe fn broadcast8(entry: *const [i8; 8]) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { kept(_mm256_set1_epi64x(entry.cast::<i64>().read_unaligned())) }
}

/// Two entries: the second one's load puts it in its place.
///
/// # Safety
/// The table has the entries.
#[inline(always)]
unsafe fn pair(first: *const [i8; 8], second: *const [i8; 8]) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe { _mm_castpd_si128(_mm_loadh_pd(_mm_load_sd(first.cast()), second.cast())) }
}

/// Entries `i` to `i + 3` of those named. (All sixteen lanes would need more masks than there are.)
///
/// # Safety
/// AVX-512 F and VL; the table has the entries.
#[inline(always)]
unsafe fn four<I: Index>(table: *const [i8; 4], at: &impl Fn(usize) -> *const I, i: usize) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe {
        let e = |k: usize| table.add(I::one(at(i + k))).cast::<i32>().read_unaligned();
        let x = _mm_mask_set1_epi32(_mm_cvtsi32_si128(e(0)), lanes::<1>(), e(1));
        let x = _mm_mask_set1_epi32(x, lanes::<2>(), e(2));
        let mut x = _mm_mask_set1_epi32(x, lanes::<3>(), e(3));
        // an empty instruction: the compiler would merge those of several vectors together, for which it lacks registers
        std::arch::asm!("/* {0} */", inout(xmm_reg) x, options(pure, nomem, nostack, preserves_flags));
        x
    }
}

/// The mask of lane `I`, which the compiler does not know: of one that it knows it would make an insertion, for which there is one
/// port only.
#[inline(always)]
fn lanes<const I: usize>() -> u8 {
    let mut mask: u32 = 1 << I;
    // SAFETY: an empty instruction that only seems to change `mask`.
    unsafe { std::arch::asm!("/* {0:e} */", inout(reg) mask, options(pure, nomem, nostack, preserves_flags)) };
    mask as u8
}

/// A number in memory that names an entry.
pub(super) trait Index: Copy {
    /// The number at `at`.
    ///
    /// # Safety
    /// It exists.
    unsafe fn one(at: *const Self) -> usize;

    /// The four numbers from `at` on, by two loads: four would be as many as the entries take, and parts of one take more instructions.
    ///
    /// # Safety
    /// They exist.
    unsafe fn four(at: *const Self) -> [usize; 4];
}

impl Index for u8 {
    #[inline(always)]
    unsafe fn one(at: *const u8) -> usize {
        // SAFETY: the caller's promise.
        unsafe { at.read_volatile().into() }
    }

    #[inline(always)]
    unsafe fn four(at: *const u8) -> [usize; 4] {
        // SAFETY: the caller's promise.
        let (x, y) = unsafe { (whole::<u16>(at.cast()), whole::<u16>(at.add(2).cast())) };
        [(x & 0xff) as usize, (x >> 8) as usize, (y & 0xff) as usize, (y >> 8) as usize]
    }
}

impl Index for u16 {
    #[inline(always)]
    unsafe fn one(at: *const u16) -> usize {
        // SAFETY: the caller's promise.
        unsafe { at.read_volatile().into() }
    }

    #[inline(always)]
    unsafe fn four(at: *const u16) -> [usize; 4] {
        // SAFETY: the caller's promise.
        let (x, y) = unsafe { (whole::<u32>(at.cast()), whole::<u32>(at.add(2).cast())) };
        [(x & 0xffff) as usize, (x >> 16) as usize, (y & 0xffff) as usize, (y >> 16) as usize]
    }
}

/// A number that the compiler is not to load in parts.
///
/// # Safety
/// The bytes exist.
#[inline(always)]
unsafe fn whole<T: Copy + Into<u32>>(at: *const T) -> u32 {
    // SAFETY: the caller's promise.
    let mut x: u32 = unsafe { at.read_unaligned() }.into();
    // SAFETY: an empty instruction that only seems to change `x`.
    unsafe { std::arch::asm!("/* {0:e} */", inout(reg) x, options(pure, nomem, nostack, preserves_flags)) };
    x
}

/// Where number `i` of some is.
#[inline(always)]
pub(super) fn index<I: Index>(of: &[I], i: usize) -> *const I {
    &raw const of[i]
}

/// Bytes `low` with bytes `high` on top of them, as 16-bit integers in the order of [`merged`].
///
/// # Safety
/// AVX2.
#[inline(always)]
pub(super) unsafe fn merge(low: __m256i, high: __m256i, to: &mut [u16]) {
    let to = to[..32].as_mut_ptr();
    // SAFETY: the caller's promise; 64 bytes by the slice.
    unsafe {
        _mm256_storeu_si256(to.cast(), _mm256_unpacklo_epi8(low, high));
        _mm256_storeu_si256(to.add(16).cast(), _mm256_unpackhi_epi8(low, high));
    }
}

/// Where [`merge`] puts number `i`.
#[inline(always)]
pub(super) fn merged(i: usize) -> usize {
    i & !24 | (i & 8) << 1 | (i & 16) >> 1
}

/// Unit `j`.
///
/// # Safety
/// AVX2; the table has the indices.
#[inline(always)]
pub(super) unsafe fn unit_of<E: Entry, I: Index, const N: usize>(
    table: &'static [E; N],
    j: usize,
    at: impl Fn(usize) -> *const I,
) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { E::unit(table.as_ptr(), |i| at(j * E::EACH + i)) }
}

/// Units `j` and `j + 1`.
///
/// # Safety
/// AVX-512 F and VL; the table has the indices.
#[inline(always)]
pub(super) unsafe fn two_of<E: Entry, I: Index, const N: usize>(
    table: &'static [E; N],
    j: usize,
    at: impl Fn(usize) -> *const I,
) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { E::two(table.as_ptr(), |i| at(j * E::EACH + i)) }
}

/// Looks up entries by 16-bit indices from memory, the way the products of a level do, and nothing else.
pub(crate) type LookUp = unsafe fn(&[u16]) -> [u64; 8];

/// Look-ups of entries of eight codes or of four, for a level that has a vector form.
pub(crate) fn look_up(wide: bool, simd: Simd) -> Option<LookUp> {
    Some(match (simd, wide) {
        (Simd::Scalar, _) => return None,
        (Simd::Avx2 | Simd::Avx512, false) => units::<[i8; 4]>,
        (Simd::Avx2 | Simd::Avx512, true) => units::<[i8; 8]>,
        (Simd::Avx512Vnni | Simd::Avx512Vbmi, false) => twos::<[i8; 4]>,
        (Simd::Avx512Vnni | Simd::Avx512Vbmi, true) => twos::<[i8; 8]>,
    })
}

/// # Safety
/// AVX2; indices below 512.
#[target_feature(enable = "avx2")]
unsafe fn units<E: Entry>(at: &[u16]) -> [u64; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut all = _mm256_setzero_si256();
        for i in at.chunks_exact(E::EACH) {
            let i = i.as_ptr();
            all = _mm256_xor_si256(all, E::unit(E::MEASURED.as_ptr(), |k| i.add(k)));
        }
        let mut out = [0; 8];
        _mm256_storeu_si256(out.as_mut_ptr().cast(), all);
        out
    }
}

/// # Safety
/// AVX-512 F and VL; indices below 512.
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn twos<E: Entry>(at: &[u16]) -> [u64; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut all = _mm512_setzero_si512();
        for i in at.chunks_exact(2 * E::EACH) {
            let i = i.as_ptr();
            all = _mm512_xor_si512(all, E::two(E::MEASURED.as_ptr(), |k| i.add(k)));
        }
        let mut out = [0; 8];
        _mm512_storeu_si512(out.as_mut_ptr().cast(), all);
        out
    }
}
