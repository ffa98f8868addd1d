//! Codebook formats for the kernel that looks entries up in registers ([`Permuted`]).

use super::super::unpack::{hidden, load, load16, load512, long, word};
use super::planes::{
    IQ1_VALUES, IQ1_WORDS, IQ2_S_WORDS, IQ2_VALUES, IQ2_XS_PLANES, IQ2_XXS_PLANES, IQ3_S_PLANES, IQ3_S_VALUES, IQ3_XXS_PLANES,
    IQ3_XXS_VALUES, Planes, Values, Words,
};
use std::arch::x86_64::*;
use strata_quant::formats::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};

/// A codebook format whose entries are looked up 64 at a time.
///
/// # Safety
/// Every function needs AVX-512 F, BW, DQ, VL, VBMI and GFNI and whole blocks behind its pointers. They are `#[inline(always)]`, to
/// be compiled inside a function that enables the features.
pub(in super::super) trait Permuted: super::super::unpack::Unpack {
    /// Codes of an entry: of eight, 64 entries are a block of each of two rows; of four, a block.
    const EACH: usize;
    /// For every two codes of an entry the bit matrix that takes their signs from the byte of signs to where they belong in an index.
    const SIGNS: &'static [i64];

    /// What the codes of an index are.
    fn values() -> [&'static Values; 2];

    /// Ranks of the first and of the second half of the codes of 64 entries, and a byte of signs for each. Block `b` follows `a`.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn entries(a: *const u8, b: *const u8) -> [__m512i; 3];

    /// The sub-scales: of 32 values one for each 32-bit lane, which belongs to four entries; of 16 one for each 16-bit lane.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i;
}

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
const fn eight_signs(of: [u8; 8]) -> [i64; 4] {
    let mut all = [0; 4];
    let mut k = 0;
    while k < 4 {
        all[k] = matrix([0, 0, 0, 0, of[2 * k], of[2 * k + 1], 0, 0]);
        k += 1;
    }
    all
}

/// Those of the four signs in the lower half of a byte: two signs are above three bits each.
const FOUR_SIGNS: [i64; 2] = [matrix([0, 0, 0, 1, 0, 0, 0, 2]), matrix([0, 0, 0, 4, 0, 0, 0, 8])];

/// Seven signs from bit `at` on, and the eighth that makes their number even.
const fn even(at: usize) -> [u8; 8] {
    let mut of = [0; 8];
    let mut i = 0;
    while i < 7 {
        of[i] = 1 << (at + i);
        of[7] |= of[i];
        i += 1;
    }
    of
}

/// Completes bytes of seven signs.
const EVEN: i64 = matrix(even(0));

/// A constant vector of bytes.
#[repr(C, align(64))]
struct Bytes([u8; 64]);

impl Bytes {
    /// # Safety
    /// AVX-512 F.
    #[inline(always)]
    unsafe fn get(&'static self) -> __m512i {
        // SAFETY: the caller's promise. The compiler does not see what is in it: of permutations that it knows it would make others.
        unsafe { load512(hidden(self).0.as_ptr()) }
    }
}

/// Byte i is `each * i + first` within its group of `every`, modulo 64.
const fn steps(every: usize, each: usize, first: usize) -> Bytes {
    let mut all = [0; 64];
    let mut i = 0;
    while i < 64 {
        all[i] = (i % every * each + first) as u8 & 63;
        i += 1;
    }
    Bytes(all)
}

/// Where the four groups of seven bits of each word begin, in 64 bits.
static SEVENS: Bytes = {
    let mut all = [0; 64];
    let mut i = 0;
    while i < 64 {
        all[i] = (i % 4 * 7 + i % 8 / 4 * 32) as u8;
        i += 1;
    }
    Bytes(all)
};
/// Where nibbles begin.
static NIBBLES: Bytes = steps(8, 4, 0);
/// Where pairs of bits begin.
static PAIRS: Bytes = steps(32, 2, 0);
/// Where the nibbles of 16-bit lanes begin, such that they become bits 1 to 4, and those of pairs of 32-bit lanes.
static WORD_NIBBLES: Bytes = nibble_lanes(2);
static LONG_NIBBLES: Bytes = nibble_lanes(8);

const fn nibble_lanes(bytes: usize) -> Bytes {
    let mut all = [0; 64];
    let mut i = 0;
    while i < 64 {
        all[i] = (i / bytes * 4 + 63) as u8 & 63;
        i += 1;
    }
    Bytes(all)
}

/// The even bytes, then the odd ones.
static EVEN_ODD: Bytes = {
    let mut all = [0; 64];
    let mut i = 0;
    while i < 64 {
        all[i] = (i % 32 * 2 + i / 32) as u8;
        i += 1;
    }
    Bytes(all)
};
/// Lanes of 32 bits, as bytes: the even ones of two vectors, the odd ones, and each of the first eight twice.
static EVEN_LANES: Bytes = lanes(2, 1, 0);
static ODD_LANES: Bytes = lanes(2, 1, 1);
static TWICE: Bytes = lanes(1, 2, 0);

const fn lanes(each: usize, times: usize, first: usize) -> Bytes {
    let mut all = [0; 64];
    let mut i = 0;
    while i < 16 {
        all[4 * i] = (i / times * each + first) as u8;
        i += 1;
    }
    Bytes(all)
}

/// The bytes of 64 entries by the lower eight bits of their indices and masks of the bits above.
///
/// # Safety
/// As [`Permuted`].
#[inline(always)]
unsafe fn look_up<const ENTRIES: usize>(planes: &'static Planes<ENTRIES>, index: __m512i, above: [u64; 1]) -> [__m512i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let masks = [_mm512_movepi8_mask(index), above[0]];
        if ENTRIES == 256 {
            [of_256(&planes.low, index, masks), of_256(&planes.high, index, masks)]
        } else {
            [of_512(&planes.low, index, masks), of_512(&planes.high, index, masks)]
        }
    }
}

