//! 64 entries of a codebook at once, permuted from registers.

use super::super::super::unpack::load512;
use super::planes::{Planes, Runs};
use std::arch::x86_64::*;

/// The bytes of 64 entries by the lower eight bits of their indices and masks of the bits above, lowest first.
///
/// # Safety
/// As [`super::Permuted`].
#[inline(always)]
pub(super) unsafe fn look_up<const ENTRIES: usize, const ABOVE: usize>(
    planes: &'static Planes<ENTRIES>,
    index: __m512i,
    above: [u64; ABOVE],
) -> [__m512i; 2] {
    const { assert!(ENTRIES == 256 << ABOVE) };
    // SAFETY: the caller's promise.
    unsafe { [of::<ABOVE>(&planes.low, index, &above), of::<ABOVE>(&planes.high, index, &above)] }
}

/// One of 256 times two to the power of `ABOVE` bytes.
///
/// # Safety
/// As [`super::Permuted`]; there are so many bytes and masks.
#[inline(always)]
pub(super) unsafe fn of<const ABOVE: usize>(plane: &'static [u8], index: __m512i, above: &[u64]) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        match ABOVE {
            0 => of_256(plane, index),
            1 => of_512(plane, index, above),
            2 => of_1024(plane, index, above),
            3 => either(above[2], of_1024(&plane[..1024], index, above), of_1024(&plane[1024..], index, above)),
            _ => unreachable!("no codebook has more than 2,048 entries"),
        }
    }
}

/// One of 128 bytes by the lower seven bits of each index.
///
/// # Safety
/// As [`super::Permuted`]; there are so many bytes.
#[inline(always)]
unsafe fn of_128(plane: &'static [u8], index: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_permutex2var_epi8(load512(plane.as_ptr()), index, load512(plane.as_ptr().add(64))) }
}

/// # Safety
/// As [`of`].
#[inline(always)]
unsafe fn of_256(plane: &'static [u8], index: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { either(_mm512_movepi8_mask(index), of_128(&plane[..128], index), of_128(&plane[128..], index)) }
}

/// # Safety
/// As [`of`].
#[inline(always)]
unsafe fn of_512(plane: &'static [u8], index: __m512i, above: &[u64]) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { either(above[0], of_256(&plane[..256], index), of_256(&plane[256..], index)) }
}

/// # Safety
/// As [`of`].
#[inline(always)]
unsafe fn of_1024(plane: &'static [u8], index: __m512i, above: &[u64]) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { either(above[1], of_512(&plane[..512], index, above), of_512(&plane[512..], index, above)) }
}

/// The bytes of `b` where the mask is set and of `a` where it is not.
///
/// # Safety
/// AVX-512 BW.
#[inline(always)]
unsafe fn either(mask: u64, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_blend_epi8(mask, a, b) }
}

/// The bytes of 64 entries in runs, by the lower eight bits of their indices and the ones above.
///
/// # Safety
/// As [`super::Permuted`].
#[inline(always)]
pub(super) unsafe fn of_runs(runs: &'static Runs, index: __m512i, upper: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm512_set1_epi8(15);
        let sixteen = _mm512_ternarylogic_epi32::<0xca>(low, _mm512_srli_epi16::<4>(index), _mm512_slli_epi16::<4>(upper));
        let from = of_128(&runs.from, sixteen);
        let behind = _mm512_cmpge_epu8_mask(_mm512_and_si512(index, low), from);
        either(behind, of_128(&runs.first, sixteen), of_128(&runs.second, sixteen))
    }
}
