//! Where the parts of a block are: bit matrices, places of bits for shifts and of bytes and lanes for permutations.

use super::super::super::unpack::{hidden, load512, long};
use std::arch::x86_64::*;

/// A bit matrix: the bits of the source byte that each bit of the result is the parity of, lowest first.
const fn matrix(rows: [u8; 8]) -> i64 {
    let mut i = 0;
    let mut all = 0;
    while i < 8 {
        all |= (rows[i] as u64) << (8 * (7 - i));
        i += 1;
    }
    all as i64
}

/// The matrices of eight signs, of which these are the bits they are the parity of: in an index two signs are above four bits.
pub(super) const fn eight_signs(of: [u8; 8]) -> [i64; 4] {
    let mut all = [0; 4];
    let mut k = 0;
    while k < 4 {
        all[k] = matrix([0, 0, 0, 0, of[2 * k], of[2 * k + 1], 0, 0]);
        k += 1;
    }
    all
}

/// Those of the four signs in the lower half of a byte: two signs are above three bits each.
pub(super) const FOUR_SIGNS: [i64; 2] = [matrix([0, 0, 0, 1, 0, 0, 0, 2]), matrix([0, 0, 0, 4, 0, 0, 0, 8])];

/// Seven signs from bit `at` on, and the eighth that makes their number even.
pub(super) const fn even(at: usize) -> [u8; 8] {
    let mut of = [0; 8];
    let mut i = 0;
    while i < 7 {
        of[i] = 1 << (at + i);
        of[7] |= of[i];
        i += 1;
    }
    of
}

/// Completes bytes of seven signs by the eighth.
pub(super) const EVEN: i64 = matrix(even(0));

/// A constant vector of bytes.
#[repr(C, align(64))]
pub(super) struct Bytes([u8; 64]);

impl Bytes {
    /// # Safety
    /// AVX-512 F.
    #[inline(always)]
    pub unsafe fn get(&'static self) -> __m512i {
        // SAFETY: the caller's promise. The compiler does not see what is in it: of permutations that it knows it would make others.
        unsafe { load512(hidden(self).0.as_ptr()) }
    }
}

/// Byte i of 64, modulo 64.
macro_rules! bytes {
    ($i:ident => $byte:expr) => {{
        let mut all = [0; 64];
        let mut $i = 0usize;
        while $i < 64 {
            all[$i] = $byte as u8 & 63;
            $i += 1;
        }
        Bytes(all)
    }};
}

/// For shifts of 64 bits: where the four groups of seven bits of each word begin.
pub(super) static SEVENS: Bytes = bytes!(i => i % 4 * 7 + i % 8 / 4 * 32);
/// Where the eight nibbles of the first word begin.
pub(super) static NIBBLES: Bytes = bytes!(i => i % 8 * 4);
/// Where the 32 pairs of bits begin.
pub(super) static PAIRS: Bytes = bytes!(i => i % 32 * 2);
/// Where the four numbers of three bits of each 16-bit word begin, and where the bytes begin that have the words' highest bits.
pub(super) static THREES: Bytes = bytes!(i => i % 4 * 3 + i % 8 / 4 * 16);
pub(super) static TOPS: Bytes = bytes!(i => i % 8 / 4 * 16 + 8);
/// Where nibbles of 64 bits begin for 16-bit lanes, those of 32 bits for pairs of 32-bit lanes, and numbers of three bits of 16-bit
/// words for 16-bit lanes; they become bits 1 and up.
pub(super) static LANE_NIBBLES: Bytes = bytes!(i => i / 2 * 4 + 63);
pub(super) static PAIR_NIBBLES: Bytes = bytes!(i => i / 8 * 4 + 63);
pub(super) static LANE_THREES: Bytes = bytes!(i => i / 2 % 4 * 3 + i / 8 % 4 * 16 + 63);

/// For permutations of bytes: the even ones, then the odd ones.
pub(super) static EVEN_ODD: Bytes = bytes!(i => i % 32 * 2 + i / 32);
/// For permutations of 32-bit lanes: the even ones of two vectors, the odd ones, and each of the first eight twice.
pub(super) static EVEN_LANES: Bytes = bytes!(i => if i.is_multiple_of(4) { i / 2 } else { 0 });
pub(super) static ODD_LANES: Bytes = bytes!(i => if i.is_multiple_of(4) { i / 2 + 1 } else { 0 });
pub(super) static TWICE: Bytes = bytes!(i => if i.is_multiple_of(4) { i / 8 } else { 0 });

/// The bytes that have the bit.
///
/// # Safety
/// AVX-512 BW.
#[inline(always)]
pub(super) unsafe fn bits<const BIT: i8>(x: __m512i) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_test_epi8_mask(x, _mm512_set1_epi8(BIT)) }
}

/// Eight bytes from one place in the lower four 64-bit lanes, from another in the upper ones.
///
/// # Safety
/// AVX-512 F; the bytes exist.
#[inline(always)]
pub(super) unsafe fn eight_of_each(a: *const u8, b: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_set1_epi64(_mm512_set1_epi64(long(a) as i64), 0xf0, long(b) as i64) }
}

/// The odd numbers 2 n + 1 from nibbles n at bit 1 of lanes of 16 bits.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
pub(super) unsafe fn odd16(x: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_ternarylogic_epi32::<0xf8>(_mm512_set1_epi16(1), x, _mm512_set1_epi16(0x1e)) }
}

/// [`odd16`] of lanes of 32 bits.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
pub(super) unsafe fn odd32(x: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_ternarylogic_epi32::<0xf8>(_mm512_set1_epi32(1), x, _mm512_set1_epi32(0x1e)) }
}

/// The odd sub-scales of words with their numbers in the upper four bits.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
pub(super) unsafe fn upper_scales(words: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { odd32(_mm512_srli_epi32::<27>(words)) }
}