/// One of 128 bytes by the lower seven bits of each index.
///
/// # Safety
/// As [`Permuted`]; there are so many bytes.
#[inline(always)]
unsafe fn of_128(plane: &'static [u8], index: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_permutex2var_epi8(load512(plane.as_ptr()), index, load512(plane.as_ptr().add(64))) }
}

/// One of 256 bytes; a mask has the eighth bits.
///
/// # Safety
/// As [`of_128`].
#[inline(always)]
unsafe fn of_256(plane: &'static [u8], index: __m512i, masks: [u64; 2]) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_blend_epi8(masks[0], of_128(&plane[..128], index), of_128(&plane[128..], index)) }
}

/// One of 512 bytes; a mask has the ninth bits.
///
/// # Safety
/// As [`of_128`].
#[inline(always)]
unsafe fn of_512(plane: &'static [u8], index: __m512i, masks: [u64; 2]) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_blend_epi8(masks[1], of_256(&plane[..256], index, masks), of_256(&plane[256..], index, masks)) }
}

/// The bytes of 64 entries of a table too large for registers: gathered from memory, sixteen at once. An index is a byte
/// of `index` and above it one of `upper`.
///
/// # Safety
/// As [`Permuted`]; the table has the entries.
#[inline(always)]
unsafe fn gather<const ENTRIES: usize>(words: &'static Words<ENTRIES>, index: __m512i, upper: __m512i) -> [__m512i; 2] {
    // SAFETY: the caller's promise; behind the last entry there is one more.
    unsafe {
        let lower = _mm512_set1_epi16(0xff);
        // entries 0 and 2 of every four, 1 and 3; each 32 bits, of which the upper half is the next entry
        let even = _mm512_ternarylogic_epi32::<0xca>(lower, index, _mm512_slli_epi16::<8>(upper));
        let odd = _mm512_ternarylogic_epi32::<0xca>(lower, _mm512_srli_epi16::<8>(index), upper);
        let [even, odd] = [even, odd].map(|i| {
            let (first, second) = (_mm512_and_si512(i, _mm512_set1_epi32(0xffff)), _mm512_srli_epi32::<16>(i));
            let at = words.words.as_ptr().cast();
            let [first, second] = [_mm512_i32gather_epi32::<2>(first, at), _mm512_i32gather_epi32::<2>(second, at)];
            _mm512_mask_blend_epi16(0xaaaa_aaaa, first, _mm512_slli_epi32::<16>(second))
        });
        [
            _mm512_ternarylogic_epi32::<0xca>(lower, even, _mm512_slli_epi16::<8>(odd)),
            _mm512_ternarylogic_epi32::<0xca>(lower, _mm512_srli_epi16::<8>(even), odd),
        ]
    }
}

