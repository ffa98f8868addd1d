//! What a block format has to say to the vector kernels: how to take a block apart with AVX2.

mod bytes;

pub(super) use bytes::*;
use std::arch::x86_64::*;
use strata_quant::BlockFormat;

/// Rows that are worked on together where a vector lane is a row.
pub(super) const ROWS: usize = 8;

/// A block format with a vector form. The integers are those of [`BlockFormat::integers`].
///
/// # Safety
/// Every function needs AVX2, FMA and F16C and whole blocks behind its pointers. They are `#[inline(always)]`, to be compiled
/// inside a function that enables the features.
pub(super) trait Unpack: BlockFormat {
    /// Codes come as magnitudes and signs.
    const SIGNED: bool = false;
    /// What is added to the codes of an unsigned format.
    const OFFSET: i8 = 0;
    /// A block is an f16 and 64 codes of two bits, four in a byte, the lowest first; it has two terms.
    const FOURS: bool = false;
    /// Where the f16 scale is, and what it is multiplied by (exactly).
    const D_AT: usize = 0;
    const D_UNIT: f32 = 1.0;
    /// The same of the minima's scale.
    const MIN_AT: usize = 2;
    const MIN_UNIT: f32 = 1.0;

    /// What all units of a block need, in memory.
    type Head: Copy;

    /// Writes what all units of a block need.
    ///
    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn head(_b: *const u8, _to: &mut Self::Head) {}

    /// The codes of values `32 J` to `32 J + 31` of a block, in order.
    ///
    /// Of an unsigned format ([`Unpack::SIGNED`] is false) the first holds code + [`Unpack::OFFSET`] and the second nothing. Of a
    /// signed one the first holds magnitudes and the second numbers of the codes' signs (of any sign where the magnitude is 0).
    ///
    /// # Safety
    /// As the trait says; the block has the unit.
    unsafe fn unit<const J: usize>(b: *const u8, head: &Self::Head) -> (__m256i, __m256i);

    /// A unit as [`Unpack::unit`] gives it, but for what [`Unpack::rest`] adds.
    ///
    /// # Safety
    /// As the trait says; the block has the unit.
    #[inline(always)]
    unsafe fn loose<const J: usize>(b: *const u8, head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: the caller's promise.
        unsafe { Self::unit::<J>(b, head) }
    }

    /// Units `A` and `B`, the next one, as [`Unpack::loose`] gives them, and which of their codes are negative.
    ///
    /// # Safety
    /// As the trait says, and AVX-512 F, BW, DQ and VL; the block has the units, and `A` is even.
    #[inline(always)]
    unsafe fn two<const A: usize, const B: usize>(b: *const u8, head: &Self::Head) -> (__m512i, u64) {
        // SAFETY: the caller's promise.
        unsafe {
            let ((u, s), (v, r)) = (Self::loose::<A>(b, head), Self::loose::<B>(b, head));
            let both = |x, y| _mm512_inserti64x4(_mm512_castsi256_si512(x), y, 1);
            (both(u, v), if Self::SIGNED { _mm512_movepi8_mask(both(s, r)) } else { 0 })
        }
    }

    /// What [`Unpack::pair`] adds to the codes.
    const UP: u8 = if Self::SIGNED { 128 } else { Self::OFFSET as u8 };

    /// Unit `J` of a block of one row and of one of another: code + [`Unpack::UP`].
    ///
    /// # Safety
    /// As the trait says, and AVX-512 F, BW, DQ and VL; the blocks have the unit. Only for blocks of less than 256 values.
    #[inline(always)]
    unsafe fn pair<const J: usize>(_a: *const u8, _b: *const u8) -> __m512i {
        unreachable!("a wide format")
    }

    /// What a product of rows lacks is in the sums of the activations: their factors, one for every 16 values. Without
    /// an own form it is the offset, taken away.
    ///
    /// # Safety
    /// As the trait says; `subs` as [`Unpack::subs`] gives them.
    #[inline(always)]
    unsafe fn rest(_b: *const u8, subs: __m256i) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let each = if Self::SPAN == 16 { subs } else { widen(subs) };
            _mm256_mullo_epi16(each, _mm256_set1_epi16(-i16::from(Self::OFFSET)))
        }
    }

    /// The sub-scales of a 256-wide block as 16-bit integers: sixteen, or eight in each half.
    ///
    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn subs(_b: *const u8) -> __m256i {
        unreachable!("a format without sub-scales")
    }

    /// The minima of a 256-wide block, one for every 16 values.
    ///
    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn mins(_b: *const u8) -> __m256i {
        unreachable!("a format without minima")
    }

    /// The scale of term `term` of a block of each of eight rows.
    ///
    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn d(b: Blocks, _term: usize) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { halves(b, Self::D_AT, Self::D_UNIT) }
    }

    /// The scale of the minima of a block of each of eight rows.
    ///
    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn dmin(b: Blocks) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { halves(b, Self::MIN_AT, Self::MIN_UNIT) }
    }
}

