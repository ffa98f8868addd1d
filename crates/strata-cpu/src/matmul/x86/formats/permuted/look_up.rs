//! 64 entries of a codebook at once, permuted from registers: of two registers at a time where that is one step (`TWO`). Where it takes
//! three, bytes come from one register at a time, and those that do not belong into a lane are written over, which saves blends too.

use super::super::super::unpack::load512;
use super::bits::bits;
use super::planes::{Planes, Runs, Steps};
use std::arch::x86_64::*;

/// The lower eight bits of 64 indices, and as masks what chooses the register.
#[derive(Clone, Copy)]
pub(super) struct Index<const TWO: bool, const ABOVE: usize> {
    low: __m512i,
    /// The second, third and fourth quarter of 256 bytes.
    quarters: [u64; 3],
    /// The upper half of 256 bytes.
    upper: u64,
    /// The bits above the lower eight, lowest first.
    above: [u64; ABOVE],
}

impl<const TWO: bool, const ABOVE: usize> Index<TWO, ABOVE> {
    /// # Safety
    /// As [`super::Permuted`].
    #[inline(always)]
    pub unsafe fn new(low: __m512i, above: [u64; ABOVE]) -> Self {
        // SAFETY: the caller's promise.
        let (seventh, eighth) = unsafe { (bits::<64>(low), _mm512_movepi8_mask(low)) };
        Index { low, quarters: [seventh, eighth & !seventh, eighth & seventh], upper: eighth, above }
    }

    /// The bytes of the entries in both planes.
    ///
    /// # Safety
    /// As [`super::Permuted`].
    #[inline(always)]
    pub unsafe fn of_planes<const ENTRIES: usize>(&self, planes: &'static Planes<ENTRIES>) -> [__m512i; 2] {
        // SAFETY: the caller's promise.
        unsafe { [self.of_plane(&planes.low), self.of_plane(&planes.high)] }
    }

    /// # Safety
    /// As [`super::Permuted`].
    #[inline(always)]
    pub unsafe fn of_plane<const ENTRIES: usize>(&self, plane: &'static [u8; ENTRIES]) -> __m512i {
        const { assert!(ENTRIES == 256 << ABOVE) };
        // SAFETY: the caller's promise.
        unsafe {
            match ABOVE {
                0 => self.of_256(plane),
                1 => self.of_512(plane),
                2 => self.of_1024(plane),
                3 => either(self.above[ABOVE - 1], self.of_1024(&plane[..1024]), self.of_1024(&plane[1024..])),
                _ => unreachable!("no codebook has more than 2,048 entries"),
            }
        }
    }

    /// # Safety
    /// As [`super::Permuted`]; there are so many bytes.
    #[inline(always)]
    unsafe fn of_256(&self, plane: &'static [u8]) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            if TWO {
                return either(self.upper, of_two(plane, self.low), of_two(&plane[128..], self.low));
            }
            let mut found = _mm512_permutexvar_epi8(self.low, load512(plane.as_ptr()));
            found = _mm512_mask_permutexvar_epi8(found, self.quarters[0], self.low, load512(plane.as_ptr().add(64)));
            found = _mm512_mask_permutexvar_epi8(found, self.quarters[1], self.low, load512(plane.as_ptr().add(128)));
            _mm512_mask_permutexvar_epi8(found, self.quarters[2], self.low, load512(plane.as_ptr().add(192)))
        }
    }

    /// # Safety
    /// As [`Index::of_256`].
    #[inline(always)]
    unsafe fn of_512(&self, plane: &'static [u8]) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { either(self.above[0], self.of_256(&plane[..256]), self.of_256(&plane[256..])) }
    }

    /// # Safety
    /// As [`Index::of_256`].
    #[inline(always)]
    unsafe fn of_1024(&self, plane: &'static [u8]) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { either(self.above[1], self.of_512(&plane[..512]), self.of_512(&plane[512..])) }
    }

    /// The bytes of entries in runs; `upper` has the bits above the lower eight in its lowest three.
    ///
    /// # Safety
    /// As [`super::Permuted`].
    #[inline(always)]
    pub unsafe fn of_runs(&self, runs: &'static Runs, upper: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm512_set1_epi8(15);
            let sixteen = _mm512_ternarylogic_epi32::<0xca>(low, _mm512_srli_epi16::<4>(self.low), _mm512_slli_epi16::<4>(upper));
            let from = of_128::<TWO>(&runs.from, sixteen);
            let behind = _mm512_cmpge_epu8_mask(_mm512_and_si512(self.low, low), from);
            either(behind, of_128::<TWO>(&runs.first, sixteen), of_128::<TWO>(&runs.second, sixteen))
        }
    }

    /// The bytes of entries in steps; `upper` has the bits above the lower eight in its lowest two.
    ///
    /// # Safety
    /// As [`super::Permuted`].
    #[inline(always)]
    pub unsafe fn of_steps(&self, steps: &'static Steps, upper: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm512_set1_epi8(31);
            let eight = _mm512_ternarylogic_epi32::<0xca>(low, _mm512_srli_epi16::<3>(self.low), _mm512_slli_epi16::<5>(upper));
            // of the place among eight: the places up to it as bits
            let up_to = _mm512_set1_epi64(0xff7f_3f1f_0f07_0301_u64 as i64);
            let up_to = _mm512_shuffle_epi8(up_to, _mm512_and_si512(self.low, _mm512_set1_epi8(7)));
            let taken = _mm512_popcnt_epi8(_mm512_and_si512(of_128::<TWO>(&steps.steps, eight), up_to));
            let number = _mm512_add_epi8(of_128::<TWO>(&steps.numbers, eight), taken);
            of_128::<TWO>(&steps.values, number)
        }
    }
}

/// One of 128 bytes by the lower seven bits of each index.
///
/// # Safety
/// As [`super::Permuted`].
#[inline(always)]
unsafe fn of_128<const TWO: bool>(table: &'static [u8; 128], index: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        if TWO {
            return of_two(table, index);
        }
        let first = _mm512_permutexvar_epi8(index, load512(table.as_ptr()));
        _mm512_mask_permutexvar_epi8(first, bits::<64>(index), index, load512(table.as_ptr().add(64)))
    }
}

/// [`of_128`] with one permutation.
///
/// # Safety
/// As [`super::Permuted`]; there are so many bytes.
#[inline(always)]
unsafe fn of_two(table: &'static [u8], index: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_permutex2var_epi8(load512(table.as_ptr()), index, load512(table.as_ptr().add(64))) }
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