/// The lower 32 bytes from one place, the upper ones from another.
///
/// # Safety
/// AVX-512 F; the bytes exist.
#[inline(always)]
unsafe fn joined(a: *const u8, b: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_inserti64x4(_mm512_castsi256_si512(load(a)), load(b), 1) }
}

/// Eight bytes from one place in the lower four 64-bit lanes, from another in the upper ones.
///
/// # Safety
/// AVX-512 F; the bytes exist.
#[inline(always)]
unsafe fn eight_of_each(a: *const u8, b: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_set1_epi64(_mm512_set1_epi64(long(a) as i64), 0xf0, long(b) as i64) }
}

/// The odd numbers 2 n + 1 from nibbles n at bit 1 of lanes of 16 bits.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
unsafe fn odd16(x: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_ternarylogic_epi32::<0xf8>(_mm512_set1_epi16(1), x, _mm512_set1_epi16(0x1e)) }
}

/// [`odd16`] of lanes of 32 bits.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
unsafe fn odd32(x: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_ternarylogic_epi32::<0xf8>(_mm512_set1_epi32(1), x, _mm512_set1_epi32(0x1e)) }
}

/// The odd sub-scales of words with their numbers in the upper four bits.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
unsafe fn upper_scales(words: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { odd32(_mm512_srli_epi32::<27>(words)) }
}

impl Permuted for IQ2_XXS {
    const EACH: usize = 8;
    const SIGNS: &'static [i64] = &eight_signs(even(0));

    #[inline(always)]
    fn values() -> [&'static Values; 2] {
        [&IQ2_VALUES[0], &IQ2_VALUES[1]]
    }

    #[inline(always)]
    unsafe fn entries(a: *const u8, b: *const u8) -> [__m512i; 3] {
        // SAFETY: the caller's promise, here and in every function of this file.
        unsafe {
            let index = _mm512_permutex2var_epi32(load512(a.add(2)), EVEN_LANES.get(), load512(b.add(2)));
            let [low, high] = look_up(&IQ2_XXS_PLANES, index, [0]);
            [low, high, _mm512_multishift_epi64_epi8(SEVENS.get(), second_words(a, b))]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { upper_scales(second_words(a, b)) }
    }
}

/// The second word of each of the sub-blocks of two blocks of IQ2_XXS.
///
/// # Safety
/// As [`Permuted`].
#[inline(always)]
unsafe fn second_words(a: *const u8, b: *const u8) -> __m512i {
    // SAFETY: as above.
    unsafe { _mm512_permutex2var_epi32(load512(a.add(2)), ODD_LANES.get(), load512(b.add(2))) }
}

impl Permuted for IQ2_XS {
    const EACH: usize = 8;
    const SIGNS: &'static [i64] = &eight_signs(even(1));

    #[inline(always)]
    fn values() -> [&'static Values; 2] {
        [&IQ2_VALUES[0], &IQ2_VALUES[1]]
    }