/// A block of each of eight rows.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    /// That of the first row.
    pub first: *const u8,
    /// Bytes from row to row.
    pub stride: usize,
}

impl Blocks {
    /// The block of row `k`.
    #[inline(always)]
    pub fn of(self, k: usize) -> *const u8 {
        self.first.wrapping_add(k * self.stride)
    }

    /// The blocks `bytes` further on.
    #[inline(always)]
    pub fn after(self, bytes: usize) -> Blocks {
        Blocks { first: self.first.wrapping_add(bytes), stride: self.stride }
    }
}

/// The f16 at byte `at` of eight blocks, times `unit`.
///
/// # Safety
/// F16C; the bytes exist.
#[inline(always)]
pub(super) unsafe fn halves(b: Blocks, at: usize, unit: f32) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        let h = |k: usize| b.of(k).add(at).cast::<i16>().read_unaligned();
        let d = _mm256_cvtph_ps(_mm_setr_epi16(h(0), h(1), h(2), h(3), h(4), h(5), h(6), h(7)));
        if unit == 1.0 { d } else { _mm256_mul_ps(d, _mm256_set1_ps(unit)) }
    }
}

/// Does something for each of the first `$count` of eight constants.
macro_rules! each {
    ($j:ident < $count:expr => $body:block) => {
        each!(@ $j $count, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $j:ident $count:expr, $body:block, $($n:literal)*) => {$(
        if $n < $count {
            const $j: usize = $n;
            $body
        }
    )*};
}
pub(super) use each;

/// Sub-scales of 32 values.
static WIDE_SUBS: Places<8> = sub_places(false);
/// Sub-scales of 16 values, of which four units share a vector.
static NARROW_SUBS: Places<8> = sub_places(true);

const fn sub_places(narrow: bool) -> Places<8> {
    let mut all = [[0; 32]; 8];
    let mut i = 0;
    while i < 256 {
        let j = i / 32;
        let sub = if narrow { j % 4 * 2 + i % 32 / 16 } else { j };
        all[j][i % 32] = (sub * 2 + i % 2) as u8;
        i += 1;
    }
    Places(all)
}

/// Sub-scales brought into an order from which [`spread`] takes them with one instruction: twice each, those of units 0 to 3 and
/// those of 4 to 7, of a unit's first 16 values in the lower half and of its other ones in the upper.
///
/// # Safety
/// AVX2; `subs` as [`Unpack::subs`] gives them.
#[inline(always)]
pub(super) unsafe fn by_halves<F: Unpack>(subs: __m256i) -> [__m256i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let halves = if F::SPAN == 16 {
            let even = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
            _mm256_permute4x64_epi64(_mm256_shuffle_epi8(subs, even), 0xd8)
        } else {
            subs
        };
        [kept(_mm256_unpacklo_epi16(halves, halves)), kept(_mm256_unpackhi_epi16(halves, halves))]
    }
}

/// The sub-scales of unit `J`, one for every 16-bit lane.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub(super) unsafe fn spread<const J: usize>(halves: [__m256i; 2]) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        match J % 4 {
            0 => _mm256_shuffle_epi32(halves[J / 4], 0x00),
            1 => _mm256_shuffle_epi32(halves[J / 4], 0x55),
            2 => _mm256_shuffle_epi32(halves[J / 4], 0xaa),
            _ => _mm256_shuffle_epi32(halves[J / 4], 0xff),
        }
    }
}

/// The sub-scales of units `j` and `j + 1`.
///
/// # Safety
/// AVX-512 BW; as [`spread`].
#[inline(always)]
pub(super) unsafe fn spread_two<F: Unpack>(subs: __m256i, j: usize) -> __m512i {
    // SAFETY: the caller's promise; a table has 64 bytes from an even unit on.
    unsafe {
        let upper = F::SPAN == 16 && j >= 4;
        let half = if upper { _mm256_extracti128_si256(subs, 1) } else { _mm256_castsi256_si128(subs) };
        let places = if F::SPAN == 16 { &NARROW_SUBS } else { &WIDE_SUBS };
        _mm512_shuffle_epi8(_mm512_broadcast_i32x4(half), load512(places.of(j)))
    }
}