    #[inline(always)]
    unsafe fn entries(a: *const u8, b: *const u8) -> [__m512i; 3] {
        // SAFETY: as above.
        unsafe {
            // the lower bytes of 32 words and then the upper ones, of which the lowest bit is the index's ninth
            let [a, b] = [a, b].map(|x| _mm512_permutexvar_epi8(EVEN_ODD.get(), load512(x.add(2))));
            let upper = _mm512_shuffle_i64x2::<0xee>(a, b);
            let ninth = _mm512_test_epi8_mask(upper, _mm512_set1_epi8(1));
            let [low, high] = look_up(&IQ2_XS_PLANES, _mm512_shuffle_i64x2::<0x44>(a, b), [ninth]);
            [low, high, upper]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { odd16(_mm512_multishift_epi64_epi8(WORD_NIBBLES.get(), eight_of_each(a.add(66), b.add(66)))) }
    }
}

impl Permuted for IQ2_S {
    const EACH: usize = 8;
    const SIGNS: &'static [i64] = &eight_signs([1, 2, 4, 8, 16, 32, 64, 128]);

    #[inline(always)]
    fn values() -> [&'static Values; 2] {
        [&IQ2_VALUES[0], &IQ2_VALUES[1]]
    }

    #[inline(always)]
    unsafe fn entries(a: *const u8, b: *const u8) -> [__m512i; 3] {
        // SAFETY: as above.
        unsafe {
            let pairs = _mm512_multishift_epi64_epi8(PAIRS.get(), eight_of_each(a.add(66), b.add(66)));
            let upper = _mm512_and_si512(pairs, _mm512_set1_epi8(3));
            let [low, high] = gather(&IQ2_S_WORDS, joined(a.add(2), b.add(2)), upper);
            [low, high, joined(a.add(34), b.add(34))]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { odd16(_mm512_multishift_epi64_epi8(WORD_NIBBLES.get(), eight_of_each(a.add(74), b.add(74)))) }
    }
}

/// The eight words at `at`, each twice.
///
/// # Safety
/// As [`Permuted`]; the bytes exist.
#[inline(always)]
unsafe fn words_twice(at: *const u8) -> __m512i {
    // SAFETY: as above.
    unsafe { _mm512_permutexvar_epi32(TWICE.get(), _mm512_castsi256_si512(load(at))) }
}

impl Permuted for IQ3_XXS {
    const EACH: usize = 4;
    const SIGNS: &'static [i64] = &FOUR_SIGNS;

    #[inline(always)]
    fn values() -> [&'static Values; 2] {
        [&IQ3_XXS_VALUES; 2]
    }

    #[inline(always)]
    unsafe fn entries(a: *const u8, _b: *const u8) -> [__m512i; 3] {
        // SAFETY: as above.
        unsafe {
            let [low, high] = look_up(&IQ3_XXS_PLANES, load512(a.add(2)), [0]);
            let sevens = _mm512_multishift_epi64_epi8(SEVENS.get(), words_twice(a.add(66)));
            let eights = _mm512_gf2p8affine_epi64_epi8::<0>(sevens, _mm512_set1_epi64(EVEN));
            [low, high, _mm512_multishift_epi64_epi8(NIBBLES.get(), eights)]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, _b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { upper_scales(words_twice(a.add(66))) }
    }
}

impl Permuted for IQ3_S {
    const EACH: usize = 4;
    const SIGNS: &'static [i64] = &FOUR_SIGNS;

    #[inline(always)]
    fn values() -> [&'static Values; 2] {
        [&IQ3_S_VALUES; 2]
    }

    #[inline(always)]
    unsafe fn entries(a: *const u8, _b: *const u8) -> [__m512i; 3] {
        // SAFETY: as above.
        unsafe {
            let [low, high] = look_up(&IQ3_S_PLANES, load512(a.add(2)), [long(a.add(66))]);
            [low, high, _mm512_multishift_epi64_epi8(NIBBLES.get(), words_twice(a.add(74)))]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, _b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { odd32(_mm512_multishift_epi64_epi8(LONG_NIBBLES.get(), _mm512_set1_epi32(word(a.add(106)) as i32))) }
    }
}

/// The eight words of each of two blocks, as 32-bit lanes.
///
/// # Safety
/// As [`Permuted`]; the bytes exist.
#[inline(always)]
unsafe fn words_of_each(a: *const u8, b: *const u8) -> __m256i {
    // SAFETY: as above.
    unsafe { _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load16(a)), load16(b)) }
}

/// Where the three upper bits of indices begin in two words of four each, and where bytes begin that have the words' highest bit.
static THREES: Bytes = word_parts(3, 0);
static TOPS: Bytes = word_parts(0, 8);

const fn word_parts(each: usize, first: usize) -> Bytes {
    let mut all = [0; 64];
    let mut i = 0;
    while i < 64 {
        all[i] = (i % 4 * each + i % 8 / 4 * 16 + first) as u8;
        i += 1;
    }
    Bytes(all)
}

impl Permuted for IQ1_S {
    const EACH: usize = 8;
    const SIGNS: &'static [i64] = &eight_signs([1 << 7; 8]);

    #[inline(always)]
    fn values() -> [&'static Values; 2] {
        [&IQ1_VALUES[0], &IQ1_VALUES[1]]
    }

    #[inline(always)]
    unsafe fn entries(a: *const u8, b: *const u8) -> [__m512i; 3] {
        // SAFETY: as above.
        unsafe {
            let words = _mm512_cvtepu32_epi64(words_of_each(a.add(34), b.add(34)));
            let upper = _mm512_and_si512(_mm512_multishift_epi64_epi8(THREES.get(), words), _mm512_set1_epi8(7));
            let [low, high] = gather(&IQ1_WORDS, joined(a.add(2), b.add(2)), upper);
            [low, high, _mm512_multishift_epi64_epi8(TOPS.get(), words)]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let words = _mm512_cvtepu16_epi32(words_of_each(a.add(34), b.add(34)));
            _mm512_ternarylogic_epi32::<0xf8>(_mm512_set1_epi32(1), _mm512_srli_epi32::<11>(words), _mm512_set1_epi32(14))
        }
    }
}

/// Where the four numbers of three bits of each of four words begin, such that they become bits 1 to 3 of 16-bit lanes.
static WORD_THREES: Bytes = {
    let mut all = [0; 64];
    let mut i = 0;
    while i < 64 {
        all[i] = (i / 2 % 4 * 3 + i / 8 % 4 * 16 + 63) as u8 & 63;
        i += 1;
    }
    Bytes(all)
};

impl Permuted for IQ1_M {
    const EACH: usize = 8;
    const SIGNS: &'static [i64] = &eight_signs([1 << 3; 8]);

    #[inline(always)]
    fn values() -> [&'static Values; 2] {
        [&IQ1_VALUES[0], &IQ1_VALUES[1]]
    }

    #[inline(always)]
    unsafe fn entries(a: *const u8, b: *const u8) -> [__m512i; 3] {
        // SAFETY: as above.
        unsafe {
            let nibbles = _mm512_cvtepu32_epi64(words_of_each(a.add(32), b.add(32)));
            let nibbles = _mm512_multishift_epi64_epi8(NIBBLES.get(), nibbles);
            let [low, high] = gather(&IQ1_WORDS, joined(a, b), _mm512_and_si512(nibbles, _mm512_set1_epi8(7)));
            [low, high, nibbles]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let threes = _mm512_multishift_epi64_epi8(WORD_THREES.get(), eight_of_each(a.add(48), b.add(48)));
            _mm512_ternarylogic_epi32::<0xf8>(_mm512_set1_epi16(1), threes, _mm512_set1_epi16(14))
        }
    }
}
